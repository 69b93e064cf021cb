"""Runs of workflows as callers see them: each node with its stand and its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.catalog.db import Db
from tidemill.names import RunId
from tidemill.run.records.programs import find_program_by_id
from tidemill.run.records.runs import RunRecord, RunState, find_runs
from tidemill.run.records.workflow_spec import Stand, decide_course
from tidemill.run.records.workflows import Holding, find_workflow, list_nodes, plan_course


@dataclass(frozen=True, slots=True)
class WorkflowNodeView:
    """A node of a workflow's run, behind the nodes `after` which it comes.

    `state` is waiting, running, done, skipped, failed or blocked; `why` says why a node was skipped, has failed or is
    blocked. `run_id` is the run of the node, which may be of an earlier run of the workflow.
    """

    node: str
    state: str
    after: tuple[str, ...]
    run_id: str | None
    run_state: str | None
    why: str
    values: Mapping[str, object]
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """The nodes of a workflow's run, and its claims.

    A failed run keeps its claims until `holds_until`. `resumed_by` is the run that goes on where a failed run ended.
    `fate` says in words what has become of the claims of a run that did not complete.
    """

    nodes: tuple[WorkflowNodeView, ...]
    claims: str
    holds_until: datetime | None
    resumed_by: RunId | None
    fate: str


def view_workflow(db: Db, run: RunRecord) -> WorkflowView | None:
    """Return what a workflow's run has done so far; None for a run of another kind. Cost: its nodes."""
    row = find_workflow(db, run.run_id)
    if row is None or run.program_id is None:
        return None
    rows = {one.node: one for one in list_nodes(db, run.run_id)}
    stands = {name: one.stand for name, one in rows.items()}
    killed = run.state in {RunState.STOPPING, RunState.KILLED}
    if run.state.ended:
        # Decided as at its end, and not with the programs that are deployed by now.
        course = decide_course(row.spec, stands, row.faults, killed=killed)
    else:
        program = find_program_by_id(db, run.program_id)
        course = plan_course(db, program, row.spec, run.arguments, stands, killed=killed).course
    runs = {one.run_id: one for one in find_runs(db, [one.run_id for one in rows.values()])}
    nodes = []
    for node in row.spec.nodes:
        own = rows.get(node.name)
        record = None if own is None else runs.get(own.run_id)
        stand = course.stands[node.name]
        nodes.append(
            WorkflowNodeView(
                node.name,
                str(Stand.WAITING if stand is Stand.READY else stand),
                node.after,
                None if own is None else own.run_id,
                None if record is None else str(record.state),
                course.reasons.get(node.name, ""),
                {} if own is None else own.result,
                None if record is None else record.started_at,
                None if record is None else record.ended_at,
            )
        )
    held = "" if row.holding is Holding.NOTHING else str(row.holding)
    return WorkflowView(tuple(nodes), held, row.holds_until, row.resumed_by, row.fate)
