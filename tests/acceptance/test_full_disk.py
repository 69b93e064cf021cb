"""A disk that is full: under the catalog, under the data, and under a Spark job that fills it up itself.

The small disk is a tmpfs in a mount namespace of the test's own process, as root or as a user that may be root in a
user namespace. Where neither is allowed, the kernel's limit for the size of files stands in.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.yardstick import patience

WAYS = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])


@pytest.fixture(scope="session")
def way_to_mount(tmp_path_factory: pytest.TempPathFactory) -> list[str] | None:
    """Return the command by which a process may mount a disk here, or None."""
    folder = tmp_path_factory.mktemp("mount")
    for way in WAYS:
        try:
            done = subprocess.run([*way, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return way
    return None


class FullDisk:
    """Runs scenarios in processes that have a small disk."""

    def __init__(self, folder: Path, way: list[str] | None) -> None:
        self.folder = folder
        self.way = way
        (folder / "disk").mkdir()

    def play(self, scenario: str, catalog: str | None = None) -> dict[str, Any]:
        """Return what the scenario saw; without a catalog's address, the catalog is on the small disk."""
        kind = "limited" if self.way is None else "mounted"
        catalog = catalog or f"sqlite:///{self.folder}/disk/catalog.db"
        command = [*(self.way or []), sys.executable, "-m", "tests.acceptance.full_disk"]
        done = subprocess.run(
            [*command, kind, scenario, str(self.folder), catalog],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=patience(200),
            check=False,
        )
        print(f"full disk: {kind} by {self.way}\n{done.stderr}")
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return seen


@pytest.fixture(params=["mounted", "limited"])
def full_disk(request: pytest.FixtureRequest, memory_folder: Path, way_to_mount: list[str] | None) -> FullDisk:
    """Both ways to have a full disk, so that the one for restricted machines is known to work."""
    return FullDisk(memory_folder, way_to_mount if request.param == "mounted" else None)


def test_a_catalog_on_a_full_disk_says_so_and_keeps_what_it_has(full_disk):
    """The caller gets one line, and published data stay. Work goes on when the disk has room again."""
    seen = full_disk.play("catalog")

    code, errors = seen["command"]
    assert seen["error"].startswith("catalog_unavailable: ")
    assert "free space" in seen["error"]
    assert "\n" not in seen["error"]
    assert (code, errors.count("\n")) == (5, 1)
    assert seen["same"]
    assert (seen["again"], seen["complete"], seen["check"]) == (None, True, [["ok"]])


def test_data_on_a_full_disk_are_published_whole_or_not_at_all(full_disk, catalog_url):
    """A write that did not fit is not visible, and is deleted. The next write is published."""
    seen = full_disk.play("data", catalog_url)

    assert seen["error"].startswith("storage_unavailable: ")
    assert "\n" not in seen["error"]
    assert seen["same"]
    assert seen["still"] == ["s1"]
    assert (seen["again"], seen["sources"]) == (None, ["s1", "s2"])
    assert seen["transactions"] == ["aborted", "committed", "committed"]
    assert seen["folders"] == seen["committed"]


@pytest.mark.spark
@pytest.mark.long
def test_a_spark_job_that_fills_the_disk_is_repeated_when_there_is_room(memory_folder, way_to_mount):
    """Catalog, logs and data on one disk, as on a small machine: nothing half published, no run that hangs."""
    seen = FullDisk(memory_folder, way_to_mount).play("spark")

    assert seen["error"]
    assert "\n" not in seen["error"]
    assert seen["same"]
    assert seen["still"] == []
    assert sum(seen["rows"]) == 400_000
    assert seen["folders"] == 1
