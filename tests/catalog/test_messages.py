from __future__ import annotations

import threading

import pytest

from tests.catalog.conftest import OpenCatalog
from tests.catalog.counting import CountingProxy
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import (
    MOST_PAYLOAD_BYTES,
    Message,
    MessageTooLarge,
    Position,
    Publish,
    Topic,
    lock_position,
    move_position,
    read_messages,
)
from tidemill.names import EventKey

START = Position(0, -1)
CLICKS = EventKey("partition:default.clicks")


def _publish(catalog: Catalog, *texts: str, topic: Topic = Topic.DATA) -> int:
    return catalog.apply([Publish(topic, "partitions", CLICKS, {"text": text}) for text in texts])


def _read(catalog: Catalog, after: Position = START, limit: int = 100, topic: Topic = Topic.DATA) -> list[Message]:
    return catalog.read(lambda db: read_messages(db, topic, after, limit))


def _texts(messages: list[Message]) -> list[object]:
    return [message.payload["text"] for message in messages]


def test_messages_come_in_the_order_of_commits(catalog: Catalog) -> None:
    """Within a commit in the order in which it published them."""
    first = _publish(catalog, "a", "b")
    second = _publish(catalog, "c")
    _publish(catalog, "elsewhere", topic=Topic.PROGRAM)

    messages = _read(catalog)

    assert [(m.position, m.payload["text"]) for m in messages] == [
        (Position(first, 0), "a"),
        (Position(first, 1), "b"),
        (Position(second, 0), "c"),
    ]
    assert {(m.topic, m.event_type, m.event_key) for m in messages} == {("data", "partitions", CLICKS)}
    assert all(m.at.utcoffset() is not None for m in messages)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_reading_in_pages_gives_each_message_once(catalog: Catalog, limit: int) -> None:
    """A page may end in the middle of a commit."""
    for number in range(4):
        _publish(catalog, f"{number}a", f"{number}b", f"{number}c")

    pages, after = [], START
    while page := _read(catalog, after, limit):
        pages += page
        after = page[-1].position

    assert _texts(pages) == [f"{number}{letter}" for number in range(4) for letter in "abc"]


def test_a_payload_comes_back_as_it_was_published(catalog: Catalog) -> None:
    """Keys of partitions are in it."""
    payload = {"keys": ["city=São Paulo", "day='x\\"], "count": 2, "nested": {"a": [None, True, 1.5]}}
    catalog.apply([Publish(Topic.DATA, "t", CLICKS, payload)])

    assert _read(catalog)[0].payload == payload


def test_a_payload_has_a_limit(catalog: Catalog) -> None:
    """Data go through data sets."""
    with pytest.raises(MessageTooLarge, match=CLICKS):
        _publish(catalog, "x" * MOST_PAYLOAD_BYTES)

    assert _read(catalog) == []


def test_a_position_is_held_by_one(postgres_catalog_url: str, open_at: OpenCatalog) -> None:
    """Two schedulers of one topic would make two jobs of one message. On SQLite the second waits for the first."""
    catalog, other = open_at(postgres_catalog_url), open_at(postgres_catalog_url)

    def hold(db: Db) -> tuple[Position | None, Position | None]:
        mine = lock_position(db, Topic.DATA, "scheduler")
        theirs = other.write(lambda db: lock_position(db, Topic.DATA, "scheduler"))
        return mine, theirs

    catalog.write(lambda db: lock_position(db, Topic.DATA, "scheduler"))
    at_once = catalog.write(hold)
    after = other.write(lambda db: lock_position(db, Topic.DATA, "scheduler"))

    assert at_once == (START, None)
    assert after == START


def test_a_position_is_inserted_only_where_there_is_none(postgres_catalog_url: str, open_at: OpenCatalog) -> None:
    """An insertion waits for the process that moves the position: 166 of 215 lock waits were that."""
    with CountingProxy(postgres_catalog_url) as line:
        catalog = open_at(line.url)
        sent = []
        for _ in range(2):
            line.take()
            catalog.write(lambda db: lock_position(db, Topic.DATA, "scheduler"))
            sent.append(line.take())

    assert [counted["messages.add_position"] for counted in sent] == [1, 0]
    assert [counted["messages.find_position"] for counted in sent] == [1, 0]
    assert [counted["messages.lock_position"] for counted in sent] == [2, 1]


def test_readers_that_take_turns_read_each_message_once(catalog: Catalog, open_again: OpenCatalog) -> None:
    """The process that holds the position moves it in the transaction of the messages' effects."""
    for number in range(30):
        _publish(catalog, str(number))
    read: list[object] = []

    def turn(db: Db) -> list[object] | None:
        position = lock_position(db, Topic.DATA, "scheduler")
        if position is None:
            return []
        messages = read_messages(db, Topic.DATA, position, 4)
        if not messages:
            return None
        move_position(db, Topic.DATA, "scheduler", messages[-1].position)
        return _texts(messages)

    def reader(mine: Catalog) -> None:
        while (texts := mine.write(turn)) is not None:
            read.extend(texts)

    threads = [threading.Thread(target=reader, args=(open_again(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(map(str, read)) == sorted(map(str, range(30)))


def test_a_position_stays_when_the_work_fails(catalog: Catalog) -> None:
    """Moved before, a crash would skip messages."""
    seq = _publish(catalog, "a")

    def fail(db: Db) -> None:
        lock_position(db, Topic.DATA, "scheduler")
        move_position(db, Topic.DATA, "scheduler", Position(seq, 0))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        catalog.write(fail)

    assert catalog.write(lambda db: lock_position(db, Topic.DATA, "scheduler")) == START


def test_subscribers_have_positions_of_their_own(catalog: Catalog) -> None:
    """Each subscriber has a position in each topic."""
    catalog.write(lambda db: lock_position(db, Topic.DATA, "a"))
    catalog.write(lambda db: move_position(db, Topic.DATA, "a", Position(7, 1)))

    found = [
        catalog.write(lambda db, topic=topic, name=name: lock_position(db, topic, name))
        for topic, name in [(Topic.DATA, "a"), (Topic.DATA, "b"), (Topic.PROGRAM, "a")]
    ]

    assert found == [Position(7, 1), START, START]
