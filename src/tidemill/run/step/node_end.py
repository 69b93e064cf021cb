"""End of a node of a workflow: what follows from it, in the transaction that ends the run of the node.

The next nodes start, or the workflow ends. What follows is decided from a read. A guard refuses the commit if another
node has ended meanwhile (`WorkflowMoved`). Guards roll everything back: the caller decides again, and commits again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call
from tidemill.lake.claims import Blame, Fail
from tidemill.names import RunId
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import Cause, RunRecord, RunState, find_with_program, insertions, new_node_run
from tidemill.run.records.values import Value, name_values
from tidemill.run.records.workflow_spec import Course, NodeStand
from tidemill.run.records.workflows import (
    SQL,
    WorkflowPlan,
    find_workflow,
    insert_nodes,
    list_nodes,
    plan_course,
)
from tidemill.run.step.held_inputs import HeldInputs, close_held
from tidemill.run.step.input_kind import Leaving
from tidemill.run.step.inputs import find_claims, find_inputs, holds_any, return_claims
from tidemill.run.step.run_ends import announce_end, free_slots
from tidemill.run.step.workflow_claims import Claims, Close, Hold, Keep, ReturnAll, decide_claims

NO_INPUT: Final = "no_input"


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """Effects to commit before and after the end of the run of a node."""

    before: Sequence[Effect] = ()
    after: Sequence[Effect] = ()


ALONE: Final = NodeEnd()
"""The end of a run of no workflow."""


@dataclass(frozen=True, slots=True)
class _LockWorkflow(Effect):
    """Refuse if the workflow has moved since it was read."""

    phase = Phase.RUN

    workflow: RunRecord
    revision: int

    def guards(self) -> Sequence[Call]:
        run = self.workflow
        return (
            SQL.lock_run(run_id=run.run_id),
            SQL.refuse_if_workflow_moved(run_id=run.run_id, state=run.state, revision=self.revision),
        )

    def writes(self) -> Sequence[Call]:
        return ()


@dataclass(frozen=True, slots=True)
class _FreeSlots(Effect):
    """Free the slots of a workflow that ends with the run of a node."""

    phase = Phase.RUN

    workflow: RunId
    node_run: RunId

    def writes(self) -> Sequence[Call]:
        return free_slots(self.workflow, [self.node_run])


@dataclass(frozen=True, slots=True, kw_only=True)
class _MoveWorkflow(Effect):
    """Record the end of a node, make the runs of the next nodes, and end the workflow when its course is over."""

    phase = Phase.RUN

    workflow: RunRecord
    node: str
    stand: NodeStand
    plan: WorkflowPlan
    claims: Claims
    end: RunState | None
    reason: str
    values: Mapping[str, Value]

    def writes(self) -> Sequence[Call]:
        calls: list[Call] = []
        run_id = self.workflow.run_id
        if self.end is not None:
            cause = {RunState.FAILED: Cause.FAILED, RunState.KILLED: Cause.KILLED}.get(self.end)
            facts = json.dumps({"values": dict(self.values)} if self.values else {})
            calls.append(SQL.end_workflow(run_id=run_id, state=self.end, cause=cause, reason=self.reason, facts=facts))
        calls.append(
            SQL.end_node(
                run_id=run_id,
                node=self.node,
                outcome=self.stand.outcome,
                reason=self.stand.reason,
                result=json.dumps(dict(self.stand.values)),
            )
        )
        hold_for = self.claims.within if isinstance(self.claims, Hold) else None
        faults = json.dumps(dict(self.plan.faults))
        calls.append(SQL.move_workflow(run_id=run_id, holding=self.claims.holding, hold_for=hold_for, faults=faults))
        if starts := self.plan.starts:
            runs = [new_node_run(self.workflow, start) for start in starts]
            calls += [*insertions(runs), insert_nodes((run_id, start.node) for start in starts)]
        return calls


def decide_node_end(
    db: Db, run: RunRecord, stand: NodeStand, held: HeldInputs | None = None, blame: Blame | None = None
) -> NodeEnd:
    """Return what follows from the end of a node's run.

    `held` is what the node has read of what its workflow holds, if a commit ends the node. `blame` is the failure of
    the node, if one ends it.
    """
    assert run.workflow is not None  # noqa: S101  # the run of a node
    workflow, program = find_with_program(db, run.workflow)
    row = find_workflow(db, run.workflow)
    assert program is not None  # noqa: S101  # runs of workflows have both
    assert row is not None  # noqa: S101
    nodes = {one.node: one.stand for one in list_nodes(db, run.workflow)} | {run.node: stand}
    killed = workflow.state is RunState.STOPPING
    plan = plan_course(db, program, row.spec, workflow.arguments, nodes, killed=killed)
    course = plan.course
    end = _decide_end(course, killed=killed)
    reason = _describe_end(course, end)
    claims = decide_claims(
        row.holding,
        end,
        holds=bool(row.spec.held),
        read=course.frees_claims(row.spec.nodes),
        within=row.spec.resume_within,
    )
    values = name_values({name: one.values for name, one in nodes.items()})
    move = _MoveWorkflow(
        workflow=workflow,
        node=run.node,
        stand=stand,
        plan=plan,
        claims=claims,
        end=end,
        reason=reason,
        values=values,
    )
    before: list[Effect] = [_LockWorkflow(workflow, row.revision)]
    if end is not None:
        before.append(_FreeSlots(workflow.run_id, run.run_id))
    after: list[Effect] = [move]
    if held is not None:
        after += [*held.report(run.run_id), *held.record(run.run_id)]
    if end is not None and not (end is RunState.COMPLETED and course.idle):
        after.append(announce_end(workflow, program, end, values=values))
    if held is not None and not isinstance(claims, Close):
        after += held.keep()
    match claims:
        case Close(taken=taken):
            read = row.spec.list_read(nodes)
            after += close_held(db, workflow.run_id, workflow.epoch, held, read) if taken else []
            after += _announce_rest(db, workflow, program, read)
        case ReturnAll():
            failure = Blame(reason, () if blame is None else blame.claims) if end is RunState.FAILED else None
            after += return_held(db, workflow, program, failure, closes_some=held is not None and bool(held.refused))
        case Hold():
            after += [*_fail_claims(workflow, blame), *_leave(db, workflow, program, failed=True)]
        case Keep():
            after += _fail_claims(workflow, blame)
        case _:
            assert_never(claims)
    return NodeEnd(before, after)


def _decide_end(course: Course, *, killed: bool) -> RunState | None:
    if not course.over:
        return None
    if course.succeeded:
        return RunState.COMPLETED
    return RunState.KILLED if killed else RunState.FAILED


def _describe_end(course: Course, end: RunState | None) -> str:
    match end:
        case RunState.COMPLETED if course.idle:
            return NO_INPUT
        case RunState.KILLED:
            return "killed on request"
        case RunState.FAILED:
            return course.first_failure
        case _:
            return ""


def _announce_rest(db: Db, workflow: RunRecord, program: Program, read: Collection[str]) -> Sequence[Effect]:
    """Announce at once what waits in data sets that a node has read, and postpone the other data sets.

    The next run might not read the other data sets either. Announced at once, they would start run after run.
    """
    seen = replace(program, reads=tuple(name for name in program.reads if name in read))
    unseen = replace(program, reads=tuple(name for name in program.reads if name not in read))
    leaving = Leaving(
        launched=workflow.job_id is not None, held=False, killed=False, failed=False, wait=program.backoff
    )
    return [*find_inputs(db, seen).announce(), *find_inputs(db, unseen).leave(leaving)]


def return_held(
    db: Db, workflow: RunRecord, program: Program, blame: Blame | None, *, closes_some: bool = False
) -> Sequence[Effect]:
    """Return the effects that return the claims of a workflow, and announce what is left.

    `closes_some` says that the same commit closes some of the claims first.
    """
    claims = find_claims(db, workflow.run_id)
    returned = return_claims(workflow.run_id, workflow.epoch, blame, program.backoff, claims, closes_some=closes_some)
    return [*returned, *_leave(db, workflow, program, failed=blame is not None)]


def _leave(db: Db, workflow: RunRecord, program: Program, *, failed: bool) -> Sequence[Effect]:
    """Return what announces the work beside the claims of a workflow that has failed, or was killed."""
    leaving = Leaving(
        launched=workflow.job_id is not None,
        held=holds_any(db, workflow.run_id),
        killed=not failed,
        failed=failed,
        wait=program.backoff,
    )
    return find_inputs(db, program).leave(leaving)


def fail_held(db: Db, run: RunRecord, blame: Blame | None) -> list[Effect]:
    """Return what the failure of a node does to blamed claims of its workflow: they leave it, as any run."""
    return [] if run.workflow is None else _fail_claims(find_with_program(db, run.workflow)[0], blame)


def _fail_claims(workflow: RunRecord, blame: Blame | None) -> list[Effect]:
    if blame is None:
        return []
    return [Fail(table, workflow.run_id, workflow.epoch, blame) for table in {one.table for one in blame.claims}]
