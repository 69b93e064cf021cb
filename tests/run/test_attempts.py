"""Runs through their attempts, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.due import is_any_due
from tests.run.conftest import LEASE, by_hand
from tests.taking import take_runs
from tidemill.catalog.messages import Position, read_messages
from tidemill.catalog.named import Dialect
from tidemill.catalog.transactions import TransactionEnded, TxState, begin, commit, find_transaction
from tidemill.epoch import EPOCH
from tidemill.errors import Fenced, NotFound
from tidemill.names import RunId
from tidemill.run.records.runs import SQL as RUNS
from tidemill.run.records.runs import RunState, find_run, list_live, list_runs
from tidemill.run.step.attempts import (
    AttachTransaction,
    AttemptEnd,
    Cause,
    FinishRun,
    Registration,
    RunTaken,
    ask_kill,
    backoff_after,
    end_attempt,
    next_due,
    note_stages,
    register,
    renew,
)


def begin_attempt(works, run):
    """Open the attempt's transaction, as its driver does."""
    return begin(works.catalog, run_id=run.run_id, epoch=run.epoch, effects=[AttachTransaction(run.run_id, run.epoch)])


def program_messages(works):
    """Return all messages about programs."""
    return works.catalog.read(lambda db: read_messages(db, "program", Position(0, -1), 100))


def beside(works, first, second):
    """Do `second` while the transaction of `first` is open: on PostgreSQL it has to wait for it. What both gave."""
    # A transaction sees in pg_stat_activity the connections of its first look for ever, and the other may be a new one.
    blocked = by_hand(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )

    def block(db):
        result = first(db)
        if works.catalog.dialect is Dialect.POSTGRES:  # on SQLite the other cannot even begin
            other.append(pool.submit(second))
            while db.all(blocked) == [(0,)]:
                assert not other[-1].done(), f"it did not wait: {other[-1].exception() or other[-1].result()}"
        return result

    other = []
    with ThreadPoolExecutor(1) as pool:
        gave = works.catalog.write(block)
        return gave, other[0].result() if other else second()


def lose(works, run, **changes):
    """Its process is gone."""
    return end_attempt(works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.LOST, "its driver is gone", **changes))


def fail(works, run):
    """Its program raised."""
    return end_attempt(works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "ValueError: no"))


def test_a_run_is_taken_by_one_runner_only(works):
    """Two runners that start one run do its work twice."""
    program = works.program()
    runs = {works.start(program) for _ in range(20)}

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda n: works.take(most=5, owner=f"runner_{n}"), range(8)))

    ids = [run.run_id for some in taken for run in some]
    assert len(ids) == len(set(ids))
    assert set(ids) == runs


def test_the_most_urgent_run_is_taken_first(works):
    """Seed 001, stories 5 and 6: priorities count when slots are short."""
    program = works.program()
    works.start(program, priority=1)
    urgent = works.start(program, priority=5)

    (run,) = works.take()

    assert run.run_id == urgent
    assert (run.state, run.epoch) == (RunState.STARTING, 1)


def test_a_run_past_its_deadline_is_taken_before_more_urgent_ones(works):
    """A low priority waits, and is never starved beyond its deadline: it lost every slot to high ones."""
    program = works.program()
    now = works.catalog.read(lambda db: db.now())
    starved = works.start(program, deadline=now - timedelta(milliseconds=1))
    works.start(program, priority=5, deadline=now + timedelta(hours=1))
    worse = works.start(program, deadline=now - timedelta(milliseconds=2))

    taken = works.take(most=2)

    assert [run.run_id for run in taken] == [worse, starved]


def test_a_run_that_waited_for_its_next_attempt_keeps_its_turn(works):
    """A run that failed once was overtaken by each new one, and began 23 minutes late."""
    program = works.program(retries=1)
    (run,) = [works.under_way(program)]
    fail(works, run)
    works.sql("UPDATE run SET not_before = tidemill_now() - 1")
    newer = works.start(program)

    taken = works.take(most=2)

    assert [one.run_id for one in taken] == [run.run_id, newer]


def test_runs_go_by_when_their_work_came(works):
    """A job that waited long for a slot is older than its run."""
    program = works.program()
    late = works.start(program)
    early = works.start(program, came_at=EPOCH)

    taken = works.take(most=2)

    assert [one.run_id for one in taken] == [early, late]


def test_a_process_registers_for_its_attempt_once(works):
    """Two processes for one attempt: the second has nothing to do."""
    run = works.under_way(works.program())

    with pytest.raises(RunTaken):
        works.catalog.write(lambda db: register(db, Registration(run.run_id, 1, 2, {}, "")))

    assert works.run(run.run_id).pid == 1


def test_a_process_that_does_not_know_whether_it_has_registered_does_so_again(works):
    """The reply to its begin was lost. Another process, with another token, is refused all the same."""
    run_id = works.start(works.program())
    (run,) = works.take()
    own = Registration(run_id, run.epoch, 1, {}, "logs", "own")
    begin(works.catalog, run_id=run_id, epoch=1, effects=[AttachTransaction(run_id, 1, own)])

    works.catalog.write(lambda db: register(db, own))
    with pytest.raises(RunTaken):
        works.catalog.write(lambda db: register(db, Registration(run_id, 1, 2, {}, "", "other")))

    assert works.run(run_id).pid == 1


def test_the_begin_registers_a_process_that_has_not_registered(works):
    """A driver that is warm registers and begins in one transaction."""
    run_id = works.start(works.program())
    (run,) = works.take()

    own = Registration(run_id, run.epoch, 7, {"driver": "d"}, "logs", "own")
    tx = begin(works.catalog, run_id=run_id, epoch=1, effects=[AttachTransaction(run_id, 1, own)])

    found = works.run(run_id)
    assert (found.state, found.pid, found.facts, found.log_location) == (RunState.RUNNING, 7, {"driver": "d"}, "logs")
    assert found.write_pointer == found.first_write_pointer == tx.write_pointer
    assert found.started_at is not None


def test_a_begin_does_not_register_for_an_attempt_of_another_process(works):
    """The second process has begun nothing."""
    run = works.under_way(works.program())

    with pytest.raises(RunTaken):
        begin(
            works.catalog,
            run_id=run.run_id,
            epoch=1,
            effects=[AttachTransaction(run.run_id, 1, Registration(run.run_id, 1, 2, {}, ""))],
        )

    found = works.run(run.run_id)
    assert (found.pid, found.write_pointer) == (1, None)


def test_a_process_of_an_earlier_attempt_cannot_register(works):
    """The process started slowly and was given up, and another one runs already."""
    program = works.program()
    run_id = works.start(program)
    (first,) = works.take()
    lose(works, first)
    works.take()

    with pytest.raises(RunTaken, match="attempt 1"):
        works.catalog.write(lambda db: register(db, Registration(run_id, 1, 2, {}, "")))


def test_a_lost_attempt_costs_no_retry(works):
    """A machine that goes down is not the program's fault."""
    run = works.under_way(works.program(retries=0))
    tx = begin_attempt(works, run)

    state = lose(works, run, zombie=True)

    after = works.run(run.run_id)
    assert state is RunState.PENDING
    assert (after.failures, after.losses, after.not_before <= after.created_at + timedelta(minutes=1)) == (0, 1, True)
    assert works.catalog.read(lambda db: find_transaction(db, tx.write_pointer)).state is TxState.INVALID


def test_the_fifth_loss_in_a_row_is_a_failure(works):
    """A driver that always dies of its memory would else be started for ever."""
    program = works.program(retries=0)
    run_id = works.start(program)
    states = []

    for _ in range(5):
        works.sql("UPDATE run SET not_before = 0")
        (run,) = works.take()
        states.append(lose(works, run))

    assert states == [RunState.PENDING] * 4 + [RunState.FAILED]
    assert works.run(run_id).epoch == 5


def test_a_failed_attempt_is_repeated_after_a_doubling_wait(works):
    """A broken program must not spin."""
    program = works.program(retries=2, backoff=timedelta(seconds=100))
    run_id = works.start(program)
    waits = []

    for _ in range(2):
        works.sql("UPDATE run SET not_before = 0")
        (run,) = works.take()
        assert fail(works, run) is RunState.PENDING
        now = works.catalog.read(lambda db: db.now())
        waits.append(round((works.run(run_id).not_before - now).total_seconds(), -1))
    early = works.take()
    works.sql("UPDATE run SET not_before = 0")
    (run,) = works.take()
    last = fail(works, run)

    assert waits == [100, 200]
    assert early == []
    assert last is RunState.FAILED
    assert works.run(run_id).exit_reason == "ValueError: no"


def test_the_wait_never_exceeds_an_hour():
    """After ten failures a doubled minute would be half a day; overflow is no way to end either."""
    waits = [backoff_after(failures, timedelta(days=36500)) for failures in (1, 100)]

    assert waits == [timedelta(hours=1)] * 2
    assert backoff_after(3, timedelta(seconds=10)) == timedelta(seconds=40)


def test_the_end_of_a_run_is_announced_once_with_its_state(works):
    """Schedules that wait for a program's failure hear of the run, not of each attempt."""
    run = works.under_way(works.program(retries=1))
    fail(works, run)
    works.sql("UPDATE run SET not_before = 0")
    (again,) = works.take()
    before = program_messages(works)

    fail(works, again)

    (message,) = program_messages(works)
    assert before == []
    assert message.event_key == "program:default.shop.load:FAILED"
    assert message.payload["run_id"] == run.run_id


def test_a_commit_completes_the_run_with_its_transaction(works):
    """The run ends in the transaction that publishes."""
    run = works.under_way(works.program())
    tx = begin_attempt(works, run)

    commit(works.catalog, tx, [FinishRun(run.run_id, run.epoch, "", {"rows": 3})])

    after = works.run(run.run_id)
    assert (after.state, after.facts, after.write_pointer) == (RunState.COMPLETED, {"rows": 3}, tx.write_pointer)
    assert after.lease_until is None


def test_core_time_is_summed_over_the_attempts_that_say_theirs(works):
    """The cost of a run is that of its failures too. A process that is gone says nothing."""
    run = works.under_way(works.program())
    seen = [works.run(run.run_id).core_time]

    for spent in (timedelta(milliseconds=1250), None):
        lose(works, run, core_time=spent)
        works.sql("UPDATE run SET not_before = 0 RETURNING 1")
        (run,) = works.take()
        works.catalog.write(lambda db: register(db, Registration(run.run_id, run.epoch, 1, {}, "logs")))  # noqa: B023
        seen.append(works.run(run.run_id).core_time)
    tx = begin_attempt(works, run)
    commit(works.catalog, tx, [FinishRun(run.run_id, run.epoch, "", {}, core_time=timedelta(seconds=2))])

    assert seen == [None, timedelta(seconds=1.25), timedelta(seconds=1.25)]
    assert works.run(run.run_id).core_time == timedelta(seconds=3.25)


def test_the_stages_of_an_attempt_stand_beside_its_other_facts_until_its_end(works):
    """A worker notes its commits meanwhile, and the facts of the end are the last ones."""
    run = works.start(works.program())
    (taken,) = works.take()
    works.catalog.write(lambda db: register(db, Registration(run, taken.epoch, 1, {"driver": "one"}, "logs")))

    for done in (1, 2):
        works.catalog.write(lambda db, done=done: note_stages(db, run, taken.epoch, {"tasks": 4, "tasks_done": done}))
    at_work = works.run(run).facts
    tx = begin_attempt(works, taken)
    commit(works.catalog, tx, [FinishRun(run, taken.epoch, "", {"rows": 1})])
    works.catalog.write(lambda db: note_stages(db, run, taken.epoch, {"tasks": 4, "tasks_done": 3}))

    assert at_work == {"driver": "one", "stages": {"tasks": 4, "tasks_done": 2}}
    assert works.run(run).facts == {"rows": 1}


def test_a_fenced_attempt_cannot_commit(works):
    """The zombie wakes up: whatever it wrote is never visible."""
    run = works.under_way(works.program())
    tx = begin_attempt(works, run)
    lose(works, run, zombie=True)

    with pytest.raises(TransactionEnded):
        commit(works.catalog, tx, [FinishRun(run.run_id, run.epoch, "", {})])

    assert works.run(run.run_id).state is RunState.PENDING


def test_a_fenced_attempt_cannot_begin(works):
    """An attempt that is stopped between register and begin would open a transaction that no process ends."""
    run = works.under_way(works.program())
    lose(works, run, zombie=True)

    with pytest.raises(RunTaken):
        begin_attempt(works, run)

    assert works.sql("SELECT count(*) FROM tx") == [(0,)]


def test_an_end_decided_before_the_begin_ends_the_transaction_too(works, monkeypatch):
    """The reaper read the run before its transaction was attached: it looks again instead of leaving it open."""
    run = works.under_way(works.program())
    apply, tried = works.catalog.apply, []

    def first_begins(effects, **more):
        if not tried:
            tried.append(begin_attempt)
            monkeypatch.setattr(works.catalog, "apply", apply)
            tried.append(begin_attempt(works, run))
        return apply(effects, **more)

    monkeypatch.setattr(works.catalog, "apply", first_begins)
    lose(works, run, zombie=True)

    assert works.catalog.read(lambda db: find_transaction(db, tried[1].write_pointer)).state is TxState.INVALID


def test_ending_an_attempt_that_has_ended_changes_nothing(works):
    """The driver committed while its runner saw it die; or two reapers saw the same."""
    run = works.under_way(works.program())
    tx = begin_attempt(works, run)
    commit(works.catalog, tx, [FinishRun(run.run_id, run.epoch, "", {})])

    ended = lose(works, run)

    assert ended is None
    assert works.run(run.run_id).state is RunState.COMPLETED


def test_a_renewed_lease_is_not_fenced(works):
    """The reaper saw it un-renewed; it was renewed before the deed."""
    run = works.under_way(works.program())
    works.sql("UPDATE run SET lease_until = lease_until + 1")

    ended = lose(works, run, zombie=True, unrenewed=run.lease_until)

    assert ended is None
    assert works.run(run.run_id).state is RunState.RUNNING


def test_an_expired_lease_may_be_renewed_until_it_is_fenced(works):
    """An outage or a laptop's sleep kills nothing."""
    run = works.under_way(works.program())
    works.sql("UPDATE run SET lease_until = 1")

    kept = works.catalog.write(lambda db: renew(db, [(run.run_id, run.epoch)], LEASE))
    lose(works, run, zombie=True)
    lost = works.catalog.write(lambda db: renew(db, [(run.run_id, run.epoch)], LEASE))

    assert kept == {run.run_id}
    assert lost == set()


def test_a_lease_of_an_earlier_attempt_is_not_renewed(works):
    """A runner that was away must not keep alive what another one started."""
    run = works.under_way(works.program())
    lose(works, run, zombie=True)
    (again,) = works.take(owner="runner_2")

    kept = works.catalog.write(lambda db: renew(db, [(run.run_id, run.epoch)], LEASE))

    assert kept == set()
    assert works.run(run.run_id).lease_until == again.lease_until


def test_a_waiting_run_is_killed_at_once(works):
    """No process works on the run, and none may start."""
    run_id = works.start(works.program())

    state = ask_kill(works.catalog, run_id)

    assert state is RunState.KILLED
    assert works.take() == []
    assert [m.event_key for m in program_messages(works)] == ["program:default.shop.load:KILLED"]


def test_a_run_that_is_taken_while_it_is_killed_does_not_go_on(works):
    """Such a run was reported as killed, its slot was free, and the run continued."""
    run_id = works.start(works.program())

    def take(db):
        return take_runs(db, most=1, owner="runner_1", host="here", lease=LEASE)

    _, state = beside(works, take, lambda: ask_kill(works.catalog, run_id))

    assert state is RunState.STOPPING
    assert works.run(run_id).state is RunState.STOPPING
    assert program_messages(works) == []


def test_a_kill_at_the_end_of_an_attempt_is_not_lost(works):
    """The run went back to PENDING, was taken again, and ran to its end."""
    run = works.under_way(works.program(retries=5))

    _, state = beside(
        works, lambda db: db.run(RUNS.ask_kill, run_id=run.run_id, state=run.state), lambda: fail(works, run)
    )

    assert state is RunState.KILLED
    assert works.run(run.run_id).state is RunState.KILLED


def test_a_new_attempt_knows_nothing_of_the_earlier_one_s_driver(works):
    """The earlier driver may work on another run by now: a fence of this attempt would kill that run."""
    run_id = works.start(works.program())
    (run,) = works.take()
    facts = {"driver": "driver_1"}
    works.catalog.write(lambda db: register(db, Registration(run_id, run.epoch, 1, facts, "")))
    lose(works, run)

    (again,) = works.take()

    assert again.facts == {}


def test_a_running_run_is_stopping_until_it_is_ended(works):
    """Its processes are ended by its runner, and retries do not count."""
    run = works.under_way(works.program(retries=5))

    asked = ask_kill(works.catalog, run.run_id)
    ended = lose(works, run)

    assert asked is RunState.STOPPING
    assert ended is RunState.KILLED


def test_a_kill_after_the_commit_has_no_effect(works):
    """A published result stays published."""
    run = works.under_way(works.program())
    tx = begin_attempt(works, run)
    ask_kill(works.catalog, run.run_id)
    commit(works.catalog, tx, [FinishRun(run.run_id, run.epoch, "", {})])

    state = ask_kill(works.catalog, run.run_id)

    assert state is RunState.COMPLETED


def test_slots_are_held_through_all_attempts_and_freed_at_the_end(works):
    """A dead worker that keeps its slot blocks a program for ever; one freed too early breaks the limit."""
    run = works.under_way(works.program(retries=1))
    slots = "SELECT limit_key, run_id FROM slot"
    fail(works, run)
    waiting = works.sql(slots)
    works.sql("UPDATE run SET not_before = 0")
    (again,) = works.take()

    fail(works, again)

    assert waiting == [("program:prg_load", run.run_id)]
    assert works.sql(slots) == []


def test_a_freed_slot_wakes_the_jobs_that_wait_for_it(works):
    """No process polls the queue."""
    run = works.under_way(works.program())
    works.sql("INSERT INTO slot_limit (limit_key) VALUES ('program:prg_load')")
    works.sql(
        "INSERT INTO job (job_id, schedule_id, generation, state, created_at)"
        " VALUES ('job_1', 's_1', 1, 'PENDING_CONSTRAINT', 1), ('job_2', 's_2', 1, 'PENDING_CONSTRAINT', 1)"
    )
    works.sql(
        "INSERT INTO job_waits (wait_key, job_id)"
        " VALUES ('slots:program:prg_load', 'job_1'), ('slots:program:other', 'job_2')"
    )

    tx = begin_attempt(works, run)
    commit(works.catalog, tx, [FinishRun(run.run_id, run.epoch, "", {})])

    assert works.sql("SELECT job_id FROM job WHERE next_check_at IS NOT NULL") == [("job_1",)]


def test_a_returned_run_waits_for_the_next_runner_at_once(works):
    """A runner that is stopped returns its runs, and no failure counts."""
    run = works.under_way(works.program())

    end_attempt(works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.RETURNED, "runner stops"))

    (again,) = works.take(owner="runner_2")
    assert (again.epoch, again.failures, again.losses) == (2, 0, 0)


def test_a_run_that_cannot_be_started_is_rejected(works):
    """Such a run has as many attempts as its program allows, and then differs from a run that failed."""
    run = works.under_way(works.program())

    state = end_attempt(works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.REFUSED, "its settings are wrong"))

    assert state is RunState.REJECTED


def test_the_next_due_time_is_that_of_the_first_waiting_run(works):
    """A runner sleeps until then."""
    run = works.under_way(works.program(retries=1, backoff=timedelta(seconds=100)))
    began = works.catalog.read(lambda db: db.now())
    none = works.catalog.read(lambda db: db.look(next_due(began))).time(0)
    fail(works, run)

    due = works.catalog.read(lambda db: db.look(next_due(began))).time(0)
    later = works.catalog.read(lambda db: db.look(next_due(due))).time(0)

    assert (none, later) == (None, None)
    assert due == works.run(run.run_id).not_before


def test_a_run_that_waits_for_a_later_time_is_not_due(works):
    """A runner looks before it locks out writers."""
    due = [works.catalog.read(is_any_due)]
    run = works.under_way(works.program(retries=1, backoff=timedelta(seconds=100)))
    fail(works, run)
    due.append(works.catalog.read(is_any_due))
    works.sql("UPDATE run SET not_before = 0")
    due.append(works.catalog.read(is_any_due))

    assert due == [False, False, True]


def test_runs_are_listed_newest_first(works):
    """`run list`."""
    program, other = works.program(), works.program("other")
    run = works.under_way(program)
    works.start(other)

    newest = works.catalog.read(lambda db: list_runs(db, most=10))
    of_program = works.catalog.read(lambda db: list_runs(db, most=10, program_id=program.program_id))
    live = works.catalog.read(list_live)

    assert len(newest) == 2
    assert [r.run_id for r in of_program] == [run.run_id]
    assert [r.run_id for r in live] == [r.run_id for r in newest if r.state.live]


def test_an_unknown_run_is_not_found(works):
    """Exit code 4."""
    with pytest.raises(NotFound):
        works.catalog.read(lambda db: find_run(db, RunId("run_x")))
    assert issubclass(RunTaken, Fenced)
