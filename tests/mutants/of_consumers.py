"""Mutants of takes, claims and inboxes."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import In, Sql
from tests.mutants.mutant import Killer, Room, mutants_of

_mutant = mutants_of(Room.CONSUMERS)

MUTANTS: Final = (
    # The consumer whose state the caller keeps
    _mutant(
        "two_snapshots",
        "the in-progress list is read by one snapshot and the changes by a later one",
        In("consume_partitions").swap(
            "snapshot = Snapshot(pointer, catalog.incarnation)",
            "early = Snapshot(pointer, catalog.incarnation)\n"
            "late = catalog.read(lambda db: find_in_progress(db, fileset.dataset_id, early))\n"
            "snapshot = Snapshot(WritePointer(catalog.write(lambda db: db.tick())), catalog.incarnation)",
        ),
        In("consume_partitions").swap(
            "changes, moved = take(db, fileset.dataset_id, state, snapshot)",
            "changes, _ = take(db, fileset.dataset_id, state, snapshot)\n"
            "moved = PartitionConsumerState(snapshot.write_pointer, tuple(late))",
        ),
        scenario="public-small",
    ),
    _mutant(
        "last_tick_instead_of_a_new_one",
        "the caller's consumer looks from the last tick that was taken, which may be of a commit",
        In("consume_partitions").swap("catalog.write(lambda db: db.tick())", "catalog.write(lambda db: db.tick()) - 1"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "state_set_back",
        "a take that began before the last taker sets the state back",
        In("take").swap("snapshot.write_pointer <= state.start_version", "False"),
        scenario="shared",
    ),
    _mutant(
        "late_ones_never_read",
        "what is in the in-progress list is not read when it has committed",
        Sql("unread_changes").swap(
            "write_pointer IN ({ints:versions_to_check})", "write_pointer IN ({ints:versions_to_check}) AND 1 = 0"
        ),
        scenario="caller-small",
    ),
    _mutant(
        "takes_what_committed_after_its_snapshot",
        "a take reads what has committed since its begin, and the next one reads it again",
        Sql("unread_changes").swap(
            "AND +commit_seq < :write_pointer AND delivers = 1 UNION ALL", "AND delivers = 1 UNION ALL"
        ),
        scenario="caller-small",
    ),
    # Managed consumers
    _mutant(
        "managed_late_ones_never_read",
        "a managed consumer does not read what was open at its last take",
        Sql("fill").swap(
            "write_pointer IN ({ints:versions_to_check}) AND +write_pointer < :bound",
            "write_pointer IN ({ints:versions_to_check}) AND +write_pointer < 0",
        ),
        scenario="workers-small",
    ),
    _mutant(
        "left_overs_of_a_full_take_forgotten",
        "a take that was cut at its limit moves the state as if it had filled everything",
        In("take._fill").swap("WritePointer(bound)", "tx.write_pointer"),
        scenario="filled",
    ),
    _mutant(
        "late_ones_beyond_a_limit_forgotten",
        "a take that was cut among the late ones forgets those behind the cut",
        In("take._move").swap("v >= bound or v in in_progress", "v in in_progress"),
        scenario="filled-late",
    ),
    _mutant(
        "claims_above_its_snapshot",
        "a run claims what has committed since its begin, when another one has filled it",
        Sql("find_claimable").swap(
            "AND waiting.not_before <= tidemill_now() AND waiting.commit_seq < :write_pointer",
            "AND waiting.not_before <= tidemill_now()",
        ),
        Sql("find_claimable").swap(
            "AND work.state = 'new' AND work.commit_seq < :write_pointer", "AND work.state = 'new'"
        ),
        scenario="beside",
    ),
    _mutant(
        "own_key_held_twice",
        "overlapping runs of one consumer hold the same partition",
        Sql("find_claimable").swap(
            "AND held.state = 'in_progress' LIMIT 1) IS NULL ORDER BY waiting.not_before",
            "AND held.state = 'in_progress' AND held.run_id = 'no such' LIMIT 1) IS NULL ORDER BY waiting.not_before",
        ),
        scenario="beside",
    ),
    _mutant(
        "fenced_attempt_takes",
        "a fenced attempt may still claim, for a run that has ended",
        In("lock_open").swap("db.one(SQL.lock_open, write_pointer=tx.write_pointer, epoch=tx.epoch) is None", "False"),
        scenario="kill-small",
    ),
    _mutant(
        "completed_before_the_output",
        "what a run took is completed in a transaction before the one that publishes",
        In("Step.commit").swap(
            'self.catalog.world.mark(f"{self.who}.before_commit")',
            "from tidemill.lake.claims import Complete\n"
            "from tidemill.lake.consumer.claims import PARTITIONS\n"
            "self.catalog.apply([Complete(PARTITIONS, self.tx.run_id, self.tx.epoch)])\n"
            'self.catalog.world.mark(f"{self.who}.before_commit")',
        ),
        scenario="fenced",
    ),
    _mutant(
        "completed_after_the_output",
        "what a run took is completed in a transaction after the one that publishes",
        In("PartitionInputs.complete").swap("[*super().complete(tx)]", "[]"),
        In("Step.commit").swap(
            'self.catalog.world.mark(f"{self.who}.committed")',
            'self.catalog.world.mark(f"{self.who}.committed")\n'
            "from tidemill.lake.claims import Complete\n"
            "from tidemill.lake.consumer.claims import PARTITIONS\n"
            "self.catalog.apply([Complete(PARTITIONS, self.tx.run_id, self.tx.epoch)])",
        ),
        scenario="fenced",
    ),
    _mutant(
        "completed_at_the_take",
        "what a run takes counts as done from the take on",
        Sql("take.claim").swap(
            "UPDATE consumer_work SET state = 'in_progress', run_id",
            "UPDATE consumer_work SET state = 'completed', run_id",
        ),
        Sql("find_claims").swap(
            "WHERE work.run_id = :run_id AND work.state = 'in_progress' ORDER BY work.consumer_id",
            "WHERE work.run_id = :run_id AND work.error IS NULL ORDER BY work.consumer_id",
        ),
        scenario="workers-small",
    ),
    _mutant(
        "released_as_done",
        "a run that ends without success gives its claims back as completed",
        Sql("claims.return_claims").swap(
            "SET state = 'new', run_id = NULL, epoch = NULL, not_before = CASE WHEN :failed",
            "SET state = 'completed', not_before = CASE WHEN :failed",
        ),
        scenario="limits-small",
    ),
    _mutant(
        "claims_kept_by_an_ended_run",
        "a run that ends without success keeps its claims",
        In("Return.writes").swap("(*counted, back)", "counted if self.phase is Phase.CLAIMS else (*counted, back)"),
        scenario="limits-small",
    ),
    _mutant(
        "claims_not_handed_over",
        "the claims of a lost attempt do not follow the next one",
        In("Restamp.writes").swap("(...,)", "() if self.phase is Phase.CLAIMS else (...,)"),
        scenario="workers-small",
    ),
    _mutant(
        "innocents_discarded",
        "all that a failing run holds is given up, not only what failed alone",
        In("Return.writes").swap("self.alone", "True"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "returned_before_quarantined",
        "what failed alone is returned before its failure is counted, so that nothing is ever given up",
        In("Return.writes").swap("(*counted, back)", "(back, *counted)"),
    ),
    _mutant(
        "never_halved",
        "what has failed before is tried as a whole again, so that the poison one is never alone",
        In("_halve").swap("len(held) < 2 or all(one.failures < HALVE_AFTER for one in held)", "held is not None"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "losses_blame_the_claims",
        "what an attempt held that died counts as failed",
        In("_effects_of_end").swap(
            "ending.failures > run.failures and end.cause is not Cause.REFUSED", "end.cause is Cause.LOST"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "chosen_input_not_pinned",
        "the files of what a run is given are not kept",
        In("keep_input").drop("pin"),
        scenario="given",
    ),
    _mutant(
        "chosen_input_unpinned_between_attempts",
        "a run with chosen input gives up its pins with its first attempt",
        In("fail_claims").swap("[] if is_chosen else [Unpin(run_id)]", "[Unpin(run_id)]"),
        scenario="given",
    ),
    _mutant(
        "chosen_run_takes_of_the_consumer",
        "a run with chosen input takes what waits for its program",
        In("find_inputs").swap("record is not None and record.is_chosen", "False"),
        scenario="given",
    ),
    _mutant(
        "backlog_not_announced",
        "the end of a run does not say that work is left",
        In("Announce._changes").swap("(...,)", "(...,) if self.backlog.phase is Phase.FILES else ()"),
        scenario="retry",
    ),
    _mutant(
        "unread_not_announced",
        "a run that ends before it took anything does not say that there is something",
        In("InputKind.leave").drop("*unseen"),
        scenario="others",
    ),
    _mutant(
        "rest_of_the_rejected_sticks",
        "a run that could not be started does not have its work announced later",
        In("InputKind.leave").swap("self.postpone(self.ids, leaving.wait)", "()"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rest_of_the_rejected_spins",
        "a run that could not be started has its work announced at once, which starts the next such run",
        In("InputKind.leave").swap("self.postpone(self.ids, leaving.wait)", "self.publish(self.ids)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "due_work_not_announced",
        "nobody says that work may be tried again",
        In("publish_due").drop("catalog.apply([_PublishDue(backlog, due)])"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "own_output_delivered",
        "a program that said deliver_own=False gets what it has written itself",
        In("PartitionInputs.complete").swap("not self.program.deliver_own", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "own_output_never_delivered",
        "what a run added to the file set that it consumes is not delivered by the next take",
        Sql("fill").swap(
            "WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND write_pointer < :bound",
            "WHERE dataset_id = :dataset_id AND write_pointer > :start_version AND write_pointer < :bound",
        ),
        scenario="own",
    ),
    _mutant(
        "superseded_delivered",
        "what was overwritten before anybody took it is delivered beside what replaced it",
        In("_find_claimable").swap("not superseded", "True"),
        In("_find_claimable").swap("if superseded: ...", "if False: ..."),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "repeated_across_a_drop",
        "a partition that is created again after a drop counts as delivered before",
        Sql("find_repeated").swap("AND (earlier.op = 'drop'", "AND (1 = 0"),
        scenario="dropped",
    ),
    _mutant(
        "dropped_not_counted",
        "a partition that was dropped before it was processed is counted nowhere",
        In("_claim_round").swap("if drops: ...", "if False: ..."),
        scenario="dropped",
    ),
    _mutant(
        "input_not_recorded",
        "the record of a run does not say what it took",
        In("claims.PARTITIONS").drop("SQL.record_input"),
        first=Killer.SIMULATION,
    ),
    # Inboxes
    _mutant(
        "files_recorded_then_announced",
        "discovery records what is new in one commit, and says so in the next",
        In("discover").swap(
            "catalog.apply([_RecordFound(inbox, tuple(found), listing.superseded)])",
            "import types\n"
            "said, *recorded = _RecordFound(inbox, tuple(found), listing.superseded).writes()\n"
            "count = sum(one.status is FileState.NEW for one in found)\n"
            "phase = _RecordFound.phase\n"
            "catalog.apply([types.SimpleNamespace(phase=phase, guards=lambda: (), writes=lambda: recorded)])\n"
            "if count:\n"
            "    from tidemill.catalog.messages import Publish, Topic\n"
            "    key = file_event(inbox.dataset.namespace, inbox.dataset.name)\n"
            '    catalog.apply([Publish(Topic.DATA, "files", key, {"count": count, "bytes": count})])',
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "discovered_twice",
        "who discovers a file that another has recorded meanwhile makes it new again",
        Sql("insert_found").swap("WHERE inbox_file.status = 'SKIPPED'", "WHERE true"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "fenced_attempt_claims_files",
        "a fenced attempt may still claim files, for a run that has ended",
        In("claim_files").swap("owner is None", "False"),
        scenario="inbox-killed",
    ),
    _mutant(
        "file_claims_not_handed_over",
        "the files of a lost attempt do not follow the next one",
        In("Restamp.writes").swap("(...,)", "() if self.phase is Phase.FILES else (...,)"),
        scenario="inbox-small",
    ),
    _mutant(
        "files_kept_by_an_ended_run",
        "a run that ends without success keeps its files",
        In("Return.writes").swap("(*counted, back)", "counted if self.phase is Phase.FILES else (*counted, back)"),
        scenario="inbox-killed",
    ),
    _mutant(
        "files_released_as_done",
        "a run that was killed gives its files back as processed",
        Sql("file_endings.return_files").swap(
            "WHEN :failed = 0 THEN 'NEW' ELSE 'ERROR' END,", "WHEN :failed = 0 THEN 'SUCCESS' ELSE 'ERROR' END,"
        ),
        scenario="inbox-killed",
    ),
    _mutant(
        "rewritten_file_recorded",
        "nobody looks whether a file that was read is still the one that was claimed",
        In("verify_claims").swap("status.etag != file.etag", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "files_backlog_not_announced",
        "the end of a run does not say that files are left",
        In("Announce._changes").swap("(...,)", "() if self.backlog.phase is Phase.FILES else (...,)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "files_closed_by_half",
        "a commit closes the files that went wrong, not those that were processed",
        In("TakenFiles.close").drop("*map(succeeded, self.files)"),
        In("CloseFiles.guards").swap("(...,)", "(...,) if self.some else ()"),
        first=Killer.SIMULATION,
    ),
    # Consumers in people's hands, and workers
    _mutant(
        "reset_beside_claims",
        "a consumer is reset while a run holds what it took",
        In("_Reset.guards").drop("SQL.refuse_if_claimed"),
        scenario="reset",
    ),
    _mutant(
        "requeued_from_under_a_run",
        "what was put aside when somebody looked is requeued, whoever has it now",
        Sql("requeue").swap("AS listed) AND state = 'discarded'", "AS listed)"),
        scenario="requeue",
    ),
    _mutant(
        "worker_forgets_what_it_held",
        "the next attempt of a worker waits for news, and not for what the one before had taken",
        In("Steps.__init__").swap("catalog.read(lambda db: holds_any(db, record.run_id))", "False"),
        scenario="loop",
    ),
    _mutant(
        "worker_commits_without_its_claims",
        "a worker publishes, and what it took is completed with its next commit",
        In("Steps.commit").swap("step.prepare()", '[e for e in step.prepare() if type(e).__name__ != "Complete"]'),
        scenario="loop",
    ),
    _mutant(
        "lookback_forgotten",
        "listings begin behind the marker, and pass over what comes late",
        In("Marker.start").swap("lookback == timedelta(0)", "True"),
        scenario="inbox-late",
    ),
    _mutant(
        "ended_claim_closes_files",
        "a claim by an engine outside closes files after it was fenced",
        In("CloseFiles.guards").swap("(...,)", "() if self.some else (...,)"),
        In("_FinishClaim.guards").drop("ATTEMPTS.refuse_unless_running"),
        scenario="inbox-engines",
    ),
    _mutant(
        "renewed_after_the_fence",
        "a claim that has been fenced is renewed, so that its holder goes on",
        Sql("renew_leases").swap(
            "h.epoch) AND state || '' IN ('STARTING', 'RUNNING', 'STOPPING') RETURNING run_id",
            "h.epoch) RETURNING run_id",
        ),
        scenario="inbox-renewed",
    ),
    _mutant(
        "released_whatever_it_is",
        "a file that a person gives another chance is new again, though a run has it, or has processed it",
        Sql("deliver_alone").swap("coalesce(status = :status, FALSE)", ":status <> ''"),
        scenario="inbox-released",
    ),
    _mutant(
        "taken_away_by_name",
        "what is taken away is the file that was processed only by its name, not by its content",
        In("_look_and_take").swap("if not _is_processed(files, file, status): ...", "if False: ..."),
        In("_look_and_take").swap("files.delete(file.name, etag=file.etag)", "files.delete(file.name)"),
        scenario="inbox-leaving",
    ),
    _mutant(
        "taken_away_after_a_look",
        "the content is looked at, and then whatever has the name is deleted",
        In("_look_and_take").swap("files.delete(file.name, etag=file.etag)", "files.delete(file.name)"),
        scenario="inbox-leaving",
    ),
    _mutant(
        "bad_name_hides_the_rest",
        "what a folder holds behind a name that can never be processed is not listed",
        In("LocalFiles._scan").swap("unusable.append(Unusable(shown_name(name), why))", "return"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "away_taken_for_empty",
        "a file that is missing counts as deleted, though its whole location is away",
        In("find_file").swap("files.check_location()\nstatus = files.stat(name)", "pass"),
        In("find_files").swap("files.check_location()", "pass"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "mount_point_taken_for_emptied",
        "an empty folder counts as emptied, though it is another folder than the one that had the files",
        In("LocalFiles.check_location").swap(
            "is_empty and self._root is not None and root != self._root",
            "False and self._root is not None and root != self._root",
        ),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "forgotten_at_the_first_look",
        "a file that one listing does not show is forgotten, and is new when it comes back",
        In("_Absent._note").swap("if not forget_after:\n    due += missed", "due += missed"),
        Sql("forget_absent").swap(
            "AND absent_since <= tidemill_now() - :forget_after", "AND absent_since <= tidemill_now() + :forget_after"
        ),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "copy_taken_for_new",
        "a content that the catalog knows is another one when it lies in another file of the disk",
        In("_Copies._decide").swap("same is None", "True"),
        first=Killer.FAIL_POINTS,
    ),
    _mutant(
        "hidden_by_the_dead",
        "what a janitor has taken from its name, and died with, is noted as gone without a look for it",
        In("_look_and_take").swap(
            "status = files.settle(file.name)\n"
            "if status is None:\n    _check_folder(files, file)\n    status = files.settle(file.name)",
            "status = files.stat(file.name)\n"
            "if status is None:\n    _check_folder(files, file)\n    status = files.stat(file.name)",
        ),
        first=Killer.FAIL_POINTS,
    ),
)
