"""Runs: one record for each, from its launch to its end state, with all its attempts (protocol: runs, leases)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.errors import NotFound
from tidemill.names import JobId, ProgramId, RunId, ScheduleId, WritePointer
from tidemill.run.programs import Value

if TYPE_CHECKING:
    from tidemill.run.runs_sql import Sql

SQL: Sql = load_sql(__file__)


class RunState(StrEnum):
    """PENDING → STARTING → RUNNING → an end state; STOPPING lies between a kill request and its end.

    An attempt that ends without commit goes back to PENDING while it may be repeated.
    """

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    REJECTED = "REJECTED"

    @property
    def ended(self) -> bool:
        """Whether it is final."""
        return self in {RunState.COMPLETED, RunState.FAILED, RunState.KILLED, RunState.REJECTED}

    @property
    def live(self) -> bool:
        """Whether an attempt is under way, so that a lease is held."""
        return self in {RunState.STARTING, RunState.RUNNING, RunState.STOPPING}


class RunKind(StrEnum):
    """Of a program, which runners start; or external: a transaction that somebody opened in a process of their own."""

    PROGRAM = "program"
    EXTERNAL = "external"


class Cause(StrEnum):
    """Why an attempt ends without commit."""

    FAILED = "failed"
    """The program raised, or a check of its output did."""
    REFUSED = "refused"
    """It could not be started (no Java)."""
    LOST = "lost"
    """Its process or its runner is gone; nobody knows why."""
    UNLOADED = "unloaded"
    """Its code could not be loaded on its node: nothing counts, and the run waits for a node that can load the code."""
    POSTPONED = "postponed"
    """The location of its input is away: nothing is closed, nothing counts, and the run is tried again."""
    RETURNED = "returned"
    """Its runner stops and returns it, or its program was deployed again before it began."""
    KILLED = "killed"
    """Somebody asked for it."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be made. `arguments` are complete (`Program.bind`); `triggered_by` is JSON for people and programs.

    `deadline` and `came_at`, when its work came (None: now), are epoch milliseconds.
    """

    run_id: RunId
    program_id: ProgramId
    arguments: Mapping[str, Value] = field(default_factory=dict)
    triggered_by: Mapping[str, object] = field(default_factory=dict)
    schedule_id: ScheduleId | None = None
    job_id: JobId | None = None
    priority: int = 0
    deadline: int | None = None
    came_at: int | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the catalog keeps of a run; times are epoch milliseconds."""

    run_id: RunId
    kind: RunKind
    program_id: ProgramId | None
    schedule_id: ScheduleId | None
    job_id: JobId | None
    state: RunState
    epoch: int
    failures: int
    losses: int
    priority: int
    arguments: Mapping[str, Value]
    triggered_by: Mapping[str, object]
    write_pointer: WritePointer | None
    owner: str | None
    host: str | None
    pid: int | None
    lease_until: int | None
    kill_asked: bool
    not_before: int
    created_at: int
    started_at: int | None
    ended_at: int | None
    exit_reason: str | None
    log_location: str | None
    facts: Mapping[str, object]
    bundle: str
    """The code of its last attempt; empty before the first."""
    owner_process: str | None
    """The process of its owner, as `Spawner.identity` names it; None when the run has no runner."""
    exit_cause: Cause | None
    """Why its last attempt that has ended without commit did so; None before the first, and for older runs."""
    first_write_pointer: WritePointer | None
    """The transaction of its first attempt."""

    @property
    def logical_time(self) -> int | None:
        """The time for which a time trigger fired, the latest if several fed its job; None when none did."""
        return cast("int | None", self.triggered_by.get("logical_time"))


def create_pending(db: Db, runs: Sequence[NewRun]) -> None:
    """Make `runs`, each with a slot of its program, in the caller's transaction; two statements for any number.

    The caller holds the programs' `slot_limit` rows if it promised a limit.
    """
    rows = json.dumps(
        [
            {
                "run_id": run.run_id,
                "program_id": run.program_id,
                "schedule_id": run.schedule_id,
                "job_id": run.job_id,
                "priority": run.priority,
                "deadline": run.deadline,
                "arguments": json.dumps(run.arguments),
                "triggered_by": json.dumps(run.triggered_by),
                "came_at": run.came_at,
            }
            for run in runs
        ]
    )
    db.run(SQL.insert_runs, runs=rows)
    db.run(SQL.insert_slots, runs=rows)


def create_external(
    db: Db,
    run_id: RunId,
    *,
    owner: str,
    host: str,
    pid: int,
    lease: int,
    cause: Mapping[str, object] = MappingProxyType({"asked": "by a transaction of its own"}),
) -> None:
    """Make a run whose only attempt is under way already, with a lease of so many milliseconds; `cause` is JSON."""
    asked = json.dumps(dict(cause))
    db.run(SQL.insert_external, run_id=run_id, triggered_by=asked, owner=owner, host=host, pid=pid, lease=lease)


def find_run(db: Db, run_id: RunId) -> RunRecord:
    """The run with that id; `NotFound` when there is none."""
    found = find_runs(db, [run_id])
    if not found:
        raise NotFound("run", run_id, hint="`tidemill run list` shows the newest")
    return found[0]


def find_runs(db: Db, runs: Sequence[RunId]) -> list[RunRecord]:
    """Those of `runs` that there are, in unspecified order."""
    return db.records(SQL.find_runs, RunRecord, runs=json.dumps(runs))


def list_runs(db: Db, *, most: int, program_id: ProgramId | None = None) -> list[RunRecord]:
    """The newest runs (of one program) first."""
    if program_id is None:
        return db.records(SQL.list_newest, RunRecord, most=most)
    return db.records(SQL.list_of_program, RunRecord, program_id=program_id, most=most)


def list_live(db: Db) -> list[RunRecord]:
    """The runs with an attempt under way, in order of id. Cost: how many those are."""
    return db.records(SQL.list_live, RunRecord)


def has_unfinished(db: Db, held_off: Iterable[str] = ()) -> bool:
    """Tell whether there is a run that has not reached an end state. Cost: two look-ups.

    Runs that wait for a node which can load one of the bundles `held_off` do not count.
    """
    return bool(db.all(SQL.find_unfinished, held_off=json.dumps(sorted(held_off))))


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Runs of one bundle that wait for a node which can load the bundle; `reason` is that of one of their attempts."""

    bundle: str
    runs: int
    reason: str


def list_unloaded(db: Db) -> list[Unloaded]:
    """List the bundles for whose code runs wait. Cost: how many runs are pending."""
    return db.records(SQL.list_unloaded, Unloaded)
