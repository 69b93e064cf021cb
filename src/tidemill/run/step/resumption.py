"""Resumption of failed workflows: another run goes on with the nodes that have not completed, and with the claims.

An end state is final. So the run that goes on is a new run, which inherits what has completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call
from tidemill.errors import Conflict
from tidemill.lake.claims import Blame
from tidemill.lake.consumer.claims import hand_over_partitions
from tidemill.lake.inbox.file_claims import hand_over_files
from tidemill.names import RunId
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import NewRun, RunRecord, find_with_program, insertions, start_nodes
from tidemill.run.records.workflows import SQL, Holding, WorkflowMoved, find_workflow, list_nodes, plan_course
from tidemill.run.step.node_end import return_held
from tidemill.run.step.run_ends import announce_return

NEXT_END_OF_HOLD: Final = SQL.find_next_end_of_hold()
"""Finds the time at which a failed workflow returns its claims next."""


class NotResumable(Conflict):
    """A failed workflow goes on already, or would fail again at once."""

    code = "not_resumable"

    def __init__(self, run_id: str, why: str, resumed_by: RunId | None = None) -> None:
        self.run_id = run_id
        self.why = why
        self.resumed_by = resumed_by
        later = f"; `tidemill run retry {resumed_by}` goes on after that run has failed" if resumed_by else ""
        super().__init__(f"workflow {run_id} cannot go on: {why}", f"`tidemill run start` starts another run{later}")


def resume_workflow(db: Db, failed: RunId, program: Program, new: NewRun) -> bool:
    """Make `new`, which goes on where the `failed` run of a workflow ended; False if the claims were returned since.

    In the caller's transaction. Raises `NotResumable`.
    """
    db.run(SQL.lock_run, run_id=failed)
    row = find_workflow(db, failed)
    if row is None or row.holding is Holding.RETURNED:
        return False
    if row.resumed_by is not None:
        raise NotResumable(failed, f"{row.resumed_by} goes on with it", row.resumed_by)
    db.run(SQL.inherit_workflow, run_id=new.run_id, origin=failed)
    db.run(SQL.inherit_nodes, run_id=new.run_id, origin=failed)
    nodes = {one.node: one.stand for one in list_nodes(db, new.run_id)}
    plan = plan_course(db, program, row.spec, new.arguments, nodes)
    if not plan.starts:
        raise NotResumable(failed, plan.course.first_failure)
    for call in insertions([new]):
        db.call(call)
    start_nodes(db, new, plan.starts)
    db.run(SQL.note_resumed, run_id=failed, resumed_by=new.run_id)
    if row.holding is Holding.HELD:
        hand_over_partitions(db, failed, new.run_id)
        hand_over_files(db, failed, new.run_id)
    return True


@dataclass(frozen=True, slots=True)
class _EndHold(Effect):
    """Record that a failed workflow has returned its claims; refuse if it was resumed meanwhile."""

    phase = Phase.RUN

    run: RunRecord
    revision: int

    def guards(self) -> list[Call]:
        run = self.run
        moved = SQL.refuse_if_workflow_moved(run_id=run.run_id, state=run.state, revision=self.revision)
        return [SQL.lock_run(run_id=run.run_id), moved]

    def writes(self) -> list[Call]:
        return [SQL.end_hold(run_id=self.run.run_id)]


def end_holds(catalog: Catalog) -> None:
    """Return the claims of failed workflows that were not resumed in time: work never sticks."""
    for run_id in catalog.read(lambda db: db.records(SQL.list_ended_holds, RunId)):
        end_hold(catalog, run_id)


def end_hold(catalog: Catalog, run_id: RunId, also: Sequence[Effect] = ()) -> bool:
    """Return the claims of a failed workflow, in one transaction with `also`; False if the run holds nothing."""
    while effects := catalog.read(lambda db: _end_hold(db, run_id)):
        catalog.world.mark("end_hold.before_commit")
        try:
            catalog.apply([*effects, *also])
        except WorkflowMoved:
            continue  # it was resumed, or another process was faster
        return True
    return False


def _end_hold(db: Db, run_id: RunId) -> list[Effect]:
    row = find_workflow(db, run_id)
    # It may have been resumed, and deleted by retention since the caller looked.
    if row is None or row.holds_until is None:
        return []
    run, program = find_with_program(db, run_id)
    if program is None:
        return []
    blame = Blame(f"{run_id} has failed, and was not resumed: {run.exit_reason}")
    returned = return_held(db, run, program, blame)
    return [_EndHold(run, row.revision), *returned, announce_return(run, program)]
