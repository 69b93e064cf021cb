"""File sets: partitions in files, and what a snapshot sees of them. How they get there is in `publish.py`.

A change row is written once, by its commit; only `superseded_seq` is set later, once, by the commit that overwrites the
key. What a snapshot w sees of a key are the rows with `commit_seq < w` that were not superseded before w.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, load_sql
from tidemill.catalog.records import decoder_of
from tidemill.catalog.transactions import Snapshot, Transaction, lock_open
from tidemill.errors import NotFound, UserError
from tidemill.json_specs import read_plain
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.stored import Storing
from tidemill.names import CommitSeq, DatasetId, PinId, RunId, WritePointer
from tidemill.shapes.change_kind import ChangeKind
from tidemill.shapes.filters import ALL_KEYS, KeyFilter
from tidemill.shapes.keys import NO_KEYS, KeySchema, KeyText
from tidemill.shapes.manifest import DataFile, Manifest, check_files
from tidemill.shapes.watermark_spec import WatermarkSpec
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.lake.fileset.fileset_sql import Sql

SQL: Sql = load_sql(__file__)

_NO_FILES: Final = Manifest(()).encode()


class WriteOp(StrEnum):
    """Act of a write on a partition: create, append to, overwrite or drop it."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    DROP = "drop"


class NotKept(UserError):
    """A state of a file set whose files are not kept any more."""

    code = "not_kept"

    def __init__(self, dataset: str, write_pointer: int, horizon: int) -> None:
        self.dataset = dataset
        self.write_pointer = write_pointer
        self.horizon = horizon
        super().__init__(
            f"{dataset} cannot be read as of commit {write_pointer - 1}: files that were replaced since are deleted",
            f"the oldest state that is kept is that of commit {horizon - 1} (see `keep_superseded=` of the file set)",
        )


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """The columns in the files (without those of the key), as Spark's JSON for a struct."""

    text: str

    @classmethod
    def decode(cls, text: str) -> ColumnSchema:
        """Read the text that the catalog stores."""
        return cls(text)

    @property
    def names(self) -> list[str]:
        """The columns, in their order."""
        return [str(field["name"]) for field in json.loads(self.text)["fields"]]

    @property
    def types(self) -> dict[str, str]:
        """Spark's types by column, nested ones as `array<string>`."""
        return {str(field["name"]): show_type(field["type"]) for field in json.loads(self.text)["fields"]}

    @property
    def schema_id(self) -> str:
        """The same for the same columns, in the same order."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def show_type(kind: object) -> str:
    """Return a type of Spark's JSON as statements write it."""
    match kind:
        case {"type": "array", "elementType": element}:
            return f"array<{show_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{show_type(key)},{show_type(value)}>"
        case {"type": "struct", "fields": fields}:
            inner = (f"{field['name']}:{show_type(field['type'])}" for field in fields)
            return f"struct<{','.join(inner)}>"
        case _:
            return str(kind)


@dataclass(frozen=True, slots=True)
class Fileset:
    """A data set of partitions with typed keys."""

    dataset: Dataset
    storing: Storing
    watermark: WatermarkSpec | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Fileset:
        """Return `dataset` as a file set; a snapshot is a file set of one partition. An error for another kind."""
        if dataset.kind is DatasetKind.SNAPSHOT:
            return cls(dataset, Storing(NO_KEYS))
        if dataset.kind is not DatasetKind.FILESET:
            raise UserError(
                f"{dataset.qualified_name} is a data set of kind {dataset.kind}: it has no partitions; "
                f"`tidemill inbox files {dataset.qualified_name}` lists its files"
            )
        storing = read_plain(Storing, dataset.spec)
        declared = storing.watermark
        return cls(dataset, storing, None if declared is None else WatermarkSpec.restore(declared, storing.keys))

    @property
    def keys(self) -> KeySchema:
        """The fields of its partition keys."""
        return self.storing.keys

    @property
    def dataset_id(self) -> DatasetId:
        """Id of the data set."""
        return self.dataset.dataset_id

    @property
    def qualified_name(self) -> str:
        """Name of the file set, as people and messages use it."""
        return self.dataset.qualified_name

    def show(self, key: KeyText) -> str:
        """A stored key as people read it."""
        return self.keys.show(self.keys.decode(key))


@dataclass(frozen=True, slots=True)
class Change:
    """Committed change of one partition.

    The names of its files are relative to `location`, a directory of the data set.

    `metadata` is the change's part of the partition's metadata, by name; None deletes a name. A row with `compacts` is
    a compaction: it holds the rows of other changes, which then have no files.
    """

    partition_key: KeyText
    write_pointer: WritePointer
    commit_seq: CommitSeq
    op: WriteOp
    location: str
    manifest: Manifest
    metadata: Mapping[str, str | None] = field(default_factory=dict)
    compacts: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """Partition as one snapshot sees it: its changes, oldest first. Their files together are the content."""

    partition_key: KeyText
    changes: tuple[Change, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all its files."""
        return sum(change.manifest.total_bytes for change in self.changes)

    @property
    def rows(self) -> int:
        """Rows of all its files."""
        return sum(change.manifest.total_rows for change in self.changes)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the partition, by name: each change adds names to the earlier ones, or deletes names."""
        merged: dict[str, str | None] = {}
        for change in self.changes:
            merged |= change.metadata
        return {name: value for name, value in merged.items() if value is not None}

    @property
    def files(self) -> list[tuple[str, DataFile]]:
        """Files of the partition, each with its name below the data set's location."""
        return [(f"{change.location}/{file.name}", file) for change in self.changes for file in change.manifest.files]


@dataclass(frozen=True, slots=True)
class Unpin(Effect):
    """Give up the reader pins of a run, at its end."""

    phase = Phase.CLAIMS

    run_id: RunId

    def writes(self) -> Sequence[Call]:
        """Remove the pins."""
        return (SQL.delete_pins(run_id=self.run_id),)


def find_schema(db: Db, dataset_id: DatasetId) -> ColumnSchema | None:
    """The columns of the file set; None before its first commit."""
    return db.value(SQL.find_schema, ColumnSchema, dataset_id=dataset_id)


def read_partitions(
    db: Db,
    dataset_id: DatasetId,
    snapshot: Snapshot,
    where: KeyFilter | None = None,
    *,
    bounds: tuple[KeyText, KeyText] | None = None,
    compacted: bool = False,
) -> list[Partition]:
    """Return the partitions that `snapshot` sees, by key: all, or those that `where` accepts.

    The result is the same at any later time. With `compacted`, compactions take the place of the files that they
    replace: the same rows in fewer files. Without it, each change has its own rows. Cost: the current changes within
    `bounds`, else those of `where`, and the changes that were replaced since.
    """
    lower, upper = bounds or (where.bounds if where else ("", ALL_KEYS))
    rows = db.all(
        SQL.read_visible,
        dataset_id=dataset_id,
        write_pointer=snapshot.write_pointer,
        lower=lower,
        upper=upper,
        compacted=int(compacted),
        no_files=_NO_FILES,
    )
    # A manifest takes longest to read: only those of accepted partitions are.
    accepted = [row for row in rows if where is None or where.accepts(KeyText(str(row[0])))]
    return to_partitions(decoder_of(SQL.read_visible, Change)(accepted))


def to_partitions(changes: Iterable[Change]) -> list[Partition]:
    """Return the partitions that `changes` make up, by key."""
    ordered = sorted(changes, key=lambda change: (change.partition_key, change.commit_seq))
    return [Partition(key, tuple(group)) for key, group in groupby(ordered, key=lambda change: change.partition_key)]


def check_partitions(world: World, fileset: Fileset, partitions: Iterable[Partition]) -> None:
    """Compare the store with what was published; `DamagedFiles` names partition and files.

    Cost: a stat a file; a file set that was declared with `checksum` has them read as well.
    """
    files = open_files(fileset.dataset.location, world)
    for partition in partitions:
        show = partial(fileset.show, partition.partition_key)
        for change in partition.changes:
            check_files(
                files, fileset.qualified_name, show, change.location, change.manifest, whole=fileset.storing.checksum
            )


def pin(db: Db, pin_id: PinId, dataset_id: DatasetId, snapshot: Snapshot, run_id: RunId) -> None:
    """Keep all files that `snapshot` sees in the data set until the run gives up its pins (`Unpin`).

    Errors and lock as of `lock_kept`.
    """
    lock_kept(db, dataset_id, snapshot)
    db.run(
        SQL.insert_pin,
        pin_id=pin_id,
        dataset_id=dataset_id,
        commit_seq=snapshot.write_pointer,
        run_id=run_id,
        until=None,
    )


def pin_within(db: Db, tx: Transaction, pin_id: PinId, dataset_id: DatasetId, snapshot: Snapshot) -> None:
    """Pin as `pin` does, for the run of a transaction that is open; else `TransactionEnded`.

    The run of a transaction that was taken over may have ended: nothing would give up the pin.
    """
    lock_open(db, tx)
    pin(db, pin_id, dataset_id, snapshot, tx.run_id)


def lock_kept(db: Db, dataset_id: DatasetId, snapshot: Snapshot) -> None:
    """Check that all files are there that `snapshot` sees in the data set, and keep them until the block ends.

    Takes the data set's row lock, under which files become garbage: no file goes between reading and pinning.
    `NotFound` for a data set that is not there, `NotKept` when files that `snapshot` sees may be gone.
    """
    row = db.record(SQL.lock_dataset, tuple[str, int], dataset_id=dataset_id)
    if row is None:
        raise NotFound("data set", dataset_id)
    name, horizon = row
    if snapshot.write_pointer < horizon:
        raise NotKept(name, snapshot.write_pointer, horizon)


def kind_of(first: Change, *, known: bool) -> ChangeKind:
    """Return the kind of a partition's changes for a consumer.

    `first` is the oldest of them; `known`: the partition existed before.
    """
    if not known:
        return ChangeKind.NEW
    return ChangeKind.OVERWRITTEN if first.op is WriteOp.OVERWRITE else ChangeKind.APPENDED
