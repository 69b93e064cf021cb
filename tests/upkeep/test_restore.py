"""A catalog that is lost and comes back from its backup, and what becomes of the life between (R17)."""

from __future__ import annotations

import dataclasses
import gzip
import re

import pytest

from tests.lake.conftest import SQL as LAKE
from tests.run.conftest import rows_of
from tests.upkeep.conftest import House
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.janitor import sweep
from tidemill.lake.snapshot.snapshot import SnapshotDataset, SnapshotSpec, find_visible
from tidemill.names import DatasetId, Namespace, WritePointer
from tidemill.run.processes.external import open_transaction, outputs_of
from tidemill.shapes.manifest import DamagedManifest
from tidemill.storage.locations import open_files
from tidemill.testing.plain import write_texts
from tidemill.upkeep.audit import audit
from tidemill.upkeep.backup import BadBackup, check_backup, write_backup
from tidemill.upkeep.fsck import DifferenceKind, fsck
from tidemill.upkeep.restore import CatalogInUse, Restored, adopt, restore
from tidemill.upkeep.storage import DirectoryKind
from tidemill.world import World


class Crash(BaseException):
    """The end of the process."""


def live_on(house: House, commits: int, aborts: int) -> None:
    """A life that the backup does not know: appends, some overwrites, and what is thought better of."""
    for number in range(max(commits, aborts)):
        if number < commits:
            source, op = f"s{number % 40}", "overwrite" if number % 10 == 7 else "append"
            house.publish(source, f"after {number}\n", op)
        if number < aborts:
            house.abort(f"a{number}")


@pytest.mark.proof
def test_what_was_committed_after_the_backup_is_adopted_and_nothing_else(house_anywhere):
    """R17: no pointer comes twice; what was marked as committed comes back, in its order, and the aborted does not."""
    for number in range(20):
        house_anywhere.publish(f"s{number}", f"before {number}\n")
    house_anywhere.consume()
    open_tx = house_anywhere.begin()
    write_backup(house_anywhere.catalog, house_anywhere.backup)
    live_on(house_anywhere, commits=100, aborts=100)
    house_anywhere.consume()
    content, used, directories = house_anywhere.content(), set(house_anywhere.pointers), house_anywhere.directories()

    restored = restore(house_anywhere.catalog, house_anywhere.backup, replace=True)
    at_first = house_anywhere.content()
    found = fsck(house_anywhere.catalog, [house_anywhere.lines])
    adopted = adopt(house_anywhere.catalog)
    seen = house_anywhere.content()
    delivered = house_anywhere.consume()
    house_anywhere.pointers.clear()
    live_on(house_anywhere, commits=5, aborts=5)
    sweep(house_anywhere.catalog)

    assert at_first == {f"s{number}": [f"before {number}\n"] for number in range(20)}
    assert found.unnamed == {DirectoryKind.ADOPTABLE: 100, DirectoryKind.QUARANTINED: 100}
    assert (adopted.transactions, len(adopted.left)) == (100, 100)
    assert adopt(house_anywhere.catalog).transactions == 0
    assert seen == content
    assert restored.ended_transactions == 1
    assert open_tx.write_pointer in used
    assert min(house_anywhere.pointers) > restored.clock > max(used)
    assert set(house_anywhere.directories().values()) == {1}
    assert directories.keys() <= house_anywhere.directories().keys()
    late = {text for texts in content.values() for text in texts if text.startswith("after")}
    assert set(delivered) == late
    assert len(house_anywhere.consume()) == 5
    assert audit(house_anywhere.catalog).findings == ()


def adopt_after(restored: Restored, catalog: Catalog) -> None:
    """The second step, after the first."""
    assert restored.incarnation == catalog.incarnation
    adopt(catalog)


MARKS = ("restore.before_replace", "restore.replaced", "adopt.before_commit", "adopt.adopted")


@pytest.mark.parametrize("mark", MARKS)
def test_a_restore_that_dies_is_done_again(house, tmp_path, mark):
    """A restore happens on a bad day: each step can be repeated, and nothing comes twice."""
    house.publish("s0", "before\n")
    target = tmp_path / "catalog.backup"
    write_backup(house.catalog, target)
    live_on(house, commits=6, aborts=2)
    content = house.content()
    deaths: list[str] = []

    def die(name: str) -> None:
        if name == mark and not deaths:
            deaths.append(name)
            raise Crash

    mortal = open_catalog(house.catalog.url, dataclasses.replace(World(), marked=die))
    with pytest.raises(Crash):
        adopt_after(restore(mortal, target, replace=True), mortal)
    mortal.close()
    house.catalog.close()
    house.catalog = open_catalog(house.catalog.url, World())
    if mark.startswith("restore"):
        restore(house.catalog, target, replace=True)
    adopt(house.catalog)

    assert deaths == [mark]
    assert house.content() == content
    assert {finding.kind for finding in fsck(house.catalog, [house.lines]).differences} == {DifferenceKind.QUARANTINED}


def test_a_backup_that_dies_leaves_the_one_before(house, tmp_path):
    """Half a backup is never taken for one."""
    target = tmp_path / "catalog.backup"
    house.publish("s0", "before\n")
    write_backup(house.catalog, target)
    before = target.read_bytes()

    def die(name: str) -> None:
        if name == "backup.in_the_middle":
            raise Crash

    mortal = open_catalog(house.catalog.url, dataclasses.replace(World(), marked=die))
    with pytest.raises(Crash):
        write_backup(mortal, target)
    mortal.close()

    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_backup_shows_one_moment_while_work_goes_on(house, tmp_path, monkeypatch):
    """Tables are read one after the other; what commits between them is in all of them or in none."""
    target = tmp_path / "catalog.backup"
    house.publish("s0", "before\n")
    house.consume()
    quiet = house.catalog.world
    worked: list[str] = []

    def work(name: str) -> None:
        if name == "backup.in_the_middle" and len(worked) < 40:
            worked.append(name)
            monkeypatch.setattr(house.catalog, "world", quiet)
            house.publish(f"s{len(worked)}", "meanwhile\n")
            house.consume()
            monkeypatch.setattr(house.catalog, "world", busy)

    busy = dataclasses.replace(quiet, marked=work)
    monkeypatch.setattr(house.catalog, "world", busy)
    write_backup(house.catalog, target)
    monkeypatch.setattr(house.catalog, "world", quiet)
    content = house.content()
    restore(house.catalog, target, replace=True)
    clean = audit(house.catalog)
    restored = house.content()
    adopted = adopt(house.catalog)

    assert len(worked) > 10
    assert clean.findings == ()
    assert restored == {"s0": ["before\n"]}
    assert adopted.transactions == len(worked)
    assert house.content() == content


def test_what_was_under_way_is_ended_and_what_it_held_comes_again(house, tmp_path):
    """The processes of the backup's time belong to the other life."""
    house.publish("s0", "1\n")
    house.consume()
    house.publish("s0", "2\n")
    with open_transaction(house.catalog, house.catalog.world, ["default.lines"], writer=write_texts) as tx:
        tx.fileset("default.lines").append({"s1": "3\n"})
        house.take(tx)
        write_backup(house.catalog, tmp_path / "catalog.backup")

    restored = restore(house.catalog, tmp_path / "catalog.backup", replace=True)
    (run,) = rows_of(house.catalog, f"SELECT state, exit_reason FROM run WHERE run_id = '{tx.run_id}'")
    adopted = adopt(house.catalog)

    assert (restored.ended_transactions, restored.ended_runs) == (1, 1)
    assert run == ("FAILED", "its catalog was restored from a backup")
    assert adopted.transactions == 1
    assert house.consume() == ["2\n", "3\n"]
    assert audit(house.catalog).findings == ()


def test_what_is_in_use_is_not_overwritten(house, tmp_path):
    """A catalog with content belongs to a user."""
    target = tmp_path / "catalog.backup"
    write_backup(house.catalog, target)
    house.publish("s0", "new\n")

    with pytest.raises(CatalogInUse, match="--replace"):
        restore(house.catalog, target)

    assert house.content() == {"s0": ["new\n"]}


def test_a_backup_of_one_database_is_restored_into_the_other(
    house, tmp_path, sqlite_catalog_url, postgres_catalog_url, memory_folder
):
    """Both databases share one format: a project that begins on a laptop continues on a server."""
    house.publish("s0", "1\n")
    house.publish("s0", "2\n")
    house.consume()
    target = tmp_path / "catalog.backup"
    write_backup(house.catalog, target)
    is_sqlite = house.catalog.url.startswith("sqlite")
    other = postgres_catalog_url if is_sqlite else f"sqlite:///{memory_folder / 'other.db'}"

    moved = House(open_catalog(other, World()), house.folder)
    restore(moved.catalog, target)
    content, rest = moved.content(), moved.consume()
    moved.publish("s1", "3\n")
    clean = audit(moved.catalog).clean
    moved.catalog.close()

    assert content == {"s0": ["1\n", "2\n"]}
    assert rest == []
    assert clean


def test_the_janitor_goes_on_with_the_garbage_of_the_life_before(house_anywhere):
    """Transactions that were aborted before the backup can be deleted. Later ones are unknown, and stay."""
    house_anywhere.abort("s0")
    (aborted,) = house_anywhere.pointers
    write_backup(house_anywhere.catalog, house_anywhere.backup)
    house_anywhere.abort("s1")

    restore(house_anywhere.catalog, house_anywhere.backup, replace=True)
    sweep(house_anywhere.catalog)

    assert house_anywhere.directories().keys() == {
        f"tx-{pointer}" for pointer in house_anywhere.pointers if pointer != aborted
    }


def test_what_a_quiet_run_has_published_is_adopted_quietly(house, tmp_path):
    """The backfill of a year would start everything downstream again, after a restore of all times."""
    write_backup(house.catalog, tmp_path / "catalog.backup")
    with open_transaction(house.catalog, house.catalog.world, ["default.lines"], writer=write_texts) as tx:
        outputs_of(tx)._quiet = True
        tx.fileset("default.lines").append({"s0": "quiet\n"})
    restore(house.catalog, tmp_path / "catalog.backup", replace=True)
    adopt(house.catalog)

    assert house.content() == {"s0": ["quiet\n"]}
    assert house.consume() == []
    assert audit(house.catalog).findings == ()


def test_an_older_overwrite_does_not_hide_new_work(house_anywhere):
    """Work may continue before a person adopts: then a person decides about the older commit."""
    write_backup(house_anywhere.catalog, house_anywhere.backup)
    house_anywhere.publish("s0", "lost\n", "overwrite")
    restore(house_anywhere.catalog, house_anywhere.backup, replace=True)
    house_anywhere.publish("s0", "new\n")

    adopted = adopt(house_anywhere.catalog)

    assert adopted.transactions == 0
    assert "written again since" in adopted.left[0].why
    assert house_anywhere.content() == {"s0": ["new\n"]}


def test_the_clock_begins_above_what_no_backup_knows(house, tmp_path):
    """A file set that was declared after the backup has its directories where file sets usually lie."""
    write_backup(house.catalog, tmp_path / "catalog.backup")
    (house.folder / "data" / "default" / "later" / "tx-777777-anotherl").mkdir(parents=True)
    (house.folder / "data" / "a file").write_text("")
    (house.folder / "disk" / "moved" / "tx-888888-anotherl").mkdir(parents=True)
    (house.folder / "data" / "other").symlink_to(house.folder / "disk")

    restored = restore(house.catalog, tmp_path / "catalog.backup", replace=True, data=(house.folder / "data").as_uri())

    assert restored.clock > 888_888


def test_what_is_damaged_is_not_adopted(house, tmp_path):
    """A file that is gone, and a side-car that is torn."""
    write_backup(house.catalog, tmp_path / "catalog.backup")
    for number in range(3):
        house.publish(f"s{number}", "lost\n")
    folders = {int(re.findall(r"\d+", path.name)[0]): path for path in (house.folder / "lines").glob("tx-*")}
    first, second, _ = (folders[pointer] for pointer in house.pointers)
    next(first.rglob("part-*")).unlink()
    (second / "_manifest.json").write_text("{")
    restore(house.catalog, tmp_path / "catalog.backup", replace=True)

    adopted = adopt(house.catalog)

    assert adopted.transactions == 1
    assert [one.directory for one in adopted.left] == [first.name, second.name]
    assert house.content() == {"s2": ["lost\n"]}


BAD = {
    "nothing": b"",
    "no backup": b"hello",
    "another archive": gzip.compress(b'{"tables": 1}\n{}\n'),
    "a later format": gzip.compress(b'{"tidemill_backup": 99}\n{"lines": 1, "sha256": "x"}\n'),
    "a list": gzip.compress(b"[1]\n[2]\n"),
}


@pytest.mark.parametrize("kind", [*BAD, "cut", "changed", "missing", "a folder"])
def test_what_is_no_backup_is_refused(house, tmp_path, kind):
    """Before anything is overwritten."""
    target = tmp_path / "catalog.backup"
    house.publish("s0", "kept\n")
    write_backup(house.catalog, target)
    whole = target.read_bytes()
    if kind in BAD:
        target.write_bytes(BAD[kind])
    elif kind == "cut":
        target.write_bytes(whole[: len(whole) // 2])
    elif kind == "changed":
        target.write_bytes(gzip.compress(gzip.decompress(whole).replace(b"committed", b"aborted__")))
    else:
        target.unlink()
        if kind == "a folder":
            target.mkdir()

    with pytest.raises(BadBackup):
        restore(house.catalog, target, replace=True)

    assert house.content() == {"s0": ["kept\n"]}


def test_a_backup_says_what_it_is_of(house, tmp_path):
    """The head alone is enough for a person; the whole was checked."""
    house.publish("s0", "1\n")

    written = write_backup(house.catalog, tmp_path / "catalog.backup")
    head = check_backup(World(), tmp_path / "catalog.backup")

    assert head.incarnation == house.catalog.incarnation
    assert head.clock == written.clock >= max(house.pointers)
    assert written.rows > 5


def test_fsck_finds_each_difference(house):
    """Both ways: what a manifest names and what lies there."""
    for number in range(4):
        house.publish(f"s{number}", f"{number}\n")
    house.abort("s9")
    paths = sorted((house.folder / "lines").glob("tx-*/*/*/part-*"), key=lambda path: path.parent.name)
    for path in paths:
        path.with_name(f".{path.name}.crc").write_text("Spark")
    clean = fsck(house.catalog, [house.lines])
    paths[0].unlink()
    paths[1].write_text("longer\n")
    (paths[2].parent / "stray").write_text("x")
    open_files(house.lines.dataset.location, house.catalog.world).put("tx-999999-otherone/1/source=x/part-0", b"x")
    rows_of(house.catalog, "DELETE FROM garbage RETURNING 1")

    found = fsck(house.catalog, [house.lines])

    assert clean.differences == ()
    assert clean.unnamed == {DirectoryKind.GARBAGE: 1}
    assert (clean.files, clean.changes, clean.directories) == (4, 4, 5)
    assert sorted(one.kind for one in found.differences) == [
        DifferenceKind.DAMAGED,
        DifferenceKind.FORGOTTEN,
        DifferenceKind.MISSING,
        DifferenceKind.QUARANTINED,
        DifferenceKind.UNNAMED,
    ]
    assert all(one.next_step and one.where and one.what for one in found.differences)


def test_fsck_names_a_damaged_manifest_and_goes_on(house):
    """A bare `zlib.error` named no data set, and hid the differences of all others."""
    for number in range(3):
        house.publish(f"s{number}", f"{number}\n")
    paths = sorted((house.folder / "lines").glob("tx-*/*/*/part-*"), key=lambda path: path.parent.name)
    paths[2].unlink()
    torn = house.pointers[0]
    house.catalog.write(lambda db: db.run(LAKE.damage_manifest, write_pointer=torn, manifest=b"torn"))

    found = fsck(house.catalog, [house.lines])
    with pytest.raises(DamagedManifest, match="tidemill catalog fsck"):
        house.content()

    assert sorted(one.kind for one in found.differences) == [DifferenceKind.MISSING, DifferenceKind.UNREADABLE]
    (unreadable,) = [one for one in found.differences if one.kind is DifferenceKind.UNREADABLE]
    assert f"write pointer {torn} of default.lines, partition source=s0" in unreadable.what
    assert "overwrite the partition" in unreadable.next_step


def test_fsck_says_that_a_location_is_away(house):
    """The files of a disk that is not mounted are reported as missing, and as nothing else."""
    house.publish("s0", "1\n")
    (house.folder / "lines").rename(house.folder / "elsewhere")

    found = fsck(house.catalog, [house.lines])

    assert {one.kind for one in found.differences} == {DifferenceKind.MISSING}


@pytest.mark.parametrize(("order_time", "first"), [("NULL", "fast\n"), ("20", "slow\n")])
def test_snapshots_come_back_as_they_were_current(house, tmp_path, order_time, first):
    """Refreshes after the backup are adopted. An older refresh that ended last does not become current by that."""
    (house.folder / "users").mkdir()  # as its declaration makes it
    place = (house.folder / "users").as_uri()
    spec = write_plain(SnapshotSpec())
    users = Dataset(DatasetId("users"), Namespace("default"), "users", DatasetKind.SNAPSHOT, place, spec)
    snapshot = SnapshotDataset.of(house.catalog.write(lambda db: declare(db, users)))

    def refresh():
        return open_transaction(house.catalog, house.catalog.world, ["default.users"], writer=write_texts)

    def current():
        seen = Snapshot(WritePointer(1 << 60), "")
        version = house.catalog.read(lambda db: find_visible(db, snapshot.dataset_id, seen))
        return [(house.folder / "users" / path).read_text() for path, _ in version.partition.files]

    with refresh() as tx:
        tx.snapshot("default.users").replace({"": "before\n"})
    write_backup(house.catalog, tmp_path / "catalog.backup")
    with refresh() as slow:
        where = f"WHERE write_pointer = {slow.write_pointer}"
        rows_of(house.catalog, f"UPDATE in_progress SET order_time = {order_time} {where} RETURNING 1")
        slow.snapshot("default.users").replace({"": "slow\n"})
        with refresh() as fast:
            where = f"WHERE write_pointer = {fast.write_pointer}"
            rows_of(house.catalog, f"UPDATE in_progress SET order_time = NULL {where} RETURNING 1")
            fast.snapshot("default.users").replace({"": "fast\n"})
    was = current()

    restored = restore(house.catalog, tmp_path / "catalog.backup", replace=True)
    at_first = current()
    adopted = adopt(house.catalog)

    assert (was, at_first, current()) == ([first], ["before\n"], [first])
    assert adopted.transactions + len(adopted.left) == 2
    assert all("a later refresh was current then, and is again" in one.why for one in adopted.left)
    assert restored.clock > slow.write_pointer
    assert audit(house.catalog).findings == ()
