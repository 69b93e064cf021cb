"""Publishing: drops, metadata and changes of columns, against what others commit and within one transaction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lake.conftest import SCHEMA
from tidemill.catalog.messages import Position, read_messages
from tidemill.catalog.transactions import commit
from tidemill.lake.fileset.columns import column_schema
from tidemill.lake.fileset.fileset import Fileset, WriteOp, find_schema, read_partitions
from tidemill.lake.fileset.publish import (
    AddPartitions,
    MetadataConflict,
    PartitionConflict,
    PartitionWrite,
    SchemaConflict,
    fold,
    see_own,
)
from tidemill.shapes.filters import Range, make_filter

WIDER = column_schema([{"name": "id", "type": "long"}, {"name": "a", "type": "string"}])
OTHER = column_schema([{"name": "id", "type": "long"}, {"name": "b", "type": "string"}])


def drop(lake, hour):
    """The drop of one partition."""
    return PartitionWrite(lake.lines.keys.check({"hour": hour}), WriteOp.DROP)


def describe(lake, hour, **entries):
    """A change of metadata alone."""
    key = lake.lines.keys.check({"hour": hour})
    return PartitionWrite(key, WriteOp.APPEND, metadata=entries, claimed=frozenset(entries))


def see(lake, where=None):
    """Rows by hour, as of now."""
    snapshot = lake.begin()
    accepted = make_filter(lake.lines.keys, where)
    found = lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, snapshot, accepted))
    return {lake.hour(partition.partition_key): partition.rows for partition in found}


def metadata(lake, hour=5):
    """The metadata of one partition, as of now."""
    snapshot = lake.begin()
    (found,) = lake.read(
        lambda db: read_partitions(db, lake.lines.dataset_id, snapshot, make_filter(lake.lines.keys, {"hour": hour}))
    )
    return found.metadata


def test_a_filter_finds_the_same_as_looking_at_all(lake):
    """Only what lies within its bounds is read."""
    for hour in (-3, 1, 2, 10):
        lake.publish(hour)
    lake.publish(2, "overwrite", rows=7)

    assert see(lake, {"hour": Range(1, 10)}) == {1: 1, 2: 7}
    assert see(lake, {"hour": {-3, 10}}) == {-3: 1, 10: 1}


def test_a_dropped_partition_is_gone_for_new_readers_only(lake):
    """A run reads its snapshot, whatever is dropped meanwhile."""
    lake.publish(5, rows=2)
    before = lake.begin()
    tx = lake.begin()
    lake.commit(tx, drop(lake, 5))

    seen = lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, before))

    assert [partition.rows for partition in seen] == [2]
    assert see(lake) == {}


def test_what_is_made_again_after_a_drop_is_new(lake):
    """Triggers and consumers get no message about a drop, so a partition created again is new to them."""
    lake.publish(5, rows=2)
    lake.commit(lake.begin(), drop(lake, 5))

    lake.publish(5, "create", rows=3)

    messages = lake.read(lambda db: read_messages(db, "data", Position(0, -1), 10))
    kinds = [partition["kind"] for message in messages for partition in message.payload["partitions"]]
    assert kinds == ["new", "new"]
    assert see(lake) == {5: 3}
    (delivery,) = lake.take(lake.begin())
    assert (delivery.kind, [change.manifest.total_rows for change in delivery.changes]) == ("new", [3])


@pytest.mark.parametrize("theirs", ["append", "overwrite", "drop", "describe"])
@pytest.mark.parametrize("mine", ["overwrite", "drop"])
def test_what_replaces_a_partition_conflicts_with_all_that_happened_to_it(lake, mine, theirs):
    """The write would undo a change that it has not seen."""
    lake.publish(5)
    makers = {"drop": drop, "describe": lambda lake, hour: describe(lake, hour, a="1")}
    loser, winner = lake.begin(), lake.begin()
    lake.commit(winner, makers.get(theirs, lambda lake, hour: lake.write(hour, theirs))(lake, 5))

    with pytest.raises(PartitionConflict):
        lake.commit(loser, makers.get(mine, lambda lake, hour: lake.write(hour, mine))(lake, 5))


@pytest.mark.parametrize("mine", ["append", "describe"])
def test_adding_to_what_was_dropped_meanwhile_is_a_conflict(lake, mine):
    """The partition would come back with a part of its content."""
    lake.publish(5)
    loser = lake.begin()
    lake.commit(lake.begin(), drop(lake, 5))

    with pytest.raises(PartitionConflict, match="was dropped by"):
        lake.commit(loser, lake.write(5) if mine == "append" else describe(lake, 5, a="1"))


def test_metadata_joins_and_goes_with_its_partition(lake):
    """Appending merges, overwriting replaces, None removes."""
    lake.commit(lake.begin(), replace(lake.write(5), metadata={"a": "1", "b": "1"}))
    lake.commit(lake.begin(), replace(lake.write(5), metadata={"b": "2"}))
    lake.commit(lake.begin(), describe(lake, 5, c="3", a=None))
    joined = metadata(lake)

    lake.commit(lake.begin(), replace(lake.write(5, "overwrite"), metadata={"d": "4"}))

    assert joined == {"b": "2", "c": "3"}
    assert metadata(lake) == {"d": "4"}


def test_metadata_alone_is_not_delivered(lake):
    """No rows came."""
    lake.publish(5)
    first = lake.begin()
    lake.take(first)
    lake.complete(first)

    lake.commit(lake.begin(), describe(lake, 5, a="1"))

    assert lake.take(lake.begin()) == []


def test_only_the_same_name_conflicts(lake):
    """Two tools describe one partition without knowing of each other. Case counts, and values are no names."""
    lake.publish(5)
    mine, other, same = lake.begin(), lake.begin(), lake.begin()
    lake.commit(mine, describe(lake, 5, a='"b":"A":', B="1"))

    lake.commit(other, describe(lake, 5, b="2", A="3"))
    with pytest.raises(MetadataConflict, match=r"metadata 'a' of partition hour=5 of default.lines"):
        lake.commit(same, describe(lake, 5, a="4"))

    assert metadata(lake) == {"a": '"b":"A":', "b": "2", "A": "3", "B": "1"}


@pytest.mark.parametrize(
    ("ops", "op", "rows"),
    [
        (["create", "drop"], None, None),
        (["create", "append", "drop", "append"], "append", 8),
        (["append", "drop"], "drop", 0),
        (["overwrite", "drop"], "drop", 0),
        (["drop", "append"], "overwrite", 2),
        (["drop", "create"], "overwrite", 2),
        (["drop", "overwrite"], "overwrite", 2),
        (["drop", "create", "drop"], "drop", 0),
    ],
)
def test_drops_fold_with_what_else_one_transaction_does(lake, ops, op, rows):
    """Each key has one change row. A partition that is created and then dropped has none."""
    writes = [drop(lake, 5) if op == "drop" else lake.write(5, op, rows=2**n) for n, op in enumerate(ops)]

    folded = fold(lake.lines, writes)

    assert [(write.op, write.manifest.total_rows) for write in folded] == ([] if op is None else [(op, rows)])


def test_a_transaction_sees_what_it_dropped_and_described(lake):
    """As it sees what it wrote."""
    lake.publish(1)
    lake.publish(2)
    tx = lake.begin()
    seen = lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, tx))

    own = see_own(lake.lines, seen, tx, fold(lake.lines, [drop(lake, 1), describe(lake, 2, a="1")]))

    assert [(lake.hour(one.partition_key), one.rows, one.metadata) for one in own] == [(2, 1, {"a": "1"})]


def evolving(lake):
    """The file set under the policy `evolve`."""
    dataset = lake.lines.dataset
    lake.lines = Fileset.of(replace(dataset, spec={**dataset.spec, "policy": "evolve"}))
    return lake


def add(lake, tx, hour, schema, base):
    """The effect of a write whose columns were made from `base`."""
    return AddPartitions(tx, lake.lines, [lake.write(hour)], schema, frozenset(), base=base)


def test_columns_evolve_from_the_newest_only(lake):
    """If two transactions add columns at once, the second would lose the columns of the first."""
    lake = evolving(lake)
    oldest, late, first, plain = (lake.begin() for _ in range(4))
    commit(lake.catalog, oldest, [add(lake, oldest, 1, SCHEMA, None)])
    commit(lake.catalog, first, [add(lake, first, 2, WIDER, SCHEMA)])

    with pytest.raises(SchemaConflict, match=f"were changed by {first.run_id}"):
        commit(lake.catalog, late, [add(lake, late, 3, OTHER, SCHEMA)])
    commit(lake.catalog, plain, [add(lake, plain, 4, SCHEMA, SCHEMA)])

    assert lake.read(lambda db: find_schema(db, lake.lines.dataset_id)) == WIDER
    assert see(lake) == {1: 1, 2: 1, 4: 1}
