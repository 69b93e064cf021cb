"""Schedules as values: the spec of a schedule, and the record that the store keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

import tidemill.schedule.constraint_json  # declares the JSON of `ScheduleSpec.constraints`
import tidemill.schedule.not_installed  # declares what stands for parts of packages that are not installed
import tidemill.schedule.trigger_json  # noqa: F401  # declares the JSON of `ScheduleSpec.trigger`
from tidemill.catalog.named import GREATEST
from tidemill.durations import format_duration
from tidemill.errors import UserError
from tidemill.json_specs import copy_of, has_tag, read_plain, read_stored, write_plain
from tidemill.names import CommitSeq, Namespace, ProgramId, ScheduleId, program_limit, qualified
from tidemill.schedule.argument_sources import From
from tidemill.schedule.constraints import FACTS, Concurrency, Constraint, limit_of, longest_windows
from tidemill.schedule.time_triggers import CalendarTrigger, TimeTrigger
from tidemill.schedule.triggers import Trigger
from tidemill.schedule.waits import Delay, SinceLastRun
from tidemill.secret_places import Secret

DEFAULT_TIMEOUT: Final = timedelta(hours=24)
DEFAULT_GRACE: Final = timedelta(minutes=1)

_SHORTEST_TIMEOUT: Final = timedelta(seconds=1)


class BadSchedule(UserError):
    """A schedule that cannot be."""

    code = "bad_schedule"
    hint = "correct the schedule as the reason says"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"schedule is refused: {why}")


class OnTimeout(StrEnum):
    """Rule for a job whose constraints did not hold in time."""

    CANCEL = "cancel"
    FORCE = "force"


class Misfire(StrEnum):
    """Rule for the times of a `Cron` or `Anytime` that passed without a scheduler, or that came while a job waited."""

    ONCE = "once"
    """All of the times share a run."""
    ALL = "all"
    """A run for each, one after the other."""
    SKIP = "skip"
    """Times that are older than the schedule's `grace` are left out. A single run carries the others."""


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """When to start a program, and with what; two equal specs are the same schedule to a deployment.

    Values of `arguments` are plain, or a `From`, which takes them from what started the run.

    `timeout` runs from the moment the trigger is satisfied; `deadline` likewise: until then a lower priority yields to
    a higher one, past it the job goes first. Of two jobs that want one slot the higher `priority` goes first.
    `trigger_timeout` runs from the job's creation: a job whose trigger is not satisfied in that time ends without a
    run, and the trigger counts from zero. None: the job waits for its trigger however long.
    """

    trigger: Trigger
    constraints: tuple[Constraint, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)
    description: str = ""
    timeout: timedelta = DEFAULT_TIMEOUT
    on_timeout: OnTimeout = OnTimeout.CANCEL
    priority: int = 0
    deadline: timedelta | None = None
    trigger_timeout: timedelta | None = None
    misfire: Misfire = Misfire.ONCE
    grace: timedelta = DEFAULT_GRACE

    def __post_init__(self) -> None:
        _check_types(self)
        _check_constraints(self.constraints, self.timeout if self.on_timeout is OnTimeout.CANCEL else None)
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise BadSchedule(f"priority must be a whole number, not {self.priority!r}")
        if abs(self.priority) > GREATEST:
            # The row set of a deployment would keep it as a float on SQLite, and fail on PostgreSQL.
            raise BadSchedule(f"priority {self.priority} is beyond {GREATEST}; use small numbers, such as 1 to 9")
        if self.timeout < _SHORTEST_TIMEOUT:
            raise BadSchedule(f"timeout must be at least {format_duration(_SHORTEST_TIMEOUT)}")
        for name, wait in (("trigger_timeout", self.trigger_timeout), ("deadline", self.deadline)):
            if wait is not None and wait < _SHORTEST_TIMEOUT:
                raise BadSchedule(f"{name} must be at least {format_duration(_SHORTEST_TIMEOUT)}, or left out")
        if self.misfire is not Misfire.ONCE and not any(
            isinstance(leaf, CalendarTrigger) for leaf in self.trigger.leaves
        ):
            raise BadSchedule(f"misfire={self.misfire} is about times of Cron and Anytime, and its trigger has none")
        if self.grace != DEFAULT_GRACE and self.misfire is not Misfire.SKIP:
            raise BadSchedule("grace does nothing without misfire='skip': leave it out, or say both")
        _take_arguments(self, self.arguments)
        try:
            plain = [given.default if isinstance(given, From) else given for given in self.arguments.values()]
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise BadSchedule(f"arguments must be JSON: {error}") from None

    def trigger_timeout_at(self, created_at: datetime) -> datetime | None:
        """Time by which the trigger of a job made at `created_at` must have been satisfied; None for no such time."""
        return None if self.trigger_timeout is None else created_at + self.trigger_timeout

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(text: str) -> ScheduleSpec:
        """Read the JSON of a spec. Cached: each message and each check asks, and parsing was half of their time.

        Thousands of schedules that are due at once often differ in their arguments alone: what else they say is read
        once for all of them.
        """
        begin, _, end = text.rpartition(_ARGUMENTS)
        try:
            # Both parts are JSON only if the key is one of the spec itself, and its last one.
            arguments = json.loads(end.removesuffix("}"))
            spec = copy_of(_decode_rule(f"{begin}}}"))
        except (ValueError, RecursionError, UserError):
            return _decode_rule(text)
        if not isinstance(arguments, dict):
            return _decode_rule(text)
        _take_arguments(spec, arguments)
        return spec

    def encode(self) -> str:
        """Return the JSON that `decode` reads. The arguments come last, so that `decode` need not parse the rest."""
        plain = write_plain(self)
        arguments = plain.pop("arguments")
        return json.dumps({**plain, "arguments": arguments})

    def needs(self, program_id: ProgramId) -> tuple[str, ...]:
        """The names of the facts that the constraints read."""
        return tuple(dict.fromkeys([name for one in self.constraints for name in one.needs(program_id)]))

    def takes(self, program_id: ProgramId) -> set[str]:
        """The limits of which a run of the schedule holds a slot, beside that of its program."""
        return {limit for one in self.constraints for limit in one.takes(program_id)}

    def limit_keys(self, program_id: ProgramId) -> set[str]:
        """The `slot_limit` rows under which a launch is decided."""
        guards = map(limit_of, self.needs(program_id))
        return self.takes(program_id).union(limit for limit in guards if limit is not None)

    def start_windows(self, program_id: ProgramId) -> dict[ProgramId, timedelta]:
        """The longest window of each program in which the constraints count launches."""
        return longest_windows(self.needs(program_id))

    def slots(self, program_id: ProgramId) -> set[str]:
        """The limits of which a run of the schedule holds a slot."""
        return {program_limit(program_id), *self.takes(program_id)}


def _take_arguments(spec: ScheduleSpec, arguments: Mapping[str, object]) -> None:
    # A frozen class sets its fields this way: the JSON form of a source becomes the source.
    object.__setattr__(spec, "arguments", {name: _read_given(given) for name, given in arguments.items()})


def _check_types(spec: ScheduleSpec) -> None:
    """Refuse values of types that an app file can give by mistake, and that JSON cannot."""
    if not isinstance(spec.trigger, Trigger):
        raise BadSchedule(f"trigger has {spec.trigger!r}, which is no trigger; give such as Every('1h')")
    if not isinstance(spec.description, str):
        raise BadSchedule(f"description must be text, not {spec.description!r}")
    if not isinstance(spec.arguments, Mapping) or not all(isinstance(name, str) for name in spec.arguments):
        raise BadSchedule(f"arguments must be values by their names, not {spec.arguments!r}")


def _check_constraints(constraints: Sequence[Constraint], timeout: timedelta | None) -> None:
    """Refuse constraints that contradict each other, or that never hold before a job is cancelled by `timeout`."""
    known: dict[tuple[type, str], Constraint] = {}
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise BadSchedule(f"constraints has {constraint!r}, which is no constraint; give such as Concurrency(1)")
        if not has_tag(type(constraint)):
            cure = "declare its class as an entry point of the group tidemill.constraints"
            raise BadSchedule(f"{constraint} has no form in JSON; {cure}")
        other = known.setdefault((type(constraint), constraint.subject), constraint)
        if other is not constraint:
            raise BadSchedule(f"constraints has both {other} and {constraint}; leave one of them out")
        if timeout is not None and isinstance(constraint, Delay) and constraint.duration >= timeout:
            waits = f"{constraint} is not shorter than timeout={format_duration(timeout)}, which cancels each job"
            raise BadSchedule(f"{waits}; use a longer timeout")
        unknown = {name for name in constraint.needs(ProgramId("")) if name.partition(":")[0] not in FACTS}
        if unknown:
            raise BadSchedule(f"{constraint} needs {min(unknown)!r}, and facts begin with {', '.join(sorted(FACTS))}")
    several = next((one for one in constraints if isinstance(one, Concurrency) and one.n > 1), None)
    alone = next((one for one in constraints if isinstance(one, SinceLastRun)), None)
    if several and alone:
        raise BadSchedule(f"{alone} allows no run beside another, so {several} has no use; leave one of them out")


_ARGUMENTS: Final = ', "arguments": '


@lru_cache(maxsize=4096)
def _decode_rule(text: str) -> ScheduleSpec:
    return read_stored(ScheduleSpec, text)


def _read_given(given: object) -> object:
    match given:
        case {"from": str(path), **others} if not others:
            return _read_source(path)
        case {"from": _}:
            return read_plain(From, given)
        case Secret(place):
            return place
        case _:
            return given


# Thousands of schedules have few sources.
_read_source: Final = lru_cache(maxsize=256)(From)


class Status(StrEnum):
    """State of a schedule: it starts its program, or is suspended."""

    SUSPENDED = "SUSPENDED"
    SCHEDULED = "SCHEDULED"


class SuspendMode(StrEnum):
    """Fate of the jobs of a suspended schedule, and of what comes meanwhile (seed 001, "Suspend and Resume").

    In each mode the schedule starts no run until it is resumed.
    """

    DROP = "drop"
    """Pending jobs are dropped, and messages and times feed no job. At resume, data that waits is announced."""
    HOLD = "hold"
    """Pending jobs stay. Messages and times feed them, and they go on at resume."""
    BACKLOG = "backlog"
    """Pending jobs are dropped. What comes meanwhile feeds a job that goes on at resume; waiting data is announced."""


class Owner(StrEnum):
    """Maker of a schedule: a deployment, or a person by command line and REST."""

    APP = "app"
    OPS = "ops"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as stored. Messages with `seq < since_seq` are behind it; timers count from `since_at`.

    A message with `seq = since_seq` is of the commit that made, changed or resumed the schedule: work that waits.
    """

    schedule_id: ScheduleId
    namespace: Namespace
    app: str
    name: str
    generation: int
    since_seq: CommitSeq
    since_at: datetime
    program_id: ProgramId
    spec: ScheduleSpec
    owner: Owner
    status: Status
    suspended_at: datetime | None = None
    suspended_mode: SuspendMode | None = None

    @property
    def listens(self) -> bool:
        """True if messages and times feed jobs of the schedule."""
        return self.suspended_mode is not SuspendMode.DROP

    @property
    def qualified_name(self) -> str:
        """`default.shop.nightly`."""
        return qualified(self.namespace, self.app, self.name)

    @property
    def time_leaves(self) -> dict[int, TimeTrigger]:
        """The leaves that the clock feeds, by `trigger_no`, with the times that they have in this schedule."""
        leaves = enumerate(self.spec.trigger.leaves)
        return {no: leaf.placed(self.qualified_name) for no, leaf in leaves if isinstance(leaf, TimeTrigger)}
