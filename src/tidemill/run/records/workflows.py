"""Runs of workflows: their rows, and the runs of their nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.named import Call, load_sql
from tidemill.epoch import show_time
from tidemill.errors import Conflict, UserError
from tidemill.json_specs import write_text
from tidemill.names import RunId
from tidemill.run.records.programs import Program, ProgramRetired, find_program
from tidemill.run.records.values import Value
from tidemill.run.records.workflow_spec import Course, NodeOutcome, NodeSpec, NodeStand, WorkflowSpec, decide_course

if TYPE_CHECKING:
    from tidemill.run.records.workflows_sql import Sql

SQL: Sql = load_sql(__file__)


@refusal
class WorkflowMoved(Conflict):
    """Another node of the workflow ended between the look and the deed; look again."""

    code = "workflow_moved"
    hint = "look at the workflow again"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"workflow {run_id} changed meanwhile")


class HoldsChanged(UserError):
    """A node of a workflow under way was deployed again, and gets other data sets from its workflow."""

    code = "holds_changed"

    def __init__(self, node: str, held: Iterable[str], deployed: Iterable[str]) -> None:
        self.node = node
        self.held = tuple(sorted(held))
        self.deployed = tuple(sorted(deployed))
        super().__init__(
            f"node {node} was deployed again, and gets other data sets from its workflow: "
            f"{', '.join(self.deployed) or 'none'}, and {', '.join(self.held) or 'none'} when the workflow was started",
            "deploy the former `holds=` and retry the workflow, or start another run",
        )


class NothingStarts(UserError):
    """A workflow was to be started of which no node can start."""

    code = "nothing_starts"

    def __init__(self, workflow: str, why: str) -> None:
        self.workflow = workflow
        self.why = why
        super().__init__(
            f"workflow {workflow} is not started, since no node of it can start: {why}",
            "give other arguments, or correct the node and deploy",
        )


def check_held(node: NodeSpec, program: Program) -> None:
    """Refuse a program that gets other data sets from its workflow than the node did when the workflow was started."""
    if set(node.held) != set(program.held):
        raise HoldsChanged(node.name, node.held, program.held)


class Holding(StrEnum):
    """State of the claims of a workflow."""

    NOTHING = "nothing"
    HELD = "held"
    CLOSED = "closed"
    """The last node that reads them has committed."""
    RETURNED = "returned"
    RESUMED = "resumed"
    """The run that goes on has them."""


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """Row of a workflow's run."""

    run_id: RunId
    spec: WorkflowSpec
    revision: int
    holding: Holding
    holds_until: datetime | None
    """The time until which a failed run keeps its claims."""
    resumed_by: RunId | None
    """The run that goes on where this one failed."""
    faults: Mapping[str, str]
    """The nodes that could not be started when a node ended last, each with the reason."""

    @property
    def fate(self) -> str:
        """The fate of the claims of a run that did not complete, in words.

        Empty if the claims are neither kept nor returned.
        """
        if self.resumed_by is not None:
            return f"{self.resumed_by} goes on where the run has failed"
        if self.holds_until is not None:
            return f"the run keeps its claims until {show_time(self.holds_until)}"
        if self.holding is Holding.RETURNED:
            return "the run has returned its claims: another run takes them, and begins with the first node"
        return ""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a workflow's run that has a run of its own."""

    node: str
    run_id: RunId
    outcome: NodeOutcome | None
    reason: str
    result: Mapping[str, Value]

    @property
    def stand(self) -> NodeStand:
        """The stand of the node, as decisions see it."""
        return NodeStand(self.outcome, self.result, self.reason)


def node_run_id(workflow: RunId, node: str) -> RunId:
    """Return the id of the run of a node: it says of which workflow the run is, and sorts behind it."""
    return RunId(f"{workflow}-{node}")


def find_workflow(db: Db, run_id: RunId) -> WorkflowRow | None:
    """Return the row of a workflow's run; None for a run of another kind."""
    return db.record(SQL.find_workflow, WorkflowRow, run_id=run_id)


def list_nodes(db: Db, run_id: RunId) -> list[NodeRow]:
    """Return the nodes of a workflow's run that have runs. Cost: how many those are."""
    return db.records(SQL.list_nodes, NodeRow, run_id=run_id)


@dataclass(frozen=True, slots=True)
class NodeStart:
    """A node that starts now: its program, and the arguments of its run."""

    node: str
    program: Program
    arguments: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """The course of a workflow, the runs to make, and the nodes that cannot be started, each with the reason."""

    course: Course
    starts: tuple[NodeStart, ...]
    faults: Mapping[str, str]


def plan_course(
    db: Db,
    workflow: Program,
    spec: WorkflowSpec,
    arguments: Mapping[str, Value],
    nodes: Mapping[str, NodeStand],
    *,
    killed: bool = False,
) -> WorkflowPlan:
    """Decide which nodes of a workflow start now, and bind the arguments of their programs.

    A node gets the arguments of the workflow that its program declares under the same name. A node whose program is
    retired, refuses its arguments, or gets other data sets from its workflow by now, has failed. Cost: a look-up for
    each node that starts.
    """
    faults: dict[str, str] = {}
    while True:
        course = decide_course(spec, nodes, faults, killed=killed)
        starts = []
        for node, given in course.ready:
            try:
                program = find_program(db, workflow.namespace, workflow.app, node.name)
                if program.retired:
                    raise ProgramRetired(program.qualified_name)  # as the look-up would
                check_held(node, program)
                passed = {one.name: arguments[one.name] for one in program.arguments if one.name in arguments}
                starts.append(NodeStart(node.name, program, program.bind({**passed, **given})))
            except UserError as error:
                faults[node.name] = f"{error.code}: {error}"
        if len(starts) == len(course.ready):
            return WorkflowPlan(course, tuple(starts), faults)


def plan_start(db: Db, workflow: Program, arguments: Mapping[str, Value]) -> tuple[NodeStart, ...]:
    """Return the first nodes of a workflow, and nothing for other programs.

    `NothingStarts` if no node can start: no end of a node would ever end the run.
    """
    if workflow.workflow is None:
        return ()
    plan = plan_course(db, workflow, workflow.workflow, arguments, {})
    if not plan.starts:
        raise NothingStarts(workflow.qualified_name, plan.course.first_failure)
    return plan.starts


def list_under_way(db: Db, run_id: RunId) -> list[RunId]:
    """List the runs of nodes that have not ended."""
    return db.records(SQL.list_under_way, RunId, run_id=run_id)


def insert_nodes(nodes: Iterable[tuple[RunId, str]]) -> Call:
    """Return the statement that records the runs of nodes, given as workflow and node."""
    rows = [{"workflow_id": run_id, "node": node, "run_id": node_run_id(run_id, node)} for run_id, node in nodes]
    return SQL.insert_nodes(nodes=json.dumps(rows))


def insert_workflows(workflows: Mapping[RunId, WorkflowSpec]) -> Call:
    """Return the statement that records runs of workflows."""
    rows = [{"run_id": run_id, "spec": write_text(spec)} for run_id, spec in workflows.items()]
    return SQL.insert_workflows(workflows=json.dumps(rows))


def lock_workflow(db: Db, run_id: RunId) -> Holding:
    """Lock the run of a workflow for a take, and return what its nodes have taken so far."""
    db.run(SQL.lock_run, run_id=run_id)
    return db.records(SQL.find_holding, Holding, run_id=run_id)[0]


def hold_claims(db: Db, run_id: RunId) -> None:
    """Record that a node has taken of all that the workflow holds."""
    db.run(SQL.hold_claims, run_id=run_id)
