"""File sets: conflicts between commits, and the content that a snapshot sees."""

from __future__ import annotations

import json

import pytest

from tests.lake.conftest import SCHEMA, make_fileset
from tidemill.catalog.messages import MOST_PAYLOAD_BYTES, Position, read_messages
from tidemill.catalog.transactions import DatasetDropped, UndeclaredOutput, begin, commit
from tidemill.errors import NotFound
from tidemill.lake.datasets import DatasetClash, DatasetKind, declare, drop_dataset, find
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Unpin, WriteOp, find_schema, pin, read_partitions
from tidemill.lake.fileset.publish import (
    AddPartitions,
    PartitionConflict,
    PartitionExists,
    PartitionWrite,
    SchemaChanged,
    TooManyPartitions,
    fold,
    see_own,
)
from tidemill.names import DatasetId, Namespace, PinId, RunId
from tidemill.shapes.keys import BadKey
from tidemill.shapes.manifest import Manifest


def rows_by_hour(lake, snapshot):
    """Return the rows that `snapshot` sees, by hour."""
    partitions = lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, snapshot))
    return {lake.hour(partition.partition_key): partition.rows for partition in partitions}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("create", "create"), ("create", "append"), ("create", "overwrite"), ("append", "overwrite")]
    + [("overwrite", op) for op in ("create", "append", "overwrite")],
)
def test_the_first_committer_wins(lake, mine, theirs):
    """Both worked on the state at their begin; the loser would undo, or build on, what it has not seen."""
    loser, winner = lake.begin(), lake.begin("run_winner")
    lake.commit(winner, lake.write(5, theirs))

    with pytest.raises(PartitionConflict, match=r"hour=5 of default.lines was .* by run_winner") as caught:
        lake.commit(loser, lake.write(4), lake.write(5, mine))

    assert caught.value.write_pointer == winner.write_pointer
    assert rows_by_hour(lake, lake.begin()) == {5: 1}


@pytest.mark.parametrize(("mine", "theirs"), [("append", "append"), ("append", "create")])
def test_appends_do_not_conflict(lake, mine, theirs):
    """Each only adds: both orders give the same content."""
    second, first = lake.begin(), lake.begin()
    lake.commit(first, lake.write(5, theirs, rows=2))

    lake.commit(second, lake.write(5, mine, rows=3))

    assert rows_by_hour(lake, lake.begin()) == {5: 5}


@pytest.mark.parametrize(("op", "rows"), [("append", 5), ("overwrite", 3)])
def test_what_was_there_before_the_begin_is_no_conflict(lake, op, rows):
    """The transaction has seen that change."""
    lake.publish(5, rows=2)

    lake.publish(5, op, rows=3)

    assert rows_by_hour(lake, lake.begin()) == {5: rows}


def test_create_of_an_existing_partition_publishes_nothing(lake):
    """By default a partition is published twice only if the program asks for it."""
    lake.publish(5)
    tx = lake.begin()

    with pytest.raises(PartitionExists, match=r"hour=5 of default.lines exists: run_0"):
        lake.commit(tx, lake.write(4, "create"), lake.write(5, "create"))

    assert rows_by_hour(lake, lake.begin()) == {5: 1}


def test_a_snapshot_sees_the_same_whatever_commits_later(lake):
    """A run reads its snapshot even when a partition is overwritten meanwhile, twice."""
    lake.publish(1, rows=1)
    lake.publish(1, rows=2)
    lake.publish(2, rows=4)
    before = lake.begin()
    expected = rows_by_hour(lake, before)
    lake.publish(1, "overwrite", rows=10)
    lake.publish(1, rows=20)
    lake.publish(1, "overwrite", rows=40)
    lake.publish(3, rows=80)

    assert expected == {1: 3, 2: 4}
    assert rows_by_hour(lake, before) == expected
    assert rows_by_hour(lake, lake.begin()) == {1: 40, 2: 4, 3: 80}


def test_what_began_before_and_commits_after_is_not_seen(lake):
    """Visibility goes by the commit, not by the write pointer."""
    slow = lake.begin()
    reader = lake.begin()
    lake.commit(slow, lake.write(1))

    assert rows_by_hour(lake, reader) == {}


def test_a_transaction_sees_its_own_writes(lake):
    """A program can read its own writes before any other process can."""
    lake.publish(1, rows=1)
    lake.publish(2, rows=2)
    tx = lake.begin()
    partitions = lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, tx))
    own = fold(lake.lines, [lake.write(1, "append", 10), lake.write(2, "overwrite", 20), lake.write(0, "create", 40)])

    seen = see_own(lake.lines, partitions, tx, own)

    assert [(lake.hour(partition.partition_key), partition.rows) for partition in seen] == [(0, 40), (1, 11), (2, 20)]
    assert rows_by_hour(lake, tx) == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("ops", "op", "rows"),
    [
        (["append", "append"], "append", 3),
        (["create", "append"], "create", 3),
        (["overwrite", "append"], "overwrite", 3),
        (["append", "overwrite"], "overwrite", 2),
        (["create", "overwrite"], "create", 2),
        (["overwrite", "overwrite"], "overwrite", 2),
        (["append", "overwrite", "append"], "overwrite", 6),
    ],
)
def test_several_operations_on_a_key_fold_to_one(lake, ops, op, rows):
    """A change row for each key and transaction: a consumer is delivered the net effect, once."""
    writes = [lake.write(5, each, rows=1 << place) for place, each in enumerate(ops)]

    (folded,) = fold(lake.lines, writes)

    assert (folded.op, folded.manifest.total_rows) == (WriteOp(op), rows)


@pytest.mark.parametrize("before", ["create", "append", "overwrite"])
def test_a_create_of_what_the_run_itself_wrote_is_refused(lake, before):
    """Its own write is there."""
    with pytest.raises(PartitionExists):
        fold(lake.lines, [lake.write(5, before), lake.write(5, "create")])


def test_a_commit_to_an_undeclared_data_set_is_refused(lake):
    """Consumers rely on the list of transactions that may still write to a data set. The begin makes the list."""
    tx = begin(lake.catalog, run_id=RunId("run_x"), epoch=1)

    with pytest.raises(UndeclaredOutput, match=r"default.lines"):
        AddPartitions(tx, lake.lines, [lake.write(1)], SCHEMA, frozenset())


def test_a_transaction_that_would_write_to_a_dropped_data_set_is_not_begun(lake):
    """The data set was looked up before it was dropped. No reader would see the rows, and the files would stay."""
    lake.catalog.write(lambda db: drop_dataset(db, lake.lines.dataset))

    with pytest.raises(DatasetDropped, match=r"default.lines was dropped"):
        lake.begin()


def test_a_commit_of_too_many_partitions_is_refused(lake):
    """A message to the database has a limited size."""
    tx = lake.begin()
    writes = [PartitionWrite((hour,), WriteOp.CREATE, Manifest(())) for hour in range(50_001)]

    with pytest.raises(TooManyPartitions, match="50001"):
        AddPartitions(tx, lake.lines, writes, SCHEMA, frozenset())


def test_messages_tell_of_at_most_500_keys_each(lake):
    """A trigger counts keys; a message of 50,000 of them would be megabytes for each schedule that hears of it."""
    lake.publish(7)
    lake.publish(8)
    after = lake.begin().write_pointer
    tx = lake.begin()
    writes = [lake.write(hour, "create") for hour in range(10, 1010)]
    seq = lake.commit(tx, lake.write(7, "append", 3), lake.write(8, "overwrite"), *writes)

    messages = lake.read(lambda db: read_messages(db, "data", Position(after, 0), 10))

    assert [(m.seq, m.n, len(m.payload["partitions"])) for m in messages] == [(seq, 0, 500), (seq, 1, 500), (seq, 2, 2)]
    assert [m.payload["count"] for m in messages] == [500, 500, 2]
    assert {m.event_key for m in messages} == {"partition:default.lines"}
    assert messages[0].payload["partitions"][:3] == [
        {"key": "hour=7", "kind": "appended", "rows": 3, "bytes": 30},
        {"key": "hour=8", "kind": "overwritten", "rows": 1, "bytes": 10},
        {"key": "hour=10", "kind": "new", "rows": 1, "bytes": 10},
    ]


def test_messages_are_cut_by_size_too(lake):
    """Partitions with long keys are no reason to refuse a commit: 410 of them once were."""
    names = [f"k{number}" for number in range(8)]
    dataset = make_fileset("/lake/long", dict.fromkeys(names, "string"), "long").dataset
    fileset = Fileset.of(lake.catalog.write(lambda db: declare(db, dataset)))
    keys = [fileset.keys.check(dict.fromkeys(names, f"{number:04}" + "ä" * 70)) for number in range(410)]
    tx = begin(lake.catalog, run_id=RunId("run_x"), epoch=1, writes=[fileset.dataset_id])
    writes = [PartitionWrite(key, WriteOp.CREATE, Manifest(())) for key in keys]

    commit(lake.catalog, tx, [AddPartitions(tx, fileset, writes, SCHEMA, frozenset())])

    messages = lake.read(lambda db: read_messages(db, "data", Position(0, -1), 100))
    assert len(messages) > 1
    assert [m.n for m in messages] == list(range(len(messages)))
    assert {m.seq for m in messages} == {messages[0].seq}
    assert [p["key"] for m in messages for p in m.payload["partitions"]] == [fileset.keys.show(key) for key in keys]
    assert [m.payload["count"] for m in messages] == [len(m.payload["partitions"]) for m in messages]
    assert max(len(json.dumps(m.payload, separators=(",", ":"))) for m in messages) <= MOST_PAYLOAD_BYTES


def test_other_columns_than_the_first_commits_are_refused(lake):
    """Readers would find a column missing in half of the files; also when both first writers come at once."""
    other = ColumnSchema(SCHEMA.text.replace('"long"', '"string"'))
    slow = lake.begin()
    lake.publish(1)

    with pytest.raises(SchemaChanged, match="has the columns id long; nothing with the columns id string"):
        lake.commit(slow, effects=[lake.add(slow, lake.write(2), schema=other)])

    assert lake.read(lambda db: find_schema(db, lake.lines.dataset_id)) == SCHEMA


def test_a_pin_lasts_until_the_run_gives_it_up(lake):
    """A process that deletes files must know which files a reader still needs."""
    tx = lake.begin()
    lake.catalog.write(lambda db: pin(db, PinId("pin_1"), lake.lines.dataset_id, tx, tx.run_id))

    lake.end(tx, Unpin(tx.run_id))

    lake.catalog.write(lambda db: pin(db, PinId("pin_1"), lake.lines.dataset_id, tx, tx.run_id))
    with pytest.raises(NotFound):
        lake.catalog.write(lambda db: pin(db, PinId("pin_2"), DatasetId("dataset_x"), tx, tx.run_id))


def declared(lake, **changes):
    """The file set of the tests, declared again with `changes`."""
    same = lake.lines.dataset
    values = {name: getattr(same, name) for name in ("dataset_id", "namespace", "name", "kind", "location", "spec")}
    return type(same)(**(values | changes))


def test_a_data_set_declared_again_keeps_its_id(lake):
    """Deployment declares everything each time; change rows name the id."""
    again = declared(lake, dataset_id=DatasetId("dataset_new"))

    kept = lake.catalog.write(lambda db: declare(db, again))

    assert kept.dataset_id == lake.lines.dataset_id


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": DatasetKind.INBOX}, "of kind fileset, not inbox"),
        ({"app": "other"}, "belongs to app None"),
        ({"spec": {"keys": {"day": "date"}}}, "keys"),
        ({"location": "file:///lake/other"}, "has its files at"),
        ({"name": "inner", "location": "file:///lake/lines/x"}, "shares its location with default.lines"),
        ({"name": "outer", "location": "file:///lake"}, "shares its location"),
        ({"name": "same", "location": "file:///lake/lines"}, "shares its location"),
    ],
)
def test_a_declaration_that_mixes_up_data_sets_is_refused(lake, changes, why):
    """The janitor of one data set would delete files of another, or published files would lie where no reader looks."""
    wanted = declared(lake, **changes)

    with pytest.raises(DatasetClash, match=why):
        lake.catalog.write(lambda db: declare(db, wanted))


def test_a_mistyped_data_set_is_answered_with_the_nearest_name(lake):
    """A person sees what was meant."""
    with pytest.raises(NotFound, match=r"did you mean 'default\.lines'") as caught:
        lake.read(lambda db: find(db, Namespace("default"), "lnies"))

    assert caught.value.exit_code == 4


def test_a_stored_key_of_other_fields_fails_loudly(lake):
    """A catalog whose key schema does not match its rows must not guess."""
    days = Fileset.of(declared(lake, spec={"keys": {"day": "date"}}))

    with pytest.raises(BadKey):
        days.show(lake.lines.keys.encode((5,)))
