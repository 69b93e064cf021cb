"""Adopt a tree of files in Hive's layout (`day=2026-01-01/hour=5/…`) as partitions, without moving a byte.

Only files in the location of a file set count, and only if Tidemill has not written them. The partition key comes from
the path, typed as the file set declares. Rows and columns come from the files. A directory that cannot be a partition
is refused by name, and the other directories are adopted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from tidemill.errors import TidemillError
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import PartitionWrite, reconcile
from tidemill.shapes.formats import BadFormat, FileFormat
from tidemill.shapes.keys import BadKey, KeyText
from tidemill.shapes.manifest import DataFile, Manifest, find_snapshot
from tidemill.storage.files import Files, FileStatus

Look = Callable[[Files, str, FileFormat], tuple[int, ColumnSchema]]
"""Gives the rows of a file and the columns in it; an error for what is none of that format."""

_READABLE: Final = (FileFormat.PARQUET, FileFormat.ORC)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A directory that is left as it is, and why."""

    directory: str
    why: str


@dataclass(slots=True)
class Tree:
    """Tree that was found: partitions to register, the number that is already registered, and refused directories.

    `columns` are those of the partitions to register, merged with the columns of the file set.
    """

    columns: ColumnSchema | None
    writes: list[PartitionWrite] = field(default_factory=list)
    known: int = 0
    refused: list[Refusal] = field(default_factory=list)


def look_through(
    fileset: Fileset,
    files: Files,
    below: str,
    present: Mapping[KeyText, str],
    columns: ColumnSchema | None,
    look: Look,
) -> Tree:
    """The tree below the folder `below` of the location (`""`: all of it; or a folder of keys), by directory.

    `present` are the keys that the file set has, each with the directory of its files, `columns` those that it has.
    Raises `BadFormat` for formats whose files do not say their columns. Cost: one listing, and a look into each file
    that is not registered.
    """
    if fileset.storing.format not in _READABLE:
        raise BadFormat(fileset.storing.format, "its files do not say which columns they have: adopt parquet or orc")
    tree = Tree(columns)
    base = _base(fileset, below)
    for directory, found in _directories(files, below):
        try:
            key = fileset.keys.from_path(directory.removeprefix(base))
            place = present.get(fileset.keys.encode(key))
            if place == directory:
                tree.known += 1
                continue
            if place is not None:
                raise BadKey(None, f"{fileset.keys.show(key)} exists already, with files at {place}")
            rows = [look(files, status.name, fileset.storing.format) for status in found]
            for _, offered in rows:
                _refuse_keys(fileset, offered)
            columns = tree.columns
            for _, offered in rows:
                columns = reconcile(fileset, columns, offered)
        except (TidemillError, OSError, ValueError, TypeError) as error:  # what the libraries say of a bad file
            tree.refused.append(Refusal(directory or ".", " ".join(str(error).split())[:500]))
            continue
        listed = [
            DataFile(status.name.rpartition("/")[2], status.bytes, count, status.etag)
            for status, (count, _) in zip(found, rows, strict=True)
        ]
        tree.columns = columns
        tree.writes.append(PartitionWrite(key, WriteOp.CREATE, Manifest(tuple(listed)), location=directory))
    return tree


def _base(fileset: Fileset, below: str) -> str:
    """Return the path below which the directories of keys begin: `old/` for `old` and for `old/day=2026-01-01`."""
    first = f"{fileset.keys.names[0]}="
    parts = below.split("/") if below else []
    head = parts[: next((n for n, part in enumerate(parts) if part.startswith(first)), len(parts))]
    return "".join(f"{part}/" for part in head)


def _directories(files: Files, below: str) -> Iterator[tuple[str, list[FileStatus]]]:
    """Directories with data files, by name; what begins with `.` or `_`, and what Tidemill wrote, is left out."""
    prefix = f"{below}/" if below else ""
    statuses = files.list_after(prefix, None)
    for directory, group in groupby(statuses, key=lambda status: status.name.rpartition("/")[0]):
        parts = directory.removeprefix(prefix).split("/")
        ours = find_snapshot(directory.split("/")[0]) is not None
        if ours or any(part.startswith((".", "_")) for part in parts):
            continue
        found = [status for status in group if not status.name.rpartition("/")[2].startswith((".", "_"))]
        if found:
            yield directory, found


def _refuse_keys(fileset: Fileset, offered: ColumnSchema) -> None:
    names = {name.lower() for name in fileset.keys.names}
    for name in offered.names:
        if name.lower() in names:
            raise BadKey(name, "is a column in the files as well: the directory says it, and the two may differ")
