"""Mutants of the way from a message, or a due time, to a run with its slot."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import In, Sql
from tests.mutants.mutant import Killer, Room, mutants_of

_mutant = mutants_of(Room.SCHEDULER)

MUTANTS: Final = (
    # Arrival expectations → messages
    _mutant(
        "break_announced_at_each_check",
        "a break of an arrival expectation is announced once, and not at each check until something arrives",
        In("expectations._check").swap("is_broken and deadline.broken_at != row.broken_since", "is_broken"),
        first=Killer.FAIL_POINTS,
    ),
    # Messages → jobs
    _mutant(
        "position_before_jobs",
        "the subscriber moves its position in one transaction and feeds the jobs in the next",
        In("subscribe").swap("flaws.update(_feed(db, world, messages, gaps))", "held.extend(messages)"),
        In("subscribe").swap("gaps: list[str] = []", ("gaps: list[str] = []\nheld: list[Message] = []")),
        In("subscribe").swap(
            "handled = catalog.write(block)",
            "handled = catalog.write(block)\nif held:\n    catalog.write(lambda db: _feed(db, world, held, gaps))",
        ),
        scenario="message",
    ),
    _mutant(
        "position_after_jobs",
        "the subscriber feeds the jobs in one transaction and moves its position in the next",
        In("subscribe").swap("_pass(db, topic, new[-1].position)", "held[topic] = new[-1].position"),
        In("subscribe").swap("gaps: list[str] = []", ("gaps: list[str] = []\nheld: dict[str, Position] = {}")),
        In("subscribe").swap(
            "handled = catalog.write(block)",
            "handled = catalog.write(block)\n"
            "if held:\n"
            "    catalog.write(lambda db: [_pass(db, topic, at) for topic, at in held.items()])",
        ),
        scenario="message",
    ),
    _mutant(
        "messages_of_a_new_job_lost",
        "the message that makes a job is not written down as the job's",
        In("feed_jobs").swap("isinstance(fact, Message)", "isinstance(fact, Message) and schedule_id in open_jobs"),
        scenario="message",
    ),
    _mutant(
        "older_messages_heard",
        "a schedule hears messages from before it was made, changed or resumed",
        In("subscriber._feed").swap("schedule is None or message.seq < schedule.since_seq", "schedule is None"),
        scenario="updated",
    ),
    _mutant(
        "resume_announces_nothing",
        "what came while a schedule was suspended is not announced when it is resumed",
        In("announce_work").swap("if begins: ...", "if not begins: ..."),
        scenario="suspended",
    ),
    _mutant(
        "own_announcement_not_heard",
        "a schedule does not hear what the commit announces that resumed it",
        In("subscriber._feed").swap("message.seq < schedule.since_seq", "message.seq <= schedule.since_seq"),
        scenario="suspended",
    ),
    _mutant(
        "suspended_listens",
        "a suspended schedule is fed",
        Sql("share_listening").drop("AND (status = 'SCHEDULED' OR suspended_mode <> 'drop')"),
        scenario="suspended",
    ),
    _mutant(
        "suspended_keeps_its_jobs",
        "a suspended schedule still launches what it had pending",
        In("change_schedules").drop("dropping[schedule_id] = Outcome.SUSPENDED"),
        scenario="suspended",
    ),
    _mutant(
        "passed_not_recorded",
        "a message that a suspended schedule is not fed is in no record",
        In("subscriber._feed").drop("_count_passed(db, messages, listeners, schedules)"),
        scenario="suspended",
    ),
    _mutant(
        "passed_by_the_resumed_not_recorded",
        "a message of before a resumption, which a scheduler sees after that, is in no record",
        In("_count_passed").swap("schedule is None or message.seq < schedule.since_seq", "schedule is None"),
        scenario="suspended",
    ),
    _mutant(
        "held_loses_its_jobs",
        "a suspension that holds the jobs of a schedule drops the jobs",
        In("change_schedules").swap(
            "mode is not SuspendMode.HOLD and new[schedule_id] != old[schedule_id]",
            "new[schedule_id] != old[schedule_id]",
        ),
        scenario="suspended-hold",
    ),
    _mutant(
        "held_never_released",
        "a resumption leaves the jobs that were held",
        In("change_schedules").swap("_is_resumed(old[i], s)", "False"),
        scenario="suspended-hold",
    ),
    _mutant(
        "backlog_announces_nothing",
        "a resumption does not announce what waits, where the jobs of before were dropped for a backlog",
        In("changes._heeded").swap(
            "schedule.suspended_mode is not SuspendMode.HOLD", "schedule.suspended_mode is SuspendMode.DROP"
        ),
        scenario="suspended-backlog",
    ),
    _mutant(
        "changed_keeps_its_jobs",
        "a changed schedule launches what was pending for the old one",
        In("change_schedules").drop("dropping[schedule_id] = Outcome.CHANGED"),
        scenario="updated",
    ),
    _mutant(
        "rest_of_a_commit_skipped",
        "of several messages of one commit those behind a batch's end are skipped",
        Sql("read_after").swap(
            "WHERE topic = :topic AND seq = :seq AND n > :n", "WHERE topic = :topic AND seq = :seq AND n > :n AND 1 = 0"
        ),
        scenario="batches",
    ),
    _mutant(
        "overwritten_not_counted",
        "an overwritten partition, which the program is given, feeds no trigger",
        In("AddPartitions._messages").swap(
            "len(batch)", 'sum(one["kind"] is not ChangeKind.OVERWRITTEN for one in batch)'
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "counts_messages",
        "a trigger counts messages, not the partitions or files that they tell of",
        In("DataTrigger.feed").swap('read_number(self, message.payload, "count")', "1"),
        scenario="counted",
    ),
    _mutant(
        "last_message_counts",
        "a second message replaces in the job what the first had fed",
        In("jobs._feed").swap("after.get(trigger_no, Fed())", "Fed()"),
        scenario="counted-2",
    ),
    _mutant(
        "fed_job_not_due",
        "a job that is fed again is not looked at again",
        Sql("update_fed").swap(
            "UPDATE job SET progress = r.progress, next_check_at = tidemill_now(), revision",
            "UPDATE job SET progress = r.progress, revision",
        ),
        scenario="counted-2",
    ),
    _mutant(
        "backlog_not_enough",
        "a message that work is left does not satisfy a trigger that wants several",
        In("DataTrigger.feed").swap("replace(fed, backlog=True)", "fed"),
        scenario="counted-left",
    ),
    _mutant(
        "backlog_of_others",
        "work that is left for one consumer starts the programs of the others",
        In("_reads").swap('message.payload.get("consumer", program.qualified_name) == program.qualified_name', "True"),
        scenario="others",
    ),
    # Due times → jobs
    _mutant(
        "fires_again",
        "a timer fires again at a logical time at which it has fired",
        In("_fire_due").drop("SQL.move_timers"),
        In("_fire_due").swap(
            "fired = {fire for fire in db.records(SQL.find_fired, _Fire, fires=given) "
            "if _Timer(*fire[:2]) not in again}",
            "fired = set()",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "fire_recorded_before_its_job",
        "a fire is recorded and its timer moved in one transaction, and the job fed in the next",
        In("fire_due").swap(
            "return catalog.write(lambda db: _fire_due(db, world, limit, most_launches))",
            "later: list[object] = []\n"
            "looked = catalog.write(lambda db: _fire_due(db, world, limit, most_launches, later))\n"
            "if later:\n"
            "    catalog.write(lambda db: feed_jobs(db, world, *later[-1]))\n"
            "return looked",
        ),
        In("_fire_due").parameter("later: list[object]"),
        In("_fire_due").swap(
            "jobs, launches = _feed(db, world, facts, schedules, open_jobs, now, most_launches)",
            "later.append((facts, schedules))\njobs, launches = dict.fromkeys(facts, None), []",
        ),
        scenario="timer",
    ),
    _mutant(
        "at_once_past_its_constraints",
        "a job that a due time has fed starts at once, whatever its constraints say",
        In("launch_at_once").swap("starting, _ = _decide(facts, ready, now)", "starting = ready"),
        scenario="timer-limited",
    ),
    _mutant(
        "timer_not_moved_by_an_early_run",
        "Every counts from the schedule's resumption, whatever it has launched since",
        In("_counted_from").swap(
            "max(schedule.since_at, launches.get(schedule.schedule_id, schedule.since_at))", "schedule.since_at"
        ),
        scenario="timer",
    ),
    _mutant(
        "time_does_not_wait",
        "under misfire=all a time waits for the end of the run of the time before",
        In("_find_missed").swap("Due((first,), second, behind=True)", "Due((first,), second)"),
        scenario="cron-all",
    ),
    _mutant(
        "behind_for_ever",
        "a timer that waits for a job is not looked at when that is gone",
        Sql("lock_freed").swap(
            "run.job_id = timer.behind AND run.ended_at IS NULL) ORDER BY behind",
            "run.job_id = timer.behind AND run.ended_at IS NULL) AND 1 = 0 ORDER BY behind",
        ),
        scenario="cron-all",
    ),
    _mutant(
        "only_the_last_missed_time",
        "under misfire=once the run is told of the latest time alone",
        In("_find_missed").swap("tuple(missed)", "tuple(missed[-1:])"),
        scenario="cron",
    ),
    # Jobs → runs
    _mutant(
        "job_ended_before_its_run",
        "the job goes to the history in one transaction, and its run is made in the next",
        In("_check_once").swap(
            "checked, overdue = catalog.write(lambda db: _check(db, world, limit, probes, most_launches))",
            "later: list[object] = []\n"
            "checked, overdue = catalog.write(lambda db: _check(db, world, limit, probes, most_launches, later))\n"
            "if later and later[-1]:\n"
            "    catalog.write(lambda db: create_pending(db, later[-1]))",
        ),
        In("checker._check").parameter("later: list[object]"),
        In("checker._check").swap("_launch(db, world, starting, now)", "_launch(db, world, starting, now, later)"),
        In("_launch").parameter("later: list[object]"),
        In("_launch").swap("create_pending(db, runs)", "later.append(runs)"),
        scenario="message",
    ),
    _mutant(
        "job_ended_after_its_run",
        "the run is made in one transaction, and the job goes to the history in the next",
        In("_check_once").swap(
            "checked, overdue = catalog.write(lambda db: _check(db, world, limit, probes, most_launches))",
            "later: list[object] = []\n"
            "checked, overdue = catalog.write(lambda db: _check(db, world, limit, probes, most_launches, later))\n"
            "if later and later[-1]:\n"
            "    catalog.write(lambda db: end_jobs(db, later[-1]))",
        ),
        In("checker._check").parameter("later: list[object]"),
        In("checker._check").swap("_launch(db, world, starting, now)", "_launch(db, world, starting, now, later)"),
        In("_launch").parameter("later: list[object]"),
        In("_launch").swap("end_jobs(db, ...)", "later.append(...)"),
        scenario="message",
    ),
    _mutant(
        "run_without_a_slot",
        "a run takes no slot",
        In("insertions").drop("SQL.insert_slots"),
        scenario="message",
    ),
    _mutant(
        "group_without_slots",
        "a run takes a slot of its program only, and none of its groups",
        In("checker._launch").swap("one.schedule.spec.slots(one.schedule.program_id)", "()"),
        scenario="grouped",
    ),
    _mutant(
        "slots_not_counted",
        "a checker does not count the slots that are held",
        In("read_facts").drop("SQL.count_slots"),
        scenario="messages",
    ),
    _mutant(
        "slots_of_one_batch_not_counted",
        "a checker does not count the slots that it has just given away itself",
        In("checker._decide").drop("facts.launch(one.schedule)"),
        scenario="limit",
    ),
    _mutant(
        "slot_freed_between_attempts",
        "a run that waits for its next attempt does not count against its limit",
        In("_EndAttempt.writes").swap("return (...,)", "return (*_free(self.run.run_id), ...)"),
        scenario="fenced",
    ),
    _mutant(
        "slot_never_freed",
        "the slot of a run that has committed stays taken",
        In("FinishRun.writes").drop("*free_slots(self.run_id)"),
        scenario="message",
    ),
    _mutant(
        "slot_of_a_failed_run_never_freed",
        "the slot of a run that failed or was killed stays taken",
        In("_EndAttempt.writes").swap("free_slots(self.run.run_id)", "free_slots(self.run.run_id)[:1]"),
        scenario="retry",
    ),
    _mutant(
        "who_waits_for_a_slot_not_woken",
        "a slot that becomes free wakes nobody",
        In("free_slots").drop("SQL.wake_waiting_jobs"),
        scenario="limit",
    ),
    _mutant(
        "queue_jumped",
        "a job takes a free slot before another one that waits with the better turn",
        In("_check_slots").swap("held + ahead >= n", "False"),
        scenario="queue",
    ),
    _mutant(
        "beside_not_woken",
        "a job that leaves the queue without a run does not wake those that had to let it go first",
        In("end_jobs").drop("SQL.wake_beside"),
        scenario="queue",
    ),
    _mutant(
        "next_not_woken",
        "the end of a run does not wake the job that can start by it",
        Sql("wake_waiting_jobs").swap("w.others + w.ahead < w.most", "w.others + w.ahead + 1 < w.most"),
        scenario="limit",
    ),
    _mutant(
        "held_keeps_its_turn",
        "a job that is held goes on to be ahead of the jobs of its check",
        In("checker._check").swap("{job.job_id for job in jobs} - left", "{one.job.job_id for one in ready}"),
        scenario="queue-hold",
    ),
    _mutant(
        "timed_out_and_forgotten",
        "the work of a job that timed out is not announced again",
        In("_cancel").swap("decided[job_id].outcome is Outcome.TIMED_OUT", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "dropped_messages_not_recorded",
        "the history of a job that was dropped does not name its messages",
        In("record_ends").swap("messages.get(ending.job.job_id, [])", "[]"),
        scenario="updated",
    ),
    _mutant(
        "launched_messages_not_recorded",
        "the record of a run does not name the messages that caused it",
        In("_describe_feeds").swap("m.trigger_no == trigger_no", "m.trigger_no > trigger_no"),
        scenario="message",
    ),
    _mutant(
        "boundaries_waiting_passed_over",
        "hours that a watermark passes later join those that wait",
        Sql("queue").swap(
            "SET next_at = CASE WHEN boundary.next_at > boundary.last_at THEN", "SET next_at = CASE WHEN true THEN"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "boundary_does_not_wait",
        "an hour that a watermark has passed waits for the end of the run of the hour before",
        Sql("find_free").swap("run.job_id = boundary.behind AND run.ended_at", "run.job_id = '' AND run.ended_at"),
        Sql("jobs.find_unfinished").swap(
            "SELECT job_id FROM run WHERE job_id IN ({texts:job_ids}) AND ended_at IS NULL",
            "SELECT job_id FROM run WHERE job_id IN ({texts:job_ids}) AND 1 = 0",
        ),
        scenario="each-small",
    ),
    _mutant(
        "empty_queue_forgotten",
        "an hour that is passed when no other waits any more waits for the end of the run of the hour before",
        In("boundaries._feed").swap(
            "after[queue] = periods.after(one.next_at)",
            "after[queue] = periods.after(one.next_at)\nempty += [queue] if one.next_at == one.last_at else []",
        ),
        scenario="each-small",
    ),
    # Constraints, caps and chains of programs
    _mutant(
        "rate_without_a_window",
        "a rate lets each launch pass",
        In("Rate.check").swap("len(starts) < self.n", "True"),
        scenario="rated",
    ),
    _mutant(
        "launches_of_one_check_not_rated",
        "a checker does not count, for a rate, the launches that it has just made itself",
        In("FactSheet.launch").swap(
            "self.starts.setdefault(schedule.program_id, []).insert(0, self.now)",
            "self.starts.setdefault(schedule.program_id, [])",
        ),
        scenario="rated-at-once",
    ),
    _mutant(
        "no_delay",
        "a delayed job starts at once",
        In("Delay.check").swap("begins + self.duration <= now", "True"),
        scenario="delayed",
    ),
    _mutant(
        "cap_not_stored",
        "the launches of a check are forgotten, so that the next check begins another second",
        In("FactSheet.store").swap("if self.windows: ...", "if False: ..."),
        scenario="capped",
    ),
    _mutant(
        "cap_does_not_count",
        "a launch takes no place in the second of its namespace",
        In("LaunchWindow._free_at").swap("len(times) >= self.most", "False"),
        scenario="capped",
    ),
    _mutant(
        "topic_forgotten",
        "the position in the topic of programs is forgotten, though schedules listen to it",
        In("_pass").swap(
            "topic == Topic.DATA or db.all(SQL.find_listener, event_key=topic_event(topic))", "topic == Topic.DATA"
        ),
        scenario="chain",
    ),
    _mutant(
        "ends_not_counted",
        "the end of a run is in a job of the program that follows, and counts nothing",
        In("RunEnded.feed").swap("fed.count + 1", "fed.count"),
        scenario="chain",
    ),
    # Backfills → runs
    _mutant(
        "backfill_past_its_limit",
        "a backfill makes as many runs as may be under way, whatever is under way",
        In("backfills._start_items").swap("found.concurrency - found.running", "found.concurrency"),
        scenario="backfill-paused",
    ),
    _mutant(
        "paused_backfill_goes_on",
        "a backfill that is paused or cancelled makes the next run when one ends",
        In("backfills._advance").swap(
            "advanced.state is BackfillState.RUNNING and advanced.waiting", "advanced.waiting", times=1
        ),
        scenario="backfill-paused",
    ),
    _mutant(
        "failed_items_not_counted",
        "an item that has failed is not counted as failed",
        In("backfills._move_counts").swap("found.failed + more[ItemState.FAILED]", "found.failed"),
        scenario="backfill-failed",
    ),
    _mutant(
        "failed_runs_are_done",
        "an item is done when its run has ended, however it has ended",
        In("backfills._settle_items").swap("one.state is RunState.COMPLETED and one.exit_reason != NO_INPUT", "True"),
        scenario="backfill-failed",
    ),
    _mutant(
        "dropped_items_wait",
        "the items of a cancelled backfill still wait",
        In("cancel_backfill").drop("move_items(db, backfill_id, ItemState.WAITING, ItemState.DROPPED)"),
        scenario="backfill-cancelled",
    ),
    _mutant(
        "backfill_takes_slots",
        "a run of a backfill has a slot of its program",
        In("insertions").swap("run.backfill_id is None", "True"),
        scenario="backfill-paused",
    ),
    _mutant(
        "backfill_unseen",
        "no scheduler hears that a run of a backfill has ended",
        In("loop._look").swap("backfill is not None", "False"),
        scenario="backfill-paused",
    ),
    _mutant(
        "quiet_backfill_heard",
        "programs downstream get what the runs of a quiet backfill publish",
        In("backfills._make_run").swap("found.quiet", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "backfill_takes_what_waits",
        "a run of a backfill takes what waits for its program, not its item",
        In("backfills._make_run").swap(
            'choose_partitions(db, pointer, found.dataset_id or DatasetId(""), [item])', "None"
        ),
        first=Killer.SIMULATION,
    ),
)
