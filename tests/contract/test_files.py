"""Promises of `storage.files.Files`, for every implementation. A new store adds itself to the fixture `files`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.s3_server import S3Server
from tidemill.storage.file_names import BadFileName
from tidemill.storage.files import FileChanged, FileExists, Files, StorageUnavailable, checksum, read_chunks
from tidemill.storage.locations import local_folder, open_files, path_for_readers, path_for_spark
from tidemill.storage.objects import ObjectFiles
from tidemill.storage.seekable import open_seekable
from tidemill.world import World

HOSTILE_NAMES = (
    "",
    "/etc/passwd",
    "../secret",
    "a/../../secret",
    "a/./b",
    "a//b",
    "a/",
    "nul\0",
    "line\nend",
    "\udcff",
)
ODD_NAMES = ("a b", "a%20b", "a#b", "é", "a{b,c}*[d]?", "back\\slash", "10:30", "-rf", "a'\"b", "~", "日本")


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[[World], Files]:
    """Open the same folder, as each process of its own sees it."""
    (tmp_path / "a location").mkdir()
    return lambda world: open_files(tmp_path / "a location", world)


@pytest.fixture(params=["folder", "memory", "s3", "s3 with conditions"])
def files(request: pytest.FixtureRequest, make_folder: Callable[[World], Files]) -> Files:
    """An empty, writable location of each kind of store."""
    match request.param:
        case "folder":
            location = make_folder(World())
        case "memory":
            location = ObjectFiles("memory:///a%20location", MemoryStore(), World())
        case "s3":
            location = request.getfixturevalue("bucket")
        case _:
            location = in_new_bucket(request.getfixturevalue("s3_stub"))
    location.prepare()
    return location


@pytest.fixture
def bucket(s3_server: S3Server) -> Files:
    """An empty location in a bucket of its own."""
    return in_new_bucket(s3_server)


def in_new_bucket(server: S3Server) -> Files:
    """An empty location in a bucket of its own."""
    return open_files(f"s3://{server.make_bucket()}/a%20location", server.world)


@pytest.fixture
def folder(make_folder: Callable[[World], Files]) -> Files:
    """An empty folder: for what a store without folders cannot do wrong."""
    location = make_folder(World())
    location.prepare()
    return location


def names(files: Files, prefix: str = "", after: str | None = None) -> list[str]:
    """The names a listing gives, in its order."""
    return [file.name for file in files.list_after(prefix, after)]


def test_a_listing_is_in_bytewise_order_of_the_whole_name(files):
    """The marker of seed 004 is a name: what sorts before it would never be looked at again."""
    written = ["b/x", "b.csv", "b0", "a", "B", "é", "b/a/c", "b-", "z", "😀", "\uffee"]
    for name in written:
        files.put(name, b"")

    listed = names(files)

    assert listed == sorted(written, key=lambda name: name.encode())


def test_a_listing_begins_behind_a_name_and_holds_only_the_prefix(files):
    """Both are text, not folders: as object stores have it."""
    written = ["a/1", "a/2", "a/b/3", "ab", "b/4", "b/5"]
    for name in written:
        files.put(name, b"")

    for prefix in ("", "a", "a/", "a/b", "b/", "c"):
        for after in (None, "a/1", "a/15", "a/b", "a/b/3", "ab", "b/", "b/4", "z"):
            expected = [name for name in sorted(written) if name.startswith(prefix) and name > (after or "")]
            assert names(files, prefix, after) == expected, (prefix, after)


def test_stat_says_what_the_listing_says(files):
    """The content version is made of it: found by a listing, compared by stat before the commit."""
    files.put("folder/file", b"four")

    status = files.stat("folder/file")

    assert status is not None
    assert [status] == list(files.list_after("", None))
    assert (status.bytes, status.modified_at.tzinfo is not None) == (4, True)


def test_what_is_not_there_has_no_status_and_a_folder_is_no_file(files):
    """Callers ask whether a file is there without an exception."""
    files.put("folder/file", b"")

    assert files.stat("nothing") is None
    assert files.stat("folder") is None
    assert files.stat("folder/file/below") is None
    with pytest.raises(FileNotFoundError):
        files.read("nothing")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(files, name):
    """People have such files; one of them must not stop an inbox."""
    files.put(name, b"content")

    assert names(files) == [name]
    assert files.read(name) == b"content"
    files.delete(name)
    assert names(files) == []


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused_by_every_method(files, name):
    """A name comes from outside: it must not reach what lies beside the location."""
    for attempt in (
        lambda: files.stat(name),
        lambda: files.read(name),
        lambda: files.put(name, b""),
        lambda: files.delete(name),
    ):
        with pytest.raises(BadFileName):
            attempt()


def test_parts_of_a_file_are_read_without_the_rest(files):
    """Headers and last bytes of large files are looked at."""
    files.put("file", b"0123456789")

    parts = [files.read("file", offset=o, length=n) for o, n in ((0, 3), (8, 5), (10, 1), (12, 1), (3, 0))]

    assert parts == [b"012", b"89", b"", b"", b""]
    assert files.read("file", offset=7) == b"789"


def test_put_replaces_and_gives_another_etag(files):
    """A rewrite of equal size at once is a new content all the same."""
    etags = set()
    for content in (b"one", b"two", b"six"):
        files.put("file", content)
        status = files.stat("file")
        etags.add(status.etag if status else None)

    assert len(etags) == 3
    assert files.read("file") == b"six"


def test_of_many_that_put_if_absent_one_wins(files):
    """A conditional put decides which process made a marker; what is there stays whole."""
    won = []
    barrier = threading.Barrier(8)

    def attempt(who: int) -> None:
        barrier.wait()
        try:
            files.put("marker", str(who).encode(), if_absent=True)
            won.append(who)
        except FileExists:
            pass

    threads = [threading.Thread(target=attempt, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert files.read("marker") == str(won[0]).encode()


def test_delete_spares_a_file_that_was_written_again(files):
    """The janitor deletes what it knew, never what came since; deleting twice is no error."""
    files.put("file", b"old")
    known = files.stat("file")
    files.put("file", b"new")

    with pytest.raises(FileChanged):
        files.delete("file", etag=known.etag)

    assert files.read("file") == b"new"
    files.delete("file", etag=files.stat("file").etag)
    files.delete("file")
    assert files.stat("file") is None


def test_of_many_contents_those_that_are_there_are_deleted(files):
    """The janitor deletes many files in one request: a file that was written again since is spared."""
    for name in ("a & <b>", "gone", "rewritten", "é"):
        files.put(name, b"old")
    known = [(file.name, file.etag) for file in files.list_after("", None)]
    files.put("rewritten", b"new")
    files.delete("gone")

    deleted = files.delete_contents(known)

    assert dict(zip([name for name, _ in known], deleted, strict=True)) == {
        "a & <b>": True,
        "gone": True,
        "rewritten": False,
        "é": True,
    }
    assert names(files) == ["rewritten"]


@pytest.mark.parametrize("name", ["file/below", "file/far/below"])
def test_put_new_below_a_file_is_an_error_of_the_store(folder, name):
    """A conflict would mean that another process has written it: the caller would look again at once, in vain."""
    folder.put("file", b"in the way")

    with pytest.raises(StorageUnavailable):
        folder.put_new(name, [b"content"])

    assert names(folder) == ["file"]


def test_a_folder_is_deleted_only_when_nothing_is_in_it(files):
    """Its owner may write into it at any time; and there is nothing to say when it has gone."""
    files.put("folder/file", b"")

    files.delete_empty_folder("folder")
    kept = names(files)
    files.delete("folder/file")
    files.delete_empty_folder("folder")
    files.delete_empty_folder("folder")

    assert kept == ["folder/file"]
    assert files.list_folders() == []


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("mark", ["storage.before_delete", "storage.moved_to_delete"])
def test_a_deletion_that_was_killed_is_ended_by_the_next_process_that_settles(make_folder, mark, rewritten):
    """Neither a processed file may stay hidden for ever, nor a file that no run has processed."""

    class Kill(BaseException):
        """The end of a process."""

    def strike(here: str) -> None:
        if rewritten and here == "storage.before_delete":
            files.put("sub/file", b"new")
        if here == mark:
            raise Kill

    files = make_folder(World())
    files.put("sub/file", b"old")
    known = files.stat("sub/file")
    with suppress(Kill):
        make_folder(World(marked=strike)).delete("sub/file", etag=known.etag)

    status = files.settle("sub/file")

    assert status == files.stat("sub/file")
    assert names(files) == ([] if status is None else ["sub/file"])
    assert (status is None) == (mark == "storage.moved_to_delete" and not rewritten)
    if rewritten:
        assert files.read("sub/file") == b"new"


def test_what_was_restored_is_not_restored_again(make_folder):
    """The next deletion ends all earlier ones: else a processed file would come again from where it was."""
    files = make_folder(World())
    files.put("file", b"old")
    old = files.stat("file")

    def write_again(here: str) -> None:
        if here == "storage.before_delete":
            files.put("file", b"new")
        if here == "storage.moved_to_delete":
            files.settle("file")
            files.delete("file", etag=files.stat("file").etag)

    make_folder(World(marked=write_again)).delete("file", etag=old.etag)

    assert names(files) == []


def test_a_path_and_the_url_name_the_same_place(folder):
    """Spark and people get the path, rows get the URL."""
    place = local_folder(folder)

    assert folder.url == place.as_uri()
    assert path_for_readers(folder.url, "a/b") == str(place / "a/b")
    assert path_for_spark(folder.url, "a/b") == f"file://{place}/a/b"
    assert local_folder(open_files(folder.url, World())) == place


def test_a_folder_is_deleted_with_all_in_it_and_nothing_beside(files):
    """The janitor deletes what a transaction has left; a second janitor, or a repetition, finds nothing."""
    kept = ["tx-1", "tx-10/a", "tx-2/1/a"]
    for name in [*kept[1:], "tx-1/_manifest.json", "tx-1/1/day=1/a", "tx-1/1/day=2/.a.crc"]:
        files.put(name, b"x")

    deleted = [files.delete_below("tx-1") for _ in range(2)]

    assert [one.is_whole for one in deleted] == [True, True]
    assert [one.names > 0 for one in deleted] == [True, False]
    assert names(files) == kept[1:]


def test_one_deletion_is_bounded_and_says_that_more_is_left(files):
    """A directory of a million files must not hold up the sweep of all others, nor a stop of the janitor."""
    for number in range(16):
        files.put(f"tx-1/{number % 4}/{number}", b"")
        files.put(f"tx-1/file-{number}", b"")

    counts = [len(names(files))]
    while not files.delete_below("tx-1", most=4).is_whole:
        counts.append(len(names(files)))

    assert all(0 <= before - after <= 4 for before, after in pairwise(counts))
    assert len(counts) >= 32 // 4
    assert names(files) == files.list_folders() == []


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if name])
def test_folders_outside_of_the_location_are_neither_deleted_nor_listed(files, name):
    """A location of the catalog may come from a backup that was changed by hand."""
    for attempt in (files.delete_below, files.list_folders):
        with pytest.raises(BadFileName):
            attempt(name)


def test_folders_are_listed_without_the_files_in_them(files):
    """The directories of transactions are found so, however many files they have."""
    for name in ("b/1/x", "b/2/x", "b/file", "a/x", "file"):
        files.put(name, b"")

    assert files.list_folders() == ["a", "b"]
    assert files.list_folders("b") == ["1", "2"]
    assert files.list_folders("nothing") == []


def test_a_copy_has_the_content_that_was_asked_for(files, tmp_path):
    """An archive may be another store; a file that was written again meanwhile is not archived."""
    other = open_files(tmp_path / "other", World())
    other.prepare()
    files.put("in/a file", b"content")
    known = files.stat("in/a file")

    files.copy_from(files, "in/a file", known.etag, "a copy")
    other.copy_from(files, "in/a file", known.etag, "c")
    with pytest.raises(FileExists):
        files.copy_from(other, "c", other.stat("c").etag, "a copy")
    with pytest.raises(FileExists):
        files.copy_from(files, "in/a file", known.etag, "a copy")
    files.put("in/a file", b"written again")
    for place in (files, other):
        with pytest.raises(FileChanged):
            place.copy_from(files, "in/a file", known.etag, "late")
    files.delete("in/a file")
    for place in (files, other):
        with pytest.raises(FileChanged):
            place.copy_from(files, "in/a file", known.etag, "late")

    assert (files.read("a copy"), other.read("c")) == (b"content", b"content")
    assert (names(files), names(other)) == (["a copy"], ["c"])


def test_of_many_that_copy_to_one_name_one_wins(files):
    """Two inboxes may share an archive: a copy never replaces what another janitor has put there."""
    for number in range(4):
        files.put(f"in/{number}", str(number).encode())
    known = {name: files.stat(name).etag for name in names(files)}
    won = []

    def attempt(name: str) -> None:
        with suppress(FileExists):
            files.copy_from(files, name, known[name], "archived")
            won.append(files.read(name))

    threads = [threading.Thread(target=attempt, args=(name,)) for name in known]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == [files.read("archived")]


@pytest.mark.parametrize("count", [3, 40])
def test_many_files_are_looked_at_as_one_is(files, count):
    """A run has thousands of files; in a bucket their looks are pages of a listing, or go out at once."""
    written = [f"day={number % 3}/file {number}" for number in range(count)]
    for name in written:
        files.put(name, name.encode())
    asked = [*written[::2], "day=0", "day=0/file", "day=1/nothing", "zz", *written[1::2], written[0]]

    found = files.stat_many(asked)

    assert found == [files.stat(name) for name in asked]
    assert found.count(None) == 4
    assert files.stat_many([]) == []


def test_many_files_far_apart_are_looked_at_one_by_one(files):
    """Else a few files among a million would cost a listing of all."""
    for number in range(60):
        files.put(f"{number:02}/other", b"")
        files.put(f"{number:02}/wanted", b"x")
    asked = [f"{number:02}/wanted" for number in range(0, 60, 3)]

    found = files.stat_many(asked)

    assert [(one.name, one.bytes) for one in found] == [(name, 1) for name in asked]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused_among_others(files, name):
    """Names of a caller outside come together."""
    for attempt in (files.stat_many, files.delete_many):
        with pytest.raises(BadFileName):
            attempt(["file", name])


def test_many_files_are_deleted_with_those_that_are_not_there(files):
    """A janitor that was killed deletes again what it had deleted."""
    for name in ("a/1", "a/2", "b", "c d"):
        files.put(name, b"")

    files.delete_many([])
    files.delete_many(["a/1", "nothing", "c d", "a/1"])

    assert names(files) == ["a/2", "b"]


def test_a_read_of_a_content_refuses_another_one(files):
    """A run checks the content that it has claimed, without a look before and after."""
    files.put("file", b"0123456789")
    etag = files.stat("file").etag

    parts = [files.read("file", etag=etag), files.read("file", offset=4, length=2, etag=etag)]
    behind = files.read("file", offset=10, length=2, etag=etag)
    files.put("file", b"01234567890")
    for bounds in ({}, {"offset": 4, "length": 2}, {"offset": 20}, {"length": 0}):
        with pytest.raises(FileChanged):
            files.read("file", etag=etag, **bounds)
    files.delete("file")
    with pytest.raises(FileNotFoundError):
        files.read("file", etag=etag)

    assert (parts, behind) == ([b"0123456789", b"45"], b"")


def test_a_file_can_be_sought_in_without_reading_all_of_it(files):
    """A footer of Parquet stands at the end of a file that may have gigabytes."""
    files.put("file", b"0123456789")

    with open_seekable(files, "file") as content:
        content.seek(-3, os.SEEK_END)
        tail = content.read()
        content.seek(2)
        parts = [content.read(3), content.read(0), content.tell(), content.seek(20), content.read(5)]
        with pytest.raises(OSError, match="before the beginning"):
            content.seek(-1)

    assert tail == b"789"
    assert parts == [b"234", b"", 5, 20, b""]
    with pytest.raises(FileNotFoundError):
        open_seekable(files, "nothing")


def test_put_new_writes_pieces_in_one_step_and_replaces_nothing(files):
    """A move into the store replaces no file; no reader sees a part of a copy that broke off."""

    def torn():
        yield b"one"
        msg = "it changed"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError):
        files.put_new("sub/file", torn())
    nothing = list(files.list_after("", None))
    written = files.put_new("sub/file", iter([b"one ", b"two"]))
    with pytest.raises(FileExists):
        files.put_new("sub/file", [b"three"])

    assert nothing == []
    assert written == checksum(files, "sub/file")
    assert b"".join(read_chunks(files, "sub/file")) == b"one two"
    assert [status.name for status in files.list_after("", None)] == ["sub/file"]
