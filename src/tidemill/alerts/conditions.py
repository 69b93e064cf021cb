"""Conditions: whether the state of a rule holds now, since when, and when time alone could make it hold.

A look costs look-ups, never the history. It says when the next look is needed: what begins after now cannot last too
long before then. So a rule is looked at when its time comes, and when a run ends; nothing is polled.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import singledispatch
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidemill.alerts.rules import (
    ALL_PROGRAMS,
    BackfillStopped,
    ConsumerLag,
    DiskLow,
    JobWaits,
    Late,
    NothingArrived,
    PartitionMisdated,
    Quarantined,
    Rule,
    RunFailed,
    RunSlow,
    RunTooLong,
    SchedulerBehind,
    TransactionTooLong,
    WatermarkHeld,
)
from tidemill.alerts.specs import AlertSpec
from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import list_transactions
from tidemill.durations import format_duration
from tidemill.epoch import show_time
from tidemill.errors import NotFound
from tidemill.lake import datasets
from tidemill.lake.consumer.managed import Consumer, find_consumer, list_consumers
from tidemill.lake.expectations import find_expectations
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.holding import find_misdated
from tidemill.names import DatasetId, NamedThing, Namespace, ProgramId, nearest, qualified, split_qualified
from tidemill.run.records.programs import find_program
from tidemill.schedule.schedules import find_schedule
from tidemill.shapes.expectation import ArrivalState
from tidemill.sizes import format_bytes, parse_bytes
from tidemill.texts import count_of

if TYPE_CHECKING:
    from tidemill.alerts.conditions_sql import Sql

SQL: Sql = load_sql(__file__)

USUAL_RUNS: Final = 50
"""The last completed runs of a program that say how long a run usually takes."""
Subjects: TypeAlias = Collection[str] | None
"""The subjects to look at; None for all."""
_DOTS: Final = 2
"""The dots in the qualified name of a program."""
_TRANSACTIONS: Final = "transactions"
_SCHEDULER: Final = "scheduler"
_FEWEST_RUNS: Final = 5
_SHORTEST: Final = timedelta(seconds=1)
_LOOK_AGAIN: Final = timedelta(hours=1)
"""The next look at a data set without an expectation: a deployment that gives one looks by itself."""
_MOST_COUNTED: Final = 1000


class SubjectKind(StrEnum):
    """Kinds of subjects."""

    PROGRAM = "program"
    SCHEDULE = "schedule"
    DATASET = "dataset"
    CONSUMER = "consumer"
    """The subject is the name of the data set, a space, and the name of the consumer."""
    TRANSACTIONS = "transactions"
    """All transactions together."""
    SCHEDULER = "scheduler"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Violation:
    """A subject whose state a rule is about: since when, and why, in a sentence."""

    subject: str
    since: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a look; `next_look_at` None for never."""

    violations: tuple[Violation, ...]
    next_look_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MachineState:
    """The machine that looks, as it was measured before the transaction. `free` is None if it is not known."""

    host: str
    free: int | None = None


class CountedRuns(NamedTuple):
    """The old runs that alert rules count, beside the last success of each program."""

    failures: int
    """The largest number of last failures of one program that a rule counts; at least 1."""
    timed: tuple[ProgramId, ...]
    """The programs of which a rule counts the last `USUAL_RUNS` completed runs."""


class _AfterRuns(NamedTuple):
    spec: AlertSpec


class _Failing(NamedTuple):
    program_id: ProgramId
    run_id: str
    exit_reason: str | None
    holds_until: datetime | None
    since: datetime


class _Stopped(NamedTuple):
    app: str
    program: str
    backfill_id: str
    reason: str
    failed: int
    ended_at: datetime | None


class _Began(NamedTuple):
    name: str
    at: datetime


@singledispatch
def look(rule: Rule, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    """Look at the state of a rule of `namespace`. A rule about many programs looks at `only` those; None: at all.

    Names that there are not have no state.
    """
    del db, namespace, only, machine
    raise TypeError(f"{type(rule).__name__} is no rule")


@look.register
def _(rule: RunFailed, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del machine
    names = {of: name for name, of in _programs_of(db, rule, namespace) if only is None or name in only}
    if not names:
        return Found(())
    failing = db.records(SQL.list_failing, _Failing, program_ids=json.dumps(list(names)), others=rule.times - 1)
    violations = []
    for one in failing:
        name = names[one.program_id]
        runs = f"the last {rule.times} runs" if rule.times > 1 else f"run {one.run_id}"
        reason = f": {one.exit_reason}" if one.exit_reason else ""
        keeps = ""
        if one.holds_until is not None:
            keeps = f"; it keeps its claims until {show_time(one.holds_until)}: `tidemill run retry {one.run_id}`"
        violations.append(Violation(name, one.since, f"{runs} of {name} failed{reason}{keeps}"))
    return Found(tuple(sorted(violations, key=lambda one: one.subject)))


def _programs_of(db: Db, rule: RunFailed, namespace: Namespace) -> Iterator[tuple[str, ProgramId]]:
    if rule.program == ALL_PROGRAMS:
        for program_id, app, name in _list_programs(db, namespace):
            yield qualified(namespace, app, name), program_id
    elif (found := _find_program(db, rule.program)) is not None:
        yield rule.program, found


def _list_programs(db: Db, namespace: Namespace) -> list[tuple[ProgramId, str, str]]:
    return db.records(SQL.list_programs, tuple[ProgramId, str, str], namespace=namespace)


@look.register
def _(rule: RunTooLong, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    program_id = _find_program(db, rule.program)
    row = None if program_id is None else db.record(SQL.find_longest, _Began, program_id=program_id)
    why = f"run {row.name} of {rule.program} has been under way" if row else ""
    return _lasting(db, rule.program, rule.longer_than, row, why)


@look.register
def _(rule: RunSlow, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    program_id = _find_program(db, rule.program)
    took = [] if program_id is None else db.records(SQL.list_times, int, program_id=program_id, limit=USUAL_RUNS)
    if program_id is None or len(took) < _FEWEST_RUNS:
        return Found(())  # the end of a run brings the next look
    usual = timedelta(milliseconds=sorted(took)[ceil(len(took) * 0.99) - 1])
    longest = max(usual * rule.factor, _SHORTEST)
    row = db.record(SQL.find_longest, _Began, program_id=program_id)
    why = f"run {row.name} of {rule.program} is slow (usual are {format_duration(_whole(usual))})" if row else ""
    return _lasting(db, rule.program, _whole(longest), row, f"{why}: under way")


@look.register
def _(rule: BackfillStopped, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del only, machine
    if rule.program != ALL_PROGRAMS:
        namespace = split_qualified("program", rule.program, 2)[0]
    violations: dict[str, Violation] = {}
    for one in db.records(SQL.list_stopped, _Stopped, namespace=namespace):
        subject = qualified(namespace, one.app, one.program)
        if rule.program in {ALL_PROGRAMS, subject} and subject not in violations:  # the newest one of each program
            what = f"backfill {one.backfill_id} of {subject}"
            show = f"`tidemill backfill show {one.backfill_id}`"
            failed = count_of(one.failed, "item")
            why = f"{what} ended with {failed} failed" if one.ended_at else f"{what} has paused: {one.reason}"
            violations[subject] = Violation(subject, one.ended_at or db.now(), f"{why}: {show}")
    return Found(tuple(sorted(violations.values(), key=lambda one: one.subject)))


@look.register
def _(rule: NothingArrived, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    dataset_id = _find_dataset(db, rule.dataset)
    at = None if dataset_id is None else db.value(SQL.find_last_arrival, datetime, dataset_id=dataset_id)
    row = None if at is None else _Began(rule.dataset, at)
    return _lasting(db, rule.dataset, rule.longer_than, row, f"nothing has arrived in {rule.dataset}")


@look.register
def _(rule: ConsumerLag, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    subject = _name_lag(rule)
    dataset_id = _find_dataset(db, rule.dataset)
    known = [] if dataset_id is None else list_consumers(db, dataset_id=dataset_id, name=rule.consumer)
    waiting, oldest = 0, None
    for consumer in known:
        waiting, oldest = measure_waiting(db, consumer, max(rule.partitions, 1))
    what = f"for {rule.consumer} in {rule.dataset}"
    if not rule.partitions:
        row = None if oldest is None else _Began(subject, oldest)
        return _lasting(db, subject, rule.longer_than, row, f"a partition has waited {what}")
    if oldest is None or waiting < rule.partitions:
        return Found(())
    return Found((Violation(subject, oldest, f"{rule.partitions} partitions or more wait {what}"),))


def _name_lag(rule: ConsumerLag) -> str:
    return f"{rule.dataset} {rule.consumer}"


@look.register
def _(
    rule: SchedulerBehind, db: Db, namespace: Namespace, only: Collection[str] | None, machine: MachineState
) -> Found:
    del namespace, only, machine
    due = db.value(SQL.find_oldest_due, datetime)
    row = None if due is None or due > db.now() else _Began(_SCHEDULER, due)
    return _lasting(db, _SCHEDULER, rule.by, row, "a timer or a job has been due")


@look.register
def _(rule: DiskLow, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only
    if machine.free is None or machine.free >= parse_bytes(rule.free):
        return Found(())
    why = f"{machine.host} has {format_bytes(machine.free)} left for the state of its project, less than "
    return Found((Violation(machine.host, db.now(), f"{why}{rule.free}"),))


@look.register
def _(rule: JobWaits, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    space, (app, name) = split_qualified("schedule", rule.schedule, 2)
    row = db.record(SQL.find_waiting_job, _Began, namespace=space, app=app, name=name)
    why = f"the job of {rule.schedule} has waited for its constraints" if row else ""
    return _lasting(db, rule.schedule, rule.longer_than, row, why)


@look.register
def _(rule: WatermarkHeld, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    dataset_id = _find_dataset(db, rule.fileset)
    at = None if dataset_id is None else db.value(SQL.find_last_move, datetime, dataset_id=dataset_id)
    row = None if at is None else _Began(rule.fileset, at)
    why = f"the watermark of {rule.fileset} has stood"
    return _lasting(db, rule.fileset, rule.longer_than, row, why)


@look.register
def _(rule: PartitionMisdated, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    dataset_id = _find_dataset(db, rule.fileset)
    dataset = None if dataset_id is None else datasets.find_by_id(db, dataset_id)
    if dataset is None or dataset.kind is not datasets.DatasetKind.FILESET:
        return Found(())
    found = find_misdated(db, Fileset.of(dataset))
    if found is None:
        return Found(())
    show = f"`tidemill watermark show {rule.fileset}`"
    why = f"partitions of {rule.fileset} do not count: {found.told}: {show}"
    return Found((Violation(rule.fileset, found.since, why),), found.due_at)


@look.register
def _(
    rule: TransactionTooLong, db: Db, namespace: Namespace, only: Collection[str] | None, machine: MachineState
) -> Found:
    del namespace, only, machine
    oldest = next(iter(list_transactions(db, limit=1, open_only=True)), None)
    began = None if oldest is None else _Began(str(oldest.write_pointer), oldest.began_at)
    why = f"transaction {began.name} has been open" if began else ""
    return _lasting(db, _TRANSACTIONS, rule.longer_than, began, why)


@look.register
def _(rule: Late, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    now = db.now()
    dataset_id = _find_dataset(db, rule.dataset)
    found = None if dataset_id is None else find_expectations(db, [dataset_id]).get(dataset_id)
    if found is None:
        return Found((), now + _LOOK_AGAIN)
    if found.state is not ArrivalState.BROKEN or found.broken_since is None:
        return Found((), max(found.next_look_at + rule.by, now + timedelta(seconds=1)))
    if found.broken_since + rule.by > now:
        return Found((), found.broken_since + rule.by)
    last = "nothing has arrived yet" if found.last_arrival is None else f"the last came {show_time(found.last_arrival)}"
    why = f"nothing arrived in {rule.dataset} by {show_time(found.expected_by)}; {last}"
    return Found((Violation(rule.dataset, found.broken_since, why),))


@look.register
def _(rule: Quarantined, db: Db, namespace: Namespace, only: Subjects, machine: MachineState) -> Found:
    del namespace, only, machine
    dataset_id = _find_dataset(db, rule.inbox)
    most = max(_MOST_COUNTED, rule.files)
    files = 0 if dataset_id is None else db.value(SQL.count_quarantined, int, dataset_id=dataset_id, limit=most) or 0
    if files < rule.files:
        return Found(())
    number = "1 file" if files == 1 else f"{files} or more files" if files == most else f"{files} files"
    why = f"{number} of {rule.inbox} in quarantine: `tidemill inbox files {rule.inbox} --state quarantined`"
    return Found((Violation(rule.inbox, db.now(), why),))


def list_counted(db: Db) -> CountedRuns:
    """Return which old runs the alert rules of all namespaces count. Cost: the rules that look at ends of runs."""
    rules = [one.spec.rule for one in db.records(SQL.list_after_runs, _AfterRuns)]
    failures = max((rule.times for rule in rules if isinstance(rule, RunFailed)), default=1)
    slow = {rule.program for rule in rules if isinstance(rule, RunSlow)}
    found = (_find_program(db, name) for name in sorted(slow))
    return CountedRuns(failures, tuple(program_id for program_id in found if program_id is not None))


def measure_waiting(db: Db, consumer: Consumer, most: int) -> tuple[int, datetime | None]:
    """Return the number of changes that wait for a consumer, up to `most`, and the time of the first. Cost: `most`."""
    number, oldest = db.records(
        SQL.measure_waiting,
        tuple[int, datetime | None],
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        start_version=consumer.state.start_version,
        versions_to_check=json.dumps(consumer.state.versions_to_check),
        limit=most,
    )[0]
    return min(number, most), oldest


def list_references(rule: Rule) -> list[NamedThing]:
    """Return the things that a rule is about. Machines, schedulers and all transactions belong to no namespace."""
    match rule:
        case RunFailed(program=name) | BackfillStopped(program=name) if name == ALL_PROGRAMS:
            return []
        case RunFailed(program=name) | BackfillStopped(program=name) | RunTooLong(program=name) | RunSlow(program=name):
            return [_reference("program", name, 2)]
        case JobWaits(schedule=name):
            return [_reference("schedule", name, 2)]
        case ConsumerLag(dataset=name, consumer=consumer):
            return [_reference("data set", name, 1), _reference("consumer", consumer, 2)]
        case (
            Late(dataset=name)
            | Quarantined(inbox=name)
            | WatermarkHeld(fileset=name)
            | PartitionMisdated(fileset=name)
            | NothingArrived(dataset=name)
        ):
            return [_reference("data set", name, 1)]
        case _:
            return [NamedThing("alert rule", type(rule).__name__, None)]


def _reference(kind: str, name: str, parts: int) -> NamedThing:
    return NamedThing(kind, name, split_qualified(kind, name, parts)[0])


def find_kind(rule: Rule, subject: str) -> SubjectKind | None:
    """Return the kind of a subject; None for a subject that the rule never has, such as one of an earlier rule."""
    known: str | None
    match rule:
        case RunFailed(program=name) | BackfillStopped(program=name) if name == ALL_PROGRAMS:
            kind, known = SubjectKind.PROGRAM, subject if subject.count(".") == _DOTS else None
        case (
            RunFailed(program=known)
            | BackfillStopped(program=known)
            | RunTooLong(program=known)
            | RunSlow(program=known)
        ):
            kind = SubjectKind.PROGRAM
        case JobWaits(schedule=known):
            kind = SubjectKind.SCHEDULE
        case ConsumerLag():
            kind, known = SubjectKind.CONSUMER, _name_lag(rule)
        case TransactionTooLong():
            kind, known = SubjectKind.TRANSACTIONS, _TRANSACTIONS
        case SchedulerBehind():
            kind, known = SubjectKind.SCHEDULER, _SCHEDULER
        case Late(dataset=known) | Quarantined(inbox=known) | WatermarkHeld(fileset=known):
            kind = SubjectKind.DATASET
        case NothingArrived(dataset=known) | PartitionMisdated(fileset=known):
            kind = SubjectKind.DATASET
        case _:
            kind, known = SubjectKind.MACHINE, subject
    return kind if subject == known else None


def check_names(db: Db, rule: Rule) -> None:
    """Raise `NotFound` for a rule about a thing that there is not: it would be silent for ever."""
    match rule:
        case (
            RunFailed(program=name) | BackfillStopped(program=name) | RunTooLong(program=name) | RunSlow(program=name)
        ) if name != ALL_PROGRAMS:
            namespace, (app, local) = split_qualified("program", name, 2)
            find_program(db, namespace, app, local)
        case JobWaits(schedule=name):
            namespace, (app, local) = split_qualified("schedule", name, 2)
            find_schedule(db, namespace, app, local)
        case (
            Late(dataset=name)
            | Quarantined(inbox=name)
            | WatermarkHeld(fileset=name)
            | PartitionMisdated(fileset=name)
            | NothingArrived(dataset=name)
            | ConsumerLag(dataset=name)
        ):
            namespace, (local,) = split_qualified("data set", name, 1)
            dataset = datasets.find(db, namespace, local)
            if isinstance(rule, ConsumerLag):
                find_consumer(db, dataset.dataset_id, rule.consumer)
            elif isinstance(rule, PartitionMisdated) and dataset.kind is not datasets.DatasetKind.FILESET:
                raise NotFound("file set", name, hint=f"it is the name of a data set of the kind {dataset.kind}")


def find_subject(db: Db, rule: Rule, namespace: Namespace, given: str) -> str:
    """Return the subject that a person names, as alerts of a rule of `namespace` have it.

    `NotFound` for a text that is never the subject of such an alert.
    """
    full = f"{namespace}.{given}"
    match rule:
        case RunFailed(program=name) | BackfillStopped(program=name) if name == ALL_PROGRAMS:
            known = [qualified(namespace, app, local) for _, app, local in _list_programs(db, namespace)]
        case ConsumerLag():
            known = [_name_lag(rule)]
        case TransactionTooLong():
            known = [_TRANSACTIONS]
        case SchedulerBehind():
            known = [_SCHEDULER]
        case DiskLow():
            return given  # any machine may come
        case _:
            known = [thing.name for thing in list_references(rule)]
    found = next((one for one in (given, full) if one in known), None)
    if found is None:
        only = f"its only subject is {known[0]}" if len(known) == 1 else ""
        raise NotFound("subject of the rule", given, nearest(full, known), hint=only)
    return found


def _lasting(db: Db, subject: str, longest: timedelta, row: _Began | None, why: str) -> Found:
    """Say whether what began with `row`, the first of its kind, lasts longer than `longest`."""
    now = db.now()
    if row is None:
        return Found((), now + longest)
    if row.at + longest > now:
        return Found((), row.at + longest)
    sentence = f"{why} since {show_time(row.at)}, longer than {format_duration(longest)}"
    return Found((Violation(subject, row.at, sentence),))


def _whole(span: timedelta) -> timedelta:
    return timedelta(milliseconds=round(span / timedelta(milliseconds=1)))


def _find_program(db: Db, name: str) -> ProgramId | None:
    namespace, (app, local) = split_qualified("program", name, 2)
    return db.value(SQL.find_program, ProgramId, namespace=namespace, app=app, name=local)


def _find_dataset(db: Db, name: str) -> DatasetId | None:
    namespace, (local,) = split_qualified("data set", name, 1)
    return db.value(SQL.find_dataset, DatasetId, namespace=namespace, name=local)
