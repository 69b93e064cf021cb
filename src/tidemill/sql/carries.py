"""Carries of a run: the rows that the runs after it need again, so that these read no partition a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Transaction
from tidemill.lake.window.carry import (
    CarriedPartition,
    find_carried,
    list_carried,
    list_carries,
    name_slot,
    to_carry_key,
)
from tidemill.lake.window.side import name_partition, name_to_key
from tidemill.lake.window.window_plan import Grid
from tidemill.lake.window.windows import find_instants, read_keys
from tidemill.shapes.partition_time import Instant
from tidemill.sql.batches import Batch, Calculator
from tidemill.sql.window_tries import is_of_windows

if TYPE_CHECKING:
    from tidemill.run.step.workspace import Workspace


def put_carry(workspace: Workspace, carry: str, write: Callable[[], None]) -> Iterable[str]:
    """Have `write` write a carry.

    If the rows cannot be written, say so for people: the table may have another type of column than before, and results
    follow without a carry too. Cost: the partitions of the carry are read a second time.
    """
    try:
        with workspace.undone_on_error(carry):
            write()
    except Exception as error:
        if not is_of_windows(error):
            raise
        why = " ".join(str(error).split())[:500]
        yield f"the rows for later windows are not kept in {carry}, and the next run reads more partitions: {why}"


def drop_carry(workspace: Workspace, carry: str) -> None:
    """Drop all partitions of a carry, which no run can read any more. Nothing that was read of it counts."""
    fileset, output = workspace.outputs.fileset(carry), workspace.output(carry)
    for one in workspace.ask(lambda db, tx: list_carried(db, fileset, tx)):
        output.drop(one.key)
    workspace.reads.forget({fileset.dataset_id})


def write_sessions(workspace: Workspace, calculator: Calculator, carry: str, batch: Batch, grid: Grid, of: str) -> None:
    """Write the rows of the sessions that are open at the end of the slot of `batch`, and drop old carries.

    A late partition may need carries for as long as its rows reach.
    """
    (last,) = batch.windows
    key = to_carry_key(of, name_slot(last.end), workspace.tx.write_pointer)
    output = workspace.output(carry)
    output.append(calculator.pick_open(workspace, batch, grid.closes(last), key))
    fileset = workspace.outputs.fileset(carry)
    if not workspace.written(carry):
        output.create_empty(key)
    kept_after = grid.closes(last) - grid.shape.reach
    for one in workspace.ask(lambda db, tx: list_carries(db, fileset, tx, grid)):
        if one.of != of or one.at == last.end or one.closes < kept_after:
            output.drop(one.key)


def write_partitions(
    workspace: Workspace, calculator: Calculator, carry: str, batch: Batch, needed: Instant, of: str
) -> None:
    """Write the rows of the partitions of `batch` that later windows need, and drop those that none needs.

    Later windows need rows of the instants from `needed` on.
    """
    fileset, source = workspace.outputs.fileset(carry), batch.source
    output, seen = workspace.output(carry), workspace.tx.write_pointer

    def find_old(db: Db, tx: Transaction) -> list[CarriedPartition]:
        carried = list_carried(db, fileset, tx)
        # By name: in a back-fill nearly all partitions of the table are later than `needed`.
        named = (name_to_key(source.keys, one.name) for one in carried if one.of == of)
        keys = [key for key in named if key is not None]
        near = find_instants(db, source, tx, keys) if keys else {}
        present = read_keys(db, source, tx, [key for key, (_, ends) in near.items() if ends > needed])
        kept = [one.key for one in find_carried(carried, of, source.keys, present).values()]
        return [one for one in carried if one.key not in kept]

    for one in workspace.ask(find_old):
        output.drop(one.key)
    instants = {key: span for key, span in batch.instants.items() if span[1] > needed}
    new = replace(
        batch,
        partitions=tuple(one for one in batch.partitions if one.partition_key in instants),
        instants=instants,
        carried={},
    )
    if not new.partitions:
        return
    if new.has_files:
        output.append(calculator.pick_carried(workspace, new, of, seen))
    written = {fileset.keys.encode(one.key) for one in workspace.written(carry)}
    for partition in new.partitions:
        key = to_carry_key(of, name_partition(source.keys, partition.partition_key), seen)
        if fileset.keys.encode(tuple(key.values())) not in written:
            output.create_empty(key)
