"""Changes of an outside writer: files that another process has put below the directory of a transaction.

The writer names each file with its bytes and rows. The catalog trusts neither: each file is looked at, and its size and
the rows in it are compared with what the writer says. All of that happens outside of the database transaction.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.errors import Conflict, TidemillError, UserError
from tidemill.json_specs import write_plain
from tidemill.lake.consumer.terms import MOST_TAKEN
from tidemill.lake.fileset.columns import as_stored
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.metadata import check_metadata
from tidemill.lake.fileset.publish import PartitionWrite, reconcile
from tidemill.lake.fileset.stored import count_others
from tidemill.names import DatasetId, RunId, WritePointer
from tidemill.shapes.formats import BadFormat, FileFormat
from tidemill.shapes.head import NoPyArrow
from tidemill.shapes.keys import BadKey
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.storage.file_names import check_file_name
from tidemill.storage.files import Files, checksum, find_file

if TYPE_CHECKING:
    from tidemill.run.step.outside_writes_sql import Sql

SQL: Sql = load_sql(__file__)

WRITE_CALL: Final = "1"
"""The folder below the directory of a transaction in which an outside writer puts its files: its only write call."""
MOST_PARTITIONS: Final = 1000
"""Most partitions that a read takes, unless its engine says another number."""
_FOOTERS: Final = (FileFormat.PARQUET, FileFormat.ORC)
"""Formats whose files say their columns."""
_MOST_NAMED: Final = 20
_LONGEST_REASON: Final = 300


class FilesRefused(UserError):
    """Files of an outside writer that are missing, or other files than the writer says."""

    code = "files_refused"

    def __init__(self, dataset: str, partition: str, files: Sequence[str]) -> None:
        self.dataset = dataset
        self.partition = partition
        self.files = tuple(files)
        more = len(self.files) - _MOST_NAMED
        named = "; ".join(self.files[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
        super().__init__(
            f"files of partition {partition} of {dataset} are refused: {named}. Nothing was published",
            "write the files again or correct the commit, and commit again",
            before=": ",
        )


class CommitDiffers(Conflict):
    """A second commit of one transaction, with other contents than the first."""

    code = "commit_differs"

    def __init__(self, write_pointer: int, state: str) -> None:
        self.write_pointer = write_pointer
        self.state = state
        done = "has committed other changes" if state == "committed" else "is being committed with other changes"
        super().__init__(
            f"transaction {write_pointer} {done}; nothing was published now",
            "send the same commit again, or begin another transaction",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class OutsideRead:
    """Read of an engine outside: `consumer` takes at most `limit` partitions of the file set `dataset`."""

    dataset: str
    consumer: str
    limit: int = MOST_PARTITIONS

    def __post_init__(self) -> None:
        """Refuse a take of nothing."""
        if not 1 <= self.limit <= MOST_TAKEN:
            raise UserError(f"a read takes 1 to {MOST_TAKEN} partitions, not {self.limit}")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """File of an outside writer: its name below the location that the begin answered, its bytes and its rows."""

    name: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class OutsideChange:
    """Change of an outside writer to one partition.

    `key` is as people write it (`day=2026-01-01 hour=5`), or as folders. The names of its files begin with the folders
    of the key, as in Hive's layout (`day=2026-01-01/hour=5/a.parquet`). `op` is `append`, `overwrite`, `create` or
    `drop`. An overwrite or create without files makes a partition without rows.
    """

    dataset: str
    key: str
    op: WriteOp
    files: tuple[WrittenFile, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse files that nothing is to be done with, and an append of nothing."""
        if self.op is WriteOp.DROP and (self.files or self.metadata):
            raise UserError(
                f"the drop of partition {self.key} of {self.dataset} names files or metadata: leave them out"
            )
        if self.op is WriteOp.APPEND and not self.files:
            raise UserError(f"the append to partition {self.key} of {self.dataset} names no files: name at least one")


@dataclass(frozen=True, slots=True)
class OutsideMessage:
    """Message to a topic of users that an outside writer publishes with its commit."""

    topic: str
    payload: Mapping[str, object] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True)
class OutsideCommit:
    """All that an outside writer commits with one transaction."""

    changes: tuple[OutsideChange, ...]
    messages: tuple[OutsideMessage, ...] = ()

    @property
    def digest(self) -> str:
        """The digest that tells this commit from another one of the same transaction."""
        said = [[write_plain(one) for one in self.changes], [write_plain(one) for one in self.messages]]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class FileChecker:
    """Compares the files of one file set with what their writer says of them, in the directory of a transaction.

    `base` are the columns that the file set has. Cost: a stat a file, and its footer; of text formats, and of file sets
    with checksums, the whole file.
    """

    def __init__(self, fileset: Fileset, files: Files, directory: str, base: ColumnSchema | None) -> None:
        self.base = base
        self._fileset = fileset
        self._files = files
        self._directory = directory
        self._offered: ColumnSchema | None = None
        self._named: set[str] = set()

    @property
    def columns(self) -> ColumnSchema | None:
        """The columns of the file set with those of the files; None if there were no files."""
        return self._offered

    def check(self, change: OutsideChange) -> PartitionWrite:
        """Return the write that publishes the files of a change. `FilesRefused`, `BadKey`, `SchemaChanged`."""
        keys = self._fileset.keys
        key = keys.read(change.key)
        shown, wrong, found = keys.show(key), [], []
        for file in change.files:
            try:
                found.append(self._check_file(file, keys.to_path(key)))
            except _Wrong as error:
                wrong.append(f"{file.name} {error}")
        if wrong:
            raise FilesRefused(self._fileset.qualified_name, shown, wrong)
        return PartitionWrite(key, change.op, Manifest(tuple(found)), check_metadata(change.metadata))

    def _check_file(self, file: WrittenFile, folder: str) -> DataFile:
        check_file_name(file.name)
        # Spark takes the values of the key from the folders, and they would be null without.
        begins = file.name.startswith(f"{folder}/" if folder else "")
        if not begins or "=" in file.name.removeprefix(folder).rpartition("/")[0]:
            raise _Wrong(f"is not in the folder {folder}/ of its partition, from which readers take the key")
        if any(part.startswith((".", "_")) for part in file.name.split("/")):
            raise _Wrong("has a part that begins with '.' or '_', as names of files that are no data do")
        if file.name in self._named:
            raise _Wrong("is named twice")
        self._named.add(file.name)
        name = f"{WRITE_CALL}/{file.name}"
        path = f"{self._directory}/{name}"
        status = find_file(self._files, path)
        if status is None:
            raise _Wrong("is not there")
        if status.bytes != file.bytes:
            raise _Wrong(f"has {status.bytes} bytes, not {file.bytes}")
        rows = self._look_into(path)
        if rows != file.rows:
            raise _Wrong(f"has {rows} rows, not {file.rows}")
        content = checksum(self._files, path) if self._fileset.storing.checksum else ""
        return DataFile(name, status.bytes, rows, status.etag, content)

    def _look_into(self, path: str) -> int:
        """Return the rows of a file, and have its columns among those of the file set."""
        file_format = self._fileset.storing.format
        try:
            if file_format in _FOOTERS:
                if not all(map(importlib.util.find_spec, ("pyarrow", "pyspark"))):
                    raise NoPyArrow(file_format)
                from tidemill.frames.schema import look_into

                rows, offered = look_into(self._files, path, file_format)
            else:
                rows, offered = self._read_text(path, file_format)
            present = self._offered or self.base
            offered = as_stored(file_format, present, offered)
        except FileNotFoundError:
            raise _Wrong("is not there") from None
        except BadFormat as error:
            raise _Wrong(f"cannot be read as {file_format}: {error.why}") from None
        except TidemillError:
            raise
        except (OSError, ValueError, TypeError) as error:  # what the libraries say of a bad file
            why = " ".join(str(error).split())[:_LONGEST_REASON]
            raise _Wrong(f"cannot be read as {file_format}: {why}") from error
        keys = {name.lower() for name in self._fileset.keys.names}
        for column in offered.names:
            if column.lower() in keys:
                raise BadKey(column, "is a column in the files as well: leave it out of the files, the commit says it")
        self._offered = reconcile(self._fileset, present, offered)
        return rows

    def _read_text(self, path: str, file_format: FileFormat) -> tuple[int, ColumnSchema]:
        columns = self.base
        if columns is None:
            raise BadFormat(
                file_format,
                "the files do not say which types their columns have: let a program publish the first partition of "
                f"{self._fileset.qualified_name}",
            )
        return count_others(self._files, path, file_format, columns.names), columns


class _Wrong(Exception):
    """The reason why one file is refused."""


def list_declared(db: Db, write_pointer: WritePointer) -> list[DatasetId]:
    """Return the data sets that an open transaction may write."""
    return db.records(SQL.list_declared, DatasetId, write_pointer=write_pointer)


def note_commit(db: Db, run_id: RunId, epoch: int, digest: str) -> bool:
    """Note which commit is going to be tried, before anything is written for it; False if the run has ended.

    The first commit of a transaction that is tried decides: another one could replace the side-cars of the first after
    it has committed. False also when that is so.
    """
    facts = json.dumps({"commit": digest})
    return bool(db.run(SQL.note_commit, run_id=run_id, epoch=epoch, facts=facts))
