"""Mutants of the deletion of old history."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import Sql
from tests.mutants.mutant import Killer, Room, mutants_of

_mutant = mutants_of(Room.RETENTION)

MUTANTS: Final = (
    _mutant(
        "unended_runs_deleted",
        "a run that was made long ago is deleted before its end",
        Sql("list_old_runs").swap("run.ended_at < :before", "run.created_at < :before"),
        Sql("list_old_runs").swap("tx.state = 'in_progress' OR tx.commit_seq > :seq", "tx.commit_seq > :seq"),
        Sql("retention.delete_runs").drop("AND ended_at IS NOT NULL"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "transactions_of_changes_deleted",
        "the transaction of a partition that is still there is deleted with its run",
        Sql("retention.delete_transactions").swap(
            "WHERE change.write_pointer = tx.write_pointer", "WHERE change.write_pointer < 0"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "workflow_that_holds_claims_deleted",
        "a failed workflow is deleted while it holds claims for a retry",
        Sql("list_old_runs").swap("AND workflow_run.holds_until IS NOT NULL", "AND workflow_run.run_id = ''"),
        scenario="fork-forgotten-small",
    ),
    _mutant(
        "nodes_deleted_before_their_workflow",
        "the run of a node is deleted while a workflow that was resumed shares it",
        Sql("list_old_runs").swap(
            "WHERE workflow_node.run_id = run.run_id LIMIT 1", "WHERE workflow_node.run_id = '' LIMIT 1"
        ),
        scenario="fork-forgotten-small",
    ),
)
