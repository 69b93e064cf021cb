"""The watermark W of a file set: complete up to here (seed 003). Moved by the commit that publishes, in that commit.

All partitions of one time form a slot. A slot is complete when the partitions that it waits for are committed, or any,
if it waits for none by name. W is the end of the last complete slot (`skip`), or of the unbroken run of them (`wait`),
less the lag of rows; open transactions that declared times below it hold it back. W goes back in two cases only: its
times are read in another way, or a person rewinds it. What ends a transaction knows nothing of lakes: the keeper sees
the end and moves W.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import ALL_ROWS, GREATEST, Call, Param, load_sql
from tidemill.errors import Conflict, NotFound, UserError
from tidemill.json_specs import read_text, write_text
from tidemill.lake.datasets import find_by_id
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.reopening import reopen_windows
from tidemill.lake.window.window_plan import times_within
from tidemill.lake.window.windows import change_late
from tidemill.names import (
    CommitSeq,
    DatasetId,
    Namespace,
    RunId,
    WritePointer,
    qualified,
    split_qualified,
    watermark_event,
)
from tidemill.shapes.custom_time import check_loads
from tidemill.shapes.keys import Key, KeyText
from tidemill.shapes.manifest import find_snapshot
from tidemill.shapes.partition_time import Instant, Span, WallTime, from_wall, to_wall
from tidemill.shapes.time_formats import BadPartitionTime
from tidemill.shapes.watermark_spec import GapPolicy, OutsidePolicy, StoredWatermark, WatermarkSpec

if TYPE_CHECKING:
    from tidemill.lake.window.watermark_sql import Sql

SQL: Sql = load_sql(__file__)

EARLIEST: Final = Instant(-(1 << 62))
LATEST: Final = Instant(1 << 62)
"""The open ends of what a transaction declares."""
NEXT_RELEASE: Final = SQL.next_check()
"""Finds the time at which a slot that lies ahead of the clock comes due."""
_KEEPER: Final = "keeper"
_LISTING: Final = "listing"
_BATCH: Final = 10_000
_MOST_SLOTS: Final = 50_000
"""Slots that the commit of a declared span completes at most."""


@refusal
class WatermarkChanged(Conflict):
    """The watermark was declared again while a transaction was writing: its times may be other ones now."""

    code = "watermark_changed"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"the watermark of {dataset} was declared, changed or dropped after this transaction began; nothing was "
            "published",
            "run again to publish by the new declaration",
        )


@refusal
class WatermarkThere(UserError):
    """An advance to a time that the watermark has reached already."""

    code = "watermark_passed"

    def __init__(self, dataset: str, value: str) -> None:
        self.dataset = dataset
        self.value = int(value)
        super().__init__(
            f"the watermark of {dataset} stands at {_in_utc(self.value)} already",
            "`tidemill watermark rewind` moves it back",
            before=": ",
        )


class NotAhead(UserError):
    """A rewind to a time that the watermark has not passed."""

    code = "watermark_not_ahead"

    def __init__(self, dataset: str, value: int | None) -> None:
        self.dataset = dataset
        self.value = value
        stands = "has not begun" if value is None else f"stands at {_in_utc(value)}"
        super().__init__(
            f"the watermark of {dataset} {stands}",
            "give a time before it, or move it forward by `tidemill watermark advance`",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class WatermarkRow:
    """Row of a watermark. W is `value`, or None. `target` is the value that W has once no transaction holds it."""

    dataset_id: DatasetId
    declared: str
    """The JSON of the declaration that the times are read by."""
    value: Instant | None
    target: Instant | None
    next_time: WallTime | None
    next_check_at: datetime | None


@dataclass(frozen=True, slots=True)
class Move:
    """A move of W by the commit `commit_seq`; `cause` is a run, the keeper, or an actor.

    `value` is None after a change by which no partition has a time.
    """

    commit_seq: CommitSeq
    value: Instant | None
    previous: Instant | None
    cause: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Holder:
    """An open transaction that has declared to write the instants `[begins, ends)`."""

    write_pointer: WritePointer
    run_id: RunId
    began_at: datetime
    begins: Instant
    ends: Instant


@dataclass(frozen=True, slots=True)
class PartitionWait:
    """A partition that is not complete: its directory is not `marked`, or something may change until `due_at`."""

    partition_key: KeyText
    marked: bool
    due_at: datetime


@dataclass(frozen=True, slots=True)
class MoveWatermark(Effect):
    """Move W of a file set to its current value, and publish the move if there is one.

    With `rereads` W may move back: the times of the partitions are read in another way than before. If `quiet`, the
    move is not published: the next message begins where the previous one ended.
    """

    phase = Phase.WATERMARK

    fileset: Fileset
    cause: str
    rereads: bool = False
    quiet: bool = False

    def writes(self) -> Sequence[Call]:
        """The target, the move, the message."""
        one: dict[str, Param] = {"dataset_id": self.fileset.dataset_id}
        return (
            *_end_waits(self.fileset),
            *_raise_target(self.fileset),
            SQL.postpone_check(**one),
            SQL.note_move(**one, cause=self.cause, rereads=int(self.rereads)),
            *_settle(self.fileset, quiet=self.quiet),
        )


@dataclass(frozen=True, slots=True)
class AdvanceWatermark(Effect):
    """Move W forward by hand: what has not come by then is late. `WatermarkThere` when it stands there already.

    `next_time` is the slot from which W goes on where slots wait (`find_next_slot`): those before hold W no more. The
    keeper moves W past complete slots that follow.
    """

    phase = Phase.WATERMARK

    fileset: Fileset
    value: Instant
    cause: str
    next_time: WallTime | None = None

    def guards(self) -> Sequence[Call]:
        """W is behind."""
        params: dict[str, Param] = {"dataset": self.fileset.qualified_name, "dataset_id": self.fileset.dataset_id}
        return (SQL.refuse_retreat(**params, value=self.value),)

    def writes(self) -> Sequence[Call]:
        """The move, the message."""
        params: dict[str, Param] = {"dataset_id": self.fileset.dataset_id, "value": self.value, "cause": self.cause}
        goes_on: dict[str, Param] = {"dataset_id": self.fileset.dataset_id, "next_time": self.next_time}
        forward = SQL.note_advance(**params), SQL.go_on(**goes_on), *_settle(self.fileset)
        later = *_raise_target(self.fileset), SQL.postpone_check(dataset_id=self.fileset.dataset_id)
        return (*forward, *later)


@dataclass(frozen=True, slots=True)
class FollowWindows(Effect):
    """Move the watermark of the output of a window program with the program's commit, if the watermark follows windows.

    `MoveOutput` has noted before how far the program has come.
    """

    phase = Phase.WATERMARK

    fileset: Fileset
    cause: str

    def guards(self) -> Sequence[Call]:
        """Refuse a commit that was computed by another declaration than the catalog's."""
        return (guard_declaration(self.fileset),)

    def writes(self) -> Sequence[Call]:
        """Move the watermark."""
        return MoveWatermark(self.fileset, self.cause).writes() if _follows(self.fileset) else ()


def _raise_target(fileset: Fileset) -> tuple[Call, ...]:
    spec, one = _spec(fileset), {"dataset_id": fileset.dataset_id}
    waits = spec.gap is GapPolicy.WAIT
    raised = (SQL.raise_target_waiting if waits else SQL.raise_target_skipping)(**one)
    if not _follows(fileset):
        return (raised,)
    return raised, SQL.raise_target_following(**one, time_column=spec.column.lower())


def _follows(fileset: Fileset) -> bool:
    spec = fileset.watermark
    return spec is not None and spec.enabled and spec.follows_windows


def _end_waits(fileset: Fileset) -> tuple[Call, ...]:
    """Complete the slots in which all partitions are complete by now."""
    spec = _spec(fileset)
    if not spec.completeness.waits:
        return ()
    one: dict[str, Param] = {"dataset_id": fileset.dataset_id}
    return SQL.end_waits(**one), SQL.complete_waiting(**one, expected=spec.expected_count)


def _settle(fileset: Fileset, *, quiet: bool = False) -> tuple[Call, ...]:
    dataset = fileset.dataset
    moved = SQL.move(dataset_id=dataset.dataset_id, quiet=int(quiet))
    if quiet:
        return (moved,)
    message: dict[str, Param] = {
        "dataset_id": dataset.dataset_id,
        "dataset": dataset.qualified_name,
        "event_key": watermark_event(dataset.namespace, dataset.name),
        "zone": _spec(fileset).window_zone.name,
    }
    return SQL.publish_move(**message), moved


def guard_declaration(fileset: Fileset) -> Call:
    """Refuse a commit that has found its partitions' times by another declaration than the catalog's."""
    params: dict[str, Param] = {
        "dataset": fileset.qualified_name,
        "dataset_id": fileset.dataset_id,
        "declared": _declared(fileset),
    }
    return SQL.refuse_other_declaration(**params)


def note_commit(fileset: Fileset) -> Call:
    """Note the time of a commit to the file set, after which its `idle_timeout` begins."""
    return SQL.note_commit(dataset_id=fileset.dataset_id)


def find_times(
    fileset: Fileset, keys: Iterable[Key], known: Mapping[Key, WallTime] | None = None
) -> dict[Key, Span | None]:
    """The slots of these partitions, None for parked ones; nothing for a file set without a watermark.

    `known` are times that the catalog has (`find_known_times`). A custom extractor reads the other ones.
    """
    if fileset.watermark is None or not fileset.watermark.enabled:
        return {}
    partition_time = fileset.watermark.partition_time
    spans: dict[Key, Span | None] = {
        key: partition_time.span_at(from_wall(time)) for key, time in (known or {}).items()
    }
    unknown = [key for key in keys if key not in spans]
    custom = partition_time.extractor.custom
    if unknown and custom is not None:
        try:
            check_loads(custom)
        except BadPartitionTime:  # once, and not again for each partition
            return spans | dict.fromkeys(unknown)
    return spans | {key: partition_time.span_of(key) for key in unknown}


def find_known_times(db: Db, fileset: Fileset, keys: Iterable[Key]) -> dict[Key, WallTime]:
    """Return the times that a custom extractor has read for these partitions, as far as they are current.

    A partition keeps its time while it is current, also if the extractor fails now. Cost: a look-up by key for each.
    """
    spec = fileset.watermark
    if spec is None or not spec.enabled or spec.partition_time.extractor.custom is None:
        return {}
    wanted = json.dumps([fileset.keys.encode(key) for key in keys])
    found = db.records(SQL.find_times, tuple[KeyText, WallTime], dataset_id=fileset.dataset_id, keys=wanted)
    return {fileset.keys.decode(key): time for key, time in found}


def list_slots(db: Db, fileset: Fileset, keys: Iterable[Key], begins: Instant, ends: Instant) -> list[Span]:
    """The whole time slots in `[begins, ends)`, which a transaction has declared: its commit completes them.

    Slots are in line with those of earlier commits and of `keys`, else with the calendar. None where a side is open,
    where a slot waits for several partitions, and of more than 50,000.
    """
    spec = fileset.watermark
    if spec is None or not spec.enabled or not _is_alone(spec) or begins == EARLIEST or ends == LATEST:
        return []
    last = db.value(SQL.last_slot, WallTime, dataset_id=fileset.dataset_id, upto=LATEST)
    own = (span.time for span in find_times(fileset, keys).values() if span is not None)
    known = next(own, None) if last is None else last
    slots: list[Span] = []
    try:
        time = spec.partition_time.first_slot(spec.partition_time.zone.local(begins), known)
        while (span := spec.partition_time.span_at(time)).ends <= ends:
            slots.append(span)
            if len(slots) > _MOST_SLOTS:
                return []
            time = from_wall(span.next_time)
    except OverflowError:  # at the end of the calendar
        return slots
    return slots


def fill_slots(
    fileset: Fileset,
    spans: dict[Key, Span | None],
    complete: Sequence[Span] = (),
    unmarked: Collection[Key] = (),
) -> Iterator[Call]:
    """Note that these partitions are there: the slots they make, and those that they complete.

    `complete` are slots that are complete though nothing may be there (`list_slots`). `unmarked` are partitions whose
    directories lack the marker. Where partitions wait to be complete, `MoveWatermark` completes the slots.
    """
    found = {key: span for key, span in spans.items() if span is not None}
    if not found and not complete:
        return
    spec = _spec(fileset)
    alone = _is_alone(spec)
    slots = {
        span.time: {"slot_time": span.time, "begins_at": span.begins, "ends_at": span.ends, "next_time": span.next_time}
        for span in (*found.values(), *complete)
    }
    one: dict[str, Param] = {"dataset_id": fileset.dataset_id}
    told: dict[str, Param] = {"complete": int(alone), "follows": int(spec.follows_windows)}
    yield SQL.insert_slots(**one, **told, slots=json.dumps([*slots.values()]))
    if alone:
        return
    members = {key: member for key in found if (member := spec.member(fileset.keys, key)) is not None}
    named = [{"slot_time": found[key].time, "member": member} for key, member in members.items()]
    yield SQL.insert_members(**one, members=json.dumps(named))
    if spec.completeness.waits:
        needs_marker = spec.completeness.marker is not None
        waits = [
            {**_name(fileset, key, found[key]), "marked": int(not needs_marker or key not in unmarked)}
            for key in members
        ]
        yield SQL.insert_waits(**one, waits=json.dumps(waits), delay=spec.completeness.delay)
        return
    completed: dict[str, Param] = {"times": json.dumps(sorted(slots)), "expected": spec.expected_count}
    yield SQL.complete_slots(**one, **completed)


def forget_partitions(fileset: Fileset, spans: Mapping[Key, Span | None]) -> Iterator[Call]:
    """Have no slot wait for these partitions, which were dropped, nor be completed by them."""
    found = {key: span for key, span in spans.items() if span is not None}
    spec = _spec(fileset)
    if not found or _is_alone(spec):
        return
    one: dict[str, Param] = {"dataset_id": fileset.dataset_id}
    if spec.completeness.waits:
        yield SQL.forget_waits(**one, found=json.dumps([_name(fileset, key, span) for key, span in found.items()]))
    members = [
        {"slot_time": span.time, "member": member, "pattern": spec.members_like(fileset.keys, key)}
        for key, span in found.items()
        if (member := spec.member(fileset.keys, key)) is not None
    ]
    yield SQL.forget_members(**one, found=json.dumps(members))


def park_partitions(fileset: Fileset, keys: Iterable[Key]) -> Iterator[Call]:
    """Note partitions that are there, and whose keys have no time."""
    if parked := [{"partition_key": fileset.keys.encode(key)} for key in keys]:
        yield SQL.park_partitions(dataset_id=fileset.dataset_id, parked=json.dumps(parked))


def forget_parked(fileset: Fileset, keys: Iterable[Key]) -> Iterator[Call]:
    """Delete these partitions from the parked ones: they were dropped, or have a time now."""
    if found := [fileset.keys.encode(key) for key in keys]:
        yield SQL.forget_parked(dataset_id=fileset.dataset_id, keys=json.dumps(found))


@dataclass(frozen=True, slots=True)
class MarkPartitions(Effect):
    """Note that the directories of these partitions have their markers now."""

    phase = Phase.WATERMARK

    fileset: Fileset
    keys: Sequence[Key]

    def guards(self) -> Sequence[Call]:
        """Refuse times that were found by another declaration than the catalog has now."""
        return (guard_declaration(self.fileset),)

    def writes(self) -> Sequence[Call]:
        """Mark the partitions, and move the watermark."""
        keys = json.dumps([self.fileset.keys.encode(key) for key in self.keys])
        marked = SQL.mark_waits(dataset_id=self.fileset.dataset_id, keys=keys)
        return marked, *MoveWatermark(self.fileset, _LISTING).writes(), note_commit(self.fileset)


def list_unmarked(db: Db, fileset: Fileset) -> set[KeyText]:
    """Return the partitions that are not complete because their markers are missing. Cost: these."""
    return set(db.records(SQL.list_unmarked, KeyText, dataset_id=fileset.dataset_id))


def _name(fileset: Fileset, key: Key, span: Span) -> dict[str, object]:
    return {"slot_time": span.time, "partition_key": fileset.keys.encode(key)}


@dataclass(frozen=True, slots=True)
class Reread:
    """A change of how the times of a file set are read: W before and after, and the window programs that start over."""

    fileset: Fileset
    previous: Instant | None
    value: Instant | None
    programs: tuple[str, ...]

    def limit(self, sees: Callable[[str], bool]) -> Reread:
        """Return the change with the programs alone that a caller `sees`."""
        return replace(self, programs=tuple(filter(sees, self.programs)))

    def __str__(self) -> str:
        before, after = (self._show(value) for value in (self.previous, self.value))
        moved = f"stays at {after}" if before == after else f"moved from {before} to {after}"
        again = f"; {', '.join(self.programs)} computes its windows again" if self.programs else ""
        return f"the watermark of {self.fileset.qualified_name} {moved}: its times are read in another way{again}"

    def _show(self, value: Instant | None) -> str:
        return "none" if value is None else str(_spec(self.fileset).partition_time.zone.local(value))


def declare_watermark(db: Db, fileset: Fileset, cause: str) -> Reread | None:
    """Bring what the catalog keeps of a file set's watermark in line with its declaration, in the same transaction.

    Call it after a tick, as the last that the transaction locks. A new declaration, and one that changes which slots
    there are, finds the times of all current partitions. When times are read in another way, W is computed from them,
    backwards too, and the window programs over the file set compute their windows again: the result says so. After
    any other change W stays, or moves on. Cost: nothing when nothing has changed, else what is current.
    """
    one: dict[str, Param] = {"dataset_id": fileset.dataset_id}
    row = find_watermark(db, fileset.dataset_id)
    declared = _declared(fileset)
    stored = "" if row is None else row.declared
    if declared == stored:
        return None
    if not declared:
        for statement in (
            SQL.delete_waits,
            SQL.delete_members,
            SQL.delete_slots,
            SQL.delete_parked,
            SQL.delete_watermark,
        ):
            db.run(statement, **one)
        return None
    spec = _spec(fileset)
    before = WatermarkSpec.restore(read_text(StoredWatermark, stored), fileset.keys) if stored else None
    rereads = before is not None and before.reading != spec.reading
    first = db.value(SQL.first_time, WallTime, **one)
    kept: dict[str, Param] = {"declared": declared, "gap": spec.gap}
    kept["gap_wait"] = None if spec.gap_wait is None else spec.gap_wait // 1000
    kept |= {"row_lag": spec.row_lag, "max_ahead": spec.max_ahead, "rereads": int(rereads)}
    kept |= {"includes": int(spec.outside is OutsidePolicy.INCLUDE), "idle_timeout": spec.idle_timeout}
    db.run(SQL.put_watermark, **one, **kept)
    if before is None or before.slots != spec.slots:
        _fill_again(db, fileset, keeps=before is not None and _has_same_slots(before, spec))
        if row is not None and row.value is not None and not rereads:
            db.run(SQL.go_on, **one, next_time=find_next_slot(db, fileset, row.value))
        for call in MoveWatermark(fileset, cause, rereads).writes():
            db.call(call)
    if before is not None and before.late is not spec.late:
        change_late(db, fileset)
    if row is None or before is None or not rereads:
        return None
    programs = reopen_windows(db, fileset, None, _last_without(before, first), cause)
    moved = find_watermark(db, fileset.dataset_id)
    return Reread(fileset, row.value, moved.value if moved else None, programs)


def follow_windows(db: Db, fileset: Fileset, cause: str) -> None:
    """Have a watermark for a time of windows follow the window programs that write the file set, from now on.

    Call it after `declare_watermark`, when the programs are registered. Time slots do not count any more.
    """
    if _follows(fileset) and find_watermark(db, fileset.dataset_id) is not None:
        for statement in (SQL.delete_waits, SQL.delete_members, SQL.delete_slots, SQL.forget_target):
            db.run(statement, dataset_id=fileset.dataset_id)
        for call in MoveWatermark(fileset, cause).writes():
            db.call(call)


def _last_without(before: WatermarkSpec, first: WallTime | None) -> WallTime:
    """The end of the last window without rows of current partitions, of which the earliest has the time `first`.

    Its partitions are deleted by now: computed again, it would be lost. `before` is the declaration that it was
    computed by.
    """
    if first is None:
        return WallTime(LATEST)
    begins = before.partition_time.span_at(from_wall(first)).begins
    return to_wall(before.window_zone.local(begins - before.row_lag))


def _has_same_slots(before: WatermarkSpec, after: WatermarkSpec) -> bool:
    """Return whether both declarations have the same slots, and complete a slot with its first partition."""
    alike = before.partition_time == after.partition_time and before.follows_windows == after.follows_windows
    return alike and _is_alone(before) and _is_alone(after)


def find_next_slot(db: Db, fileset: Fileset, value: Instant) -> WallTime | None:
    """The time of the first slot that ends after W = `value`; None without a slot before, and unless slots wait."""
    spec = _spec(fileset)
    upto = to_wall(spec.partition_time.zone.local(value + spec.row_lag))
    known = db.value(SQL.last_slot, WallTime, dataset_id=fileset.dataset_id, upto=upto)
    if spec.gap is not GapPolicy.WAIT or known is None:
        return None
    slot = spec.partition_time.span_at(from_wall(known))
    while slot.ends - spec.row_lag <= value:
        slot = spec.partition_time.span_at(from_wall(slot.next_time))
    return slot.time


def _fill_again(db: Db, fileset: Fileset, *, keeps: bool) -> None:
    """Find the times of all current partitions; `keeps` the slots, some of which a declared span has made.

    `BadPartitionTime` where there are partitions whose custom extractor this process cannot load.
    """
    one: dict[str, Param] = {"dataset_id": fileset.dataset_id}
    for statement in () if keeps else (SQL.delete_waits, SQL.delete_members, SQL.delete_slots):
        db.run(statement, **one)
    db.run(SQL.delete_parked, **one)
    stored = iter(db.records(SQL.read_keys, tuple[KeyText, str], **one))
    custom = _spec(fileset).partition_time.extractor.custom
    while batch := [(fileset.keys.decode(key), location) for key, location in islice(stored, _BATCH)]:
        if custom is not None:
            check_loads(custom)  # else this process would park all partitions
        spans = find_times(fileset, [key for key, _ in batch])
        # The next listing looks for the markers.
        unmarked = {key for key, location in batch if find_snapshot(location) is None}
        times = [
            {"partition_key": fileset.keys.encode(key), "slot_time": None if span is None else span.time}
            for key, span in spans.items()
        ]
        db.run(SQL.set_times, **one, times=json.dumps(times))
        parked = (key for key, span in spans.items() if span is None)
        for call in (*fill_slots(fileset, spans, unmarked=unmarked), *park_partitions(fileset, parked)):
            db.call(call)


def rewind_watermark(db: Db, fileset: Fileset, value: Instant, cause: str) -> tuple[str, ...]:
    """Move W back to `value` by hand; return the window programs whose windows are open again from there.

    Call it after a tick. Time slots that end later count again when a commit brings partitions of theirs: until then
    nothing moves W past them. `NotAhead` when W has not passed `value`. Cost: what lies beyond `value`.
    """
    row = find_watermark(db, fileset.dataset_id)
    if row is None or row.value is None or row.value <= value:
        raise NotAhead(fileset.qualified_name, None if row is None else row.value)
    spec, one = _spec(fileset), {"dataset_id": fileset.dataset_id}
    ends = value + spec.row_lag
    low, _ = times_within(spec.partition_time, spec.row_lag, ends, ends)
    first = find_next_slot(db, fileset, value) or db.all(SQL.first_beyond, **one, low=low, ends=ends)[0][0]
    db.run(SQL.forget_slots_beyond, **one, low=low, ends=ends)
    db.run(SQL.forget_members_beyond, **one, low=low)
    db.run(SQL.lower_target, **one, value=value, first=first)
    db.run(SQL.note_rewind, **one, value=value, cause=cause)
    db.run(SQL.postpone_check, **one)
    for call in _settle(fileset):
        db.call(call)
    return reopen_windows(db, fileset, value, to_wall(spec.window_zone.local(value)), cause)


def release_due(catalog: Catalog) -> int:
    """Move the watermarks that nothing holds any more, and those of slots whose time has come; how many were looked at.

    The keeper's work. Cost: a look at what is declared when there is nothing to do.
    """

    def find(db: Db) -> list[Fileset]:
        return [Fileset.of(find_by_id(db, DatasetId(str(row[0])))) for row in db.all(SQL.find_releasable)]

    due = catalog.read(find)
    for fileset in due:
        catalog.world.mark("watermark.before_release")
        catalog.apply([MoveWatermark(fileset, _KEEPER)])
        catalog.world.mark("watermark.released")
    return len(due)


def find_watermark(db: Db, dataset_id: DatasetId) -> WatermarkRow | None:
    """Find the watermark of a file set. None if it has none."""
    return db.record(SQL.find_watermark, WatermarkRow, dataset_id=dataset_id)


def list_watermarks(
    db: Db,
    *,
    app: tuple[Namespace, str] | None = None,
    before: Instant | None = None,
    after: tuple[str, str] = ("", ""),
    limit: int = ALL_ROWS,
) -> list[WatermarkRow]:
    """List watermarks by namespace and name of their file sets, from the name behind `after` on.

    Only those of the file sets of `app`, given by namespace and name, and only those that are earlier than `before` or
    have no value.
    """
    latest = GREATEST if before is None else before
    if app is None:
        place: dict[str, Param] = {"after_namespace": after[0], "after_name": after[1]}
        return db.records(SQL.list_watermarks, WatermarkRow, **place, before=latest, limit=limit)
    namespace, name = app
    place = {"after_name": after[1] if after[0] == namespace else ""}
    of = {"namespace": namespace, "app": name}
    return db.records(SQL.list_of_app, WatermarkRow, **place, **of, before=latest, limit=limit)


def value_at(db: Db, dataset_id: DatasetId, commit_seq: int) -> Instant | None:
    """Return W before the commit `commit_seq`: the value that a transaction with that write pointer sees."""
    return db.value(SQL.value_at, Instant, dataset_id=dataset_id, commit_seq=commit_seq)


def find_first_begin(db: Db, dataset_id: DatasetId) -> Instant | None:
    """Return the begin of the first time slot; None if there is no slot."""
    return db.value(SQL.first_begin, Instant, dataset_id=dataset_id)


def list_moves(db: Db, dataset_id: DatasetId, limit: int) -> list[Move]:
    """The latest moves of W, newest first."""
    return db.records(SQL.list_moves, Move, dataset_id=dataset_id, limit=limit)


def read_last_moves(db: Db, datasets: Iterable[str]) -> dict[str, datetime]:
    """Return the times of the last moves of W, by the qualified names of file sets. Cost: a look-up for each."""
    names = [split_qualified("data set", dataset, 1) for dataset in sorted(set(datasets))]
    wanted = json.dumps([{"namespace": namespace, "name": name} for namespace, (name,) in names])
    moves = db.records(SQL.read_last_moves, tuple[Namespace, str, datetime | None], datasets=wanted)
    return {qualified(namespace, name): at for namespace, name, at in moves if at is not None}


def expire_moves(catalog: Catalog, keep: timedelta) -> None:
    """Forget moves of watermarks that are older than `keep`, but for the last of them, on which later ones stand.

    The janitor's work. A hundred of each watermark at most; cost: a look at so many of each.
    """
    found = catalog.read(lambda db: db.all(SQL.find_old_moves, keep=keep))
    for dataset_id, last in found:
        if last is not None:
            catalog.write(lambda db: db.run(SQL.forget_moves, dataset_id=dataset_id, last_move=last))  # noqa: B023  # at once


def list_holders(db: Db, dataset_id: DatasetId) -> list[Holder]:
    """The open transactions that have declared times in the file set, oldest first."""
    return db.records(SQL.list_holders, Holder, dataset_id=dataset_id)


def list_parked(db: Db, fileset: Fileset, limit: int, after: str = "") -> list[KeyText]:
    """Return parked partitions, whose keys have no time that can be read, by key from `after` on. Cost: these."""
    return db.records(SQL.list_parked, KeyText, dataset_id=fileset.dataset_id, after=after, limit=limit)


def list_parking(db: Db, namespace: Namespace) -> list[DatasetId]:
    """Return the file sets of a namespace that have parked partitions. Cost: the data sets of the namespace."""
    return db.records(SQL.list_parking, DatasetId, namespace=namespace)


def find_parked(db: Db, fileset: Fileset, keys: Iterable[Key]) -> set[Key]:
    """Return which of these partitions are parked. Cost: a look-up by key for each."""
    wanted = json.dumps([fileset.keys.encode(key) for key in keys])
    found = db.records(SQL.find_parked, KeyText, dataset_id=fileset.dataset_id, keys=wanted)
    return {fileset.keys.decode(key) for key in found}


def list_holes(db: Db, dataset_id: DatasetId, limit: int) -> list[WallTime]:
    """The first slot of each stretch that is missing between others, latest first, among the latest thousand."""
    return db.records(SQL.list_holes, WallTime, dataset_id=dataset_id, limit=limit)


def list_incomplete(db: Db, dataset_id: DatasetId, limit: int) -> list[tuple[WallTime, int]]:
    """Slots of which something is missing, earliest first, with how much of them has come."""
    return db.records(SQL.list_incomplete, tuple[WallTime, int], dataset_id=dataset_id, limit=limit)


def _is_alone(spec: WatermarkSpec) -> bool:
    """Return whether one partition completes a slot."""
    return spec.expected_count == 1 and not spec.expected and not spec.completeness.waits


def _in_utc(instant: int) -> str:
    return f"{from_wall(instant)} UTC"


def _declared(fileset: Fileset) -> str:
    spec = fileset.watermark
    return write_text(spec.stored) if spec is not None and spec.enabled else ""


def _spec(fileset: Fileset) -> WatermarkSpec:
    if fileset.watermark is None:
        raise NotFound("watermark", fileset.qualified_name, hint="declare one: watermark=tm.Watermark(…)")
    return fileset.watermark
