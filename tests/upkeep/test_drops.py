"""Drops, metadata, evolved columns and what has expired, as audit, fsck and restore see them."""

from __future__ import annotations

from datetime import timedelta

from tests.run.conftest import by_hand
from tests.upkeep.conftest import EVERYTHING
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import read_partitions
from tidemill.lake.janitor import sweep
from tidemill.run.processes.external import open_transaction
from tidemill.run.processes.partitions import drop_matching
from tidemill.shapes.filters import make_filter
from tidemill.testing.plain import write_texts
from tidemill.upkeep.audit import audit
from tidemill.upkeep.backup import write_backup
from tidemill.upkeep.fsck import fsck
from tidemill.upkeep.restore import adopt, restore


def drop(house, source):
    """Drop a partition."""
    drop_matching(house.catalog, house.catalog.world, house.lines, make_filter(house.lines.keys, {"source": source}))


def describe(house, source, **entries):
    """Set metadata of a partition."""
    with open_transaction(house.catalog, house.catalog.world, ["default.lines"], writer=write_texts) as tx:
        tx.fileset("default.lines").describe({"source": source}, set=entries)


def metadata(house):
    """All metadata, by source."""
    lines = house.lines
    partitions = house.catalog.read(lambda db: read_partitions(db, lines.dataset_id, Snapshot(EVERYTHING, "")))
    return {lines.show(one.partition_key): one.metadata for one in partitions}


def test_drops_and_metadata_after_the_backup_come_back_with_their_order(house, tmp_path):
    """Adopted without them, a dropped partition would be there again, and stay."""
    for source in ("a", "b", "c"):
        house.publish(source, f"{source} before\n")
    write_backup(house.catalog, tmp_path / "catalog.backup")
    describe(house, "a", checked="yes")
    drop(house, "b")
    house.publish("c", "c after\n", "overwrite")
    drop(house, "c")
    house.publish("c", "c again\n", "create")
    house.publish("d", "d\n")
    drop(house, "d")
    content, said = house.content(), metadata(house)

    restore(house.catalog, tmp_path / "catalog.backup", replace=True)
    adopted = adopt(house.catalog)

    assert adopted.left == ()
    assert adopted.transactions == 7
    assert house.content() == content == {"a": ["a before\n"], "c": ["c again\n"]}
    assert metadata(house) == said == {"source=a": {"checked": "yes"}, "source=c": {}}
    assert audit(house.catalog).findings == ()
    assert fsck(house.catalog, [house.lines]).clean


def test_what_has_expired_is_no_finding(house):
    """Neither while its files wait for the janitor nor when they are gone."""
    house.publish("a", "a\n")
    house.publish("a", "a new\n", "overwrite")
    house.publish("b", "b\n")
    drop(house, "b")
    describe(house, "a", checked="yes")
    expired = expire_superseded(house.catalog, timedelta(0))

    waiting = fsck(house.catalog, [house.lines])
    house.catalog.write(lambda db: db.run(by_hand("UPDATE garbage SET not_before = 1")))
    sweep(house.catalog)
    gone = fsck(house.catalog, [house.lines])

    assert expired == 3
    assert waiting.clean
    assert gone.clean
    assert gone.changes == 2
    assert sum(house.directories().values()) == 2
    assert audit(house.catalog).findings == ()
    assert house.content() == {"a": ["a new\n"]}
