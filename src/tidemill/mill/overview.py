"""Overview: the things that need a person, the feeds with their freshness, and what runs and waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.alerts.alerts import AlertState, list_alerts
from tidemill.catalog.db import Db
from tidemill.catalog.named import FROM_NEWEST, load_sql
from tidemill.durations import format_duration
from tidemill.lake.datasets import Dataset, DatasetKind, find_some, list_datasets
from tidemill.lake.expectations import Expectation, find_expectations
from tidemill.mill.jobs import JobView, view_job
from tidemill.mill.page import cut, one_more, read_key, write_key
from tidemill.mill.project import Project, fields_of, program_names, schedule_names
from tidemill.mill.runs import RunView, view_run
from tidemill.mill.usual import LOOKED_AT, FailureStreak, count_failures, is_unusual, longest_usual_wait, usual_run
from tidemill.names import DatasetId, ProgramId, RunId, dataset_events
from tidemill.run.records import runs
from tidemill.run.records.programs import Program, list_programs
from tidemill.schedule.jobs import list_jobs
from tidemill.schedule.schedules import read_schedules
from tidemill.schedule.specs import Status
from tidemill.shapes.expectation import ArrivalState

if TYPE_CHECKING:
    from tidemill.mill.overview_sql import Sql

SQL: Sql = load_sql(__file__)

FEEDS: Final = 50
HOURS: Final = 24
_MOST_NEEDS: Final = 50
_MOST_WAITING: Final = 20
_MOST_OF_OTHERS: Final = 10_000
"""Rows that are looked through for a caller of one namespace: those of other namespaces stand between its own."""
_MOST_MESSAGES: Final = 5000
"""The newest messages that arrivals are counted in: older ones of the same day are not seen."""
MOST_COUNTED: Final = 1000
"""Counts of what waits end here, so that a look costs the same however much waits."""


@dataclass(frozen=True, slots=True)
class Need:
    """A thing that needs a person: its kind, the thing, a sentence, the evidence, since when, and the next command."""

    kind: str
    """`alert`, `failed`, `late`, `quarantine`, or `waits`: a job waits longer than jobs of its schedule ever do."""
    thing: str
    said: str
    evidence: str
    since: datetime | None
    look: str


@dataclass(frozen=True, slots=True)
class FeedView:
    """A data set as a feed: whether it is fresh, the arrivals of each of the last 24 hours, and the work that waits.

    `waiting` counts files of an inbox, or partitions for the consumers of a file set, up to 1,001.
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
class Overview:
    """The project at a glance. `next` is the key of the next feeds."""

    at: datetime
    needs: tuple[Need, ...]
    feeds: tuple[FeedView, ...]
    next: str | None
    running: tuple[RunningView, ...]
    waiting: tuple[WaitingView, ...]


class _BadFileRow(NamedTuple):
    dataset_id: DatasetId
    name: str
    error: str | None
    failures: int


def look_over(project: Project, *, limit: int, after: str) -> Overview:
    """Return the overview with `limit` feeds; see `Mill.overview`."""
    place = read_key(after, ("", ""))

    def block(db: Db) -> Overview:
        at = db.now()
        sees = project.access.sees
        programs = [one for one in list_programs(db) if sees(one.namespace)]
        most = _most(project, _MOST_NEEDS)
        failing = [runs.find_run(db, run_id) for run_id in db.records(SQL.list_failing, RunId, limit=most)]
        live = runs.list_live(db)
        names = program_names(db, (run.program_id for run in (*failing, *live)))
        mine = {one.program_id for one in programs}
        under_way = partial(Counter[str])
        failed = [view_run(run, names, at, under_way) for run in failing if run.program_id in mine]
        usual = _Usual(db)
        running = [
            RunningView(**fields_of(view_run(run, names, at, under_way)), usual=usual.of(run.program_id))
            for run in live
            if run.program_id in mine
        ]
        streaks = {run.run_id: count_failures(db, run.program_id) for run in failing if run.program_id in mine}
        waiting = tuple(_waiting(db, project, at))
        # They are in the order of their namespaces: those of one of them stand together.
        begin = place if project.access.only is None else max(place, (project.access.only, ""))
        datasets = [one for one in list_datasets(db, after=begin, limit=one_more(limit)) if sees(one.namespace)]
        feeds = _Feeds(db, at, programs, failed, running)
        page = cut(datasets, limit, lambda one: write_key(one.namespace, one.name), feeds.view)
        needs = (
            *_alerts(db, project),
            *_failed(failed, programs, streaks),
            *_late(db, project),
            *_quarantined(db, project),
            *_stuck(waiting),
        )
        return Overview(at, needs, page.items, page.next, tuple(running), waiting)

    return project.catalog.read(block)


def _most(project: Project, most: int) -> int:
    return most if project.access.only is None else _MOST_OF_OTHERS


def _alerts(db: Db, project: Project) -> Iterable[Need]:
    for alert in list_alerts(db, FROM_NEWEST[1], _most(project, _MOST_NEEDS), resolved=False):
        if alert.state is AlertState.OPEN and project.access.sees(alert.namespace):
            said, look = f"{alert.rule} is open: {alert.subject}", f"alert show {alert.alert_id}"
            yield Need("alert", alert.rule, said, alert.why, alert.since, look)


def _failed(
    failed: Iterable[RunView], programs: Iterable[Program], streaks: Mapping[RunId, FailureStreak | None]
) -> Iterable[Need]:
    retired = {one.qualified_name for one in programs if one.retired}
    for run in failed:
        if run.program not in retired and run.program is not None:
            streak = streaks[run.run_id] or FailureStreak(1, run.ended_at or run.created_at, 0)
            more = "" if streak.runs < LOOKED_AT else "more than "
            times = "" if streak.runs == 1 else f" {more}{streak.runs} times in a row"
            evidence = [(run.exit_reason or "").partition("\n")[0]]
            if streak.new_version:
                evidence.append(f"since version {streak.new_version} of the app")
            said = f"{run.program} failed{times}"
            yield Need("failed", run.program, said, " · ".join(evidence), streak.since, f"run show {run.run_id}")


def _late(db: Db, project: Project) -> Iterable[Need]:
    found = find_some(db, db.records(SQL.list_broken, DatasetId, limit=_most(project, _MOST_NEEDS)))
    for dataset_id, expectation in find_expectations(db, found).items():
        dataset = found[dataset_id]
        if expectation.state is ArrivalState.BROKEN and project.access.sees(dataset.namespace):
            said = f"{dataset.qualified_name} has nothing new"
            evidence = f"expected {expectation.expect}"
            look = f"why {dataset.qualified_name}"
            yield Need("late", dataset.qualified_name, said, evidence, expectation.broken_since, look)


def _quarantined(db: Db, project: Project) -> Iterable[Need]:
    by_inbox: Mapping[DatasetId, list[_BadFileRow]] = defaultdict(list)
    for row in db.records(SQL.list_quarantined, _BadFileRow, limit=_most(project, MOST_COUNTED + 1)):
        by_inbox[row.dataset_id].append(row)
    for dataset_id, dataset in find_some(db, by_inbox).items():
        files = by_inbox[dataset_id]
        if project.access.sees(dataset.namespace):
            number = "1 file" if len(files) == 1 else f"{len(files)} files"
            first = f"{files[0].name}: {files[0].error or 'no reason noted'} (tried {files[0].failures} times)"
            look = f"inbox files {dataset.qualified_name} --state QUARANTINED"
            said = f"{dataset.qualified_name} has {number} in quarantine"
            yield Need("quarantine", dataset.qualified_name, said, first, None, look)


def _waiting(db: Db, project: Project, at: datetime) -> Iterable[WaitingView]:
    found = list_jobs(db, limit=_most(project, _MOST_WAITING))
    names = schedule_names(db, (job.schedule_id for job in found))
    schedules = read_schedules(db, [job.schedule_id for job in found])
    seen = (job for job in found if project.access.sees_name(names.get(job.schedule_id, "")))
    for job in islice(seen, _MOST_WAITING):
        longest = longest_usual_wait(db, job.schedule_id)
        unusual = is_unusual(at - job.created_at, longest)
        # A job of a suspended schedule waits for a person to resume the schedule.
        unusual = unusual and schedules[job.schedule_id].status is not Status.SUSPENDED
        yield WaitingView(**fields_of(view_job(job, names)), longest=longest, unusual=unusual)


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
        self, db: Db, at: datetime, programs: Iterable[Program], failed: Iterable[RunView], running: Iterable[RunView]
    ) -> None:
        self._db = db
        self._arrivals: Mapping[str, list[datetime]] = defaultdict(list)
        for event_key, arrived_at in db.records(SQL.list_arrivals, tuple[str, datetime], limit=_MOST_MESSAGES):
            self._arrivals[event_key].append(arrived_at)
        self._at = at
        self._writers: Mapping[str, list[str]] = defaultdict(list)
        for program in programs:
            for written in () if program.retired else program.writes:
                self._writers[written].append(program.qualified_name)
        self._failed = {run.program for run in failed}
        self._running = {run.program for run in running}

    def view(self, dataset: Dataset) -> FeedView:
        """Return a data set as a feed."""
        keys = dataset_events(dataset.namespace, dataset.name)[:3]
        times = [at for key in keys for at in self._arrivals.get(key, ())]
        expectation = find_expectations(self._db, [dataset.dataset_id]).get(dataset.dataset_id)
        writers = tuple(self._writers.get(dataset.qualified_name, ()))
        last = expectation.last_arrival if expectation else None
        return FeedView(
            name=dataset.qualified_name,
            kind=dataset.kind,
            state=self._state(expectation, times, writers),
            last_arrival=max([*times, *([last] if last else [])], default=None),
            expect=expectation.expect if expectation else "",
            due_at=expectation.expected_by if expectation else None,
            arrivals=_by_hour(times, self._at),
            waiting=self._count(dataset),
            filled_by=writers,
        )

    def _state(self, expectation: Expectation | None, times: Iterable[datetime], writers: Iterable[str]) -> str:
        if expectation is not None and expectation.state is ArrivalState.BROKEN:
            return "late"
        if self._failed.intersection(writers):
            return "failing"
        if self._running.intersection(writers):
            return "filling"
        return "fresh" if expectation is not None or any(times) else "quiet"

    def _count(self, dataset: Dataset) -> int:
        inbox = dataset.kind is DatasetKind.INBOX
        statement = SQL.count_waiting_files if inbox else SQL.count_waiting_partitions
        return self._db.value(statement, int, dataset_id=dataset.dataset_id, limit=MOST_COUNTED + 1) or 0


def _by_hour(times: Iterable[datetime], at: datetime) -> tuple[int, ...]:
    """Count the times in each of the last 24 hours, oldest first."""
    ago = Counter(int((at - one) / timedelta(hours=1)) for one in times)
    return tuple(ago[hour] for hour in reversed(range(HOURS)))
