"""Ends of periods that a watermark has passed → jobs, one after the other: each gets a run of its own.

The transaction that handles the message of a watermark's move also queues the ends that the watermark has passed. The
next end feeds a job, as its logical time, when the job that the previous end fed is gone and that job's run has ended.
A queue without ends stays until then, so that the next end waits too, also when the schedule was suspended meanwhile.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Message
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.names import JobId, ScheduleId
from tidemill.run.step.periods import Periods, UnknownZone
from tidemill.schedule.data_triggers import Passed, WatermarkPassed
from tidemill.schedule.jobs import Fact, Fire, feed_jobs, find_unfinished
from tidemill.schedule.schedules import share_listening
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.boundaries_sql import Sql

_log = logging.getLogger(__name__)
SQL: Sql = load_sql(__file__)

BATCH: Final = 500
"""Leaves looked at in one transaction."""


class Queue(NamedTuple):
    """A leaf of a schedule's trigger, for which boundaries wait."""

    schedule_id: ScheduleId
    trigger_no: int


class _Locked(NamedTuple):
    """A queue with the next and the last of its boundaries, their zone, and the job that the previous boundary fed."""

    schedule_id: ScheduleId
    trigger_no: int
    next_at: datetime
    last_at: datetime
    zone: str
    behind: JobId | None


@dataclass(frozen=True, slots=True)
class Moves:
    """Effect of watermark moves on the waiting boundaries, in the order of the messages."""

    passed: dict[Queue, Passed] = field(default_factory=dict)
    """The first and the last boundary that each leaf has passed."""
    cut: dict[Queue, datetime | None] = field(default_factory=dict)
    """The last boundary, if any, that goes on waiting of what waited before these messages.

    A watermark moved back, or over a gap: a move over more than 10,000 boundaries leaves out all earlier ones.
    """
    gaps: dict[Queue, Passed] = field(default_factory=dict)
    """The last move of each leaf over a gap."""

    def add(self, queue: Queue, leaf: WatermarkPassed, message: Message) -> None:
        """Take in the next move of a leaf's watermark."""
        if not leaf.goes_back(message):
            if (ends := leaf.boundaries(message)) is None:
                return
            if ends.left_out:
                self.gaps[queue] = ends
                self.cut[queue] = None
                self.passed.pop(queue, None)
            self.passed[queue] = ends._replace(first=self.passed.get(queue, ends).first)
            return
        last = leaf.last_passed(message)
        before = self.cut.get(queue, last)
        self.cut[queue] = None if before is None or last is None else min(before, last)
        if queue in self.passed:
            passed = self.passed.pop(queue)
            if last is not None and passed.first <= last:
                self.passed[queue] = passed._replace(last=min(passed.last, last))


def queue_boundaries(db: Db, moves: Moves) -> None:
    """Queue the boundaries that each leaf has passed, and drop those that it no longer has passed.

    The caller has share-locked the schedules.
    """
    cut = [{**queue._asdict(), "last_at": last} for queue, last in moves.cut.items()]
    if cut:
        db.run(SQL.cut, rewound=to_json(cut))
    rows = [
        {**queue._asdict(), "next_at": passed.first, "last_at": passed.last, "zone": passed.zone}
        for queue, passed in moves.passed.items()
    ]
    db.run(SQL.queue, passed=to_json(sorted(rows, key=lambda row: (row["schedule_id"], row["trigger_no"]))))


FREE: Final = SQL.find_free(limit=1)
"""Finds a queue that is free, if there is one."""


def feed_boundaries(catalog: Catalog, world: World, limit: int = BATCH) -> int:
    """Let each free queue feed its schedule's job with its next boundary; return the number of free queues.

    Deletes a free queue that has no boundary left, also that of a schedule that does not listen any more. Leaves queues
    that another scheduler holds to that scheduler. Cost: a handful of statements for all queues.
    """
    return catalog.write(lambda db: _feed(db, world, limit))


def _feed(db: Db, world: World, limit: int) -> int:
    free = set(db.records(SQL.find_free, Queue, limit=limit))
    if not free:
        return 0
    schedules = share_listening(db, {queue.schedule_id for queue in free})
    schedule_ids = json.dumps(sorted({queue.schedule_id for queue in free}))
    locked = db.records(SQL.lock, _Locked, schedule_ids=schedule_ids)
    world.mark("boundaries.locked")
    # Asked only now: another scheduler may have fed a job of them since we looked, and that job may be a run by now.
    held = find_unfinished(db, {one.behind for one in locked if one.behind is not None})
    facts: dict[ScheduleId, list[tuple[int, Fact]]] = {}
    now = db.now()
    after: dict[Queue, datetime] = {}
    empty: list[Queue] = []
    for one in locked:
        queue = Queue(one.schedule_id, one.trigger_no)
        if queue not in free or one.behind in held:
            continue
        if one.next_at > one.last_at:
            empty.append(queue)
        elif queue.schedule_id in schedules:
            leaf = cast(WatermarkPassed, schedules[queue.schedule_id].spec.trigger.leaves[queue.trigger_no])
            try:
                periods = Periods.of(leaf.every, one.zone)
            except UnknownZone as error:
                _log.warning("the periods of %s wait for a scheduler that knows their zone: %s", queue, error)
                continue
            facts.setdefault(queue.schedule_id, []).append((queue.trigger_no, Fire(one.next_at, now)))
            after[queue] = periods.after(one.next_at)
    jobs = feed_jobs(db, world, facts, schedules)
    world.mark("boundaries.before_move")
    moved = [
        {**queue._asdict(), "next_at": next_at, "behind": jobs[queue.schedule_id]} for queue, next_at in after.items()
    ]
    db.run(SQL.move, moved=to_json(moved))
    db.run(SQL.remove, empty=json.dumps([queue._asdict() for queue in empty]))
    world.mark("boundaries.before_commit")
    return len(after) + len(empty)
