"""Consumers: which changes of a file set somebody has not seen yet, each delivered once (seed 000).

A time stamp or a counter cannot say what is new: a transaction that began earlier may commit later. So the state of a
consumer is a write pointer, up to which all was looked at, and the transactions below it that were still open then.

Here the caller keeps the state, and calls `take` or a `PartitionConsumer`; `claims.py` keeps it in the catalog.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import Snapshot, find_in_progress
from tidemill.errors import UserError
from tidemill.lake.fileset import Change, to_change
from tidemill.names import DatasetId, WritePointer

SQL: Final = load_sql(__file__)

_MAGIC: Final = b"TMPC\x01"


class BadState(UserError):
    """A consumer state that was lost, cut or is none: it is never taken as "from the beginning"."""

    code = "bad_consumer_state"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"this is no consumer state: {why}; start from FROM_BEGINNING only if all is to come again")


@dataclass(frozen=True, slots=True)
class PartitionConsumerState:
    """Up to where a consumer has looked, and which transactions below that it still has to look at."""

    start_version: WritePointer
    versions_to_check: tuple[WritePointer, ...]

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
        content = _MAGIC + struct.pack(f">{len(numbers)}q", *numbers)
        return content + struct.pack(">I", zlib.crc32(content))

    @staticmethod
    def from_bytes(stored: bytes) -> PartitionConsumerState:
        """What `to_bytes` gave; `BadState` for anything else, an empty text included."""
        content, check = stored[:-4], stored[-4:]
        if not content.startswith(_MAGIC) or struct.pack(">I", zlib.crc32(content)) != check:
            raise BadState(f"{len(stored)} bytes that are not what to_bytes() gave")
        numbers = struct.unpack(f">{(len(content) - len(_MAGIC)) // 8}q", content[len(_MAGIC) :])
        return PartitionConsumerState(WritePointer(numbers[0]), tuple(map(WritePointer, numbers[1:])))


FROM_BEGINNING: Final = PartitionConsumerState(WritePointer(0), ())
PartitionConsumerState.FROM_BEGINNING = FROM_BEGINNING


class PartitionConsumerResult(NamedTuple):
    """What a take gives: changes of partitions, and the state from which to take the next."""

    partitions: list[Change]
    state: PartitionConsumerState


def take(db: Db, dataset_id: DatasetId, state: PartitionConsumerState, snapshot: Snapshot) -> PartitionConsumerResult:
    """Changes of `dataset_id` that `state` has not seen and `snapshot` can see, oldest write pointer first.

    Cost: what is new plus what was open at the last take, never the history (tests/plans). The own write pointer is
    never delivered: that comes with the next take. All changes of one transaction come, or none. Storing the returned
    state and handing over the changes is one transaction: stored before, a crash skips them; after, they come twice.
    """
    if snapshot.write_pointer <= state.start_version:
        return PartitionConsumerResult(
            [], state
        )  # began before the last taker: going back would deliver again what came since
    rows = db.all(
        SQL.unread_changes,
        dataset_id=dataset_id,
        write_pointer=snapshot.write_pointer,
        start_version=state.start_version,
        versions_to_check=json.dumps(state.versions_to_check),
    )
    # Everything below the own write pointer has ended or is in the list: the list is all that can still come.
    late = tuple(find_in_progress(db, dataset_id, snapshot))
    moved = PartitionConsumerState(snapshot.write_pointer, late)
    return PartitionConsumerResult([to_change(row) for row in rows], moved)


class PartitionConsumer:
    """Follows a file set from a state that its user keeps: each call gives what came since the call before."""

    def __init__(self, dataset_id: DatasetId, state: PartitionConsumerState = FROM_BEGINNING) -> None:
        self._dataset_id = dataset_id
        self._state = state

    @property
    def state(self) -> PartitionConsumerState:
        """What to store (`to_bytes`) once the changes given so far are dealt with."""
        return self._state

    def consume_partitions(self, db: Db, snapshot: Snapshot) -> Iterator[Change]:
        """The changes since the last call that `snapshot` sees; see `take`."""
        changes, self._state = take(db, self._dataset_id, self._state, snapshot)
        return iter(changes)
