"""Rows of backfills and their items: how backfills are recorded, found, listed and stored.

Items and counts change under the lock of the backfill's row only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import FROM_LATEST, Param, load_sql
from tidemill.errors import NotFound
from tidemill.names import BackfillId, DatasetId, Namespace, ProgramId, RunId
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunState
from tidemill.run.step.needs import ItemNeed

if TYPE_CHECKING:
    from tidemill.schedule.backfill_records_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_ITEMS: Final = 50_000
"""The most items of a backfill: its start is one transaction."""
MOST_AT_ONCE: Final = 100
"""The highest concurrency of a backfill."""


class BackfillState(StrEnum):
    """RUNNING ↔ PAUSED → CANCELLED; a RUNNING backfill whose items have all ended is COMPLETED, until a retry."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"

    @property
    def over(self) -> bool:
        """True if the backfill makes no more runs."""
        return self in {BackfillState.CANCELLED, BackfillState.COMPLETED}


class ItemState(StrEnum):
    """WAITING → RUNNING → DONE | FAILED. Items are DROPPED that are cancelled, or that another run has processed."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    DROPPED = "DROPPED"


class By(StrEnum):
    """Kinds of items: partitions of an input, logical times of a schedule, runs, or partitions by their commits."""

    PARTITIONS = "partitions"
    TIMES = "times"
    RUNS = "runs"
    VERSIONS = "versions"


@dataclass(frozen=True, slots=True)
class Backfill:
    """Row of a backfill. `choice` says for people by what its items were chosen, as JSON.

    Items of a backfill that `takes_all` are processed whatever they need.

    An argument `{"from": "logical_time"}` is the logical time of each item. `reason` says why it paused by itself.
    """

    backfill_id: BackfillId
    program_id: ProgramId
    namespace: Namespace
    item_kind: By
    takes_all: bool
    choice: Mapping[str, object]
    dataset_id: DatasetId | None
    arguments: Mapping[str, object]
    state: BackfillState
    reason: str
    concurrency: int
    priority: int
    quiet: bool
    actor: str
    waiting: int
    running: int
    done: int
    failed: int
    dropped: int
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Item:
    """Row of an item. `item` is a stored partition key, a time in ISO 8601, or the id of a run."""

    no: int
    item: str
    state: ItemState
    run_id: RunId | None
    why: str


@dataclass(frozen=True, slots=True)
class NewBackfill:
    """A backfill to be started, with its items in order."""

    backfill_id: BackfillId
    program: Program
    item_kind: By
    takes_all: bool
    choice: Mapping[str, object]
    dataset_id: DatasetId | None
    arguments: Mapping[str, object]
    concurrency: int
    priority: int
    quiet: bool
    actor: str
    items: Sequence[str]


class EndedItem(NamedTuple):
    """An item whose run has ended. A run that retention has deleted has no state."""

    no: int
    run_id: RunId
    state: RunState | None
    exit_reason: str | None


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item as it is to be stored."""

    no: int
    state: ItemState
    run_id: RunId | None
    why: str = ""


FIND_DUE: Final = SQL.find_due()
"""Finds a backfill that is to be advanced."""


def insert_backfill(db: Db, new: NewBackfill) -> None:
    """Record a backfill with its items, of which all wait. Cost: its items."""
    db.run(
        SQL.insert_backfill,
        backfill_id=new.backfill_id,
        program_id=new.program.program_id,
        namespace=new.program.namespace,
        item_kind=new.item_kind,
        takes_all=int(new.takes_all),
        choice=json.dumps(new.choice),
        dataset_id=new.dataset_id,
        arguments=json.dumps(new.arguments),
        concurrency=new.concurrency,
        priority=new.priority,
        quiet=int(new.quiet),
        actor=new.actor,
        waiting=len(new.items),
    )
    rows = json.dumps([{"no": no, "item": item} for no, item in enumerate(new.items)])
    db.run(SQL.insert_items, backfill_id=new.backfill_id, items=rows)


def list_running(db: Db, backfill_id: BackfillId) -> list[RunId]:
    """List the runs of a backfill that no scheduler has seen ended, in the order of their items."""
    return db.records(SQL.list_running, RunId, backfill_id=backfill_id)


def list_open_items(db: Db, program_id: ProgramId, dataset_id: DatasetId | None) -> dict[str, ItemNeed]:
    """Return the items of the program's other backfills that wait or run: partitions of a file set, or other items.

    Cost: the backfills of the program, and these items.
    """
    items = db.records(SQL.list_open_items, tuple[str, ItemState], program_id=program_id, dataset_id=dataset_id or "")
    return {item: ItemNeed.WAITING if state is ItemState.WAITING else ItemNeed.RUNNING for item, state in items}


def lock_backfill(db: Db, backfill_id: BackfillId) -> Backfill:
    """Return a backfill, locked; `NotFound`."""
    found = db.record(SQL.lock_backfill, Backfill, backfill_id=backfill_id)
    if found is None:
        raise NotFound("backfill", backfill_id)
    return found


def find_backfill(db: Db, backfill_id: BackfillId) -> Backfill:
    """Return a backfill; `NotFound`."""
    found = db.record(SQL.find_backfill, Backfill, backfill_id=backfill_id)
    if found is None:
        raise NotFound("backfill", backfill_id)
    return found


def is_due(db: Db) -> bool:
    """Tell whether a backfill is to be advanced. Cost: the items that run."""
    return db.value(SQL.find_due, BackfillId) is not None


def list_backfills(
    db: Db,
    *,
    most: int,
    program_id: ProgramId | None = None,
    namespace: str | None = None,
    state: BackfillState | None = None,
    before: tuple[datetime, str] = FROM_LATEST,
) -> list[Backfill]:
    """List backfills that fit each filter, newest first, from the time of creation and id `before` on."""
    place: dict[str, Param] = {"created_before": before[0], "before": before[1], "most": most}
    wanted = "" if state is None else state.value
    if program_id is not None:
        return db.records(SQL.list_of_program, Backfill, program_id=program_id, state=wanted, **place)
    if namespace is not None:
        return db.records(SQL.list_of_namespace, Backfill, namespace=namespace, state=wanted, **place)
    if state is not None:
        return db.records(SQL.list_in_state, Backfill, state=state, **place)
    return db.records(SQL.list_newest, Backfill, **place)


def list_items(
    db: Db, backfill_id: BackfillId, *, most: int, state: ItemState | None = None, after: int = -1
) -> list[Item]:
    """List the items of a backfill, or those in a state, in their order, from the number behind `after` on."""
    place: dict[str, Param] = {"backfill_id": backfill_id, "after": after, "most": most}
    if state is not None:
        return db.records(SQL.list_items_in_state, Item, state=state, **place)
    return db.records(SQL.list_items, Item, **place)


def list_due(db: Db) -> list[BackfillId]:
    """List the backfills that are to be advanced. Cost: the items that run."""
    return db.records(SQL.list_due, BackfillId)


def list_ended(db: Db, backfill_id: BackfillId) -> list[EndedItem]:
    """List the items of a backfill whose runs have ended, and which are not settled yet. Cost: the items that run."""
    return db.records(SQL.list_ended, EndedItem, backfill_id=backfill_id)


def list_next(db: Db, backfill_id: BackfillId, *, after: int, most: int) -> list[tuple[int, str]]:
    """List the number and the item of waiting items, in their order, from the number behind `after` on."""
    place: dict[str, Param] = {"backfill_id": backfill_id, "after": after, "most": most}
    return db.records(SQL.list_next, tuple[int, str], **place)


def move_items(
    db: Db, backfill_id: BackfillId, before: ItemState, after: ItemState, but: Sequence[ItemChange] = ()
) -> None:
    """Move all items in the state `before` to `after`, but for those of `but`. The caller moves their counts."""
    numbers = json.dumps([one.no for one in but])
    db.run(SQL.move_items, backfill_id=backfill_id, before=before, after=after, but=numbers)


def store_backfill(db: Db, changed: Backfill, items: Sequence[ItemChange] = ()) -> Backfill:
    """Store the state and the counts of a backfill, with its changed items; the caller holds its lock.

    Returns the backfill as it is then.
    """
    if items:
        rows = [{"backfill_id": changed.backfill_id, **asdict(item)} for item in items]
        db.run(SQL.store_items, items=json.dumps(rows))
    db.run(
        SQL.store_backfill,
        backfill_id=changed.backfill_id,
        state=changed.state,
        reason=changed.reason,
        waiting=changed.waiting,
        running=changed.running,
        done=changed.done,
        failed=changed.failed,
        dropped=changed.dropped,
        over=int(changed.state.over),
    )
    return find_backfill(db, changed.backfill_id)
