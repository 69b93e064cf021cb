"""Managed consumers: no change twice, none lost, whatever runs overlap, fail or die."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from tests.lake.conftest import SQL
from tidemill.catalog.messages import Position, read_messages
from tidemill.catalog.transactions import EndTransaction, TransactionEnded, TxState
from tidemill.errors import NotFound, UserError
from tidemill.lake.backlog import Announce, publish_due
from tidemill.lake.claims import Blame, Complete, Fail, Return
from tidemill.lake.consumer import take
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.claims import PARTITIONS, ClaimsTakenOver, SkipOwn
from tidemill.lake.consumer.managed import WorkState, find_consumer, list_consumers, measure_lag
from tidemill.lake.consumer.take import take_claims
from tidemill.lake.consumer.terms import ATTEMPTS, Terms
from tidemill.lake.suspects import HALVE_AFTER
from tidemill.run.step.inputs import fail_claims, find_claims, return_claims

MINUTE = timedelta(minutes=1)


def fail(lake, tx, *, last=True, backoff=MINUTE):
    """An attempt ends by an exception of the program; `last` ends the run."""
    claims, blame = lake.read(lambda db: find_claims(db, tx.run_id)), Blame("boom")
    failed = functools.partial(return_claims, backoff=backoff) if last else fail_claims
    lake.end(tx, *failed(tx.run_id, tx.epoch, blame, claims=claims), Announce(CONSUMERS, [lake.consumer().consumer_id]))


def kill(lake, tx):
    """A run is killed."""
    released = Return(PARTITIONS, tx.run_id, tx.epoch)
    lake.end(tx, released, Announce(CONSUMERS, [lake.consumer().consumer_id]), state=TxState.INVALID)


def backlog(lake):
    """The messages about work left."""
    messages = lake.read(lambda db: read_messages(db, "data", Position(0, 0), 1000))
    return [message for message in messages if message.event_type == "backlog"]


def kinds(deliveries):
    """Name each delivery."""
    return [str(delivery.kind) for delivery in deliveries]


def test_what_a_run_completed_no_other_gets(lake):
    """The promise: each change is in the input of exactly one committed run."""
    lake.publish(1)
    lake.publish(2)
    first = lake.begin()
    got = lake.take(first)
    lake.complete(first)

    lake.publish(3)
    second = lake.begin()
    got_then = lake.take(second)

    assert lake.hours(got) == [1, 2]
    assert lake.hours(got_then) == [3]
    assert lake.work() == [(1, "completed", 0), (2, "completed", 0), (3, "in_progress", 0)]


def test_a_partition_that_commits_late_is_claimed_with_the_next_take(lake):
    """The hole of time-stamp cursors (seed 000), with the state in the catalog."""
    slow, fast = lake.begin(), lake.begin()
    lake.commit(fast, lake.write(11))
    got = []
    for place in range(3):
        reader = lake.begin()
        got.append(lake.hours(lake.take(reader)))
        lake.complete(reader)
        if place == 0:
            lake.commit(slow, lake.write(10))

    assert got == [[11], [10], []]


# Every order in which two runs of one consumer can begin, take and commit (seed 000, "overlapping runs").
ORDERS = [
    order
    for order in sorted(set(permutations("AAABBB")))
    if order.index("A") < order.index("B")  # A begins first: the other half is the same with the names exchanged
]


@pytest.mark.parametrize("order", ORDERS, ids="".join)
@pytest.mark.parametrize("ending", ["complete", "fail", "kill"])
def test_overlapping_runs_never_get_the_same_partition(lake, order, ending):
    """Seed 000: a second run, started before the first has committed, worked from the same state.

    Between any two steps another change is published, and one comes from a transaction that began before all.
    """
    slow = lake.begin()
    lake.publish(0)
    hours = iter(range(1, 100))
    runs, steps = {}, {"A": 0, "B": 0}
    got = {"A": [], "B": []}
    completed = []
    for place, run in enumerate(order):
        if steps[run] == 0:
            runs[run] = lake.begin()
        elif steps[run] == 1:
            got[run] = lake.hours(lake.take(runs[run]))
        elif run == "A" and ending != "complete":
            {"fail": fail, "kill": kill}[ending](lake, runs[run])
        else:
            lake.complete(runs[run])
            completed += got[run]
        steps[run] += 1
        lake.publish(next(hours))
        if place == 2:
            lake.commit(slow, lake.write(50))

    lake.pass_time()
    last = lake.begin()
    rest = lake.hours(lake.take(last))
    lake.complete(last)

    assert sorted(completed + rest) == [0, 1, 2, 3, 4, 5, 6, 50]
    if ending == "complete":
        assert not set(got["A"]) & set(got["B"])


def test_a_run_that_began_earlier_and_takes_later_does_not_set_the_state_back(lake):
    """Tried: it did, and the next take doubled everything."""
    lake.publish(1)
    early = lake.begin()
    lake.publish(2)
    late = lake.begin()
    got_late = lake.take(late)
    lake.complete(late)
    state = lake.consumer().state

    got_early = lake.take(early)
    lake.complete(early)
    state_after = lake.consumer().state
    following = lake.begin()

    assert lake.hours(got_late) == [1, 2]
    assert state_after == state
    assert got_early == []
    assert lake.take(following) == []


def test_a_run_claims_only_what_its_own_snapshot_sees(lake):
    """Rows that another run's take has filled may be newer than this run's snapshot: it could not read them."""
    early = lake.begin()
    lake.publish(1)
    late = lake.begin()
    taken = lake.take(late)
    lake.return_some(late, taken[0])

    assert lake.take(early) == []
    assert lake.hours(lake.take(lake.begin())) == [1]


def test_a_held_key_makes_its_newer_version_wait(lake):
    """Two runs at once on one partition would publish results in any order."""
    lake.publish(1, rows=1)
    first = lake.begin()
    lake.take(first)
    lake.publish(1, rows=2)
    lake.publish(1, rows=4)
    second = lake.begin()
    while_held = lake.take(second)
    lake.complete(first, Announce(CONSUMERS, [lake.consumer().consumer_id]))

    third = lake.begin()
    (delivery,) = lake.take(third)

    assert while_held == []
    assert [m.payload for m in backlog(lake)] == [{"consumer": "default.shop.report"}]
    assert (str(delivery.kind), [file.rows for _, file in delivery.files]) == ("appended", [2, 4])


def test_a_newer_change_never_overtakes_an_older_one_of_its_partition(lake):
    """The older one failed, and waits for another attempt: both come at once, in order."""
    lake.publish(1, rows=1)
    first = lake.begin()
    lake.take(first)
    fail(lake, first)
    lake.publish(1, rows=2)
    lake.publish(2, rows=4)

    one, other = lake.take(lake.begin())

    assert [file.rows for _, file in one.files] == [1, 2]
    assert [file.rows for _, file in other.files] == [4]


def test_a_delivery_says_what_it_is_and_brings_just_that(lake):
    """New and overwritten: the whole. Appended: what was added; several waiting appends come as one."""
    lake.publish(1, "create", rows=1)
    first = lake.begin()
    new = lake.take(first)
    lake.complete(first)
    lake.publish(1, rows=2)
    lake.publish(1, rows=4)
    lake.publish(2, rows=8)
    second = lake.begin()
    appended = lake.take(second)
    lake.complete(second)
    lake.publish(1, "overwrite", rows=16)
    lake.publish(1, rows=32)
    third = lake.begin()
    overwritten = lake.take(third)

    def content(deliveries):
        return [(lake.hour(d.partition_key), str(d.kind), [f.rows for _, f in d.files]) for d in deliveries]

    assert content(new) == [(1, "new", [1])]
    assert content(appended) == [(1, "appended", [2, 4]), (2, "new", [8])]
    assert content(overwritten) == [(1, "overwritten", [16, 32])]
    assert new[0].files[0][0].startswith("tx-")


def test_what_was_overwritten_before_its_take_drops_out(lake):
    """Its rows are gone from the file set: with the new ones they would be counted twice."""
    lake.publish(1, rows=1)
    lake.publish(1, "overwrite", rows=2)
    tx = lake.begin()

    (delivery,) = lake.take(tx)
    lake.complete(tx)

    assert [file.rows for _, file in delivery.files] == [2]
    assert lake.work() == [(1, "completed", 0), (1, "completed", 0)]
    assert lake.read(lambda db: db.all(SQL.read_input)) == [
        (tx.run_id, delivery.changes[0].write_pointer, delivery.partition_key)
    ]


def test_a_retry_gets_just_what_the_attempt_before_it_had(lake):
    """Later changes wait for the next run, even if they overwrite a partition that the run holds."""
    lake.publish(1, rows=1)
    lake.publish(2, rows=2)
    first = lake.begin()
    got = lake.take(first)
    fail(lake, first, last=False)
    lake.publish(1, "overwrite", rows=4)
    lake.publish(3)

    second = lake.try_again(first)
    again = lake.take(second)
    lake.complete(second)
    following = lake.begin()
    rest = lake.take(following)

    assert again == got
    assert (lake.hours(rest), kinds(rest)) == ([1, 3], ["overwritten", "new"])


def test_a_lost_attempt_counts_no_failure(lake):
    """A dead machine says nothing about the data: else a rolling restart would discard what it never saw."""
    lake.publish(1)
    tx = lake.begin()
    for _ in range(5):
        lake.take(tx)
        lake.end(tx, state=TxState.INVALID)
        tx = lake.try_again(tx)

    assert lake.hours(lake.take(tx)) == [1]
    assert lake.work() == [(1, "in_progress", 0)]


def test_a_fenced_attempt_takes_nothing(lake):
    """A zombie that took would hold partitions for a run that does not know of it."""
    lake.publish(1)
    zombie = lake.begin()
    lake.end(zombie, state=TxState.INVALID)

    with pytest.raises(TransactionEnded, match="invalid"):
        lake.take(zombie)

    assert lake.hours(lake.take(lake.begin())) == [1]


def test_a_commit_on_claims_of_another_attempt_is_refused(lake):
    """Both would have worked on the same partitions."""
    lake.publish(1)
    first = lake.begin()
    lake.take(first)
    lake.end(first, state=TxState.INVALID)
    second = lake.try_again(first)

    with pytest.raises(ClaimsTakenOver, match="attempt 2"):
        lake.commit(second, effects=[Complete(PARTITIONS, second.run_id, 1)])

    lake.complete(second)
    assert lake.work() == [(1, "completed", 0)]


def test_a_failed_run_returns_its_claims_and_waits_longer_each_time(lake):
    """A broken program cannot spin; and what it could not do waits for its mending."""
    lake.publish(1)
    lake.publish(2)
    waits, at_once = [], []
    for _ in range(2):
        tx = lake.begin()
        lake.take(tx)
        fail(lake, tx)
        waits += [row.not_before - datetime.now(UTC) for row in lake.list_work(WorkState.NEW)]
        at_once += lake.take(lake.begin())
        lake.pass_time()

    assert at_once == []
    assert [round(wait / MINUTE) for wait in waits] == [1, 1, 2, 2]


@pytest.mark.parametrize("failures", [7, 30])
def test_the_wait_ends_at_an_hour(lake, failures):
    """Mended in the evening, it should not wait until the next day."""
    lake.publish(1)
    lake.publish(2)
    tx = lake.begin()
    lake.take(tx)
    for _ in range(failures):
        fail(lake, tx, last=False)
        tx = lake.try_again(tx)
    fail(lake, tx)

    waits = [row.not_before - datetime.now(UTC) for row in lake.list_work(WorkState.NEW)]

    assert [round(wait / MINUTE) for wait in waits] == [60, 60]


def test_a_killed_run_returns_its_claims_at_once_without_a_failure(lake):
    """A person stopped it: neither data nor program are to blame."""
    lake.publish(1)
    tx = lake.begin()
    lake.take(tx)

    kill(lake, tx)

    assert lake.work() == [(1, "new", 0)]
    assert len(backlog(lake)) == 1
    assert lake.hours(lake.take(lake.begin())) == [1]


@pytest.mark.parametrize("poison", [0, 3, 7])
@pytest.mark.parametrize("retries", [0, 2])
def test_halving_isolates_the_poison_partition_and_the_rest_flows(lake, poison, retries):
    """A partition that no program can read must not delay the others, and is named in the end."""
    for hour in range(8):
        lake.publish(hour)
    good = []
    for _ in range(40):
        tx = lake.begin()
        for attempt in range(retries + 1):
            got = lake.hours(lake.take(tx))
            if poison not in got:
                lake.complete(tx)
                good += got
                break
            fail(lake, tx, last=attempt == retries)
            if attempt < retries:
                tx = lake.try_again(tx)
        lake.pass_time()

    (discarded,) = lake.list_work(WorkState.DISCARDED)
    assert sorted(good) == [hour for hour in range(8) if hour != poison]
    assert (lake.hour(discarded.partition_key), discarded.error) == (poison, "boom")
    assert discarded.failures >= ATTEMPTS


def test_new_data_of_the_poison_partition_does_not_fail_the_rest_again(lake):
    """New data ends its back-off: the partition still comes apart from what has never failed, and is discarded."""
    good, runs_with_poison = [], 0
    for minute in range(20):
        lake.publish(0)
        for hour in range(4):
            lake.publish(1 + minute * 4 + hour)
        for _ in range(3):
            tx = lake.begin()
            got = lake.hours(lake.take(tx))
            if 0 not in got:
                lake.complete(tx)
                good += got
                continue
            runs_with_poison += len(got) > 1
            fail(lake, tx)
    lake.pass_time()
    good += lake.hours(lake.take(lake.begin()))

    assert lake.list_work(WorkState.DISCARDED)
    assert runs_with_poison <= HALVE_AFTER


def test_one_failure_alone_discards_nothing(lake):
    """A program with a bug, or a full disk, fails on everything."""
    lake.publish(1)
    for _ in range(ATTEMPTS - 1):
        tx = lake.begin()
        lake.take(tx)
        fail(lake, tx)
        lake.pass_time()

    assert lake.work() == [(1, "new", 2)]


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_a_partition_is_discarded_after_as_many_failures_as_the_terms_say(lake, attempts):
    """A program that calls a flaky service wants more attempts than one that only reads files."""
    lake.terms = Terms(attempts=attempts)
    lake.publish(1)
    states = []
    for _ in range(attempts):
        tx = lake.begin()
        lake.take(tx)
        fail(lake, tx)
        lake.pass_time()
        states += [state for _, state, _ in lake.work()]

    assert states == [*["new"] * (attempts - 1), "discarded"]


def test_limits_by_number_and_bytes_leave_the_rest_for_the_next(lake):
    """A run can be kept to what its machine holds; the oldest come first."""
    for hour, rows in enumerate([5, 5, 5, 50, 5]):
        lake.publish(hour, rows=rows)
    taken = []
    for limits in [Terms(2), Terms(bytes=100), Terms(bytes=100), Terms(bytes=1)]:
        tx = lake.begin()
        taken.append(lake.hours(lake.take(tx, limits)))
        lake.complete(tx, Announce(CONSUMERS, [lake.consumer().consumer_id]))

    assert taken == [[0, 1], [2], [3], [4]]
    assert len(backlog(lake)) == 3


def test_a_key_counts_once_against_the_limit_with_all_that_waits_of_it(lake):
    """Several waiting appends are one delivery."""
    for hour in [1, 2, 1, 3, 1]:
        lake.publish(hour)
    tx = lake.begin()

    got = lake.take(tx, Terms(2))

    assert [(lake.hour(d.partition_key), len(d.changes)) for d in got] == [(1, 3), (2, 1)]


def test_what_drops_out_does_not_use_up_the_limit(lake):
    """A partition overwritten a hundred times would make a hundred empty runs."""
    for _ in range(5):
        lake.publish(1, "overwrite")
    lake.publish(2)
    tx = lake.begin()

    assert lake.hours(lake.take(tx, Terms(2))) == [1, 2]


def test_limits_that_allow_nothing_are_refused() -> None:
    """The consumer would wait for ever."""
    for bad in ({"partitions": 0}, {"bytes": 0}):
        with pytest.raises(UserError, match="must allow something"):
            Terms(**bad)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_large_backlog_is_filled_in_parts_and_nothing_is_lost(lake, monkeypatch, most):
    """A first take of a million partitions would hold the consumer's lock, and the database's, for minutes."""
    monkeypatch.setattr(take, "MOST_FILLED", most)
    lake.publish(0)
    slow, slower, slowest = lake.begin(), lake.begin(), lake.begin()
    lake.take(lake.begin())
    for hour in range(1, 6):
        lake.publish(hour)
    lake.commit(slow, *[lake.write(hour) for hour in range(10, 15)])
    lake.commit(slower, lake.write(20), lake.write(21))
    tx = lake.begin()

    got = lake.hours(lake.take(tx))
    lake.complete(tx)
    lake.commit(slowest, lake.write(30))
    following = lake.begin()

    assert sorted(got) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 20, 21]
    assert lake.hours(lake.take(following)) == [30]


def test_two_inputs_are_taken_together_and_a_retry_keeps_both_as_they_were(lake):
    """A crash between two takes, and a halving, must not let a retry take again from one input."""
    one, other = lake.consumer("default.shop.one"), lake.consumer("default.shop.other")
    lake.publish(1)
    inputs = {one.consumer_id: Terms(), other.consumer_id: Terms()}
    first = lake.begin()
    got = take_claims(lake.catalog, first, inputs)
    for _ in range(HALVE_AFTER):
        lake.end(first, Fail(PARTITIONS, first.run_id, first.epoch, Blame("boom")))
        first = lake.try_again(first)
    lake.publish(2)

    halved = take_claims(lake.catalog, first, inputs)
    again = take_claims(lake.catalog, first, inputs)

    assert [lake.hours(deliveries) for deliveries in got.values()] == [[1], [1]]
    assert sorted(map(len, halved.values())) == [0, 1]
    assert again == halved


def test_what_is_returned_comes_to_the_next_without_a_failure(lake):
    """A run that notices it cannot do a partition now says so."""
    lake.publish(1)
    lake.publish(2)
    tx = lake.begin()
    kept, returned = lake.take(tx)
    lake.return_some(tx, returned)
    lake.complete(tx)

    following = lake.begin()

    assert lake.hours([kept]) == [1]
    assert lake.hours(lake.take(following)) == [2]
    assert lake.work() == [(1, "completed", 0), (2, "in_progress", 0)]


def test_a_retry_time_that_has_come_is_announced_once(lake):
    """No process commits at that moment: without the keeper the work would be stuck."""
    lake.publish(1)
    tx = lake.begin()
    lake.take(tx)
    fail(lake, tx)
    before = (publish_due(lake.catalog, CONSUMERS), len(backlog(lake)))
    lake.pass_time()

    announced = [publish_due(lake.catalog, CONSUMERS) for _ in range(2)]

    assert before == ([], 0)
    assert announced == [[lake.consumer().consumer_id], []]
    assert [m.event_key for m in backlog(lake)] == ["backlog:default.lines"]


def test_a_run_that_did_everything_announces_no_backlog(lake):
    """A message that makes an empty run, which makes a message, would go on for ever."""
    lake.publish(1)
    tx = lake.begin()
    lake.take(tx)

    lake.complete(tx, Announce(CONSUMERS, [lake.consumer().consumer_id]))

    assert backlog(lake) == []


def test_what_a_program_adds_to_its_own_input_is_skipped_if_it_says_so(lake):
    """A program that reads and writes one file set would feed itself without end."""
    lake.publish(1)
    tx = lake.begin()
    lake.take(tx)
    skip = SkipOwn(tx, lake.lines.dataset_id, lake.consumer().name)
    lake.commit(tx, lake.write(2), effects=[Complete(PARTITIONS, tx.run_id, tx.epoch), skip])
    lake.publish(3)

    assert lake.hours(lake.take(lake.begin())) == [3]
    assert lake.hours(lake.take(lake.begin(), name="default.shop.other")) == [1, 2, 3]


def test_changes_that_do_not_deliver_reach_no_consumer(lake):
    """A quiet repair of history must not start everything again."""
    tx = lake.begin()
    loud = lake.add(tx, lake.write(1))
    lake.commit(tx, effects=[type(loud)(loud.tx, loud.fileset, loud.changes, loud.schema, loud.existing, False)])

    assert lake.take(lake.begin()) == []
    assert lake.read(lambda db: read_messages(db, "data", Position(0, 0), 10)) == []


def test_lag_counts_what_waits_and_what_no_take_has_seen(lake):
    """An operator sees the lag of a consumer before any take."""
    consumer = lake.consumer()
    slow = lake.begin()
    lake.publish(1)
    tx = lake.begin()
    lake.take(tx)
    kill(lake, tx)
    lake.commit(slow, lake.write(2))
    lake.publish(3, rows=3)
    consumer = lake.read(lambda db: find_consumer(db, lake.lines.dataset_id, consumer.name))

    lag = lake.read(lambda db: measure_lag(db, consumer))

    assert (lag.partitions, lag.bytes) == (3, 50)
    assert datetime.now(UTC) - lag.oldest < MINUTE


def test_a_consumer_that_has_all_has_no_lag(lake):
    """Nothing waits: no age either."""
    consumer = lake.consumer()

    lag = lake.read(lambda db: measure_lag(db, consumer))

    assert (lag.partitions, lag.bytes, lag.oldest) == (0, 0, None)


def test_a_consumer_is_made_once(lake):
    """Deployment declares it each time; its state must stay."""
    lake.publish(1)
    made = lake.consumer()
    lake.take(lake.begin())

    again = lake.consumer()

    assert again.consumer_id == made.consumer_id
    assert again.state.start_version > 0
    assert lake.read(list_consumers) == [again]


def test_an_unknown_consumer_is_named(lake):
    """A person sees where to look."""
    with pytest.raises(NotFound, match="no consumer named 'x'"):
        lake.read(lambda db: find_consumer(db, lake.lines.dataset_id, "x"))


@pytest.mark.parametrize("mark", ["take.before_fill", "take.after_claim"])
def test_a_crash_in_a_take_loses_and_doubles_nothing(lake, mark):
    """The next attempt goes on with what the run holds, or takes."""
    lake.publish(1)
    tx = lake.begin()
    world = lake.catalog.world

    class Crash(BaseException):
        pass

    def die(name):
        if name == mark:
            raise Crash

    lake.catalog.world = type(world)(marked=die)
    with pytest.raises(Crash):
        lake.take(tx)
    lake.catalog.world = world
    lake.catalog.apply([EndTransaction(tx.write_pointer, TxState.INVALID, "lost")])
    lake.publish(2)

    second = lake.try_again(tx)
    got = lake.hours(lake.take(second))
    lake.complete(second)
    rest = lake.hours(lake.take(lake.begin()))

    assert sorted(got + rest) == [1, 2]
