from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.world import Disk, SystemClock, World


class Stopped:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> timedelta:
        return timedelta(0)

    def sleep(self, duration: timedelta) -> None:
        raise AssertionError(duration)


def test_the_clock_is_aware_and_goes_on() -> None:
    """A naive time would be compared with an aware one somewhere, or mean another zone."""
    clock = SystemClock()
    before = clock.monotonic()

    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() >= before


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(seconds=-5)])
def test_sleeping_until_the_past_is_no_sleep(duration: timedelta) -> None:
    """`until - now` is negative when one comes late."""
    SystemClock().sleep(duration)


def test_ids_are_unique_and_in_the_order_of_time() -> None:
    """They are sorted by people and by indexes."""
    early = World(clock=Stopped())
    ids = [early.new_id("run") for _ in range(1000)]
    later = World().new_id("run")

    assert len(set(ids)) == 1000
    assert {len(one) for one in ids} == {len("run_") + 26}
    assert all(one < later for one in ids)


def test_many_ids_are_unique_and_in_their_order() -> None:
    """Two processes make ids in the same millisecond. The runs of one batch start in the order of their ids."""
    first, second = (World(clock=Stopped()).new_ids("run", 1500) for _ in range(2))

    assert first == sorted(first)
    assert len({*first, *second}) == 3000
    assert {len(one) for one in first} == {len("run_") + 26}


def test_the_same_chance_gives_the_same_ids() -> None:
    """A simulation can be run again from its seed."""
    first, second = (World(clock=Stopped(), random=random.Random(7)) for _ in range(2))

    assert [first.new_id("run"), first.token(8)] == [second.new_id("run"), second.token(8)]


def test_a_token_is_safe_in_paths() -> None:
    """The incarnation is part of directory names."""
    token = World().token(40)

    assert len(token) == 40
    assert token.isalnum()
    assert token == token.lower()


def test_a_random_wait_stays_within_its_bounds() -> None:
    """Processes that wait for the same thing must not wake at the same moment, nor much later."""
    low, high = timedelta(milliseconds=1), timedelta(milliseconds=20)
    waits = {World().between(low, high) for _ in range(100)}

    assert len(waits) > 50
    assert low <= min(waits)
    assert max(waits) <= high


def test_marks_are_reported() -> None:
    """Tests wait there and crash tests die there; production does nothing."""
    seen: list[str] = []
    World(marked=seen.append).mark("commit.before_message")
    World().mark("commit.before_message")

    assert seen == ["commit.before_message"]


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader sees the old content or the new; a full disk leaves the old one and no rest."""
    disk, path = Disk(), tmp_path / "below" / "state.json"
    disk.write_bytes(path, b"old")
    monkeypatch.setattr("os.fsync", _no_space)

    with pytest.raises(OSError, match="No space"):
        disk.write_bytes(path, b"new")

    assert disk.read_bytes(path) == b"old"
    assert list(disk.list_folder(path.parent)) == [path]


def _no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device", descriptor)


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_new_file_is_there_in_one_step_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unnamed: bool
) -> None:
    """A kill must leave no file that stays for ever, and an existing file stays.

    NFS keeps at least the latter promise.
    """
    real = os.open

    def as_nfs(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, mode)

    if not unnamed:
        monkeypatch.setattr(os, "open", as_nfs)
    meanwhile = []

    def chunks() -> Iterator[bytes]:
        yield b"one "
        meanwhile.extend(path.name for path in tmp_path.iterdir())
        yield b"two"

    written = [Disk().write_new(tmp_path / "file", chunks()), Disk().write_new(tmp_path / "file", [b"three"])]

    assert written == [True, False]
    assert len(meanwhile) == (0 if unnamed else 1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one two"
    (tmp_path / "plain").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_log_can_be_followed(tmp_path: Path) -> None:
    """From where one has read to."""
    disk, path = Disk(), tmp_path / "log"
    disk.append(path, "one\n")
    disk.append(path, "two\n")

    assert disk.read_from(path, 4) == b"two\n"
    assert disk.read_from(path, 8) == b""
    assert disk.size(path) == 8


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    """Looking is no error; reading is."""
    disk, nothing = Disk(), tmp_path / "nothing"

    assert not disk.exists(nothing)
    assert disk.size(nothing) == 0
    assert list(disk.list_folder(nothing)) == []
    disk.remove(nothing)
    with pytest.raises(FileNotFoundError):
        disk.read_bytes(nothing)


def test_removing_a_link_spares_what_it_points_to(tmp_path: Path) -> None:
    """A link out of a working folder must not take the data of its target along."""
    disk, data = Disk(), tmp_path / "data"
    disk.write_bytes(data / "file", b"x")
    (tmp_path / "link").symlink_to(data)

    disk.remove(tmp_path / "link")

    assert disk.exists(data / "file")
    disk.remove(data)
    assert list(disk.list_folder(tmp_path)) == []


def test_a_temporary_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers' scratch files may hold data."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folders = {Disk().temporary_folder("x-") for _ in range(3)}

    assert len(folders) == 3
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_two_processes_may_delete_the_same_folders_at_once(tmp_path: Path) -> None:
    """All roles of a project share a machine's folder of logs: one of two that cleaned it up ended by an error."""
    folders = [tmp_path / f"{number}" for number in range(400)]
    for folder in folders:
        for file in ("stdout", "stderr", "progress"):
            (folder / "1").mkdir(parents=True, exist_ok=True)
            (folder / "1" / file).write_text("said")

    def delete(disk: Disk) -> None:
        for folder in folders:
            disk.remove(folder)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(delete, Disk()) for _ in range(4)]:
            done.result()

    assert list(tmp_path.iterdir()) == []
