"""Resets of managed consumers by hand: show the next take, start again elsewhere, and requeue discarded partitions.

A reset gives the consumer a new id, and with it an empty working set. The changes that its runs have consumed so far
stay on record under the old id. So a reset need not delete or read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, Row, load_sql
from tidemill.catalog.transactions import Snapshot
from tidemill.errors import Conflict, UserError
from tidemill.lake.backlog import Announce, NoteUnseen
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.consumer import PartitionConsumerState
from tidemill.lake.consumer.managed import Consumer, find_consumer
from tidemill.lake.consumer.starts import NamedStart, Start, StartPosition, find_position
from tidemill.lake.fileset.fileset import read_partitions
from tidemill.names import CommitSeq, ConsumerId, DatasetId, WritePointer
from tidemill.shapes.custom_time import run_beside
from tidemill.shapes.filters import KeyFilter
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.consumer.resets_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_CHOSEN: Final = 50_000
"""Changes that one reset delivers again by name."""


@refusal
class ClaimsInProgress(Conflict):
    """A run holds partitions that it took from the consumer."""

    code = "claims_in_progress"

    def __init__(self, consumer: str, run: str) -> None:
        self.consumer = consumer
        self.run = run
        super().__init__(
            f"consumer {consumer} cannot be reset while {run} works on what it took",
            f"wait for its end, or `tidemill run kill {run}`",
            before=": ",
        )


class TooManyChosen(UserError):
    """A reset that names more changes than one commit should hold."""

    code = "too_many_chosen"

    def __init__(self, changes: int) -> None:
        self.changes = changes
        super().__init__(
            f"the reset would deliver {changes} changes again, more than {MOST_CHOSEN}",
            "name fewer partitions, or reset the consumer without naming any",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class ChosenPartitions:
    """The partitions that a reset delivers again: by their keys, and by their time.

    `shown` is the choice as its record shows it.
    """

    where: KeyFilter
    shown: str
    overlaps: Callable[[KeyText], bool] | None = None

    def accepts(self, key: KeyText) -> bool:
        """Say if the partition is chosen by its time; `where` has chosen it by its key."""
        return self.overlaps is None or self.overlaps(key)


@dataclass(frozen=True, slots=True)
class PastConsumer:
    """Consumer before a reset, and the reset: its actor, its time and its new start."""

    consumer_id: ConsumerId
    dataset_id: DatasetId
    name: str
    state: PartitionConsumerState
    asked: str
    by: str
    at: datetime


def list_resets(db: Db, dataset_id: DatasetId | None = None, name: str | None = None) -> list[PastConsumer]:
    """All that were reset (one of them), oldest first."""
    if dataset_id is None or name is None:
        return db.records(SQL.list_resets, PastConsumer)
    return db.records(SQL.list_resets_of, PastConsumer, dataset_id=dataset_id, name=name)


def reset(
    catalog: Catalog,
    dataset_id: DatasetId,
    name: str,
    start: Start,
    by: str,
    chosen: ChosenPartitions | None = None,
    *,
    note: NoteChange | None = None,
    also: Sequence[Effect] = (),
) -> Consumer:
    """Reset a consumer, and return it as it is then. The reset announces at once the changes that wait for it.

    With `chosen`, of the partitions that have committed since `start` only those are delivered, and all that commits
    from now on. `TooManyChosen`.

    Of a change feed that is what differs from the new start. Discarded partitions of the consumer are forgotten too.
    `ClaimsInProgress` while a run holds anything of it: that run's commit would complete what the new start delivers
    again. `NotFound`, `BadStart`.
    """
    tick = catalog.write(lambda db: db.tick())
    consumer, position = catalog.read(lambda db: _read_for_reset(db, dataset_id, name, start, tick))
    asked, changes = str(start), []
    if chosen is not None:
        since = position.since_seq
        snapshot = Snapshot(WritePointer(tick), catalog.incarnation)
        changes = run_beside(catalog.read, lambda db: _find_chosen(db, dataset_id, snapshot, since, chosen))
        asked = f"{start} {chosen.shown}"
        position = catalog.read(lambda db: find_position(db, dataset_id, Start(NamedStart.NOW), tick))
    new_id = ConsumerId(catalog.world.new_id("consumer"))
    unseen, announce = NoteUnseen(CONSUMERS, [new_id]), Announce(CONSUMERS, [new_id])
    places = {"since_seq": consumer.since_seq}, {"since_seq": position.since_seq, "delivered_again": len(changes)}
    told = [] if note is None else [note.between(*places)]  # the reset is refused where another was faster
    catalog.apply(
        [_Reset(consumer, new_id, position, asked, by, tuple(changes)), unseen, announce, *told, *also],
        outcome=SQL.find_reset(consumer_id=consumer.consumer_id, new_id=new_id),
    )
    return catalog.read(lambda db: find_consumer(db, dataset_id, name))


def _read_for_reset(
    db: Db, dataset_id: DatasetId, name: str, start: Start, tick: CommitSeq
) -> tuple[Consumer, StartPosition]:
    return find_consumer(db, dataset_id, name), find_position(db, dataset_id, start, tick)


def _find_chosen(
    db: Db, dataset_id: DatasetId, snapshot: Snapshot, since: CommitSeq, chosen: ChosenPartitions
) -> list[dict[str, object]]:
    partitions = read_partitions(db, dataset_id, snapshot, chosen.where)
    found: list[dict[str, object]] = [
        {"write_pointer": change.write_pointer, "partition_key": change.partition_key}
        for partition in partitions
        for change in partition.changes
        if change.commit_seq >= since and chosen.accepts(change.partition_key)
    ]
    if len(found) > MOST_CHOSEN:
        raise TooManyChosen(len(found))
    return found


@dataclass(frozen=True, slots=True)
class _Reset(Effect):
    phase = Phase.CLAIMS

    consumer: Consumer
    new_id: ConsumerId
    position: StartPosition
    asked: str
    by: str
    chosen: tuple[Mapping[str, object], ...]

    def guards(self) -> Sequence[Call]:
        old: dict[str, Param] = {"consumer_id": self.consumer.consumer_id, "name": self.consumer.name}
        # In this order: under the consumer's lock no take is under way, and the second sees what the last one claimed.
        return SQL.refuse_if_gone(**old), SQL.refuse_if_claimed(**old)

    def writes(self) -> Sequence[Call]:
        old: dict[str, Param] = {"consumer_id": self.consumer.consumer_id}
        since: dict[str, Param] = {**old, "since_seq": self.position.since_seq}
        state: dict[str, Param] = {
            "new_id": self.new_id,
            "start_version": self.position.state.start_version,
            "versions_to_check": json.dumps(self.position.state.versions_to_check),
        }
        again: dict[str, Param] = {
            "new_id": self.new_id,
            "dataset_id": self.consumer.dataset_id,
            "chosen": json.dumps(self.chosen),
        }
        return (
            SQL.keep_past(**since, asked=self.asked, by_whom=self.by),
            SQL.forget_waiting(**old),
            SQL.restart(**since, **state),
            *((SQL.deliver_chosen(**again),) if self.chosen else ()),
        )


def drop_consumer(db: Db, consumer: Consumer, by: str) -> None:
    """Drop a retired consumer, so that no files are kept for it. The drop is on record like a reset.

    The caller holds a tick as the first lock of the block. Raises `ClaimsInProgress` while a run holds anything of it.
    A later consumer of the same name begins without any state.
    """
    place: dict[str, Param] = {"consumer_id": consumer.consumer_id}
    db.all(SQL.refuse_if_gone, name=consumer.name, **place)
    db.all(SQL.refuse_if_claimed, name=consumer.name, **place)
    db.run(SQL.keep_past, since_seq=consumer.since_seq, asked="dropped", by_whom=by, **place)
    db.run(SQL.forget_waiting, **place)
    db.run(SQL.drop_consumer, **place)


def requeue(
    catalog: Catalog,
    consumer: Consumer,
    keys: Sequence[KeyText] | None = None,
    note: NoteChange | None = None,
    also: Callable[[int], Sequence[Effect]] = lambda _: (),
) -> int:
    """Requeue the discarded partitions (of these keys, or all) without their failures; return how many they are.

    The transaction takes along what `also` gives for their number.

    They are announced as work that is left, so that schedules start for them. Cost: the discarded partitions.
    """
    rows = catalog.read(lambda db: db.all(SQL.find_discarded, consumer_id=consumer.consumer_id))
    wanted = None if keys is None else set(keys)
    chosen = [row for row in rows if wanted is None or row[1] in wanted]
    number = len({row[1] for row in chosen})
    if chosen:
        discarded = len({row[1] for row in rows})
        told = [] if note is None else [note.between({"discarded": discarded}, {"discarded": discarded - number})]
        announce = Announce(CONSUMERS, [consumer.consumer_id])
        catalog.apply([_Requeue(consumer.consumer_id, tuple(chosen)), announce, *told, *also(number)])
    return number


@dataclass(frozen=True, slots=True)
class _Requeue(Effect):
    phase = Phase.CLAIMS

    consumer_id: ConsumerId
    rows: tuple[Row, ...]

    def writes(self) -> Sequence[Call]:
        discarded = json.dumps([{"write_pointer": row[0], "partition_key": row[1]} for row in self.rows])
        params: dict[str, Param] = {"consumer_id": self.consumer_id, "discarded": discarded}
        return (SQL.requeue(**params),)
