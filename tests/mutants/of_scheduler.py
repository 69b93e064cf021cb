"""Mutants of the way from a message, or a due time, to a run with its slot."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Killer, Room, mutants_of

_SUBSCRIBER: Final = "schedule/subscriber.py"
_CHECKER: Final = "schedule/checker.py"
_TIMEKEEPER: Final = "schedule/timekeeper.py"
_TIMEKEEPER_SQL: Final = "schedule/timekeeper.sql"
_MISFIRES: Final = "schedule/misfires.py"
_JOBS: Final = "schedule/jobs.py"
_JOBS_SQL: Final = "schedule/jobs.sql"
_CHANGES: Final = "schedule/changes.py"
_SCHEDULES_SQL: Final = "schedule/schedules.sql"
_DATA_TRIGGERS: Final = "schedule/data_triggers.py"
_CONSTRAINTS: Final = "schedule/constraints.py"
_ATTEMPTS: Final = "run/attempts.py"
_RUNS: Final = "run/runs.py"
_MESSAGES_SQL: Final = "catalog/messages.sql"
_BOUNDARIES: Final = "schedule/boundaries.py"
_BOUNDARIES_SQL: Final = "schedule/boundaries.sql"

_mutant = mutants_of(Room.SCHEDULER)

MUTANTS: Final = (
    # Messages → jobs
    _mutant(
        "position_before_jobs",
        "the subscriber moves its position in one transaction and feeds the jobs in the next",
        Edit(
            _SUBSCRIBER, "        flaws.update(_feed(db, world, messages, gaps))\n", "        read.extend(messages)\n"
        ),
        Edit(
            _SUBSCRIBER,
            "    def block(db: Db) -> int:\n",
            "    read: list[Message] = []\n\n    def block(db: Db) -> int:\n",
        ),
        Edit(
            _SUBSCRIBER,
            "    handled = catalog.write(block)\n",
            "    handled = catalog.write(block)\n"
            "    if read:\n"
            "        catalog.write(lambda db: _feed(db, world, read))\n",
        ),
        scenario="message",
    ),
    _mutant(
        "position_after_jobs",
        "the subscriber feeds the jobs in one transaction and moves its position in the next",
        Edit(
            _SUBSCRIBER,
            "        move_position(db, Topic.DATA, NAME, messages[-1].position)\n",
            "        read.extend(messages)\n",
        ),
        Edit(
            _SUBSCRIBER,
            "    def block(db: Db) -> int:\n",
            "    read: list[Message] = []\n\n    def block(db: Db) -> int:\n",
        ),
        Edit(
            _SUBSCRIBER,
            "    handled = catalog.write(block)\n",
            "    handled = catalog.write(block)\n"
            "    if read:\n"
            "        catalog.write(lambda db: move_position(db, Topic.DATA, NAME, read[-1].position))\n",
        ),
        scenario="message",
    ),
    _mutant(
        "messages_of_a_new_job_lost",
        "the message that makes a job is not written down as the job's",
        Edit(
            _JOBS,
            "        if isinstance(fact, Message)\n    ]\n",
            "        if isinstance(fact, Message) and schedule_id in open_jobs\n    ]\n",
        ),
        scenario="message",
    ),
    _mutant(
        "older_messages_heard",
        "a schedule hears messages from before it was made, changed or resumed",
        Edit(
            _SUBSCRIBER,
            "            if schedule is None or message.seq < schedule.since_seq:\n",
            "            if schedule is None:\n",
        ),
        scenario="updated",
    ),
    _mutant(
        "resume_announces_nothing",
        "what came while a schedule was suspended is not announced when it is resumed",
        Edit(_CHANGES, "    if begins:\n        announce_waiting(", "    if not begins:\n        announce_waiting("),
        scenario="suspended",
    ),
    _mutant(
        "own_announcement_not_heard",
        "a schedule does not hear what the commit announces that resumed it",
        Edit(_SUBSCRIBER, "message.seq < schedule.since_seq", "message.seq <= schedule.since_seq"),
        scenario="suspended",
    ),
    _mutant(
        "suspended_listens",
        "a suspended schedule is fed",
        Edit(
            _SCHEDULES_SQL,
            "IN ({texts:schedule_ids}) AND status = 'SCHEDULED' ORDER BY",
            "IN ({texts:schedule_ids}) ORDER BY",
        ),
        scenario="suspended",
    ),
    _mutant(
        "suspended_keeps_its_jobs",
        "a suspended schedule still launches what it had pending",
        Edit(_CHANGES, "                dropping[schedule_id] = Outcome.SUSPENDED\n", ""),
        scenario="suspended",
    ),
    _mutant(
        "changed_keeps_its_jobs",
        "a changed schedule launches what was pending for the old one",
        Edit(_CHANGES, "                dropping[schedule_id] = Outcome.CHANGED\n", ""),
        scenario="updated",
    ),
    _mutant(
        "rest_of_a_commit_skipped",
        "of several messages of one commit those behind a batch's end are skipped",
        Edit(
            _MESSAGES_SQL,
            "WHERE topic = :topic AND seq = :seq AND n > :n\n",
            "WHERE topic = :topic AND seq = :seq AND n > :n AND 1 = 0\n",
        ),
        scenario="batches",
    ),
    _mutant(
        "overwritten_not_counted",
        "an overwritten partition, which the program is given, feeds no trigger",
        Edit(
            "lake/fileset/publish.py",
            '                "count": len(batch),\n',
            '                "count": sum(one["kind"] is not ChangeKind.OVERWRITTEN for one in batch),\n',
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "counts_messages",
        "a trigger counts messages, not the partitions or files that they tell of",
        Edit(_DATA_TRIGGERS, 'count=fed.count + self._number(message.payload, "count"))', "count=fed.count + 1)"),
        scenario="counted",
    ),
    _mutant(
        "last_message_counts",
        "a second message replaces in the job what the first had fed",
        Edit(_JOBS, "        before = after.get(trigger_no, Fed())\n", "        before = Fed()\n"),
        scenario="counted-2",
    ),
    _mutant(
        "fed_job_not_due",
        "a job that is fed again is not looked at again",
        Edit(
            _JOBS_SQL,
            "UPDATE job SET progress = r.progress, next_check_at = tidemill_now(), revision",
            "UPDATE job SET progress = r.progress, revision",
        ),
        scenario="counted-2",
    ),
    _mutant(
        "backlog_not_enough",
        "a message that work is left does not satisfy a trigger that wants several",
        Edit(_DATA_TRIGGERS, "            return replace(fed, backlog=True)\n", "            return fed\n"),
        scenario="counted-left",
    ),
    _mutant(
        "backlog_of_others",
        "work that is left for one consumer starts the programs of the others",
        Edit(
            _SUBSCRIBER,
            '    return message.payload.get("consumer", program.qualified_name) == program.qualified_name\n',
            "    return True\n",
        ),
        scenario="others",
    ),
    # Due times → jobs
    _mutant(
        "fires_again",
        "a timer fires again at a logical time at which it has fired",
        Edit(_TIMEKEEPER, "    db.run(SQL.move_timers, timers=json.dumps(rows))\n", ""),
        Edit(
            _TIMEKEEPER,
            "    fired = set(db.all(SQL.insert_fires, fires=json.dumps(fires)))\n",
            "    db.run(SQL.insert_fires, fires=json.dumps(fires))\n"
            "    fired = {(fire['schedule_id'], fire['trigger_no'], fire['fire_time']) for fire in fires}\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "fire_recorded_before_its_job",
        "a fire is recorded and its timer moved in one transaction, and the job fed in the next",
        Edit(
            _TIMEKEEPER,
            "    return catalog.write(lambda db: _fire_due(db, world, limit))\n",
            "    later: list[object] = []\n"
            "    looked = catalog.write(lambda db: _fire_due(db, world, limit, later))\n"
            "    if later:\n"
            "        catalog.write(lambda db: feed_jobs(db, world, *later[-1]))\n"
            "    return looked\n",
        ),
        Edit(
            _TIMEKEEPER,
            "def _fire_due(db: Db, world: World, limit: int) -> int:\n",
            "def _fire_due(db: Db, world: World, limit: int, later: list[object]) -> int:\n",
        ),
        Edit(
            _TIMEKEEPER,
            "    jobs = feed_jobs(db, world, facts, schedules)\n",
            "    later.append((facts, schedules))\n    jobs = dict.fromkeys(facts, None)\n",
        ),
        scenario="timer",
    ),
    _mutant(
        "timer_not_moved_by_an_early_run",
        "Every counts from the schedule's resumption, whatever it has launched since",
        Edit(
            _TIMEKEEPER,
            "    return max(schedule.since_at, launches.get(schedule.schedule_id, schedule.since_at))\n",
            "    return schedule.since_at\n",
        ),
        scenario="timer",
    ),
    _mutant(
        "time_does_not_wait",
        "under misfire=all a time waits for the end of the run of the time before",
        Edit(_MISFIRES, "Due((first,), second, behind=True)", "Due((first,), second)"),
        scenario="cron-all",
    ),
    _mutant(
        "behind_for_ever",
        "a timer that waits for a job is not looked at when that is gone",
        Edit(
            _TIMEKEEPER_SQL,
            "run.job_id = timer.behind AND run.ended_at IS NULL)\n ORDER BY behind",
            "run.job_id = timer.behind AND run.ended_at IS NULL) AND 1 = 0\n ORDER BY behind",
        ),
        scenario="cron-all",
    ),
    _mutant(
        "only_the_last_missed_time",
        "under misfire=once the run is told of the latest time alone",
        Edit(
            _MISFIRES,
            "            return Due(tuple(missed), fire)\n",
            "            return Due(tuple(missed[-1:]), fire)\n",
        ),
        scenario="cron",
    ),
    # Jobs → runs
    _mutant(
        "job_ended_before_its_run",
        "the job goes to the history in one transaction, and its run is made in the next",
        Edit(
            _CHECKER,
            "    checked, overdue = catalog.write(lambda db: _check(db, world, limit))\n",
            "    later: list[object] = []\n"
            "    checked, overdue = catalog.write(lambda db: _check(db, world, limit, later))\n"
            "    if later and later[-1]:\n"
            "        catalog.write(lambda db: create_pending(db, later[-1]))\n",
        ),
        Edit(
            _CHECKER,
            "def _check(db: Db, world: World, limit: int) -> ",
            "def _check(db: Db, world: World, limit: int, later: list[object]) -> ",
        ),
        Edit(
            _CHECKER,
            "    launches, broken = _launch(db, world, starting)\n",
            "    launches, broken = _launch(db, world, starting, later)\n",
        ),
        Edit(
            _CHECKER,
            "def _launch(db: Db, world: World, starting: Sequence[_Ready]) -> ",
            "def _launch(db: Db, world: World, starting: Sequence[_Ready], later: list[object]) -> ",
        ),
        Edit(
            _CHECKER, "    create_pending(db, runs)\n    return launches", "    later.append(runs)\n    return launches"
        ),
        scenario="message",
    ),
    _mutant(
        "job_ended_after_its_run",
        "the run is made in one transaction, and the job goes to the history in the next",
        Edit(
            _CHECKER,
            "    checked, overdue = catalog.write(lambda db: _check(db, world, limit))\n",
            "    later: list[object] = []\n"
            "    checked, overdue = catalog.write(lambda db: _check(db, world, limit, later))\n"
            "    if later and later[-1]:\n"
            "        catalog.write(lambda db: end_jobs(db, later[-1]))\n",
        ),
        Edit(
            _CHECKER,
            "def _check(db: Db, world: World, limit: int) -> ",
            "def _check(db: Db, world: World, limit: int, later: list[object]) -> ",
        ),
        Edit(
            _CHECKER,
            "    launches, broken = _launch(db, world, starting)\n",
            "    launches, broken = _launch(db, world, starting, later)\n",
        ),
        Edit(
            _CHECKER,
            "def _launch(db: Db, world: World, starting: Sequence[_Ready]) -> ",
            "def _launch(db: Db, world: World, starting: Sequence[_Ready], later: list[object]) -> ",
        ),
        Edit(
            _CHECKER,
            "    end_jobs(\n        db,\n        [\n            Ending(one.job, _outcome(one)",
            "    later.append(\n        [\n            Ending(one.job, _outcome(one)",
        ),
        scenario="message",
    ),
    _mutant(
        "run_without_a_slot",
        "a run takes no slot",
        Edit(_RUNS, "    db.run(SQL.insert_slots, runs=rows)\n", ""),
        scenario="message",
    ),
    _mutant(
        "slots_not_counted",
        "a checker does not count the slots that are held",
        Edit(
            _CHECKER,
            "            held[str(key)] = cast(int, slots)\n",
            "            held[str(key)] = cast(int, slots) * 0\n",
        ),
        scenario="messages",
    ),
    _mutant(
        "slots_of_one_batch_not_counted",
        "a checker does not count the slots that it has just given away itself",
        Edit(_CHECKER, '            held[f"program:{one.schedule.program_id}"] += 1\n', ""),
        scenario="limit",
    ),
    _mutant(
        "slot_freed_between_attempts",
        "a run that waits for its next attempt does not count against its limit",
        Edit(
            _ATTEMPTS,
            "            return (SQL.repeat_run(**params, delay=to_milliseconds(self.ending.delay)),)\n",
            "            repeated = SQL.repeat_run(**params, delay=to_milliseconds(self.ending.delay))\n"
            "            return (*_free(self.run.run_id), repeated)\n",
        ),
        scenario="fenced",
    ),
    _mutant(
        "slot_never_freed",
        "the slot of a run that has committed stays taken",
        Edit(
            _ATTEMPTS,
            "        return (*_free(self.run_id), SQL.complete_run(**params))\n",
            "        return (SQL.complete_run(**params),)\n",
        ),
        scenario="message",
    ),
    _mutant(
        "slot_of_a_failed_run_never_freed",
        "the slot of a run that failed or was killed stays taken",
        Edit(
            _ATTEMPTS,
            "        return (*_free(self.run.run_id), SQL.end_run(",
            "        return (*_free(self.run.run_id)[:1], SQL.end_run(",
        ),
        scenario="retry",
    ),
    _mutant(
        "who_waits_for_a_slot_not_woken",
        "a slot that becomes free wakes nobody",
        Edit(
            _ATTEMPTS, "(SQL.lock_limits, SQL.wake_waiting_jobs, SQL.free_slots)", "(SQL.lock_limits, SQL.free_slots)"
        ),
        scenario="limit",
    ),
    _mutant(
        "queue_jumped",
        "a job takes a free slot before another one that waits with the better turn",
        Edit(_CONSTRAINTS, "        if held + ahead >= self.n:\n", "        if False:\n"),
        scenario="queue",
    ),
    _mutant(
        "beside_not_woken",
        "a job that leaves the queue without a run does not wake those that had to let it go first",
        Edit(_JOBS, "    db.run(SQL.wake_beside, job_ids=dropped)\n", ""),
        scenario="queue",
    ),
    _mutant(
        "timed_out_and_forgotten",
        "the work of a job that timed out is not announced again",
        Edit(_CHECKER, "        if decided[job_id].outcome is Outcome.TIMED_OUT:\n", "        if False:\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "dropped_messages_not_recorded",
        "the history of a job that was dropped does not name its messages",
        Edit(
            _JOBS,
            '{"why": ending.why, "messages": messages.get(ending.job.job_id, [])}',
            '{"why": ending.why, "messages": []}',
        ),
        scenario="updated",
    ),
    _mutant(
        "launched_messages_not_recorded",
        "the record of a run does not name the messages that caused it",
        Edit(
            _CHECKER,
            "for m in messages if m.trigger_no == trigger_no],",
            "for m in messages if m.trigger_no > trigger_no],",
        ),
        scenario="message",
    ),
    _mutant(
        "boundaries_waiting_passed_over",
        "hours that a watermark passes later join those that wait",
        Edit(
            _BOUNDARIES_SQL,
            "   SET next_at = CASE WHEN boundary.next_at > boundary.last_at THEN",
            "   SET next_at = CASE WHEN true THEN",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "boundary_does_not_wait",
        "an hour that a watermark has passed waits for the end of the run of the hour before",
        Edit(_BOUNDARIES_SQL, "run.job_id = boundary.behind AND run.ended_at", "run.job_id = '' AND run.ended_at"),
        Edit(
            _JOBS_SQL,
            "SELECT job_id FROM run WHERE job_id IN ({texts:job_ids}) AND ended_at IS NULL",
            "SELECT job_id FROM run WHERE job_id IN ({texts:job_ids}) AND 1 = 0",
        ),
        scenario="each-small",
    ),
    _mutant(
        "empty_queue_forgotten",
        "an hour that is passed when no other waits any more waits for the end of the run of the hour before",
        Edit(
            _BOUNDARIES,
            "            after[queue] = boundary + leaf.every\n",
            "            after[queue] = boundary + leaf.every\n"
            "            empty += [queue] if boundary == last else []\n",
        ),
        scenario="each-small",
    ),
)
