"""Leaving of processed files: each is archived or deleted once, whatever process dies; a new file never is."""

from __future__ import annotations

import copy
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import pytest

from tests.lake.test_inbox import Mill, make_mill
from tidemill.catalog.named import load_sql
from tidemill.errors import UserError
from tidemill.lake.inbox import leaving
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.inbox import After, Afterwards, InboxSpec, list_files
from tidemill.lake.inbox.leaving import empty_inboxes
from tidemill.run.step.outside_claims import get_latest_files, update_file_status
from tidemill.storage.folder import LocalFiles
from tidemill.world import World

TEST_SQL = load_sql(__file__)
MARKS = (
    "storage.before_put",
    "leaving.copied",
    "storage.before_delete",
    "storage.moved_to_delete",
    "leaving.before_note",
)


class Crash(BaseException):
    """The end of a process."""


@pytest.fixture
def mill(catalog_url: str, tmp_path: Path) -> Iterator[Mill]:
    """An empty inbox with an archive, on each database."""
    (tmp_path / "archive").mkdir()  # as its declaration makes it
    archive = (tmp_path / "archive").as_uri()
    made = make_mill(catalog_url, tmp_path / "raw", after=After.ARCHIVE, archive=archive)
    yield made
    made.catalog.close()


def archive_of(mill) -> Path:
    """Location of the archive."""
    return mill.folder.parent / "archive"


def contents(folder: Path) -> dict[str, str]:
    """Every file in a folder, with what it says."""
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def process(mill) -> list[str]:
    """Have a run process all that waits."""
    mill.discover()
    tx = mill.begin()
    claimed = mill.claim(tx)
    mill.succeed(tx, claimed)
    return [file.name for file in claimed]


def fates(mill) -> dict[str, Afterwards | None]:
    """Return the result for each file."""
    rows = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))
    return {row.name: row.afterwards for row in rows}


def janitor(mill, marked=lambda _: None):
    """The catalog as another process sees it, which tells `marked` how far it has come."""
    catalog = copy.copy(mill.catalog)
    catalog.world = World(marked=marked)
    return catalog


def come_due(mill) -> None:
    """As if the wait were over."""
    mill.catalog.write(lambda db: db.run(TEST_SQL.come_due))


def test_processed_files_are_moved_to_the_archive_under_their_names(mill):
    """Sub-folders too; and the inbox does not find them again, but forgets them in the end."""
    mill.land("a.txt", "day=1/b.txt", content="one\n")
    process(mill)
    mill.land("c.txt", content="not yet\n")

    taken = empty_inboxes(mill.catalog)

    assert taken == 2
    assert contents(archive_of(mill)) == {"a.txt": "one\n", "day=1/b.txt": "one\n"}
    assert contents(mill.folder) == {"c.txt": "not yet\n"}
    (a, b) = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))
    assert (a.afterwards, a.archive) == (Afterwards.ARCHIVED, (archive_of(mill) / "a.txt").as_uri())
    assert b.archive == (archive_of(mill) / "day=1" / "b.txt").as_uri()
    inbox = replace(mill.inbox, spec=replace(mill.inbox.spec, forget_after=timedelta(0)))
    found = discover(mill.catalog, inbox, reconcile=True)
    assert ([file.name for file in found.new], found.forgotten) == (["c.txt"], 2)
    assert empty_inboxes(mill.catalog) == 0


@pytest.mark.parametrize("names", [(), ("README",)], ids=["empty", "with a file of its own"])
def test_a_file_of_a_disk_that_is_not_mounted_waits_for_the_disk(mill, names):
    """The file counted as deleted, and no janitor moved the file when the disk was back."""
    mill.land("a.txt")
    process(mill)
    away = mill.folder.with_name("away")
    mill.folder.rename(away)
    mill.folder.mkdir()
    mill.land(*names)

    empty_inboxes(mill.catalog)
    without = fates(mill)
    shutil.rmtree(mill.folder)
    away.rename(mill.folder)
    come_due(mill)
    empty_inboxes(mill.catalog)

    assert without == {"a.txt": Afterwards.ARCHIVE}
    assert fates(mill) == {"a.txt": Afterwards.ARCHIVED}


def test_a_disk_that_is_mounted_while_a_janitor_looks_has_its_file(mill, monkeypatch):
    """The look at the file met the mount point and the look at the folder met the disk: the file counted as deleted."""
    mill.land("a.txt")
    process(mill)
    away = mill.folder.with_name("away")
    mill.folder.rename(away)
    mill.folder.mkdir()
    check = LocalFiles.check_location

    def mount_and_check(files):
        if away.exists():
            mill.folder.rmdir()
            away.rename(mill.folder)
        return check(files)

    monkeypatch.setattr(LocalFiles, "check_location", mount_and_check)

    empty_inboxes(mill.catalog)

    assert fates(mill) == {"a.txt": Afterwards.ARCHIVED}
    assert contents(archive_of(mill)) == {"a.txt": "line\n"}


def test_a_copy_of_a_processed_file_is_moved_too(mill):
    """The inbox was restored while the file waited for the janitor: size, time and checksum say that it is the file."""
    mill.land("a.txt", content="one\n")
    mill.discover()
    mill.process()
    path = mill.folder / "a.txt"
    at = path.stat().st_mtime_ns
    mill.land("a.txt", content="one\n")
    os.utime(path, ns=(at, at))

    empty_inboxes(mill.catalog)

    assert contents(archive_of(mill)) == {"a.txt": "one\n"}
    assert contents(mill.folder) == {}


def test_a_file_written_again_with_the_same_content_stays(mill):
    """The file's time says that the sender has sent the file again: no run has processed that."""
    mill.land("a.txt", content="one\n")
    mill.discover()
    mill.process()
    mill.land("a.txt", content="one\n")

    empty_inboxes(mill.catalog)

    assert contents(mill.folder) == {"a.txt": "one\n"}
    assert mill.discover() == ["a.txt"]


def test_processed_files_are_deleted(catalog_url, tmp_path):
    """And nothing else: neither what waits, nor what failed."""
    mill = make_mill(catalog_url, tmp_path / "raw", after=After.DELETE)
    mill.land("done.txt")
    process(mill)
    mill.land("bad.txt")
    mill.discover()
    tx = mill.begin()
    mill.fail(tx, mill.claim(tx)[0], last=True)
    mill.land("new.txt")

    empty_inboxes(mill.catalog)

    assert set(contents(mill.folder)) == {"bad.txt", "new.txt"}
    assert fates(mill) == {"bad.txt": None, "done.txt": Afterwards.DELETED}
    mill.catalog.close()


def test_files_stay_unless_the_inbox_says_otherwise(catalog_url, tmp_path):
    """A user that declares nothing loses no file."""
    mill = make_mill(catalog_url, tmp_path / "raw")
    mill.land("a.txt")
    process(mill)

    assert empty_inboxes(mill.catalog) == 0

    assert (contents(mill.folder), fates(mill)) == ({"a.txt": "line\n"}, {"a.txt": None})
    mill.catalog.close()


def test_a_claim_from_outside_has_its_files_archived_too(mill):
    """The same commit, by another call. A returned file stays."""
    mill.land("a.txt", "b.txt")
    mill.discover()
    claim = get_latest_files(mill.catalog, mill.inbox)
    update_file_status(mill.catalog, claim.claim_id, ["a.txt"], "SUCCESS")
    update_file_status(mill.catalog, claim.claim_id, ["b.txt"], "NEW")

    empty_inboxes(mill.catalog)

    assert (set(contents(mill.folder)), set(contents(archive_of(mill)))) == ({"b.txt"}, {"a.txt"})


def test_a_file_that_was_written_again_is_left_alone(mill):
    """The new content has not been processed: it comes to a run, and leaves after that."""
    mill.land("a.txt", content="old\n")
    process(mill)
    mill.land("a.txt", content="new\n")

    empty_inboxes(mill.catalog)
    left = (contents(mill.folder), contents(archive_of(mill)))
    process(mill)
    empty_inboxes(mill.catalog)

    assert left == ({"a.txt": "new\n"}, {})
    assert contents(archive_of(mill)) == {"a.txt": "new\n"}
    rows = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))
    assert {row.afterwards for row in rows} == {Afterwards.REPLACED, Afterwards.ARCHIVED}


@pytest.mark.parametrize("mark", MARKS)
def test_a_janitor_that_dies_anywhere_leaves_work_for_the_next(mill, mark):
    """After the copy and before the deletion, too: the file is in the archive once, under its name."""
    mill.land("a.txt", content="one\n")
    process(mill)

    def die(here: str) -> None:
        if here == mark:
            raise Crash

    with pytest.raises(Crash):
        empty_inboxes(janitor(mill, die))
    empty_inboxes(mill.catalog)

    assert contents(mill.folder) == {}
    assert contents(archive_of(mill)) == {"a.txt": "one\n"}
    assert fates(mill) == {"a.txt": Afterwards.ARCHIVED}


@pytest.mark.parametrize("mark", MARKS)
def test_what_is_written_while_a_janitor_stands_anywhere_is_not_lost(mill, mark):
    """A zombie goes on with what it saw long ago: it must not delete what came since."""
    mill.land("a.txt", content="old\n")
    process(mill)

    def write_again(here: str) -> None:
        if here == mark:
            mill.land("a.txt", content="new\n")

    empty_inboxes(janitor(mill, write_again))

    assert contents(mill.folder) == {"a.txt": "new\n"}
    assert process(mill) == ["a.txt"]


@pytest.mark.parametrize("mark", MARKS)
def test_a_janitor_that_is_overtaken_anywhere_puts_no_second_copy(mill, mark):
    """A file that another janitor has archived meanwhile has the same content: no second name is needed."""
    mill.land("a.txt", content="one\n")
    process(mill)

    def overtake(here: str) -> None:
        if here == mark:
            empty_inboxes(mill.catalog)

    empty_inboxes(janitor(mill, overtake))

    assert (contents(mill.folder), contents(archive_of(mill))) == ({}, {"a.txt": "one\n"})
    assert fates(mill) == {"a.txt": Afterwards.ARCHIVED}


def test_what_a_janitor_took_by_mistake_and_died_with_comes_back(mill):
    """The file was written between the janitor's look and its move. It has no name then, and has not been processed."""
    mill.land("a.txt", content="old\n")
    process(mill)

    def write_again_and_die(here: str) -> None:
        if here == "storage.before_delete":
            mill.land("a.txt", content="new\n")
        if here == "storage.moved_to_delete":
            raise Crash

    with pytest.raises(Crash):
        empty_inboxes(janitor(mill, write_again_and_die))
    hidden = not (mill.folder / "a.txt").exists()
    empty_inboxes(mill.catalog)

    assert hidden
    assert contents(mill.folder) == {"a.txt": "new\n"}
    assert fates(mill) == {"a.txt": Afterwards.REPLACED}
    assert process(mill) == ["a.txt"]


def test_a_janitor_that_was_overtaken_takes_nothing_that_came_since(mill):
    """The record says that the file was moved: if this janitor died, no other would look for the new file."""
    mill.land("a.txt", content="old\n")
    process(mill)
    reached = []

    def be_overtaken(here: str) -> None:
        reached.append(here)
        if here == "storage.before_delete":
            empty_inboxes(mill.catalog)
            mill.land("a.txt", content="new\n")

    empty_inboxes(janitor(mill, be_overtaken))

    assert "storage.moved_to_delete" not in reached
    assert list(mill.folder.iterdir()) == [mill.folder / "a.txt"]
    assert process(mill) == ["a.txt"]


def test_nothing_in_the_archive_is_overwritten(mill):
    """The same name twice a day is what feeds do; both contents are kept."""
    for content in ("monday\n", "tuesday\n", "monday\n"):
        mill.land("a.txt", content=content)
        process(mill)
        empty_inboxes(mill.catalog)

    kept = contents(archive_of(mill))
    assert sorted(kept.values()) == ["monday\n", "tuesday\n"]
    assert kept["a.txt"] == "monday\n"
    assert contents(mill.folder) == {}


def test_contents_of_one_name_size_and_time_are_all_kept(mill):
    """Inboxes may share an archive, and copies keep times: the third such file waited for ever for a free name."""
    mill.land("a.txt", content="two\n")
    process(mill)
    (row,) = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))
    (archive_of(mill) / "a.txt").write_text("first\n")
    (archive_of(mill) / f"a-{row.content_version[:12]}.txt").write_text("one\n")

    empty_inboxes(mill.catalog)

    assert sorted(contents(archive_of(mill)).values()) == ["first\n", "one\n", "two\n"]
    assert contents(mill.folder) == {}
    assert fates(mill) == {"a.txt": Afterwards.ARCHIVED}


def test_a_file_stays_while_the_disk_of_the_archive_is_not_mounted(mill):
    """A copy in the empty place of the mount is gone when the disk is back, and the original was deleted."""
    mill.land("a.txt")
    process(mill)
    archive_of(mill).rmdir()

    empty_inboxes(mill.catalog)

    (row,) = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))
    assert (row.afterwards, set(contents(mill.folder))) == (Afterwards.ARCHIVE, {"a.txt"})
    assert "there is no such folder: not mounted?" in str(row.error)
    assert not archive_of(mill).exists()


def test_a_file_stays_while_the_archive_cannot_be_written(mill):
    """And says why; others are not held up; and it goes when the archive is back."""
    mill.land("sub/a.txt", "b.txt")
    process(mill)
    (archive_of(mill) / "sub").write_text("in the way")

    empty_inboxes(mill.catalog)
    waits = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))[1]
    (archive_of(mill) / "sub").unlink()
    at_once = empty_inboxes(mill.catalog)
    come_due(mill)
    empty_inboxes(mill.catalog)

    assert waits.afterwards is Afterwards.ARCHIVE
    assert "cannot archive it yet" in str(waits.error)
    assert at_once == 0
    assert set(contents(archive_of(mill))) == {"sub/a.txt", "b.txt"}
    assert contents(mill.folder) == {}
    assert {row.error for row in mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))} == {None}


def test_janitors_at_once_do_no_harm(mill):
    """Each node has one."""
    mill.land(*(f"{number}.txt" for number in range(20)))
    process(mill)
    threads = [threading.Thread(target=empty_inboxes, args=(janitor(mill),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    come_due(mill)
    empty_inboxes(mill.catalog)

    assert set(contents(archive_of(mill))) == {f"{number}.txt" for number in range(20)}
    assert contents(mill.folder) == {}
    assert set(fates(mill).values()) == {Afterwards.ARCHIVED}
    assert mill.catalog.read(lambda db: db.all(TEST_SQL.count_leaving)) == [(0,)]


def test_where_it_lies_in_the_archive_is_known_though_its_janitor_died(mill):
    """An earlier content of the same size has the file's name: a reader would find yesterday's orders."""
    mill.land("a.txt", content="one\n")
    process(mill)
    empty_inboxes(mill.catalog)
    mill.land("a.txt", content="two\n")
    process(mill)

    def die(here: str) -> None:
        if here == "leaving.before_note":
            raise Crash

    with pytest.raises(Crash):
        empty_inboxes(janitor(mill, die))
    empty_inboxes(mill.catalog)

    rows = mill.catalog.read(lambda db: list_files(db, mill.inbox.dataset_id))
    kept = {Path(unquote(urlsplit(str(row.archive)).path)).read_text() for row in rows}
    assert kept == {"one\n", "two\n"}


@pytest.mark.parametrize("name", ["n" * 255, "n" * 251 + ".txt", "é" * 127, "n." + "x" * 253])
def test_two_contents_of_the_longest_names_are_archived(mill, name):
    """The suffix that makes names distinct needs room that such a long name lacks."""
    for content in ("one\n", "two\n"):
        mill.land(name, content=content)
        process(mill)
        empty_inboxes(mill.catalog)

    assert contents(mill.folder) == {}
    assert sorted(contents(archive_of(mill)).values()) == ["one\n", "two\n"]


@pytest.mark.parametrize(("bound", "most", "taken"), [("_MOST_FILES", 2, [2, 2, 1]), ("_MOST_BYTES", 14, [3, 2])])
def test_a_large_backlog_leaves_in_small_parts(mill, bound, most, taken):
    """A janitor that is asked to stop can do so between the parts. The results are recorded by then."""
    mill.land(*"abcde", content="12345")
    process(mill)

    with patch.object(leaving, bound, most):
        parts = list(iter(lambda: empty_inboxes(mill.catalog), 0))

    assert parts == taken
    assert set(fates(mill).values()) == {Afterwards.ARCHIVED}


@pytest.mark.parametrize(("after", "archive"), [("archive", None), ("keep", "/old"), ("delete", "/old")])
def test_an_archive_is_named_where_it_is_used(mill, after, archive):
    """Without an archive a user believes that files are kept, and they are deleted."""
    with pytest.raises(UserError, match="archive"):
        InboxSpec(mill.inbox.spec.format, after=After(after), archive=archive)
