"""Reasons of data sets, partitions and windows: by what is published, taken, computed and held."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.named import Param, load_sql
from tidemill.epoch import show_time
from tidemill.errors import NotFound, UserError
from tidemill.lake.consumer.managed import Consumer, WorkState, list_consumers
from tidemill.lake.datasets import Dataset, DatasetKind, find_by_id
from tidemill.lake.expectations import find_expectations
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.discovery import find_listing
from tidemill.lake.window.cascade import list_followed
from tidemill.lake.window.holding import list_ahead, list_awaited, list_awaited_partitions, list_holding
from tidemill.lake.window.least import find_least
from tidemill.lake.window.parked import explain_parked
from tidemill.lake.window.reach import WindowReach
from tidemill.lake.window.watermark import WatermarkRow, find_watermark
from tidemill.lake.window.window_plan import Grid, Window, WindowShape
from tidemill.lake.window.windows import WindowState, list_inputs, list_states, read_input, read_reaches
from tidemill.mill.access import Access
from tidemill.mill.why_work import Explained, explain_reader, explain_readers, find_end_of_claims
from tidemill.names import RunId, WritePointer
from tidemill.reasons import Because, Reason
from tidemill.run.records.programs import Program, list_programs
from tidemill.run.step.inputs import consumer_kind_of
from tidemill.shapes.filters import KeyFilter
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Instant, WallTime, Zone, from_wall
from tidemill.shapes.watermark_spec import GAP, WatermarkSpec
from tidemill.texts import count_of

if TYPE_CHECKING:
    from tidemill.mill.why_data_sql import Sql

SQL: Sql = load_sql(__file__)

_FEW: Final = 10
_MOST_CHANGES: Final = 20
_MOST_COUNTED: Final = 1000


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change of a partition, among its last ones."""

    write_pointer: WritePointer
    commit_seq: int
    op: str
    delivers: bool
    run_id: RunId
    at: datetime
    partition_time: WallTime | None
    is_current: bool


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A change of a partition in the working set of a consumer."""

    write_pointer: WritePointer
    state: WorkState
    failures: int
    not_before: datetime | None
    run_id: RunId | None
    error: str | None


@dataclass(frozen=True, slots=True)
class WindowFailure:
    """A failure of a window, and the time of the next attempt."""

    reason: str
    partitions: tuple[str, ...]
    since: datetime
    tried_at: datetime
    retry_at: datetime | None


def explain_partition(db: Db, fileset: Fileset, key: KeyText, access: Access) -> Explained:
    """Explain a partition: published or not, and where it stands with each consumer and window program."""
    of, shown = fileset.dataset_id, fileset.show(key)
    thing = f"{fileset.qualified_name}/{fileset.keys.to_path(fileset.keys.decode(key))}"
    changes = db.records(SQL.list_changes, ChangeRow, dataset_id=of, partition_key=key, limit=_MOST_CHANGES)
    evidence: dict[str, object] = {"dataset": fileset.qualified_name, "partition": shown}
    if not changes:
        why = f"no commit has published {shown} in {fileset.qualified_name}"
        reasons = (
            Because(Reason.PARTITION_NOT_PUBLISHED, why, evidence, "a commit publishes the partition"),
            *_open_writers(db, fileset.dataset),
        )
        return Explained(thing, "-", reasons)
    last = changes[0]
    evidence |= {"run_id": last.run_id, "at": last.at, "write_pointer": last.write_pointer, "op": last.op}
    if last.op == "drop":
        why = f"{shown} of {fileset.qualified_name} was dropped by {last.run_id}"
        return Explained(thing, "dropped", (Because(Reason.PARTITION_DROPPED, why, evidence),))
    programs = {one.qualified_name: one for one in list_programs(db)}
    reasons = tuple(
        reason
        for consumer in list_consumers(db, dataset_id=of)
        if access.sees_consumer(consumer.name)
        for reason in _of_consumer(db, fileset, key, changes, consumer, programs.get(consumer.name))
    )
    for state in list_states(db, of):
        if not access.sees_name(state.name):
            continue
        reasons += tuple(_of_window_program(db, fileset, key, last, state, access))
    if not reasons:
        why = f"{shown} of {fileset.qualified_name} is published, and no program reads the file set"
        reasons = (Because(Reason.PARTITION_UNREAD, why, evidence),)
    return Explained(thing, "published", reasons)


def explain_window(db: Db, state: WindowState, program: Program, time: datetime, access: Access) -> Explained:
    """Explain the window of a window program that has `time`, on the wall clock of its zone; `NotFound`.

    Of several windows that have the time, the window that begins at the time, else the window that begins last.
    `UserError` after a reset that has kept the state, until the next deployment.
    """
    if not state.definition:
        why = f"{program.qualified_name} was reset with its state kept: which windows it has is not known until it is"
        raise UserError(f"{why} deployed again", "deploy its app, and ask again")
    defined = json.loads(state.definition)
    size, slide, offset, zone_name = defined["windows"]
    zone = Zone(zone_name)
    grid = Grid(WindowShape(size, slide, offset, defined.get("cumulative", False)), zone)
    try:
        opens = zone.opens(time)
        found = grid.touched(opens, opens + 1)
    except OverflowError:
        found = []
    if not found:
        raise NotFound("window", f"{program.qualified_name}/{time}")
    window = next((one for one in found if from_wall(one.start) == time), found[-1])
    shown = f"[{from_wall(window.start)}, {from_wall(window.end)})"
    thing = f"{program.qualified_name}/{shown}"
    sources = [Fileset.of(find_by_id(db, one)) for one in list_inputs(db, state.program_id)]
    reaches = read_reaches(state.definition)
    inputs = [(source, reaches.get(source.qualified_name, WindowReach())) for source in sources]
    reasons = tuple(_of_window(db, inputs, state, program, window, grid.closes(window), shown, access))
    return Explained(thing, reasons[0].code.value, reasons)


def explain_dataset(db: Db, dataset: Dataset, access: Access) -> Explained:
    """Explain a data set: its last write, what waits in it, and what holds its watermark."""
    reasons = (*_last_write(db, dataset), *_missing(db, dataset), *_open_writers(db, dataset))
    if dataset.kind is DatasetKind.INBOX:
        reasons += tuple(_of_inbox(db, dataset, access))
    else:
        programs = {one.qualified_name: one for one in list_programs(db)}
        for consumer in list_consumers(db, dataset_id=dataset.dataset_id):
            if access.sees_consumer(consumer.name):
                reasons += tuple(_lag(db, dataset, consumer, programs.get(consumer.name)))
    if dataset.kind is DatasetKind.FILESET:
        reasons += tuple(explain_watermark(db, Fileset.of(dataset), access))
    return Explained(dataset.qualified_name, dataset.kind, reasons)


def explain_watermark(db: Db, fileset: Fileset, access: Access) -> Iterator[Because]:
    """Say what holds the watermark of a file set; nothing for a file set without a watermark."""
    row, spec = find_watermark(db, fileset.dataset_id), fileset.watermark
    if row is None or spec is None:
        return
    zone, name = spec.partition_time.zone, fileset.qualified_name
    stands, reaches = _local(row.value, zone), _local(row.target, zone)
    evidence: dict[str, object] = {"dataset": name, "watermark": stands, "reaches": reaches, "zone": zone.name}
    has = "has no value" if row.value is None else f"stands at {stands}"
    waits = False
    for holder in list_holding(db, spec, row)[:_FEW]:
        if row.target is not None and row.value != row.target:
            waits = True
            held = {**evidence, "write_pointer": holder.write_pointer, "run_id": holder.run_id}
            where = "without a value" if row.value is None else f"at {stands}"
            why = f"transaction {holder.write_pointer} of {holder.run_id} holds the watermark of {name} {where}"
            cure = f"the transaction ends, or `tidemill tx abort {holder.write_pointer}`"
            yield Because(Reason.WATERMARK_HELD, why, {**held, "since": holder.began_at}, cure)
    ahead = next((one.due_at for one in list_ahead(db, row.dataset_id, 1)), None)
    missing: list[dict[str, object]] = [
        {"slot": str(from_wall(time)), "have": have, "of": spec.expected_count}
        for time, have in list_awaited(db, spec, row, _FEW)
        if have < spec.expected_count
    ]
    if missing:
        waits = True
        why = f"the watermark of {name} {has}: {count_of(len(missing), 'time slot')} without all partitions"
        cure = f"the partitions arrive, or `tidemill watermark advance {name} TIME`"
        at = None
        if spec.gap_wait is not None and row.next_check_at not in {None, ahead}:
            cure += f", or {spec.options[GAP]} is over"
            at = row.next_check_at
        yield Because(Reason.WATERMARK_MISSES_PARTITIONS, why, {**evidence, "missing": missing}, cure, at)
    waiting = list(_incomplete_partitions(db, fileset, spec, row, evidence))
    yield from waiting
    waits |= bool(waiting)
    if ahead is not None:
        waits = True
        why = f"the next complete slot of {name} lies ahead of the clock"
        yield Because(Reason.WATERMARK_WAITS_FOR_TIME, why, evidence, "the time comes", ahead)
    if not waits and row.value is None and row.target is None:
        why = f"the watermark of {name} has no value: no partition has a time yet"
        yield Because(Reason.WATERMARK_HAS_NO_VALUE, why, evidence, "a commit publishes a partition with a time")
    if not waits and row.value is not None:
        why = f"the watermark of {name} stands at {stands}, and nothing holds it"
        followed = list_followed(db, fileset)
        shown = ", ".join(access.show("window program", one) for one in followed)
        cure = f"{shown} computes later windows" if followed else "a commit publishes a later partition"
        yield Because(Reason.WATERMARK_WAITS_FOR_DATA, why, evidence, cure)


def _incomplete_partitions(
    db: Db, fileset: Fileset, spec: WatermarkSpec, row: WatermarkRow, evidence: Mapping[str, object]
) -> Iterator[Because]:
    for wait in list_awaited_partitions(db, spec, row, _FEW):
        shown, marker = fileset.show(wait.partition_key), spec.completeness.marker
        why = f"the watermark of {fileset.qualified_name} waits for partition {shown}: "
        if wait.marked:
            why += "something has changed in it lately"
            cure, at = "nothing changes until the time comes", wait.due_at
        else:
            # A change of the declaration forgets the markers that listings have found before.
            why += f"no listing since the last declaration has found {marker} in its directory"
            cure, at = f"the writer of the directory adds {marker}, and the next listing finds it", None
        yield Because(Reason.WATERMARK_WAITS_FOR_PARTITION, why, {**evidence, "partition": shown}, cure, at)


def _missing(db: Db, dataset: Dataset) -> Iterator[Because]:
    one = find_expectations(db, [dataset.dataset_id]).get(dataset.dataset_id)
    if one is None or one.broken_since is None:
        return
    evidence = {"expect": one.expect, "last_arrival": one.last_arrival, "expected_by": one.expected_by}
    evidence |= {"broken_since": one.broken_since}
    why = f"nothing has arrived in {dataset.qualified_name} as expected since {show_time(one.broken_since)}"
    cure = "a file is found" if dataset.kind is DatasetKind.INBOX else "a commit publishes data"
    yield Because(Reason.EXPECTATION_BROKEN, why, evidence, cure, one.next_look_at)


def _of_consumer(
    db: Db,
    fileset: Fileset,
    key: KeyText,
    changes: Sequence[ChangeRow],
    consumer: Consumer,
    program: Program | None,
) -> Iterator[Because]:
    shown = f"{fileset.show(key)} of {fileset.qualified_name}"
    pointers = json.dumps([change.write_pointer for change in changes])
    works = db.records(
        SQL.find_work, WorkRow, consumer_id=consumer.consumer_id, write_pointers=pointers, partition_key=key
    )
    evidence: dict[str, object] = {"consumer": consumer.name, "partition": fileset.show(key)}
    by_state = {work.state: work for work in reversed(works)}
    if work := by_state.get(WorkState.IN_PROGRESS):
        why = f"{shown} is in {work.run_id} of {consumer.name}: `tidemill why {work.run_id}`"
        cure, until = find_end_of_claims(db, RunId(str(work.run_id)))
        yield Because(Reason.PARTITION_IN_RUN, why, {**evidence, "run_id": work.run_id}, cure, until)
        return
    if work := by_state.get(WorkState.DISCARDED):
        why = f"{consumer.name} has discarded {shown} after {work.failures} failures: {work.error}"
        cure = f"`tidemill consumer requeue {fileset.qualified_name} {consumer.name} --partition '{fileset.show(key)}'`"
        found = {**evidence, "failures": work.failures, "error": work.error, "run_id": work.run_id}
        yield Because(Reason.PARTITION_DISCARDED, why, found, cure)
        return
    unseen = [change for change in changes if _is_unseen(change, consumer, works)]
    if (work := by_state.get(WorkState.NEW)) and work.not_before is not None and work.not_before > db.now():
        why = f"{shown} waits for its next delivery to {consumer.name}"
        why += f", after {work.failures} failures: {work.error}" if work.failures else ""
        found = {**evidence, "failures": work.failures, "error": work.error}
        yield Because(Reason.PARTITION_WAITS_FOR_RETRY, why, found, "the time comes", work.not_before)
    elif _is_wanted(fileset, key, consumer) and (WorkState.NEW in by_state or unseen):
        why = f"{shown} waits for a run of {consumer.name}"
        yield Because(Reason.PARTITION_WAITS_FOR_RUN, why, evidence, "the next run of the consumer takes it")
        if program is not None:
            yield from explain_reader(db, program, fileset.dataset)
    elif (work := by_state.get(WorkState.COMPLETED)) and _is_wanted(fileset, key, consumer):
        why = f"{work.run_id} of {consumer.name} has taken {shown} and committed"
        yield Because(Reason.PARTITION_CONSUMED, why, {**evidence, "run_id": work.run_id})
    else:
        why = f"{consumer.name} is not given {shown}"
        found = {**evidence, "where": consumer.terms.where, "since_seq": consumer.since_seq}
        cure = f"`tidemill consumer reset {fileset.qualified_name} {consumer.name}`, if the program wants it"
        yield Because(Reason.PARTITION_NOT_DELIVERED, why, found, cure)


def _is_unseen(change: ChangeRow, consumer: Consumer, works: Sequence[WorkRow]) -> bool:
    """Return whether no take of the consumer has seen the change."""
    if not change.delivers or change.commit_seq < consumer.since_seq:
        return False
    if any(work.write_pointer == change.write_pointer for work in works):
        return False
    state = consumer.state
    return change.write_pointer >= state.start_version or change.write_pointer in state.versions_to_check


def _is_wanted(fileset: Fileset, key: KeyText, consumer: Consumer) -> bool:
    where = consumer.terms.where
    return where is None or KeyFilter.from_json(fileset.keys, where).accepts(key)


def _of_window_program(
    db: Db, fileset: Fileset, key: KeyText, change: ChangeRow, state: WindowState, access: Access
) -> Iterator[Because]:
    spec, shown = fileset.watermark, fileset.show(key)
    evidence: dict[str, object] = {"program": state.name, "partition": shown}
    if spec is None or change.partition_time is None:
        why = f"{shown} of {fileset.qualified_name} has no time that can be read, and is in no window of {state.name}"
        reasons = explain_parked(fileset, [key])
        why += "".join(f": {reason}" for reason in reasons.values())
        cure = "correct the pattern or the extractor of the watermark, or the key of the partition"
        yield Because(Reason.PARTITION_PARKED, why, evidence, cure)
        return
    span = spec.partition_time.span_at(from_wall(change.partition_time))
    zone = spec.partition_time.zone
    reach = read_reaches(state.definition).get(fileset.qualified_name, WindowReach())
    until = Instant(reach.touches(spec.window_zone, span.begins, span.ends)[1])
    evidence |= {"computed": _local(state.computed, zone), "until": _local(until, zone)}
    if state.computed is not None and until <= state.computed:
        yield Because(Reason.PARTITION_COMPUTED, f"{state.name} has computed all windows of {shown}", evidence)
        return
    why = f"{state.name} has not computed all windows of {shown}"
    yield Because(Reason.PARTITION_WAITS_FOR_WATERMARK, why, evidence, "the watermark passes the end of the windows")
    yield from explain_watermark(db, fileset, access)


def _of_window(
    db: Db,
    inputs: Sequence[tuple[Fileset, WindowReach]],
    state: WindowState,
    program: Program,
    window: Window,
    closes: Instant,
    shown: str,
    access: Access,
) -> Iterator[Because]:
    sources = [source for source, _ in inputs]
    of: dict[str, Param] = {
        "program_id": state.program_id,
        "window_end": window.end,
        "window_start": window.start,
    }
    source, value, closed = _find_least(db, inputs)
    spec = source.watermark
    zone = Zone("UTC") if spec is None else spec.partition_time.zone
    evidence: dict[str, object] = {
        "program": program.qualified_name,
        "window": shown,
        "watermark": _local(value, zone),
        "computed": _local(state.computed, zone),
    }
    if (failure := db.record(SQL.find_failure, WindowFailure, **of)) is not None:
        why = f"window {shown} could not be computed: {failure.reason}"
        found = {"partitions": list(failure.partitions), "since": failure.since, "tried_at": failure.tried_at}
        cure = "a later attempt succeeds, after the partitions were corrected"
        yield Because(Reason.WINDOW_POSTPONED, why, {**evidence, **found}, cure, failure.retry_at)
        return
    result = db.record(SQL.find_result, tuple[WritePointer, bool], **of)
    if result is not None and not result[1]:
        why = f"window {shown} is published by transaction {result[0]}"
        yield Because(Reason.WINDOW_PUBLISHED, why, {**evidence, "write_pointer": result[0]})
    elif result is not None:
        why = f"window {shown} is published by transaction {result[0]}, and data came later"
        cure = "the next run of the program computes the window again"
        yield Because(Reason.WINDOW_OUTDATED, why, {**evidence, "write_pointer": result[0]}, cure)
        yield from _explain_start(db, program, sources)
    elif state.computed is not None and closes <= state.computed:
        yield Because(Reason.WINDOW_EMPTY, f"window {shown} is computed, and has no rows", evidence)
    elif closed is not None and closes <= closed:
        why = f"window {shown} is closed, and waits for a run of {program.qualified_name}"
        yield Because(Reason.WINDOW_WAITS_FOR_RUN, why, evidence, "the next run of the program computes the window")
        yield from _explain_start(db, program, sources)
    else:
        whose = f" of {source.qualified_name}" if len(sources) > 1 else ""
        has = "has no value" if value is None else f"stands at {_local(value, zone)}"
        why = f"window {shown} is open: the watermark{whose} {has}"
        lag = next(reach.lag for one, reach in inputs if one is source)
        cure = f"the watermark passes {_local(Instant(closes + lag), zone)}"
        yield Because(Reason.WINDOW_WAITS_FOR_WATERMARK, why, evidence, cure)
        yield from explain_watermark(db, source, access)


def _explain_start(db: Db, program: Program, sources: Sequence[Fileset]) -> tuple[Because, ...]:
    """Say why no run of a window program has begun, by a source that a schedule of the program listens to, if any."""
    found = [explain_reader(db, program, source.dataset) for source in sources]
    return next((one for one in found if one[0].code is not Reason.PROGRAM_NOT_SCHEDULED), found[0])


def _find_least(db: Db, given: Sequence[tuple[Fileset, WindowReach]]) -> tuple[Fileset, Instant | None, Instant | None]:
    """Return the table that holds the windows of a query, its watermark, and the end of the windows that are closed."""
    values: list[Instant | None] = []
    inputs = []
    for source, reach in given:
        row, spec = find_watermark(db, source.dataset_id), source.watermark
        value = None if row is None else row.value
        values.append(value)
        closed = None if value is None or spec is None else reach.closed_by(spec.window_zone, value)
        inputs.append(read_input(db, source, closed))
    closed = find_least(inputs, db.now())
    found = zip(given, values, inputs, strict=True)
    return next((source, value, closed) for (source, _), value, one in found if one.value == closed)


def _last_write(db: Db, dataset: Dataset) -> Iterator[Because]:
    of, name = dataset.dataset_id, dataset.qualified_name
    evidence: dict[str, object] = {"dataset": name, "kind": dataset.kind.value}
    if dataset.kind is DatasetKind.INBOX:
        if db.value(SQL.find_any_file, str, dataset_id=of) is None:
            why = f"no file was found in {name}, at {dataset.location}"
            yield Because(Reason.DATASET_EMPTY, why, evidence, "a file arrives")
        return
    last = db.record(SQL.find_last_change, tuple[int, RunId, datetime], dataset_id=of)
    if last is None:
        yield Because(Reason.DATASET_EMPTY, f"nothing was published to {name}", evidence, "a commit publishes data")
        return
    commit_seq, run_id, at = last
    found = {**evidence, "commit_seq": commit_seq, "run_id": run_id, "at": at}
    yield Because(Reason.DATASET_WRITTEN, f"{name} was last changed by {run_id}", found)


def _open_writers(db: Db, dataset: Dataset) -> Iterator[Because]:
    writers = db.records(
        SQL.list_open_writers, tuple[WritePointer, RunId, datetime], dataset_id=dataset.dataset_id, limit=_FEW
    )
    for write_pointer, run_id, began_at in writers:
        why = f"transaction {write_pointer} of {run_id} may write to {dataset.qualified_name}"
        evidence = {"write_pointer": write_pointer, "run_id": run_id, "began_at": began_at}
        yield Because(Reason.TRANSACTION_OPEN, why, evidence, f"the transaction ends: `tidemill why {run_id}`")


def _of_inbox(db: Db, dataset: Dataset, access: Access) -> Iterator[Because]:
    of, name = dataset.dataset_id, dataset.qualified_name
    if (listing := find_listing(db, of)) is not None:
        at = listing.next_listing_at
        cure = f"a listing, as `tidemill up` does, or `tidemill inbox scan {name}`"
        why = f"the next listing of {name} records new files"
        yield Because(Reason.INBOX_WAITS_FOR_LISTING, why, {"location": dataset.location}, cure, at)
    oldest = db.record(SQL.find_oldest_waiting, tuple[str, datetime], dataset_id=of)
    if oldest is None:
        return
    files = db.value(SQL.count_waiting, int, dataset_id=of, limit=_MOST_COUNTED)
    evidence = {"files": files, "at_least": files == _MOST_COUNTED, "oldest": oldest[0], "modified_at": oldest[1]}
    why = f"{files}{' or more' if files == _MOST_COUNTED else ''} files of {name} wait; the oldest is {oldest[0]}"
    cure = f"`tidemill why {quote(f'{name}/{oldest[0]}')}` explains the oldest"
    yield Because(Reason.INBOX_HAS_FILES, why, evidence, cure)
    yield from explain_readers(db, dataset, access)


def _lag(db: Db, dataset: Dataset, consumer: Consumer, program: Program | None) -> Iterator[Because]:
    lag = consumer_kind_of(dataset).measure(db, consumer)
    evidence: dict[str, object] = {
        "consumer": consumer.name,
        "partitions": lag.partitions,
        "bytes": lag.bytes,
        "oldest": lag.oldest,
    }
    if not lag.partitions:
        why = f"nothing of {dataset.qualified_name} waits for {consumer.name}"
        yield Because(Reason.CONSUMER_IS_CURRENT, why, evidence)
        return
    why = f"{lag.partitions} changes of {dataset.qualified_name} wait for {consumer.name}"
    yield Because(Reason.CONSUMER_LAGS, why, evidence, "the next runs of the program take them")
    if program is not None:
        yield from explain_reader(db, program, dataset)


def _local(instant: int | None, zone: Zone) -> str | None:
    return None if instant is None else str(zone.local(instant))
