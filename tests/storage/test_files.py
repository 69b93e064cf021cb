"""Folders as stores: what only they can do wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from tidemill.storage.file_names import BadFileName
from tidemill.storage.files import BadLocation, DeletedBelow, FileUnreadable, StorageUnavailable, Unusable
from tidemill.storage.locations import open_files, path_for_readers
from tidemill.world import World


def test_links_are_neither_followed_by_a_listing_nor_out_of_the_location(tmp_path):
    """A link to / in an inbox would list the machine, one to the folder itself would never end (tried with obstore)."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (tmp_path / "secret").write_text("secret")
    (inbox / "file").write_text("x")
    (inbox / "out").symlink_to(tmp_path)
    (inbox / "secret").symlink_to(tmp_path / "secret")
    (inbox / "round").symlink_to(inbox)
    files = open_files(inbox, World())

    unusable: list[Unusable] = []
    assert [file.name for file in files.list_after("", None, None, unusable)] == ["file"]
    assert unusable == [Unusable(name, "it is a link") for name in ("out", "round", "secret")]
    for name in ("secret", "out/secret", "out/new"):
        assert files.stat(name) is None
        assert files.settle(name) is None
        with pytest.raises(BadFileName, match="link leads out"):
            files.read(name)
        with pytest.raises(BadFileName, match="link leads out"):
            files.put(name, b"")
    assert (tmp_path / "secret").read_text() == "secret"


def test_one_unusable_name_does_not_hide_the_others(tmp_path):
    """With obstore one name that is no UTF-8 fails the whole listing (tried): any sender could stop an inbox."""
    (tmp_path / "good").write_text("x")
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("x")
    (tmp_path / "line\nend").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    unusable: list[Unusable] = []

    assert [file.name for file in open_files(tmp_path, World()).list_after("", None, None, unusable)] == ["good"]
    assert {one.name: one.why for one in unusable} == {
        "bad\\xff": "it is not UTF-8",
        "line\\x0aend": "it has control characters",
        "pipe": "it is a pipe",
    }


def test_a_listing_looks_at_no_folder_beside_its_prefix(tmp_path):
    """A commit lists what its transaction wrote: each would take longer than the last if it looked at all others."""
    location = tmp_path / "lines"
    for folder in ("tx-1", "tx-2/day=1", "tx-20"):
        (location / folder).mkdir(parents=True)
        (location / folder / "good").write_text("x")
        (location / folder / "line\nend").write_text("x")
    (location / "beside\nit").write_text("x")
    (location / "tx-3").symlink_to(location / "tx-2")
    files = open_files(location, World())

    def listed(prefix: str) -> tuple[list[str], list[str]]:
        unusable: list[Unusable] = []
        found = [file.name for file in files.list_after(prefix, None, None, unusable)]
        return found, [one.name for one in unusable]

    assert listed("tx-2/") == (["tx-2/day=1/good"], ["tx-2/day=1/line\\x0aend"])
    assert listed("tx-2") == (
        ["tx-2/day=1/good", "tx-20/good"],
        ["beside\\x0ait", "tx-2/day=1/line\\x0aend", "tx-20/line\\x0aend"],
    )
    for nothing in ("tx-2/day=2/", "tx-2/good/", "tx-1/good/x", "tx-3/", "tx-2//", "../lines/tx-2/", "/"):
        assert listed(nothing) == ([], [])


def test_a_path_that_is_longer_than_keys_of_s3_is_unusable(tmp_path):
    """The catalog has names in indexes, whose entries are bounded: one deep folder would fail the whole listing."""
    parts = ["d" * 250] * 4  # 1,003 bytes and a slash
    folder = tmp_path.joinpath(*parts)
    folder.mkdir(parents=True)
    for length in (20, 21):
        (folder / ("n" * length)).write_text("x")
    unusable: list[Unusable] = []
    files = open_files(tmp_path, World())

    (listed,) = files.list_after("", None, None, unusable)
    assert len(listed.name) == 1024
    assert files.stat(listed.name) is not None
    assert [one.why for one in unusable] == [
        "it is longer than 1024 bytes, the most for a key of S3; use a shorter name"
    ]
    with pytest.raises(BadFileName, match="longer than 1024 bytes"):
        files.stat(f"{listed.name}n")


def test_a_name_that_no_folder_can_have_is_not_there(tmp_path):
    """A done-flag is made of a file's name, which may be as long as names can be."""
    assert open_files(tmp_path, World()).stat("n" * 256) is None


def test_an_unreadable_file_differs_from_a_location_that_is_away(tmp_path):
    """The first is a fault of the file, and of no other; the second is none of any file."""

    def deny(mark: str) -> None:
        if mark == "storage.before_read":
            raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "file").write_text("x")
    files = open_files(tmp_path / "inbox", World(marked=deny))
    with pytest.raises(FileUnreadable, match="Permission denied"):
        files.read("file")
    (tmp_path / "inbox").rename(tmp_path / "away")

    with pytest.raises(StorageUnavailable, match="there is no such folder") as caught:
        files.check_location()
    assert not isinstance(caught.value, FileUnreadable)


@pytest.mark.parametrize("name", ["a#1", "d#2/a", "100%", "a%20b"])
def test_a_sign_that_urls_use_is_a_letter_as_any_other(tmp_path, name):
    """Dates and shares are written so; with obstore a name that ended in `#1` could not be read (tried)."""
    (tmp_path / "my folder" / name).parent.mkdir(parents=True)
    (tmp_path / "my folder" / name).write_text("x")
    files = open_files(tmp_path / "my folder", World())

    assert [file.name for file in files.list_after("", None)] == [name]
    assert files.read(name) == b"x"
    assert Path(url2pathname(urlsplit(files.url_of(name)).path)).read_text() == "x"
    assert Path(path_for_readers(files.url, name)).read_text() == "x"
    files.delete(name, etag=files.stat(name).etag)
    assert list(files.list_after("", None)) == []


def test_a_rewrite_in_place_of_equal_size_is_seen(tmp_path):
    """Same inode, same size: only the time in nanoseconds tells, seconds do not."""
    path = tmp_path / "file"
    path.write_text("aaaa")
    files = open_files(tmp_path, World())
    before = files.stat("file")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))

    after = files.stat("file")

    assert before is not None
    assert after is not None
    assert before.etag != after.etag


def test_a_location_that_is_a_link_itself_works(tmp_path):
    """`/data` is often a link to a mounted disk."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files = open_files(tmp_path / "link", World())

    files.put("a/b", b"x")

    assert [file.name for file in files.list_after("", None)] == ["a/b"]


@pytest.mark.parametrize("location", ["", "s3:///x", "s3://bucket/x?version=1", "nul\0", "http://host/x"])
def test_a_location_that_cannot_be_opened_is_refused_in_one_line(location):
    """The message ends on a terminal."""
    with pytest.raises(BadLocation) as caught:
        open_files(location, World())

    assert "\n" not in str(caught.value)


def test_a_location_that_cannot_be_written_gives_one_clear_line(tmp_path):
    """A file where the folder should be stands for every reason; root may write anywhere else."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(BadLocation, match="cannot be written: Not a directory") as caught:
        open_files(tmp_path / "file" / "below", World()).prepare()

    assert "\n" not in str(caught.value)


def test_prepare_leaves_nothing_behind(tmp_path):
    """An inbox's folder belongs to others."""
    open_files(tmp_path / "a" / "b", World()).prepare()

    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda files: files.put("a/b", b"x"),
        lambda files: files.put_new("a/b", [b"x"]),
        lambda files: files.prepare(again=True),
    ],
    ids=["put", "put_new", "prepare again"],
)
def test_no_write_makes_the_location(tmp_path, write):
    """A disk that is not mounted leaves an empty place, where written files are lost once the disk is back."""
    files = open_files(tmp_path / "a mount" / "data", World())
    files.prepare()
    (tmp_path / "a mount" / "data").rmdir()

    with pytest.raises(StorageUnavailable, match=r"Mount the disk; or, .* make it again by `mkdir -p '/.*/data'`"):
        write(files)

    assert list((tmp_path / "a mount").iterdir()) == []


def test_a_folder_that_is_not_there_is_not_an_empty_one(tmp_path):
    """A disk that is not mounted must not look like an inbox without files."""
    with pytest.raises(StorageUnavailable, match="no such folder"):
        list(open_files(Path(tmp_path / "missing"), World()).list_after("", None))


def test_the_longest_names_can_be_written_and_deleted_by_etag(tmp_path):
    """Other systems write the files: each name that they could give must be archived and deleted."""
    name = "n" * 255
    files = open_files(tmp_path, World())
    files.put_new(name, [b"x"])

    files.delete(name, etag=files.stat(name).etag)

    assert list(tmp_path.iterdir()) == []


def test_a_link_below_a_folder_is_deleted_and_what_it_leads_to_is_not(tmp_path):
    """A program may have left one in its transaction's directory; a directory that is a link is not ours."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    location = tmp_path / "location"
    (location / "tx-1" / "1").mkdir(parents=True)
    for link in ("tx-1/out", "tx-1/1/out", "tx-2"):
        (location / link).symlink_to(tmp_path / "kept")
    files = open_files(location, World())

    deleted = [files.delete_below(name) for name in ("tx-1", "tx-2", "missing")]

    assert deleted == [DeletedBelow(4, is_whole=True), DeletedBelow(0, is_whole=True), DeletedBelow(0, is_whole=True)]
    assert [path.name for path in location.iterdir()] == ["tx-2"]
    assert (tmp_path / "kept" / "file").read_text() == "x"
    with pytest.raises(BadFileName, match="leads out"):
        files.delete_below("tx-2/below")


def test_a_process_that_writes_on_while_a_folder_is_deleted_loses_no_janitor(tmp_path, monkeypatch):
    """A zombie may: then the folder is not empty when its turn comes, and the next call goes on."""
    (tmp_path / "tx-1").mkdir()
    (tmp_path / "tx-1" / "file").write_text("x")
    rmdir = os.rmdir

    def write_first(path, **place):
        monkeypatch.undo()
        (tmp_path / "tx-1" / "late").write_text("x")
        rmdir(path, **place)

    monkeypatch.setattr("os.rmdir", write_first)

    assert open_files(tmp_path, World()).delete_below("tx-1") == DeletedBelow(1, is_whole=False)
    assert open_files(tmp_path, World()).delete_below("tx-1") == DeletedBelow(2, is_whole=True)


def test_a_folder_that_lies_on_another_disk_is_listed_by_its_link(tmp_path):
    """A namespace that was moved so would be no old data for a new catalog, and its pointers were given again."""
    (tmp_path / "data").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "data" / "main").symlink_to(tmp_path / "disk")
    (tmp_path / "data" / "file").symlink_to(__file__)
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data" / "loop")

    assert open_files(tmp_path / "data", World()).list_folders() == ["main"]


STEPS = {
    "storage.before_read": lambda files: files.read("file"),
    "storage.before_put": lambda files: files.put("file", b"new"),
    "storage.before_delete": lambda files: files.delete("file"),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_error_at_a_step_is_one_of_the_store_and_nothing_has_happened(tmp_path, step):
    """So tests let the store fail through the World; what they would patch instead might not be what is called."""
    (tmp_path / "file").write_text("old")

    def fail(mark: str) -> None:
        if mark == step:
            raise OSError(errno.EIO, "Input/output error")

    files = open_files(tmp_path, World(marked=fail))
    with pytest.raises(StorageUnavailable, match=r"fails at 'file': Input/output error$"):
        STEPS[step](files)

    assert (tmp_path / "file").read_text() == "old"
