"""The seed's consumer: every change once, whatever commits when."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from tidemill.lake.consumer.consumer import (
    FROM_BEGINNING,
    BadState,
    PartitionConsumer,
    PartitionConsumerState,
    consume_partitions,
    take,
)
from tidemill.names import DatasetId, WritePointer
from tidemill.shapes.filters import Range, make_filter


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
    lines = lake.lines.dataset_id

    first, state = lake.read(lambda db: take(db, lines, FROM_BEGINNING, reader))
    following = lake.begin()
    second, _ = lake.read(lambda db: take(db, lines, state, following))

    assert first == []
    assert state == PartitionConsumerState(reader.write_pointer, (early.write_pointer,))
    assert lake.hours(second) == [9, 10]


def test_what_a_transaction_adds_itself_comes_with_the_next_take(lake):
    """Its own pointer is left out of the scan (seed 000, note), else what it adds after the scan would be lost."""
    lines = lake.lines.dataset_id
    own = lake.begin()

    first, state = lake.read(lambda db: take(db, lines, FROM_BEGINNING, own))
    lake.commit(own, lake.write(1))
    following = lake.begin()
    second, _ = lake.read(lambda db: take(db, lines, state, following))

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
    lines = lake.lines.dataset_id
    reader = lake.begin()
    _, before = lake.read(lambda db: take(db, lines, FROM_BEGINNING, reader))
    lake.end(slow)

    following = lake.begin()
    changes, after = lake.read(lambda db: take(db, lines, before, following))

    assert before.versions_to_check == (slow.write_pointer,)
    assert changes == []
    assert slow.write_pointer not in after.versions_to_check


class OneFileset:
    """Source of a `PartitionConsumer`, as a mill is one."""

    def __init__(self, lake) -> None:
        self.lake = lake
        self.consumers = self

    def consume_partitions(self, dataset, state, *, where=None):
        """As of the only file set there is."""
        assert dataset == "default.lines"
        return consume_partitions(self.lake.catalog, self.lake.lines, state, make_filter(self.lake.lines.keys, where))


def test_a_consumer_says_of_each_partition_what_is_new_in_it(lake):
    """Users read whole paths, and must know whether to add to what they have or to replace it."""
    consumer = PartitionConsumer(OneFileset(lake), "default.lines")
    for hour in (2, 1):
        lake.publish(hour)
    first = list(consumer.consume_partitions())
    appended = lake.publish(1, rows=3)
    lake.publish(1, rows=4)
    lake.publish(2, "overwrite")
    lake.publish(3, "overwrite")

    second = list(consumer.consume_partitions())

    assert [(p.key, p.kind, p.rows) for p in first] == [({"hour": 2}, "new", 1), ({"hour": 1}, "new", 1)]
    assert [(p.key, p.kind, p.rows, p.bytes) for p in second] == [
        ({"hour": 1}, "appended", 7, 70),
        ({"hour": 2}, "overwritten", 1, 10),
        ({"hour": 3}, "new", 1, 10),
    ]
    assert [len(p.files) for p in second] == [2, 1, 1]
    assert second[0].files[0].startswith(f"/lake/lines/tx-{appended.write_pointer}-")
    assert list(consumer.consume_partitions()) == []


def test_a_consumer_passes_over_what_its_filter_does_not_accept(lake):
    """For good: the state has moved beyond it."""
    consumer = PartitionConsumer(OneFileset(lake), "default.lines", where={"hour": Range(2)})
    for hour in (1, 2, 3):
        lake.publish(hour)

    found = [partition.key["hour"] for partition in consumer.consume_partitions()]

    assert found == [2, 3]
    assert consume_partitions(lake.catalog, lake.lines, consumer.state).partitions == []


def test_a_consumer_leaves_out_what_was_overwritten_before_it_looked(lake):
    """Beside what replaced it, it would count twice."""
    lake.publish(1, rows=5)
    lake.publish(1, rows=6)
    lake.publish(1, "overwrite", rows=2)

    [partition], _ = consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING)

    assert (partition.kind, partition.rows, len(partition.files)) == ("overwritten", 2, 1)


def test_a_consumer_without_transaction_misses_nothing_that_commits_late(lake):
    """The consumer has no write pointer: its snapshot is a tick of the clock."""
    slow = lake.begin()
    lake.publish(11)
    first, state = consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING)
    lake.commit(slow, lake.write(10))
    lake.publish(12)

    second, state = consume_partitions(lake.catalog, lake.lines, state)
    third, _ = consume_partitions(lake.catalog, lake.lines, PartitionConsumerState.from_bytes(state.to_bytes()))

    assert [p.key["hour"] for p in first] == [11]
    assert [p.key["hour"] for p in second] == [10, 12]
    assert third == []


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


def test_a_state_of_another_catalog_fails_loudly(lake) -> None:
    """Ahead of the clock it would give nothing, for ever, without a word."""
    state = PartitionConsumerState(WritePointer(10_000), ())

    with pytest.raises(BadState, match="clock"):
        consume_partitions(lake.catalog, lake.lines, state)


def test_a_state_of_another_data_set_is_refused(lake):
    """Its write pointers mean something here too, so that changes would be skipped without a word."""
    lake.publish(1)
    _, state = consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING)
    stored = PartitionConsumerState.from_bytes(replace(state, dataset_id=DatasetId("ds_other")).to_bytes())

    with pytest.raises(BadState, match=f"ds_other, and default.lines is {lake.lines.dataset_id}"):
        consume_partitions(lake.catalog, lake.lines, stored)


def test_a_state_of_the_first_version_is_read_still(lake):
    """A state of the first version names no data set. The state that is stored next names one."""
    lake.publish(1)
    numbers = struct.pack(">3q", 7, 3, 5)
    content = b"TMPC\x01" + numbers
    old = PartitionConsumerState.from_bytes(content + struct.pack(">I", zlib.crc32(content)))
    _, now = consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING)

    assert old == PartitionConsumerState(WritePointer(7), (WritePointer(3), WritePointer(5)))
    assert now.dataset_id == lake.lines.dataset_id
    assert PartitionConsumerState.from_bytes(now.to_bytes()) == now
