"""The JSON of triggers: what the catalog keeps, and what people write by hand. docs/triggers.md shows each form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from tidemill.json_specs import renamed, shaped, sparse, tag_of, union
from tidemill.plugins import load_kinds
from tidemill.schedule.anytime import Anytime
from tidemill.schedule.data_triggers import NewData, NewFiles, NewPartitions, Refreshed, Unit, WatermarkPassed
from tidemill.schedule.expectation_triggers import Missing
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.topic_triggers import Hook, MessageOn
from tidemill.schedule.triggers import AllOf, AnyOf, AtLeast, Composite, Silence, Trigger
from tidemill.schedule.window_triggers import WindowsRecomputed
from tidemill.sizes import exact_bytes

TRIGGERS: Final[Mapping[str, type[Trigger]]] = {
    "new_files": NewFiles,
    "new_partitions": NewPartitions,
    "new_data": NewData,
    "refreshed": Refreshed,
    "watermark_passed": WatermarkPassed,
    "watermark_stands": WatermarkStands,
    "windows_recomputed": WindowsRecomputed,
    "missing": Missing,
    "run_ended": RunEnded,
    "message_on": MessageOn,
    "hook": Hook,
    "every": Every,
    "cron": Cron,
    "anytime": Anytime,
    "all_of": AllOf,
    "any_of": AnyOf,
    "at_least": AtLeast,
    "silence": Silence,
}
"""Triggers by their `type` in JSON."""


@sparse
@dataclass(frozen=True, slots=True)
class _NewData:
    """The JSON of `NewData`, which names one of the two amounts."""

    fileset: str
    bytes: str | None = None
    rows: int | None = None


@sparse
@dataclass(frozen=True, slots=True)
class _NewPartitions:
    """The JSON of `NewPartitions`."""

    fileset: str
    n: int = 1
    where: Mapping[str, object] | None = None
    kinds: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _AnyOf:
    """The JSON of `AnyOf`."""

    triggers: tuple[Trigger, ...]


@sparse
@dataclass(frozen=True, slots=True)
class _AllOf:
    """The JSON of `AllOf`."""

    triggers: tuple[Trigger, ...]
    patience: timedelta | None = None


@dataclass(frozen=True, slots=True)
class _AtLeast:
    """The JSON of `AtLeast`."""

    k: int
    triggers: tuple[Trigger, ...]


@dataclass(frozen=True, slots=True)
class _Silence:
    """The JSON of `Silence`."""

    trigger: Trigger
    duration: timedelta


@sparse
@dataclass(frozen=True, slots=True)
class _NewFiles:
    """The JSON of `NewFiles`, which names one of the two amounts."""

    inbox: str
    n: int | None = None
    bytes: str | None = None


def _write_new_files(trigger: NewFiles) -> _NewFiles:
    in_bytes = trigger.unit is Unit.BYTES
    return _NewFiles(trigger.dataset, None if in_bytes else trigger.n, exact_bytes(trigger.n) if in_bytes else None)


def _write_new_data(trigger: NewData) -> _NewData:
    in_bytes = trigger.unit is Unit.BYTES
    return _NewData(trigger.dataset, exact_bytes(trigger.n) if in_bytes else None, None if in_bytes else trigger.n)


union(Trigger, TRIGGERS, partial(load_kinds, "tidemill.triggers", Trigger))
shaped(NewFiles, _NewFiles, lambda form: NewFiles(form.inbox, form.n, bytes=form.bytes), _write_new_files)
sparse(MessageOn)
sparse(Hook)
sparse(Anytime)
sparse(WindowsRecomputed)
renamed(Anytime, place=None)
shaped(
    NewPartitions,
    _NewPartitions,
    lambda form: NewPartitions(form.fileset, form.n, where=form.where, kinds=form.kinds),
    lambda it: _NewPartitions(it.dataset, it.n, it.where, it.kinds or None),
)
renamed(WatermarkStands, dataset="fileset")
renamed(Refreshed, dataset="snapshot", n=None)
renamed(WatermarkPassed, dataset="fileset", n=None)
shaped(NewData, _NewData, lambda form: NewData(form.fileset, bytes=form.bytes, rows=form.rows), _write_new_data)
shaped(
    AllOf,
    _AllOf,
    lambda form: AllOf(*form.triggers, patience=form.patience),
    lambda it: _AllOf(it.triggers, it.patience),
)
shaped(AnyOf, _AnyOf, lambda form: AnyOf(*form.triggers), lambda trigger: _AnyOf(trigger.triggers))
shaped(
    AtLeast,
    _AtLeast,
    lambda form: AtLeast(form.k, *form.triggers),
    lambda trigger: _AtLeast(trigger.k, trigger.triggers),
)
shaped(
    Silence,
    _Silence,
    lambda form: Silence(form.trigger, form.duration),
    lambda trigger: _Silence(trigger.triggers[0], trigger.duration),
)


def types_of(trigger: Trigger) -> set[str]:
    """Return the types of a trigger and of all its parts, as JSON names them."""
    parts = trigger.triggers if isinstance(trigger, Composite) else trigger.leaves
    return {tag_of(trigger)}.union(*(types_of(part) for part in parts if part is not trigger))
