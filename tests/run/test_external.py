"""Transactions that callers open in a process of their own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.catalog.transactions import TransactionEnded, TxState, list_transactions
from tidemill.errors import Fenced, NotFound
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.external import open_transaction
from tidemill.run.records.runs import RunState
from tidemill.run.step.attempts import AttemptEnd, Cause, ask_kill, end_attempt
from tidemill.run.step.outputs import NotAnOutput
from tidemill.shapes.manifest import Manifest
from tidemill.storage.files import StorageUnavailable


def states(works, run_id):
    """Return the states of the run and of its transaction."""
    (tx,) = works.catalog.read(lambda db: list_transactions(db, limit=10, open_only=False))
    return works.run(run_id).state, tx.state


def test_a_block_that_ends_commits(works):
    """A notebook publishes as a program does."""
    with open_transaction(works.catalog, works.world) as tx:
        during = states(works, tx.run_id)

    assert during == (RunState.RUNNING, TxState.IN_PROGRESS)
    assert states(works, tx.run_id) == (RunState.COMPLETED, TxState.COMMITTED)


def test_a_block_that_raises_publishes_nothing(works):
    """The transaction is aborted, and the exception goes on."""
    with pytest.raises(ZeroDivisionError), open_transaction(works.catalog, works.world) as tx:
        1 / 0  # noqa: B018  # it raises

    assert states(works, tx.run_id) == (RunState.FAILED, TxState.ABORTED)
    assert works.run(tx.run_id).exit_reason == "ZeroDivisionError: division by zero"


def test_a_fenced_transaction_cannot_commit(works):
    """The lease ended, and a reaper fenced the run. No runner starts an external run again."""
    end = AttemptEnd(Cause.LOST, "its lease ran out", zombie=True)

    with pytest.raises(TransactionEnded), open_transaction(works.catalog, works.world) as tx:
        end_attempt(works.catalog, tx.run_id, 1, end)

    assert states(works, tx.run_id) == (RunState.FAILED, TxState.INVALID)


def test_a_block_that_raises_the_refusal_of_another_transaction_is_ended(works):
    """The block uses another transaction, which was fenced. This one would stop the janitor until its lease ends."""
    with pytest.raises(Fenced), open_transaction(works.catalog, works.world) as tx:
        raise Fenced("another transaction", "it was slow")

    assert states(works, tx.run_id) == (RunState.FAILED, TxState.ABORTED)


def test_a_marker_that_cannot_be_written_does_not_undo_the_commit(works, memory_folder, monkeypatch, caplog):
    """After an error, the user would write the same rows again."""
    dataset = Dataset(
        DatasetId("clicks"),
        Namespace("default"),
        "clicks",
        DatasetKind.FILESET,
        str(memory_folder),
        {"keys": {"part": "int"}},
    )
    works.catalog.write(lambda db: declare(db, dataset))

    def refuse(*_):
        raise StorageUnavailable(str(memory_folder), "_committed", "No space left on device")

    monkeypatch.setattr("tidemill.run.step.outputs.mark_committed", refuse)
    with open_transaction(works.catalog, works.world) as tx:
        empty = PartitionWrite((1,), WriteOp.OVERWRITE, Manifest(()))
        tx._outputs._outputs["default.clicks"].writes.append(empty)

    assert states(works, tx.run_id) == (RunState.COMPLETED, TxState.COMMITTED)
    assert "No space left" in caplog.text


def test_a_killed_transaction_cannot_commit(works):
    """No runner ends its process: `run kill` would have no effect, and say so never."""
    with pytest.raises(TransactionEnded), open_transaction(works.catalog, works.world) as tx:
        asked = ask_kill(works.catalog, tx.run_id)

    assert asked is RunState.KILLED
    assert states(works, tx.run_id) == (RunState.KILLED, TxState.INVALID)


def test_its_lease_is_renewed_while_it_is_open(works):
    """The transaction may last for hours."""
    with open_transaction(works.catalog, works.world, lease=timedelta(milliseconds=60)) as tx:
        first = works.run(tx.run_id).lease_until
        while works.run(tx.run_id).lease_until == first:
            pass
        later = works.run(tx.run_id).lease_until

    assert later > first


def test_an_unknown_data_set_is_refused_before_anything_begins(works):
    """No transaction is left behind by a mistyped name."""
    with pytest.raises(NotFound), open_transaction(works.catalog, works.world, ["clicks"]):
        pass

    assert works.sql("SELECT count(*) FROM run") == [(0,)]


def test_only_declared_file_sets_can_be_written(works):
    """Consumers could skip a transaction that is not in the in-progress list."""
    with pytest.raises(NotAnOutput), open_transaction(works.catalog, works.world, []) as tx:
        tx.fileset("clicks")
