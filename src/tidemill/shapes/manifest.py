"""Manifests: the files of one change. Readers never list directories; a listing is only how a writer makes a manifest.

A transaction writes below `tx-<write pointer>-<incarnation>/` of each data set, every write call into a numbered
directory of its own, straight into the final place. File names in a manifest are relative to the transaction's
directory. Beside the files, for a catalog that has to be restored, stand two side-cars: `_manifest.json`, what the
transaction wants to commit, written before its commit, and `_committed`, written after it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidemill.catalog.transactions import Snapshot
from tidemill.errors import Internal, Unavailable
from tidemill.names import CommitSeq, WritePointer
from tidemill.shapes.keys import Key, KeySchema
from tidemill.storage.files import Files, FileStatus, StorageUnavailable, checksum, find_file

_FORMAT: Final = 1
_SIDE_CAR: Final = "_manifest.json"
_COMMITTED: Final = "_committed"
_SOME_CHANGE: Final = "a change (`tidemill catalog fsck` names it)"
_EMPTY: Final = "the folder is empty, though files were published in it: not mounted? Mount the disk"
_DIRECTORY: Final = re.compile(r"tx-(?P<pointer>[0-9]{1,18})-(?P<incarnation>[0-9a-z]+)")


class DamagedFiles(Unavailable):
    """Files that a manifest names are missing or changed. Another program than Tidemill did that."""

    code = "damaged_files"

    def __init__(self, dataset: str, partition: str, files: Sequence[str]) -> None:
        self.dataset = dataset
        self.partition = partition
        self.files = tuple(files)
        super().__init__(
            f"partition {partition} of {dataset} is damaged: {'; '.join(self.files)}",
            "Bring the files back, or overwrite the partition",
            before=". ",
        )


class DamagedManifest(Unavailable):
    """A manifest in the catalog cannot be read. Another program than Tidemill, or a disk, has changed it."""

    code = "damaged_manifest"
    hint = "restore the catalog from a backup, or overwrite the partition"

    def __init__(self, change: str, why: str) -> None:
        self.change = change
        self.why = why
        super().__init__(f"the manifest of {change} is damaged in the catalog ({why})", self.hint, before=": ")


class FileTimes(NamedTuple):
    """The least and the largest time of the rows of a file by one column, in microseconds. Each row has a time."""

    column: str
    least: int
    largest: int


@dataclass(frozen=True, slots=True, order=True)
class DataFile:
    """A file of a change: its name below the transaction's directory, its size, its rows, etag, checksum, and times.

    While the store returns the same etag, the file was not written again. Another etag alone means nothing: a folder
    that was copied to another disk has other etags and the same content. Then the checksum decides, if there is one.
    `times` are by the column that was that of the table's watermark when the file was written; None if not known.
    """

    name: str
    bytes: int
    rows: int
    etag: str
    checksum: str = ""
    times: FileTimes | None = None

    @classmethod
    def of(cls, values: Sequence[Any]) -> DataFile:
        """Return the file of which `values` are a row of a manifest."""
        name, size, rows, etag, checksum, *more = values
        return cls(name, size, rows, etag, checksum, FileTimes(*more[0]) if more else None)

    @property
    def values(self) -> list[Any]:
        """The file as a row of a manifest."""
        return [*astuple(self)[:5], *([] if self.times is None else [list(self.times)])]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one change, by name."""

    files: tuple[DataFile, ...]

    def __post_init__(self) -> None:
        """Order the files and refuse a doubled name, whose rows would be read twice."""
        object.__setattr__(self, "files", tuple(sorted(self.files)))
        if len({file.name for file in self.files}) != len(self.files):
            raise Internal(f"a manifest names a file twice: {[file.name for file in self.files]}")

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def total_rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    def with_files_of(self, other: Manifest) -> Manifest:
        """The files of both."""
        return Manifest(self.files + other.files)

    def encode(self) -> bytes:
        """The form that the catalog stores: versioned, compressed."""
        files = [file.values for file in self.files]
        text = json.dumps({"format": _FORMAT, "files": files}, separators=(",", ":"), ensure_ascii=False)
        return zlib.compress(text.encode(), level=1)

    @classmethod
    def decode(cls, stored: bytes, change: str = _SOME_CHANGE) -> Manifest:
        """Read the result of `encode`; `DamagedManifest` names `change`. An error for a format of a later version."""
        try:
            content = json.loads(zlib.decompress(stored))
            if content["format"] == _FORMAT:
                return cls(tuple(DataFile.of(file) for file in content["files"]))
        except (zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedManifest(change, str(error)) from error
        raise Internal(f"a manifest has the format {content['format']}, which this version does not know")


def tx_directory(snapshot: Snapshot) -> str:
    """The directory of a transaction, relative to the location of each data set that it writes."""
    return f"tx-{snapshot.write_pointer}-{snapshot.incarnation}"


def list_written(files: Files, directory: str) -> list[FileStatus]:
    """The data files below `directory`, once listed; what begins with `.` or `_` is Spark's own."""
    prefix = f"{directory}/"
    return [
        status
        for status in files.list_after(prefix, None)
        if not any(part.startswith((".", "_")) for part in status.name.removeprefix(prefix).split("/"))
    ]


def group_by_partition(
    keys: KeySchema,
    directory: str,
    written: Iterable[FileStatus],
    rows: Mapping[str, int],
    checksums: Mapping[str, str] | None = None,
    times: Mapping[str, FileTimes | None] = MappingProxyType({}),
) -> dict[Key, Manifest]:
    """Manifests by key of the files that one write call left in `directory` (`tx-…/<n>`), given the rows of each.

    `checksums` are those of `checksums_of_job`, of all files or of none; `times` are those of some. Raises `BadKey` for
    a directory that stands for null or that Spark did not name.
    """
    tx, number = directory.split("/")
    found: dict[Key, Manifest] = {}
    ordered = sorted(written, key=lambda status: status.name)
    for path, group in groupby(ordered, key=lambda status: status.name.rpartition("/")[0]):
        key = keys.from_path(path.removeprefix(f"{tx}/{number}").removeprefix("/"))
        found[key] = Manifest(
            tuple(
                DataFile(
                    s.name.removeprefix(f"{tx}/"),
                    s.bytes,
                    rows[s.name],
                    s.etag,
                    checksums[s.name] if checksums else "",
                    times.get(s.name),
                )
                for s in group
            )
        )
    return found


def check_files(
    files: Files, dataset: str, show: Callable[[], str], location: str, manifest: Manifest, *, whole: bool = False
) -> None:
    """Compare the store with the manifest; `DamagedFiles` names missing, cut and rewritten files.

    `show` returns the partition as people read it, and is called for the error alone.

    `StorageUnavailable` if the location is missing or empty: then the partition does not count as damaged.
    Cost: a stat a file; one whose etag differs is read as well, with `whole` each: a disk that forgets changes no etag.
    """
    wrong = []
    for file in manifest.files:
        why = _find_damage(files, f"{location}/{file.name}", file, whole=whole)
        if why is not None:
            wrong.append(f"{location}/{file.name} {why}")
    if wrong:
        raise DamagedFiles(dataset, show(), wrong)


def _find_damage(files: Files, name: str, file: DataFile, *, whole: bool) -> str | None:
    status = find_file(files, name)
    if status is None:
        if files.check_location() is None:
            raise StorageUnavailable(files.url, "", _EMPTY)
        return "is gone"
    if status.bytes != file.bytes:
        return f"has {status.bytes} bytes instead of {file.bytes}"
    if not file.checksum or (status.etag == file.etag and not whole):
        return None
    try:
        found = checksum(files, name, file.checksum)
    except FileNotFoundError:
        return "is gone"
    return None if found == file.checksum else f"has other content than was written ({found}, not {file.checksum})"


def delete_unnamed(files: Files, snapshot: Snapshot, named: Collection[str]) -> None:
    """Delete what an open transaction has written and does not commit: all files but those `named` in its manifests.

    Only for the transaction's own process, after its last write and before its commit: no reader sees the files yet.
    """
    directory = f"{tx_directory(snapshot)}/"
    for status in list(files.list_after(directory, None)):
        if status.name.removeprefix(directory) not in named:
            files.delete(status.name)


def write_side_car(files: Files, snapshot: Snapshot, content: Mapping[str, object]) -> None:
    """Put `content` beside the files as what the transaction wants to commit; call it before the commit."""
    whole = {"format": _FORMAT, **_identity(snapshot), **content}
    files.put(f"{tx_directory(snapshot)}/{_SIDE_CAR}", json.dumps(whole, ensure_ascii=False).encode())


def mark_committed(files: Files, snapshot: Snapshot, commit_seq: CommitSeq) -> None:
    """Put the marker of a committed transaction beside its files; only after its commit. Idempotent.

    No marker stays without a manifest. A process may write the marker late, after the files were replaced, expired and
    deleted, and no janitor looks there again. So this looks for the manifest after the write.
    """
    directory = tx_directory(snapshot)
    content = {**_identity(snapshot), "commit_seq": commit_seq}
    files.put(f"{directory}/{_COMMITTED}", json.dumps(content).encode())
    if files.stat(f"{directory}/{_SIDE_CAR}") is None:
        files.delete(f"{directory}/{_COMMITTED}")
        files.delete_empty_folder(directory)


def is_marked(files: Files, snapshot: Snapshot) -> bool:
    """Return whether the transaction's marker is there."""
    return files.stat(f"{tx_directory(snapshot)}/{_COMMITTED}") is not None


def find_snapshot(directory: str) -> Snapshot | None:
    """Return the transaction of a directory, by its name; None if the directory is no transaction's."""
    match = _DIRECTORY.fullmatch(directory)
    return Snapshot(WritePointer(int(match["pointer"])), match["incarnation"]) if match else None


def read_marker(files: Files, snapshot: Snapshot) -> CommitSeq | None:
    """The commit sequence of a transaction that is marked as committed; None when there is no marker of its own."""
    content = _read(files, snapshot, _COMMITTED)
    return CommitSeq(content["commit_seq"]) if content and isinstance(content.get("commit_seq"), int) else None


def read_side_car(files: Files, snapshot: Snapshot) -> dict[str, Any] | None:
    """Read the side-car of a transaction (`write_side_car`); None if there is none, or a torn one.

    An error for a format of a later version.
    """
    content = _read(files, snapshot, _SIDE_CAR)
    if content and content.get("format") != _FORMAT:
        raise Internal(f"a side-car has the format {content.get('format')}, which this version does not know")
    return content


def is_side_car(name: str) -> bool:
    """Return whether a file with this name, below a transaction's directory, is one of ours beside the data."""
    return name in {_SIDE_CAR, _COMMITTED}


def is_checksum(name: str, named: Collection[str]) -> bool:
    """Tell whether a file is Hadoop's checksum (`.part-0.parquet.crc`) of one of the files `named` in a manifest."""
    folder, slash, short = name.rpartition("/")
    about = short.removeprefix(".").removesuffix(".crc")
    return short == f".{about}.crc" and f"{folder}{slash}{about}" in named


def _read(files: Files, snapshot: Snapshot, name: str) -> dict[str, Any] | None:
    try:
        content = json.loads(files.read(f"{tx_directory(snapshot)}/{name}"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    # A folder that was renamed or copied by hand is not what its side-cars say.
    own = isinstance(content, dict) and _identity(snapshot).items() <= content.items()
    return content if own else None


def _identity(snapshot: Snapshot) -> dict[str, object]:
    return {"write_pointer": snapshot.write_pointer, "incarnation": snapshot.incarnation}
