"""Rules: the states that last too long, or that should not be. A rule is a value; its JSON is in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from tidemill.durations import format_duration, parse_duration
from tidemill.errors import UserError
from tidemill.json_specs import sparse, union
from tidemill.names import check_name, qualified, split_qualified
from tidemill.schedule.data_triggers import Named
from tidemill.sizes import parse_bytes

ALL_PROGRAMS: Final = "*"
"""The program of a rule about all programs of its namespace."""


_MOST_FACTOR: Final = 1000


class BadRule(UserError):
    """A rule of an alert that cannot be meant."""

    code = "bad_rule"
    hint = "correct the rule as the reason says"

    def __init__(self, rule: str, why: str) -> None:
        self.rule = rule
        self.why = why
        super().__init__(f"alert rule {rule} is refused: {why}")


class LooksAfter(StrEnum):
    """Events after which a rule is looked at."""

    NOTHING = ""
    RUNS = "runs"
    COMMITS = "commits"
    MACHINE = "machine"
    """At each look of each machine, since no commit says how it is."""


class Rule:
    """A state that people want to know, from its begin to its end."""

    __slots__ = ()

    @property
    def looks_after(self) -> LooksAfter:
        """Events with which the state can begin or end, apart from time."""
        return LooksAfter.NOTHING


@sparse
@dataclass(frozen=True, slots=True, init=False)
class RunFailed(Rule):
    """The last `times` runs of a program have failed, after all their retries. A run that completes ends the state.

    Without a program, the rule is about each program of its namespace.
    """

    program: str = ALL_PROGRAMS
    times: int = 1

    def __init__(self, program: object = ALL_PROGRAMS, times: int = 1) -> None:
        name = program if program == ALL_PROGRAMS else _name("RunFailed", "program", program, 2)
        _set(self, program=name, times=_count("RunFailed", "times", times))

    @property
    def looks_after(self) -> LooksAfter:
        """A run has failed, or completed."""
        return LooksAfter.RUNS


@sparse
@dataclass(frozen=True, slots=True, init=False)
class BackfillStopped(Rule):
    """A backfill of a program has paused by itself, or has ended with failed items.

    The state ends when the backfill is resumed, cancelled or retried. A newer backfill that ends without a failed item
    makes good for one that has ended.
    Without a program, the rule is about each program of its namespace.
    """

    program: str = ALL_PROGRAMS

    def __init__(self, program: object = ALL_PROGRAMS) -> None:
        name = program if program == ALL_PROGRAMS else _name("BackfillStopped", "program", program, 2)
        _set(self, program=name)

    @property
    def looks_after(self) -> LooksAfter:
        """A scheduler stores a backfill, and so does a person that resumes it."""
        return LooksAfter.COMMITS


@dataclass(frozen=True, slots=True, init=False)
class RunTooLong(Rule):
    """An attempt of a program has been under way for `longer_than`."""

    program: str
    longer_than: timedelta

    def __init__(self, program: object, longer_than: str | timedelta) -> None:
        _set(self, program=_name("RunTooLong", "program", program, 2), longer_than=_span("RunTooLong", longer_than))


@dataclass(frozen=True, slots=True, init=False)
class RunSlow(Rule):
    """An attempt takes `factor` times as long as usual: as the p99 of the last 50 runs of the program that completed.

    A program that has completed fewer than 5 runs has no usual time.
    """

    program: str
    factor: float

    def __init__(self, program: object, factor: float = 3.0) -> None:
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= _MOST_FACTOR:
            raise BadRule("RunSlow", f"factor must be a number from 1 to {_MOST_FACTOR}, not {factor!r}")
        _set(self, program=_name("RunSlow", "program", program, 2), factor=float(factor))

    @property
    def looks_after(self) -> LooksAfter:
        """The end of a run changes the usual time."""
        return LooksAfter.RUNS


@dataclass(frozen=True, slots=True, init=False)
class JobWaits(Rule):
    """The job of a schedule has waited for its constraints for `longer_than`, since its trigger was satisfied."""

    schedule: str
    longer_than: timedelta

    def __init__(self, schedule: str, longer_than: str | timedelta) -> None:
        _set(self, schedule=_name("JobWaits", "schedule", schedule, 2), longer_than=_span("JobWaits", longer_than))


@sparse
@dataclass(frozen=True, slots=True, init=False)
class Late(Rule):
    """The arrival expectation of a data set (`expect=Arrivals(…)`) has been broken for `by`."""

    dataset: str
    by: timedelta = timedelta(0)

    def __init__(self, dataset: str | Named, by: str | timedelta = timedelta(0)) -> None:
        _set(self, dataset=_name("Late", "data set", dataset, 1), by=_span("Late", by, zero=True))


@sparse
@dataclass(frozen=True, slots=True, init=False)
class Quarantined(Rule):
    """At least `files` files of an inbox are in quarantine: they failed too often, and wait for a person."""

    inbox: str
    files: int = 1

    def __init__(self, inbox: str | Named, files: int = 1) -> None:
        _set(self, inbox=_name("Quarantined", "data set", inbox, 1), files=_count("Quarantined", "files", files))

    @property
    def looks_after(self) -> LooksAfter:
        """A file is put into quarantine by runs, by a listing and by claims of other engines."""
        return LooksAfter.COMMITS


@dataclass(frozen=True, slots=True, init=False)
class WatermarkHeld(Rule):
    """The watermark of a file set has not moved for `longer_than`."""

    fileset: str
    longer_than: timedelta

    def __init__(self, fileset: str | Named, longer_than: str | timedelta) -> None:
        name = _name("WatermarkHeld", "data set", fileset, 1)
        _set(self, fileset=name, longer_than=_span("WatermarkHeld", longer_than))


@dataclass(frozen=True, slots=True, init=False)
class PartitionMisdated(Rule):
    """A partition of a file set has no time that can be read, or its time is further ahead than `max_ahead`.

    No window waits for such a partition.
    """

    fileset: str

    def __init__(self, fileset: str | Named) -> None:
        _set(self, fileset=_name("PartitionMisdated", "data set", fileset, 1))

    @property
    def looks_after(self) -> LooksAfter:
        """A commit brings such a partition, or drops it."""
        return LooksAfter.COMMITS


@dataclass(frozen=True, slots=True, init=False)
class TransactionTooLong(Rule):
    """A transaction of any namespace has been open for `longer_than`."""

    longer_than: timedelta

    def __init__(self, longer_than: str | timedelta) -> None:
        _set(self, longer_than=_span("TransactionTooLong", longer_than))


@dataclass(frozen=True, slots=True, init=False)
class NothingArrived(Rule):
    """Nothing has come into a data set for `longer_than`. The data set needs no expectation."""

    dataset: str
    longer_than: timedelta

    def __init__(self, dataset: str | Named, longer_than: str | timedelta) -> None:
        name = _name("NothingArrived", "data set", dataset, 1)
        _set(self, dataset=name, longer_than=_span("NothingArrived", longer_than))


@sparse
@dataclass(frozen=True, slots=True, init=False)
class ConsumerLag(Rule):
    """At least `partitions` wait for a consumer of a file set, or one has waited for `longer_than`.

    `consumer` is the program that reads, or its name.
    """

    dataset: str
    consumer: str
    partitions: int = 0
    longer_than: timedelta = timedelta(0)

    def __init__(
        self,
        dataset: str | Named,
        consumer: object,
        partitions: int = 0,
        longer_than: str | timedelta = timedelta(0),
    ) -> None:
        span = _span("ConsumerLag", longer_than, zero=True)
        if (partitions == 0) == (span == timedelta(0)):
            raise BadRule("ConsumerLag", "give either partitions or longer_than")
        _set(
            self,
            dataset=_name("ConsumerLag", "data set", dataset, 1),
            consumer=_name("ConsumerLag", "program", consumer, 2),
            partitions=partitions if partitions == 0 else _count("ConsumerLag", "partitions", partitions),
            longer_than=span,
        )

    @property
    def looks_after(self) -> LooksAfter:
        """A commit brings partitions, and another one takes them."""
        return LooksAfter.COMMITS if self.partitions else LooksAfter.NOTHING


@dataclass(frozen=True, slots=True, init=False)
class SchedulerBehind(Rule):
    """A timer or the check of a job has been due for `by`, and no scheduler has done it."""

    by: timedelta

    def __init__(self, by: str | timedelta) -> None:
        _set(self, by=_span("SchedulerBehind", by))


@dataclass(frozen=True, slots=True, init=False)
class DiskLow(Rule):
    """A machine of `tidemill up` has less than `free` left for the state of its project, such as `10 GB`."""

    free: str

    def __init__(self, free: str) -> None:
        parse_bytes(free)
        _set(self, free=free)

    @property
    def looks_after(self) -> LooksAfter:
        """Any process may fill a disk."""
        return LooksAfter.MACHINE


RULES: Final[Mapping[str, type[Rule]]] = {
    "run_failed": RunFailed,
    "run_too_long": RunTooLong,
    "run_slow": RunSlow,
    "backfill_stopped": BackfillStopped,
    "job_waits": JobWaits,
    "late": Late,
    "quarantined": Quarantined,
    "watermark_held": WatermarkHeld,
    "partition_misdated": PartitionMisdated,
    "transaction_too_long": TransactionTooLong,
    "nothing_arrived": NothingArrived,
    "consumer_lag": ConsumerLag,
    "scheduler_behind": SchedulerBehind,
    "disk_low": DiskLow,
}
"""Rules by their `type` in JSON."""
union(Rule, RULES)


def _set(rule: Rule, **values: Any) -> None:  # noqa: ANN401  # of any field
    for name, value in values.items():
        object.__setattr__(rule, name, value)


def _name(rule: str, kind: str, thing: object, parts: int) -> str:
    name = thing if isinstance(thing, str) else getattr(thing, "qualified_name", None)
    if not isinstance(name, str):
        raise BadRule(rule, f"a {kind} or its name is wanted, not {thing!r}")
    namespace, local = split_qualified(kind, name, parts)
    for part in local:
        check_name(kind, part)
    return qualified(namespace, *local)


def _count(rule: str, field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRule(rule, f"{field} must be a whole number of at least 1, not {value!r}")
    return value


def _span(rule: str, value: object, *, zero: bool = False) -> timedelta:
    if not isinstance(value, str | timedelta):
        raise BadRule(rule, f"a duration is wanted, such as 2h, not {value!r}")
    span = parse_duration(value) if isinstance(value, str) or value > timedelta(0) else value
    if span < timedelta(0) or (span == timedelta(0) and not zero):
        raise BadRule(rule, f"{format_duration(span)} is no time to wait; give a duration such as 2h")
    return span
