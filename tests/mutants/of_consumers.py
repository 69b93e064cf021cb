"""Mutants of takes, claims and inboxes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Killer, Room, mutants_of

_CONSUMER: Final = "lake/consumer/consumer.py"
_CONSUMER_SQL: Final = "lake/consumer/consumer.sql"
_TAKE: Final = "lake/consumer/take.py"
_TAKE_SQL: Final = "lake/consumer/take.sql"
_CLAIMS: Final = "lake/consumer/claims.py"
_CLAIMS_SQL: Final = "lake/consumer/claims.sql"
_BACKLOG: Final = "lake/consumer/backlog.py"
_DISCOVERY: Final = "lake/inbox/discovery.py"
_DISCOVERY_SQL: Final = "lake/inbox/discovery.sql"
_FILE_CLAIMS: Final = "lake/inbox/file_claims.py"
_FILE_CHECKS: Final = "lake/inbox/file_checks.py"
_FILE_ENDINGS: Final = "lake/inbox/file_endings.py"
_FILE_ENDINGS_SQL: Final = "lake/inbox/file_endings.sql"
_STEP: Final = "run/step.py"


_mutant = mutants_of(Room.CONSUMERS)

MUTANTS: Final = (
    # The consumer whose state the caller keeps
    _mutant(
        "two_snapshots",
        "the in-progress list is read by one snapshot and the changes by a later one",
        Edit(
            _CONSUMER,
            "    snapshot = Snapshot(pointer, catalog.incarnation)\n\n"
            "    def block(db: Db) -> PartitionConsumerResult:\n"
            "        changes, moved = take(db, fileset.dataset_id, state, snapshot)\n",
            "    early = Snapshot(pointer, catalog.incarnation)\n"
            "    late = catalog.read(lambda db: find_in_progress(db, fileset.dataset_id, early))\n"
            "    snapshot = Snapshot(WritePointer(catalog.write(lambda db: db.tick())), catalog.incarnation)\n\n"
            "    def block(db: Db) -> PartitionConsumerResult:\n"
            "        changes, _ = take(db, fileset.dataset_id, state, snapshot)\n"
            "        moved = PartitionConsumerState(snapshot.write_pointer, tuple(late))\n",
        ),
        scenario="public-small",
    ),
    _mutant(
        "last_tick_instead_of_a_new_one",
        "the caller's consumer looks from the last tick that was taken, which may be of a commit",
        Edit(
            _CONSUMER,
            "    pointer = WritePointer(catalog.write(lambda db: db.tick()))\n",
            "    pointer = WritePointer(catalog.write(lambda db: db.tick()) - 1)\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "state_set_back",
        "a take that began before the last taker sets the state back",
        Edit(_CONSUMER, "    if snapshot.write_pointer <= state.start_version:\n", "    if False:\n"),
        scenario="shared",
    ),
    _mutant(
        "late_ones_never_read",
        "what is in the in-progress list is not read when it has committed",
        Edit(
            _CONSUMER_SQL,
            "write_pointer IN ({ints:versions_to_check})\n",
            "write_pointer IN ({ints:versions_to_check}) AND 1 = 0\n",
        ),
        scenario="caller-small",
    ),
    _mutant(
        "takes_what_committed_after_its_snapshot",
        "a take reads what has committed since its begin, and the next one reads it again",
        Edit(
            _CONSUMER_SQL,
            "   AND +commit_seq < :write_pointer AND delivers = 1\n UNION ALL\n",
            "   AND delivers = 1\n UNION ALL\n",
        ),
        scenario="caller-small",
    ),
    # Managed consumers
    _mutant(
        "managed_late_ones_never_read",
        "a managed consumer does not read what was open at its last take",
        Edit(
            _TAKE_SQL,
            "write_pointer IN ({ints:versions_to_check}) AND +write_pointer < :bound\n",
            "write_pointer IN ({ints:versions_to_check}) AND +write_pointer < 0\n",
        ),
        scenario="workers-small",
    ),
    _mutant(
        "left_overs_of_a_full_take_forgotten",
        "a take that was cut at its limit moves the state as if it had filled everything",
        Edit(
            _TAKE,
            "    moved = _move(state, WritePointer(bound), find_in_progress(db, consumer.dataset_id, tx))\n",
            "    moved = _move(state, tx.write_pointer, find_in_progress(db, consumer.dataset_id, tx))\n",
        ),
        scenario="filled",
    ),
    _mutant(
        "late_ones_beyond_a_limit_forgotten",
        "a take that was cut among the late ones forgets those behind the cut",
        Edit(
            _TAKE,
            "if v >= bound or v in in_progress)",
            "if v in in_progress)",
        ),
        scenario="filled-late",
    ),
    _mutant(
        "claims_above_its_snapshot",
        "a run claims what has committed since its begin, when another one has filled it",
        Edit(
            _TAKE_SQL,
            "AND waiting.not_before <= tidemill_now()\n"
            "                           AND waiting.commit_seq < :write_pointer\n",
            "AND waiting.not_before <= tidemill_now()\n",
        ),
        Edit(
            _TAKE_SQL,
            "   AND work.state = 'new' AND work.commit_seq < :write_pointer\n",
            "   AND work.state = 'new'\n",
        ),
        scenario="beside",
    ),
    _mutant(
        "own_key_held_twice",
        "overlapping runs of one consumer hold the same partition",
        Edit(
            _TAKE_SQL,
            "AND held.state = 'in_progress' LIMIT 1) IS NULL\n                         ORDER BY waiting.not_before",
            "AND held.state = 'in_progress' AND held.run_id = 'no such' LIMIT 1) IS NULL\n"
            "                         ORDER BY waiting.not_before",
        ),
        scenario="beside",
    ),
    _mutant(
        "fenced_attempt_takes",
        "a fenced attempt may still claim, for a run that has ended",
        Edit(
            _TAKE,
            "    if db.one(SQL.lock_open_tx, write_pointer=tx.write_pointer, epoch=tx.epoch) is None:\n",
            "    if False:\n",
        ),
        scenario="kill-small",
    ),
    _mutant(
        "completed_before_the_output",
        "what a run took is completed in a transaction before the one that publishes",
        Edit(
            _STEP,
            '        self.catalog.world.mark(f"{self.who}.before_commit")\n',
            "        self.catalog.apply([CompleteClaims(self.tx.run_id, self.tx.epoch)])\n"
            '        self.catalog.world.mark(f"{self.who}.before_commit")\n',
        ),
        scenario="fenced",
    ),
    _mutant(
        "completed_after_the_output",
        "what a run took is completed in a transaction after the one that publishes",
        Edit(_STEP, "[CompleteClaims(tx.run_id, tx.epoch)]", "[]"),
        Edit(
            _STEP,
            '        self.catalog.world.mark(f"{self.who}.committed")\n',
            '        self.catalog.world.mark(f"{self.who}.committed")\n'
            "        self.catalog.apply([CompleteClaims(self.tx.run_id, self.tx.epoch)])\n",
        ),
        scenario="fenced",
    ),
    _mutant(
        "completed_at_the_take",
        "what a run takes counts as done from the take on",
        Edit(
            _TAKE_SQL,
            "UPDATE consumer_work SET state = 'in_progress', run_id",
            "UPDATE consumer_work SET state = 'completed', run_id",
        ),
        Edit(
            _TAKE_SQL,
            " WHERE work.run_id = :run_id AND work.state = 'in_progress'\n ORDER BY work.consumer_id",
            " WHERE work.run_id = :run_id AND work.error IS NULL\n ORDER BY work.consumer_id",
        ),
        scenario="workers-small",
    ),
    _mutant(
        "released_as_done",
        "a run that ends without success gives its claims back as completed",
        Edit(
            _CLAIMS_SQL,
            "   SET state = 'new', run_id = NULL, epoch = NULL,\n       not_before = CASE WHEN CAST",
            "   SET state = 'completed',\n       not_before = CASE WHEN CAST",
        ),
        scenario="limits-small",
    ),
    _mutant(
        "claims_kept_by_an_ended_run",
        "a run that ends without success keeps its claims",
        Edit(
            _CLAIMS,
            "        if not self.failed:\n            return (SQL.release(**run, backoff=0),)\n",
            "        if not self.failed:\n            return ()\n",
        ),
        Edit(_CLAIMS, "            SQL.release(**run, backoff=backoff),\n", ""),
        scenario="limits-small",
    ),
    _mutant(
        "claims_not_handed_over",
        "the claims of a lost attempt do not follow the next one",
        Edit(
            _CLAIMS,
            "return (SQL.restamp(run_id=self.run_id, epoch=self.epoch),)",
            "return ()",
        ),
        scenario="workers-small",
    ),
    _mutant(
        "innocents_discarded",
        "all that a failing run holds is given up, not only what failed alone",
        Edit(
            _CLAIMS_SQL,
            "   AND 1 = (SELECT count(*) FROM (SELECT DISTINCT held.consumer_id",
            "   AND 0 < (SELECT count(*) FROM (SELECT DISTINCT held.consumer_id",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "never_halved",
        "what has failed before is tried as a whole again, so that the poison one is never alone",
        Edit(
            _TAKE,
            "    if len(held) < 2 or all(one.failures < HALVE_AFTER for one in held):\n",
            "    if held is not None:\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "losses_blame_the_claims",
        "what an attempt held that died counts as failed",
        Edit(
            "run/attempts.py",
            "    failed = ending.failures > run.failures and end.cause is not Cause.REFUSED\n",
            "    failed = end.cause is Cause.LOST\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "backlog_not_announced",
        "the end of a run does not say that work is left",
        Edit(
            _BACKLOG,
            "        return lock_consumers(self.consumers), SQL.publish_backlog(**params)\n",
            "        return ()\n",
        ),
        scenario="retry",
    ),
    _mutant(
        "unread_not_announced",
        "a run that ends before it took anything does not say that there is something",
        Edit(
            "run/attempts.py",
            "    unread = inputs.note_unread() if run.job_id is not None and not held else []\n",
            "    unread: list[Effect] = []\n",
        ),
        scenario="others",
    ),
    _mutant(
        "rest_of_the_rejected_sticks",
        "a run that could not be started does not have its work announced later",
        Edit(
            "run/attempts.py",
            "    return [*unread, *inputs.announce_rest_later(wait), *windows, *changes]\n",
            "    return [*unread, *windows, *changes]\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rest_of_the_rejected_spins",
        "a run that could not be started has its work announced at once, which starts the next such run",
        Edit(
            "run/attempts.py",
            "    return [*unread, *inputs.announce_rest_later(wait), *windows, *changes]\n",
            "    return [*unread, *inputs.announce_rest(), *windows, *changes]\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "due_work_not_announced",
        "nobody says that work may be tried again",
        Edit(_BACKLOG, "        catalog.apply([_PublishDue(due)])\n", ""),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "own_output_delivered",
        "a program that said deliver_own=False gets what it has written itself",
        Edit(_STEP, "        if not program.deliver_own:\n", "        if False:\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "own_output_never_delivered",
        "what a run added to the file set that it consumes is not delivered by the next take",
        Edit(
            _TAKE_SQL,
            " WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :bound\n",
            " WHERE dataset_id = :dataset_id AND write_pointer > :start_version AND write_pointer < :bound\n",
        ),
        scenario="own",
    ),
    _mutant(
        "superseded_delivered",
        "what was overwritten before anybody took it is delivered beside what replaced it",
        Edit(
            _TAKE,
            "for _, write_pointer, _, size, superseded, _ in group if not superseded]",
            "for _, write_pointer, _, size, _, _ in group]",
        ),
        Edit(
            _TAKE,
            "            if superseded:\n                closing =",
            "            if False:\n                closing =",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "repeated_across_a_drop",
        "a partition that is created again after a drop counts as delivered before",
        Edit(_TAKE_SQL, "           AND (earlier.op = 'drop'\n", "           AND (1 = 0\n"),
        scenario="dropped",
    ),
    _mutant(
        "dropped_not_counted",
        "a partition that was dropped before it was processed is counted nowhere",
        Edit(_TAKE, "        if drops:\n", "        if False:\n"),
        scenario="dropped",
    ),
    _mutant(
        "input_not_recorded",
        "the record of a run does not say what it took",
        Edit(
            _CLAIMS,
            "        return SQL.record_input(**run), SQL.complete(**run)\n",
            "        return (SQL.complete(**run),)\n",
        ),
        first=Killer.SIMULATION,
    ),
    # Inboxes
    _mutant(
        "files_recorded_then_announced",
        "discovery records what is new in one commit, and says so in the next",
        Edit(
            _DISCOVERY,
            "            catalog.apply([_RecordFound(inbox, tuple(found), listing.superseded)])\n",
            "            import types\n"
            "            said, *recorded = _RecordFound(inbox, tuple(found), listing.superseded).writes()\n"
            "            count = sum(one.status is FileState.NEW for one in found)\n"
            "            catalog.apply([types.SimpleNamespace(guards=lambda: (), writes=lambda: recorded)])\n"
            "            if count:\n"
            "                from tidemill.catalog.messages import Publish, Topic\n"
            "                key = file_event(inbox.dataset.namespace, inbox.dataset.name)\n"
            '                catalog.apply([Publish(Topic.DATA, "files", key, {"count": count, "bytes": count})])\n',
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "discovered_twice",
        "who discovers a file that another has recorded meanwhile makes it new again",
        Edit(
            _DISCOVERY_SQL,
            " WHERE inbox_file.status = 'SKIPPED'\n\n-- name: note_superseded",
            " WHERE true\n\n-- name: note_superseded",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "fenced_attempt_claims_files",
        "a fenced attempt may still claim files, for a run that has ended",
        Edit(_FILE_CLAIMS, "        if owner is None:\n", "        if False:\n"),
        scenario="inbox-killed",
    ),
    _mutant(
        "file_claims_not_handed_over",
        "the files of a lost attempt do not follow the next one",
        Edit(
            _FILE_CLAIMS,
            "return (SQL.restamp(run_id=self.run_id, epoch=self.epoch),)",
            "return ()",
        ),
        scenario="inbox-small",
    ),
    _mutant(
        "files_kept_by_an_ended_run",
        "a run that ends without success keeps its files",
        Edit(_FILE_ENDINGS, "        return (*first, SQL.release(**params))\n", "        return first\n"),
        scenario="inbox-killed",
    ),
    _mutant(
        "files_released_as_done",
        "a run that was killed gives its files back as processed",
        Edit(
            _FILE_ENDINGS_SQL,
            "           WHEN :failed = 0 THEN 'NEW' ELSE 'ERROR' END,\n",
            "           WHEN :failed = 0 THEN 'SUCCESS' ELSE 'ERROR' END,\n",
        ),
        scenario="inbox-killed",
    ),
    _mutant(
        "rewritten_file_recorded",
        "nobody looks whether a file that was read is still the one that was claimed",
        Edit(
            _FILE_CHECKS,
            "        if status.etag != file.etag:\n            raise",
            "        if False:\n            raise",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "files_backlog_not_announced",
        "the end of a run does not say that files are left",
        Edit(
            _FILE_ENDINGS,
            "        return (SQL.publish_backlog(**params),)",
            "        return ()",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "files_closed_by_half",
        "a commit closes the files that went wrong, not those that were processed",
        Edit(
            "run/file_input.py",
            "        return [*self.outcomes, *map(succeeded, self.files)]\n",
            "        return self.outcomes\n",
        ),
        Edit(
            _FILE_ENDINGS,
            "        return (SQL.guard_claims(**params, files=len(self.outcomes)),)\n",
            "        return ()\n",
        ),
        first=Killer.SIMULATION,
    ),
    # Consumers in people's hands, and workers
    _mutant(
        "reset_beside_claims",
        "a consumer is reset while a run holds what it took",
        Edit(
            "lake/consumer/resets.py",
            "        return SQL.refuse_if_gone(**old), SQL.refuse_if_claimed(**old)\n",
            "        return (SQL.refuse_if_gone(**old),)\n",
        ),
        scenario="reset",
    ),
    _mutant(
        "requeued_from_under_a_run",
        "what was put aside when somebody looked is requeued, whoever has it now",
        Edit("lake/consumer/resets.sql", "AS listed)\n   AND state = 'discarded'\n", "AS listed)\n"),
        scenario="requeue",
    ),
    _mutant(
        "worker_forgets_what_it_held",
        "the next attempt of a worker waits for news, and not for what the one before had taken",
        Edit(
            "run/worker.py",
            "        self._held = catalog.read(lambda db: holds_any(db, record.run_id))\n",
            "        self._held = False\n",
        ),
        scenario="loop",
    ),
    _mutant(
        "worker_commits_without_its_claims",
        "a worker publishes, and what it took is completed with its next commit",
        Edit(
            "run/worker.py",
            "            prepared = step.prepare()\n",
            "            prepared = [e for e in step.prepare() if type(e).__name__ != 'CompleteClaims']\n",
        ),
        scenario="loop",
    ),
    _mutant(
        "lookback_forgotten",
        "listings begin behind the marker, and pass over what comes late",
        Edit("lake/inbox/lookback.py", "        if lookback == timedelta(0):\n", "        if True:\n"),
        scenario="inbox-late",
    ),
    _mutant(
        "ended_claim_closes_files",
        "a claim by an engine outside closes files after it was fenced",
        Edit(
            _FILE_ENDINGS,
            "        return (SQL.guard_some(**params, files=len(self.outcomes)),)\n",
            "        return ()\n",
        ),
        Edit(
            "run/outside_claims.py",
            "        return (ATTEMPTS.refuse_unless_running(run_id=self.run_id, epoch=_EPOCH),)\n",
            "        return ()\n",
        ),
        scenario="inbox-engines",
    ),
    _mutant(
        "renewed_after_the_fence",
        "a claim that has been fenced is renewed, so that its holder goes on",
        Edit(
            "run/attempts.sql",
            "h.epoch)\n   AND state || '' IN ('STARTING', 'RUNNING', 'STOPPING')\nRETURNING run_id",
            "h.epoch)\nRETURNING run_id",
        ),
        scenario="inbox-renewed",
    ),
    _mutant(
        "released_whatever_it_is",
        "a file that a person gives another chance is new again, though a run has it, or has processed it",
        Edit(_FILE_ENDINGS_SQL, "{texts:names}) AND status = 'QUARANTINED'\n", "{texts:names})\n"),
        scenario="inbox-released",
    ),
    _mutant(
        "taken_away_by_name",
        "what is taken away is the file that was processed only by its name, not by its content",
        Edit("lake/inbox/leaving.py", "    if status.etag != file.etag:\n", "    if False:\n"),
        Edit("lake/inbox/leaving.py", "    files.delete(file.name, etag=file.etag)\n", "    files.delete(file.name)\n"),
        scenario="inbox-leaving",
    ),
    _mutant(
        "taken_away_after_a_look",
        "the content is looked at, and then whatever has the name is deleted",
        Edit("lake/inbox/leaving.py", "    files.delete(file.name, etag=file.etag)\n", "    files.delete(file.name)\n"),
        scenario="inbox-leaving",
    ),
    _mutant(
        "bad_name_hides_the_rest",
        "what a folder holds behind a name that can never be processed is not listed",
        Edit(
            "storage/files.py",
            "                unusable.append(Unusable(_shown(name), why))\n            elif",
            "                return\n            elif",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "away_taken_for_empty",
        "a file that is missing counts as deleted, though its whole location is away",
        Edit("storage/files.py", "        files.check_location()\n        status = files.stat(name)", "        pass"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "mount_point_taken_for_emptied",
        "an empty folder counts as emptied, though it is another folder than the one that had the files",
        Edit("storage/files.py", "        if is_empty and self._root", "        if False and self._root"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "forgotten_at_the_first_look",
        "a file that one listing does not show is forgotten, and is new when it comes back",
        Edit(_DISCOVERY, "        if not forget_after:\n            due += missed\n", "        due += missed\n"),
        Edit(
            _DISCOVERY_SQL,
            "\n   AND absent_since <= tidemill_now() - :forget_after\n",
            "\n   AND absent_since <= tidemill_now() + :forget_after\n",
        ),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "copy_taken_for_new",
        "a content that the catalog knows is another one when it lies in another file of the disk",
        Edit(_DISCOVERY, "        if same is None:\n", "        if True:\n"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "hidden_by_the_dead",
        "what a janitor has taken from its name, and died with, is noted as gone without a look for it",
        Edit("lake/inbox/leaving.py", "    status = files.settle(file.name)\n", "    status = files.stat(file.name)\n"),
        first=Killer.FAIL_POINTS,
    ),
)
