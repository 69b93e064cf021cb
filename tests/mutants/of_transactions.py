"""Mutants of begin, commit, what a snapshot sees, and what becomes of a transaction that ends without commit."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Killer, Room, mutants_of

_TX_PY: Final = "catalog/transactions.py"
_TX_SQL: Final = "catalog/transactions.sql"
_DB: Final = "catalog/db.py"
_PUBLISH: Final = "lake/fileset/publish.py"
_COMPACTION_PY: Final = "lake/fileset/compaction.py"
_COMPACTION_SQL: Final = "lake/fileset/compaction.sql"
_FILESET_SQL: Final = "lake/fileset/fileset.sql"
_JANITOR: Final = "lake/janitor.py"
_OUTPUTS: Final = "run/outputs.py"


_mutant = mutants_of(Room.TRANSACTIONS)

MUTANTS: Final = (
    _mutant(
        "unlocked_begin",
        "begin takes its tick in one database transaction and inserts its row in the next",
        Edit(
            _TX_PY,
            "    seq = catalog.apply([_BeginTransaction(run_id, epoch, declared, spans), *effects], outcome=outcome)\n",
            "    seq = catalog.write(lambda db: db.tick())\n"
            "    catalog.apply([_BeginTransaction(run_id, epoch, declared, spans, seq), *effects], outcome=outcome)\n",
        ),
        Edit(
            _TX_PY,
            "    spans: Mapping[DatasetId, tuple[int, int]]\n\n    def guards",
            "    spans: Mapping[DatasetId, tuple[int, int]]\n    seq: int\n\n    def guards",
        ),
        Edit(
            _TX_PY,
            "SQL.insert_tx(run_id=self.run_id, epoch=self.epoch)",
            "SQL.insert_tx(run_id=self.run_id, epoch=self.epoch, seq=self.seq)",
        ),
        Edit(
            _TX_PY,
            "SQL.declare_writes(declared=json.dumps(rows))",
            "SQL.declare_writes(declared=json.dumps(rows), seq=self.seq)",
        ),
        Edit(_TX_SQL, "VALUES ({commit_seq}, 'in_progress'", "VALUES (:seq, 'in_progress'"),
        Edit(
            _TX_SQL,
            "SELECT d.dataset_id, {commit_seq}, d.from_time",
            "SELECT d.dataset_id, CAST(:seq AS BIGINT), d.from_time",
        ),
        Edit(
            "run/attempts.sql",
            "UPDATE run SET write_pointer = {commit_seq}, "
            "first_write_pointer = coalesce(first_write_pointer, {commit_seq})\n"
            " WHERE run_id = :run_id AND epoch = :epoch",
            "UPDATE run SET write_pointer = (SELECT write_pointer FROM tx\n"
            "                             WHERE tx.run_id = :run_id AND tx.epoch = :epoch AND state = 'in_progress')\n"
            " WHERE run_id = :run_id AND epoch = :epoch",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "no_in_progress_list",
        "what was open when a consumer took is not looked at again",
        Edit(_TX_PY, "    return [WritePointer(int(str(row[0]))) for row in rows]\n", "    return []\n"),
        scenario="caller-small",
    ),
    _mutant(
        "in_progress_list_of_the_open_only",
        "what began below the snapshot and has committed since is not in its in-progress list",
        Edit(
            _TX_SQL,
            "AND commit_seq > :write_pointer AND +write_pointer < :write_pointer",
            "AND commit_seq > :write_pointer AND +write_pointer < 0",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "declarations_not_written",
        "begin does not write down which data sets it may commit to",
        Edit(_TX_PY, "        if self.declared:\n", "        if not self.declared:\n"),
        scenario="caller-small",
    ),
    _mutant(
        "declarations_outlive_the_commit",
        "a committed transaction stays in the in-progress list",
        Edit(
            _TX_PY,
            "            SQL.forget_declared(write_pointer=self.write_pointer),\n",
            "",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "no_fence",
        "a commit asks neither whether its transaction is open nor whether its attempt is still the run's",
        Edit(
            _TX_PY,
            "return (SQL.refuse_unless_open(write_pointer=self.write_pointer, epoch=self.epoch),)",
            "return ()",
        ),
        Edit(
            "run/attempts.py",
            '        """The attempt is under way."""\n'
            "        return (SQL.refuse_unless_running(run_id=self.run_id, epoch=self.epoch),)\n\n"
            "    def writes(self) -> Sequence[Call]:\n"
            '        """The end state, and its slots."""\n',
            '        """The attempt is under way."""\n'
            "        return ()\n\n"
            "    def writes(self) -> Sequence[Call]:\n"
            '        """The end state, and its slots."""\n',
        ),
        scenario="zombie-small",
    ),
    _mutant(
        "lost_reply_taken_for_a_commit",
        "a commit whose reply was lost counts as done without being asked for",
        Edit(
            _DB,
            "                if outcome is None:\n                    raise\n                lost = error\n",
            "                if outcome is None:\n                    raise\n                return CommitSeq(1)\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "lost_reply_not_asked_for",
        "a commit whose reply was lost is sent again, and what refuses it then counts as its outcome",
        Edit(
            _DB,
            "                if lost is None or outcome is None or (known := self._ask(outcome, lost)) is None:\n"
            "                    raise\n"
            "                return known\n",
            "                raise\n",
        ),
        Edit(
            _DB,
            "            if (known := self._ask(outcome, lost)) is not None:\n                return known\n",
            "",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "ended_without_ending_its_transaction",
        "an attempt ends without commit and its transaction stays open",
        Edit("run/attempts.py", "    if run.write_pointer is not None:\n        state", "    if False:\n        state"),
        scenario="caller-small",
    ),
    _mutant(
        "transaction_not_attached",
        "the run does not know its attempt's transaction, so that nobody ends it",
        Edit(
            "run/attempts.py",
            "return (SQL.attach_transaction(run_id=self.run_id, epoch=self.epoch),)",
            "return ()",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "no_garbage",
        "what an ended transaction may have written is not written down for the janitor",
        Edit(_TX_PY, "            SQL.leave_garbage(write_pointer=self.write_pointer),\n", ""),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "janitor_looks_once",
        "the janitor does not come back, though a zombie may write after its fence",
        Edit(_JANITOR, "CLEAN_SWEEPS: Final = 12", "CLEAN_SWEEPS: Final = 1"),
        Edit(_JANITOR, "    clean = 0 if found else garbage.clean + 1\n", "    clean = 1\n"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "janitor_deletes_what_is_open",
        "every begin leaves its garbage row at once, and the janitor does not ask whether the transaction is open",
        Edit(
            _TX_SQL,
            "t.state IN ('aborted', 'invalid')\n",
            "t.state IN ('in_progress', 'aborted', 'invalid')\n",
        ),
        Edit(
            _TX_PY,
            "            calls.append(SQL.declare_writes(declared=json.dumps(rows)))\n",
            "            calls.append(SQL.declare_writes(declared=json.dumps(rows)))\n"
            "            calls.append(SQL.leave_garbage_now())\n",
        ),
        Edit(
            _TX_SQL,
            "-- name: forget_ended\n",
            "-- name: leave_garbage_now\n"
            "INSERT INTO garbage (location, dataset_id, write_pointer, reason, not_before)\n"
            "SELECT dataset_id || '/tx=' || CAST(write_pointer AS TEXT), dataset_id, write_pointer, 'begun',\n"
            "       tidemill_now()\n"
            "  FROM in_progress WHERE write_pointer = {commit_seq}\n"
            "    ON CONFLICT (location) DO NOTHING\n\n"
            "-- name: forget_ended\n",
        ),
        Edit("lake/janitor.sql", "   AND (state IN ('in_progress', 'committed')\n", "   AND (state IN ('no such')\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "overwrite_beats_what_it_has_not_seen",
        "an overwrite supersedes what has committed to its key since it began",
        Edit(_PUBLISH, "            WriteOp.OVERWRITE: SQL.refuse_any_later,\n", ""),
        scenario="conflicts",
    ),
    _mutant(
        "append_to_what_was_overwritten",
        "an append joins a partition that was overwritten since it began",
        Edit(_PUBLISH, "            WriteOp.APPEND: SQL.refuse_later_overwrite,\n", ""),
        scenario="conflicts",
    ),
    _mutant(
        "create_of_what_exists",
        "a create joins a partition that is there",
        Edit(_PUBLISH, "            WriteOp.CREATE: SQL.refuse_existing,\n", ""),
        scenario="creates",
    ),
    _mutant(
        "overwrite_supersedes_nothing",
        "an overwrite leaves what it replaces",
        Edit(_PUBLISH, "        if replaced:\n", "        if False and replaced:\n"),
        scenario="snapshot",
    ),
    _mutant(
        "snapshot_sees_later_commits",
        "a reader sees what has committed since its begin",
        Edit(
            _FILESET_SQL,
            "AND superseded_seq IS NULL AND +commit_seq < :write_pointer",
            "AND superseded_seq IS NULL AND +commit_seq < 1000 * :write_pointer",
        ),
        scenario="snapshot",
    ),
    _mutant(
        "snapshot_loses_what_was_overwritten",
        "a reader does not see any more what was overwritten since its begin",
        Edit(
            _FILESET_SQL,
            "AND superseded_seq >= :write_pointer AND +commit_seq",
            "AND superseded_seq < 0 AND +commit_seq",
        ),
        scenario="snapshot",
    ),
    _mutant(
        "two_commits_for_data_and_message",
        "partitions are committed, and announced in a transaction after that",
        Edit(
            _PUBLISH,
            "SQL.insert_changes(**inserted), *self._messages(), *",
            "SQL.insert_changes(**inserted), *",
        ),
        Edit(
            _TX_PY,
            '    catalog.world.mark("commit.after_message")\n',
            '    catalog.world.mark("commit.after_message")\n'
            "    import types\n"
            '    saying = [effect for effect in effects if hasattr(effect, "_messages")]\n'
            "    if said := [call for effect in saying for call in effect._messages()]:\n"
            "        catalog.apply([types.SimpleNamespace(guards=lambda: (), writes=lambda: said)])\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "failed_writes_stay",
        "what a failed or replaced write has left stays in the directory of the committed transaction",
        Edit(
            _OUTPUTS,
            "            if output.calls > 1 or output.forgot or (output.calls and not changes):\n",
            "            if False:\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "fold_forgets_the_first",
        "of two writes to one partition in one transaction the second is published",
        Edit(
            _PUBLISH,
            "manifest=self.manifest.with_files_of(later.manifest)",
            "manifest=later.manifest",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "marked_before_it_commits",
        "the marker that a restore believes is written before the commit",
        Edit(
            _OUTPUTS,
            "            write_side_car(files, self.tx, content)\n",
            "            write_side_car(files, self.tx, content)\n"
            "            mark_committed(files, self.tx, CommitSeq(self.tx.write_pointer + 1))\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "janitor_marks_nothing",
        "a commit whose driver died before the marker is never marked",
        Edit(_JANITOR, '    mark_committed(files, snapshot, CommitSeq(cast("int", seq)))\n', ""),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_replaces_for_consumers",
        "a compaction supersedes the changes that it holds, so that a consumer that has not taken them never gets them",
        Edit(
            _COMPACTION_SQL,
            "UPDATE partition_change SET compacted_seq = {commit_seq}\n",
            "UPDATE partition_change SET compacted_seq = {commit_seq}, superseded_seq = {commit_seq}\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_over_an_overwrite",
        "a compaction commits after what has replaced the changes that it read",
        Edit(
            _COMPACTION_PY,
            "            SQL.refuse_replaced(**place, named=json.dumps(self._named)),\n",
            "",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_over_a_compaction",
        "a compaction commits after another one that held more changes",
        Edit(
            _COMPACTION_PY,
            "            SQL.refuse_compacted(**place, wanted=json.dumps(wanted)),\n",
            "",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "compaction_outlives_an_overwrite",
        "what replaces a partition does not supersede its compaction",
        Edit(_PUBLISH, "            calls.append(supersede_compactions(dataset_id, replaced))\n", ""),
        first=Killer.SIMULATION,
    ),
)
