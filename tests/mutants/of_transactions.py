"""Mutants of begin, commit, what a snapshot sees, and what becomes of a transaction that ends without commit."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import In, Sql
from tests.mutants.mutant import Killer, Room, mutants_of

_mutant = mutants_of(Room.TRANSACTIONS)

MUTANTS: Final = (
    _mutant(
        "unlocked_begin",
        "begin takes its tick in one database transaction and inserts its row in the next",
        In("transactions.begin").swap(
            "seq = catalog.apply([_BeginTransaction(run_id, epoch, declared, spans, first), *effects], "
            "outcome=outcome)",
            "seq = catalog.write(lambda db: db.tick())\n"
            "catalog.apply([_BeginTransaction(run_id, epoch, declared, spans, first, seq), *effects], outcome=outcome)",
        ),
        In("_BeginTransaction").swap("first: bool", "first: bool\nseq: int"),
        In("_BeginTransaction.writes").swap(
            "SQL.insert_tx(run_id=..., epoch=...)", "SQL.insert_tx(run_id=..., epoch=..., seq=self.seq)"
        ),
        In("_BeginTransaction.writes").swap(
            "SQL.declare_writes(declared=...)", "SQL.declare_writes(declared=..., seq=self.seq)"
        ),
        Sql("insert_tx").swap("VALUES ({commit_seq}, 'in_progress'", "VALUES (:seq, 'in_progress'"),
        Sql("declare_writes").swap("{commit_seq}, d.from_time", "CAST(:seq AS BIGINT), d.from_time"),
        Sql("attach_transaction").swap(
            "SET write_pointer = {commit_seq}, first_write_pointer = coalesce(first_write_pointer, {commit_seq})",
            "SET write_pointer = (SELECT write_pointer FROM tx\n"
            "                      WHERE tx.run_id = :run_id AND tx.epoch = :epoch AND state = 'in_progress')",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "no_in_progress_list",
        "what was open when a consumer took is not looked at again",
        In("find_in_progress").swap(
            "db.records(SQL.find_in_progress, WritePointer,"
            " dataset_id=dataset_id, write_pointer=snapshot.write_pointer)",
            "[]",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "in_progress_list_of_the_open_only",
        "what began below the snapshot and has committed since is not in its in-progress list",
        Sql("find_in_progress").swap(
            "AND commit_seq > :write_pointer AND +write_pointer < :write_pointer",
            "AND commit_seq > :write_pointer AND +write_pointer < 0",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "declarations_not_written",
        "begin does not write down which data sets it may commit to",
        In("_BeginTransaction.writes").swap("if self.declared: ...", "if not self.declared: ..."),
        scenario="caller-small",
    ),
    _mutant(
        "declarations_outlive_the_commit",
        "a committed transaction stays in the in-progress list",
        In("_CommitTransaction.writes").drop("SQL.forget_declared"),
        scenario="caller-small",
    ),
    _mutant(
        "no_fence",
        "a commit asks neither whether its transaction is open nor whether its attempt is still the run's",
        In("_CommitTransaction.guards").drop("SQL.refuse_unless_open"),
        In("FinishRun.guards").drop("SQL.refuse_unless_running"),
        scenario="zombie-small",
    ),
    _mutant(
        "lost_reply_taken_for_a_commit",
        "a commit whose reply was lost counts as done without being asked for",
        In("Catalog.apply").swap("lost = error", "return CommitSeq(1)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "lost_reply_not_asked_for",
        "a commit whose reply was lost is sent again, and what refuses it then counts as its outcome",
        In("Catalog.apply").swap(
            "if lost is None or outcome is None or (known := self._ask(outcome, lost)) is None:\n"
            "    raise\n"
            "return known",
            "raise",
        ),
        In("Catalog.apply").drop("if (known := self._ask(outcome, lost)) is not None:\n    return known"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "ended_without_ending_its_transaction",
        "an attempt ends without commit and its transaction stays open",
        In("_effects_of_end").swap("run.write_pointer is not None", "False"),
        scenario="caller-small",
    ),
    _mutant(
        "transaction_not_attached",
        "the run does not know its attempt's transaction, so that nobody ends it",
        In("AttachTransaction.writes").drop("SQL.attach_transaction"),
        scenario="caller-small",
    ),
    _mutant(
        "no_garbage",
        "what an ended transaction may have written is not written down for the janitor",
        In("EndTransaction.writes").drop("SQL.leave_garbage"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "janitor_looks_once",
        "the janitor does not come back, though a zombie may write after its fence",
        In("CLEAN_SWEEPS").swap("12", "1"),
        In("janitor._delete").swap("0 if found else garbage.attempts + 1", "1"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "janitor_deletes_what_is_open",
        "every begin leaves its garbage row at once, and the janitor does not ask whether the transaction is open",
        Sql("leave_garbage").swap(
            "t.state IN ('aborted', 'invalid')", "t.state IN ('in_progress', 'aborted', 'invalid')"
        ),
        In("_BeginTransaction.writes").swap(
            "calls.append(...)", "calls.append(...)\ncalls.append(SQL.leave_garbage_now())"
        ),
        Sql("leave_garbage").swap(
            "ON CONFLICT (location) DO NOTHING",
            "ON CONFLICT (location) DO NOTHING\n\n"
            "-- name: leave_garbage_now\n"
            "INSERT INTO garbage (location, dataset_id, write_pointer, reason, not_before)\n"
            "SELECT dataset_id || '/tx-' || CAST(write_pointer AS TEXT), dataset_id, write_pointer, 'begun',\n"
            "       tidemill_now()\n"
            "  FROM in_progress WHERE write_pointer = {commit_seq}\n"
            "    ON CONFLICT (location) DO NOTHING\n\n",
        ),
        Sql("find_publisher").swap("AND state IN ('in_progress', 'committed')", "AND state IN ('no such')"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "overwrite_beats_what_it_has_not_seen",
        "an overwrite supersedes what has committed to its key since it began",
        In("AddPartitions.guards").drop("WriteOp.OVERWRITE"),
        scenario="conflicts",
    ),
    _mutant(
        "append_to_what_was_overwritten",
        "an append joins a partition that was overwritten since it began",
        In("AddPartitions.guards").drop("WriteOp.APPEND"),
        scenario="conflicts",
    ),
    _mutant(
        "create_of_what_exists",
        "a create joins a partition that is there",
        In("AddPartitions.guards").drop("WriteOp.CREATE"),
        scenario="creates",
    ),
    _mutant(
        "overwrite_supersedes_nothing",
        "an overwrite leaves what it replaces",
        In("AddPartitions.writes").swap("if replaced: ...", "if False and replaced: ..."),
        scenario="snapshot",
    ),
    _mutant(
        "snapshot_sees_later_commits",
        "a reader sees what has committed since its begin",
        Sql("read_visible").swap(
            "AND superseded_seq IS NULL AND +commit_seq < :write_pointer",
            "AND superseded_seq IS NULL AND +commit_seq < 1000 * :write_pointer",
        ),
        scenario="snapshot",
    ),
    _mutant(
        "snapshot_loses_what_was_overwritten",
        "a reader does not see any more what was overwritten since its begin",
        Sql("read_visible").swap(
            "{indexed_by:partition_superseded} WHERE dataset_id = :dataset_id AND superseded_seq >= :write_pointer",
            "{indexed_by:partition_superseded} WHERE dataset_id = :dataset_id AND superseded_seq < 0",
        ),
        scenario="snapshot",
    ),
    _mutant(
        "two_commits_for_data_and_message",
        "partitions are committed, and announced in a transaction after that",
        In("AddPartitions.writes").drop("*self._messages()"),
        In("transactions.commit").swap(
            'catalog.world.mark("commit.after_message")',
            'catalog.world.mark("commit.after_message")\n'
            "import types\n"
            "from tidemill.catalog.effects import Phase\n"
            'saying = [effect for effect in effects if hasattr(effect, "_messages")]\n'
            "if said := [call for effect in saying for call in effect._messages()]:\n"
            "    late = types.SimpleNamespace(phase=Phase.ANNOUNCE, guards=lambda: (), writes=lambda: said)\n"
            "    catalog.apply([late])",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "failed_writes_stay",
        "what a failed or replaced write has left stays in the directory of the committed transaction for good",
        In("Outputs.prepare").swap("output.calls > 1 or output.forgot or (output.calls and (not changes))", "False"),
        In("_delete_strays_of").swap("[name for name in found if ...]", "[]"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "fold_forgets_the_first",
        "of two writes to one partition in one transaction the second is published",
        In("PartitionWrite.then").swap("self.manifest.with_files_of(later.manifest)", "later.manifest"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "marked_before_it_commits",
        "the marker that a restore believes is written before the commit",
        In("Outputs.prepare").swap(
            "if output.is_ours:\n    write_side_car(files, self.tx, content)",
            "if output.is_ours:\n"
            "    write_side_car(files, self.tx, content)\n"
            "mark_committed(files, self.tx, CommitSeq(self.tx.write_pointer + 1))",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "janitor_marks_nothing",
        "a commit whose driver died before the marker is never marked",
        In("_mark_one").drop("mark_committed(files, snapshot, directory.commit_seq)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_replaces_for_consumers",
        "a compaction supersedes the changes that it holds, so that a consumer that has not taken them never gets them",
        Sql("mark_compacted").swap(
            "UPDATE partition_change SET compacted_seq = {commit_seq}",
            "UPDATE partition_change SET compacted_seq = {commit_seq}, superseded_seq = {commit_seq}",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_over_an_overwrite",
        "a compaction commits after what has replaced the changes that it read",
        In("Compact.guards").drop("SQL.refuse_replaced"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_over_a_compaction",
        "a compaction commits after another one that held more changes",
        In("Compact.guards").drop("SQL.refuse_compacted"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_outlives_an_overwrite",
        "what replaces a partition does not supersede its compaction",
        In("AddPartitions.writes").drop("calls.append(supersede_compactions(dataset_id, replaced))"),
        first=Killer.SIMULATION,
    ),
)
