"""Changes of schedules: made, changed, deleted, suspended and resumed, many in one transaction.

A deployment is all or nothing. A changed schedule keeps its id and gets a new generation; what was pending for the old
one is dropped and recorded. Listings load none of this.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Topic
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.epoch import EPOCH
from tidemill.errors import Conflict, NotFound
from tidemill.names import (
    STARTED,
    CommitSeq,
    EventKey,
    Namespace,
    ProgramId,
    ScheduleId,
    check_name,
    launches_limit,
    qualified,
    split_qualified,
    topic_event,
)
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import (
    NodeOfWorkflow,
    Program,
    ProgramRetired,
    find_program,
    find_programs,
)
from tidemill.run.step.counted import find_flaw
from tidemill.run.step.inputs import announce_waiting, follows_changes
from tidemill.run.step.watermarks import has_watermark
from tidemill.run.step.window_input import computes_windows
from tidemill.schedule.answers import Satisfied
from tidemill.schedule.data_triggers import DatasetTrigger, DataTrigger, MessageTrigger, NewPartitions, WatermarkPassed
from tidemill.schedule.expectation_triggers import Missing
from tidemill.schedule.jobs import Outcome, drop_jobs, hold_jobs, release_jobs
from tidemill.schedule.not_installed import TriggerNotInstalled
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.schedules import find_schedule, list_schedules, lock_schedules
from tidemill.schedule.specs import BadSchedule, Misfire, Owner, Schedule, ScheduleSpec, Status, SuspendMode
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.subscriber import NAME
from tidemill.schedule.time_triggers import CalendarTrigger, Every, TimeTrigger
from tidemill.schedule.trigger_json import types_of
from tidemill.schedule.triggers import Fed, Leaf, Trigger
from tidemill.schedule.window_triggers import WindowsRecomputed
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.changes_sql import Sql

SQL: Sql = load_sql(__file__)

_FAR: Final = datetime.max.replace(tzinfo=UTC)


class ScheduleExists(Conflict):
    """A schedule of that name is there already."""

    code = "schedule_exists"

    def __init__(self, names: str) -> None:
        self.names = names
        super().__init__(
            f"there is a schedule already of each of these names: {names}", "update it, or delete it first"
        )


@dataclass(frozen=True, slots=True)
class Add:
    """Make a schedule; it listens at once unless `suspended`."""

    namespace: Namespace
    app: str
    name: str
    program_id: ProgramId
    spec: ScheduleSpec
    owner: Owner = Owner.APP
    suspended: bool = False

    def __post_init__(self) -> None:
        check_name("schedule", self.name)


@dataclass(frozen=True, slots=True)
class Update:
    """Delete and recreate with another spec, keeping id, name and status (seed 001, scenarios 4 and 5).

    A deployment may give another program too; None keeps it.
    """

    schedule_id: ScheduleId
    spec: ScheduleSpec
    program_id: ProgramId | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a schedule."""

    schedule_id: ScheduleId


@dataclass(frozen=True, slots=True)
class Suspend:
    """Let a schedule start nothing from now on; nothing when it is suspended in this mode."""

    schedule_id: ScheduleId
    mode: SuspendMode = SuspendMode.DROP


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a suspended schedule start its program again; nothing when it is not suspended."""

    schedule_id: ScheduleId


Change: TypeAlias = Add | Update | Delete | Suspend | Resume


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of one change: the number of dropped jobs.

    `begins` names the program when the schedule begins to listen for data: made, resumed, or given another program.
    """

    schedule_id: ScheduleId
    dropped_jobs: int
    begins: ProgramId | None = None


def change_schedules(db: Db, world: World, seq: CommitSeq, changes: Sequence[Change]) -> list[Changed]:
    """Make all of `changes` and give what became of each, in their order; at most one for a schedule.

    `seq` is the tick that the caller took as the first lock of the block: it says which messages a schedule that is
    made, changed or resumed does not listen to any more. `announce_work` belongs behind it, in the same transaction.
    Raises `NotFound`, `ScheduleExists`.
    """
    now = db.now()
    _begin_topics(db, seq, changes)
    ids = [ScheduleId(world.new_id("sched")) if isinstance(change, Add) else change.schedule_id for change in changes]
    # Timers come before schedules in the order of locks. Schedules that go on listening get new timers at the end.
    db.run(SQL.delete_timers, schedule_ids=json.dumps([i for i, c in zip(ids, changes, strict=True) if _stops(c)]))
    old = lock_schedules(db, ids)
    for schedule_id, change in zip(ids, changes, strict=True):
        if schedule_id not in old and not isinstance(change, Add):
            raise NotFound("schedule", schedule_id)

    new: dict[ScheduleId, Schedule] = {}
    dropping: dict[ScheduleId, Outcome] = {}
    for schedule_id, change in zip(ids, changes, strict=True):
        match change:
            case Add():
                new[schedule_id] = _added(schedule_id, change, seq, now)
            case Update(spec=spec, program_id=program_id):
                new[schedule_id] = replace(
                    old[schedule_id],
                    spec=spec,
                    program_id=program_id or old[schedule_id].program_id,
                    generation=old[schedule_id].generation + 1,
                    since_seq=seq,
                    since_at=now,
                )
                dropping[schedule_id] = Outcome.CHANGED
            case Delete():
                dropping[schedule_id] = Outcome.DELETED
            case Suspend(mode=mode):
                new[schedule_id] = _suspended(old[schedule_id], mode, seq, now)
                if mode is not SuspendMode.HOLD and new[schedule_id] != old[schedule_id]:
                    dropping[schedule_id] = Outcome.SUSPENDED
            case Resume():
                new[schedule_id] = _resumed(old[schedule_id], seq, now)
            case _:
                assert_never(change)
    _store(db, old, new)
    _refuse_cycles(db, new.values())
    db.run(SQL.empty_boundaries, schedule_ids=json.dumps(sorted(dropping)))
    hold_jobs(db, [s.schedule_id for s in new.values() if s.suspended_mode is SuspendMode.HOLD])
    release_jobs(db, [i for i, s in new.items() if i in old and old[i].listens and _is_resumed(old[i], s)])
    dropped = drop_jobs(db, dropping)
    begins = {s.schedule_id: s.program_id for s in new.values() if _begins(old.get(s.schedule_id), s)}
    return [Changed(schedule_id, dropped.get(schedule_id, 0), begins.get(schedule_id)) for schedule_id in ids]


def announce_work(db: Db, changed: Iterable[Changed]) -> None:
    """Announce what waits for the programs of schedules that begin to listen: it came while none listened.

    Call it after `change_schedules`, in the same transaction, before anything that locks watermarks.
    """
    begins = {one.schedule_id: one.begins for one in changed if one.begins is not None}
    if begins:
        announce_waiting(db, find_programs(db, begins.values()).values(), list(begins))


def _begins(before: Schedule | None, after: Schedule) -> bool:
    """Say whether a schedule heeds data of its program now which it did not heed before.

    An update for the same data sets announces nothing: its trigger counts from zero (seed 001, scenarios 4 and 5).
    """
    heard = _heeded(after)
    return bool(heard if before is None or before.program_id != after.program_id else heard - _heeded(before))


def _heeded(schedule: Schedule) -> set[str]:
    """Return the data sets whose messages feed jobs that go on, now or at the resumption.

    In the mode hold that is so from the beginning: an announcement at the resumption would satisfy the trigger early.
    In the other modes it is so from the resumption on.
    """
    if schedule.status is Status.SUSPENDED and schedule.suspended_mode is not SuspendMode.HOLD:
        return set()
    return _datasets(schedule)


def _datasets(schedule: Schedule) -> set[str]:
    """The data sets to whose messages a schedule listens."""
    return {leaf.dataset for leaf in schedule.spec.trigger.leaves if isinstance(leaf, DatasetTrigger)}


def check_trigger(db: Db, name: str, program: Program, trigger: Trigger) -> None:
    """Refuse a trigger on a data set or program that is not there, or of another kind: `name` would wait for ever.

    Refuse also a choice of partitions that the file set does not have, or that `program` is never given, and a program
    that gets its input from a workflow.
    """
    if program.held:
        raise NodeOfWorkflow(program.qualified_name, program.held)
    _check_held(db, name, program, trigger)
    for leaf in trigger.leaves:
        if isinstance(leaf, TriggerNotInstalled):
            raise BadSchedule(f"{name} has the trigger {leaf}: install its package first, or delete the schedule")
        if isinstance(leaf, RunEnded | WindowsRecomputed):
            _check_watched(db, name, leaf)
        if isinstance(leaf, DatasetTrigger | WatermarkStands):
            dataset = find_dataset(db, leaf.dataset)
            if dataset.kind != leaf.of_kind:
                raise BadSchedule(f"{name} has {leaf}, but that is a data set of kind {dataset.kind}")
        if isinstance(leaf, WatermarkPassed | WatermarkStands) and not has_watermark(db, leaf.dataset):
            raise BadSchedule(
                f"{name} has {leaf}, but {leaf.dataset} has no watermark; declare watermark=tm.Watermark(…)"
            )
        if isinstance(leaf, Missing) and find_dataset(db, leaf.dataset).expect is None:
            raise BadSchedule(
                f"{name} has {leaf}, but {leaf.dataset} has no arrival expectation; declare expect=tm.Arrivals(…)"
            )
        if isinstance(leaf, NewPartitions) and (why := find_flaw(db, program, leaf.dataset, leaf.where, leaf.kinds)):
            raise BadSchedule(f"{name} has {leaf}: {why}")


def _check_held(db: Db, name: str, program: Program, trigger: Trigger) -> None:
    """Refuse a trigger on a data set that a node takes for itself: what its run leaves would not start another.

    Files that a run leaves are announced to all that listen to their inbox.
    """
    if program.workflow is None:
        return
    taken = [one for one in trigger.leaves if isinstance(one, DataTrigger) and one.of_kind != "inbox"]
    for leaf in (one for one in taken if one.dataset not in program.reads):
        for node in program.workflow.nodes:
            reader = find_program(db, program.namespace, program.app, node.name)
            if leaf.dataset not in reader.reads:
                continue
            if leaf.of_kind == "fileset" and not computes_windows(db, reader):
                why = f"the node {node.name} reads {leaf.dataset} by itself; name it in holds= of the workflow"
            elif leaf.of_kind == "fileset" or follows_changes(db, reader, leaf.dataset):
                why = f"the node {node.name} reads {leaf.dataset} by itself; give {node.name} a schedule of its own"
            else:
                continue  # each run reads the version that is current then
            raise BadSchedule(f"{name} has {leaf}: {why}")


def _check_watched(db: Db, name: str, leaf: RunEnded | WindowsRecomputed) -> None:
    namespace, (app, watched) = split_qualified("program", leaf.program, 2)
    found = find_program(db, namespace, app, watched)
    if found.retired:
        raise ProgramRetired(leaf.program)
    if isinstance(leaf, RunEnded) and found.workflow is not None and STARTED in leaf.states:
        first = next(node.name for node in found.workflow.nodes if not node.after)
        raise BadSchedule(f"{name} has {leaf}, but the start of a workflow is not announced; name its node {first}")
    if isinstance(leaf, WindowsRecomputed) and not computes_windows(db, found):
        raise BadSchedule(f"{name} has {leaf}, but {leaf.program} is no window program; name one (`window_sql`)")


def _begin_topics(db: Db, seq: CommitSeq, changes: Sequence[Change]) -> None:
    """Let the scheduler read from here on the topics, besides `data`, to which no schedule has listened."""
    specs = [change.spec for change in changes if isinstance(change, Add | Update)]
    leaves = [leaf for spec in specs for leaf in spec.trigger.leaves]
    topics = sorted({leaf.heard_topic for leaf in leaves if isinstance(leaf, MessageTrigger)} - {Topic.DATA})
    if topics:
        db.run(SQL.begin_topics, topics=json.dumps([{"topic": topic} for topic in topics]), name=NAME, seq=seq)


def _keys(leaf: Leaf) -> set[EventKey]:
    """The keys under which a leaf is found: its own, and its topic's, by which a scheduler finds any listener."""
    if isinstance(leaf, MessageTrigger) and leaf.heard_topic != Topic.DATA:
        return {*leaf.event_keys, topic_event(leaf.heard_topic)}
    return set(leaf.event_keys)


def _refuse_cycles(db: Db, changed: Iterable[Schedule]) -> None:
    """Refuse programs that would start each other for ever, without data in between.

    Of all programs that ends of runs start, those go on for ever whose trigger the others of these satisfy alone. Cost:
    the schedules that listen to ends of runs.
    """
    if not any(isinstance(leaf, RunEnded) for schedule in changed for leaf in schedule.spec.trigger.leaves):
        return
    listening = list_schedules(db, event_key=topic_event(Topic.PROGRAM))
    programs = find_programs(db, {schedule.program_id for schedule in listening})
    starting = [(name, one) for one in listening for name in _list_started(programs[one.program_id])]
    going = _endless(starting)
    if going:
        links = {f"{one.qualified_name} ({one.spec.trigger})": None for program, one in starting if program in going}
        start = f"{', '.join(sorted(going))} would start {'each other' if len(going) > 1 else 'itself'} for ever"
        raise BadSchedule(f"{start}, by {', '.join(links)}; join one of these triggers with a trigger of data (`&`)")


def _list_started(program: Program) -> list[str]:
    """List the programs that a start of `program` runs: a workflow runs its nodes too."""
    nodes = [] if program.workflow is None else program.workflow.nodes
    return [program.qualified_name, *(qualified(program.namespace, program.app, node.name) for node in nodes)]


def _endless(starting: Sequence[tuple[str, Schedule]]) -> set[str]:
    """Return the programs that start each other for ever. `starting` are programs with a schedule of theirs.

    Each of them is started by ends of runs of these programs alone, and starts one of them.
    """
    going = {program for program, _ in starting}
    while True:
        started = [(program, one) for program, one in starting if program in going and _starts(one, going)]
        causes = {leaf.program for _, one in started for leaf in one.spec.trigger.leaves if isinstance(leaf, RunEnded)}
        kept = {program for program, _ in started} & causes
        if kept == going:
            return going
        going = kept


def _starts(schedule: Schedule, ended: Collection[str]) -> bool:
    """Say whether ends of runs of `ended` programs alone satisfy the schedule's trigger, sooner or later."""
    fed = [
        Fed(count=leaf.n, first_at=EPOCH, last_at=EPOCH)
        if isinstance(leaf, RunEnded) and leaf.program in ended
        else Fed()
        for leaf in schedule.spec.trigger.leaves
    ]
    return isinstance(schedule.spec.trigger.check(fed, _FAR), Satisfied)


def _stops(change: Change) -> bool:
    """Say whether a change ends the schedule's timers."""
    if isinstance(change, Suspend):
        return change.mode is SuspendMode.DROP
    return not isinstance(change, Add | Resume)


def _suspended(old: Schedule, mode: SuspendMode, seq: CommitSeq, now: datetime) -> Schedule:
    if old.suspended_mode is mode:
        return old
    new = replace(old, status=Status.SUSPENDED, suspended_at=old.suspended_at or now, suspended_mode=mode)
    return new if old.listens else replace(new, since_seq=seq, since_at=now)


def _resumed(old: Schedule, seq: CommitSeq, now: datetime) -> Schedule:
    new = replace(old, status=Status.SCHEDULED, suspended_at=None, suspended_mode=None)
    return new if old.listens else replace(new, since_seq=seq, since_at=now)


def _is_resumed(before: Schedule, after: Schedule) -> bool:
    return before.status is Status.SUSPENDED and after.status is Status.SCHEDULED


def _added(schedule_id: ScheduleId, change: Add, seq: CommitSeq, now: datetime) -> Schedule:
    return Schedule(
        schedule_id=schedule_id,
        namespace=change.namespace,
        app=change.app,
        name=change.name,
        generation=1,
        since_seq=seq,
        since_at=now,
        program_id=change.program_id,
        spec=change.spec,
        owner=change.owner,
        status=Status.SUSPENDED if change.suspended else Status.SCHEDULED,
        suspended_at=now if change.suspended else None,
        suspended_mode=SuspendMode.DROP if change.suspended else None,
    )


def _store(db: Db, old: Mapping[ScheduleId, Schedule], new: Mapping[ScheduleId, Schedule]) -> None:
    """Make the rows of `old` those of `new`, with what follows from them."""
    gone = [schedule_id for schedule_id in old if schedule_id not in new]
    added = [schedule for schedule_id, schedule in new.items() if schedule_id not in old]
    changed = [schedule for schedule_id, schedule in new.items() if schedule_id in old]
    unindexed = [*gone, *(s.schedule_id for s in changed if s.generation > old[s.schedule_id].generation)]
    indexed = [s for s in new.values() if s.schedule_id not in old or s.schedule_id in unindexed]
    # A schedule that goes on listening keeps its timers.
    timed = [s for s in new.values() if s.listens and _is_listening_now(old.get(s.schedule_id), s)]
    # Those that go first: one of the same name may come in their place, for another program.
    db.run(SQL.delete_schedules, schedule_ids=json.dumps(gone))
    db.run(SQL.delete_passed, schedule_ids=json.dumps(gone))
    db.run(SQL.update_schedules, schedules=to_json([_row(s) for s in changed]))
    if db.run(SQL.insert_schedules, schedules=to_json([_row(s) for s in added])) < len(added):
        raise ScheduleExists(", ".join(_list_taken(db, added)))
    db.run(SQL.delete_trigger_keys, schedule_ids=json.dumps(unindexed))
    keys = [
        {"event_key": key, "schedule_id": s.schedule_id, "trigger_no": trigger_no}
        for s in indexed
        for trigger_no, leaf in enumerate(s.spec.trigger.leaves)
        for key in sorted(_keys(leaf))
    ]
    db.run(SQL.insert_trigger_keys, keys=json.dumps(keys))
    db.run(SQL.delete_trigger_types, schedule_ids=json.dumps(unindexed))
    types = [
        {"schedule_id": s.schedule_id, "trigger_type": one, "namespace": s.namespace, "app": s.app, "name": s.name}
        for s in indexed
        for one in sorted(types_of(s.spec.trigger))
    ]
    db.run(SQL.insert_trigger_types, types=json.dumps(types))
    db.run(SQL.delete_start_windows, schedule_ids=json.dumps(unindexed))
    windows = [
        {"schedule_id": s.schedule_id, "program_id": program_id, "length": window}
        for s in indexed
        for program_id, window in s.spec.start_windows(s.program_id).items()
    ]
    db.run(SQL.insert_start_windows, windows=to_json(windows))
    timers = [
        {
            "schedule_id": s.schedule_id,
            "trigger_no": trigger_no,
            "next_fire_at": leaf.next_fire(s.since_at),
            "counted_from": s.since_at if isinstance(leaf, Every) else None,
            "fed_in": old[s.schedule_id].generation if s.schedule_id in old and _fires_one_by_one(s, leaf) else None,
        }
        for s in timed
        for trigger_no, leaf in s.time_leaves.items()
    ]
    db.run(SQL.insert_timers, timers=to_json(timers))
    limits = sorted(
        {launches_limit(s.namespace) for s in indexed}.union(*(s.spec.limit_keys(s.program_id) for s in indexed))
    )
    db.run(SQL.insert_limits, limits=json.dumps([{"limit_key": key} for key in limits]))


def _list_taken(db: Db, added: Sequence[Schedule]) -> list[str]:
    """Return the names of `added` that another schedule has, or another of `added`."""
    taken: dict[str, None] = {}
    for schedule in added:
        found = find_schedule(db, schedule.namespace, schedule.app, schedule.name)
        if found.schedule_id != schedule.schedule_id:
            taken[found.qualified_name] = None
    return list(taken)


def _is_listening_now(before: Schedule | None, after: Schedule) -> bool:
    return before is None or not before.listens or after.generation > before.generation


def _fires_one_by_one(schedule: Schedule, leaf: TimeTrigger) -> bool:
    """Say whether each time starts its run when the run before it has ended."""
    return isinstance(leaf, CalendarTrigger) and schedule.spec.misfire is Misfire.ALL


def _row(schedule: Schedule) -> dict[str, object]:
    return {
        "schedule_id": schedule.schedule_id,
        "namespace": schedule.namespace,
        "app": schedule.app,
        "name": schedule.name,
        "generation": schedule.generation,
        "since_seq": schedule.since_seq,
        "since_at": schedule.since_at,
        "program_id": schedule.program_id,
        "spec": schedule.spec.encode(),
        "priority": schedule.spec.priority,
        "owner": schedule.owner.value,
        "status": schedule.status.value,
        "suspended_at": schedule.suspended_at,
        "suspended_mode": schedule.suspended_mode,
    }
