"""Publishing: what one transaction does to the partitions of a file set, and under which conditions it commits.

A change row is written once, by its commit; only `superseded_seq` is set later, once, by the commit that overwrites the
key. First committer wins: guards compare with what has committed since the transaction began.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, cast

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Snapshot, Transaction, UndeclaredOutput
from tidemill.errors import Conflict, UserError
from tidemill.lake.fileset import Change, ChangeKind, ColumnSchema, Fileset, Partition, WriteOp
from tidemill.lake.keys import Key, KeyText
from tidemill.lake.manifest import Manifest, tx_directory
from tidemill.names import CommitSeq, partition_event

SQL: Final = load_sql(__file__)

MOST_CHANGES: Final = 50_000
"""Partitions in one commit."""
_KEYS_A_MESSAGE: Final = 500
_HAPPENED: Final = {"create": "created", "append": "appended to", "overwrite": "overwritten"}


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
            "(committed after this transaction began); nothing was published; run again to work on the new version"
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
            "published; use append() or overwrite() where that is meant"
        )


@refusal
class SchemaChanged(UserError):
    """Data with other columns than the file set has."""

    code = "schema_changed"

    def __init__(self, dataset: str, present: str, offered: str, run: str = "") -> None:
        self.dataset = dataset
        self.present = present
        self.offered = offered
        self.run = run
        super().__init__(
            f"{dataset} has the columns {_columns(present)}; nothing with the columns {_columns(offered)} can be added"
        )


class TooManyPartitions(UserError):
    """A commit with more partitions than one transaction should hold."""

    code = "too_many_partitions"

    def __init__(self, dataset: str, partitions: int) -> None:
        self.dataset = dataset
        self.partitions = partitions
        super().__init__(
            f"one commit to {dataset} has {partitions} partitions, more than {MOST_CHANGES}: use coarser keys, or "
            "publish in several runs"
        )


@dataclass(frozen=True, slots=True)
class PartitionWrite:
    """What one transaction wants to do to one partition."""

    key: Key
    op: WriteOp
    manifest: Manifest


def fold(fileset: Fileset, writes: Iterable[PartitionWrite]) -> list[PartitionWrite]:
    """One write for each key, by key, that does what `writes` do one after the other in one transaction.

    An append adds its files to whatever went before it; an overwrite forgets that. Raises `PartitionExists` for a
    create of what the same transaction has written.
    """
    folded: dict[Key, PartitionWrite] = {}
    for write in writes:
        before = folded.get(write.key)
        match write.op:
            case _ if before is None:
                folded[write.key] = write
            case WriteOp.APPEND:
                folded[write.key] = PartitionWrite(write.key, before.op, before.manifest.with_files_of(write.manifest))
            case WriteOp.OVERWRITE:
                # What had to be absent for the create still has to be.
                op = WriteOp.CREATE if before.op is WriteOp.CREATE else WriteOp.OVERWRITE
                folded[write.key] = PartitionWrite(write.key, op, write.manifest)
            case WriteOp.CREATE:
                raise PartitionExists(fileset.qualified_name, fileset.keys.show(write.key), "this run", "0")
    return [folded[key] for key in sorted(folded, key=fileset.keys.encode)]


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Publish partitions, and say so in messages of at most 500 keys each; one for each file set in a commit.

    `changes` are folded. `existing` are the keys that the snapshot sees (`find_existing`): messages call the others
    new. With `delivers` off no consumer ever gets them. `location` is the directory of their files when that is not the
    transaction's own: what another life of the catalog has committed is adopted where it is.
    """

    tx: Transaction
    fileset: Fileset
    changes: Sequence[PartitionWrite]
    schema: ColumnSchema
    existing: frozenset[KeyText]
    delivers: bool = True
    location: str | None = None

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
        }
        keys = self.fileset.keys
        calls = []
        for op, statement in guards.items():
            wanted = [
                {"partition_key": keys.encode(change.key), "shown": keys.show(change.key)}
                for change in self.changes
                if change.op is op
            ]
            if wanted:
                params: dict[str, Param] = {
                    "dataset_id": self.fileset.dataset_id,
                    "dataset": self.fileset.qualified_name,
                    "write_pointer": self.tx.write_pointer,
                    "wanted": json.dumps(wanted),
                }
                calls.append(Call(statement, params))
        if self.changes:
            params = {
                "dataset_id": self.fileset.dataset_id,
                "dataset": self.fileset.qualified_name,
                "schema_id": self.schema.schema_id,
                "schema": self.schema.text,
            }
            calls.append(Call(SQL.refuse_other_schema, params))
        return calls

    def writes(self) -> Sequence[Call]:
        """Supersede, insert, announce."""
        if not self.changes:
            return ()
        encode = self.fileset.keys.encode
        dataset_id = self.fileset.dataset_id
        schema: dict[str, Param] = {
            "dataset_id": dataset_id,
            "schema_id": self.schema.schema_id,
            "schema": self.schema.text,
            "run_id": self.tx.run_id,
        }
        calls = [Call(SQL.insert_schema, schema)]
        replaced = [encode(change.key) for change in self.changes if change.op is WriteOp.OVERWRITE]
        if replaced:
            calls.append(Call(SQL.supersede, {"dataset_id": dataset_id, "keys": json.dumps(replaced)}))
        rows = [
            {
                "partition_key": encode(change.key),
                "op": change.op,
                "manifest": base64.b64encode(change.manifest.encode()).decode(),
                "files": len(change.manifest.files),
                "bytes": change.manifest.total_bytes,
                "row_count": change.manifest.total_rows,
            }
            for change in self.changes
        ]
        inserted: dict[str, Param] = {
            "dataset_id": dataset_id,
            "write_pointer": self.tx.write_pointer,
            "delivers": int(self.delivers),
            "location": self.location or tx_directory(self.tx),
            "schema_id": self.schema.schema_id,
            "run_id": self.tx.run_id,
            "changes": json.dumps(rows),
        }
        return [*calls, Call(SQL.insert_changes, inserted), *self._messages()]

    def _messages(self) -> Iterable[Call]:
        announced = iter(self.changes if self.delivers else ())
        while batch := list(islice(announced, _KEYS_A_MESSAGE)):
            partitions = [
                {
                    "key": self.fileset.keys.show(change.key),
                    "kind": self._kind(change),
                    "rows": change.manifest.total_rows,
                    "bytes": change.manifest.total_bytes,
                }
                for change in batch
            ]
            payload = {
                "dataset": self.fileset.qualified_name,
                "run": self.tx.run_id,
                "write_pointer": self.tx.write_pointer,
                "count": sum(partition["kind"] is not ChangeKind.OVERWRITTEN for partition in partitions),
                "partitions": partitions,
            }
            dataset = self.fileset.dataset
            event_key = partition_event(dataset.namespace, dataset.name)
            yield from Publish(Topic.DATA, "partitions", event_key, payload).writes()

    def _kind(self, change: PartitionWrite) -> ChangeKind:
        if self.fileset.keys.encode(change.key) not in self.existing:
            return ChangeKind.NEW
        return ChangeKind.OVERWRITTEN if change.op is WriteOp.OVERWRITE else ChangeKind.APPENDED


def find_existing(
    db: Db, fileset: Fileset, changes: Iterable[PartitionWrite], snapshot: Snapshot
) -> frozenset[KeyText]:
    """Those of the keys that `snapshot` sees in the file set. Cost: a look-up by key each."""
    keys = [fileset.keys.encode(change.key) for change in changes]
    rows = db.all(
        SQL.find_keys, dataset_id=fileset.dataset_id, write_pointer=snapshot.write_pointer, keys=json.dumps(keys)
    )
    return frozenset(KeyText(str(row[0])) for row in rows)


def see_own(
    fileset: Fileset, partitions: Iterable[Partition], tx: Transaction, writes: Iterable[PartitionWrite]
) -> list[Partition]:
    """`partitions` as `tx` sees them after its own, folded `writes`, which nobody else sees yet."""
    seen = {partition.partition_key: partition for partition in partitions}
    for write in writes:
        key = fileset.keys.encode(write.key)
        own = Change(key, tx.write_pointer, CommitSeq(0), write.op, tx_directory(tx), write.manifest)
        before = seen[key].changes if key in seen and write.op is not WriteOp.OVERWRITE else ()
        seen[key] = Partition(key, (*before, own))
    return [seen[key] for key in sorted(seen)]


def _columns(schema: str) -> str:
    fields = json.loads(schema)["fields"]
    return ", ".join(f"{field['name']} {_type_name(field['type'])}" for field in fields)


def _type_name(spark_type: object) -> str:
    return spark_type if isinstance(spark_type, str) else str(cast("Mapping[str, object]", spark_type)["type"])
