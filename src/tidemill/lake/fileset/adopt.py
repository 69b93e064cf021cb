"""Adopt a tree of files in Hive's layout (`day=2026-01-01/hour=5/…`) as partitions, without moving a byte.

Only files in the location of a file set count, and only if Tidemill has not written them. The partition key comes from
the path, typed as the file set declares. Rows and columns come from the files. A directory that cannot be a partition
is refused by name, and the other directories are adopted.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemill.errors import TidemillError
from tidemill.lake.fileset.columns import as_stored
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import PartitionWrite, reconcile
from tidemill.shapes.formats import BadFormat, FileFormat
from tidemill.shapes.keys import BadKey, KeyText
from tidemill.shapes.manifest import DataFile, Manifest, find_snapshot
from tidemill.storage.files import Files, FileStatus, Unusable

Look = Callable[[Files, str, FileFormat], tuple[int, ColumnSchema]]
"""Gives the rows of a file and the columns in it; an error for what is none of that format."""

NOT_READABLE: Final = (TidemillError, OSError, ValueError, TypeError)
"""Errors of a bad directory or file: of the libraries that read files too."""
_READABLE: Final = (FileFormat.PARQUET, FileFormat.ORC)
_HIDDEN: Final = (".", "_")
"""First letters of names without data, as in Hive and Spark: `_temporary`, `.staging`, `_SUCCESS`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A directory that is left as it is, and why."""

    directory: str
    why: str


@dataclass(frozen=True, slots=True)
class TreeDirectory:
    """Directory of a tree, with the data files directly in it and the names of its hidden files.

    With `listed`, a metastore names it as a partition, which may have no files. `fault` says why what is in it is not
    known, or why such a partition cannot be read like the others of its table.
    """

    name: str
    files: list[FileStatus]
    hidden: frozenset[str]
    listed: bool = False
    fault: str = ""


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
    for one in list_directories(fileset, files, below):
        directory, found = one.name, one.files
        if not found and not one.fault:
            continue
        try:
            key = fileset.keys.from_path(directory.removeprefix(base))
            place = present.get(fileset.keys.encode(key))
            if place == directory:
                tree.known += 1
                continue
            if place is not None:
                raise BadKey(None, f"{fileset.keys.show(key)} exists already, with files at {place}")
            if one.fault:
                raise BadKey(None, one.fault)
            listed, tree.columns = look_at_files(fileset, files, found, tree.columns, look)
        except NOT_READABLE as error:
            tree.refused.append(refusal_of(one, error))
            continue
        tree.writes.append(PartitionWrite(key, WriteOp.CREATE, Manifest(tuple(listed)), location=directory))
    return tree


def look_at_files(
    fileset: Fileset, files: Files, found: Iterable[FileStatus], columns: ColumnSchema | None, look: Look
) -> tuple[list[DataFile], ColumnSchema | None]:
    """Return these files of one partition as a manifest names them, and `columns` merged with those of the files.

    Raises one of `NOT_READABLE`. Cost: a look into each file.
    """
    listed = []
    for status in found:
        rows, offered = look(files, status.name, fileset.storing.format)
        _refuse_keys(fileset, offered)
        columns = reconcile(fileset, columns, as_stored(fileset.storing.format, columns, offered))
        listed.append(DataFile(status.name.rpartition("/")[2], status.bytes, rows, status.etag))
    return listed, columns


def refusal_of(directory: TreeDirectory, error: Exception) -> Refusal:
    """Return the refusal of a directory for its fault, or for one of `NOT_READABLE`, in one line."""
    return Refusal(directory.name or ".", " ".join((directory.fault or str(error)).split())[:500])


def _base(fileset: Fileset, below: str) -> str:
    """Return the path below which the directories of keys begin: `old/` for `old` and for `old/day=2026-01-01`."""
    first = f"{fileset.keys.names[0]}="
    parts = below.split("/") if below else []
    head = parts[: next((n for n, part in enumerate(parts) if part.startswith(first)), len(parts))]
    return "".join(f"{part}/" for part in head)


def list_directories(fileset: Fileset, files: Files, below: str = "") -> Iterator[TreeDirectory]:
    """Directories with data files, directories of keys with hidden files, and what cannot be read (`fault`).

    Each directory comes once, after the directories in it. A path with a part that begins with `.` or `_` is left out,
    and so is what Tidemill wrote. A file with such a name is hidden. Hidden files of other directories than those of
    keys mean nothing: Spark leaves a `_SUCCESS` in the directory of the table.
    """
    prefix = f"{below}/" if below else ""
    depth = _base(fileset, below).count("/") + len(fileset.keys.names)
    unusable: list[Unusable] = []
    faults: dict[str, str] = {}
    # Names in a directory may sort before and after those in a directory in it: `_SUCCESS`, `old/a`, `part-0`.
    around: list[tuple[str, list[FileStatus], set[str]]] = []

    def close() -> Iterator[TreeDirectory]:
        directory, found, hidden = around.pop()
        fault = faults.pop(directory, "")
        if found or fault or (hidden and directory and directory.count("/") + 1 == depth):
            yield TreeDirectory(directory, found, frozenset(hidden), fault=fault)

    for status in files.list_after(prefix, None, None, unusable):
        directory, _, name = status.name.rpartition("/")
        _note_faults(faults, unusable, prefix, depth)
        if _is_left_out(directory, prefix):
            continue
        while around and not _is_within(directory, around[-1][0]):
            yield from close()
        if not around or around[-1][0] != directory:
            around.append((directory, [], set()))
        _, found, hidden = around[-1]
        if name.startswith(_HIDDEN):
            hidden.add(name)
        else:
            found.append(status)
    _note_faults(faults, unusable, prefix, depth)
    while around:
        yield from close()
    yield from (TreeDirectory(name, [], frozenset(), fault=fault) for name, fault in faults.items())


def _note_faults(faults: dict[str, str], unusable: list[Unusable], prefix: str, depth: int) -> None:
    """Take from `unusable`, and note by directory why what is in the directory is not known.

    A link may stand for a file, or for a directory of keys.
    """
    for one in unusable:
        name = one.name.removesuffix("/")
        if _is_left_out(name, prefix):
            continue
        if one.name == name and name.count("/") >= depth:
            directory, _, last = name.rpartition("/")
            faults.setdefault(directory, f"{last} cannot be read: {one.why}")
        else:
            faults.setdefault(name, f"it cannot be read: {one.why}")
    unusable.clear()


def _is_left_out(directory: str, prefix: str) -> bool:
    if find_snapshot(directory.partition("/")[0]) is not None:
        return True
    return any(part.startswith(_HIDDEN) for part in f"{directory}/".removeprefix(prefix).split("/"))


def _is_within(name: str, directory: str) -> bool:
    return not directory or name == directory or name.startswith(f"{directory}/")


def find_above(name: str, directories: Container[str]) -> str | None:
    """Return which of `directories` has this name, or is the nearest one above it; None if none is."""
    while name not in directories:
        if not name:
            return None
        name = name.rpartition("/")[0]
    return name


def _refuse_keys(fileset: Fileset, offered: ColumnSchema) -> None:
    names = {name.lower() for name in fileset.keys.names}
    for name in offered.names:
        if name.lower() in names:
            raise BadKey(name, "is a column in the files as well: the directory says it, and the two may differ")
