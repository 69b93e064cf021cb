"""Window programs: plan the closed windows, compute them in batches, and publish the results with the new state.

A run computes one batch in one transaction: rows, `computed` and messages are published together or not at all. The
next run continues from there. A window that cannot be computed is postponed, and later runs retry it. Such a window
delays no other. A window that was published before is replaced: each partition of the output that holds rows of the
window is overwritten without them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.durations import format_duration
from tidemill.errors import UserError
from tidemill.lake.backlog import Rearm
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, find_schema
from tidemill.lake.fileset.publish import see_own
from tidemill.lake.window.carry import carry_of, find_carried, find_carry, list_carried
from tidemill.lake.window.cascade import OutputReach
from tidemill.lake.window.least import QueryInput, find_least
from tidemill.lake.window.on_demand import is_on_demand, source_of
from tidemill.lake.window.outside_times import (
    NoteOutsideTimes,
    OutsideTimes,
    Stretches,
    TimesRead,
    present_stretches,
    read_outside,
)
from tidemill.lake.window.reach import WindowReach, find_interval_shape
from tidemill.lake.window.retries import WINDOWS, Failure, NotePostponed, list_postponed
from tidemill.lake.window.side import side_of
from tidemill.lake.window.watermark import LATEST, find_first_begin, value_at
from tidemill.lake.window.window_plan import MARGIN, Dirty, Grid, Limits, Plan, Reached, Stored, Window, find_late, plan
from tidemill.lake.window.windows import (
    ComputedWindow,
    LateRows,
    MoveWindows,
    OutsideRows,
    WindowState,
    describe_times,
    find_cut,
    find_results,
    find_state,
    list_around,
    list_dirty,
    list_late,
    list_stale,
    list_touched,
    list_waiting,
    read_input,
    read_keys,
)
from tidemill.names import DEFAULT_NAMESPACE, DatasetId, Namespace, ProgramId, WritePointer, qualified, within
from tidemill.run.records.declared import find_dataset
from tidemill.run.step.context import workspace_of
from tidemill.shapes.column_types import plain_type
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Instant, WallTime, from_wall
from tidemill.shapes.watermark_spec import (
    EMIT_EMPTY,
    SESSION_MAX,
    BadTimeColumn,
    LatePolicy,
    PartialFirst,
    WatermarkSpec,
)
from tidemill.sql.aside import Aside, name_some
from tidemill.sql.batches import Batch, Calculator
from tidemill.sql.carries import drop_carry, put_carry, write_partitions, write_sessions
from tidemill.sql.cascades import check_output, follow_output
from tidemill.sql.column_names import check_names
from tidemill.sql.empty_windows import fill_gaps
from tidemill.sql.interval_joins import IntervalJoin
from tidemill.sql.outside_rows import (
    Outside,
    includes_outside,
    list_changed,
    list_missed,
    list_needed_outside,
    read_times,
    to_stored,
)
from tidemill.sql.window_rows import Columns
from tidemill.sql.window_tries import Tries, WindowFailed, is_of_windows
from tidemill.sql.windows import TIME_OF, WindowQuery, read_query
from tidemill.texts import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.run.step.context import Run
    from tidemill.run.step.output import Output
    from tidemill.run.step.workspace import Workspace

_MOST_STALE: Final = 100_000
_MOST_TOUCHED: Final = 100_000
"""The most windows in which rows of one partition may lie: a day has 86,400 of a second."""


class NoWatermark(UserError):
    """A window query over a file set without a watermark."""

    code = "no_watermark"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{dataset} has no watermark",
            "declare watermark=tm.Watermark(…), or ADD WATERMARK and SET the options of partition.time-*",
            before=": ",
        )


class LateData(UserError):
    """A partition that came or changed after its windows were computed, where that is an error."""

    code = "late_data"

    def __init__(self, program: str, dataset: str, windows: Sequence[str]) -> None:
        self.program = program
        self.dataset = dataset
        self.windows = tuple(windows)
        super().__init__(
            f"partitions of {dataset} came or changed after {program} had computed their windows "
            f"({name_some(windows)}), and partition.late-policy is 'error'",
            f"`tidemill watermark reset {program}` has the windows computed again; another late policy decides for all "
            "late partitions",
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    """State of a program, and the file sets that it reads and writes, as they are declared."""

    state: WindowState
    sources: tuple[Fileset, ...]
    sink: Fileset
    schemas: tuple[ColumnSchema | None, ...]


@dataclass(frozen=True, slots=True)
class _Look(_Opened):
    """Facts that a run reads before it computes."""

    reached: Reached
    plan: Plan
    written_by: dict[Window, WritePointer]
    gone: tuple[Window, ...]
    outside: Outside
    """Times of rows outside their partition that count in windows."""
    postponed: tuple[Window, ...]
    """Windows that were postponed: those whose partitions have changed first, then what was tried longest ago."""
    final: Instant | None
    """Late rows change no window that closes up to this time; None for no such time."""
    left: AbstractSet[Window]
    """Late windows that earlier runs have left to later ones."""
    kept: AbstractSet[Window]
    """Such windows of another size, from before the query was changed with its state kept. No run computes them."""
    reads: Sequence[TimesRead]
    """Partitions of which the run has read the times of rows outside, or has failed to."""
    takes_carries: bool = True
    """False where carries cannot be read: then all rows are read from the files of their partitions."""
    batches: dict[DatasetId, tuple[object, Batch]] = field(default_factory=dict)
    """The last batch of each source, and what it was made of. Most attempts write and count the same windows."""

    @property
    def damaged(self) -> Mapping[tuple[DatasetId, KeyText], Exception]:
        """The partitions of which the run could not read the times of rows outside, each with the error."""
        return {(one.dataset_id, key): error for one in self.reads for key, error in one.damaged.items()}


@dataclass(frozen=True, slots=True)
class NextWindow:
    """A window that the next run would compute, the reason, and the shown partitions that it would read."""

    window: Window
    why: str
    partitions: tuple[str, ...]

    def __str__(self) -> str:
        return _show(self.window)


class _SpoiledCarry(BaseException):
    """A window follows from the files of its partitions, and not from the carry: the run begins again without it."""


class WindowProgram:
    """The code of a window program: `app.window_sql` makes it, a driver calls it."""

    def __init__(
        self,
        name: str,
        statement: str,
        namespace: Namespace = DEFAULT_NAMESPACE,
        calculator: Callable[[WindowQuery], Calculator] | None = None,
    ) -> None:
        """Take the statement apart; `BadStatement` for what cannot be windowed. `namespace` is that of plain names."""
        self.__name__ = name
        self.statement = statement
        self.query = read_query(statement)
        self.sources = tuple(within(namespace, one) for one in self.query.tables)
        self.sink = within(namespace, self.query.sink)
        self.look_ups = tuple(within(namespace, one) for one in self.query.look_ups)
        """The snapshots that the program reads beside its windows."""
        tables = self.query.tables if len(self.query.tables) > 1 else [""]
        self.side_names = tuple(side_of(name, table) for table in tables)
        self.sides = tuple(qualified(namespace, side) for side in self.side_names)
        self.carry_names = tuple(
            carry_of(name, table) if self.query.shape.sessions or reach != WindowReach() else ""
            for table, reach in zip(tables, self.query.reaches, strict=True)
        )
        """For each source the file set of the rows that later runs need again; empty where no run needs any."""
        self.carries = tuple(qualified(namespace, carry) if carry else "" for carry in self.carry_names)
        for names in (self.sources, self.sides):
            if len({*names}) < len(names):
                why = f"two tables of the query are one, or differ in '.' and '_' alone: {', '.join(names)}"
                raise self.query.locate(UserError(why), [*self.query.tables][-1])
        self._calculator = calculator

    @property
    def writes(self) -> tuple[str, ...]:
        """The file sets that the program writes: its output, its side tables, and its carries."""
        return self.sink, *self.sides, *filter(None, self.carries)

    def definition(self, sources: Sequence[Fileset]) -> str:
        """Return the definition of the results beside the rows.

        If the definition changes, all windows must be computed again.
        """
        grid, specs = make_grid(self.query, sources), [spec_of(source) for source in sources]
        shape, interval, sessions = grid.shape, self.query.interval, grid.shape.sessions
        return json.dumps(
            {
                "select": self.query.select("<{}>".format, _show_windows),
                "windows": [shape.size, shape.slide, shape.offset, grid.zone.name],
                **({"cumulative": True} if shape.cumulative else {}),
                **({"interval": self._describe_interval(interval)} if interval else {}),
                **({"sessions": [sessions.gap, sessions.longest, *self.query.keys]} if sessions else {}),
                "inputs": {
                    source.qualified_name: {"column": spec.column, "outside": spec.outside, **describe_times(spec)}
                    for source, spec in zip(sources, specs, strict=True)
                },
            },
            sort_keys=True,
        )

    def _describe_interval(self, interval: IntervalJoin) -> dict[str, object]:
        names = dict(zip(self.query.tables, self.sources, strict=True))
        reaches = {names[table]: [one.before, one.after, one.lag] for table, one in interval.reaches.items()}
        return {"windows_of": names[interval.table], "reaches": reaches}

    def find_reach(self, sources: Sequence[Fileset], computed: Instant | None) -> OutputReach:
        """Return how far the output has come when windows are computed up to `computed`."""
        return OutputReach.of(self._grid(sources), computed, of_rows=self.query.interval is not None)

    def check(self, sources: Sequence[Fileset], sink: Fileset, schemas: Sequence[ColumnSchema | None]) -> None:
        """Refuse a table without a watermark, another time column than its own, and rows that could not be replaced.

        Also rows without a key of the output, which say no partition, a column that cannot be their time, and tables
        with windows in several zones. `schemas` are the columns of the sources, None before their first commit: a run
        asks again before it computes anything. Columns that do not fit into those that the output was declared
        with are refused as far as they are known.
        """
        columns = self.query.find_columns(_list_columns(self.query, sources, schemas))
        known = {name.lower() for name in columns or sink.keys.names}
        missing = [name for name in sink.keys.names if name.lower() not in known]
        if missing:
            why = (
                f"{', '.join(missing)} of {sink.qualified_name} is not among the columns of the query "
                f"({', '.join(filter(None, columns or ()))}): SELECT each key of the output, by its name"
            )
            raise self.query.locate(UserError(why))
        if self.sink in self.sources:
            why = f"{self.sink} cannot be its own source: write the windows into another file set"
            raise self.query.locate(UserError(why), self.query.sink)
        if not self.query.bounds:
            why = (
                f"SELECT {' or '.join(self.query.shape.bounds)} unchanged: a run finds by it the rows of a window that "
                "it computes again"
            )
            raise self.query.locate(UserError(why))
        check_columns(self.query, sources, schemas)
        check_sessions(self.query, sources)
        check_windows(self.query, sources)
        try:
            check_output(self.query, sink, spec_of(sources[0]).window_zone)
        except UserError as error:
            raise self.query.locate(error, self.query.sink) from None
        if self.query.emits_empty(spec_of(sources[0])) and self.query.empty and self.query.empty.mixed:
            why = (
                f"{', '.join(self.query.empty.mixed)} is computed from rows and from the window at once, but "
                f"'{EMIT_EMPTY}'='true' asks for a row of each window without rows: use columns of the window, or "
                "aggregates, in one column"
            )
            raise self.query.locate(UserError(why))
        late = {source.qualified_name: spec_of(source) for source in sources}
        if len({(spec.late, spec.final_after) for spec in late.values()}) > 1:
            shown = ", ".join(f"{table} with '{spec.late}'" for table, spec in late.items())
            why = (
                f"the tables of a query have one late policy and one allowed lateness, not {shown}: a window that is "
                "computed again reads the rows of all of them"
            )
            raise self.query.locate(UserError(why), [*self.query.tables][-1])
        given = self.query.find_types(_list_types(self.query, sources, schemas))
        self.query.check_result(sink, sink.storing.columns, given)

    def __call__(self, run: Run, spark: SparkSession | None = None) -> None:
        """Compute what is due, and have the commit move the state."""
        del spark
        workspace = workspace_of(run)
        tx, opened = workspace.ask(lambda db, tx: (tx, self._open(db, find_state(db, workspace.program_id))))
        if opened.state.moved_seq >= tx.write_pointer:
            # It would write beside windows that its snapshot does not show, or by a watermark of before a rewind. The
            # commit refuses that, which uses up no retry.
            workspace.also(MoveWindows(tx, opened.sources, opened.state, opened.state.computed, opened.state.seen))
            return
        world = workspace.world
        calculator = self._make_calculator(run)
        including = filter(includes_outside, opened.sources)
        reads = [read_times(workspace, calculator, source, opened.state) for source in including]
        look = replace(workspace.ask(lambda db, tx: self._look(db, tx, opened, reads)), batches={})
        world.mark("windows.planned")
        try:
            with workspace.undone_on_error(look.sink):
                self._compute(workspace, calculator, look)
        except _SpoiledCarry as spoiled:
            for carry in filter(None, self.carries):
                drop_carry(workspace, carry)
            why = " ".join(str(spoiled.__cause__).split())[:500]
            workspace.note(look.sink, f"all partitions are read again, since their carry cannot be read: {why}")
            self._compute(workspace, calculator, replace(look, takes_carries=False))

    def _compute(self, workspace: Workspace, calculator: Calculator, look: _Look) -> None:
        """Compute what `look` has found due, and have the commit move the state."""
        world = workspace.world
        if look.gone:
            self._write(workspace, calculator, look, (), look.gone)
        tries = Tries(
            lambda windows: self._write(workspace, calculator, look, windows),
            lambda window, error: self._blame(workspace, look, window, error),
            lambda window, failed, others: self._suspect(workspace, look, window, failed, others),
        )
        late = tries.compute(look.plan.late)
        # Not one by one: once their cause is gone, they may be many and of one partition.
        tries.compute(look.postponed[: min(spec_of(source).max_windows for source in look.sources)])
        new = tries.compute(look.plan.new)
        moved = self._find_move(workspace, look, tries, late, new)
        if tries.failed and not tries.done and (look.plan.late or look.plan.new):
            whole = workspace.ask(lambda db, tx: self._look(db, tx, look, look.reads, whole=look.reached)).plan
            left = [*look.plan.late[late:], *look.plan.new[new:], *look.plan.left, *whole.beyond]
            with workspace.undone(look.sink):
                if not tries.find_sound(left):
                    # It may be no single window's fault, and publishing would hide it.
                    raise next(iter(tries.failed.values()))
        # Changes that a later run looks at again touch windows of what was noted before.
        noted = look.reads if moved.seen > look.state.seen else ()
        moved = self._leave_out(workspace, calculator, look, moved, tries.done)
        if tries.done and not tries.failed and tries.done >= {*look.postponed}:
            # Not while windows fail: their partitions would fail here too.
            self._put_carries(workspace, calculator, look, tries.done, moved.computed)
        if look.kept:
            kept = count_of(len(look.kept), "window")
            workspace.note(look.sink, f"{kept} of before the query was changed will not get their late rows")
        world.mark("windows.written")
        workspace.also(
            moved,
            NoteOutsideTimes(look.state.program_id, noted),
            NotePostponed(
                look.state.program_id,
                [Failure(one, error.reason, error.partitions) for one, error in _to_postpone(look, tries).items()],
                moved.mended,
                left=not {*look.postponed} <= {*moved.mended, *tries.failed},
            ),
            *([Rearm(WINDOWS, [look.state.program_id])] if len(look.sources) > 1 else []),
            *follow_output(moved, look.sink, self._grid(look.sources), of_rows=self.query.interval is not None),
        )

    def _put_carries(
        self,
        workspace: Workspace,
        calculator: Calculator,
        look: _Look,
        done: AbstractSet[Window],
        computed: Instant | None,
    ) -> None:
        """Write the rows that later runs need again, and say for people if they cannot be written."""
        grid, of = self._grid(look.sources), self._carry_of(look)
        # Sessions are those that are open at the end of a slot.
        windows = [max(done, key=lambda window: window.end)] if grid.shape.sessions else sorted(done)
        for place, (source, reach) in enumerate(zip(look.sources, self.query.reaches, strict=True)):
            carry = self._carry_for(source, place)
            if not carry or computed is None:
                continue
            batch = self._batch(workspace, look, source, windows)
            needed = grid.zone.opens(from_wall(reach.first_open(grid, computed)))

            def write(carry: str = carry, batch: Batch = batch, needed: Instant = needed) -> None:
                if grid.shape.sessions:
                    write_sessions(workspace, calculator, carry, batch, grid, of)
                else:
                    write_partitions(workspace, calculator, carry, batch, needed, of)

            for text in put_carry(workspace, carry, write):
                workspace.note(look.sink, text)

    def _leave_out(
        self,
        workspace: Workspace,
        calculator: Calculator,
        look: _Look,
        moved: MoveWindows,
        windows: Iterable[Window],
    ) -> MoveWindows:
        """Return `moved` with the number of rows that count in no window, and write such rows to the side table.

        A row counts in no window for one of two reasons. Its partition came after its window was computed. Or its time
        is not in the time of its partition, and the partition was read for one of `windows`.
        """
        left_out: list[LateRows] = []
        all_outside: list[OutsideRows] = []
        grid, wanted = self._grid(look.sources), sorted(windows)
        for source, reach, side in zip(look.sources, self.query.reaches, self.sides, strict=True):
            spec = spec_of(source)
            late, waiting = self._find_late(workspace, look, source, reach, moved.seen)
            # Rows outside are late by their own times: a partition may have one such row, and many that count.
            kept = late if spec.keeps_late or includes_outside(source) else []
            batch = self._batch(workspace, look, source, wanted, kept)
            aside = Aside(workspace, calculator, side, batch, look.state)
            outside = aside.put_outside()
            if kept:
                assert look.final is not None, "there are late rows"  # noqa: S101
                late = aside.put_late(kept, reach.first_open(grid, look.final), waiting)
            for text in (
                *aside.say_late(late),
                *aside.say_outside(outside),
                *self._say_forced(workspace, calculator, batch),
            ):
                workspace.note(look.sink, text)
            left_out += late
            all_outside += outside
        return replace(moved, left_out=left_out, outside=all_outside)

    def _say_forced(self, workspace: Workspace, calculator: Calculator, batch: Batch) -> Iterable[str]:
        """Say for people how many sessions were closed by force."""
        if self.query.shape.sessions and (forced := calculator.count_forced(workspace, batch)):
            longest = format_duration(timedelta(microseconds=batch.watermark.session_max))
            sessions = f"{count_of(forced, 'session')} of {batch.source.qualified_name}"
            yield f"{sessions} went on for {longest}: closed by force"

    def _find_late(
        self,
        workspace: Workspace,
        look: _Look,
        source: Fileset,
        reach: WindowReach,
        seen: int,
    ) -> tuple[list[LateRows], list[Window]]:
        """Return the partitions that got rows before the commit `seen` of windows that are not computed again.

        Also the rows that earlier runs could not read, and not those of partitions that this run could not read. The
        second result are the times on the wall clock of rows that postponed windows wait for: they are not late.
        """
        final = look.final
        if final is None or seen == look.state.seen or spec_of(source).late is LatePolicy.ERROR:
            return [], []  # late rows that are an error have ended the run before
        read_now = [one for read in look.reads if read.dataset_id == source.dataset_id for one in read.found]
        late, missed = workspace.ask(
            lambda db, tx: (
                list_late(db, source, look.state.seen, seen),
                list_missed(db, source, tx, read_now, look.state.seen),
            )
        )
        grid, outside = self._grid(look.sources), look.outside[source.dataset_id]
        # Postponed windows wait for the rows that lie in them.
        postponed, waiting = {*look.postponed}, set[Window]()

        def is_behind(one: LateRows) -> bool:
            spans = [(one.begins, one.ends), *outside.get(one.key, ())]
            touched = {window for span in spans for window in grid.touched(*reach.touches(grid.zone, *span))}
            waiting.update(touched & postponed)
            return any(grid.closes(window) <= final for window in touched - postponed)

        found = {one.key: one for one in late if (source.dataset_id, one.key) not in look.damaged}
        for one in missed:
            newer = found.get(one.key, replace(one, rows=0))
            found[one.key] = replace(newer, rows=one.rows + newer.rows, since=one.since)
        kept = [one for one in found.values() if one.rows and is_behind(one)]
        return kept, [reach.widen(window) for window in waiting]

    def _find_move(self, workspace: Workspace, look: _Look, tries: Tries, late: int, new: int) -> MoveWindows:
        """Return the move of the state after `late` late and `new` new windows were tried."""
        plan, grid = look.plan, self._grid(look.sources)
        computed = plan.computed
        if new < len(plan.new):
            # Windows that close at one instant are passed together.
            computed = Instant(min(grid.closes(plan.new[new - 1]), grid.closes(plan.new[new]) - 1))
        again = tries.done - {*plan.new}
        return MoveWindows(
            tx=workspace.ask(lambda _, tx: tx),
            sources=look.sources,
            state=look.state,
            computed=computed,
            seen=plan.seen,
            new=[window for window in plan.new if window in tries.done],
            again=sorted(again),
            gone=look.gone,
            failed=[*_to_postpone(look, tries)],
            mended=[window for window in look.postponed if window in tries.done],
            left=[window for window in (*plan.left, *plan.late[late:]) if window not in look.left],
            kept=sorted(look.kept),
            rows=sum(write.manifest.total_rows for write in workspace.written(look.sink)),
            more=plan.more or late < len(plan.late) or new < len(plan.new),
        )

    def _open(self, db: Db, state: WindowState | None) -> _Opened:
        sources = tuple(source_of(find_dataset(db, source)) for source in self.sources)
        sink = Fileset.of(find_dataset(db, self.sink))
        if state is None:
            raise NoWatermark(sources[0].qualified_name)
        schemas = tuple(find_schema(db, source.dataset_id) for source in sources)
        self.check(sources, sink, schemas)
        return _Opened(state, sources, sink, schemas)

    def _look(
        self, db: Db, tx: Snapshot, opened: _Opened, reads: Sequence[TimesRead] = (), *, whole: Reached | None = None
    ) -> _Look:
        """Read what is due.

        Of the windows beyond this run, the plan names at least one if there are any. It names all of them up to where
        an earlier look has `reached`, if that is given as `whole`.
        """
        state, sources, schemas = opened.state, opened.sources, opened.schemas
        specs, grid = [spec_of(source) for source in sources], self._grid(sources)
        reaches = self.query.reaches
        first = find_first(db, sources, reaches)
        limits = Limits(
            min(spec.max_windows for spec in specs),
            min(spec.max_partitions for spec in specs),
            min(spec.max_bytes for spec in specs),
        )
        # A window that is not computed yet may begin as much before `computed` as it is long.
        open_from = (
            None if state.computed is None else Instant(state.computed - grid.shape.size - grid.shape.reach - MARGIN)
        )
        postponed = list_postponed(db, state.program_id, _MOST_STALE)
        stale = list_stale(db, state.program_id, WallTime(LATEST), _MOST_STALE)
        passed_over = {one.window for one in stale if _is_passed(grid, state, one.window)}
        left = {*filter(grid.shape.has, passed_over)}
        final = _find_final(specs[0], state, min(map(grid.closes, left), default=None))
        dirty: dict[str, list[Dirty]] = {}
        outside: dict[DatasetId, Mapping[KeyText, Stretches]] = {}
        for source, reach in zip(sources, reaches, strict=True):
            noted = read_outside(db, state.program_id, source.dataset_id) if includes_outside(source) else {}
            read_now = [one for read in reads if read.dataset_id == source.dataset_id for one in read.found]
            outside[source.dataset_id] = present_stretches(noted, read_now)
            changes = _list_dirty(db, source, tx, state, final, noted, read_now)
            dirty[source.qualified_name] = [reach.touched_by(grid.zone, one) for one in changes]
        strewn = _not_before(
            open_from,
            [
                reach.touched_by(grid.zone, one)
                for source, reach in zip(sources, reaches, strict=True)
                for one in to_stored(source, outside[source.dataset_id])
            ],
        )
        room = limits if whole is None else None
        waiting, horizon = self._list_waiting(db, tx, opened, open_from, room)
        # Not by the rows outside: one with a time far ahead would close all windows up to it.
        passed = find_passed(db, tx, self.query, sources, waiting, state.computed) if whole is None else whole.passed
        emits_empty = self.query.emits_empty(specs[0])
        if emits_empty and schemas[0] is None:
            passed = None  # a sum over columns that are not known has no type
        at = Reached(state.computed, state.seen, passed, tx.write_pointer, first)
        for source, spec in zip(sources, specs, strict=True):
            late = find_late(grid, at, dirty[source.qualified_name])
            if spec.late is LatePolicy.ERROR and late:
                raise LateData(state.name, source.qualified_name, [_show(one) for one in sorted(late, reverse=True)])
        changed = find_late(grid, at, [one for changes in dirty.values() for one in changes])
        again = (left | changed) - {*postponed}  # else the run would meet first what has failed before
        around = self._list_around(db, tx, sources, sorted(again, reverse=True)[: limits.windows], outside)

        def plan_upto(horizon: Instant | None) -> Plan:
            upto = at.upto(horizon)
            gaps = fill_gaps(grid, upto, waiting, limits) if emits_empty else []
            return plan(grid, upto, [*waiting, *gaps, *strewn], again, around, limits)

        found = plan_upto(horizon)
        while room is not None and not found.beyond and at.upto(horizon) != at:
            # The limits of the run reach further than what was read.
            room = replace(room, windows=4 * room.windows, partitions=4 * room.partitions)
            waiting, horizon = self._list_waiting(db, tx, opened, open_from, room)
            found = plan_upto(horizon)
        found = found.without({*postponed})
        postponed.sort(key=lambda window: window not in changed)
        wanted = (*found.new, *found.late, *postponed)
        written_by = {one.window: one.write_pointer for one in find_results(db, state.program_id, wanted)}
        gone = _find_gone(grid, state, found.computed, stale, {*wanted})
        written_by |= gone
        return _Look(
            state,
            sources,
            opened.sink,
            schemas,
            at,
            found,
            written_by,
            tuple(gone),
            outside,
            tuple(postponed),
            final,
            left,
            passed_over - left,
            reads,
        )

    def _list_waiting(
        self, db: Db, tx: Snapshot, opened: _Opened, open_from: Instant | None, room: Limits | None
    ) -> tuple[list[Stored], Instant | None]:
        """List the partitions that a run with these limits is likely to need for its new windows; without limits, all.

        Also a time: windows that close by then need no partition that was left out. None if none was. A long back-fill
        would else read in each run what is left for all runs.
        """
        grid, computed = self._grid(opened.sources), opened.state.computed
        waiting: list[Stored] = []
        horizons: list[Instant] = []
        for source, reach in zip(opened.sources, self.query.reaches, strict=True):
            since = None if open_from is None else Instant(open_from - max(reach.before, 0))
            after = None if computed is None else reach.untouched_from(grid.zone, computed)
            cut = None if room is None else find_cut(db, source, after, *_count_needed(source, grid, room))
            touched = (reach.touched_by(grid.zone, one) for one in list_waiting(db, source, tx, since, cut))
            waiting += _not_before(open_from, touched)
            if cut is not None:
                horizons.append(reach.untouched_upto(grid.zone, cut.begins))
        return waiting, min(horizons, default=None)

    def _list_around(
        self, db: Db, tx: Snapshot, sources: Sequence[Fileset], windows: Sequence[Window], outside: Outside
    ) -> list[Stored]:
        """List the partitions whose rows may lie in `windows`."""
        grid, around = self._grid(sources), []
        for source, reach in zip(sources, self.query.reaches, strict=True) if windows else ():
            spans = _merged(reach.needs(grid.zone, grid.spans(window)) for window in windows)
            for found in list_around(db, source, tx, spans).values():
                around += [reach.touched_by(grid.zone, one) for one in found]
            strewn = to_stored(source, outside.get(source.dataset_id, {}))
            around += [reach.touched_by(grid.zone, one) for one in strewn]
        return around

    def list_next(self, db: Db, snapshot: Snapshot, state: WindowState | None) -> list[NextWindow]:
        """List the windows that the next run would compute or delete, in its order. None: the program is new.

        Raises what the run would raise.
        """
        opened = self._open(db, state or WindowState(ProgramId(""), self.__name__, "", None, 0, 0, 0))
        look = self._look(db, snapshot, opened)
        each = {
            **dict.fromkeys(look.gone, "deleted, since a reset"),
            **dict.fromkeys(look.plan.late, "late partitions"),
            **dict.fromkeys(look.postponed, "postponed"),
            **dict.fromkeys(look.plan.new, "closed"),
        }
        needed = list_needed(db, self.query, look.sources, snapshot, each, look.outside)
        return [NextWindow(window, why, needed.get(window, ())) for window, why in each.items()]

    def _write(
        self,
        workspace: Workspace,
        calculator: Calculator,
        look: _Look,
        windows: Sequence[Window],
        gone: Sequence[Window] = (),
    ) -> None:
        """Compute and write `windows`: those that have been published before are replaced, `gone` ones removed.

        An error leaves nothing written. `_SpoiledCarry` if a carry is damaged, and the window can do without the carry.
        """
        try:
            with workspace.undone_on_error(look.sink):
                self._write_into(workspace.output(look.sink), workspace, calculator, look, windows, gone)
        except Exception as error:
            if (
                len(windows) == 1
                and is_of_windows(error)
                and self._follows_without(workspace, calculator, look, windows)
            ):
                raise _SpoiledCarry from error
            raise

    def _follows_without(
        self, workspace: Workspace, calculator: Calculator, look: _Look, windows: Sequence[Window]
    ) -> bool:
        """Return whether windows that cannot be computed follow from the files of their partitions alone."""
        batches = self._batches(workspace, look, windows)
        if not any(batch.carry or batch.carried for batch in batches):
            return False
        without = replace(look, takes_carries=False)
        try:
            with workspace.undone(look.sink):
                self._write_into(workspace.output(look.sink), workspace, calculator, without, windows, ())
        except Exception as error:
            if is_of_windows(error):
                return False
            raise
        return True

    def _write_into(  # one after the other
        self,
        output: Output,
        workspace: Workspace,
        calculator: Calculator,
        look: _Look,
        windows: Sequence[Window],
        gone: Sequence[Window],
    ) -> None:
        again = [window for window in windows if window in look.written_by]
        if again or gone:
            pointers = [look.written_by[window] for window in (*again, *gone)]
            old = workspace.ask(lambda db, tx: self._find_old(db, tx, workspace, look.sink, pointers))
            over, more, keys = calculator.replace(workspace, self._sound_batches(workspace, look, again), gone, old)
            for key in keys:
                output.drop(key)
            if keys:
                output.overwrite(over)
            if more is not None:
                output.append(more)
        fresh = [window for window in windows if window not in look.written_by]
        batches = self._sound_batches(workspace, look, fresh) if fresh else []
        emits_empty = bool(fresh) and self.query.emits_empty(spec_of(look.sources[0]))
        if emits_empty or any(batch.has_files for batch in batches):
            output.append(calculator.compute(workspace, batches))

    def _find_old(
        self, db: Db, tx: Transaction, workspace: Workspace, sink: Fileset, pointers: Iterable[WritePointer]
    ) -> list[Partition]:
        keys = list_touched(db, sink.dataset_id, pointers)
        own = [write for write in workspace.written(sink) if sink.keys.encode(write.key) in set(keys)]
        return see_own(sink, read_keys(db, sink, tx, keys), tx, own)

    def _batches(self, workspace: Workspace, look: _Look, windows: Sequence[Window]) -> list[Batch]:
        return [self._batch(workspace, look, source, windows) for source in look.sources]

    def _sound_batches(self, workspace: Workspace, look: _Look, windows: Sequence[Window]) -> list[Batch]:
        """Return the batches of windows; raise if the run could not read the times of the rows of a partition in them.

        The partition may be readable by now. But its late rows are not known yet, and a window must not count them.
        """
        batches = self._batches(workspace, look, windows)
        for batch in batches if look.damaged else ():
            for key in batch.instants:
                if (error := look.damaged.get((batch.source.dataset_id, key))) is not None:
                    raise error
        return batches

    def _batch(
        self,
        workspace: Workspace,
        look: _Look,
        source: Fileset,
        windows: Sequence[Window],
        late: Sequence[LateRows] = (),
    ) -> Batch:
        """The windows with all partitions whose rows may lie in them, at the run's snapshot; and `late` partitions."""
        of = (tuple(windows), tuple(late), look.takes_carries)
        known, batch = look.batches.get(source.dataset_id, (None, None))
        if batch is None or known != of:
            batch = self._make_batch(workspace, look, source, windows, late)
            look.batches[source.dataset_id] = of, batch
        return batch

    def _make_batch(
        self,
        workspace: Workspace,
        look: _Look,
        source: Fileset,
        windows: Sequence[Window],
        late: Sequence[LateRows],
    ) -> Batch:
        grid, place = self._grid(look.sources), look.sources.index(source)
        reach, kept = self.query.reaches[place], self._carry_for(source, place)
        spans = _merged(reach.needs(grid.zone, grid.spans(window)) for window in windows)

        def block(db: Db, tx: Transaction) -> Batch:
            near: dict[str, Stored] = {}
            carry, needed = None, spans
            fileset = Fileset.of(find_dataset(db, kept)) if kept and look.takes_carries else None
            if fileset is not None and grid.shape.sessions and len(spans) == 1:
                carry = find_carry(db, source, fileset, tx, grid, self._carry_of(look), min(windows))
                needed = spans if carry is None else [(carry.closes, spans[0][1])]
            for found in list_around(db, source, tx, needed).values():
                near |= {one.key: one for one in found}
            instants = {KeyText(one.key): (one.begins, one.ends) for one in near.values()}
            instants |= {one.key: (one.begins, one.ends) for one in late}
            instants |= list_needed_outside(db, source, tx, look.outside[source.dataset_id], spans)
            every = read_keys(db, source, tx, instants)
            if fileset is None or grid.shape.sessions:
                return Batch(source, look.sink, tuple(windows), tuple(every), instants, carry)
            not_late = [one for one in every if one.partition_key not in {row.key for row in late}]
            known = find_carried(list_carried(db, fileset, tx), self._carry_of(look), source.keys, not_late)
            return Batch(
                source,
                look.sink,
                tuple(windows),
                tuple(one for one in every if one.partition_key not in known),
                {key: span for key, span in instants.items() if key not in known},
                carried=known,
            )

        return workspace.ask(block)

    def _blame(self, workspace: Workspace, look: _Look, window: Window, error: Exception) -> WindowFailed:
        partitions = [
            _show_partition(batch.source, key, among=len(self.sources))
            for batch in self._batches(workspace, look, [window])
            for key in sorted((*(one.partition_key for one in batch.partitions), *batch.carried))
        ]
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        failed = WindowFailed(_show(window), partitions, reason)
        failed.__cause__ = error
        return failed

    def _suspect(
        self, workspace: Workspace, look: _Look, window: Window, failed: WindowFailed, others: Sequence[Window]
    ) -> dict[Window, WindowFailed]:
        """Return the failures of `others` that share partitions with `window`, for those that this run will not try."""
        grid = self._grid(look.sources)

        def list_near(db: Db, tx: Transaction) -> list[tuple[Fileset, Stored]]:
            near = []
            for source, reach in zip(look.sources, self.query.reaches, strict=True):
                span = reach.needs(grid.zone, grid.spans(window))
                needed = list_around(db, source, tx, [span])[span]
                outside = look.outside[source.dataset_id]
                strewn = list_needed_outside(db, source, tx, outside, [span])
                needed += [Stored(key, *span, 0, source.dataset_id) for key, span in strewn.items()]
                # A partition with rows outside is needed by the windows of these rows too.
                keys = {KeyText(one.key) for one in needed}
                needed += to_stored(source, {key: outside[key] for key in keys & outside.keys()})
                near += [(source, reach.touched_by(grid.zone, one)) for one in needed]
            return near

        near = workspace.ask(list_near)
        reason = f"not tried, since it needs partitions of {failed.window}, which failed: {failed.reason}"
        found = {}
        for other in others:
            begins, ends = grid.spans(other)
            shared = [(source, one.key) for source, one in near if one.begins < ends and one.ends > begins]
            if shared:
                shown = [_show_partition(source, KeyText(key), among=len(self.sources)) for source, key in shared]
                found[other] = WindowFailed(_show(other), [*dict.fromkeys(shown)], reason)
        return found

    def _carry_for(self, source: Fileset, place: int) -> str:
        """Return the file set of rows of a table that later runs need again; empty if runs keep no such rows.

        None are kept if rows outside their partition count: the times of changed partitions do not tell which rows
        have changed.
        """
        return "" if includes_outside(source) else self.carries[place]

    def _carry_of(self, look: _Look) -> str:
        """Return the name of the definition since the last reset: carries of another definition have other rows."""
        return sha256(f"{self.definition(look.sources)} {look.state.resets}".encode()).hexdigest()[:16]

    def _grid(self, sources: Sequence[Fileset]) -> Grid:
        return make_grid(self.query, sources)

    def _make_calculator(self, run: Run) -> Calculator:
        if self._calculator is not None:
            return self._calculator(self.query)
        from tidemill.sql.window_frames import SparkWindows

        whole = dict(zip(self.query.look_ups, self.look_ups, strict=True))
        return SparkWindows(self.query, lambda name: run.input(whole[name]).read())


def check_windows(query: WindowQuery, sources: Sequence[Fileset]) -> None:
    """Refuse windows of which a partition touches so many that to list them would take minutes."""
    for source, table in zip(sources, query.tables, strict=True):
        spec = spec_of(source)
        shape, interval = query.fit_shape(spec), spec.partition_time.interval.longest
        touched = (interval // timedelta(microseconds=1) + shape.size) // shape.slide
        if query.interval is None and touched > _MOST_TOUCHED:
            why = (
                f"a partition of {source.qualified_name} would touch {touched:,} windows, and the most is "
                f"{_MOST_TOUCHED:,}: choose windows that begin less often, or shorter partitions"
            )
            raise query.locate(UserError(why), table)


def make_grid(query: WindowQuery, sources: Sequence[Fileset]) -> Grid:
    """Return the windows of a query over `sources`, in the order of its tables."""
    check_windows(query, sources)
    spec = spec_of(sources[0])
    shape = query.fit_shape(spec)
    if query.interval is not None:
        shape = find_interval_shape(spec_of(sources[[*query.tables].index(query.interval.table)]))
    return Grid(shape, spec.window_zone)


def list_needed(
    db: Db,
    query: WindowQuery,
    sources: Sequence[Fileset],
    snapshot: Snapshot,
    windows: Iterable[Window],
    outside: Outside,
) -> dict[Window, tuple[str, ...]]:
    """Return for each of `windows` the partitions whose rows may lie in it, by table, in their order of time."""
    wanted, grid = set(windows), make_grid(query, sources).slots
    needed: dict[Window, tuple[str, ...]] = {}
    for source, reach in zip(sources, query.reaches, strict=True):
        spans = _merged(reach.needs(grid.zone, grid.spans(window)) for window in wanted)
        near = {one.key: one for found in list_around(db, source, snapshot, spans).values() for one in found}
        every = [*near.values(), *to_stored(source, outside.get(source.dataset_id, {}))]
        for one in sorted(every, key=lambda one: (one.begins, one.key)):
            touched = reach.touched_by(grid.zone, one)
            for window in wanted.intersection(grid.touched(touched.begins, touched.ends)):
                shown = _show_partition(source, KeyText(one.key), among=len(sources))
                needed[window] = tuple(dict.fromkeys((*needed.get(window, ()), shown)))
    return needed


def _list_columns(
    query: WindowQuery, sources: Sequence[Fileset], schemas: Sequence[ColumnSchema | None]
) -> dict[str, list[str]]:
    """Return the columns of the tables of a query, by the names of the tables, as far as they are known."""
    return {table: [*types] for table, types in _list_types(query, sources, schemas).items()}


def _list_types(
    query: WindowQuery, sources: Sequence[Fileset], schemas: Sequence[ColumnSchema | None]
) -> dict[str, dict[str, str]]:
    """Return the columns of the tables of a query with their types, as far as they are known."""
    return {
        table: {
            **{name: kind if "<" in kind else plain_type(kind) for name, kind in schema.types.items()},
            **{field.name: plain_type(field.type.value) for field in source.keys.fields},
        }
        for table, source, schema in zip(query.tables, sources, schemas, strict=True)
        if schema is not None
    }


def check_columns(query: WindowQuery, sources: Sequence[Fileset], schemas: Sequence[ColumnSchema | None]) -> None:
    """Refuse names that are no columns, other time columns than those of the watermarks, and several zones.

    Also columns that cannot be times. `schemas` are the columns of the tables, None before their first commit.
    """
    check_names(query.named, _list_columns(query, sources, schemas))
    for source, schema, (table, column) in zip(sources, schemas, query.tables.items(), strict=True):
        if source.watermark is None:
            raise query.locate(NoWatermark(source.qualified_name), table)
        spec = source.watermark
        if column.lower() != spec.column.lower():
            names = (column, spec.column) if query.interval else (f"DESCRIPTOR({column})", f"DESCRIPTOR({spec.column})")
            why = f"the watermark of {source.qualified_name} is for {spec.column}: {names[0]} must be {names[1]}"
            raise query.locate(UserError(why), f"{TIME_OF}{table}")
        if schema is not None and (fault := spec.find_column_fault(schema.types)):
            raise query.locate(BadTimeColumn(source.qualified_name, spec.column, fault), table)
    zones = {source.qualified_name: spec_of(source).window_zone.name for source in sources}
    if len({*zones.values()}) > 1:
        shown = ", ".join(f"{table} in {zone}" for table, zone in zones.items())
        why = f"the windows of a query lie in one zone, not {shown}: set window.time-zone"
        raise query.locate(UserError(why), [*query.tables][-1])


def check_sessions(query: WindowQuery, sources: Sequence[Fileset]) -> None:
    """Refuse tables whose sessions would depend on the order in which partitions come, and a gap that is too long."""
    sessions = query.shape.sessions
    for source, table in zip(sources, query.tables, strict=True) if sessions else ():
        spec = spec_of(source)
        assert sessions is not None, "it is a query over sessions"  # noqa: S101
        if sessions.gap >= spec.session_max:
            why = (
                f"the gap of SESSION must be shorter than the longest session of {source.qualified_name}, "
                f"'{SESSION_MAX}'='{format_duration(timedelta(microseconds=spec.session_max))}'"
            )
            raise query.locate(UserError(why), table)
        if spec.late in {LatePolicy.DROP, LatePolicy.SIDE} or spec.allowed_lateness is not None:
            why = (
                f"SESSION needs late='recompute' or 'error' without allowed_lateness on {source.qualified_name}: a "
                "late row may join sessions that are published, and then all of them are computed again"
            )
            raise query.locate(UserError(why), table)
        if spec.partial_first is PartialFirst.SKIP:
            why = (
                f"SESSION needs partial_first='emit' on {source.qualified_name}: no session has a begin that is known "
                "before its rows"
            )
            raise query.locate(UserError(why), table)


def find_passed(
    db: Db,
    snapshot: Snapshot,
    query: WindowQuery,
    sources: Sequence[Fileset],
    waiting: Iterable[Stored],
    computed: Instant | None = None,
) -> Instant | None:
    """Return the time up to which the windows of a query are closed by what `snapshot` sees; None for no such time.

    Tables with windows on demand hold no window open. Of such tables alone, the windows of all `waiting` partitions
    are closed, and those up to `computed`.
    """
    inputs: list[QueryInput] = []
    for source, reach in zip(sources, query.reaches, strict=True):
        if not is_on_demand(source):
            value = value_at(db, source.dataset_id, snapshot.write_pointer)
            closed = None if value is None else reach.closed_by(spec_of(source).window_zone, value)
            inputs.append(read_input(db, source, closed))
    if inputs:
        return find_least(inputs, db.now())
    grid, last = make_grid(query, sources), max(waiting, key=lambda one: one.ends, default=None)
    touched = [] if last is None else grid.touched(last.begins, last.ends)
    return max(map(grid.closes, touched), default=computed)


def find_first(db: Db, sources: Sequence[Fileset], reaches: Sequence[WindowReach]) -> Instant | None:
    """Return the time before which windows are left out, since a table has no rows of earlier times; None for none."""
    found = []
    for source, reach in zip(sources, reaches, strict=True):
        first = find_first_begin(db, source.dataset_id)
        if spec_of(source).partial_first is PartialFirst.SKIP and first is not None:
            found.append(Instant(first + reach.before))
    return max(found, default=None)


def _show_partition(source: Fileset, key: KeyText, *, among: int) -> str:
    """Return a partition as people read it, with its table if a query reads several."""
    shown = source.show(key)
    return shown if among == 1 else f"{source.qualified_name} {shown}"


def _to_postpone(look: _Look, tries: Tries) -> dict[Window, WindowFailed]:
    """Return the windows that this run postpones.

    A postponed window that was not tried keeps its place in the queue.
    """
    known = {*look.postponed}
    return tries.failed | {one: error for one, error in tries.untried.items() if one not in known}


def _is_passed(grid: Grid, state: WindowState, window: Window) -> bool:
    """Return whether `window` is computed: if such a window is stale, then it is a late one that a run has left."""
    return state.computed is not None and grid.closes(window) <= state.computed


def _find_gone(
    grid: Grid, state: WindowState, computed: Instant | None, stale: Iterable[ComputedWindow], kept: AbstractSet[Window]
) -> dict[Window, WritePointer]:
    """Return the stale windows of the time before a reset that no later run computes.

    A window of another size or offset goes at once. A row of the output may name one bound alone: a later run would
    take the row for one of a new window with the same bound. The others go when a run passes them.
    """
    if computed is None:
        return {}
    return {
        one.window: one.write_pointer
        for one in stale
        if one.window not in kept
        and not _is_passed(grid, state, one.window)
        and (not grid.shape.has(one.window) or grid.closes(one.window) <= computed)
    }


def _not_before(open_from: Instant | None, partitions: Iterable[Stored]) -> list[Stored]:
    """Return the partitions without the computed windows, which a long interval has by the thousand."""
    return [one if open_from is None else one._replace(begins=max(one.begins, open_from)) for one in partitions]


def _count_needed(source: Fileset, grid: Grid, limits: Limits) -> tuple[int, int]:
    """Return how many changes of partitions a run with these limits reads first, and of how many times.

    If the times follow each other, these are all that it needs, and those of one more window, by which the run sees
    that work is left. Else it reads more.
    """
    interval = spec_of(source).partition_time.interval.longest // timedelta(microseconds=1)
    changes = limits.partitions + -(-(grid.shape.size + grid.shape.slide) // interval)
    return changes, -(-(limits.windows + 1) * grid.shape.slide // interval)


def _list_dirty(
    db: Db,
    source: Fileset,
    tx: Snapshot,
    state: WindowState,
    final: Instant | None,
    noted: Mapping[KeyText, Stretches],
    read_now: Sequence[OutsideTimes],
) -> list[Dirty]:
    """List the changes of a source for which windows are computed again, or which are an error.

    Rows outside their partition have their times of before (`noted`) and of after.
    """
    spec = spec_of(source)
    if state.computed is None or spec.late not in {LatePolicy.RECOMPUTE, LatePolicy.ERROR}:
        return []
    final = final if spec.late is LatePolicy.RECOMPUTE else None
    dirty = list_dirty(db, source, tx, state.seen, final)
    if not includes_outside(source):
        return dirty
    # Partitions that no earlier run could read have commits that the program has seen.
    missed = [
        Dirty(state.seen, *stretch, final)
        for one in read_now
        if one.missed_since is not None
        for stretch in one.stretches
    ]
    changed = list_changed(db, source, tx, state.seen, final, [noted, present_stretches(noted, read_now)])
    return dirty + missed + changed


def _find_final(spec: WatermarkSpec, state: WindowState, left: Instant | None) -> Instant | None:
    """Return the time up to which windows close that late rows change no more; None for no such time.

    `left` is the first time at which a late window closes that an earlier run has left. Late rows of that window still
    change it.
    """
    if spec.final_after is None or state.computed is None:
        return None
    final = state.computed - spec.final_after
    return Instant(final if left is None or spec.late is not LatePolicy.RECOMPUTE else min(final, left - 1))


def _show_windows(rows: str, column: str, tables: Sequence[str], _: Columns) -> str:
    """Return what a definition has in the place of windows of `rows`."""
    return rows if rows == f"<{tables[0]}>" else f"<windows of {column} of {rows}>"


def _show(window: Window) -> str:
    return f"[{from_wall(window.start)}, {from_wall(window.end)})"


def _merged(spans: Iterable[tuple[Instant, Instant]]) -> list[tuple[Instant, Instant]]:
    """Stretches of instants, those that touch as one."""
    merged: list[tuple[Instant, Instant]] = []
    for begins, ends in sorted(spans):
        if merged and begins <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], ends)
        else:
            merged.append((begins, ends))
    return merged


def spec_of(source: Fileset) -> WatermarkSpec:
    """Return the watermark of a table; `NoWatermark` if it has none."""
    if source.watermark is None:
        raise NoWatermark(source.qualified_name)
    return source.watermark
