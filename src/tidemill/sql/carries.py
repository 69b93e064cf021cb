"""Carries of a run: the rows of sessions that are open when the run has computed its slots, for the runs after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemill.errors import Conflict, Fenced, Unavailable
from tidemill.lake.window.carry import list_carries, to_carry_key
from tidemill.lake.window.window_plan import Grid
from tidemill.sql.batches import Batch, Calculator

if TYPE_CHECKING:
    from tidemill.run.step.workspace import Workspace


def put_carry(
    workspace: Workspace, calculator: Calculator, carry: str, batch: Batch, grid: Grid, of: str
) -> Iterable[str]:
    """Write the rows of the sessions that are open at the end of the slot of `batch`, and drop old carries.

    A late partition may need carries for as long as its rows reach. If the rows cannot be written, say so for people:
    the table may have another type of column than before, and sessions follow without a carry too. Cost: the partitions
    of the batch are read a second time.
    """
    try:
        with workspace.undone_on_error(carry):
            _write(workspace, calculator, carry, batch, grid, of)
    except (Conflict, Fenced, Unavailable):
        raise
    except Exception as error:  # noqa: BLE001  # whatever Spark raises
        why = " ".join(str(error).split())[:500]
        yield f"the rows of open sessions are not kept in {carry}, and the next run reads more partitions: {why}"


def _write(workspace: Workspace, calculator: Calculator, carry: str, batch: Batch, grid: Grid, of: str) -> None:
    (last,) = batch.windows
    key = to_carry_key(of, last.end, workspace.tx.write_pointer)
    output = workspace.output(carry)
    output.append(calculator.pick_open(workspace, batch, grid.closes(last), key))
    fileset = workspace.outputs.fileset(carry)
    if not workspace.written(carry):
        output.create_empty(key)
    kept_after = grid.closes(last) - grid.shape.reach
    for one in workspace.ask(lambda db, tx: list_carries(db, fileset, tx, grid)):
        if one.of != of or one.at == last.end or one.closes < kept_after:
            output.drop(one.key)
