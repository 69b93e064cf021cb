"""Writers of files that a test needs and no user has: texts in two files, and files of any size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.testing.plain import LINES, collect_writes

if TYPE_CHECKING:
    from tidemill.frames.spark import PartitionWrites


def write_halves(world: Any, rows: Mapping[str, str], fileset: Any, directory: str, _: Any = None) -> PartitionWrites:
    """Write the text of each partition twice, as two files, both of which a reader needs."""
    for path, text in rows.items():
        for half in "ab":
            _file(fileset, directory, path, f"part-{half}.txt").write_text(text, encoding="utf-8")
    return collect_writes(world, fileset, directory, LINES)


def write_sparse(world: Any, rows: Mapping[str, int], fileset: Any, directory: str, _: Any = None) -> PartitionWrites:
    """Write a file of so many bytes for each partition. The file is one hole: it takes no room, and has no rows."""
    for path, size in rows.items():
        with _file(fileset, directory, path, "part-0.parquet").open("wb") as file:
            file.truncate(size)
    counts = {fileset.keys.from_path(path): 0 for path in rows}
    return collect_writes(world, fileset, directory, LINES, counts)


def _file(fileset: Any, directory: str, partition: str, name: str) -> Path:
    folder = Path(fileset.dataset.location.removeprefix("file://")) / directory / partition
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
