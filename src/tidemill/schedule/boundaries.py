"""Ends of periods that a watermark has passed → jobs, one after the other: each gets a run of its own.

What was passed is written down in the transaction that handles the message of the watermark's move. The next end
becomes a job, with that end as its logical time, when the schedule has no open job that was fed an earlier one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Message
from tidemill.catalog.named import load_sql
from tidemill.epoch import from_ms, to_ms
from tidemill.names import ScheduleId
from tidemill.schedule.data_triggers import WatermarkPassed
from tidemill.schedule.jobs import Fact, feed_jobs, lock_open_jobs
from tidemill.schedule.schedules import share_listening
from tidemill.world import World

SQL: Final = load_sql(__file__)

BATCH: Final = 500
"""Leaves looked at in one transaction."""


class Queue(NamedTuple):
    """A leaf of a schedule's trigger, for which boundaries wait."""

    schedule_id: ScheduleId
    trigger_no: int


@dataclass(frozen=True, slots=True)
class Moves:
    """What moves of watermarks make of the boundaries that wait, in the order of their messages."""

    passed: dict[Queue, tuple[datetime, datetime]] = field(default_factory=dict)
    """The first and the last boundary that each leaf has passed."""
    cut: dict[Queue, datetime | None] = field(default_factory=dict)
    """The last boundary, if any, that still is passed of what waited before these messages: a watermark moved back."""

    def add(self, queue: Queue, leaf: WatermarkPassed, message: Message) -> None:
        """Take in the next move of a leaf's watermark."""
        if not leaf.goes_back(message):
            if ends := leaf.boundaries(message):
                self.passed[queue] = (self.passed.get(queue, ends)[0], ends[1])
            return
        last = leaf.last_passed(message)
        before = self.cut.get(queue, last)
        self.cut[queue] = None if before is None or last is None else min(before, last)
        if queue in self.passed:
            first, end = self.passed.pop(queue)
            if last is not None and first <= last:
                self.passed[queue] = (first, min(end, last))


def queue_boundaries(db: Db, moves: Moves) -> None:
    """Have what each leaf has passed wait, and no longer what it has not; the caller has share-locked the schedules."""
    if moves.cut:
        cut = [
            {**queue._asdict(), "last_at": None if last is None else to_ms(last)} for queue, last in moves.cut.items()
        ]
        for statement in (SQL.remove_beyond, SQL.cut):
            db.run(statement, rewound=json.dumps(cut))
    rows = [
        {**queue._asdict(), "next_at": to_ms(first), "last_at": to_ms(last)}
        for queue, (first, last) in moves.passed.items()
    ]
    db.run(SQL.queue, passed=json.dumps(sorted(rows, key=lambda row: (row["schedule_id"], row["trigger_no"]))))


def has_boundaries(db: Db) -> bool:
    """Whether there is one whose turn has come."""
    return bool(db.all(SQL.find_ready, limit=1))


def feed_boundaries(catalog: Catalog, world: World, limit: int = BATCH) -> int:
    """Let each leaf whose turn has come feed its schedule's job with its next boundary; how many there were.

    Cost: a handful of statements for all of them; queues that others hold are left to them.
    """
    return catalog.write(lambda db: _feed(db, world, limit))


def _feed(db: Db, world: World, limit: int) -> int:
    ready = {Queue(ScheduleId(str(row[0])), cast(int, row[1])) for row in db.all(SQL.find_ready, limit=limit)}
    if not ready:
        return 0
    schedules = share_listening(db, {queue.schedule_id for queue in ready})
    locked = db.all(SQL.lock, schedule_ids=json.dumps(sorted(schedules)))
    world.mark("boundaries.locked")
    # Asked only now: another scheduler may have fed a job of them since we looked.
    open_jobs = {job.schedule_id: job for job in lock_open_jobs(db, schedules)}
    facts: dict[ScheduleId, list[tuple[int, Fact]]] = {schedule_id: [] for schedule_id in open_jobs}
    after: dict[Queue, datetime] = {}
    done: list[Queue] = []
    for schedule_id, trigger_no, next_at, last_at in locked:
        queue = Queue(ScheduleId(str(schedule_id)), cast(int, trigger_no))
        job = open_jobs.get(queue.schedule_id)
        leaf = schedules[queue.schedule_id].spec.trigger.leaves[queue.trigger_no]
        if queue not in ready or not isinstance(leaf, WatermarkPassed):
            continue
        boundary, last = from_ms(cast(int, next_at)), from_ms(cast(int, last_at))
        waits = job is not None and queue.trigger_no in job.fed and job.fed[queue.trigger_no].fires
        if waits:
            after[queue] = boundary
            continue
        facts.setdefault(queue.schedule_id, []).append((queue.trigger_no, boundary))
        if boundary + leaf.every <= last:
            after[queue] = boundary + leaf.every
        else:
            done.append(queue)
    jobs = feed_jobs(db, world, facts, schedules)
    world.mark("boundaries.before_move")
    moved = [
        {**queue._asdict(), "next_at": to_ms(next_at), "behind": jobs[queue.schedule_id]}
        for queue, next_at in after.items()
    ]
    db.run(SQL.move, moved=json.dumps(moved))
    db.run(SQL.remove, done=json.dumps([queue._asdict() for queue in done]))
    world.mark("boundaries.before_commit")
    return len(after) + len(done)
