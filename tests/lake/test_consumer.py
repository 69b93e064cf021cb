"""The seed's consumer: every change once, whatever commits when."""

from __future__ import annotations

import pytest

from tidemill.lake.consumer import FROM_BEGINNING, BadState, PartitionConsumer, PartitionConsumerState, take
from tidemill.names import WritePointer


def test_a_partition_that_commits_late_comes_with_the_next_take(lake):
    """The hole of time-stamp cursors (seed 000): it was open, with a lower pointer, while a later one was read."""
    slow, fast = lake.begin(), lake.begin()
    lake.commit(fast, lake.write(11))
    lines = lake.lines.dataset_id

    reader = lake.begin()
    first, state = lake.read(lambda db: take(db, lines, FROM_BEGINNING, reader))
    lake.commit(slow, lake.write(10))
    second_reader, third_reader = lake.begin(), lake.begin()
    second, state = lake.read(lambda db: take(db, lines, state, second_reader))
    third, _ = lake.read(lambda db: take(db, lines, state, third_reader))

    assert lake.hours(first) == [11]
    assert lake.hours(second) == [10]
    assert third == []


def test_what_commits_after_the_readers_begin_waits_for_the_next_take(lake):
    """A take sees its snapshot at any later time, else what it delivers would depend on when it happens to look."""
    early = lake.begin()
    reader = lake.begin()
    lake.commit(early, lake.write(9))
    lake.publish(10)
    consumer = PartitionConsumer(lake.lines.dataset_id)

    first = lake.read(lambda db: list(consumer.consume_partitions(db, reader)))
    state = consumer.state
    following = lake.begin()
    second = lake.read(lambda db: list(consumer.consume_partitions(db, following)))

    assert first == []
    assert state == PartitionConsumerState(reader.write_pointer, (early.write_pointer,))
    assert lake.hours(second) == [9, 10]


def test_what_a_transaction_adds_itself_comes_with_the_next_take(lake):
    """Its own pointer is left out of the scan (seed 000, note), else what it adds after the scan would be lost."""
    consumer = PartitionConsumer(lake.lines.dataset_id)
    own = lake.begin()

    first = lake.read(lambda db: list(consumer.consume_partitions(db, own)))
    lake.commit(own, lake.write(1))
    following = lake.begin()
    second = lake.read(lambda db: list(consumer.consume_partitions(db, following)))

    assert first == []
    assert lake.hours(second) == [1]


def test_a_state_newer_than_the_snapshot_gives_nothing_and_stays(lake):
    """Going back would deliver again what came since (tried: the next take doubled everything)."""
    old = lake.begin()
    lake.publish(1)
    new = lake.begin()
    lines = lake.lines.dataset_id
    _, state = lake.read(lambda db: take(db, lines, FROM_BEGINNING, new))

    changes, same = lake.read(lambda db: take(db, lines, state, old))

    assert changes == []
    assert same is state


def test_an_aborted_transaction_is_forgotten_and_never_delivered(lake):
    """A list of what to check that only grows would make each take slower than the one before."""
    slow = lake.begin()
    consumer = PartitionConsumer(lake.lines.dataset_id)
    reader = lake.begin()
    lake.read(lambda db: list(consumer.consume_partitions(db, reader)))
    checked = consumer.state.versions_to_check
    lake.end(slow)

    following = lake.begin()
    changes = lake.read(lambda db: list(consumer.consume_partitions(db, following)))

    assert checked == (slow.write_pointer,)
    assert changes == []
    assert slow.write_pointer not in consumer.state.versions_to_check


def test_a_state_survives_being_stored() -> None:
    """The caller keeps it where its output is (seed 000, example)."""
    state = PartitionConsumerState(WritePointer(2**40), (WritePointer(3), WritePointer(2**33)))

    assert PartitionConsumerState.from_bytes(state.to_bytes()) == state
    assert PartitionConsumerState.from_bytes(FROM_BEGINNING.to_bytes()) == PartitionConsumerState.FROM_BEGINNING


@pytest.mark.parametrize(
    "stored",
    [b"", b"\0" * 20, FROM_BEGINNING.to_bytes()[:-1], FROM_BEGINNING.to_bytes() + b"\0", FROM_BEGINNING.to_bytes()[1:]],
)
def test_a_lost_or_cut_state_fails_loudly(stored: bytes) -> None:
    """Taken as zero, it would deliver everything a second time."""
    with pytest.raises(BadState):
        PartitionConsumerState.from_bytes(stored)


@pytest.mark.parametrize(("start", "versions"), [(-1, ()), (5, (5,)), (5, (0,)), (5, (3, 2)), (5, (2, 2))])
def test_a_state_that_no_take_gave_is_refused(start: int, versions: tuple[int, ...]) -> None:
    """A state that exists is valid."""
    with pytest.raises(BadState):
        PartitionConsumerState(WritePointer(start), tuple(map(WritePointer, versions)))
