"""Metrics: what waits, runs and is late, as numbers with labels. Each is counted by an index, never by the history.

Labels are names of what is declared, so that their number is bounded; keys and ids of runs are no labels. A count of
what waits ends at 10,001: a greater one says no more to a person, and would cost more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidemill.alerts.conditions import measure_waiting
from tidemill.alerts.subscribers import iterate_lag, list_subscribers
from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import TxState
from tidemill.epoch import from_micros
from tidemill.lake.consumer.managed import list_consumers
from tidemill.lake.datasets import Dataset, DatasetKind, list_datasets
from tidemill.lake.expectations import find_expectations
from tidemill.lake.inbox.inbox import FileState
from tidemill.lake.window.holding import list_ahead
from tidemill.lake.window.watermark import SQL as WATERMARK
from tidemill.mill.overview import SQL as OVERVIEW
from tidemill.mill.project import Project, program_names
from tidemill.names import DatasetId, Namespace, ProgramId, RunId, qualified, window_event
from tidemill.reasons import Reason
from tidemill.run.records.nodes import NodeRole, NodeState, count_free_slots, list_nodes
from tidemill.schedule.backfill_records import BackfillState, ItemState, list_backfills
from tidemill.schedule.explain import WAITING, stored_reasons
from tidemill.schedule.jobs import JobState
from tidemill.schedule.specs import Status
from tidemill.shapes.expectation import ArrivalState
from tidemill.upkeep.horizon import ALL_KEPT, read_horizon
from tidemill.upkeep.retention import count_deleted

if TYPE_CHECKING:
    from tidemill.mill.metrics_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST: Final = 10_001
_PART: Final = 1000
_EXPLAINED: Final = 500
_BEFORE_ALL: Final = -(1 << 62)
_FILE_STATES: Final = (FileState.NEW, FileState.ERROR, FileState.IN_PROGRESS)


class Metric(StrEnum):
    """The metrics, all of them gauges."""

    RUNS_LIVE = "tidemill_runs_live"
    RUNS_PENDING = "tidemill_runs_pending"
    NODES = "tidemill_nodes"
    SLOTS_FREE = "tidemill_slots_free"
    BACKFILL_ITEMS = "tidemill_backfill_items"
    WORKFLOWS_HOLDING = "tidemill_workflows_holding"
    JOBS_WAITING = "tidemill_jobs_waiting"
    JOBS_BY_REASON = "tidemill_jobs_waiting_by_reason"
    JOB_OLDEST = "tidemill_job_oldest_waiting_seconds"
    TRANSACTIONS_OPEN = "tidemill_transactions_open"
    TRANSACTION_OLDEST = "tidemill_transaction_oldest_seconds"
    GARBAGE_DUE = "tidemill_garbage_due"
    HISTORY_HORIZON_AGE = "tidemill_history_horizon_age_seconds"
    HISTORY_DELETED = "tidemill_history_deleted_rows"
    FILES = "tidemill_inbox_files"
    FILES_WAITING = "tidemill_inbox_files_waiting"
    FILES_QUARANTINED = "tidemill_inbox_files_quarantined"
    PARTITIONS_WAITING = "tidemill_fileset_partitions_waiting"
    DATASET_LATE = "tidemill_dataset_late"
    LAST_ARRIVAL = "tidemill_dataset_last_arrival_seconds"
    WATERMARK_DELAY = "tidemill_watermark_delay_seconds"
    WATERMARK_OPEN_SLOTS = "tidemill_watermark_incomplete_slots"
    WATERMARK_MISSING_SLOTS = "tidemill_watermark_missing_slots"
    WATERMARK_HELD = "tidemill_watermark_oldest_holder_seconds"
    WATERMARK_PARKED = "tidemill_watermark_parked_partitions"
    WATERMARK_AHEAD = "tidemill_watermark_slots_ahead"
    WINDOW_DELAY = "tidemill_window_delay_seconds"
    WINDOW_SLOTS_WAITING = "tidemill_window_slots_waiting"
    WINDOW_PARTITIONS_WAITING = "tidemill_window_partitions_waiting"
    WINDOW_BYTES_WAITING = "tidemill_window_bytes_waiting"
    WINDOW_IDLE_INPUTS = "tidemill_window_idle_inputs"
    WINDOWS_POSTPONED = "tidemill_windows_postponed"
    WINDOW_LEFT_OUT = "tidemill_window_partitions_left_out"
    WINDOW_ROWS_LEFT_OUT = "tidemill_window_rows_left_out"
    WINDOWS_OF_RUN = "tidemill_windows_of_last_run"
    WINDOW_SECONDS = "tidemill_window_seconds"
    CONSUMER_WAITING = "tidemill_consumer_partitions_waiting"
    CONSUMER_OLDEST = "tidemill_consumer_oldest_waiting_seconds"
    SUBSCRIBER_WAITING = "tidemill_subscriber_messages_waiting"
    ALERTS_OPEN = "tidemill_alerts_open"
    DELIVERIES_WAITING = "tidemill_deliveries_waiting"
    DELIVERIES_DEAD = "tidemill_deliveries_dead"


HELP: Final[Mapping[Metric, str]] = {
    Metric.RUNS_LIVE: "Runs with an attempt under way, by program and state.",
    Metric.RUNS_PENDING: "Runs that wait for a runner or a retry.",
    Metric.NODES: "Nodes that work or drain, by role. A node of several roles counts in each.",
    Metric.SLOTS_FREE: "Free slots of all runners together.",
    Metric.BACKFILL_ITEMS: "Items of backfills that run or are paused, by program and state of the item.",
    Metric.WORKFLOWS_HOLDING: "Failed workflows that keep claims until they are resumed, or their time comes.",
    Metric.JOBS_WAITING: "Jobs that wait, by state.",
    Metric.JOBS_BY_REASON: "Jobs that wait, by reason: of each state the 500 oldest. A job may have several reasons.",
    Metric.JOB_OLDEST: "Longest time for which a job has waited for its constraints, since its trigger was satisfied.",
    Metric.TRANSACTIONS_OPEN: "Open transactions.",
    Metric.TRANSACTION_OLDEST: "Age of the oldest open transaction.",
    Metric.GARBAGE_DUE: "Locations that the janitor has to delete now.",
    Metric.HISTORY_HORIZON_AGE: "Time since the janitor has moved the horizon of retention, which it does each hour.",
    Metric.HISTORY_DELETED: "Rows of old history that retention has deleted since the catalog was made, by kind.",
    Metric.FILES: "Files of an inbox that are not processed, by state. Those in quarantine have a metric of their own.",
    Metric.FILES_WAITING: "Files of an inbox that wait for a run.",
    Metric.FILES_QUARANTINED: "Files of an inbox in quarantine.",
    Metric.PARTITIONS_WAITING: "Partitions of a file set that wait for its consumers.",
    Metric.DATASET_LATE: "1 if the arrival expectation of a data set is broken, else 0.",
    Metric.LAST_ARRIVAL: "Age of the last arrival in a data set that has an arrival expectation.",
    Metric.WATERMARK_DELAY: "Time by which the watermark of a file set is behind the clock.",
    Metric.WATERMARK_OPEN_SLOTS: "Time slots of a file set that are there and not complete.",
    Metric.WATERMARK_MISSING_SLOTS: "Gaps between time slots of a file set: among the latest thousand slots.",
    Metric.WATERMARK_HELD: "Age of the oldest open transaction that holds the watermark of a file set.",
    Metric.WATERMARK_PARKED: "Partitions of a file set whose keys have no time that can be read.",
    Metric.WATERMARK_AHEAD: "Complete time slots of a file set that are further ahead of the clock than is allowed.",
    Metric.WINDOW_DELAY: "Time by which the published windows of a window program are behind the clock.",
    Metric.WINDOW_SLOTS_WAITING: "Complete time slots that the windows of a window program have not reached.",
    Metric.WINDOW_PARTITIONS_WAITING: "Partitions of these time slots.",
    Metric.WINDOW_BYTES_WAITING: "Bytes of these partitions.",
    Metric.WINDOW_IDLE_INPUTS: "Tables of a window program that are idle: its windows do not wait for them.",
    Metric.WINDOWS_POSTPONED: "Windows of a window program that could not be computed, and are retried.",
    Metric.WINDOW_LEFT_OUT: "Partitions of which a window program left rows out: late ones, or outside of their time.",
    Metric.WINDOW_ROWS_LEFT_OUT: "Rows that a window program left out, late ones and rows outside of their partition.",
    Metric.WINDOWS_OF_RUN: "Windows of the newest completed run of a window program: new ones, and recomputed ones.",
    Metric.WINDOW_SECONDS: "Duration of the newest completed run of a window program, for each of its windows.",
    Metric.CONSUMER_WAITING: "Partitions that wait for a consumer of a file set.",
    Metric.CONSUMER_OLDEST: "Time for which the first of the partitions has waited for a consumer.",
    Metric.SUBSCRIBER_WAITING: "Messages behind the position of a subscriber outside, without its filter.",
    Metric.ALERTS_OPEN: "Alerts that have not ended, by rule.",
    Metric.DELIVERIES_WAITING: "Deliveries to targets of alerts that wait, or are tried.",
    Metric.DELIVERIES_DEAD: "Deliveries that were given up, for 30 days.",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric. `labels` are names of what is declared, or states."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """All samples, as one moment of the catalog shows them. `programs` are the declared programs."""

    at: datetime
    programs: tuple[str, ...]
    samples: tuple[Sample, ...]


def measure(project: Project) -> Metrics:
    """Measure all metrics; see `Mill.metrics`."""

    def block(db: Db) -> Metrics:
        at = db.now()
        declared = db.records(SQL.list_declared, tuple[Namespace, str, str])
        programs = tuple(qualified(*one) for one in declared)
        datasets = list_datasets(db)
        return Metrics(
            at, programs, (*_work(db, at), *_data(db, at, datasets), *_readers(db, at, datasets), *_sent(db))
        )

    return project.catalog.read(block)


@dataclass(frozen=True, slots=True)
class _JobWithReason:
    """A job, with the JSON of its schedule."""

    status: Status
    next_check_at: datetime | None
    spec: Mapping[str, object]
    verdict: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class RunSpan:
    """The times of a run that has ended. `started_at` is None if no attempt started.

    `commit_began_at` is None for a run without the commit of a driver. `core_time` is that of `RunRecord`.
    """

    run_id: RunId
    created_at: datetime
    started_at: datetime | None
    commit_began_at: datetime | None
    ended_at: datetime
    core_time: timedelta | None


def find_spans(project: Project, run_ids: Sequence[str]) -> Mapping[str, RunSpan]:
    """Return the times of runs that have ended, by run. Cost: look-ups."""
    if not run_ids:
        return {}
    runs = json.dumps(run_ids)
    found = project.catalog.read(lambda db: db.records(SQL.list_spans, RunSpan, runs=runs))
    return {one.run_id: one for one in found}


def find_fenced(project: Project, after: int | None) -> tuple[int, frozenset[int]]:
    """Return the fenced transactions with a write pointer above `after`, and the `after` of the next call.

    `after` is None at the first call. The new `after` lies below each transaction that is still open, so that the next
    call finds a transaction that is fenced meanwhile.
    """

    def block(db: Db) -> tuple[int, frozenset[int]]:
        # The first statement: without one snapshot for all, what is fenced between them is in the list.
        floor = (db.value(SQL.find_fence_floor, int) or 0) - 1
        last = floor if after is None else after
        found: list[int] = []
        while True:
            part = db.records(SQL.list_fenced, int, state=TxState.INVALID, after=last, limit=_PART)
            found += part
            if len(part) < _PART:
                return floor, frozenset(found)
            last = part[-1]

    return project.catalog.read(block)


def _work(db: Db, at: datetime) -> Iterator[Sample]:
    live = db.records(SQL.count_live_runs, tuple[ProgramId, str, int])
    names = program_names(db, (program_id for program_id, _, _ in live))
    for program_id, state, number in live:
        yield Sample(Metric.RUNS_LIVE, {"program": names.get(program_id, program_id), "state": state}, number)
    yield Sample(Metric.RUNS_PENDING, {}, db.value(SQL.count_pending_runs, int, limit=_MOST) or 0)
    nodes = [one for one in list_nodes(db) if one.state(at) is not NodeState.LOST]
    for role in NodeRole:
        yield Sample(Metric.NODES, {"role": role}, sum(role in one.roles for one in nodes))
    yield Sample(Metric.SLOTS_FREE, {}, count_free_slots(db))
    yield from _backfills(db)
    yield Sample(Metric.WORKFLOWS_HOLDING, {}, db.value(SQL.count_holding_workflows, int) or 0)
    for state, number in db.records(SQL.count_jobs, tuple[str, int], limit=_MOST):
        yield Sample(Metric.JOBS_WAITING, {"state": state}, number)
    yield from _reasons(db, at)
    oldest = db.value(SQL.find_oldest_job, datetime, limit=_MOST)
    yield Sample(Metric.JOB_OLDEST, {}, 0.0 if oldest is None else (at - oldest).total_seconds())
    ((number, began_at),) = db.records(SQL.count_open_transactions, tuple[int, datetime | None])
    yield Sample(Metric.TRANSACTIONS_OPEN, {}, number)
    yield Sample(Metric.TRANSACTION_OLDEST, {}, 0.0 if began_at is None else (at - began_at).total_seconds())
    yield Sample(Metric.GARBAGE_DUE, {}, db.value(SQL.count_garbage, int, limit=_MOST) or 0)
    if (horizon := read_horizon(db)) is not ALL_KEPT:
        yield Sample(Metric.HISTORY_HORIZON_AGE, {}, (at - horizon.moved_at).total_seconds())
    for kind, deleted in count_deleted(db).items():
        yield Sample(Metric.HISTORY_DELETED, {"kind": kind}, deleted)


def _backfills(db: Db) -> Iterator[Sample]:
    going = [
        one
        for state in (BackfillState.RUNNING, BackfillState.PAUSED)
        for one in list_backfills(db, most=_PART, state=state)
    ]
    names = program_names(db, (one.program_id for one in going))
    items: Counter[tuple[str, ItemState]] = Counter()
    for one in going:
        program = names.get(one.program_id, one.program_id)
        items[program, ItemState.WAITING] += one.waiting
        items[program, ItemState.RUNNING] += one.running
        items[program, ItemState.DONE] += one.done
        items[program, ItemState.FAILED] += one.failed
    for (program, state), number in items.items():
        yield Sample(Metric.BACKFILL_ITEMS, {"program": program, "state": state}, number)


def _reasons(db: Db, at: datetime) -> Iterator[Sample]:
    reasons: Counter[Reason] = Counter()
    for state in JobState:
        for job in db.records(SQL.list_waiting_jobs, _JobWithReason, state=state, limit=_EXPLAINED):
            due = job.next_check_at is not None and job.next_check_at <= at
            suspended = job.status is Status.SUSPENDED
            reasons.update(stored_reasons(job.spec, job.verdict or {}, suspended=suspended, due=due))
    for reason in WAITING:
        yield Sample(Metric.JOBS_BY_REASON, {"reason": reason}, reasons[reason])


def _data(db: Db, at: datetime, datasets: Iterable[Dataset]) -> Iterator[Sample]:
    datasets = list(datasets)
    bad = Counter(dict(db.records(SQL.count_quarantined_files, tuple[DatasetId, int], limit=_MOST)))
    expectations = find_expectations(db, (one.dataset_id for one in datasets))
    for dataset in datasets:
        labels = {"dataset": dataset.qualified_name}
        if dataset.kind is DatasetKind.INBOX:
            counted = db.records(SQL.count_files, tuple[str, int], dataset_id=dataset.dataset_id, limit=_MOST)
            files = Counter(dict(counted))
            for status in _FILE_STATES:
                yield Sample(Metric.FILES, {**labels, "state": status}, files[status])
            yield Sample(Metric.FILES_WAITING, labels, files[FileState.NEW] + files[FileState.ERROR])
            yield Sample(Metric.FILES_QUARANTINED, labels, bad[dataset.dataset_id])
        elif dataset.kind is DatasetKind.FILESET:
            waiting = db.value(OVERVIEW.count_waiting_partitions, int, dataset_id=dataset.dataset_id, limit=_MOST)
            yield Sample(Metric.PARTITIONS_WAITING, labels, waiting or 0)
        if (expectation := expectations.get(dataset.dataset_id)) is not None:
            yield Sample(Metric.DATASET_LATE, labels, float(expectation.state is ArrivalState.BROKEN))
            if expectation.last_arrival is not None:
                yield Sample(Metric.LAST_ARRIVAL, labels, (at - expectation.last_arrival).total_seconds())


def _readers(db: Db, at: datetime, datasets: Iterable[Dataset]) -> Iterator[Sample]:
    names = {one.dataset_id: one.qualified_name for one in datasets}
    yield from _watermarks(db, at, names)
    yield from _windows(db, at)
    for consumer in list_consumers(db):
        if consumer.dataset_id in names:
            waiting, oldest = measure_waiting(db, consumer, _MOST)
            labels = {"dataset": names[consumer.dataset_id], "consumer": consumer.name}
            yield Sample(Metric.CONSUMER_WAITING, labels, waiting)
            yield Sample(Metric.CONSUMER_OLDEST, labels, 0.0 if oldest is None else (at - oldest).total_seconds())


def _watermarks(db: Db, at: datetime, names: Mapping[DatasetId, str]) -> Iterator[Sample]:
    for dataset_id, value in db.records(SQL.list_watermarks, tuple[DatasetId, int | None]):
        if dataset_id not in names:
            continue
        labels = {"dataset": names[dataset_id]}
        if value is not None:
            yield Sample(Metric.WATERMARK_DELAY, labels, (at - from_micros(value)).total_seconds())
        slots = db.value(SQL.count_open_slots, int, dataset_id=dataset_id, limit=_MOST)
        yield Sample(Metric.WATERMARK_OPEN_SLOTS, labels, slots or 0)
        holes = db.records(WATERMARK.list_holes, int, dataset_id=dataset_id, limit=_MOST)
        yield Sample(Metric.WATERMARK_MISSING_SLOTS, labels, len(holes))
        began_at = db.value(SQL.find_oldest_holder, datetime, dataset_id=dataset_id)
        parked = db.value(SQL.count_parked, int, dataset_id=dataset_id, limit=_MOST)
        yield Sample(Metric.WATERMARK_PARKED, labels, parked or 0)
        yield Sample(Metric.WATERMARK_AHEAD, labels, len(list_ahead(db, dataset_id, _MOST)))
        yield Sample(Metric.WATERMARK_HELD, labels, 0.0 if began_at is None else (at - began_at).total_seconds())


def _windows(db: Db, at: datetime) -> Iterator[Sample]:
    for program_id, name, computed in db.records(SQL.list_window_programs, tuple[ProgramId, str, int | None]):
        labels = {"program": name}
        if computed is not None:
            yield Sample(Metric.WINDOW_DELAY, labels, (at - from_micros(computed)).total_seconds())
        after = _BEFORE_ALL if computed is None else computed
        waiting = db.value(SQL.count_waiting_slots, int, program_id=program_id, computed=after, limit=_MOST)
        yield Sample(Metric.WINDOW_SLOTS_WAITING, labels, waiting or 0)
        postponed = db.value(SQL.count_postponed, int, program_id=program_id, limit=_MOST)
        yield Sample(Metric.WINDOWS_POSTPONED, labels, postponed or 0)
        ((partitions, size),) = db.records(
            SQL.measure_waiting_partitions, tuple[int, int], program_id=program_id, computed=after, limit=_MOST
        )
        yield Sample(Metric.WINDOW_PARTITIONS_WAITING, labels, partitions)
        yield Sample(Metric.WINDOW_BYTES_WAITING, labels, size)
        idle = db.value(SQL.count_idle_inputs, int, program_id=program_id)
        yield Sample(Metric.WINDOW_IDLE_INPUTS, labels, idle or 0)
        ((partitions, late, outside),) = db.records(
            SQL.count_left_out, tuple[int, int, int], program_id=program_id, limit=_MOST
        )
        yield Sample(Metric.WINDOW_LEFT_OUT, labels, partitions)
        yield Sample(Metric.WINDOW_ROWS_LEFT_OUT, {**labels, "reason": "late"}, late)
        yield Sample(Metric.WINDOW_ROWS_LEFT_OUT, {**labels, "reason": "outside"}, outside)
        yield from _last_run(db, name)


def _last_run(db: Db, name: str) -> Iterator[Sample]:
    """Yield the samples of the newest run of a window program that computed windows, if its message is kept."""
    found = db.record(SQL.find_last_windows, tuple[str, datetime | None, datetime], event_key=window_event(name))
    if found is None:
        return
    payload, started, ended = found
    message = json.loads(payload)
    windows = {kind: int(message[kind]) for kind in ("closed", "recomputed")}
    for kind, number in windows.items():
        yield Sample(Metric.WINDOWS_OF_RUN, {"program": name, "kind": kind}, number)
    computed = sum(windows.values())
    if started is not None and computed:
        yield Sample(Metric.WINDOW_SECONDS, {"program": name}, (ended - started).total_seconds() / computed)


def _sent(db: Db) -> Iterator[Sample]:
    found = list_subscribers(db)
    for one, (_, waiting, _) in zip(found, iterate_lag(db, found), strict=True):
        yield Sample(Metric.SUBSCRIBER_WAITING, {"subscriber": one.name}, waiting)
    for rule, number in db.records(SQL.count_alerts, tuple[str, int], limit=_MOST):
        yield Sample(Metric.ALERTS_OPEN, {"rule": rule}, number)
    yield Sample(Metric.DELIVERIES_WAITING, {}, db.value(SQL.count_waiting_deliveries, int, limit=_MOST) or 0)
    yield Sample(Metric.DELIVERIES_DEAD, {}, db.value(SQL.count_dead_deliveries, int, limit=_MOST) or 0)
