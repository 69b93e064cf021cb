"""Events of the file system: a hint to look, sooner than the next listing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.yardstick import patience
from tidemill.storage.hints import FolderHints

PATIENCE_S = patience(20)


@pytest.fixture
def hints() -> Iterator[FolderHints[str]]:
    """Watches nothing yet."""
    made: FolderHints[str] = FolderHints()
    yield made
    made.close()


def wait_for_hint(hints, change):
    """What is hinted at after `change`; fails when nothing comes."""
    woken = threading.Event()
    hints.wake = woken.set
    change()
    assert woken.wait(PATIENCE_S)
    return hints.take()


def test_a_file_that_comes_is_a_hint(hints, tmp_path):
    """Written, renamed into place, or in a folder that has just been made: each tells which location to look at."""
    folder = tmp_path / "landing"
    folder.mkdir()
    hints.watch("raw", folder)

    assert wait_for_hint(hints, lambda: (folder / "a").write_text("x")) == {"raw"}
    (tmp_path / "b").write_text("x")
    assert wait_for_hint(hints, lambda: (tmp_path / "b").rename(folder / "b")) == {"raw"}
    assert wait_for_hint(hints, (folder / "sub").mkdir) == {"raw"}


def test_a_folder_that_appears_later_is_watched_from_the_next_look_on(hints, tmp_path):
    """It is asked at each listing; so is one that was deleted and made anew."""
    folder = tmp_path / "landing"
    hints.watch("raw", folder)
    hints.watch("remote", None)
    folder.mkdir()
    hints.watch("raw", folder)
    assert wait_for_hint(hints, lambda: (folder / "a").write_text("x")) == {"raw"}

    (folder / "a").unlink()
    folder.rmdir()
    (tmp_path / "other").mkdir()  # takes the inode that is free now, so that the next folder has another
    folder.mkdir()
    hints.watch("raw", folder)
    hints.take()
    assert wait_for_hint(hints, lambda: (folder / "b").write_text("x")) == {"raw"}


def test_where_no_events_can_be_had_nothing_breaks(hints, tmp_path, monkeypatch, caplog):
    """Too many watches: the folder is listed when its time comes; said once."""
    from watchdog.observers import Observer

    def full(*_, **__):
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(Observer, "schedule", full)
    hints.watch("raw", tmp_path)
    hints.watch("raw", tmp_path)

    assert hints.take() == set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
