"""The JSON of triggers: what the catalog keeps, and what people write by hand. docs/triggers.md shows each form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemill.json_specs import renamed, shaped, sparse, union
from tidemill.schedule.data_triggers import NewData, NewFiles, NewPartitions, Refreshed, Unit, WatermarkPassed
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.triggers import AllOf, AnyOf, Trigger
from tidemill.sizes import exact_bytes

TRIGGERS: Final[Mapping[str, type[Trigger]]] = {
    "new_files": NewFiles,
    "new_partitions": NewPartitions,
    "new_data": NewData,
    "refreshed": Refreshed,
    "watermark_passed": WatermarkPassed,
    "every": Every,
    "cron": Cron,
    "all_of": AllOf,
    "any_of": AnyOf,
}
"""Triggers by their `type` in JSON."""


@sparse
@dataclass(frozen=True, slots=True)
class _NewData:
    """The JSON of `NewData`, which names one of the two amounts."""

    fileset: str
    bytes: str | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class _Several:
    """The JSON of `AllOf` and `AnyOf`."""

    triggers: tuple[Trigger, ...]


def _write_new_data(trigger: NewData) -> _NewData:
    in_bytes = trigger.unit is Unit.BYTES
    return _NewData(trigger.dataset, exact_bytes(trigger.n) if in_bytes else None, None if in_bytes else trigger.n)


union(Trigger, TRIGGERS)
renamed(NewFiles, dataset="inbox")
renamed(NewPartitions, dataset="fileset")
renamed(Refreshed, dataset="snapshot", n=None)
renamed(WatermarkPassed, dataset="fileset", n=None)
shaped(NewData, _NewData, lambda form: NewData(form.fileset, bytes=form.bytes, rows=form.rows), _write_new_data)
shaped(AllOf, _Several, lambda form: AllOf(*form.triggers), lambda trigger: _Several(trigger.triggers))
shaped(AnyOf, _Several, lambda form: AnyOf(*form.triggers), lambda trigger: _Several(trigger.triggers))
