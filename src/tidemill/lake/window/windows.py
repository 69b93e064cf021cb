"""Computed windows: the state of each window program is a row, moved by compare-and-set.

A program's results are published up to `computed`, and hold all changes with a commit sequence below `seen`. The row of
a result names the transaction that wrote the window's rows last. So a window that is computed again can be found and
replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.errors import Conflict, NotFound
from tidemill.lake.datasets import find_by_id
from tidemill.lake.fileset.fileset import Change, Fileset, Partition, find_schema, to_partitions
from tidemill.lake.window.cascade import forget_changes, list_changes
from tidemill.lake.window.least import QueryInput
from tidemill.lake.window.on_demand import instants_of, is_on_demand, list_present, span_of
from tidemill.lake.window.reach import WindowReach, find_interval_shape
from tidemill.lake.window.window_plan import MARGIN, Dirty, Sessions, Stored, Window, WindowShape, times_within
from tidemill.names import DatasetId, ProgramId, WritePointer, backlog_event, window_event
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Instant, PartitionTime, Span, WallTime, from_wall, to_wall
from tidemill.shapes.watermark_spec import LatePolicy, OutsidePolicy, WatermarkSpec

if TYPE_CHECKING:
    from tidemill.lake.window.windows_sql import Sql

SQL: Sql = load_sql(__file__)

_EVER: Final = 1 << 60
_MOST_NAMED: Final = 1000
"""The most failed windows, and mended ones, that a message names. A run may mend 100,000 windows."""


@refusal
class WindowsMoved(Conflict):
    """The state of the window program has moved since this run began: its windows would come twice, or from before."""

    code = "windows_moved"

    def __init__(self, program: str) -> None:
        self.program = program
        super().__init__(
            f"another run of {program} has published windows, or it was reset or changed, since this run began; "
            "nothing was published",
            "run again to go on from there",
        )


@dataclass(frozen=True, slots=True)
class WindowState:
    """State of a window program. `revision` counts its moves, and `resets` those of them that moved it back.

    `moved_seq` is the commit of the last move, or of the last change of the definition. A snapshot without it shows
    other windows, or a watermark of before a reset.
    """

    program_id: ProgramId
    name: str
    definition: str
    computed: Instant | None
    seen: int
    revision: int
    resets: int
    moved_seq: int = 0


@dataclass(frozen=True, slots=True)
class ComputedWindow:
    """A window with rows, and the transaction that wrote them last."""

    window: Window
    write_pointer: WritePointer


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows that the commits `[since, until)` brought to a partition, late for a window program.

    `begins` and `ends` are the instants of the partition.
    """

    dataset_id: DatasetId
    key: KeyText
    time: WallTime
    begins: int
    ends: int
    rows: int
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class OutsideRows:
    """Number of rows of a partition that lie outside its time, as a run has read the partition.

    `time` is the time of the partition; None if it has no such rows.
    """

    dataset_id: DatasetId
    key: KeyText
    time: WallTime | None
    rows: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows that count in no window, late or outside their partition: how many, and some of the partitions."""

    partitions: int
    late_rows: int
    outside_rows: int
    some: Sequence[tuple[KeyText, int, int, datetime]]
    """Key, late rows, rows outside, and the time of the last count."""


@dataclass(frozen=True, slots=True)
class MoveWindows(Effect):
    """Publish windows: `new` ones, `again` ones, and `gone` ones that have no rows any more; the state moves with them.

    It is refused when the state has moved since `state` was read. Also when it has moved since this run began, which
    then does not see the windows that it would replace. `failed` ones could not be computed, `mended` ones could at
    last. `more` says that work is left.
    """

    phase = Phase.CLAIMS

    tx: Transaction
    sources: Sequence[Fileset]
    state: WindowState
    computed: Instant | None
    seen: int
    new: Sequence[Window] = ()
    again: Sequence[Window] = ()
    gone: Sequence[Window] = ()
    failed: Sequence[Window] = ()
    mended: Sequence[Window] = ()
    left: Sequence[Window] = ()
    """Late windows that later runs compute again."""
    kept: Sequence[Window] = ()
    """Late windows that no run computes again, since the query has windows of another size now."""
    rows: int = 0
    more: bool = False
    left_out: Sequence[LateRows] = ()
    """Late rows that count in no window: dropped rows, and rows of the side table."""
    outside: Sequence[OutsideRows] = ()
    """Rows outside each partition that the run has read, zero included. Empty if such rows are an error."""

    def guards(self) -> Sequence[Call]:
        """Refuse the commit if another run has moved the state."""
        params: dict[str, Param] = {
            "name": self.state.name,
            "program_id": self.state.program_id,
            "revision": self.state.revision,
            "write_pointer": self.tx.write_pointer,
        }
        return (SQL.refuse_moved(**params),)

    def writes(self) -> Sequence[Call]:
        """Store the state and the results, and publish the messages."""
        one: dict[str, Param] = {"program_id": self.state.program_id}
        calls = [SQL.move_state(**one, computed=self.computed, seen=self.seen, revision=self.state.revision)]
        if kept := [*self.new, *self.again]:
            written: dict[str, Param] = {"windows": to_rows(kept), "write_pointer": self.tx.write_pointer}
            calls.append(SQL.put_results(**one, **written))
        if self.left:
            calls.append(SQL.put_left(**one, windows=to_rows(self.left), write_pointer=self.tx.write_pointer))
        if self.kept:
            calls.append(SQL.keep_results(**one, windows=to_rows(self.kept)))
        if self.gone:
            calls.append(SQL.forget_results(**one, windows=to_rows(self.gone)))
        if self.left_out:
            late = [{**_name(o), "slot_time": o.time, "late_rows": o.rows} for o in self.left_out]
            calls.append(SQL.add_left_out(**one, late=json.dumps(late)))
        if self.outside:
            keys: dict[str, Param] = {**one, "partitions": json.dumps([_name(o) for o in self.outside])}
            rows = [{**_name(o), "slot_time": o.time, "outside_rows": o.rows} for o in self.outside if o.rows]
            calls.append(SQL.clear_outside(**keys))
            calls.append(SQL.put_outside(**one, outside=json.dumps(rows)))
            calls.append(SQL.forget_without_rows(**keys))
        calls += [forget_changes(one) for one in self.sources if one.watermark and one.watermark.follows_windows]
        return [*calls, *self._message().writes(), *map(self._announce_left, self.sources)]

    def _message(self) -> Publish:
        payload = {
            "program": self.state.name,
            "datasets": [source.qualified_name for source in self.sources],
            "from": self.state.computed,
            "to": self.computed,
            "closed": len(self.new),
            "first": self.new[0] if self.new else None,
            "last": self.new[-1] if self.new else None,
            "recomputed": len(self.again) + len(self.gone),
            "failed": list(self.failed[:_MOST_NAMED]),
            "mended": list(self.mended[:_MOST_NAMED]),
            "rows": self.rows,
            "late_rows": sum(one.rows for one in self.left_out),
            "outside_rows": sum(one.rows for one in self.outside),
        }
        return Publish(Topic.DATA, "windows", window_event(self.state.name), payload)

    def _high(self, source: Fileset) -> int:
        """Return a time before which all partitions lie that may hold late rows of computed windows."""
        if self.computed is None or source.watermark is None or source.watermark.late is LatePolicy.DROP:
            return -_EVER
        if source.watermark.outside is OutsidePolicy.INCLUDE:
            return _EVER
        return self.computed + source.watermark.row_lag + MARGIN

    def _announce_left(self, source: Fileset) -> Call:
        dataset = source.dataset
        params: dict[str, Param] = {
            "dataset_id": dataset.dataset_id,
            "dataset": dataset.qualified_name,
            "event_key": backlog_event(dataset.namespace, dataset.name),
            "name": self.state.name,
            "program_id": self.state.program_id,
            "more": int(self.more),
            "write_pointer": self.tx.write_pointer,
            "high": self._high(source),
        }
        return SQL.announce_left(**params)


def announce_late(source: Fileset, begins: Instant) -> Call:
    """Say in the commit of a partition whose rows begin at `begins` that computed windows may have to be done again.

    Also that windows which W has passed already are to be computed for the first time. Where rows outside their
    partition count in windows, the rows may have any time.
    """
    dataset, spec = source.dataset, source.watermark
    includes = spec is not None and spec.outside is OutsidePolicy.INCLUDE
    params: dict[str, Param] = {
        "dataset_id": dataset.dataset_id,
        "dataset": dataset.qualified_name,
        "event_key": backlog_event(dataset.namespace, dataset.name),
        "begins": -_EVER if includes else begins - (spec.row_lag if spec else 0),
    }
    return SQL.announce_late(**params)


def _name(one: LateRows | OutsideRows) -> dict[str, object]:
    return {"dataset_id": one.dataset_id, "partition_key": one.key}


def put_state(
    db: Db, program_id: ProgramId, name: str, definition: str, inputs: Mapping[DatasetId, tuple[str, int]]
) -> None:
    """Register a window program, or change its definition and inputs; what it has computed stays. After a tick.

    `inputs` are the file sets that it reads, with their late policies, and the lag of their `WindowReach`.
    """
    db.run(SQL.put_state, program_id=program_id, name=name, definition=definition)
    set_definition(db, program_id, definition)  # of a program that was there
    db.run(SQL.forget_inputs, program_id=program_id, kept=json.dumps(sorted(inputs)))
    rows = [{"dataset_id": dataset_id, "late": late, "lag": lag} for dataset_id, (late, lag) in inputs.items()]
    db.run(SQL.put_inputs, program_id=program_id, inputs=json.dumps(rows))


def set_definition(db: Db, program_id: ProgramId, definition: str) -> None:
    """Change the definition of a window program; what it has computed stays. After a tick."""
    db.run(SQL.set_definition, program_id=program_id, definition=definition)


def reset_windows(db: Db, state: WindowState, computed: Instant | None, upto: WallTime | None, cause: str) -> None:
    """Move `computed` back (None: to the beginning), and have all windows that end after `upto` replaced.

    Call this after a tick. The next runs compute each window again from the present partitions. A message announces
    this work.
    """
    db.run(SQL.mark_stale, program_id=state.program_id, from_end=-_EVER if upto is None else upto)
    db.run(SQL.reset_state, program_id=state.program_id, computed=computed)
    db.run(SQL.forget_left_out, program_id=state.program_id, from_time=-_EVER if upto is None else upto)
    payload = {"program": state.name, "from": state.computed, "to": computed, "cause": cause}
    messages = [Publish(Topic.DATA, "windows_reset", window_event(state.name), payload)]
    for dataset_id in list_inputs(db, state.program_id):
        source = find_by_id(db, dataset_id)
        left = {"dataset": source.qualified_name, "consumer": state.name}
        messages.append(Publish(Topic.DATA, "backlog", backlog_event(source.namespace, source.name), left))
    for message in messages:
        for call in message.writes():
            db.call(call)


def change_late(db: Db, source: Fileset) -> None:
    """Bring the window programs over `source` in line with its late policy, and start them for what is late now."""
    late = source.watermark.late if source.watermark else ""
    db.run(SQL.set_late, dataset_id=source.dataset_id, late=late)
    db.call(announce_late(source, Instant(-_EVER)))


def describe_times(spec: WatermarkSpec) -> dict[str, object]:
    """Return the part of a window program's definition that says how the times of a table are read."""
    return {
        "partitions": {name: value for name, value in spec.options.items() if name.startswith("partition.time")},
        "row_lag": spec.row_lag,
    }


def redefine(definition: str, sources: Iterable[Fileset]) -> str:
    """The definition of a window program as it is once the times of `sources` are read as they are declared.

    Empty for an empty `definition`: the program was reset with its state kept, and any definition may follow.
    """
    if not definition:
        return ""
    found = json.loads(definition)
    for source in sources:
        known = found["inputs"].get(source.qualified_name)
        if known is not None and source.watermark is not None:
            known |= describe_times(source.watermark)
            found["windows"] = [*found["windows"][:3], source.watermark.window_zone.name]
            if found.get("interval", {}).get("windows_of") == source.qualified_name:
                found["windows"][:2] = [find_interval_shape(source.watermark).size] * 2
            if sessions := found.get("sessions"):
                # The slots follow the interval of the partitions.
                interval = source.watermark.partition_time.interval.longest // timedelta(microseconds=1)
                slots = WindowShape(0, 0, 0, sessions=Sessions(sessions[0])).fit(interval, sessions[1])
                found["windows"][:2] = [slots.size, slots.slide]
    return json.dumps(found, sort_keys=True)


def read_reaches(definition: str) -> dict[str, WindowReach]:
    """Return what the windows of an interval join need of each table, by its name; empty for other programs."""
    defined = json.loads(definition) if definition else {}
    return {table: WindowReach(*numbers) for table, numbers in defined.get("interval", {}).get("reaches", {}).items()}


def find_state(db: Db, program_id: ProgramId) -> WindowState | None:
    """Find the state of a window program. None if the program is of another kind."""
    return db.record(SQL.find_state, WindowState, program_id=program_id)


def find_last_commit(db: Db, dataset_id: DatasetId) -> datetime:
    """Return the time of the last commit to a file set with a watermark, or of its declaration if there is none."""
    found = db.value(SQL.find_last_commit, datetime, dataset_id=dataset_id)
    assert found is not None, "a run has found the file set"  # noqa: S101
    return found


def read_input(db: Db, source: Fileset, value: Instant | None) -> QueryInput:
    """Return an input of a query, whose watermark is `value`, with the time from which on the input is idle.

    An input whose columns are not known yet is never idle, since no query could be computed over it.
    """
    timeout = None if source.watermark is None else source.watermark.idle_timeout
    if timeout is None or find_schema(db, source.dataset_id) is None:
        return QueryInput(value, None)
    return QueryInput(value, find_last_commit(db, source.dataset_id) + timeout)


def list_inputs(db: Db, program_id: ProgramId) -> list[DatasetId]:
    """Return the file sets that a window program reads, by id."""
    return db.records(SQL.list_inputs, DatasetId, program_id=program_id)


def list_states(db: Db, dataset_id: DatasetId | None = None) -> list[WindowState]:
    """All window programs (over one file set), by name."""
    if dataset_id is None:
        return db.records(SQL.list_states, WindowState)
    return db.records(SQL.find_states_of, WindowState, dataset_id=dataset_id)


@dataclass(frozen=True, slots=True)
class Cut:
    """A time that splits the partitions of a table. The rows of those at `time` or later begin at `begins` or later."""

    time: WallTime
    begins: Instant


def find_cut(db: Db, source: Fileset, after: Instant | None, changes: int, times: int) -> Cut | None:
    """Return the cut behind so many changes of partitions that follow the instant `after`, or so many of their times.

    The earlier one of both; None if there are no more. None for `after` stands for the beginning. A table with windows
    on demand has no cut: its keys are not in the order of their times. Cost: `changes`.
    """
    if is_on_demand(source):
        return None
    partition_time, row_lag = _time_of(source)
    try:
        low = -_EVER if after is None else to_wall(partition_time.zone.local(after + row_lag))
    except OverflowError:  # at the ends of the calendar
        low = -_EVER
    one: dict[str, Param] = {"dataset_id": source.dataset_id, "low": low}
    time = db.value(SQL.find_cut, WallTime, **one, changes=changes, times=times)
    if time is None:
        return None
    return Cut(time, Instant(partition_time.zone.opens(from_wall(time)) - row_lag))


def list_waiting(
    db: Db, source: Fileset, snapshot: Snapshot, since: Instant | None, cut: Cut | None = None
) -> list[Stored]:
    """The partitions that `snapshot` sees whose rows may lie after `since`, None for all. Cost: what they are.

    With a `cut`, only partitions of times before it.
    """
    partition_time, row_lag = _time_of(source)
    low = -_EVER if since is None else times_within(partition_time, row_lag, since, since)[0]
    found = _list_within(db, source, snapshot, low, _EVER if cut is None else cut.time)
    return [one for one in found if since is None or one.ends > since]


def list_around(
    db: Db, source: Fileset, snapshot: Snapshot, spans: Iterable[tuple[Instant, Instant]]
) -> dict[tuple[Instant, Instant], list[Stored]]:
    """Return for each of `spans` of instants the partitions that `snapshot` sees whose rows may lie in the span."""
    partition_time, row_lag = _time_of(source)
    found: dict[tuple[Instant, Instant], list[Stored]] = {}
    for begins, ends in spans:
        low, high = times_within(partition_time, row_lag, begins, ends)
        near = _list_within(db, source, snapshot, low, high)
        found[begins, ends] = [one for one in near if one.begins < ends and one.ends > begins]
    return found


def list_dirty(db: Db, source: Fileset, snapshot: Snapshot, seen: int, final: Instant | None) -> list[Dirty]:
    """The changes that `snapshot` sees, from the commit `seen` on. Cost: what they are.

    They change no window that closes up to `final`; None for no such time. A commit of a window program changes the
    times that it has noted, other commits the whole times of their partitions.
    """
    partition_time, row_lag = _time_of(source)
    if is_on_demand(source):
        arrived = _list_on_demand(db, source, seen, snapshot.write_pointer)
        return [Dirty(seq, span.begins - row_lag, span.ends, final) for seq, _, span, _ in arrived]
    follows = source.watermark is not None and source.watermark.follows_windows
    noted = list_changes(db, source.dataset_id, seen, snapshot.write_pointer) if follows else {}
    dirty = [Dirty(commit_seq, *span, final) for commit_seq, spans in noted.items() for span in spans]
    for commit_seq, time in db.records(
        SQL.list_dirty,
        tuple[int, WallTime],
        dataset_id=source.dataset_id,
        write_pointer=snapshot.write_pointer,
        seen=seen,
    ):
        if commit_seq not in noted:
            span = partition_time.span_at(from_wall(time))
            dirty.append(Dirty(commit_seq, span.begins - row_lag, span.ends, final))
    return dirty


def list_late(db: Db, source: Fileset, seen: int, until: int) -> list[LateRows]:
    """The partitions that got rows by the commits `[seen, until)`. Cost: what they are."""
    partition_time, row_lag = _time_of(source)
    if is_on_demand(source):
        late: dict[KeyText, LateRows] = {}
        for _, key, span, rows in _list_on_demand(db, source, seen, until):
            begins = span.begins - row_lag
            before = late.get(key, LateRows(source.dataset_id, key, span.time, begins, span.ends, 0, seen, until))
            late[key] = replace(before, rows=before.rows + rows)
        return [one for one in late.values() if one.rows]
    found = []
    for key, time, number in db.records(
        SQL.list_late,
        tuple[KeyText, WallTime, int | None],
        dataset_id=source.dataset_id,
        seen=seen,
        until=until,
    ):
        span = partition_time.span_at(from_wall(time))
        begins = span.begins - row_lag
        found.append(LateRows(source.dataset_id, key, time, begins, span.ends, number or 0, seen, until))
    return found


def list_late_counted(db: Db, program_id: ProgramId, dataset_id: DatasetId, keys: Iterable[str]) -> list[KeyText]:
    """Return the partitions of `keys` that have late rows which count in no window of a program."""
    one: dict[str, Param] = {"program_id": program_id, "dataset_id": dataset_id}
    return db.records(SQL.list_late_counted, KeyText, **one, keys=json.dumps(sorted(keys)))


def read_left_out(db: Db, program_id: ProgramId, dataset_id: DatasetId, limit: int) -> LeftOut:
    """Read the late and the outside rows of present partitions of an input that a window program has left out.

    Cost: the partitions with such rows.
    """
    one: dict[str, Param] = {"program_id": program_id, "dataset_id": dataset_id}
    counts = db.records(SQL.count_left_out, tuple[int, int, int], **one)[0]
    some = db.records(SQL.list_left_out, tuple[KeyText, int, int, datetime], **one, limit=limit)
    return LeftOut(*counts, some)


def read_keys(db: Db, fileset: Fileset, snapshot: Snapshot, keys: Iterable[str]) -> list[Partition]:
    """Return these partitions as `snapshot` sees them, by key."""
    changes = db.records(
        SQL.read_keys,
        Change,
        dataset_id=fileset.dataset_id,
        write_pointer=snapshot.write_pointer,
        keys=json.dumps(sorted(set(keys))),
    )
    return to_partitions(changes)


def find_spans(db: Db, source: Fileset, snapshot: Snapshot, keys: Iterable[str]) -> dict[KeyText, Span]:
    """Return the spans of these partitions, of those that `snapshot` sees and that have a time."""
    if is_on_demand(source):
        found = {KeyText(key): span_of(source, KeyText(key)) for key in keys}
        return {key: span for key, span in found.items() if span is not None}
    partition_time, _ = _time_of(source)
    times = db.records(
        SQL.find_times,
        tuple[KeyText, WallTime],
        dataset_id=source.dataset_id,
        write_pointer=snapshot.write_pointer,
        keys=json.dumps(sorted(set(keys))),
    )
    return {key: partition_time.span_at(from_wall(time)) for key, time in times}


def find_instants(db: Db, source: Fileset, snapshot: Snapshot, keys: Iterable[str]) -> dict[KeyText, tuple[int, int]]:
    """Return the instants of the rows that belong to these partitions, of those in `find_spans`."""
    return {key: instants_of(source, span) for key, span in find_spans(db, source, snapshot, keys).items()}


def find_results(db: Db, program_id: ProgramId, windows: Sequence[Window]) -> list[ComputedWindow]:
    """Return the results of `windows`, without windows that have none."""
    return _results(db.all(SQL.find_results, program_id=program_id, windows=to_rows(windows)))


def list_stale(db: Db, program_id: ProgramId, upto: WallTime, limit: int) -> list[ComputedWindow]:
    """List the windows that end at `upto` or earlier and are to be computed again, earliest first.

    These are windows of before a reset, and late windows that a run has left to later runs.
    """
    return _results(db.all(SQL.list_stale, program_id=program_id, upto=upto, limit=limit))


def list_touched(db: Db, dataset_id: DatasetId, pointers: Iterable[WritePointer]) -> list[KeyText]:
    """The partitions of the file set that these transactions have changed."""
    return db.records(SQL.list_touched, KeyText, dataset_id=dataset_id, pointers=json.dumps(sorted(set(pointers))))


def list_results(db: Db, program_id: ProgramId, limit: int) -> list[tuple[Window, WritePointer, bool]]:
    """The latest windows with results, whether they are stale, latest first."""
    rows = db.records(
        SQL.list_results, tuple[WallTime, WallTime, WritePointer, bool], program_id=program_id, limit=limit
    )
    return [(Window(start, end), pointer, stale) for start, end, pointer, stale in rows]


def _results(rows: Sequence[Sequence[Param]]) -> list[ComputedWindow]:
    typed = cast("Sequence[tuple[WallTime, WallTime, WritePointer]]", rows)
    return [ComputedWindow(Window(start, end), pointer) for start, end, pointer in typed]


def to_rows(windows: Iterable[Window]) -> str:
    """Return the windows as a set of rows for a statement."""
    return json.dumps([{"window_start": start, "window_end": end} for start, end in windows])


def _list_within(db: Db, source: Fileset, snapshot: Snapshot, low: int, high: int) -> list[Stored]:
    """List the partitions that `snapshot` sees of wall-clock times `[low, high)`, by key. Cost: what they are."""
    if is_on_demand(source):
        return list_present(db, source, snapshot, low, high)
    partition_time, row_lag = _time_of(source)
    one: dict[str, Param] = {"dataset_id": source.dataset_id, "write_pointer": snapshot.write_pointer}
    rows = db.all(SQL.list_within, **one, low=low, high=high)
    sizes: dict[tuple[str, int], int] = {}
    for key, time, size in cast("Sequence[tuple[str, int, int]]", rows):
        sizes[key, time] = sizes.get((key, time), 0) + size
    stored = []
    for (key, time), size in sorted(sizes.items()):
        span = partition_time.span_at(from_wall(time))
        stored.append(Stored(key, span.begins - row_lag, span.ends, size, source.dataset_id))
    return stored


def list_arrivals(db: Db, source: Fileset, seen: int, until: int) -> list[tuple[int, KeyText, int]]:
    """Return the commit, key and new rows of each change of a table by the commits `[seen, until)`."""
    return db.records(SQL.list_arrivals, tuple[int, KeyText, int], dataset_id=source.dataset_id, seen=seen, until=until)


def _list_on_demand(db: Db, source: Fileset, seen: int, until: int) -> list[tuple[int, KeyText, Span, int]]:
    """Return the commit, key, span and new rows of each change of a table on demand by the commits `[seen, until)`."""
    spans = ((seq, key, span_of(source, key), rows) for seq, key, rows in list_arrivals(db, source, seen, until))
    return [(seq, key, span, rows) for seq, key, span, rows in spans if span is not None]


def _time_of(source: Fileset) -> tuple[PartitionTime, int]:
    if source.watermark is None:
        raise NotFound("watermark", source.qualified_name, hint="declare one: watermark=tm.Watermark(…)")
    return source.watermark.partition_time, source.watermark.row_lag
