"""Publishing: what one transaction does to the partitions of a file set, and under which conditions it commits.

A change row is written once, by its commit; only `superseded_seq` is set later, once, by the commit that overwrites the
key. First committer wins: guards compare with what has committed since the transaction began.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.messages import MOST_PAYLOAD_BYTES, Publish, Topic
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Snapshot, Transaction, UndeclaredOutput
from tidemill.errors import Conflict, UserError
from tidemill.lake.fileset.columns import are_same, evolve
from tidemill.lake.fileset.compaction import supersede_compactions
from tidemill.lake.fileset.fileset import Change, ColumnSchema, Fileset, Partition, WriteOp, find_schema
from tidemill.lake.fileset.stored import SchemaPolicy
from tidemill.lake.fileset.totals import add_written, subtract_replaced
from tidemill.names import CommitSeq, partition_event
from tidemill.shapes.change_kind import ChangeKind
from tidemill.shapes.keys import Key, KeyText
from tidemill.shapes.manifest import Manifest, tx_directory
from tidemill.shapes.partition_time import WallTime

if TYPE_CHECKING:
    from tidemill.lake.fileset.publish_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_CHANGES: Final = 50_000
"""Partitions in one commit."""
_KEYS_A_MESSAGE: Final = 500
_BYTES_A_MESSAGE: Final = MOST_PAYLOAD_BYTES - 1_000
"""The rest of a payload is the names of the file set and the run, and numbers."""
_NOTHING: Final = Manifest(())
_HAPPENED: Final = {"create": "created", "append": "appended to", "overwrite": "overwritten", "drop": "dropped"}


@refusal
class PartitionConflict(Conflict):
    """Another transaction committed to the partition after this one began; first committer wins."""

    code = "partition_conflict"

    def __init__(self, dataset: str, partition: str, op: str, run: str, write_pointer: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.op = op
        self.run = run
        self.write_pointer = int(write_pointer)
        super().__init__(
            f"partition {partition} of {dataset} was {_HAPPENED[op]} by {run} in transaction {write_pointer} "
            "(committed after this transaction began); nothing was published",
            "run again to work on the new version",
        )


@refusal
class PartitionExists(UserError):
    """`create` of a partition that is there."""

    code = "partition_exists"

    def __init__(self, dataset: str, partition: str, run: str, write_pointer: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.run = run
        self.write_pointer = int(write_pointer)
        super().__init__(
            f"partition {partition} of {dataset} exists: {run} made it in transaction {write_pointer}; nothing was "
            "published",
            "use append() or overwrite() where that is meant",
        )


@refusal
class SchemaChanged(UserError):
    """Data with other columns than the file set has."""

    code = "schema_changed"
    hint = 'write rows with the columns of the file set, or declare the file set with schema="evolve"'

    def __init__(self, dataset: str, present: str, offered: str, run: str = "") -> None:
        self.dataset = dataset
        self.present = present
        self.offered = offered
        self.run = run
        super().__init__(
            f"{dataset} has the columns {_columns(present)}; nothing with the columns {_columns(offered)} can be added"
        )


@refusal
class SchemaConflict(Conflict):
    """Another transaction changed the columns of the file set after this one looked at them."""

    code = "schema_conflict"

    def __init__(self, dataset: str, run: str) -> None:
        self.dataset = dataset
        self.run = run
        super().__init__(
            f"the columns of {dataset} were changed by {run} while this transaction added columns too; nothing was "
            "published",
            "run again to add them to the new ones",
        )


@refusal
class MetadataConflict(Conflict):
    """Another transaction changed the same metadata of the partition after this one began."""

    code = "metadata_conflict"

    def __init__(self, dataset: str, partition: str, name: str, run: str, write_pointer: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.name = name
        self.run = run
        self.write_pointer = int(write_pointer)
        super().__init__(
            f"metadata {name!r} of partition {partition} of {dataset} was changed by {run} in transaction "
            f"{write_pointer} (committed after this transaction began); nothing was published",
            "run again",
        )


class TooManyPartitions(UserError):
    """A commit with more partitions than one transaction should hold."""

    code = "too_many_partitions"

    def __init__(self, dataset: str, partitions: int) -> None:
        self.dataset = dataset
        self.partitions = partitions
        super().__init__(
            f"one commit to {dataset} has {partitions} partitions, more than {MOST_CHANGES}",
            "use coarser keys, or publish in several runs",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class PartitionWrite:
    """Write of one transaction to one partition.

    `metadata` is the write's part of the partition's metadata; None deletes a name. For the names in `claimed`, another
    writer of the same name is a conflict. An append without files changes metadata only. `location` is the directory of
    the files if the transaction has not written them: they were there before, and are adopted. `lacks_marker` says that
    the marker of a complete partition is not in that directory.
    """

    key: Key
    op: WriteOp
    manifest: Manifest = _NOTHING
    metadata: Mapping[str, str | None] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    location: str | None = None
    lacks_marker: bool = False

    @property
    def brings_rows(self) -> bool:
        """True if consumers get the write."""
        if self.op is WriteOp.APPEND and not self.manifest.files:
            return not self.metadata
        return self.op is not WriteOp.DROP

    def then(self, later: PartitionWrite) -> PartitionWrite | None:
        """This and, after it in the same transaction, `later` as one; None when nothing is left to do.

        An append adds its files to whatever went before it; an overwrite or drop forgets that. What had to be absent
        for a create still has to be.
        """
        claimed = self.claimed | later.claimed
        match later.op, self.op:
            case WriteOp.APPEND | WriteOp.CREATE, WriteOp.DROP:
                # To others, what was dropped and made again was overwritten.
                return replace(later, op=WriteOp.OVERWRITE, metadata=_present(later.metadata), claimed=frozenset())
            case WriteOp.APPEND, _:
                metadata = {**self.metadata, **later.metadata}
                metadata = metadata if self.op is WriteOp.APPEND else _present(metadata)
                return replace(
                    self, manifest=self.manifest.with_files_of(later.manifest), metadata=metadata, claimed=claimed
                )
            case WriteOp.OVERWRITE, WriteOp.CREATE:
                return replace(later, op=WriteOp.CREATE)
            case WriteOp.DROP, WriteOp.CREATE:
                return None
            case _:
                return later


def _present(metadata: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in metadata.items() if value is not None}


def reconcile(fileset: Fileset, columns: ColumnSchema | None, offered: ColumnSchema) -> ColumnSchema:
    """The columns of a file set that has `columns` (None: not yet) once `offered` ones come; `SchemaChanged`.

    Under the policy `evolve` these may be more and wider than before, under `fail` they are the same. The first
    columns are refused where the watermark's one cannot be the time of rows: `BadTimeColumn`.
    """
    if columns is None:
        if fileset.watermark is not None:
            fileset.watermark.refuse_types(fileset.qualified_name, offered.types)
        return offered
    if fileset.storing.policy is SchemaPolicy.EVOLVE:
        if (merged := evolve(columns, offered)) is not None:
            return merged
    elif are_same(columns, offered):
        return columns
    raise SchemaChanged(fileset.qualified_name, columns.text, offered.text)


def declare_columns(db: Db, fileset: Fileset, declared: ColumnSchema, origin: str) -> None:
    """Give a file set the columns of its declaration, in the caller's transaction. `origin` stands for a run.

    Columns that the file set has already stay, and get new ones as rows with other columns would bring them. Raises
    `SchemaChanged`, `BadTimeColumn`.
    """
    present = find_schema(db, fileset.dataset_id)
    merged = reconcile(fileset, present, declared)
    if present is None or merged.schema_id != present.schema_id:
        db.run(
            SQL.insert_schema,
            dataset_id=fileset.dataset_id,
            schema_id=merged.schema_id,
            schema=merged.text,
            run_id=origin,
        )


def fold(fileset: Fileset, writes: Iterable[PartitionWrite]) -> list[PartitionWrite]:
    """Fold `writes` to one for each key, by key. Each does what the writes of its key do one after the other.

    A partition that is created and then dropped needs no write. `PartitionExists` for a create of a partition that the
    transaction has written.
    """
    folded: dict[Key, PartitionWrite] = {}
    for write in writes:
        before = folded.pop(write.key, None)
        if before is None:
            folded[write.key] = write
        elif write.op is WriteOp.CREATE and before.op is not WriteOp.DROP:
            raise PartitionExists(fileset.qualified_name, fileset.keys.show(write.key), "this run", "0")
        elif (both := before.then(write)) is not None:
            folded[write.key] = both
    return [folded[key] for key in sorted(folded, key=fileset.keys.encode)]


@dataclass(frozen=True, slots=True)
class AddPartitions(Effect):
    """Publish partitions, and announce them in messages; one such effect for each file set in a commit.

    A message names at most 500 partitions, in at most 500 KB.

    `changes` are folded. `schema` are their columns, None when no rows come; `base` those that they were evolved from.
    `existing` are the keys that the snapshot sees (`find_existing`): messages call the others new. With `delivers` off
    no consumer ever gets them. `times` are the wall times of partitions that have one (`publish_partitions`).
    `seen` is the newest commit that the changes take into account, if that is not what the transaction sees.
    """

    phase = Phase.PUBLISH

    tx: Transaction
    fileset: Fileset
    changes: Sequence[PartitionWrite]
    schema: ColumnSchema | None
    existing: frozenset[KeyText]
    delivers: bool = True
    base: ColumnSchema | None = None
    times: Mapping[Key, WallTime] = field(default_factory=dict)
    seen: int | None = None

    def __post_init__(self) -> None:
        """Refuse what was not declared at begin, and more than a commit should hold."""
        if self.fileset.dataset_id not in self.tx.writes:
            raise UndeclaredOutput(self.fileset.qualified_name, str(self.tx.write_pointer))
        if len(self.changes) > MOST_CHANGES:
            raise TooManyPartitions(self.fileset.qualified_name, len(self.changes))

    def guards(self) -> Sequence[Call]:
        """First committer wins: refuse what has happened to the same keys since the transaction began."""
        guards = {
            WriteOp.CREATE: SQL.refuse_existing,
            WriteOp.OVERWRITE: SQL.refuse_any_later,
            WriteOp.APPEND: SQL.refuse_later_overwrite,
            WriteOp.DROP: SQL.refuse_any_later,
        }
        calls = []
        for op, statement in guards.items():
            wanted = [self._name(change) for change in self.changes if change.op is op]
            if wanted:
                calls.append(statement(**self._compared(wanted)))
        claimed = [
            {**self._name(change), "name": name, "pattern": _to_json(name) + ":"}
            for change in self.changes
            for name in sorted(change.claimed)
        ]
        if claimed:
            calls.append(SQL.refuse_same_metadata(**self._compared(claimed)))
        return [*calls, *self._guard_schema()]

    def writes(self) -> Sequence[Call]:
        """Supersede, insert, keep the totals, announce."""
        if not self.changes:
            return ()
        encode = self.fileset.keys.encode
        dataset_id = self.fileset.dataset_id
        calls = []
        if self.schema is not None:
            schema: dict[str, Param] = {
                "dataset_id": dataset_id,
                "schema_id": self.schema.schema_id,
                "schema": self.schema.text,
                "run_id": self.tx.run_id,
            }
            calls.append(SQL.insert_schema(**schema))
        replacing = (WriteOp.OVERWRITE, WriteOp.DROP)
        replaced = [encode(change.key) for change in self.changes if change.op in replacing]
        if replaced:
            calls.append(subtract_replaced(dataset_id, replaced))
            calls.append(SQL.supersede(dataset_id=dataset_id, keys=json.dumps(replaced)))
            calls.append(supersede_compactions(dataset_id, replaced))
        written = {encode(change.key): change.manifest for change in self.changes if change.op is not WriteOp.DROP}
        if written:
            calls.append(add_written(dataset_id, written))
        inserted: dict[str, Param] = {
            "dataset_id": dataset_id,
            "write_pointer": self.tx.write_pointer,
            "schema_id": self.schema.schema_id if self.schema else None,
            "run_id": self.tx.run_id,
            "changes": json.dumps([self._row(change) for change in self.changes]),
        }
        return [*calls, SQL.insert_changes(**inserted), *self._messages()]

    def _name(self, change: PartitionWrite) -> dict[str, str]:
        keys = self.fileset.keys
        return {"partition_key": keys.encode(change.key), "shown": keys.show(change.key)}

    def _compared(self, wanted: object) -> dict[str, Param]:
        return {
            "dataset_id": self.fileset.dataset_id,
            "dataset": self.fileset.qualified_name,
            "write_pointer": self.tx.write_pointer if self.seen is None else self.seen,
            "wanted": json.dumps(wanted),
        }

    def _guard_schema(self) -> Iterable[Call]:
        if self.schema is None or self.schema == self.base:
            return
        params: dict[str, Param] = {
            "dataset_id": self.fileset.dataset_id,
            "dataset": self.fileset.qualified_name,
            "schema_id": self.schema.schema_id,
        }
        if self.fileset.storing.policy is SchemaPolicy.EVOLVE:
            yield SQL.refuse_evolved(**params, base_id=self.base.schema_id if self.base else "")
        else:
            yield SQL.refuse_other_schema(**params, schema=self.schema.text)

    def _row(self, change: PartitionWrite) -> dict[str, object]:
        return {
            "partition_key": self.fileset.keys.encode(change.key),
            "partition_time": self.times.get(change.key),
            "op": change.op,
            "delivers": int(self.delivers and change.brings_rows),
            "location": change.location or tx_directory(self.tx),
            "manifest": base64.b64encode(change.manifest.encode()).decode(),
            "files": len(change.manifest.files),
            "bytes": change.manifest.total_bytes,
            "row_count": change.manifest.total_rows,
            "metadata": _to_json(change.metadata) if change.metadata else None,
        }

    def _messages(self) -> Iterable[Call]:
        partitions = (
            {
                "key": self.fileset.keys.show(change.key),
                "kind": self._kind(change),
                "rows": change.manifest.total_rows,
                "bytes": change.manifest.total_bytes,
            }
            for change in self.changes
            if self.delivers and change.brings_rows
        )
        dataset = self.fileset.dataset
        for batch in _cut(partitions):
            payload = {
                "dataset": self.fileset.qualified_name,
                "run": self.tx.run_id,
                "write_pointer": self.tx.write_pointer,
                "count": len(batch),
                "partitions": batch,
            }
            event_key = partition_event(dataset.namespace, dataset.name)
            yield from Publish(Topic.DATA, "partitions", event_key, payload).writes()

    def _kind(self, change: PartitionWrite) -> ChangeKind:
        if self.fileset.keys.encode(change.key) not in self.existing:
            return ChangeKind.NEW
        return ChangeKind.OVERWRITTEN if change.op is WriteOp.OVERWRITE else ChangeKind.APPENDED


def find_existing(
    db: Db, fileset: Fileset, changes: Iterable[PartitionWrite], snapshot: Snapshot
) -> frozenset[KeyText]:
    """Return the keys of `changes` that `snapshot` sees in the file set. Cost: a look-up by key for each."""
    keys = [fileset.keys.encode(change.key) for change in changes]
    rows = db.all(
        SQL.find_keys, dataset_id=fileset.dataset_id, write_pointer=snapshot.write_pointer, keys=json.dumps(keys)
    )
    return frozenset(KeyText(str(row[0])) for row in rows)


def see_own(
    fileset: Fileset, partitions: Iterable[Partition], tx: Transaction, writes: Iterable[PartitionWrite]
) -> list[Partition]:
    """Return `partitions` as `tx` sees them after its own, folded `writes`. No other transaction sees these yet."""
    seen = {partition.partition_key: partition for partition in partitions}
    for write in writes:
        key = fileset.keys.encode(write.key)
        own = Change(key, tx.write_pointer, CommitSeq(0), write.op, tx_directory(tx), write.manifest, write.metadata)
        before = seen.pop(key).changes if key in seen else ()
        if write.op is not WriteOp.DROP:
            seen[key] = Partition(key, (own,) if write.op is WriteOp.OVERWRITE else (*before, own))
    return [seen[key] for key in sorted(seen)]


def _cut(partitions: Iterable[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Cut the partitions of a commit, in their order, into those of one message each."""
    batch: list[dict[str, object]] = []
    left = _BYTES_A_MESSAGE
    for partition in partitions:
        size = len(json.dumps(partition, separators=(",", ":"))) + 1
        if batch and (len(batch) == _KEYS_A_MESSAGE or size > left):
            yield batch
            batch, left = [], _BYTES_A_MESSAGE
        batch.append(partition)
        left -= size
    if batch:
        yield batch


def _columns(schema: str) -> str:
    fields = json.loads(schema)["fields"]
    return ", ".join(f"{field['name']} {_type_name(field['type'])}" for field in fields)


def _type_name(spark_type: object) -> str:
    return spark_type if isinstance(spark_type, str) else str(cast("Mapping[str, object]", spark_type)["type"])


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
