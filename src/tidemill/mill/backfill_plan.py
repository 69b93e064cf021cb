"""Plans of backfills: the items that a choice names, what each of them needs, and how large they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import GREATEST, load_sql
from tidemill.epoch import EPOCH, show_second, show_time
from tidemill.errors import NotFound, UserError
from tidemill.lake.consumer.managed import Consumer, find_readers
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.choosing import check_choosable
from tidemill.mill.period import read_period
from tidemill.mill.project import Project
from tidemill.mill.scheduled import find_named
from tidemill.names import DatasetId, RunId, advise, one_of
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunRecord, RunState, find_runs, list_runs
from tidemill.run.step.inputs import refuse_taking
from tidemill.run.step.needs import ItemNeed, find_needs, need_of_run
from tidemill.schedule.argument_sources import From, LogicalTime
from tidemill.schedule.backfill_records import MOST_ITEMS, By, list_open_items
from tidemill.schedule.backfills import LOGICAL_TIME, REPEATS
from tidemill.schedule.schedules import read_timers
from tidemill.schedule.specs import Misfire, Schedule
from tidemill.schedule.time_triggers import CalendarTrigger
from tidemill.shapes.filters import KeyFilter, Where, choose
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.mill.backfill_plan_sql import Sql

SQL: Sql = load_sql(__file__)

_PART: Final = 1000
_SECOND: Final = timedelta(seconds=1)
_EARLY: Final = timedelta(days=1)
"""Runs that were made up to a day before their logical time are found."""
_SHORTER: Final = "items; name a shorter period"


class Selection(StrEnum):
    """Part of the named items that a backfill takes."""

    UNFINISHED = "unfinished"
    """Missing or failed."""
    MISSING = "missing"
    FAILED = "failed"
    ALL = "all"

    def takes(self, need: ItemNeed) -> bool:
        """Return whether an item with this need is part of the backfill."""
        return need in _TAKEN_BY[self]


_TAKEN_BY: Final[Mapping[Selection, frozenset[ItemNeed]]] = {
    Selection.UNFINISHED: frozenset({ItemNeed.MISSING, ItemNeed.FAILED}),
    Selection.MISSING: frozenset({ItemNeed.MISSING}),
    Selection.FAILED: frozenset({ItemNeed.FAILED}),
    Selection.ALL: frozenset(ItemNeed),
}


class BadBackfill(UserError):
    """A choice of items that is refused."""

    code = "bad_backfill"
    hint = "correct the choice as the reason says"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the backfill is refused: {why}")


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of items, as a caller gives it. See `Backfills.plan`."""

    by: By
    select: Selection
    dataset: str | None = None
    where: Where | Sequence[str] | None = None
    schedule: str | None = None
    since: datetime | str | None = None
    until: datetime | str | None = None
    runs: Sequence[str] | None = None
    from_version: int | None = None
    to_version: int | None = None

    def __post_init__(self) -> None:
        for name in _FIELDS:
            if getattr(self, name) is not None and name not in _TAKEN[self.by]:
                takers = " or ".join(f"by={by}" for by, taken in _TAKEN.items() if name in taken)
                raise BadBackfill(f"{name} goes with {takers}, not with by={self.by}")

    @classmethod
    def read(cls, by: str, select: str | None, **given: object) -> Choice:
        """Return the choice of a caller. `BadBackfill`."""
        kind = one_of(By, by, lambda why: BadBackfill(f"by {why}"))
        default = Selection.ALL if kind is By.RUNS else Selection.UNFINISHED
        return cls(
            kind,
            one_of(Selection, select or default, lambda why: BadBackfill(f"select {why}")),
            **given,  # type: ignore[arg-type]  # the callers have the types
        )

    def shown(self) -> dict[str, object]:
        """Return the choice as the record of a backfill keeps it for people, as JSON."""
        given = {name: getattr(self, name) for name in _FIELDS}
        plain = {name: _plain(value) for name, value in given.items() if value is not None}
        return {"by": self.by.value, "select": self.select.value, **plain}


_FIELDS: Final = ("dataset", "where", "schedule", "since", "until", "runs", "from_version", "to_version")
_TAKEN: Final[Mapping[By, frozenset[str]]] = {
    By.PARTITIONS: frozenset({"dataset", "where"}),
    By.TIMES: frozenset({"schedule", "since", "until"}),
    By.RUNS: frozenset({"since", "until", "runs"}),
    By.VERSIONS: frozenset({"dataset", "where", "from_version", "to_version"}),
}


def _plain(value: object) -> object:
    match value:
        case datetime():
            return show_time(value)
        case Mapping():
            return {name: str(one) for name, one in value.items()}
        case str() | int():
            return value
        case Sequence():
            return [str(one) for one in value]
        case _:
            return str(value)


class PlannedItem(NamedTuple):
    """An item of a plan: as the catalog keeps it, and as people read it. The sizes of times and runs are not known."""

    item: str
    shown: str
    need: ItemNeed
    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """Items of a choice, in order, and the numbers of all that it names by their needs."""

    items: tuple[PlannedItem, ...]
    named: Mapping[ItemNeed, int]
    arguments: Mapping[str, object]
    """The arguments of the schedule, in which the logical time stands as its source."""
    dataset_id: DatasetId | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the schedule of which a backfill has no value, each with the path of its source."""


class _Partition(NamedTuple):
    partition_key: KeyText
    bytes: int
    row_count: int


def plan_backfill(db: Db, project: Project, program: Program, choice: Choice) -> Planned:
    """Return the items of `choice`, with their needs. Changes nothing.

    Cost: what the choice names; by times, the runs since the first time; by versions, the changes between the versions.
    """
    dataset_id = None
    arguments: Mapping[str, object] = {}
    missing: Mapping[str, str] = {}
    if choice.by is By.TIMES:
        refuse_taking(db, program)
    else:
        check_choosable(db, program)
    match choice.by:
        case By.TIMES:
            schedule = _find_schedule(db, project, program, choice.schedule)
            arguments, missing = _take_over(schedule)
            found = _plan_times(db, program, schedule, choice)
        case By.RUNS:
            found = _plan_runs(db, program, choice)
        case _:
            fileset, consumer = _find_input(db, project, program, choice.dataset)
            dataset_id = fileset.dataset_id
            found = _plan_partitions(db, program, fileset, consumer, choice)
    named: Counter[ItemNeed] = Counter()
    items: list[PlannedItem] = []
    others = list_open_items(db, program.program_id, dataset_id)
    for item in found:
        one = item if item.need is ItemNeed.RUNNING else item._replace(need=others.get(item.item, item.need))
        named[one.need] += 1
        if choice.select.takes(one.need):
            items.append(one)
        if len(items) > MOST_ITEMS:
            raise BadBackfill(f"it has more than {MOST_ITEMS:,} items; choose fewer, and start another for the rest")
    return Planned(tuple(items), named, arguments, dataset_id, missing)


def _find_input(db: Db, project: Project, program: Program, name: str | None) -> tuple[Fileset, Consumer]:
    """Return the file set whose partitions are meant, and the consumer by which the program reads it."""
    read = {one: find_dataset(db, one) for one in program.reads}
    consumers = {one.dataset_id: one for one in find_readers(db, [(one, program.qualified_name) for one in read])}
    filesets: dict[str, Dataset] = {
        one: dataset
        for one, dataset in read.items()
        if dataset.kind is DatasetKind.FILESET and dataset.dataset_id in consumers
    }
    known = ", ".join(filesets) or "none"
    if name is not None:
        wanted = project.dataset(db, name).qualified_name
        if wanted not in filesets:
            advice = advise(wanted, filesets, f"its file sets are {known}")
            raise BadBackfill(f"{program.qualified_name} takes no partitions of {wanted}; {advice}")
    elif not filesets:
        raise BadBackfill(
            f"{program.qualified_name} takes partitions of no file set; choose its items by times or runs"
        )
    elif len(filesets) == 1:
        (wanted,) = filesets
    else:
        raise BadBackfill(f"{program.qualified_name} takes partitions of {known}; name one of them as `dataset`")
    return Fileset.of(filesets[wanted]), consumers[filesets[wanted].dataset_id]


def _plan_partitions(
    db: Db, program: Program, fileset: Fileset, consumer: Consumer, choice: Choice
) -> Iterator[PlannedItem]:
    accepted = choose(fileset.keys, choice.where)
    # The program never gets other partitions.
    taken = KeyFilter.from_json(fileset.keys, consumer.terms.where or {})
    changed = choice.by is By.VERSIONS
    parts = _list_changed(db, fileset, choice) if changed else _list_current(db, fileset, accepted.bounds)
    for part in parts:
        keys = [one.partition_key for one in part]
        wanted = {key for key in keys if accepted.accepts(key) and taken.accepts(key)}
        needs = find_needs(db, program.program_id, consumer, sorted(wanted))
        for one in part:
            if one.partition_key in wanted:
                shown = fileset.show(one.partition_key)
                yield PlannedItem(one.partition_key, shown, needs[one.partition_key], one.bytes, one.row_count)


def _list_current(db: Db, fileset: Fileset, bounds: tuple[str, str]) -> Iterator[list[_Partition]]:
    lower, upper = bounds
    after = ""
    while part := db.records(
        SQL.list_partitions,
        _Partition,
        dataset_id=fileset.dataset_id,
        lower=lower,
        after=after,
        upper=upper,
        most=_PART,
    ):
        yield part
        after = part[-1].partition_key


def _list_changed(db: Db, fileset: Fileset, choice: Choice) -> Iterator[list[_Partition]]:
    first, last = choice.from_version or 0, GREATEST if choice.to_version is None else choice.to_version
    changed = db.records(
        SQL.list_changed, KeyText, dataset_id=fileset.dataset_id, first=first, last=last, most=MOST_ITEMS + 1
    )
    _check_number(changed, "partitions; name fewer versions")
    for start in range(0, len(changed), _PART):
        keys = json.dumps(changed[start : start + _PART])
        yield db.records(SQL.list_named, _Partition, dataset_id=fileset.dataset_id, keys=keys)


def _check_number(named: Collection[object], cure: str) -> None:
    """Raise `BadBackfill` if a list of what a choice names was cut: its rest would be left out without a word."""
    if len(named) > MOST_ITEMS:
        raise BadBackfill(f"it names more than {MOST_ITEMS:,} {cure}")


def _find_schedule(db: Db, project: Project, program: Program, name: str | None) -> Schedule:
    if name is None:
        raise BadBackfill("name the schedule whose times are meant: schedule='app.schedule'")
    found = find_named(project, db, name)
    if found.program_id != program.program_id:
        raise BadBackfill(f"schedule {found.qualified_name} starts another program than {program.qualified_name}")
    if not any(isinstance(leaf, CalendarTrigger) for leaf in found.time_leaves.values()):
        raise BadBackfill(
            f"the trigger of {found.qualified_name} has no fixed times; name a schedule with Cron or Anytime"
        )
    return found


def _take_over(schedule: Schedule) -> tuple[dict[str, object], dict[str, str]]:
    """Return the arguments of a schedule, and those of which a backfill has no value, with the path of the source.

    Of their sources only the logical time has a value, others their default.
    """
    taken: dict[str, object] = {}
    missing: dict[str, str] = {}
    for name, given in schedule.spec.arguments.items():
        if not isinstance(given, From):
            taken[name] = given
        elif isinstance(given.source, LogicalTime):
            taken[name] = LOGICAL_TIME
        elif given.default is not None:
            taken[name] = given.default
        else:
            missing[name] = given.path
    return taken, missing


def _plan_times(db: Db, program: Program, schedule: Schedule, choice: Choice) -> Iterator[PlannedItem]:
    if choice.since is None or choice.until is None:
        raise BadBackfill("give `since` and `until`: the times of the schedule from the first on, before the second")
    since, until = read_period(choice.since, choice.until)
    if since < EPOCH:
        raise BadBackfill(f"`since` is {show_time(since)}, and times of schedules begin with 1970; name a later time")
    # A time that has not come is the schedule's.
    until = min(until, db.now())
    leaves = {no: leaf for no, leaf in schedule.time_leaves.items() if isinstance(leaf, CalendarTrigger)}
    times: set[tuple[datetime, int]] = set()
    for no, leaf in leaves.items():
        times |= {(at, no) for at in islice(_times_of(leaf, since, until), MOST_ITEMS + 1)}
        _check_number(times, _SHORTER)
    states, due = _list_logical_times(db, program, since), _find_due(db, schedule)
    waiting = {at for at, no in times if no in due and at >= due[no]}
    waiting |= {*db.records(SQL.list_open_times, datetime, schedule_id=schedule.schedule_id, since=since)}
    for at in sorted({at for at, _ in times}):
        need = need_of_run(states.get(at))
        if at in waiting and need in {ItemNeed.MISSING, ItemNeed.FAILED}:
            need = ItemNeed.WAITING
        yield PlannedItem(at.isoformat(), show_second(at), need)


def _find_due(db: Db, schedule: Schedule) -> dict[int, datetime]:
    """Return for each time trigger the time from which on the schedule makes the runs by itself."""
    due = read_timers(db, schedule.schedule_id)
    if schedule.spec.misfire is not Misfire.SKIP:
        return due
    kept = db.now() - schedule.spec.grace
    return {no: max(at, kept) for no, at in due.items()}


def _times_of(leaf: CalendarTrigger, since: datetime, until: datetime) -> Iterator[datetime]:
    # A trigger gives the times after a time. None has two times within a second.
    fires = leaf.fires_after(since - _SECOND)
    return takewhile(lambda at: at < until, dropwhile(lambda at: at < since, fires))


def _list_logical_times(db: Db, program: Program, since: datetime) -> dict[datetime, RunState]:
    """Return the state of the newest run of each logical time from `since` on, of runs not made long before.

    Replays are left out: see `list_course`.
    """
    states: dict[datetime, RunState] = {}
    place = {"program_id": program.program_id, "since": max(since, EPOCH + _EARLY) - _EARLY, "most": _PART}
    for run in _list_all(lambda **at: list_runs(db, **{**place, **at})):
        for at in run.logical_times if run.replay is None else ():
            states.setdefault(at, run.state)
    return states


def _list_all(read: Callable[..., list[RunRecord]]) -> Iterator[RunRecord]:
    part = read()
    while part:
        yield from part
        part = read(before=(part[-1].created_at, part[-1].run_id))


def _plan_runs(db: Db, program: Program, choice: Choice) -> Iterator[PlannedItem]:
    if choice.runs is not None:
        found = {run.run_id: run for run in find_runs(db, [RunId(one) for one in choice.runs])}
        for run_id in dict.fromkeys(choice.runs):
            run = found.get(RunId(run_id))
            if run is None or run.program_id != program.program_id:
                raise NotFound("run", run_id, hint=f"name runs of {program.qualified_name}")
            yield PlannedItem(run.run_id, run.run_id, need_of_run(run.state))
        return
    if choice.since is None or choice.until is None:
        raise BadBackfill("name the runs, or give `since` and `until`: the period in which the runs were made")
    since, until = read_period(choice.since, choice.until)
    place = {"since": since, "before": (until, "")}
    runs = _list_all(lambda **at: list_runs(db, program_id=program.program_id, most=_PART, **{**place, **at}))
    of = list(islice((run.run_id for run in runs if _is_first(run)), MOST_ITEMS + 1))
    _check_number(of, _SHORTER)
    if program.reads:
        with_input = {*db.records(SQL.list_with_input, RunId, runs=json.dumps(of))}
        of = [run_id for run_id in of if run_id in with_input]
    for run_id in reversed(of):
        yield PlannedItem(run_id, run_id, ItemNeed.DONE)


def _is_first(run: RunRecord) -> bool:
    """Return whether a run has committed and repeats no other run: both together would publish the same rows twice."""
    return run.state is RunState.COMPLETED and run.replay is None and REPEATS not in run.triggered_by
