"""Consumers: the changes of a file set that a consumer has not seen yet, each delivered once (seed 000).

A time stamp or a counter cannot tell which changes are new: a transaction that began earlier may commit later. So the
state of a consumer is a write pointer, and the earlier transactions that were open when the state was made.

In this module the caller stores the state, by `consume_partitions` or a `PartitionConsumer`. In `managed.py` the
catalog stores the state.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import Snapshot, find_in_progress
from tidemill.errors import UserError
from tidemill.lake.fileset.fileset import Change, Fileset, Partition, kind_of
from tidemill.names import DatasetId, WritePointer
from tidemill.shapes.change_kind import ChangeKind
from tidemill.shapes.filters import KeyFilter, Where
from tidemill.shapes.keys import KeyValue
from tidemill.storage.locations import path_for_readers

if TYPE_CHECKING:
    from tidemill.lake.consumer.consumer_sql import Sql

SQL: Sql = load_sql(__file__)

_MAGIC: Final = b"TMPC\x02"
_MAGIC_1: Final = b"TMPC\x01"
"""Head of states of the first version, which do not name their data set. Such states can still be read."""


class BadState(UserError):
    """A consumer state that was lost, cut or is none: it is never taken as "from the beginning"."""

    code = "bad_consumer_state"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"this is no consumer state: {why}", "start from FROM_BEGINNING only if all is to come again")


@dataclass(frozen=True, slots=True)
class PartitionConsumerState:
    """Up to where a consumer has looked, and which transactions below that it still has to look at.

    `dataset_id` names what it was taken of: for another data set it is refused. None for the beginning.
    """

    start_version: WritePointer
    versions_to_check: tuple[WritePointer, ...]
    dataset_id: DatasetId | None = None

    FROM_BEGINNING: ClassVar[PartitionConsumerState]

    def __post_init__(self) -> None:
        """Refuse what no take can have given."""
        versions = self.versions_to_check
        if any(one >= other for one, other in pairwise(versions)):
            raise BadState(f"its versions to check are not ascending: {versions}")
        if self.start_version < 0 or (versions and not 0 < versions[0] <= versions[-1] < self.start_version):
            raise BadState(f"its versions to check {versions} do not lie below its start version {self.start_version}")

    def to_bytes(self) -> bytes:
        """A form to be stored by the caller, with its consumption, in one transaction; `from_bytes` reads it."""
        numbers = (self.start_version, *self.versions_to_check)
        name = (self.dataset_id or "").encode()
        content = _MAGIC + struct.pack(">H", len(name)) + name + struct.pack(f">{len(numbers)}q", *numbers)
        return content + struct.pack(">I", zlib.crc32(content))

    @staticmethod
    def from_bytes(stored: bytes) -> PartitionConsumerState:
        """Read the text that `to_bytes` returned. `BadState` for any other text, the empty one included."""
        content, check = stored[:-4], stored[-4:]
        magic, rest = content[: len(_MAGIC)], content[len(_MAGIC) :]
        if magic not in {_MAGIC, _MAGIC_1} or struct.pack(">I", zlib.crc32(content)) != check:
            raise BadState(f"{len(stored)} bytes that are not what to_bytes() gave")
        name = b""
        if magic == _MAGIC:
            (length,) = struct.unpack(">H", rest[:2])
            name, rest = rest[2 : 2 + length], rest[2 + length :]
        numbers = struct.unpack(f">{len(rest) // 8}q", rest)
        late = tuple(map(WritePointer, numbers[1:]))
        return PartitionConsumerState(WritePointer(numbers[0]), late, DatasetId(name.decode()) if name else None)


FROM_BEGINNING: Final = PartitionConsumerState(WritePointer(0), ())
PartitionConsumerState.FROM_BEGINNING = FROM_BEGINNING


@dataclass(frozen=True, slots=True)
class ConsumedPartition:
    """A partition with what is new in it: all of it when new or overwritten, what was added when appended.

    `files` are whole paths. The values of the key are not in them.
    """

    key: Mapping[str, KeyValue]
    kind: ChangeKind
    files: tuple[str, ...]
    bytes: int
    rows: int


class PartitionConsumerResult(NamedTuple):
    """New partitions, oldest first, and the state for the next call."""

    partitions: list[ConsumedPartition]
    state: PartitionConsumerState


class ConsumerSource(Protocol):
    """Source of a `PartitionConsumer`: a `Mill`."""

    @property
    def consumers(self) -> SourceConsumers:
        """Operations on consumers."""


class SourceConsumers(Protocol):
    """The one operation on consumers that a `PartitionConsumer` needs."""

    def consume_partitions(
        self, dataset: str, state: PartitionConsumerState, *, where: Where | None = None
    ) -> PartitionConsumerResult:
        """Return the changes of the file set `dataset` since `state`, for the partitions that `where` accepts."""


class PartitionConsumer:
    """Follows a file set of a mill from a state that its user keeps: each call gives what came since the last.

    `PartitionConsumer(mill, "clicks")` begins at the beginning. What `where` does not accept is passed over for good.
    """

    def __init__(
        self,
        mill: ConsumerSource,
        dataset: str,
        state: PartitionConsumerState = FROM_BEGINNING,
        *,
        where: Where | None = None,
    ) -> None:
        self._mill = mill
        self._dataset = dataset
        self._state = state
        self._where = where

    @property
    def state(self) -> PartitionConsumerState:
        """State to store (`to_bytes`) once the caller has processed all partitions so far."""
        return self._state

    def consume_partitions(self) -> Iterator[ConsumedPartition]:
        """The partitions that are new since the last call, the oldest first."""
        partitions, self._state = self._mill.consumers.consume_partitions(self._dataset, self._state, where=self._where)
        return iter(partitions)


def consume_partitions(
    catalog: Catalog, fileset: Fileset, state: PartitionConsumerState, where: KeyFilter | None = None
) -> PartitionConsumerResult:
    """Return the changes committed to `fileset` since `state`, one for each partition, oldest first.

    A partition that `where` does not accept is never delivered later. A change that was overwritten before this call is
    left out. The call takes a tick of the clock: without it, a commit that is still on its way could be missed.
    `BadState` for a state of another data set, and for one that is ahead of this catalog, since it comes from another
    catalog. Cost: the new changes.
    """
    if state.dataset_id not in {None, fileset.dataset_id}:
        name = fileset.qualified_name
        raise BadState(f"it is of data set {state.dataset_id}, and {name} is {fileset.dataset_id}")
    pointer = WritePointer(catalog.write(lambda db: db.tick()))
    if state.start_version > pointer:
        raise BadState(f"it is at write pointer {state.start_version}, this catalog's clock at {pointer}")
    snapshot = Snapshot(pointer, catalog.incarnation)

    def block(db: Db) -> PartitionConsumerResult:
        changes, moved = take(db, fileset.dataset_id, state, snapshot)
        if where is not None:
            changes = [change for change in changes if where.accepts(change.partition_key)]
        named = replace(moved, dataset_id=fileset.dataset_id)
        return PartitionConsumerResult(_gather(db, fileset, changes, snapshot), named)

    return catalog.read(block)


def _gather(db: Db, fileset: Fileset, changes: Sequence[Change], snapshot: Snapshot) -> list[ConsumedPartition]:
    rows = [{"partition_key": c.partition_key, "write_pointer": c.write_pointer} for c in changes]
    found = db.all(
        SQL.find_fates,
        dataset_id=fileset.dataset_id,
        write_pointer=snapshot.write_pointer,
        taken=json.dumps(rows),
    )
    fates = {(row[0], row[1]): (bool(row[2]), bool(row[3])) for row in found}
    seen = [c for c in changes if not fates[c.partition_key, c.write_pointer][1]]
    seen.sort(key=lambda change: (change.partition_key, change.commit_seq))
    gathered = []
    for key, group in groupby(seen, key=lambda change: change.partition_key):
        partition = Partition(key, tuple(group))
        first = partition.changes[0]
        kind = kind_of(first, known=fates[key, first.write_pointer][0])
        gathered.append((first.write_pointer, key, kind, partition))
    gathered.sort(key=lambda one: one[:2])
    return [describe(fileset, kind, partition) for _, _, kind, partition in gathered]


def describe(fileset: Fileset, kind: ChangeKind, partition: Partition) -> ConsumedPartition:
    """Return a delivered partition as people and programs read it."""
    return ConsumedPartition(
        dict(zip(fileset.keys.names, fileset.keys.decode(partition.partition_key), strict=True)),
        kind,
        tuple(path_for_readers(fileset.dataset.location, name) for name, _ in partition.files),
        partition.bytes,
        partition.rows,
    )


def take(
    db: Db, dataset_id: DatasetId, state: PartitionConsumerState, snapshot: Snapshot
) -> tuple[list[Change], PartitionConsumerState]:
    """Changes of `dataset_id` that `state` has not seen and `snapshot` can see, oldest write pointer first.

    Cost: what is new plus what was open at the last take, never the history (tests/plans). The own write pointer is
    never delivered: that comes with the next take. All changes of one transaction come, or none. Storing the returned
    state and handing over the changes is one transaction: stored before, a crash skips them; after, they come twice.
    """
    if snapshot.write_pointer <= state.start_version:
        return [], state  # began before the last taker: going back would deliver again what came since
    unread = db.records(
        SQL.unread_changes,
        Change,
        dataset_id=dataset_id,
        write_pointer=snapshot.write_pointer,
        start_version=state.start_version,
        versions_to_check=json.dumps(state.versions_to_check),
    )
    # Everything below the own write pointer has ended or is in the list: the list is all that can still come.
    late = tuple(find_in_progress(db, dataset_id, snapshot))
    moved = PartitionConsumerState(snapshot.write_pointer, late)
    return unread, moved
