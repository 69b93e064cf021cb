"""Runs: one record for each, from its launch to its end state, with all its attempts (protocol: runs, leases)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import FROM_LATEST, Call, Param, RowSet, load_sql
from tidemill.catalog.records import stored_times, to_json
from tidemill.epoch import EPOCH
from tidemill.errors import NotFound
from tidemill.json_specs import read_plain, write_plain
from tidemill.lake.chosen import ChosenInput, keep_input
from tidemill.names import BackfillId, JobId, ProgramId, RunId, ScheduleId, WritePointer, program_limit
from tidemill.run.records.programs import Program, Value, find_programs, read_program
from tidemill.run.records.workflows import NodeStart, insert_nodes, insert_workflows, node_run_id, plan_start

if TYPE_CHECKING:
    from tidemill.run.records.runs_sql import Sql

SQL: Sql = load_sql(__file__)

BACKFILL: Final = "backfill"
"""Field of the cause of a run of a backfill."""
WORKFLOW: Final = "workflow"
NODE: Final = "node"
"""Fields of the cause of a node's run: the run of its workflow, and the name of the node."""
HANDED_ON: Final = ("logical_time", "logical_times", "triggers")
"""Fields of the cause of a run that a retry has too, and each node of a workflow."""


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
        """True if the state is final."""
        return self in {RunState.COMPLETED, RunState.FAILED, RunState.KILLED, RunState.REJECTED}

    @property
    def live(self) -> bool:
        """True if an attempt is under way, so that a lease is held."""
        return self in {RunState.STARTING, RunState.RUNNING, RunState.STOPPING}


class RunKind(StrEnum):
    """Kind of a run: of a program, which runners start; external, a transaction in a caller's own process; workflow."""

    PROGRAM = "program"
    EXTERNAL = "external"
    WORKFLOW = "workflow"
    """The run of a workflow. It has no process and no attempts: it is RUNNING while runs of its nodes do the work."""


class Cause(StrEnum):
    """Cause of an attempt's end without commit."""

    FAILED = "failed"
    """The program raised, or a check of its output did."""
    REFUSED = "refused"
    """The attempt could not be started (no Java)."""
    LOST = "lost"
    """The process or its runner has disappeared, for an unknown reason."""
    UNLOADED = "unloaded"
    """The node could not load the code. Nothing counts, and the run waits for a node that can load the code."""
    LACKING = "lacking"
    """The node lacks PySpark, Java, or the program's Spark profile. Nothing counts; the run waits for another node."""
    POSTPONED = "postponed"
    """The location of its input is away: nothing is closed, nothing counts, and the run is tried again."""
    RETURNED = "returned"
    """The runner stops and returns the run, or the program was deployed again before the attempt began."""
    KILLED = "killed"
    """A person asked for the kill."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Repetition of the run `of`, whose transaction was `write_pointer`.

    `Run.read` reads what the transaction `saw` could see: `write_pointer`, or of a replay what that replay saw.
    A `sandbox` publishes nothing. With `diff` the rows are compared with those that the run has published. `code` is
    the bundle of the run, empty for a program without one.
    """

    of: RunId
    write_pointer: WritePointer
    saw: WritePointer
    sandbox: bool = False
    diff: bool = False
    code: str = ""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be made. `arguments` are complete (`Program.bind`); `triggered_by` is JSON for people and programs.

    `came_at` is the time at which its work came; None for now. `limits` are the limits of which the run holds a slot
    from now to its end state, beside that of its program. A run of the backfill `backfill_id` has no slot of its
    program: the backfill has a limit of its own. With `chosen` the run works on that input, and takes nothing. What a
    `quiet` run publishes is delivered to no consumer, and its messages start nothing. A `replay` repeats
    another run.
    """

    run_id: RunId
    program_id: ProgramId
    arguments: Mapping[str, Value] = field(default_factory=dict)
    triggered_by: Mapping[str, object] = field(default_factory=dict)
    schedule_id: ScheduleId | None = None
    job_id: JobId | None = None
    priority: int = 0
    deadline: datetime | None = None
    came_at: datetime | None = None
    limits: Collection[str] = ()
    backfill_id: BackfillId | None = None
    chosen: ChosenInput | None = None
    quiet: bool = False
    replay: Replay | None = None

    @property
    def repeats(self) -> RunId | None:
        """The run whose input the run has again, if a person has asked for that."""
        if self.replay is not None:
            return self.replay.of
        again = self.triggered_by.get("retry_of")
        return None if again is None else RunId(str(again))

    @property
    def workflow(self) -> RunId | None:
        """The run of the workflow of which the run is a node; None for other runs."""
        found = self.triggered_by.get(WORKFLOW)
        return None if found is None else RunId(str(found))

    @property
    def cause(self) -> Mapping[str, object]:
        """The cause of the run as its record has it, with the choice."""
        if self.chosen is None and self.replay is None and not self.quiet:
            return self.triggered_by
        said: dict[str, object] = {} if self.chosen is None else {"chosen": self.chosen.counts}
        said |= {"quiet": True} if self.quiet else {}
        return {**self.triggered_by, **said, **({} if self.replay is None else {"replay": write_plain(self.replay)})}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Row of a run."""

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
    lease_until: datetime | None
    kill_asked: bool
    not_before: datetime | None
    """The time of its next attempt; None for at once."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_reason: str | None
    log_location: str | None
    facts: Mapping[str, object]
    bundle: str
    """The code of its last attempt; empty before the first."""
    app_version: int
    """The deployment of its app that its last attempt executes; 0 before the first, and for other runs."""
    owner_process: str | None
    """The process of its owner, as `Spawner.identity` names it; None when the run has no runner."""
    exit_cause: Cause | None
    """Reason of the last attempt that ended without commit; None before the first such attempt, and for older runs."""
    first_write_pointer: WritePointer | None
    """The transaction of its first attempt."""
    core_time: timedelta | None
    """Sum over the attempts that their drivers have ended, see `AttemptEnd.core_time`; None before the first."""

    @property
    def logical_time(self) -> datetime | None:
        """The time for which a time trigger fired, the latest if several fed its job; None when none did."""
        at = self.triggered_by.get("logical_time")
        return None if at is None else read_plain(datetime, at)

    @property
    def is_chosen(self) -> bool:
        """True if the run was given its input when it was made, and takes nothing."""
        return "chosen" in self.triggered_by

    @property
    def replay(self) -> Replay | None:
        """The run that this one repeats, and how."""
        said = self.triggered_by.get("replay")
        return None if said is None else read_plain(Replay, said)

    @property
    def is_sandbox(self) -> bool:
        """True if the run publishes nothing, though it is COMPLETED."""
        return self.replay is not None and self.replay.sandbox

    @property
    def quiet(self) -> bool:
        """True if no consumer gets what the run publishes, and its messages start nothing."""
        return bool(self.triggered_by.get("quiet"))

    @property
    def backfill_id(self) -> BackfillId | None:
        """The backfill that made the run; None for other runs, also for nodes of a workflow that it made."""
        found = self.triggered_by.get(BACKFILL)
        return None if found is None else BackfillId(str(found))

    @property
    def workflow(self) -> RunId | None:
        """The run of the workflow of which this run is a node; None for other runs."""
        found = self.triggered_by.get(WORKFLOW)
        return None if found is None else RunId(str(found))

    @property
    def node(self) -> str:
        """The node of its workflow; empty for other runs."""
        return str(self.triggered_by.get(NODE, ""))

    @property
    def logical_times(self) -> tuple[datetime, ...]:
        """The times for which time triggers fired, oldest first."""
        moments = self.triggered_by.get("logical_times")
        return tuple(read_plain(datetime, at) for at in moments) if isinstance(moments, list) else ()


def create_pending(db: Db, runs: Sequence[NewRun]) -> None:
    """Make `runs`, each with its slots, in the caller's transaction; two statements for any number.

    Every run has a slot of its program, however it was started, but for runs of backfills. The caller holds the
    `slot_limit` rows of the limits that it promised to keep. With the run of a workflow come the runs of its first
    nodes; `NothingStarts`. Chosen input is pinned first, which locks data sets; `NotKept`, and `NotFound` if it is that
    of another run which was deleted meanwhile.
    """
    keep_input(db, [(run.run_id, run.chosen) for run in runs if run.chosen is not None])
    for run in runs:
        if run.chosen is not None and run.repeats is not None:
            # Retention deletes a run with its input: the caller may have read the run before that, and no input after.
            find_run(db, run.repeats)
    insert, *others = insertions(runs)
    made = db.call(insert)
    for call in others:
        db.call(call)
    by_id = {run.run_id: run for run in runs}
    workflows = [by_id[RunId(str(run_id))] for run_id, kind in made if kind == RunKind.WORKFLOW]
    if workflows:
        _start_workflows(db, workflows)


_RUN_COLUMNS: Final = (
    "run_id",
    "program_id",
    "schedule_id",
    "job_id",
    "priority",
    "deadline",
    "arguments",
    "triggered_by",
    "came_at",
    "backfill_id",
    "workflow",
    "code",
    "replay_of",
)
_SLOT_COLUMNS: Final = ("limit_key", "run_id")


def insertions(runs: Sequence[NewRun]) -> tuple[Call, Call]:
    """Return the statements that make `runs` with their slots. The first one gives the id and the kind of each."""
    stored = stored_times()
    rows = [
        (
            run.run_id,
            run.program_id,
            run.schedule_id,
            run.job_id,
            run.priority,
            stored(run.deadline),
            to_json(run.arguments),
            cause,
            stored(run.came_at),
            run.backfill_id,
            run.workflow,
            (run.replay.code or None) if run.replay else None,
            run.replay.of if run.replay else None,
        )
        for run, cause in zip(runs, _write_causes(runs), strict=True)
    ]
    slots = [
        (limit, run.run_id)
        for run in runs
        for limit in sorted({*run.limits} | ({program_limit(run.program_id)} if run.backfill_id is None else set()))
    ]
    return (
        SQL.insert_runs(runs=RowSet(_RUN_COLUMNS, rows)),
        SQL.insert_slots(slots=RowSet(_SLOT_COLUMNS, slots)),
    )


def _write_causes(runs: Sequence[NewRun]) -> list[str]:
    """Return the causes of runs as JSON. A value that runs share is written once: thousands have the same triggers."""
    causes = [run.cause for run in runs]  # kept until the end, so that no later value has the id of an earlier one
    known: dict[int, str] = {}
    texts: list[str] = []
    for cause in causes:
        fields = []
        for name, value in cause.items():
            text = known.get(id(value)) or known.setdefault(id(value), to_json(value))
            fields.append(f"{to_json(name)}: {text}")
        texts.append(f"{{{', '.join(fields)}}}")
    return texts


def _start_workflows(db: Db, runs: Sequence[NewRun]) -> None:
    """Record the runs of workflows, and make the runs of their first nodes."""
    programs = find_programs(db, [run.program_id for run in runs])
    specs = {run.run_id: spec for run in runs if (spec := programs[run.program_id].workflow) is not None}
    db.call(insert_workflows(specs))
    for run in runs:
        start_nodes(db, run, plan_start(db, programs[run.program_id], run.arguments))


def start_nodes(db: Db, workflow: NewRun, starts: Sequence[NodeStart]) -> None:
    """Make the runs of nodes in the caller's transaction."""
    create_pending(db, [new_node_run(workflow, start) for start in starts])
    db.call(insert_nodes((workflow.run_id, start.node) for start in starts))


def new_node_run(workflow: NewRun | RunRecord, start: NodeStart) -> NewRun:
    """Return the run of a node. It has the cause, the turn and the times of its workflow."""
    cause = {name: workflow.triggered_by[name] for name in HANDED_ON if name in workflow.triggered_by}
    return NewRun(
        node_run_id(workflow.run_id, start.node),
        start.program.program_id,
        start.arguments,
        {"asked": "by its workflow", WORKFLOW: workflow.run_id, NODE: start.node, **cause},
        priority=workflow.priority,
        quiet=workflow.quiet,
        backfill_id=workflow.backfill_id,
    )


def create_external(
    db: Db,
    run_id: RunId,
    *,
    owner: str,
    host: str,
    pid: int,
    lease: timedelta,
    cause: Mapping[str, object] = MappingProxyType({"asked": "by a transaction of its own"}),
) -> None:
    """Make a run whose only attempt is under way already; `cause` is JSON."""
    asked = json.dumps(dict(cause))
    db.run(SQL.insert_external, run_id=run_id, triggered_by=asked, owner=owner, host=host, pid=pid, lease=lease)


def find_run(db: Db, run_id: RunId) -> RunRecord:
    """The run with that id; `NotFound` when there is none."""
    found = find_runs(db, [run_id])
    if not found:
        raise NotFound("run", run_id)
    return found[0]


class WithProgram(NamedTuple):
    """Row of a run and of its program, whose columns are NULL for a run without a program."""

    run: RunRecord
    namespace: str | None
    app: str | None
    name: str | None
    program_kind: str | None
    spec: str | None
    program_bundle: str | None
    retired: int | None
    spark_profile: str | None

    @property
    def program(self) -> Program | None:
        """The program of which it is a run."""
        run, *program = self
        return None if run.program_id is None else read_program((run.program_id, *program))


def find_with_program(db: Db, run_id: RunId) -> tuple[RunRecord, Program | None]:
    """Return the run with that id, and the program of which it is a run; `NotFound` when there is no such run."""
    found = db.record(SQL.find_with_program, WithProgram, run_id=run_id)
    if found is None:
        raise NotFound("run", run_id)
    return found.run, found.program


def find_runs(db: Db, runs: Sequence[RunId]) -> list[RunRecord]:
    """Return the runs of `runs` that exist, in unspecified order."""
    return db.records(SQL.find_runs, RunRecord, runs=json.dumps(runs))


def find_moved(db: Db, attempts: Iterable[tuple[RunId, int]]) -> list[RunRecord]:
    """Return the runs of those of `attempts` (run, epoch) that are over or to be ended, in unspecified order."""
    held = json.dumps([{"run_id": run_id, "epoch": epoch} for run_id, epoch in attempts])
    return db.records(SQL.find_moved, RunRecord, held=held)


def list_runs(  # noqa: PLR0913  # filters by keyword
    db: Db,
    *,
    most: int,
    program_id: ProgramId | None = None,
    schedule_id: ScheduleId | None = None,
    workflow: RunId | None = None,
    namespace: str | None = None,
    state: RunState | None = None,
    since: datetime = EPOCH,
    before: tuple[datetime, str] = FROM_LATEST,
) -> list[RunRecord]:
    """List runs that fit each filter, newest first, from the time of creation and id `before` on, not before `since`.

    `namespace` is a filter beside `state` alone. Cost: the page; of a state that is no end the runs in that state; with
    a schedule and another filter the runs of the schedule; of a `workflow` its nodes.
    """
    created_at, run_id = before
    place: dict[str, Param] = {"created_before": created_at, "before": run_id, "since": since, "most": most}
    if workflow is not None:
        named = {"workflow": workflow, "program_id": program_id, "namespace": namespace, "state": state}
        return db.records(SQL.list_of_workflow, RunRecord, **named, **place)
    if schedule_id is not None:
        by = {"schedule_id": schedule_id, "program_id": program_id, "state": state}
        return db.records(SQL.list_of_schedule, RunRecord, **by, **place)
    if state is not None:
        return _list_in_state(db, state, program_id, namespace, place)
    if program_id is None and namespace is not None:
        return db.records(SQL.list_of_namespace, RunRecord, namespace=namespace, **place)
    if program_id is None:
        return db.records(SQL.list_newest, RunRecord, **place)
    return db.records(SQL.list_of_program, RunRecord, program_id=program_id, **place)


def _list_in_state(
    db: Db, state: RunState, program_id: ProgramId | None, namespace: str | None, place: Mapping[str, Param]
) -> list[RunRecord]:
    if state is RunState.PENDING:
        return db.records(SQL.list_pending, RunRecord, program_id=program_id, namespace=namespace, **place)
    if not state.ended:
        by = {"program_id": program_id, "namespace": namespace, "state": state}
        return db.records(SQL.list_under_way, RunRecord, **by, **place)
    if program_id is None and namespace is not None:
        return db.records(SQL.list_ended_of_namespace, RunRecord, namespace=namespace, state=state, **place)
    if program_id is None:
        return db.records(SQL.list_ended_in, RunRecord, state=state, **place)
    return db.records(SQL.list_ended_of_program, RunRecord, program_id=program_id, state=state, **place)


ANY_LIVE: Final = SQL.list_live()
"""Finds a run with an attempt under way, if there is one."""


def list_live(db: Db) -> list[RunRecord]:
    """The runs with an attempt under way, in order of id. Cost: how many those are."""
    return db.records(SQL.list_live, RunRecord)


def count_under_way(db: Db) -> Counter[str]:
    """Count the runs of programs with an attempt under way by machine. Cost: how many those are."""
    return Counter(run.host or "?" for run in list_live(db) if run.kind is RunKind.PROGRAM)


def has_unfinished(db: Db, avoided: Iterable[str] = ()) -> bool:
    """Tell whether there is a run that has not reached an end state. Cost: two look-ups.

    Runs that wait for another node do not count: what this node leaves to other nodes is `avoided`, as in `take_runs`.
    """
    return bool(db.all(SQL.find_unfinished, avoided=json.dumps(sorted(avoided))))


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Runs of one bundle that wait for a node which can load the bundle; `reason` is that of one of their attempts."""

    bundle: str
    runs: int
    reason: str


@dataclass(frozen=True, slots=True)
class Lacking:
    """Runs that wait for a node with one Spark profile, or with Spark; `reason` is that of one of their attempts."""

    profile: str
    runs: int
    reason: str


def list_lacking(db: Db) -> list[Lacking]:
    """List the Spark profiles for which runs wait. Cost: how many runs are pending."""
    return db.records(SQL.list_lacking, Lacking)


def list_unloaded(db: Db) -> list[Unloaded]:
    """List the bundles for whose code runs wait. Cost: how many runs are pending."""
    return db.records(SQL.list_unloaded, Unloaded)
