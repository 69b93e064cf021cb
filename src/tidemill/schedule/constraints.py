"""Constraints: conditions that must hold, beside the trigger, at the instant of a launch (seed 001). Frozen, pure.

A constraint names the facts that it needs. A checker locks the rows of the limits that guard these facts, then reads
the facts, and keeps the rows until the run exists. So two schedules never launch past a limit. This module has the
protocol and the constraints that count runs; `waits` has the constraints that compare times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from tidemill.durations import format_duration, parse_duration
from tidemill.errors import Internal, UserError
from tidemill.names import BadName, ProgramId, check_name, program_limit
from tidemill.schedule.answers import Answer, Never, NotBefore, Satisfied, Waiting

_T = TypeVar("_T")

_SHORTEST: Final = timedelta(seconds=1)


class BadConstraint(UserError):
    """A constraint that cannot be."""

    code = "bad_constraint"
    hint = "correct the constraint as the reason says"

    def __init__(self, constraint: str, why: str) -> None:
        self.constraint = constraint
        self.why = why
        super().__init__(f"constraint {constraint} is refused: {why}")


class OnLimit(StrEnum):
    """Rule for a job while a constraint does not hold."""

    WAIT = "wait"
    SKIP = "skip"
    """The job ends without a run. The program's next run takes its input."""


class LastRun(NamedTuple):
    """The run of a program that succeeded last."""

    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """A number that a probe gave at a time of the catalog; None and a reason if the probe gave none."""

    at: datetime
    value: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one job, by the names that the constraint's `needs` gives.

    | Name | Fact |
    |---|---|
    | `slots:<limit>` | the number of runs that hold a slot of the limit |
    | `ahead:<limit>` | the number of other jobs that could take a slot of the limit and have the better turn |
    | `active:<program>` | the number of the program's runs that have not ended |
    | `last_success:<program>` | the program's `LastRun`, or None |
    | `starts:<program>:<window>` | the times of the program's launches in the window that ends now, newest first |
    | `probe:<name>` | a `ProbeReading` that is younger than `READING_AGE` |
    """

    program_id: ProgramId
    satisfied_at: datetime
    """The time at which the trigger was satisfied."""
    fed_at: datetime
    """The time of the last message or fire that fed the job."""
    values: Mapping[str, object]

    def count(self, name: str) -> int:
        """Return a fact that is a number of runs or jobs."""
        return self._value(name, int)

    def times(self, name: str) -> tuple[datetime, ...]:
        """Return a fact that is several times."""
        found: tuple[datetime, ...] = self._value(name, tuple)
        return found

    def last_run(self, name: str) -> LastRun | None:
        """Return a fact that is a run; None if the program has not succeeded yet."""
        return None if self.values.get(name, ...) is None else self._value(name, LastRun)

    def reading(self, name: str) -> ProbeReading:
        """Return a fact that a probe gave."""
        return self._value(name, ProbeReading)

    def _value(self, name: str, kind: type[_T]) -> _T:
        value = self.values.get(name)
        if not isinstance(value, kind):
            raise Internal(f"a constraint asked for the fact {name!r} as {kind.__name__}, and its needs do not say so")
        return value


class Constraint(ABC):
    """A condition on the start of a program, beside the trigger.

    Implementations are frozen and pure: `check` decides by the facts and the time alone. Facts keep their values from
    `check` to the launch, since the checker holds the rows of their limits. A plug-in implements this class too.
    Conformance: `tidemill.testing.check_constraint`.
    """

    __slots__ = ()

    @property
    def subject(self) -> str:
        """A text that tells constraints of one kind apart. A schedule has one constraint for each kind and subject."""
        return ""

    def takes(self, _program_id: ProgramId) -> tuple[str, ...]:
        """The limits of which a run holds a slot from its launch to its end state, beside that of its program."""
        return ()

    def needs(self, _program_id: ProgramId) -> tuple[str, ...]:
        """The names of the facts that `check` reads (see `Facts`)."""
        return ()

    @abstractmethod
    def check(self, facts: Facts, now: datetime) -> Answer:
        """Say whether the job may start its program at `now`, the catalog's time. `Never` ends the job as skipped.

        A `NotBefore` is later than `now`; it may be early, never late. A `Waiting` names keys of `slots_key` or
        `idle_key` for limits of its facts: the end of a run wakes the jobs that wait for these.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Return the constraint as people write it."""


FACTS: Final = frozenset({"slots", "ahead", "active", "last_success", "starts", "probe"})
"""The first words of the names of facts."""

READING_AGE: Final = timedelta(seconds=15)
"""Age at which a probe is asked again."""


def limit_of(name: str) -> str | None:
    """Return the limit whose row guards the fact `name`: launches and ends of runs lock the row.

    Nothing guards a reading of a probe: None.
    """
    kind, _, subject = name.partition(":")
    if kind in {"slots", "ahead"}:
        return subject
    if kind == "probe":
        return None
    program_id = ProgramId(subject) if kind != "starts" else window_of(subject)[0]
    return program_limit(program_id)


def window_of(subject: str) -> tuple[ProgramId, timedelta]:
    """Return the program and the window of a fact `starts:<subject>`."""
    program_id, _, window = subject.rpartition(":")
    return ProgramId(program_id), parse_duration(window)


def longest_windows(names: Iterable[str]) -> dict[ProgramId, timedelta]:
    """Return the longest window of each program in which launches are counted for the facts of these names."""
    windows: dict[ProgramId, timedelta] = {}
    for name in names:
        kind, _, subject = name.partition(":")
        if kind == "starts":
            program_id, window = window_of(subject)
            windows[program_id] = max(window, windows.get(program_id, window))
    return windows


@dataclass(frozen=True, slots=True, init=False)
class Concurrency(Constraint):
    """Limit of `n` runs of the program at one time, however the runs were started.

    A job over the limit waits for a slot.
    """

    n: int
    on_limit: OnLimit = OnLimit.WAIT

    def __init__(self, n: int, on_limit: str = OnLimit.WAIT) -> None:
        object.__setattr__(self, "n", check_n("Concurrency", n))
        object.__setattr__(self, "on_limit", read_on_limit("Concurrency", on_limit))

    def __str__(self) -> str:
        return f"Concurrency({self.n}{show_on_limit(self.on_limit)})"

    def needs(self, program_id: ProgramId) -> tuple[str, ...]:
        """The slots of the program, and the jobs that wait for a slot."""
        return _slot_needs(program_limit(program_id))

    def check(self, facts: Facts, now: datetime) -> Answer:  # noqa: ARG002
        """Satisfied if a slot is free, also for the jobs with the better turn: a free slot is theirs first."""
        return _check_slots("concurrency", self.n, program_limit(facts.program_id), facts, self.on_limit)


@dataclass(frozen=True, slots=True, init=False)
class GroupConcurrency(Constraint):
    """Limit of `n` runs at one time in a group: the runs of all schedules that name the group.

    Each schedule keeps its own `n`: with 2 in one schedule and 5 in another, the first one starts a run only while the
    group has fewer than 2. A run started by hand counts in the groups of all schedules of its program.
    """

    group: str
    n: int
    on_limit: OnLimit = OnLimit.WAIT

    def __init__(self, group: str, n: int, on_limit: str = OnLimit.WAIT) -> None:
        try:
            check_name("group", group)
        except (BadName, TypeError) as error:
            why = str(error) if isinstance(error, BadName) else f"group must be text, not {group!r}"
            raise BadConstraint("GroupConcurrency", why) from None
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "n", check_n("GroupConcurrency", n))
        object.__setattr__(self, "on_limit", read_on_limit("GroupConcurrency", on_limit))

    def __str__(self) -> str:
        return f"GroupConcurrency('{self.group}', {self.n}{show_on_limit(self.on_limit)})"

    @property
    def subject(self) -> str:
        """The group."""
        return self.group

    @property
    def limit(self) -> str:
        """The limit of the group, which all namespaces share."""
        return f"group:{self.group}"

    def takes(self, _program_id: ProgramId) -> tuple[str, ...]:
        """The group's."""
        return (self.limit,)

    def needs(self, _program_id: ProgramId) -> tuple[str, ...]:
        """The slots of the group, and the jobs that wait for a slot."""
        return _slot_needs(self.limit)

    def check(self, facts: Facts, now: datetime) -> Answer:  # noqa: ARG002
        """Satisfied if a slot of the group is free, also for the jobs with the better turn."""
        return _check_slots(f"group {self.group}", self.n, self.limit, facts, self.on_limit)


@dataclass(frozen=True, slots=True, init=False)
class Rate(Constraint):
    """Limit of `n` launches of the program in any window of the length `per`, however the runs were started.

    The window slides: it does not begin with the hour or the day. A further attempt of a run is no launch.
    """

    n: int
    per: timedelta
    on_limit: OnLimit = OnLimit.WAIT

    def __init__(self, n: int, per: str | timedelta, on_limit: str = OnLimit.WAIT) -> None:
        object.__setattr__(self, "n", check_n("Rate", n))
        object.__setattr__(self, "per", read_duration("Rate", "per", per))
        object.__setattr__(self, "on_limit", read_on_limit("Rate", on_limit))

    def __str__(self) -> str:
        return f"Rate({self.n}, per='{format_duration(self.per)}'{show_on_limit(self.on_limit)})"

    @property
    def subject(self) -> str:
        """The length of the window."""
        return format_duration(self.per)

    def needs(self, program_id: ProgramId) -> tuple[str, ...]:
        """The launches in the window."""
        return (self._starts(program_id),)

    def check(self, facts: Facts, now: datetime) -> Answer:
        """Satisfied if fewer than `n` launches are in the window."""
        starts = facts.times(self._starts(facts.program_id))
        counted = f"rate {len(starts)}/{self.n} in {format_duration(self.per)}"
        if len(starts) < self.n:
            return Satisfied(counted)
        at = starts[self.n - 1] + self.per
        return Satisfied(counted) if at <= now else hold_back(NotBefore(at, counted), self.on_limit)

    def _starts(self, program_id: ProgramId) -> str:
        return f"starts:{program_id}:{format_duration(self.per)}"


def slots_key(limit: str) -> str:
    """The wake key of jobs that wait until a slot of `limit` is free."""
    return f"slots:{limit}"


def idle_key(limit: str) -> str:
    """The wake key of jobs that wait for the end of a run of `limit`, and need no slot: they have no turn."""
    return f"idle:{limit}"


def hold_back(answer: NotBefore | Waiting, on_limit: OnLimit) -> Answer:
    """Return the answer for a job that may not start now: to wait, or never."""
    return Never(answer.why) if on_limit is OnLimit.SKIP else answer


def check_n(constraint: str, n: object) -> int:
    """Return `n` if it is a number of runs; raise `BadConstraint`."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise BadConstraint(constraint, f"n must be a whole number of at least 1, not {n!r}")
    return n


def read_on_limit(constraint: str, on_limit: object) -> OnLimit:
    """Return the `OnLimit` of that name; raise `BadConstraint`."""
    try:
        return OnLimit(on_limit)  # type: ignore[arg-type]  # what is no text is refused too
    except ValueError:
        raise BadConstraint(constraint, f"on_limit must be 'wait' or 'skip', not {on_limit!r}") from None


def show_on_limit(on_limit: OnLimit) -> str:
    """Return `on_limit` as a further argument; nothing for the default."""
    return "" if on_limit is OnLimit.WAIT else f", on_limit='{on_limit}'"


def read_duration(constraint: str, field: str, given: str | timedelta) -> timedelta:
    """Return a duration of at least a second; raise `BadConstraint`."""
    try:
        parsed = parse_duration(given)
    except UserError as error:
        raise BadConstraint(constraint, f"{field} is no duration: {error}") from None
    if parsed < _SHORTEST:
        raise BadConstraint(constraint, f"{field} must be at least {format_duration(_SHORTEST)}, not {given!r}")
    return parsed


def _slot_needs(limit: str) -> tuple[str, ...]:
    return (f"slots:{limit}", f"ahead:{limit}")


def _check_slots(what: str, n: int, limit: str, facts: Facts, on_limit: OnLimit) -> Answer:
    held, ahead = facts.count(f"slots:{limit}"), facts.count(f"ahead:{limit}")
    counted = f"{what} {held}/{n}"
    if held >= n:
        return hold_back(Waiting(counted, (slots_key(limit),), n), on_limit)
    if held + ahead >= n:
        return hold_back(Waiting(f"{counted}, {ahead} with the better turn", (slots_key(limit),), n), on_limit)
    return Satisfied(counted)
