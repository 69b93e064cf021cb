"""Attempts of runs: taken by a runner, registered by their process, renewed, and ended with or without a commit.

`epoch` counts attempts and fences; `failures` counts what uses up the program's retries; `losses` counts attempts that
ended without a verdict of the program, in a row (a dead process, a runner that vanished). An attempt's end is one
transaction: its catalog transaction, the run's state, its claims, its slots and the message, together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db, LostReply, refusal, write_effects
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import EndTransaction, TxState
from tidemill.errors import Conflict, Fenced
from tidemill.lake.claims import Blame, ClaimsMoved, ClaimTable, Held
from tidemill.names import RunId
from tidemill.run.records.programs import BACKOFF, Program
from tidemill.run.records.runs import SQL as RUNS
from tidemill.run.records.runs import (
    Cause,
    RunKind,
    RunRecord,
    RunState,
    WithProgram,
    find_run,
    find_runs,
    find_with_program,
)
from tidemill.run.records.workers import PostponeStarts
from tidemill.run.records.workflow_spec import NodeOutcome, NodeStand
from tidemill.run.records.workflows import WorkflowMoved, list_under_way
from tidemill.run.step.input_kind import Leaving
from tidemill.run.step.inputs import Inputs, fail_claims, find_claims, find_held_inputs, find_inputs, return_claims
from tidemill.run.step.node_end import ALONE, NodeEnd, decide_node_end, fail_held
from tidemill.run.step.run_ends import announce_end, free_slots
from tidemill.texts import printable

if TYPE_CHECKING:
    from tidemill.run.step.attempts_sql import Sql

SQL: Sql = load_sql(__file__)

LOSSES_FOR_A_FAILURE: Final = 5
"""So many losses in a row count as one failure: a driver that always dies of its memory must come to an end."""
LONGEST_BACKOFF: Final = timedelta(hours=1)
_LONGEST_REASON: Final = 1000
_WAITS: Final = {
    Cause.POSTPONED: timedelta(seconds=10),
    Cause.UNLOADED: timedelta(seconds=1),
    Cause.LACKING: timedelta(seconds=1),
    Cause.RETURNED: timedelta(0),
}
"""Wait of a run after an attempt that ended without its fault. Within a second, a node that could not load the code, or
lacks the Spark profile, has recorded that and leaves the run to other nodes."""


@refusal
class RunTaken(Fenced):
    """The attempt is not under way any more: it was fenced, killed, or given up."""

    code = "run_taken"

    def __init__(self, run_id: str, epoch: str, state: str = "unknown") -> None:
        self.run_id = run_id
        self.epoch = int(epoch)
        self.state = state
        super().__init__(f"attempt {epoch} of {run_id}", f"the run is {state} or in a later attempt")


@refusal
class AttemptMoved(Conflict):
    """The run changed between the look and the deed; look again."""

    code = "attempt_moved"
    hint = "look at the run again"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} changed meanwhile")


@dataclass(frozen=True, slots=True)
class Ending:
    """Outcome of an attempt's end for its run. `delay` is the wait before the next attempt."""

    state: RunState
    failures: int
    losses: int
    delay: timedelta = timedelta(0)


def decide_ending(run: RunRecord, cause: Cause, *, retries: int, backoff: timedelta) -> Ending:
    """Decide the state of `run` when its attempt ends by `cause`. Pure."""
    if run.kill_asked or cause is Cause.KILLED:
        return Ending(RunState.KILLED, run.failures, run.losses)
    losses = run.losses + 1
    match cause:
        case Cause.RETURNED | Cause.POSTPONED | Cause.UNLOADED | Cause.LACKING:
            return Ending(RunState.PENDING, run.failures, run.losses, _WAITS[cause])
        case Cause.LOST if run.kind is RunKind.EXTERNAL:
            return Ending(RunState.FAILED, run.failures, losses)  # no runner starts an external run again
        case Cause.LOST if losses < LOSSES_FOR_A_FAILURE:
            return Ending(RunState.PENDING, run.failures, losses, timedelta(seconds=losses - 1))
        case Cause.FAILED | Cause.LOST | Cause.REFUSED:
            failures = run.failures + 1
            if failures <= retries:
                return Ending(RunState.PENDING, failures, 0, backoff_after(failures, backoff))
            return Ending(RunState.REJECTED if cause is Cause.REFUSED else RunState.FAILED, failures, 0)
        case _:
            assert_never(cause)


def backoff_after(failures: int, backoff: timedelta) -> timedelta:
    """The wait after so many failures: `backoff`, then doubling, at most an hour."""
    return min(min(backoff, LONGEST_BACKOFF) * int(2 ** min(failures - 1, 22)), LONGEST_BACKOFF)


def take_runs(  # noqa: PLR0913  # options by keyword
    db: Db,
    *,
    most: int,
    owner: str,
    host: str,
    lease: timedelta,
    process: str | None = None,
    with_spark: bool = True,
    avoided: Iterable[str] = (),
    workers: bool = True,
    late: bool = True,
) -> list[tuple[RunRecord, Program]]:
    """Take at most `most` runs that are due: STARTING, a new epoch, a lease.

    Return them in the order of their turns, each with its program.
    Runs past their deadline come first; then runs by priority, and by the time at which their work came.
    `process` names the owner's process, so that its end is seen on this machine before the lease runs out.
    And all due runs of workers, which count for nothing: `most` may be 0. What another runner is taking at this moment
    is passed over. So are runs of programs whose bundle is one of `avoided`, or whose Spark profile is by its
    `profile_key`, and without `with_spark` what needs Spark. Without `workers` or `late`, runs of workers or runs past
    their deadline are not looked for: a look has found none.
    """
    params: dict[str, Param] = {
        "owner": owner,
        "owner_process": process,
        "host": host,
        "lease": lease,
        "avoided": json.dumps(sorted(avoided)),
    }
    taken = db.all(SQL.take_workers, **params) if workers else []
    if most:
        first = db.all(SQL.take_late, most=most, with_spark=int(with_spark), **params) if late else []
        statement = SQL.take_runs if with_spark else SQL.take_plain_runs
        others = db.all(statement, most=most - len(first), **params) if len(first) < most else []
        taken += first + others
    if not taken:
        return []
    found = db.records(SQL.read_taken, WithProgram, runs=json.dumps([row[0] for row in taken]))
    return [(one.run, one.program) for one in found if one.program is not None]


def due_runs(*, workers_only: bool, with_spark: bool, avoided: Iterable[str]) -> list[Call]:
    """Return the reads that find a run which waits and is due now: of a worker, past its deadline, or any other.

    With `workers_only` only runs of workers count. Without `with_spark` only runs that need no Spark. What is
    `avoided` does not count, as in `take_runs`.
    """
    without = json.dumps(sorted(avoided))
    calls = [SQL.find_due_workers(avoided=without)]
    if not workers_only:
        calls.append(SQL.find_late(with_spark=int(with_spark), avoided=without))
        calls.append((SQL.find_due if with_spark else SQL.find_plain_due)(avoided=without))
    return calls


def next_due(since: datetime) -> Call:
    """Return the read of the first time after `since`, maybe past, at which a waiting run comes due."""
    return SQL.find_next_due(since=since)


@dataclass(frozen=True, slots=True)
class Registration:
    """Report of process `pid` that it works on an attempt. `token_digest` is of its token for the attempt."""

    run_id: RunId
    epoch: int
    pid: int
    facts: Mapping[str, object]
    log_location: str
    token_digest: str | None = None

    @property
    def params(self) -> dict[str, Param]:
        """The columns of the run."""
        return {
            "run_id": self.run_id,
            "epoch": self.epoch,
            "pid": self.pid,
            "facts": json.dumps(self.facts),
            "log_location": self.log_location,
            "token_digest": self.token_digest,
        }


def register(db: Db, registration: Registration) -> None:
    """Register a process for its attempt: STARTING → RUNNING; `RunTaken` when the attempt is not there to be had.

    A process may do it again, by the token that it got.
    """
    if not db.run(SQL.register, **registration.params):
        run_id, epoch = registration.run_id, registration.epoch
        found = find_runs(db, [run_id])
        raise RunTaken(run_id, str(epoch), found[0].state if found else "deleted")


def note_stages(db: Db, run_id: RunId, epoch: int, stages: Mapping[str, int]) -> None:
    """Note among the facts of an attempt how far its Spark jobs are. After the attempt this changes nothing."""
    db.run(SQL.note_stages, run_id=run_id, epoch=epoch, stages=json.dumps(stages))


def renew(db: Db, held: Sequence[tuple[RunId, int]], lease: timedelta) -> set[RunId]:
    """Renew the leases of attempts (run, epoch) in one statement; which of them are still under way."""
    rows = json.dumps([{"run_id": run_id, "epoch": epoch} for run_id, epoch in held])
    return {RunId(str(row[0])) for row in db.all(SQL.renew_leases, held=rows, lease=lease)}


@dataclass(frozen=True, slots=True)
class AttachTransaction(Effect):
    """Write down which transaction is the attempt's, in its begin; `RunTaken` when the attempt is over.

    A process that has not registered for the attempt yet gives its `registration` along.
    """

    phase = Phase.RUN

    run_id: RunId
    epoch: int
    registration: Registration | None = None

    def guards(self) -> Sequence[Call]:
        """The attempt is under way, or there to be had."""
        guard = SQL.refuse_unless_starting if self.registration else SQL.refuse_unless_running
        return (guard(run_id=self.run_id, epoch=self.epoch),)

    def writes(self) -> Sequence[Call]:
        """The run's write pointer."""
        if self.registration is not None:
            return (SQL.register_and_attach(**self.registration.params),)
        return (SQL.attach_transaction(run_id=self.run_id, epoch=self.epoch),)


@dataclass(frozen=True, slots=True)
class FinishRun(Effect):
    """Complete the run, in the commit of its attempt: its slots become free, and jobs that wait for them are woken.

    A kill that was asked for and not carried out has no effect. `open_for` is the time for which the transaction was
    open when the driver began to commit; None if the duration of the commit is not measured. `core_time` is that of the
    attempt, as of an `AttemptEnd`.
    """

    phase = Phase.RUN

    run_id: RunId
    epoch: int
    reason: str
    facts: Mapping[str, object]
    open_for: timedelta | None = None
    core_time: timedelta | None = None

    def guards(self) -> Sequence[Call]:
        """The attempt is under way."""
        return (SQL.refuse_unless_running(run_id=self.run_id, epoch=self.epoch),)

    def writes(self) -> Sequence[Call]:
        """The end state, and its slots."""
        params: dict[str, Param] = {
            "run_id": self.run_id,
            "epoch": self.epoch,
            "reason": self.reason,
            "facts": json.dumps(self.facts),
            "open_for": self.open_for,
            "core_time": self.core_time,
        }
        return (*free_slots(self.run_id), SQL.complete_run(**params))


@dataclass(frozen=True, slots=True)
class _EndAttempt(Effect):
    """An attempt's end without commit, decided on `run` as it was read."""

    phase = Phase.RUN

    run: RunRecord
    ending: Ending
    cause: Cause
    reason: str
    lease_until: datetime | None
    core_time: timedelta | None

    def guards(self) -> Sequence[Call]:
        params: dict[str, Param] = {
            "run_id": self.run.run_id,
            "epoch": self.run.epoch,
            "state": self.run.state,
            "kill_asked": int(self.run.kill_asked),
            "write_pointer": -1 if self.run.write_pointer is None else self.run.write_pointer,
            "lease_until": self.lease_until,
        }
        return (SQL.refuse_if_moved(**params),)

    def writes(self) -> Sequence[Call]:
        params: dict[str, Param] = {
            "run_id": self.run.run_id,
            "epoch": self.run.epoch,
            "failures": self.ending.failures,
            "losses": self.ending.losses,
            "cause": self.cause,
            "reason": self.reason,
            "core_time": self.core_time,
        }
        if self.ending.state is RunState.PENDING:
            # It keeps its slots: a run that waits for its next attempt counts.
            return (SQL.repeat_run(**params, delay=self.ending.delay),)
        return (*free_slots(self.run.run_id), SQL.end_run(**params, state=self.ending.state))


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """End of an attempt. `reason` is one line for people."""

    cause: Cause
    reason: str
    blame: Blame | None = None
    """Failure for the claims, if the program has failed. Default: the reason."""
    zombie: bool = False
    """The process may still be writing: the transaction becomes invalid, not aborted."""
    unrenewed: datetime | None = None
    """Only while the lease is still the one that was seen."""
    core_time: timedelta | None = None
    """Time for which the attempt has held cores. None if it is not known, as of a process that was killed."""

    @property
    def shown_reason(self) -> str:
        """The reason as the run keeps it."""
        return printable(" ".join(self.reason.split()))[:_LONGEST_REASON]


def end_attempt(
    catalog: Catalog, run_id: RunId, epoch: int, end: AttemptEnd, also: Sequence[Effect] = ()
) -> RunState | None:
    """End attempt `epoch` of a run without commit, as one transaction with `also`; the run's state after it.

    None, and nothing changed, when the attempt has ended already (a commit that won, a fence), or when its lease was
    renewed after all; and for the run of a workflow, which has no attempts.
    """
    while True:
        run, program, inputs, claims = catalog.read(lambda db: _read_for_end(db, run_id))
        if run.kind is RunKind.WORKFLOW:
            return None  # its nodes end it
        if run.epoch != epoch or not (run.state.live or (run.state is RunState.PENDING and end.cause is Cause.KILLED)):
            return None
        if end.unrenewed is not None and run.lease_until != end.unrenewed:
            return None
        backoff = program.backoff if program else BACKOFF
        # A replay has all its input from the record: what fails once, such as a refusal to publish, fails again.
        retries = program.retries if program and run.replay is None else 0
        ending = decide_ending(run, end.cause, retries=retries, backoff=backoff)
        leaving = Leaving(
            launched=run.job_id is not None,
            held=any(held.claims for held in claims.values()),
            killed=ending.state is RunState.KILLED,
            failed=ending.state is RunState.FAILED,
            wait=min(backoff, LONGEST_BACKOFF),
        )
        node = catalog.read(partial(_decide_node, run=run, end=end, ending=ending)) if run.workflow else ALONE
        catalog.world.mark("end_attempt.before_commit")
        try:
            effects = _effects_of_end(run, program, end, ending, claims, inputs.leave(leaving))
            catalog.apply([*node.before, *effects, *node.after, *also])
        except (AttemptMoved, ClaimsMoved, WorkflowMoved, LostReply):
            continue  # look again: it is as it was, changed, or ended by us
        catalog.world.mark("end_attempt.after_commit")
        return ending.state


def _decide_node(db: Db, *, run: RunRecord, end: AttemptEnd, ending: Ending) -> NodeEnd:
    """Return what the end of an attempt means for the workflow of the run."""
    if ending.state is RunState.PENDING:
        return NodeEnd(after=fail_held(db, run, end.blame))
    return decide_node_end(db, run, NodeStand(NodeOutcome(ending.state), reason=end.shown_reason), blame=end.blame)


def _effects_of_end(
    run: RunRecord,
    program: Program | None,
    end: AttemptEnd,
    ending: Ending,
    claims: Mapping[ClaimTable, Held],
    rest: Sequence[Effect],
) -> list[Effect]:
    reason = end.shown_reason
    effects: list[Effect] = [_EndAttempt(run, ending, end.cause, reason, end.unrenewed, end.core_time)]
    if run.write_pointer is not None:
        state = TxState.INVALID if end.zombie else TxState.ABORTED
        effects.append(EndTransaction(run.write_pointer, state, f"{end.cause}: {reason}"))
    # A loss counts as a failure only after several losses in a row.
    failed = ending.failures > run.failures and end.cause is not Cause.REFUSED
    blame = (end.blame or Blame(reason)) if failed else None
    if ending.state is RunState.PENDING:
        return [*effects, *fail_claims(run.run_id, run.epoch, blame, claims, is_chosen=run.is_chosen)]
    if program:
        effects.append(announce_end(run, program, ending.state))
        if program.kind.is_worker and ending.state is not RunState.KILLED:
            effects.insert(0, PostponeStarts(program.program_id, program.backoff, failed=True))
    backoff = program.backoff if program else BACKOFF
    return [*effects, *return_claims(run.run_id, run.epoch, blame, backoff, claims), *rest]


def _read_for_end(db: Db, run_id: RunId) -> tuple[RunRecord, Program | None, Inputs, dict[ClaimTable, Held]]:
    """The run, its program, what that reads, and whether the run holds anything."""
    run, program = find_with_program(db, run_id)
    inputs = find_held_inputs(db, run_id) if program is None else find_inputs(db, program, run)
    return run, program, inputs, find_claims(db, run_id)


def ask_kill(catalog: Catalog, run_id: RunId) -> RunState:
    """Ask for the end of a run; return its state afterwards. See `kill_run`."""
    return kill_run(catalog, run_id)[0]


def _noted(note: NoteChange | None, before: RunState, after: RunState) -> Sequence[Effect]:
    return () if note is None else (note.between({"state": before}, {"state": after}),)


def kill_run(
    catalog: Catalog,
    run_id: RunId,
    note: NoteChange | None = None,
    also: Callable[[RunState], Sequence[Effect]] = lambda _: (),
) -> tuple[RunState, bool]:
    """Ask for the end of a run; return its state afterwards, and whether this call has changed the state.

    A waiting run is KILLED at once, and so is an external one, which has no runner: its process is refused when it
    commits. One under way is STOPPING until its runner has ended its processes. An ended run stays as it is. A workflow
    is STOPPING until the runs of its nodes, which are killed with it, have ended. The change takes along the `note`,
    and what `also` gives for the state afterwards.
    """

    def ask(db: Db, state: RunState) -> int:
        asked = db.run(RUNS.ask_kill, run_id=run_id, state=state)
        if asked:
            write_effects(db, [*_noted(note, state, RunState.STOPPING), *also(RunState.STOPPING)])
        return asked

    while True:
        run = catalog.read(lambda db: find_run(db, run_id))
        killing = [*_noted(note, run.state, RunState.KILLED), *also(RunState.KILLED)]
        if run.state is RunState.PENDING or (run.kind is RunKind.EXTERNAL and run.state.live):
            pending = run.state is RunState.PENDING
            end = AttemptEnd(
                Cause.KILLED, "killed before it was started" if pending else "killed on request", zombie=not pending
            )
            killed = end_attempt(catalog, run_id, run.epoch, end, killing)
            if killed is not None:
                return killed, True
        elif run.state.ended or run.state is RunState.STOPPING:
            return run.state, False
        elif catalog.write(partial(ask, state=run.state)):
            if run.kind is RunKind.WORKFLOW:
                catalog.world.mark("kill.asked_of_workflow")
                kill_nodes(catalog, run_id)
                return catalog.read(lambda db: find_run(db, run_id)).state, True
            return RunState.STOPPING, True


def kill_nodes(catalog: Catalog, workflow: RunId) -> None:
    """Kill the runs of nodes that have not ended. The last one ends the workflow.

    A runner does the same for each workflow that is STOPPING: the process that asked may have died before.
    """
    for run_id in catalog.read(lambda db: list_under_way(db, workflow)):
        kill_run(catalog, run_id)
