"""Overview: the things that need a person, the feeds with their freshness, and what runs and waits."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import FROM_LATEST, load_sql
from tidemill.catalog.records import to_json
from tidemill.durations import format_duration
from tidemill.lake.datasets import Dataset, DatasetKind, find_by_id, list_datasets
from tidemill.lake.expectations import Expectation, find_expectations
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.holding import find_misdated
from tidemill.mill.jobs import JobView, view_job
from tidemill.mill.page import cut, one_more, read_key, write_key
from tidemill.mill.project import Project, fields_of, program_names, schedule_names
from tidemill.mill.run_views import RunView, view_run
from tidemill.mill.usual import LOOKED_AT, FailureStreak, count_failures, is_unusual, longest_usual_waits, usual_run
from tidemill.names import (
    DatasetId,
    Namespace,
    ProgramId,
    RunId,
    file_event,
    partition_event,
    qualified,
    snapshot_event,
)
from tidemill.run.records import runs
from tidemill.run.records.programs import Program, list_programs
from tidemill.schedule.jobs import Job, list_jobs
from tidemill.shapes.expectation import ArrivalState

if TYPE_CHECKING:
    from tidemill.mill.overview_sql import Sql

SQL: Sql = load_sql(__file__)

FEEDS: Final = 50
HOURS: Final = 24
_MOST_NEEDS: Final = 50
"""Needs of each kind; more of a kind are not shown."""
_MOST_WAITING: Final = 20
_MOST_COMPARED: Final = 200
"""Jobs whose wait is compared with the usual: so many with a satisfied trigger, and so many others."""
MOST_AN_HOUR: Final = 200
"""Arrivals of a data set in one hour are counted up to this number."""
MOST_COUNTED: Final = 1000
"""Counts of what waits end here, so that a look costs the same however much waits."""


@dataclass(frozen=True, slots=True)
class Need:
    """A thing that needs a person: its kind, the thing, a sentence, the evidence, since when, and the next command."""

    kind: str
    """`alert`, `failed`, `late`, `misdated`: partitions that no window waits for, `quarantine`, or `waits`: a job waits
    longer than jobs of its schedule ever do."""
    thing: str
    said: str
    evidence: str
    since: datetime | None
    look: str


@dataclass(frozen=True, slots=True)
class FeedView:
    """A data set as a feed: whether it is fresh, the arrivals of each of the last 24 hours, and the work that waits.

    `waiting` counts files of an inbox, or partitions for the consumers of a file set, up to 1,001. `arrivals` counts up
    to 201 in an hour.
    """

    name: str
    kind: str
    state: str
    """`fresh`, `late`, `failing`, `filling`, or `quiet`: nothing is expected, and nothing arrived."""
    last_arrival: datetime | None
    expect: str
    due_at: datetime | None
    """The time by which the next arrival is expected; None without an expectation."""
    arrivals: tuple[int, ...]
    waiting: int
    filled_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningView(RunView):
    """A run with an attempt under way. `usual` is the median duration of the last successful runs of its program."""

    usual: timedelta | None


@dataclass(frozen=True, slots=True)
class WaitingView(JobView):
    """A job that waits. `longest` is the longest wait of the last jobs of its schedule; a longer wait is unusual."""

    longest: timedelta | None
    unusual: bool


@dataclass(frozen=True, slots=True)
class OverviewTotals:
    """Numbers of the whole project, each counted up to 1,001: data sets, those late or failing, and jobs that wait."""

    feeds: int
    unwell: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The project at a glance. `next` is the key of the next feeds.

    `needs` has 50 of each kind; `more_needs` is true if there are more. `waiting` has jobs that wait longer than usual
    first, then the oldest jobs, 20 in all.
    """

    at: datetime
    needs: tuple[Need, ...]
    more_needs: bool
    totals: OverviewTotals
    feeds: tuple[FeedView, ...]
    next: str | None
    running: tuple[RunningView, ...]
    waiting: tuple[WaitingView, ...]


class _AlertRow(NamedTuple):
    alert_id: str
    rule: str
    subject: str
    why: str
    since: datetime


class _NameRow(NamedTuple):
    dataset_id: DatasetId
    namespace: Namespace
    name: str


class _QuarantineRow(NamedTuple):
    dataset_id: DatasetId
    namespace: Namespace
    name: str
    files: int


class _HourRow(NamedTuple):
    event_key: str
    hour: int
    arrivals: int


class _BadFileRow(NamedTuple):
    name: str
    error: str | None
    failures: int


def look_over(project: Project, *, limit: int, after: str) -> Overview:
    """Return the overview with `limit` feeds; see `Mill.overview`."""
    place = read_key(after, ("", ""))

    def block(db: Db) -> Overview:
        at = db.now()
        access, sees, only = project.access, project.access.sees, project.access.only
        programs = [one for one in list_programs(db) if sees(one.namespace)]
        failed = _list_failed(db, project, programs, at)
        live = runs.list_live(db)
        names = program_names(db, (run.program_id for run in live))
        mine = {one.program_id for one in programs}
        usual = _Usual(db)
        running = [
            RunningView(**fields_of(view_run(run, names, at, _uncounted, access)), usual=usual.of(run.program_id))
            for run in live
            if run.program_id in mine
        ]
        broken = db.records(SQL.list_broken, _NameRow, namespace=only, limit=MOST_COUNTED + 1)
        stuck = _list_stuck(db, project, at)
        needs = [
            *_alerts(db, only),
            *_failed(db, failed, {one.qualified_name: one.program_id for one in programs}),
            *_late(db, broken),
            *_quarantined(db, only),
            *_misdated(db, only),
            *_stuck(stuck),
        ]
        kinds = Counter(need.kind for need in needs)
        # They are in the order of their namespaces: those of one of them stand together.
        begin = place if only is None else max(place, (only, ""))
        datasets = [one for one in list_datasets(db, after=begin, limit=one_more(limit)) if sees(one.namespace)]
        feeds = _Feeds(db, at, datasets[:limit], programs, failed, running)
        page = cut(datasets, limit, lambda one: write_key(one.namespace, one.name), feeds.view)
        return Overview(
            at=at,
            needs=tuple(need for kind in kinds for need in islice(_of_kind(needs, kind), _MOST_NEEDS)),
            more_needs=max(kinds.values(), default=0) > _MOST_NEEDS,
            totals=_count_all(db, only, programs, failed, broken),
            feeds=page.items,
            next=page.next,
            running=tuple(running),
            waiting=tuple(_waiting(db, project, stuck)),
        )

    return project.catalog.read(block)


def _uncounted() -> Counter[str]:
    """Return no number of runs on any machine: the overview shows none."""
    return Counter()


def _of_kind(needs: Iterable[Need], kind: str) -> Iterator[Need]:
    return (need for need in needs if need.kind == kind)


def _list_failed(db: Db, project: Project, programs: Iterable[Program], at: datetime) -> list[RunView]:
    """Return the newest run of each program that is declared and failed, the newest first."""
    ids = db.records(SQL.list_failing, RunId, namespace=project.access.only, limit=MOST_COUNTED + 1)
    found = {run.run_id: run for run in runs.find_runs(db, ids)}
    names = {one.program_id: one.qualified_name for one in programs if not one.retired}
    failing = (found[run_id] for run_id in ids)
    return [view_run(run, names, at, _uncounted, project.access) for run in failing if run.program_id in names]


def _count_all(
    db: Db, only: str | None, programs: Iterable[Program], failed: Iterable[RunView], broken: Iterable[_NameRow]
) -> OverviewTotals:
    failing = {run.program for run in failed}
    written = {name for one in programs if one.qualified_name in failing for name in one.writes}
    unwell = written.union(qualified(row.namespace, row.name) for row in broken)
    most = MOST_COUNTED + 1
    feeds = db.value(SQL.count_feeds, int, namespace=only, limit=most) or 0
    if only is None:
        waiting = db.value(SQL.count_jobs, int, limit=most) or 0
    else:
        waiting = db.value(SQL.count_jobs_in, int, namespace=only, limit=most) or 0
    return OverviewTotals(feeds, min(len(unwell), most), waiting)


def _alerts(db: Db, only: str | None) -> Iterable[Need]:
    for alert in db.records(SQL.list_open_alerts, _AlertRow, namespace=only, limit=_MOST_NEEDS + 1):
        said, look = f"{alert.rule} is open: {alert.subject}", f"alert show {alert.alert_id}"
        yield Need("alert", alert.rule, said, alert.why, alert.since, look)


def _failed(db: Db, failed: Sequence[RunView], programs: Mapping[str, ProgramId]) -> Iterable[Need]:
    for run in failed[: _MOST_NEEDS + 1]:
        if run.program is not None:
            streak = count_failures(db, programs[run.program])
            streak = streak or FailureStreak(1, run.ended_at or run.created_at, 0)
            more = "" if streak.runs < LOOKED_AT else "more than "
            times = "" if streak.runs == 1 else f" {more}{streak.runs} times in a row"
            evidence = [(run.exit_reason or "").partition("\n")[0]]
            if streak.new_version:
                evidence.append(f"since version {streak.new_version} of the app")
            said = f"{run.program} failed{times}"
            yield Need("failed", run.program, said, " · ".join(evidence), streak.since, f"run show {run.run_id}")


def _late(db: Db, broken: Sequence[_NameRow]) -> Iterable[Need]:
    names = {row.dataset_id: qualified(row.namespace, row.name) for row in broken[: _MOST_NEEDS + 1]}
    for dataset_id, expectation in find_expectations(db, names).items():
        if expectation.state is ArrivalState.BROKEN:
            said, evidence = f"{names[dataset_id]} has nothing new", f"expected {expectation.expect}"
            look = f"why {names[dataset_id]}"
            yield Need("late", names[dataset_id], said, evidence, expectation.broken_since, look)


def _quarantined(db: Db, only: str | None) -> Iterable[Need]:
    found = db.records(
        SQL.list_quarantines, _QuarantineRow, namespace=only, most=MOST_COUNTED + 1, limit=_MOST_NEEDS + 1
    )
    for row in found:
        first = db.record(SQL.find_first_quarantined, _BadFileRow, dataset_id=row.dataset_id)
        if first is not None:
            inbox = qualified(row.namespace, row.name)
            over = "" if row.files <= MOST_COUNTED else "over "
            number = "1 file" if row.files == 1 else f"{over}{min(row.files, MOST_COUNTED):,} files"
            evidence = f"{first.name}: {first.error or 'no reason noted'} (tried {first.failures} times)"
            look = f"inbox files {inbox} --state QUARANTINED"
            yield Need("quarantine", inbox, f"{inbox} has {number} in quarantine", evidence, None, look)


def _misdated(db: Db, only: str | None) -> Iterable[Need]:
    for row in db.records(SQL.list_misdated, _NameRow, namespace=only, limit=_MOST_NEEDS + 1):
        name = qualified(row.namespace, row.name)
        if (found := find_misdated(db, Fileset.of(find_by_id(db, row.dataset_id)))) is not None:
            said = f"{name} has partitions that no window waits for"
            yield Need("misdated", name, said, found.told, found.since, f"watermark show {name}")


def _list_stuck(db: Db, project: Project, at: datetime) -> list[WaitingView]:
    """Return jobs that wait longer than usual, those whose trigger has been satisfied for longest first.

    A job of a suspended schedule waits for a person to resume the schedule: its wait is as usual.
    """
    only = project.access.only
    if only is None:
        found = db.records(SQL.list_satisfied, Job, limit=_MOST_COMPARED)
        found += db.records(SQL.list_unsatisfied, Job, limit=_MOST_COMPARED)
    else:
        found = db.records(SQL.list_waiting_in, Job, namespace=only, limit=2 * _MOST_COMPARED)
    longest = longest_usual_waits(db, (job.schedule_id for job in found))
    late = [job for job in found if is_unusual(at - job.created_at, longest.get(job.schedule_id))]
    names = schedule_names(db, (job.schedule_id for job in late))
    return [
        WaitingView(**fields_of(view_job(job, names)), longest=longest[job.schedule_id], unusual=True) for job in late
    ]


def _waiting(db: Db, project: Project, stuck: Sequence[WaitingView]) -> Iterable[WaitingView]:
    """Yield the jobs to show: those that wait longer than usual, then the oldest."""
    found = list_jobs(db, namespace=project.access.only, limit=_MOST_WAITING)
    names = schedule_names(db, (job.schedule_id for job in found))
    longest = longest_usual_waits(db, (job.schedule_id for job in found))
    shown = {job.job_id for job in stuck}
    others = (
        WaitingView(**fields_of(view_job(job, names)), longest=longest.get(job.schedule_id), unusual=False)
        for job in found
        if job.job_id not in shown
    )
    return islice(chain(stuck, others), _MOST_WAITING)


def _stuck(waiting: Iterable[WaitingView]) -> Iterable[Need]:
    for job in waiting:
        if job.unusual and job.longest is not None:
            said = f"{job.schedule} has a job that waits longer than usual"
            evidence = f"{job.why} · the last jobs waited at most {format_duration(_whole(job.longest))}"
            yield Need("waits", job.schedule, said, evidence, job.created_at, f"why {job.job_id}")


def _whole(span: timedelta) -> timedelta:
    """Return a duration in whole seconds, and at least one."""
    return max(timedelta(seconds=span // timedelta(seconds=1)), timedelta(seconds=1))


class _Usual:
    """The usual durations of programs, each looked up once."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._known: dict[ProgramId, timedelta | None] = {}

    def of(self, program_id: ProgramId | None) -> timedelta | None:
        """Return the usual duration of a program; None for more programs than are shown."""
        if program_id is None:
            return None
        if program_id not in self._known and len(self._known) < _MOST_WAITING:
            self._known[program_id] = usual_run(self._db, program_id)
        return self._known.get(program_id)


class _Feeds:
    """Views of data sets as feeds, with the arrivals of all of them read once."""

    def __init__(
        self,
        db: Db,
        at: datetime,
        datasets: Iterable[Dataset],
        programs: Iterable[Program],
        failed: Iterable[RunView],
        running: Iterable[RunView],
    ) -> None:
        self._db = db
        keys = json.dumps([{"event_key": _arrival_key(one)} for one in datasets])
        self._hours: Mapping[str, Counter[int]] = defaultdict(Counter)
        for row in db.records(SQL.count_arrivals, _HourRow, keys=keys, hours=_last_hours(at), most=MOST_AN_HOUR + 1):
            self._hours[row.event_key][row.hour] = row.arrivals
        self._last = dict(db.records(SQL.list_last_arrivals, tuple[str, datetime | None], keys=keys))
        self._writers: Mapping[str, list[str]] = defaultdict(list)
        for program in programs:
            for written in () if program.retired else program.writes:
                self._writers[written].append(program.qualified_name)
        self._failed = {run.program for run in failed}
        self._running = {run.program for run in running}

    def view(self, dataset: Dataset) -> FeedView:
        """Return a data set as a feed."""
        key = _arrival_key(dataset)
        arrivals = tuple(self._hours[key][hour] for hour in range(HOURS))
        expectation = find_expectations(self._db, [dataset.dataset_id]).get(dataset.dataset_id)
        writers = tuple(self._writers.get(dataset.qualified_name, ()))
        known = (self._last.get(key), expectation.last_arrival if expectation else None)
        return FeedView(
            name=dataset.qualified_name,
            kind=dataset.kind,
            state=self._state(expectation, arrivals, writers),
            last_arrival=max((at for at in known if at is not None), default=None),
            expect=expectation.expect if expectation else "",
            due_at=expectation.expected_by if expectation else None,
            arrivals=arrivals,
            waiting=self._count(dataset),
            filled_by=writers,
        )

    def _state(self, expectation: Expectation | None, arrivals: Iterable[int], writers: Iterable[str]) -> str:
        if expectation is not None and expectation.state is ArrivalState.BROKEN:
            return "late"
        if self._failed.intersection(writers):
            return "failing"
        if self._running.intersection(writers):
            return "filling"
        return "fresh" if expectation is not None or any(arrivals) else "quiet"

    def _count(self, dataset: Dataset) -> int:
        inbox = dataset.kind is DatasetKind.INBOX
        statement = SQL.count_waiting_files if inbox else SQL.count_waiting_partitions
        return self._db.value(statement, int, dataset_id=dataset.dataset_id, limit=MOST_COUNTED + 1) or 0


def _arrival_key(dataset: Dataset) -> str:
    """Return the key of the messages that tell of data of a data set."""
    match dataset.kind:
        case DatasetKind.INBOX:
            return file_event(dataset.namespace, dataset.name)
        case DatasetKind.FILESET:
            return partition_event(dataset.namespace, dataset.name)
        case DatasetKind.SNAPSHOT:
            return snapshot_event(dataset.namespace, dataset.name)


def _last_hours(at: datetime) -> str:
    """Return the bounds of each of the last 24 hours as JSON, oldest first; the last hour has no end."""
    begins = [at - timedelta(hours=HOURS - hour) for hour in range(HOURS)]
    ends = [*begins[1:], FROM_LATEST[0]]
    return to_json(
        [
            {"hour": hour, "begins_at": begin, "ends_at": end}
            for hour, (begin, end) in enumerate(zip(begins, ends, strict=True))
        ]
    )
