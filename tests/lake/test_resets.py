"""Acts of people on a consumer: choose its start, look ahead, reset it, and requeue discarded partitions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.lake.conftest import SQL
from tests.lake.test_claims import MINUTE, backlog, fail, kinds
from tidemill.json_specs import write_text
from tidemill.lake.backlog import NoteUnseen
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.managed import ConsumerMoved, WorkState, ensure_consumer, find_consumer, measure_lag
from tidemill.lake.consumer.resets import ClaimsInProgress, list_resets, requeue, reset
from tidemill.lake.consumer.starts import BadStart, Start, find_position
from tidemill.lake.consumer.take import Closing, peek_claims, take_claims
from tidemill.lake.consumer.terms import ATTEMPTS, BadTerms, OnChange, Order, Terms

NAME = "default.shop.report"


def start_at(lake, start):
    """The consumer, made so that it starts there, as a deployment makes it."""

    def block(db):
        position = find_position(db, lake.lines.dataset_id, start, db.tick())
        return ensure_consumer(db, lake.lines.dataset_id, NAME, None, position)

    return lake.catalog.write(block)


def take_all(lake, terms=None):
    """Take for one run, and complete the run."""
    tx = lake.begin()
    got = lake.take(tx, terms)
    lake.complete(tx)
    return lake.hours(got)


def count_closings(lake):
    """Rows of the working set that were closed without delivery, by reason."""
    return dict(lake.read(lambda db: db.all(SQL.count_closings)))


def wait_a_moment(lake):
    """Let the clock that marks commits move on; a time between two commits."""
    before = lake.read(lambda db: db.now())
    while (now := lake.read(lambda db: db.now())) <= before + timedelta(milliseconds=1):
        pass
    return now


def reset_to(lake, start, by="ann"):
    """Reset the consumer."""
    lake.consumer()
    return reset(lake.catalog, lake.lines.dataset_id, NAME, Start.parse(start), by)


def test_a_consumer_that_starts_now_gets_what_commits_from_then_on(lake):
    """Also what had begun before: it commits later, with a lower write pointer."""
    lake.publish(1)
    slow = lake.begin()

    start_at(lake, Start.parse("now"))
    nothing = take_all(lake)
    lake.publish(3)
    lake.commit(slow, lake.write(2))

    assert nothing == []
    assert sorted(take_all(lake)) == [2, 3]


def test_a_consumer_that_starts_at_a_time_gets_what_committed_since(lake):
    """By the order of commits, not by the times alone."""
    lake.publish(1)
    slow, slower = lake.begin(), lake.begin()
    lake.commit(slow, lake.write(2))
    time = wait_a_moment(lake)
    lake.publish(3)
    lake.commit(slower, lake.write(4))

    start_at(lake, Start.parse(time))

    assert sorted(take_all(lake)) == [3, 4]


def test_a_time_before_everything_is_the_beginning(lake):
    """And nothing is passed by."""
    lake.publish(1)

    start_at(lake, Start.parse("1970-01-01T00:00:01Z"))

    assert take_all(lake) == [1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("begining", "did you mean 'beginning'"),
        ("soon", "use beginning, now or a time"),
        ("2026-02-30", "use begin"),
        ("0001-01-01T00:00+14:00", "use begin"),
    ],
)
def test_a_start_that_is_none_is_refused_with_the_cure(given, told):
    """A typing error must not become "from the beginning"."""
    with pytest.raises(BadStart, match=told):
        Start.parse(given)


def test_a_start_in_the_future_or_without_a_zone_is_refused(lake):
    """Such a start would silently mean "now"."""
    to_come = datetime.now(UTC) + timedelta(hours=1)

    with pytest.raises(BadStart, match="still to come"):
        start_at(lake, Start.parse(to_come))
    with pytest.raises(BadStart, match="no zone"):
        Start.parse(to_come.replace(tzinfo=None))


def test_a_peek_shows_what_the_next_take_gives_and_takes_nothing(lake):
    """With its terms, and without moving anything: not even a claim is left."""
    for hour in (1, 2, 3):
        lake.publish(hour)
    taken = lake.begin()
    lake.take(taken, Terms(1))
    lake.publish(2)
    before = lake.work()

    seen = peek_claims(lake.catalog, lake.consumer().consumer_id, Terms(2))
    again = peek_claims(lake.catalog, lake.consumer().consumer_id, Terms(2))

    assert lake.hours(seen) == lake.hours(again) == [2, 3]
    assert lake.work() == before
    assert lake.hours(lake.take(lake.begin(), Terms(2))) == [2, 3]


def test_a_reset_delivers_all_again_and_keeps_on_record_what_was_consumed(lake):
    """The record has the actor, the time, the old and the new start. Completed runs keep their input."""
    lake.publish(1)
    lake.publish(2)
    first = take_all(lake)
    before = lake.consumer()

    after = reset_to(lake, "beginning")

    (past,) = lake.read(lambda db: list_resets(db, lake.lines.dataset_id, NAME))
    assert (past.by, past.asked, past.state, past.consumer_id) == ("ann", "beginning", before.state, before.consumer_id)
    assert after.consumer_id != before.consumer_id
    assert first == take_all(lake) == [1, 2]
    assert [state for _, state, _ in lake.work()] == ["completed"] * 4


def test_a_reset_to_now_drops_what_waits(lake):
    """Changes that waited in the working set, and changes that no take had seen."""
    lake.publish(1)
    failed = lake.begin()
    lake.take(failed)
    fail(lake, failed)
    lake.publish(2)

    consumer = reset_to(lake, "now")
    lake.publish(3)

    assert lake.read(lambda db: measure_lag(db, consumer)).partitions == 1
    lake.pass_time()
    assert take_all(lake) == [3]


def test_a_reset_is_refused_while_a_run_holds_what_it_took(lake):
    """Its commit would complete what comes again: consumed twice. After its end the reset goes through."""
    lake.publish(1)
    running = lake.begin()
    lake.take(running)

    with pytest.raises(ClaimsInProgress, match=running.run_id):
        reset_to(lake, "beginning")
    lake.complete(running)
    reset_to(lake, "beginning")

    assert take_all(lake) == [1]


def test_a_take_that_a_reset_overtook_gets_an_error(lake):
    """The take had looked up the consumer before: its claims would belong to the past."""
    lake.publish(1)
    stale = lake.consumer()
    late = lake.begin()
    reset_to(lake, "now")

    with pytest.raises(ConsumerMoved):
        take_claims(lake.catalog, late, {stale.consumer_id: Terms()})


def test_a_reset_announces_what_waits_then(lake):
    """The messages of these partitions are used up: without a new message no run would start."""
    lake.publish(1)
    take_all(lake)

    reset_to(lake, "now")
    none = len(backlog(lake))
    reset_to(lake, "beginning")

    assert none == 0
    assert [message.payload["consumer"] for message in backlog(lake)] == [NAME]


def test_a_reset_names_the_consumer_that_is_not_there(lake):
    """With the nearest there is."""
    lake.consumer()

    with pytest.raises(Exception, match=r"did you mean 'default\.shop\.report'"):
        reset(lake.catalog, lake.lines.dataset_id, "default.shop.reports", Start(), "ann")


def discard(lake, hour):
    """Give up a partition: it has failed alone as often as it may."""
    lake.publish(hour)
    for _ in range(ATTEMPTS):
        tx = lake.begin()
        lake.take(tx)
        fail(lake, tx)
        lake.pass_time()


def test_what_was_discarded_comes_again_when_it_is_requeued(lake):
    """With its failures forgotten, and announced, so that a schedule starts for it."""
    discard(lake, 1)
    gone = take_all(lake)
    told = len(backlog(lake))

    number = requeue(lake.catalog, lake.consumer())

    assert (gone, number) == ([], 1)
    assert len(backlog(lake)) == told + 1
    assert [(w.failures, w.error) for w in lake.list_work(WorkState.NEW)] == [(0, "boom")]
    assert take_all(lake) == [1]


def test_only_what_is_named_is_requeued(lake):
    """And nothing that is not discarded."""
    discard(lake, 1)
    discard(lake, 2)
    (first, _) = lake.list_work(WorkState.DISCARDED)

    number = requeue(lake.catalog, lake.consumer(), [first.partition_key])

    assert number == 1
    assert lake.hours(lake.list_work(WorkState.DISCARDED)) == [2]
    assert requeue(lake.catalog, lake.consumer(), []) == 0


# The terms of a take


def test_the_newest_come_first_if_that_is_asked_for(lake):
    """Each run gets the newest of what waits, and all come in the end."""
    for hour in range(5):
        lake.publish(hour)
    terms = Terms(2, order=Order.NEWEST)

    assert [take_all(lake, terms) for _ in range(3)] == [[4, 3], [2, 1], [0]]


def test_with_a_share_of_old_ones_a_backlog_is_caught_up_with_beside_what_is_new(lake):
    """The seed's third use case: neither waits for the other."""
    for hour in range(6):
        lake.publish(hour)
    terms = Terms(3, order=Order.NEWEST, old_percent=34)
    got = []
    for hour in (6, 7):
        got.append(take_all(lake, terms))
        lake.publish(hour)

    assert got == [[5, 4, 0], [6, 3, 1]]
    assert [take_all(lake, terms) for _ in range(2)] == [[7, 2], []]


def test_of_what_has_waited_for_a_retry_the_newest_first_still_take_it(lake):
    """Such a partition comes after new ones, and is not forgotten."""
    lake.publish(1)
    failed = lake.begin()
    lake.take(failed)
    fail(lake, failed, backoff=timedelta(milliseconds=1))
    lake.pass_time()
    lake.publish(2)

    assert take_all(lake, Terms(order=Order.NEWEST)) in ([2, 1], [1, 2])


@pytest.mark.parametrize("op", ["append", "overwrite"])
def test_a_change_after_delivery_is_ignored_if_that_is_asked_for(lake, op):
    """Once, and for good: what was in time is delivered, what came late is not."""
    terms = Terms(on_change=OnChange.IGNORE)
    lake.publish(1)
    lake.publish(1)
    first = take_all(lake, terms)
    lake.publish(1, op)
    lake.publish(2)
    second = take_all(lake, terms)
    lake.publish(1, op)

    assert (first, second, take_all(lake, terms)) == ([1], [2], [])
    assert lake.list_work(WorkState.NEW) == []


def test_a_change_after_delivery_is_discarded_if_it_is_an_error(lake):
    """For a person to look at; what they requeue is delivered."""
    terms = Terms(on_change=OnChange.ERROR)
    lake.publish(1)
    take_all(lake, terms)
    lake.publish(1, "overwrite")
    none = take_all(lake, terms)
    (aside,) = lake.list_work(WorkState.DISCARDED)

    requeue(lake.catalog, lake.consumer())
    tx = lake.begin()
    got = lake.take(tx, terms)

    assert (none, aside.error) == ([], Closing.CHANGED)
    assert (lake.hours(got), kinds(got)) == ([1], ["overwritten"])


@pytest.mark.parametrize("on_change", list(OnChange))
def test_a_partition_that_is_dropped_and_created_again_is_new(lake, on_change):
    """A drop ends the partition: the next one of its key has never been delivered."""
    terms = Terms(on_change=on_change)
    lake.publish(1)
    first = take_all(lake, terms)
    lake.publish(1, "drop")
    nothing = take_all(lake, terms)
    lake.publish(1, "create")
    tx = lake.begin()
    got = lake.take(tx, terms)
    lake.complete(tx)
    lake.publish(1)
    appended = take_all(lake, terms)

    assert (first, nothing, lake.hours(got), kinds(got)) == ([1], [], [1], ["new"])
    assert appended == ([1] if on_change is OnChange.AGAIN else [])
    assert lake.consumer().dropped == 0


def test_partitions_that_are_dropped_before_a_run_processes_them_are_counted(lake):
    """The count is of partitions, not of changes; an overwritten partition is no dropped one."""
    lake.publish(1)
    lake.publish(1)
    lake.publish(1, "drop")
    lake.publish(2)
    lake.publish(2, "drop")
    lake.publish(2, "create")
    lake.publish(2, "drop")
    lake.publish(2, "create")
    lake.publish(3)
    lake.publish(3, "overwrite")

    got = take_all(lake)
    take_all(lake)

    assert sorted(got) == [2, 3]
    assert lake.consumer().dropped == 3
    assert count_closings(lake) == {Closing.DROPPED: 4, Closing.OVERWRITTEN: 1}


def test_a_reset_counts_dropped_partitions_from_zero(lake):
    """The count belongs to what the consumer has been offered since its start."""
    lake.publish(1)
    lake.publish(1, "drop")
    take_all(lake)
    before = lake.consumer().dropped

    reset(lake.catalog, lake.lines.dataset_id, NAME, Start(), "ann")

    assert (before, lake.consumer().dropped) == (1, 0)
    take_all(lake)
    assert lake.consumer().dropped == 1


@pytest.mark.parametrize("on_change", [OnChange.IGNORE, OnChange.ERROR])
def test_a_failure_is_no_delivery(lake, on_change):
    """A partition that was taken and returned was not delivered: it comes again with later additions."""
    terms = Terms(on_change=on_change)
    lake.publish(1)
    failed = lake.begin()
    lake.take(failed, terms)
    fail(lake, failed, backoff=MINUTE)
    lake.publish(1)
    lake.pass_time()

    assert take_all(lake, terms) == [1]


@pytest.mark.parametrize(
    "bad",
    [
        {"partitions": 0},
        {"attempts": 0},
        {"bytes": 0},
        {"old_percent": 100, "order": Order.NEWEST},
        {"old_percent": 10},
        {"old_percent": 10, "order": Order.NEWEST, "partitions": 1},
    ],
)
def test_terms_that_cannot_be_are_refused(bad):
    """Bad terms are refused where they are written, not by a run that never gets anything."""
    with pytest.raises(BadTerms):
        Terms(**bad)


def test_terms_are_kept_with_the_consumer_and_follow_a_deployment(lake):
    """State and start stay as they are."""
    terms = Terms(7, 1000, Order.NEWEST, 20, OnChange.ERROR)
    lake.publish(1)
    take_all(lake)
    before = lake.consumer()

    lake.catalog.write(lambda db: ensure_consumer(db, lake.lines.dataset_id, NAME, terms))

    assert lake.read(lambda db: find_consumer(db, lake.lines.dataset_id, NAME)) == replace(
        before, spec=write_text(terms)
    )


def test_what_is_noted_as_unread_counts_once(lake):
    """The change is in the working set, and the state still leads to it."""
    consumer = lake.consumer()
    lake.publish(1)
    lake.publish(2)
    lake.catalog.apply([NoteUnseen(CONSUMERS, [consumer.consumer_id])])

    lag = lake.read(lambda db: measure_lag(db, consumer))

    assert (lag.partitions, lag.bytes) == (2, 20)
