"""Managed consumers: the catalog keeps their state, and their runs hold what they took until they commit.

A take fills a working set with the changes that nobody has seen, moves the consumer's state, and claims rows for a
run. Claims belong to the run through all its attempts; its commit completes them, so that what was consumed and what
was published are one. Overlapping runs of one consumer never hold the same partition: while a key is held, a newer
change of it waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Final, cast

from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.named import Call, Param, Row, load_sql
from tidemill.catalog.transactions import Transaction, TransactionEnded, find_in_progress, find_transaction
from tidemill.durations import to_milliseconds
from tidemill.errors import Fenced, NotFound, UserError
from tidemill.lake.consumer import PartitionConsumerState
from tidemill.lake.fileset import Change, ChangeKind, kind_of, to_change
from tidemill.lake.keys import KeyText
from tidemill.lake.manifest import DataFile
from tidemill.names import ConsumerId, DatasetId, RunId, WritePointer

SQL: Final = load_sql(__file__)

MOST_FILLED: Final = 10_000
"""Changes that one transaction moves into a working set; more of them are cut at a write pointer."""
HALVE_AFTER: Final = 2
"""Failures of a row from which on its run keeps only half of what it holds."""
DISCARD_AFTER: Final = 3
"""Failures of a row from which on it is given up when it fails alone."""
_ANY_FAILURES: Final = 1 << 62


@refusal
class ClaimsTakenOver(Fenced):
    """The run's claims belong to another attempt of it."""

    code = "claims_taken_over"

    def __init__(self, run: str, epoch: str) -> None:
        self.run = run
        self.epoch = int(epoch)
        super().__init__(f"an attempt of run {run}", f"its claims belong to attempt {epoch}")


class WorkState(StrEnum):
    """How far a change has come in the working set of a consumer; `DISCARDED` is what failed too often, alone."""

    NEW = "new"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer whose state the catalog keeps; a program's is named `<namespace>.<app>.<program>`."""

    consumer_id: ConsumerId
    dataset_id: DatasetId
    name: str
    state: PartitionConsumerState


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one take claims: so many partitions, and so many bytes (at least one partition comes)."""

    partitions: int = 10_000
    bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could ever be taken."""
        if self.partitions < 1 or (self.bytes is not None and self.bytes < 1):
            raise UserError(f"the limits of a take must allow something, not {self}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One partition as a consumer gets it: all of it when new or overwritten, what was added when appended."""

    partition_key: KeyText
    kind: ChangeKind
    changes: tuple[Change, ...]

    @property
    def files(self) -> list[tuple[str, DataFile]]:
        """The files to read, each with its name below the data set's location."""
        return [(f"{change.location}/{file.name}", file) for change in self.changes for file in change.manifest.files]


@dataclass(frozen=True, slots=True)
class Work:
    """A row of a working set, for people."""

    write_pointer: WritePointer
    partition_key: KeyText
    state: WorkState
    failures: int
    not_before: datetime | None
    run_id: RunId | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Lag:
    """What a consumer has not taken yet; `oldest` is when the longest waiting change committed."""

    partitions: int
    bytes: int
    oldest: datetime | None


def ensure_consumer(db: Db, dataset_id: DatasetId, name: str) -> Consumer:
    """Give the consumer of this name, made if there was none: then it starts at the beginning."""
    # Made from what it is unique by, so that two deployments at once make the same.
    digest = hashlib.sha256(f"{dataset_id}/{name}".encode()).hexdigest()
    db.run(SQL.insert_consumer, consumer_id=f"consumer_{digest[:26]}", dataset_id=dataset_id, name=name)
    return find_consumer(db, dataset_id, name)


def find_consumer(db: Db, dataset_id: DatasetId, name: str) -> Consumer:
    """The consumer of this name; `NotFound`."""
    row = db.one(SQL.find_consumer, dataset_id=dataset_id, name=name)
    if row is None:
        raise NotFound("consumer", name, hint="`tidemill consumer list` shows those there are")
    return _consumer(row)


def list_consumers(db: Db) -> list[Consumer]:
    """All consumers, by name."""
    return [_consumer(row) for row in db.all(SQL.list_consumers)]


def list_work(db: Db, consumer_id: ConsumerId, state: WorkState, limit: int) -> list[Work]:
    """At most `limit` rows of the working set that are in `state`, oldest write pointer first; completed ones never.

    Cost: how many are in the state.
    """
    return [_work(row) for row in db.all(SQL.list_work, consumer_id=consumer_id, state=state, limit=limit)]


def measure_lag(db: Db, consumer: Consumer) -> Lag:
    """How far the consumer is behind. Cost: what waits."""
    rows = db.all(
        SQL.measure_lag,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        start_version=consumer.state.start_version,
        versions_to_check=json.dumps(consumer.state.versions_to_check),
    )
    partitions, size, oldest = cast("tuple[int, int, int | None]", rows[0])
    return Lag(int(partitions), int(size), None if oldest is None else datetime.fromtimestamp(oldest / 1000, UTC))


def take_claims(
    catalog: Catalog, tx: Transaction, inputs: Mapping[ConsumerId, Limits]
) -> dict[ConsumerId, list[Delivery]]:
    """Claim for the run of `tx` what its consumers have to give, and deliver it; call it once, after the begin.

    A run that holds claims already (of an earlier attempt, re-stamped by the begin) keeps just those. A run with a
    claim that has failed `HALVE_AFTER` times keeps the first half of all it holds and puts the rest back. Short
    transactions under the consumers' row locks; nothing of it has to be undone when the process dies: claims belong
    to the run. Raises `TransactionEnded` when the attempt was fenced. Oldest deliveries first. Cost: what is new.
    """
    consumers = sorted(inputs)
    while True:
        catalog.world.mark("take.before_fill")
        filled, held = catalog.write(lambda db: _take(db, tx, consumers, inputs))
        if filled:
            break
    catalog.world.mark("take.after_claim")
    return {consumer_id: held.get(consumer_id, []) for consumer_id in consumers}


def _take(
    db: Db, tx: Transaction, consumers: Sequence[ConsumerId], inputs: Mapping[ConsumerId, Limits]
) -> tuple[bool, dict[ConsumerId, list[Delivery]]]:
    """One transaction of a take: whether all is filled, and then what the run holds."""
    if db.one(SQL.lock_open_tx, write_pointer=tx.write_pointer, epoch=tx.epoch) is None:
        row = find_transaction(db, tx.write_pointer)
        raise TransactionEnded(str(tx.write_pointer), row.state, row.reason or "")
    locked = [_lock(db, consumer_id) for consumer_id in consumers]
    held = _read_held(db, tx.run_id)
    if not held:
        if not all(_fill(db, consumer, tx) for consumer in locked):
            return False, {}
        for consumer in locked:
            _claim(db, consumer, tx, inputs[consumer.consumer_id])
        held = _read_held(db, tx.run_id)
    return True, _deliver(_halve(db, tx, held))


def _lock(db: Db, consumer_id: ConsumerId) -> Consumer:
    row = db.one(SQL.lock_consumer, consumer_id=consumer_id)
    if row is None:
        raise NotFound("consumer", consumer_id)
    return _consumer(row)


def _fill(db: Db, consumer: Consumer, tx: Transaction) -> bool:
    """Move unread changes into the working set, and the state with them; whether that was all that `tx` sees."""
    state = consumer.state
    if tx.write_pointer <= state.start_version:
        return True  # whoever has moved the state was further on; what it filled is there to be claimed
    unread: dict[str, Param] = {
        "dataset_id": consumer.dataset_id,
        "write_pointer": tx.write_pointer,
        "start_version": state.start_version,
        "versions_to_check": json.dumps(state.versions_to_check),
    }
    bound = _find_bound(db, unread) or tx.write_pointer
    db.run(SQL.fill, consumer_id=consumer.consumer_id, bound=bound, **unread)
    moved = _move(state, WritePointer(bound), find_in_progress(db, consumer.dataset_id, tx))
    db.run(
        SQL.move_state,
        consumer_id=consumer.consumer_id,
        start_version=moved.start_version,
        versions_to_check=json.dumps(moved.versions_to_check),
    )
    return bound == tx.write_pointer


def _find_bound(db: Db, unread: Mapping[str, Param]) -> int | None:
    """The write pointer below which a transaction of ours fills; None when it may fill all there is."""
    beyond = db.one(SQL.find_unread, most=MOST_FILLED + 1, place=MOST_FILLED, **unread)
    if beyond is None:
        return None
    first = db.one(SQL.find_unread, most=1, place=0, **unread)
    assert first is not None  # noqa: S101  # there is one beyond it
    # A transaction is filled whole, however large it is.
    return cast("int", beyond[0]) if first[0] != beyond[0] else cast("int", beyond[0]) + 1


def _move(
    state: PartitionConsumerState, bound: WritePointer, in_progress: Sequence[WritePointer]
) -> PartitionConsumerState:
    """The state after all unread changes below `bound` were filled, given what may still come."""
    if bound <= state.start_version:  # only some of those that were late
        later = tuple(v for v in state.versions_to_check if v >= bound or v in in_progress)
        return PartitionConsumerState(state.start_version, later)
    return PartitionConsumerState(bound, tuple(v for v in in_progress if v < bound))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What waits of one key: rows to deliver, rows that drop out, the failures of the worst, bytes to deliver."""

    key: KeyText
    delivered: list[int]
    dropped: list[int]
    failures: int
    bytes: int


def _claim(db: Db, consumer: Consumer, tx: Transaction, limits: Limits) -> None:
    owner: dict[str, Param] = {"consumer_id": consumer.consumer_id, "run_id": tx.run_id, "epoch": tx.epoch}
    claimed = 0
    size = 0
    alike = (0, _ANY_FAILURES)
    while (wanted := limits.partitions - claimed) > 0:
        found = _find_claimable(db, consumer, tx, wanted, alike)
        if not found:
            return
        # What failed before goes with what failed as often: else each new run would halve the same whole again, and
        # never come to the poison one alone.
        alike = _as_often(found[0].failures)
        if any(_as_often(waiting.failures) != alike for waiting in found):
            found = _find_claimable(db, consumer, tx, wanted, alike)
        claims, dropped = [], []
        full = False
        for waiting in found:
            dropped += [{"write_pointer": w, "partition_key": waiting.key} for w in waiting.dropped]
            if limits.bytes is not None and claimed and waiting.delivered and size + waiting.bytes > limits.bytes:
                full = True
                break
            claims += [{"write_pointer": w, "partition_key": waiting.key} for w in waiting.delivered]
            claimed += bool(waiting.delivered)
            size += waiting.bytes
        if dropped:
            db.run(SQL.close_superseded, closed=json.dumps(dropped), **owner)
        if claims:
            db.run(SQL.claim, claims=json.dumps(claims), **owner)
        # All that was found is claimed or closed now: another round finds other keys.
        if full or sum(len(waiting.delivered) + len(waiting.dropped) for waiting in found) < wanted:
            return


def _as_often(failures: int) -> tuple[int, int]:
    return (failures, failures) if failures >= HALVE_AFTER else (0, HALVE_AFTER - 1)


def _find_claimable(
    db: Db, consumer: Consumer, tx: Transaction, most: int, failures: tuple[int, int]
) -> list[_Waiting]:
    rows = db.all(
        SQL.find_claimable,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        write_pointer=tx.write_pointer,
        most=most,
        from_failures=failures[0],
        to_failures=failures[1],
    )
    found = []
    for key, grouped in groupby(rows, key=lambda row: row[0]):
        group = cast("list[tuple[str, int, int, int, int]]", list(grouped))
        delivered = [(write_pointer, size) for _, write_pointer, _, size, superseded in group if not superseded]
        found.append(
            _Waiting(
                KeyText(str(key)),
                [write_pointer for write_pointer, _ in delivered],
                [write_pointer for _, write_pointer, _, _, superseded in group if superseded],
                max(failures for _, _, failures, _, _ in group),
                sum(size for _, size in delivered),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Held:
    consumer_id: ConsumerId
    failures: int
    delivery: Delivery

    @property
    def order(self) -> tuple[WritePointer, ConsumerId, KeyText]:
        return self.delivery.changes[0].write_pointer, self.consumer_id, self.delivery.partition_key


def _read_held(db: Db, run_id: RunId) -> list[_Held]:
    """What the run holds, one for each key, oldest first."""
    held = []
    rows = db.all(SQL.find_claims, run_id=run_id)
    for (consumer_id, _), grouped in groupby(rows, key=lambda row: (row[0], row[2])):
        group = list(grouped)
        changes = tuple(to_change(row[2:8]) for row in group)
        failures = max(cast("int", row[1]) for row in group)
        kind = kind_of(changes[0], known=bool(group[0][8]))
        held.append(_Held(ConsumerId(str(consumer_id)), failures, Delivery(changes[0].partition_key, kind, changes)))
    return sorted(held, key=lambda one: one.order)


def _halve(db: Db, tx: Transaction, held: list[_Held]) -> list[_Held]:
    """Find the poison one: what has failed before is tried again in halves."""
    if len(held) < 2 or all(one.failures < HALVE_AFTER for one in held):
        return held
    kept, rest = held[: len(held) // 2], held[len(held) // 2 :]
    returned = [{"consumer_id": one.consumer_id, "partition_key": one.delivery.partition_key} for one in rest]
    db.run(SQL.put_back, run_id=tx.run_id, returned=json.dumps(returned))
    return kept


def _deliver(held: Sequence[_Held]) -> dict[ConsumerId, list[Delivery]]:
    deliveries: dict[ConsumerId, list[Delivery]] = {}
    for one in held:
        deliveries.setdefault(one.consumer_id, []).append(one.delivery)
    return deliveries


def holds_any(db: Db, run_id: RunId) -> bool:
    """Whether the run holds anything that it took: partitions, or files of an inbox."""
    return db.one(SQL.find_holding, run_id=run_id) is not None


def put_back(db: Db, tx: Transaction, consumer_id: ConsumerId, keys: Sequence[KeyText]) -> None:
    """Return claims of the run without counting a failure; whoever takes next gets them."""
    returned = [{"consumer_id": consumer_id, "partition_key": key} for key in keys]
    db.run(SQL.put_back, run_id=tx.run_id, returned=json.dumps(returned))


@dataclass(frozen=True, slots=True)
class RestampClaims:
    """Hand the claims of a run to its new attempt; belongs to the attempt's begin."""

    run_id: RunId
    epoch: int

    def guards(self) -> Sequence[Call]:
        """None: the begin guards the run."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Set the epoch."""
        return (Call(SQL.restamp, {"run_id": self.run_id, "epoch": self.epoch}),)


@dataclass(frozen=True, slots=True)
class CompleteClaims:
    """Complete what the run holds, and record it as the run's input; belongs to the run's commit."""

    run_id: RunId
    epoch: int

    def guards(self) -> Sequence[Call]:
        """Refuse when the claims belong to another attempt (`ClaimsTakenOver`)."""
        return (Call(SQL.refuse_other_epoch, {"run_id": self.run_id, "epoch": self.epoch}),)

    def writes(self) -> Sequence[Call]:
        """Record, complete."""
        run: dict[str, Param] = {"run_id": self.run_id}
        return Call(SQL.record_input, run), Call(SQL.complete, run)


@dataclass(frozen=True, slots=True)
class FailClaims:
    """Count a failure of the program, or of a check, against what the run holds and keeps for its next attempt.

    Never for an attempt that was lost: what did not fail is not to blame.
    """

    run_id: RunId
    epoch: int
    error: str

    def guards(self) -> Sequence[Call]:
        """None: the end of the attempt guards the run."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Count."""
        return (Call(SQL.count_failure, {"run_id": self.run_id, "epoch": self.epoch, "error": self.error}),)


@dataclass(frozen=True, slots=True)
class ReleaseClaims:
    """Give back what the run holds, at its end without success.

    When it `failed` the failure of its last attempt is counted (no `FailClaims` beside it), what was alone and has
    failed `DISCARD_AFTER` times is discarded, and the rest waits for `backoff`, doubled with each failure, up to an
    hour. When it was killed nothing is counted and nothing waits.
    """

    run_id: RunId
    epoch: int
    failed: bool
    error: str
    backoff: timedelta

    def guards(self) -> Sequence[Call]:
        """None: the end of the run guards the run."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Count, discard, release."""
        run: dict[str, Param] = {"run_id": self.run_id, "epoch": self.epoch}
        if not self.failed:
            return (Call(SQL.release, {**run, "backoff": 0}),)
        backoff = max(1, self.backoff // timedelta(milliseconds=1))
        return (
            Call(SQL.count_failure, {**run, "error": self.error}),
            Call(SQL.discard_alone, {**run, "most_failures": DISCARD_AFTER}),
            Call(SQL.release, {**run, "backoff": backoff}),
        )


@dataclass(frozen=True, slots=True)
class SkipOwn:
    """Mark what `tx` adds to the data set of one of its own consumers as done; belongs behind its `AddPartitions`.

    For a program that reads and writes one file set and says `deliver_own=False`.
    """

    tx: Transaction
    consumer_id: ConsumerId

    def guards(self) -> Sequence[Call]:
        """None."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Rows of the working set that are done from the start."""
        params: dict[str, Param] = {
            "consumer_id": self.consumer_id,
            "write_pointer": self.tx.write_pointer,
            "epoch": self.tx.epoch,
        }
        return (Call(SQL.skip_own, params),)


@dataclass(frozen=True, slots=True)
class PublishBacklog:
    """Say which of these consumers have work left that could be claimed now: so that work never sticks.

    The last effect of every end of a run, for the consumers of its program.
    """

    consumers: Sequence[ConsumerId]

    def guards(self) -> Sequence[Call]:
        """None."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Lock the consumers, so that takes under way have ended; then one message for each with work left."""
        if not self.consumers:
            return ()
        consumers: dict[str, Param] = {"consumers": json.dumps(sorted(self.consumers))}
        return Call(SQL.lock_consumers, consumers), Call(SQL.publish_backlog, consumers)


@dataclass(frozen=True, slots=True)
class NoteUnread:
    """Have changes that no take has seen count as work left, at the end of a run that was launched for them.

    A run that took anything has moved them all into the working set; one that ended before it took has used up their
    messages, and nobody would speak of them again. Stands before `PublishBacklog` or `PutOffBacklog`.
    """

    consumers: Sequence[ConsumerId]

    def guards(self) -> Sequence[Call]:
        """None."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Lock the consumers, so that takes under way have ended; then a row or two for each."""
        if not self.consumers:
            return ()
        lock = Call(SQL.lock_consumers, {"consumers": json.dumps(sorted(self.consumers))})
        return lock, *(Call(SQL.note_unread, {"consumer_id": consumer_id}) for consumer_id in self.consumers)


@dataclass(frozen=True, slots=True)
class PutOffBacklog:
    """Say later which of these consumers have work left: at the end of a run that could not even take it.

    In place of `PublishBacklog`, which would start the next such run at once, and so on. After `wait` at the soonest;
    the longer the work has waited the later, up to an hour.
    """

    consumers: Sequence[ConsumerId]
    wait: timedelta

    def guards(self) -> Sequence[Call]:
        """None."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Lock the consumers; then give one row of each a time, which the keeper sees to."""
        if not self.consumers:
            return ()
        wait = max(1, to_milliseconds(self.wait))
        lock = Call(SQL.lock_consumers, {"consumers": json.dumps(sorted(self.consumers))})
        return lock, *(Call(SQL.put_off, {"consumer_id": one, "wait": wait}) for one in self.consumers)


@dataclass(frozen=True, slots=True)
class _PublishDue:
    consumers: Sequence[ConsumerId]

    def guards(self) -> Sequence[Call]:
        return ()

    def writes(self) -> Sequence[Call]:
        cleared = Call(SQL.clear_due, {"consumers": json.dumps(sorted(self.consumers))})
        return *PublishBacklog(self.consumers).writes(), cleared


def next_due(db: Db) -> int | None:
    """When the next row of a working set may be claimed again, epoch milliseconds, maybe past; None for never."""
    return cast("int | None", db.all(SQL.find_next_due)[0][0])


def publish_due(catalog: Catalog) -> int:
    """Announce the work whose time to wait is over; give the number of consumers that had some. A role calls it."""
    due = [ConsumerId(str(row[0])) for row in catalog.read(lambda db: db.all(SQL.find_due))]
    if due:
        catalog.world.mark("backlog.before_publish")
        catalog.apply([_PublishDue(due)])
    return len(due)


def _consumer(row: Row) -> Consumer:
    consumer_id, dataset_id, name, start_version, versions = row
    late = tuple(map(WritePointer, json.loads(str(versions))))
    state = PartitionConsumerState(WritePointer(cast("int", start_version)), late)
    return Consumer(ConsumerId(str(consumer_id)), DatasetId(str(dataset_id)), str(name), state)


def _work(row: Row) -> Work:
    write_pointer, key, state, failures, not_before, run_id, error = row
    waits = cast("int", not_before)
    return Work(
        WritePointer(cast("int", write_pointer)),
        KeyText(str(key)),
        WorkState(str(state)),
        cast("int", failures),
        datetime.fromtimestamp(waits / 1000, UTC) if waits else None,
        None if run_id is None else RunId(str(run_id)),
        None if error is None else str(error),
    )
