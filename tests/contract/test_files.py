"""What every implementation of `storage.files.Files` keeps to. A new store adds itself to the fixture."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tidemill.storage.files import (
    BadFileName,
    FileChanged,
    FileExists,
    Files,
    StorageUnavailable,
    open_files,
    read_chunks,
)
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


@pytest.fixture(params=["local"])
def make_files(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[World], Files]:
    """Open the same location in each kind of store, as one process sees it."""
    return lambda world: open_files(tmp_path / "a location", world)


@pytest.fixture
def files(make_files: Callable[[World], Files]) -> Files:
    """An empty, writable location of each kind of store."""
    location = make_files(World())
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


def test_of_many_who_put_if_absent_one_wins(files):
    """A conditional put decides who made a marker; what is there stays whole."""
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


@pytest.mark.parametrize("name", ["file/below", "file/far/below"])
def test_put_new_below_a_file_is_an_error_of_the_store(files, name):
    """A conflict would mean that somebody has written it: the caller would look again at once, and find nothing."""
    files.put("file", b"in the way")

    with pytest.raises(StorageUnavailable):
        files.put_new(name, [b"content"])

    assert names(files) == ["file"]


def test_a_folder_is_deleted_only_when_nothing_is_in_it(files):
    """Its owner may write into it at any time; and there is nothing to say when it has gone."""
    files.put("folder/file", b"")

    files.delete_empty_folder("folder")
    kept = names(files)
    files.delete("folder/file")
    files.delete_empty_folder("folder")
    files.delete_empty_folder("folder")

    assert kept == ["folder/file"]
    folder = files.local_path("folder")
    assert folder is None or not folder.exists()


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("mark", ["storage.before_delete", "storage.moved_to_delete"])
def test_a_deletion_that_was_killed_is_ended_by_whoever_settles(make_files, mark, rewritten):
    """Neither may what was processed stay hidden for ever, nor what nobody has processed."""

    class Kill(BaseException):
        """The end of a process."""

    def strike(here: str) -> None:
        if rewritten and here == "storage.before_delete":
            files.put("sub/file", b"new")
        if here == mark:
            raise Kill

    files = make_files(World())
    files.put("sub/file", b"old")
    known = files.stat("sub/file")
    with suppress(Kill):
        make_files(World(marked=strike)).delete("sub/file", etag=known.etag)

    status = files.settle("sub/file")

    assert status == files.stat("sub/file")
    assert names(files) == ([] if status is None else ["sub/file"])
    assert (status is None) == (mark == "storage.moved_to_delete" and not rewritten)
    if rewritten:
        assert files.read("sub/file") == b"new"


def test_what_was_put_back_is_not_put_back_again(make_files):
    """Who deletes it next ends all that began before: else a processed file would come again from where it was."""
    files = make_files(World())
    files.put("file", b"old")
    old = files.stat("file")

    def write_again(here: str) -> None:
        if here == "storage.before_delete":
            files.put("file", b"new")
        if here == "storage.moved_to_delete":
            files.settle("file")
            files.delete("file", etag=files.stat("file").etag)

    make_files(World(marked=write_again)).delete("file", etag=old.etag)

    assert names(files) == []


def test_local_path_and_url_name_the_same_place(files):
    """Spark gets the path, messages and rows the URL."""
    folder = files.local_path()

    assert folder is None or (files.url == folder.as_uri() and files.local_path("a/b") == folder / "a/b")
    if folder is not None:
        assert open_files(files.url, World()).local_path() == folder
        assert os.access(folder, os.W_OK)


def test_put_new_writes_pieces_in_one_step_and_replaces_nothing(files):
    """What is moved here must not cost what is here; and of a copy that broke off nobody sees a part."""

    def torn():
        yield b"one"
        msg = "it changed"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError):
        files.put_new("sub/file", torn())
    nothing = list(files.list_after("", None))
    files.put_new("sub/file", iter([b"one ", b"two"]))
    with pytest.raises(FileExists):
        files.put_new("sub/file", [b"three"])

    assert nothing == []
    assert b"".join(read_chunks(files, "sub/file")) == b"one two"
    assert [status.name for status in files.list_after("", None)] == ["sub/file"]
