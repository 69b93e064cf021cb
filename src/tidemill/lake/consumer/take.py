"""Take of managed consumers: new changes move into a working set, and a run claims some of them.

A take fills the working set with the changes that no take has seen, moves the consumer's state, and claims rows for a
run. Overlapping runs of one consumer never hold the same partition: while a run holds a key, a newer change of that key
waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Param, load_sql
from tidemill.catalog.transactions import Transaction, find_in_progress, lock_open
from tidemill.lake.consumer.claims import return_some
from tidemill.lake.consumer.consumer import PartitionConsumerState
from tidemill.lake.consumer.managed import Consumer, ConsumerMoved, WorkState
from tidemill.lake.consumer.terms import OnChange, Order, Terms
from tidemill.lake.datasets import find_by_id
from tidemill.lake.fileset.fileset import Change, Fileset, WriteOp, kind_of
from tidemill.lake.suspects import HALVE_AFTER, halve
from tidemill.names import ConsumerId, RunId, WritePointer
from tidemill.shapes.change_kind import ChangeKind
from tidemill.shapes.filters import KeyFilter
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import DataFile

if TYPE_CHECKING:
    from tidemill.lake.consumer.take_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_FILLED: Final = 10_000
"""Changes that one transaction moves into a working set; more of them are cut at a write pointer."""
_ANY: Final = (0, 1 << 62)
"""Any number of failures."""


class Closing(StrEnum):
    """Reason for which a take closes a change without delivering it. The text is stored in the change's row."""

    OVERWRITTEN = "overwritten before it was taken"
    """The content that the overwrite brought is delivered instead."""
    DROPPED = "dropped before it was processed"
    """Counted in `Consumer.dropped`."""
    IGNORED = "changed after it was delivered: ignored"
    UNWANTED = "not among the partitions that the consumer wants"
    CHANGED = "changed after it was delivered"
    """Discarded. A requeued partition is delivered."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Partition as a consumer gets it: whole if new or overwritten, else the appended files."""

    partition_key: KeyText
    kind: ChangeKind
    changes: tuple[Change, ...]

    @property
    def files(self) -> list[tuple[str, DataFile]]:
        """The files to read, each with its name below the data set's location."""
        return [(f"{change.location}/{file.name}", file) for change in self.changes for file in change.manifest.files]


def take_claims(
    catalog: Catalog, tx: Transaction, inputs: Mapping[ConsumerId, Terms]
) -> dict[ConsumerId, list[Delivery]]:
    """Claim for the run of `tx` what its consumers have to give, and deliver it; call it once, after the begin.

    A run that holds claims already (of an earlier attempt, re-stamped by the begin) keeps just those. A run with a
    claim that has failed `HALVE_AFTER` times keeps the first half of all it holds and returns the rest. Short
    transactions under the consumers' row locks; nothing of it has to be undone when the process dies: claims belong
    to the run. Raises `TransactionEnded` when the attempt was fenced. The terms' order. Cost: what is new.
    """
    consumers = sorted(inputs)

    def take(db: Db) -> tuple[bool, dict[ConsumerId, list[Delivery]]]:
        lock_open(db, tx)
        return take_within(db, tx, consumers, inputs)

    while True:
        catalog.world.mark("take.before_fill")
        filled, held = catalog.write(take)
        if filled:
            break
    catalog.world.mark("take.after_claim")
    return {consumer_id: _in_order(held.get(consumer_id, []), inputs[consumer_id]) for consumer_id in consumers}


def read_deliveries(db: Db, run_id: RunId, inputs: Mapping[ConsumerId, Terms]) -> dict[ConsumerId, list[Delivery]]:
    """Return what a run holds by each of these consumers, in the order of their terms."""
    held = _deliver(_read_held(db, run_id))
    return {consumer_id: _in_order(held.get(consumer_id, []), terms) for consumer_id, terms in inputs.items()}


def has_work(db: Db, consumer: Consumer) -> bool:
    """Return whether a take of the consumer would find work now. Cost: a few look-ups."""
    unread: dict[str, Param] = {
        "dataset_id": consumer.dataset_id,
        "start_version": consumer.state.start_version,
        "versions_to_check": json.dumps(consumer.state.versions_to_check),
    }
    return bool(db.all(SQL.find_any, consumer_id=consumer.consumer_id, **unread))


def list_offered(db: Db, consumer: Consumer, write_pointer: WritePointer) -> list[KeyText]:
    """List the partitions of a transaction that a take of the consumer would deliver. Cost: what the transaction wrote.

    A partition that a run still holds may be delivered again: the run's end decides. So it is listed.
    """
    rows = db.all(
        SQL.find_offered,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        write_pointer=write_pointer,
        repeats=int(consumer.terms.on_change is OnChange.AGAIN),
    )
    keys = [KeyText(str(row[0])) for row in rows]
    if consumer.terms.where is None:
        return keys
    wanted = KeyFilter.from_json(Fileset.of(find_by_id(db, consumer.dataset_id)).keys, consumer.terms.where)
    return [key for key in keys if wanted.accepts(key)]


def peek_claims(catalog: Catalog, consumer_id: ConsumerId, terms: Terms) -> list[Delivery]:
    """Return the result of a take without taking: the take is executed and rolled back.

    So the result cannot differ from a take. If the backlog has more than `MOST_FILLED` changes, only the first of them
    are considered. Cost: that of a take. Meanwhile other takes of this consumer wait, on SQLite all writers. Errors:
    `ConsumerMoved`.
    """
    pointer = WritePointer(catalog.write(lambda db: db.tick()))
    tx = Transaction(pointer, catalog.incarnation, RunId(catalog.world.new_id("peek")), 1, frozenset())

    def block(db: Db) -> NoReturn:
        consumer = _lock(db, consumer_id)
        _fill(db, consumer, tx)
        _claim(db, consumer, tx, terms)
        raise _Seen(_deliver(_read_held(db, tx.run_id)).get(consumer_id, []))

    try:
        catalog.write(block)
    except _Seen as seen:
        return _in_order(seen.deliveries, terms)


class _Seen(Exception):
    """Ends a peek, whose transaction it rolls back."""

    def __init__(self, deliveries: list[Delivery]) -> None:
        super().__init__()
        self.deliveries = deliveries


def _in_order(deliveries: list[Delivery], terms: Terms) -> list[Delivery]:
    return deliveries if terms.order is Order.OLDEST else deliveries[::-1]


def take_within(
    db: Db, tx: Transaction, consumers: Sequence[ConsumerId], inputs: Mapping[ConsumerId, Terms]
) -> tuple[bool, dict[ConsumerId, list[Delivery]]]:
    """Do one transaction of a take, whose transaction is locked already; `consumers` are in order of their ids.

    Return whether the working sets are filled, and then the partitions that the run holds.
    """
    locked = [_lock(db, consumer_id) for consumer_id in consumers]
    held = _read_held(db, tx.claims_of[0])
    if not held:
        if not all(_fill(db, consumer, tx) for consumer in locked):
            return False, {}
        for consumer in locked:
            _claim(db, consumer, tx, inputs[consumer.consumer_id])
        held = _read_held(db, tx.claims_of[0])
    return True, _deliver(_halve(db, tx, held))


def return_claims(
    catalog: Catalog, tx: Transaction, consumer_id: ConsumerId, keys: Sequence[KeyText], wait: timedelta | None = None
) -> None:
    """Return claims that the run of `tx` does not process, without a failure: for the next take.

    With `wait` the claims wait as long again as since their commit, at least `wait`, at most an hour: a run that
    returned all claims would get them again at once, and so on. Raises `TransactionEnded` when the attempt was fenced:
    the claims are another attempt's then. A short transaction.
    """
    if not keys:
        return

    def block(db: Db) -> None:
        lock_open(db, tx)
        return_some(db, tx.claims_of[0], [(consumer_id, key) for key in keys], wait)

    catalog.world.mark("take.before_return")
    catalog.write(block)


def _lock(db: Db, consumer_id: ConsumerId) -> Consumer:
    consumer = db.record(SQL.lock_consumer, Consumer, consumer_id=consumer_id)
    if consumer is None:
        raise ConsumerMoved(consumer_id)
    return consumer


def _fill(db: Db, consumer: Consumer, tx: Transaction) -> bool:
    """Move unread changes into the working set, and the state with them; whether that was all that `tx` sees."""
    state = consumer.state
    if tx.write_pointer <= state.start_version:
        return True  # another take has moved the state further, and has filled the working set
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
    beyond = db.value(SQL.find_unread, int, most=MOST_FILLED + 1, place=MOST_FILLED, **unread)
    if beyond is None:
        return None
    first = db.value(SQL.find_unread, int, most=1, place=0, **unread)
    # A transaction is filled whole, however large it is.
    return beyond if first != beyond else beyond + 1


def _move(
    state: PartitionConsumerState, bound: WritePointer, in_progress: Sequence[WritePointer]
) -> PartitionConsumerState:
    """The state after all unread changes below `bound` were filled, given what may still come."""
    if bound <= state.start_version:  # only some of those that were late
        later = tuple(v for v in state.versions_to_check if v >= bound or v in in_progress)
        return PartitionConsumerState(state.start_version, later)
    return PartitionConsumerState(bound, tuple(v for v in in_progress if v < bound))


@dataclass(frozen=True, slots=True)
class _WaitingKey:
    """Rows of one key that wait: those to deliver, with their bytes, and those that drop out.

    `failures` are those of the row that failed most often. `drops` is how often the partition was dropped meanwhile.
    """

    key: KeyText
    delivered: list[int]
    dropped_out: dict[Closing, list[int]]
    drops: int
    failures: int
    bytes: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.delivered) + sum(map(len, self.dropped_out.values()))


@dataclass(slots=True)
class _Claimed:
    """Claims of one take for one consumer so far. `alike` are the failures that further claims must have."""

    partitions: int = 0
    bytes: int = 0
    alike: tuple[int, int] = _ANY


def _claim(db: Db, consumer: Consumer, tx: Transaction, terms: Terms) -> None:
    claimed = _Claimed()
    for one in terms.rounds:
        _claim_round(db, consumer, tx, one, claimed)


def _claim_round(db: Db, consumer: Consumer, tx: Transaction, terms: Terms, claimed: _Claimed) -> None:
    run_id, epoch = tx.claims_of
    owner: dict[str, Param] = {"consumer_id": consumer.consumer_id, "run_id": run_id, "epoch": epoch}
    while (wanted := terms.partitions - claimed.partitions) > 0:
        found = _find_claimable(db, consumer, tx, wanted, terms.order, claimed.alike)
        if not found:
            return
        # A partition that failed before comes with others that failed as often: else each new run would halve the same
        # whole again, and never come to the poison partition alone. A new change of the partition does not alter that.
        if claimed.alike == _ANY:
            claimed.alike = _as_often(found[0].failures)
        alike = [waiting for waiting in found if _as_often(waiting.failures) == claimed.alike]
        if not alike:
            return
        unwanted = _find_unwanted(db, consumer, alike, terms)
        claims, closed, drops, full = _sort_out(alike, unwanted, terms, claimed)
        for closing, rows in closed.items():
            state = WorkState.DISCARDED if closing is Closing.CHANGED else WorkState.COMPLETED
            db.run(SQL.close, closed=json.dumps(rows), state=state, error=closing, **owner)
        if drops:
            db.run(SQL.count_dropped, consumer_id=consumer.consumer_id, dropped=drops)
        if claims:
            db.run(SQL.claim, claims=json.dumps(claims), **owner)
        # All alike ones are claimed or closed now: another round finds other keys.
        if full or sum(waiting.rows for waiting in found) < wanted:
            return


_Row: TypeAlias = dict[str, str | int]


def _sort_out(
    found: Sequence[_WaitingKey], unwanted: Mapping[KeyText, Closing], terms: Terms, claimed: _Claimed
) -> tuple[list[_Row], dict[Closing, list[_Row]], int, bool]:
    """Sort `found` into claims and closings, with the number of drops, and whether the bytes have run out.

    Counts in `claimed`.
    """
    claims: list[_Row] = []
    closed: dict[Closing, list[_Row]] = {}
    drops = 0
    for waiting in found:
        rows = [_row(waiting.key, pointer) for pointer in waiting.delivered]
        for closing, pointers in waiting.dropped_out.items():
            closed.setdefault(closing, []).extend(_row(waiting.key, pointer) for pointer in pointers)
        drops += waiting.drops
        if waiting.key in unwanted and rows:
            closed.setdefault(unwanted[waiting.key], []).extend(rows)
            continue
        over = terms.bytes is not None and claimed.bytes + waiting.bytes > terms.bytes
        if over and claimed.partitions and rows:
            return claims, closed, drops, True
        claims += rows
        claimed.partitions += bool(rows)
        claimed.bytes += waiting.bytes
    return claims, closed, drops, False


def _row(key: KeyText, write_pointer: int) -> _Row:
    return {"write_pointer": write_pointer, "partition_key": key}


_CLOSINGS: Final = {OnChange.IGNORE: Closing.IGNORED, OnChange.ERROR: Closing.CHANGED}


def _find_unwanted(db: Db, consumer: Consumer, found: Sequence[_WaitingKey], terms: Terms) -> Mapping[KeyText, Closing]:
    """The keys that are not to be delivered: not asked for, or delivered before and not wanted again."""
    unwanted: dict[KeyText, Closing] = {}
    if terms.on_change is not OnChange.AGAIN:
        repeated = _find_repeated(db, consumer, found)
        unwanted |= dict.fromkeys(repeated, _CLOSINGS[terms.on_change])
    if terms.where is not None:
        dataset = find_by_id(db, consumer.dataset_id)
        wanted = KeyFilter.from_json(Fileset.of(dataset).keys, terms.where)
        unwanted |= {one.key: Closing.UNWANTED for one in found if not wanted.accepts(one.key)}
    return unwanted


def _find_repeated(db: Db, consumer: Consumer, found: Sequence[_WaitingKey]) -> set[KeyText]:
    """Keys of which something had been delivered before what waits now."""
    rows = db.all(
        SQL.find_repeated,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        offered=json.dumps([_row(waiting.key, waiting.delivered[0]) for waiting in found if waiting.delivered]),
    )
    return {KeyText(str(row[0])) for row in rows}


def _as_often(failures: int) -> tuple[int, int]:
    return (failures, failures) if failures >= HALVE_AFTER else (0, HALVE_AFTER - 1)


def _find_claimable(
    db: Db, consumer: Consumer, tx: Transaction, most: int, order: Order, failures: tuple[int, int]
) -> list[_WaitingKey]:
    rows = db.all(
        SQL.find_claimable,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        write_pointer=tx.write_pointer,
        most=most,
        newest=int(order is Order.NEWEST),
        from_failures=failures[0],
        to_failures=failures[1],
    )
    found = []
    for key, grouped in groupby(rows, key=lambda row: row[0]):
        group = cast("list[tuple[str, int, int, int, int | None, str | None]]", list(grouped))
        delivered = [(write_pointer, size) for _, write_pointer, _, size, superseded, _ in group if not superseded]
        dropped_out: dict[Closing, list[int]] = {}
        drops = set()
        for _, write_pointer, _, _, superseded, successor in group:
            if superseded:
                closing = Closing.DROPPED if successor == WriteOp.DROP else Closing.OVERWRITTEN
                dropped_out.setdefault(closing, []).append(write_pointer)
                drops |= {superseded} if closing is Closing.DROPPED else set()
        found.append(
            _WaitingKey(
                KeyText(str(key)),
                [write_pointer for write_pointer, _ in delivered],
                dropped_out,
                len(drops),
                max(failures for _, _, failures, *_ in group),
                sum(size for _, size in delivered),
            )
        )
    return found[:most]


@dataclass(frozen=True, slots=True)
class _Claim:
    consumer_id: ConsumerId
    failures: int
    change: Change
    existed: bool
    """True where the partition was there before the change."""


@dataclass(frozen=True, slots=True)
class _HeldKey:
    consumer_id: ConsumerId
    failures: int
    delivery: Delivery

    @property
    def order(self) -> tuple[WritePointer, ConsumerId, KeyText]:
        return self.delivery.changes[0].write_pointer, self.consumer_id, self.delivery.partition_key


def _read_held(db: Db, run_id: RunId) -> list[_HeldKey]:
    """Return the changes that the run holds, one for each key, oldest first."""
    held = []
    claims = db.records(SQL.find_claims, _Claim, run_id=run_id)
    for (consumer_id, key), grouped in groupby(claims, key=lambda one: (one.consumer_id, one.change.partition_key)):
        group = list(grouped)
        kind = kind_of(group[0].change, known=group[0].existed)
        delivery = Delivery(key, kind, tuple(one.change for one in group))
        held.append(_HeldKey(consumer_id, max(one.failures for one in group), delivery))
    return sorted(held, key=lambda one: one.order)


def _halve(db: Db, tx: Transaction, held: list[_HeldKey]) -> list[_HeldKey]:
    """Find the poison one: what has failed before is tried again in halves."""
    if len(held) < 2 or all(one.failures < HALVE_AFTER for one in held):
        return held
    kept, rest = halve(held)
    return_some(db, tx.claims_of[0], [(one.consumer_id, one.delivery.partition_key) for one in rest])
    return kept


def _deliver(held: Sequence[_HeldKey]) -> dict[ConsumerId, list[Delivery]]:
    deliveries: dict[ConsumerId, list[Delivery]] = {}
    for one in held:
        deliveries.setdefault(one.consumer_id, []).append(one.delivery)
    return deliveries
