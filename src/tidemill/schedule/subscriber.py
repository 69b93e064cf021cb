"""Messages → jobs: what a message causes and the new position are one transaction, so that none is lost or doubled."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import (
    Message,
    Position,
    Topic,
    lock_position,
    move_position,
    quarantine_messages,
    read_messages,
)
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.epoch import show_time
from tidemill.errors import UserError
from tidemill.names import EventKey, ScheduleId, topic_event
from tidemill.run.records.programs import Program, find_programs
from tidemill.run.step.counted import Counting, start_counting
from tidemill.schedule.boundaries import Moves, Queue, queue_boundaries
from tidemill.schedule.data_triggers import (
    MOST_ENDS,
    DataTrigger,
    MessageTrigger,
    NewData,
    NewPartitions,
    Passed,
    PassedMode,
    UnreadableMessage,
    WatermarkPassed,
)
from tidemill.schedule.jobs import Fact, feed_jobs
from tidemill.schedule.schedules import find_listeners, share_listening
from tidemill.schedule.specs import Schedule
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.triggers import Fed, Leaf
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.subscriber_sql import Sql

SQL: Sql = load_sql(__file__)

NAME: Final = "scheduler"
"""The subscriber's name at the topic: all scheduler processes share one position."""

BACKLOG: Final = "backlog"
"""The type of messages about work left in a data set."""

BATCH: Final = 500
"""Messages handled in one transaction."""

Listeners: TypeAlias = Mapping[EventKey, Sequence[tuple[ScheduleId, int]]]
"""The schedules that listen to each key, with the numbers of their leaves."""

_log = logging.getLogger(__name__)


def subscribe(catalog: Catalog, world: World, limit: int = BATCH) -> int:
    """Bring new messages to the jobs of the schedules that listen, and give how many there were.

    All topics to which schedules listen are one transaction, with at most `limit` messages of each: one commit often
    publishes about its data and about its run. A message that cannot be read is quarantined with its reason, and the
    next ones go on. A topic whose position another process holds is left to that process. Cost: look-ups of the
    messages' event keys, and a handful of statements for all jobs together; never the number of schedules.
    """
    flaws: dict[tuple[str, Position], str] = {}
    gaps: list[str] = []

    def block(db: Db) -> int:
        flaws.clear()
        gaps.clear()
        read: dict[str, list[Message]] = {}
        for topic in _find_unhandled(db):
            position = lock_position(db, topic, NAME)
            if position is not None and (new := read_messages(db, topic, position, limit)):
                read[topic] = new
        if not read:
            return 0
        world.mark("subscriber.read")
        # First, for the order of locks: it is one transaction with the jobs.
        for topic, new in read.items():
            _pass(db, topic, new[-1].position)
        messages = sorted(chain.from_iterable(read.values()), key=lambda message: message.position)
        world.mark("subscriber.before_jobs")
        flaws.update(_feed(db, world, messages, gaps))
        for topic in sorted({topic for topic, _ in flaws}):
            own = {position: why for (of, position), why in flaws.items() if of == topic}
            quarantine_messages(db, topic, NAME, own)
        world.mark("subscriber.before_commit")
        return len(messages)

    handled = catalog.write(block)
    for (topic, position), why in flaws.items():
        _log.warning("message %s.%s of topic %s is quarantined: %s", *position, topic, why)
    for gap in gaps:
        _log.warning("%s", gap)
    return handled


UNHANDLED: Final = SQL.find_unhandled(topic=Topic.DATA, name=NAME)
"""Finds a topic with messages that no scheduler has handled yet, if there is one."""


def has_messages(db: Db) -> bool:
    """Return whether there are messages that no scheduler has handled yet. Cost: two look-ups a topic."""
    return bool(_find_unhandled(db))


def _find_unhandled(db: Db) -> list[str]:
    """Return the topics with messages that no scheduler has handled yet, in the order of locks."""
    return db.records(SQL.find_unhandled, str, topic=Topic.DATA, name=NAME)


def _pass(db: Db, topic: str, position: Position) -> None:
    """Store the new position in a topic, or forget the topic after its last listener was deleted.

    The change that adds the next listener begins the topic there. Messages in between cost nothing.
    """
    if topic == Topic.DATA or db.all(SQL.find_listener, event_key=topic_event(topic)):
        move_position(db, topic, NAME, position)
    else:
        db.run(SQL.forget_topic, topic=topic, name=NAME)


def _feed(db: Db, world: World, messages: list[Message], gaps: list[str]) -> dict[tuple[str, Position], str]:
    """Feed the jobs; return what is wrong with each message that cannot be read.

    Adds a sentence to `gaps` for each watermark that moved over more ends of periods than runs are started for.
    """
    flaws = {(message.topic, message.position): message.flaw for message in messages if message.flaw}
    listeners = find_listeners(db, {key for message in messages for key in message.listened_keys})
    candidates = {schedule_id for found in listeners.values() for schedule_id, _ in found}
    if not candidates:
        return flaws
    # One that was changed after we read its keys has ticked after these messages: they are behind its since_seq.
    schedules = share_listening(db, candidates)
    _count_passed(db, messages, listeners, schedules)
    programs = find_programs(db, {schedule.program_id for schedule in schedules.values()})
    leaves = chain.from_iterable(schedule.spec.trigger.leaves for schedule in schedules.values())
    counted = {leaf.dataset for leaf in leaves if isinstance(leaf, NewPartitions | NewData)}
    counting = start_counting(db, programs.values(), counted)
    facts: dict[ScheduleId, list[tuple[int, Fact]]] = {}
    moves = Moves()
    for message in messages:
        for schedule_id, trigger_no in () if message.flaw else _heard_by(message, listeners):
            schedule = schedules.get(schedule_id)
            if schedule is None or message.seq < schedule.since_seq:
                continue
            leaf = schedule.spec.trigger.leaves[trigger_no]
            is_backlog = message.topic == Topic.DATA and message.event_type == BACKLOG
            if is_backlog and not _reads(programs.get(schedule.program_id), schedule_id, leaf, message):
                continue
            try:
                if isinstance(leaf, WatermarkPassed) and leaf.mode is PassedMode.EACH and not is_backlog:
                    moves.add(Queue(schedule_id, trigger_no), leaf, message)
                elif given := _narrow(db, counting, schedule, leaf, message):
                    facts.setdefault(schedule_id, []).append((trigger_no, given))
            except UnreadableMessage as error:
                flaws.setdefault((message.topic, message.position), str(error))
    _begin_stands(db, messages, listeners, schedules)
    queue_boundaries(db, moves)
    gaps += [_say_gap(schedules[queue.schedule_id], queue, passed) for queue, passed in moves.gaps.items()]
    feed_jobs(db, world, facts, schedules)
    return flaws


def _heard_by(message: Message, listeners: Listeners) -> list[tuple[ScheduleId, int]]:
    return [heard_by for key in message.listened_keys for heard_by in listeners.get(key, ())]


def _count_passed(
    db: Db,
    messages: Sequence[Message],
    listeners: Listeners,
    listening: Mapping[ScheduleId, Schedule],
) -> None:
    """Record which messages schedules are not fed, because they were suspended, or changed after the message.

    Cost: nothing where all listeners are fed.
    """
    unfed: dict[tuple[ScheduleId, str], list[Position]] = {}
    for message in (one for one in messages if one.event_type != BACKLOG and not one.flaw):
        for schedule_id in {heard_by for heard_by, _ in _heard_by(message, listeners)}:
            schedule = listening.get(schedule_id)
            if schedule is None or message.seq < schedule.since_seq:
                unfed.setdefault((schedule_id, message.topic), []).append(message.position)
    if not unfed:
        return
    ids = json.dumps(sorted({schedule_id for schedule_id, _ in unfed}))
    created = dict(db.records(SQL.list_created, tuple[ScheduleId, int], schedule_ids=ids))
    passed = {
        (schedule_id, topic): later
        for (schedule_id, topic), positions in unfed.items()
        if schedule_id in created and (later := [one for one in positions if one.seq > created[schedule_id]])
    }
    rows = [
        {
            "schedule_id": schedule_id,
            "topic": topic,
            "messages": len(positions),
            "first_seq": positions[0].seq,
            "first_n": positions[0].n,
            "last_seq": positions[-1].seq,
            "last_n": positions[-1].n,
        }
        for (schedule_id, topic), positions in sorted(passed.items())
    ]
    if rows:
        db.run(SQL.count_passed, passed=json.dumps(rows))


def _begin_stands(
    db: Db,
    messages: Sequence[Message],
    listeners: Listeners,
    schedules: Mapping[ScheduleId, Schedule],
) -> None:
    """Give timers to stands of watermarks that begin with these moves: the last stand has fired, and has none."""
    begun = {
        (schedule_id, trigger_no): message.at + leaf.duration
        for message in messages
        for schedule_id, trigger_no in _heard_by(message, listeners)
        if schedule_id in schedules
        and isinstance(leaf := schedules[schedule_id].spec.trigger.leaves[trigger_no], WatermarkStands)
    }
    if begun:
        rows = [{"schedule_id": one, "trigger_no": no, "next_fire_at": at} for (one, no), at in sorted(begun.items())]
        db.run(SQL.begin_stands, stands=to_json(rows))


def _say_gap(schedule: Schedule, queue: Queue, passed: Passed) -> str:
    name, leaf = schedule.qualified_name, schedule.spec.trigger.leaves[queue.trigger_no]
    return (
        f"schedule {name} starts a run for each of the latest {MOST_ENDS} periods, from the one that ends at "
        f"{show_time(passed.first)}, and none for the {passed.left_out} before: {leaf} passed all of them in one move. "
        f"Is a partition dated wrongly? To skip those that wait: `tidemill schedule suspend {name}`, and `resume`"
    )


def _narrow(db: Db, counting: Counting, schedule: Schedule, leaf: Leaf, message: Message) -> Message | None:
    """Return what the leaf is fed of `message`, None for nothing; `UnreadableMessage`."""
    if isinstance(leaf, WatermarkStands) or (isinstance(leaf, MessageTrigger) and not leaf.wants(message)):
        return None
    if isinstance(leaf, MessageTrigger):
        _try_out(leaf, message)  # what cannot be read must show here, alone, and not among all facts
    if not isinstance(leaf, NewPartitions | NewData):
        return message
    given = counting.narrow(db, schedule.program_id, leaf.dataset, message)
    if given is None or not isinstance(leaf, NewPartitions):
        return given
    try:
        return counting.choose(db, leaf.dataset, leaf.where, leaf.kinds, given)
    except UserError as error:
        raise UnreadableMessage(str(leaf), str(error)) from None


def _try_out(leaf: MessageTrigger, message: Message) -> None:
    """Raise `UnreadableMessage` if the leaf fails on `message`. A plug-in that fails stops no other schedule."""
    try:
        leaf.feed(Fed(), message)
    except UnreadableMessage:
        raise
    except Exception as error:  # code of others: whatever it raises
        _log.exception("%s failed", leaf)
        raise UnreadableMessage(str(leaf), f"{type(error).__name__}: {error}") from error


def _reads(program: Program | None, schedule_id: ScheduleId, leaf: Leaf, message: Message) -> bool:
    """Say whether the work that `message` says is left in a data set is left for the schedule's program.

    The message names the consumer, which has its program's name; an inbox has no consumers. It may also name the only
    schedules for which it is: those that have just begun to listen.
    """
    heard_by = message.payload.get("schedules")
    if program is None or not isinstance(leaf, DataTrigger):
        return False
    if isinstance(heard_by, list) and schedule_id not in heard_by:
        return False
    if isinstance(leaf, WatermarkPassed):
        return message.payload.get("consumer") == program.qualified_name  # it reads by its windows, not as a consumer
    if leaf.dataset not in program.reads:
        return False
    return message.payload.get("consumer", program.qualified_name) == program.qualified_name
