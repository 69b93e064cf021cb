"""Events of the file system: a hint to look, sooner than the next listing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from obstore.store import MemoryStore

from tests.yardstick import patience
from tidemill.storage.hints import FolderHints
from tidemill.storage.locations import open_files
from tidemill.storage.objects import ObjectFiles
from tidemill.world import World

PATIENCE_S = patience(20)


@pytest.fixture
def hints() -> Iterator[FolderHints[str]]:
    """Watches nothing yet."""
    made: FolderHints[str] = FolderHints()
    yield made
    made.close()


def wait_for_hint(hints, change):
    """Return the hint after `change`. Fails if none comes."""
    woken = threading.Event()
    hints.wake = woken.set
    change()
    assert woken.wait(PATIENCE_S)
    return hints.take()


def test_a_file_that_comes_is_a_hint(hints, tmp_path):
    """Written, renamed into place, or in a folder that has just been made: each tells which location to look at."""
    folder = tmp_path / "landing"
    folder.mkdir()
    hints.watch("raw", open_files(folder, World()))

    assert wait_for_hint(hints, lambda: (folder / "a").write_text("x")) == {"raw"}
    (tmp_path / "b").write_text("x")
    assert wait_for_hint(hints, lambda: (tmp_path / "b").rename(folder / "b")) == {"raw"}
    assert wait_for_hint(hints, (folder / "sub").mkdir) == {"raw"}


def test_a_folder_that_appears_later_is_watched_from_the_next_look_on(hints, tmp_path):
    """The folder is watched from the next listing on. So is a folder that was deleted and made again."""
    folder = tmp_path / "landing"
    hints.watch("raw", open_files(folder, World()))
    hints.watch("remote", ObjectFiles("memory:///remote", MemoryStore(), World()))
    folder.mkdir()
    hints.watch("raw", open_files(folder, World()))
    assert wait_for_hint(hints, lambda: (folder / "a").write_text("x")) == {"raw"}

    (folder / "a").unlink()
    folder.rmdir()
    folder.mkdir()
    hints.watch("raw", open_files(folder, World()))
    hints.take()
    assert wait_for_hint(hints, lambda: (folder / "b").write_text("x")) == {"raw"}


@pytest.mark.parametrize(
    ("kinds", "enough"),
    [(["ext4"], True), (["tmpfs", "overlay"], True), ([], True), (["ext4", "nfs4"], False)]
    + [([kind], False) for kind in ("nfs4", "cifs", "9p", "ceph", "lustre", "virtiofs", "fuse.s3fs")],
)
def test_hints_are_not_enough_where_other_machines_write(tmp_path, kinds, enough):
    """No event tells of a file that another machine puts on NFS, and the folder was listed once a minute."""
    hints: FolderHints[str] = FolderHints(lambda _: kinds)
    try:
        answers = [hints.watch("raw", open_files(tmp_path, World())) for _ in range(2)]
        hinted = wait_for_hint(hints, lambda: (tmp_path / "a").write_text("x"))
    finally:
        hints.close()

    assert answers == [enough, enough]
    assert hinted == {"raw"}


def test_a_folder_of_two_keys_is_watched_until_neither_wants_it(hints, tmp_path):
    """Two inboxes may share a folder. The end of one must not take the events of the other along."""
    files = open_files(tmp_path, World())
    for key in ("a", "b"):
        hints.watch(key, files)
    both = wait_for_hint(hints, (tmp_path / "1").mkdir)
    hints.unwatch("a")
    one = wait_for_hint(hints, (tmp_path / "2").mkdir)
    hints.unwatch("b")
    (tmp_path / "3").mkdir()
    hints.watch("a", files)
    last = wait_for_hint(hints, (tmp_path / "4").mkdir)

    assert (both, one, last) == ({"a", "b"}, {"b"}, {"a"})


def test_a_folder_of_two_keys_that_is_made_again_is_watched_for_both(hints, tmp_path):
    """The first of them that looks has the new folder watched."""
    folder = tmp_path / "landing"
    files = open_files(folder, World())
    folder.mkdir()
    for key in ("a", "b"):
        hints.watch(key, files)
    folder.rmdir()
    folder.mkdir()
    for key in ("a", "b"):
        hints.watch(key, files)
    hints.take()

    assert wait_for_hint(hints, (folder / "1").mkdir) == {"a", "b"}


def test_where_no_events_can_be_had_nothing_breaks(hints, tmp_path, monkeypatch, caplog):
    """With too many watches, the folder is listed when its time comes, and the log has one line."""
    from watchdog.observers import Observer

    def full(*_, **__):
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(Observer, "schedule", full)
    hints.watch("raw", open_files(tmp_path, World()))
    hints.watch("raw", open_files(tmp_path, World()))

    assert hints.take() == set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
