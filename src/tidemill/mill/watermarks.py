"""Watermarks and windows, as `Mill` offers them. Times are shown on the wall clock of the file set's zone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tidemill.catalog.db import Db, write_effects
from tidemill.durations import parse_duration
from tidemill.epoch import to_micros
from tidemill.errors import NotFound, UserError
from tidemill.lake.datasets import Dataset, find_by_id, find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.advice import advise
from tidemill.lake.window.cascade import list_followed
from tidemill.lake.window.holding import list_awaited, list_holding
from tidemill.lake.window.parked import explain_parked
from tidemill.lake.window.reopening import reset_program
from tidemill.lake.window.retries import list_failures
from tidemill.lake.window.watermark import (
    AdvanceWatermark,
    WatermarkRow,
    find_next_slot,
    find_watermark,
    list_holes,
    list_incomplete,
    list_moves,
    list_parked,
    list_watermarks,
    rewind_watermark,
)
from tidemill.lake.window.window_plan import Window
from tidemill.lake.window.windows import (
    WindowState,
    find_state,
    list_inputs,
    list_results,
    list_states,
    read_left_out,
    set_definition,
)
from tidemill.mill.access import Access
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, BadPage, Page, cut, one_more, read_key, write_key
from tidemill.mill.project import Noun
from tidemill.mill.slots import SlotView, list_newest_slots
from tidemill.names import DatasetId, Namespace, ProgramId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Instant, Zone, from_wall, to_wall
from tidemill.shapes.watermark_spec import WatermarkSpec

MOST_LISTED: Final = 20
"""The most windows, partitions and slots of each kind that the record of a watermark has."""
_MOST_SLOTS = 1001
_KEEPS: Final = (
    "the program has computed up to {}, and keeps that: the next deployment may change its query, or the column or the "
    "outside policy of its table. Published windows stay as they are. If a late partition comes, the new query "
    "computes the windows that it touches"
)


class BadTime(UserError):
    """A time that cannot be read."""

    code = "bad_wall_time"

    def __init__(self, given: str) -> None:
        self.given = given
        super().__init__(
            f"time {given!r} is refused", "write it on the file set's wall clock, as '2021-03-19 11:00'", before=": "
        )


class KeepsAll(UserError):
    """A reset that keeps the state of a window program, and is to compute windows again."""

    code = "keeps_all"

    def __init__(self, to: str) -> None:
        self.to = to
        super().__init__(
            f"a reset with keep_state computes no window again, but to={to!r} asks for that",
            "leave one of the two out",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class MovedWatermark:
    """An advance of a watermark by hand: where W stands. `changed` is false if W stood there already."""

    dataset: str
    watermark: str
    changed: bool


@dataclass(frozen=True, slots=True)
class ResetProgram:
    """A reset of a window program: the time up to which it has computed now, None for nothing.

    `consequence` says in words what the reset means for published windows.
    """

    program: str
    computed: str | None
    consequence: str


@dataclass(frozen=True, slots=True)
class Rewound:
    """A rewind of a watermark by hand: where W stands, and the window programs whose windows are open again."""

    dataset: str
    watermark: str
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WatermarkView:
    """Watermark of a file set. `reaches` is the value that it has once no transaction holds it."""

    dataset: str
    watermark: str | None
    reaches: str | None
    zone: str
    column: str
    held_by: tuple[int, ...]
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveView:
    """A move of a watermark; `cause` is a run, the keeper, or an actor."""

    before: str | None
    after: str | None
    cause: str
    commit_seq: int
    moved_at: datetime


@dataclass(frozen=True, slots=True)
class HolderView:
    """An open transaction that holds a watermark."""

    write_pointer: int
    run_id: str
    began_at: datetime


@dataclass(frozen=True, slots=True)
class IncompleteView:
    """A time slot that waits for more partitions: it has `have` of `of`."""

    slot: str
    have: int
    of: int


@dataclass(frozen=True, slots=True)
class WindowView:
    """A window that was computed; `stale` if a late partition asks for it again."""

    window: str
    write_pointer: int
    stale: bool


@dataclass(frozen=True, slots=True)
class LeftOutPartition:
    """A partition of which rows are left out of windows.

    `late_rows` of `late="drop"` are all rows that came late, of which some may count in an open window.
    """

    partition: str
    late_rows: int
    outside_rows: int
    counted_at: datetime


@dataclass(frozen=True, slots=True)
class LeftOutView:
    """The rows that a window program left out: the sums, and some of the partitions."""

    partitions: int
    late_rows: int
    outside_rows: int
    some: tuple[LeftOutPartition, ...]


@dataclass(frozen=True, slots=True)
class PostponedWindow:
    """A window that could not be computed, and is retried."""

    window: str
    reason: str
    partitions: tuple[str, ...]
    since_at: datetime | None
    tried_at: datetime | None


@dataclass(frozen=True, slots=True)
class OtherInput:
    """Another table that a window program reads, and its watermark."""

    dataset: str
    watermark: str | None


@dataclass(frozen=True, slots=True)
class ProgramView:
    """A window program: how far it has computed, its latest windows, what it left out, and postponed windows."""

    program: str
    computed: str | None
    others: tuple[OtherInput, ...]
    """The other tables that the program reads. Its windows wait for them too."""
    latest: tuple[WindowView, ...]
    left_out: LeftOutView
    postponed: tuple[PostponedWindow, ...]


@dataclass(frozen=True, slots=True)
class ParkedView:
    """A partition whose key has no time that can be read, and the reason, as the answering process finds it."""

    partition: str
    why: str


@dataclass(frozen=True, slots=True)
class WatermarkDetail:
    """A watermark with its options, last moves, holders, missing partitions and window programs.

    `waits_for` has the slots that the watermark has not passed because partitions of them are not there.
    """

    dataset: str
    watermark: str | None
    reaches: str | None
    zone: str
    column: str
    options: Mapping[str, str]
    moves: tuple[MoveView, ...]
    held_by: tuple[HolderView, ...]
    follows: tuple[str, ...]
    """The window programs that write the file set, if the watermark follows them and not the partitions."""
    waits_for: tuple[IncompleteView, ...]
    incomplete: tuple[IncompleteView, ...]
    holes: tuple[str, ...]
    parked: tuple[ParkedView, ...]
    advice: tuple[str, ...]
    """Sentences about a declaration that fits badly to the partitions that come."""
    programs: tuple[ProgramView, ...]


class Watermarks(Noun):
    """Operations on watermarks and window programs."""

    noun = "watermark"

    @operation(Right.READ)
    def list(
        self,
        *,
        app: str | None = None,
        behind: str | timedelta | None = None,
        limit: int = PAGE,
        after: str = "",
    ) -> Page[WatermarkView]:
        """List watermarks by the names of their file sets: all, or those that fit each filter.

        `app` has the file set. `behind` is a duration: a watermark fits that is earlier than that time ago, or has no
        value yet. `BadDuration`, `NotFound`. Cost: the page; with `app` the data sets of its namespace; with `behind`
        the watermarks between those of the page.
        """
        place = read_key(after, ("", ""))
        delay = None if behind is None else parse_duration(behind)

        def find_app(db: Db, name: str) -> tuple[Namespace, str] | None:
            from tidemill.mill.apps import find_app_named

            return find_app_named(self._project, db, name)

        def block(db: Db) -> Page[WatermarkView]:
            of_app = None if app is None else find_app(db, app)
            before = None if delay is None else Instant(to_micros(db.now()) - delay // timedelta(microseconds=1))
            by_id: dict[DatasetId, Dataset] = {}

            def names(rows: Sequence[WatermarkRow]) -> Sequence[str | None]:
                by_id.update(find_some(db, (row.dataset_id for row in rows)))
                return [by_id[row.dataset_id].namespace for row in rows]

            def place_of(row: WatermarkRow) -> tuple[str, str]:
                return by_id[row.dataset_id].namespace, by_id[row.dataset_id].name

            found = self._rows(
                lambda place, most: list_watermarks(db, app=of_app, before=before, after=place, limit=most),
                place,
                limit,
                place_of,
                names,
                by_namespace=True,
            )
            names(found)

            def key(row: WatermarkRow) -> str:
                return write_key(by_id[row.dataset_id].namespace, by_id[row.dataset_id].name)

            access = self._project.access
            return cut(found, limit, key, lambda row: _view(db, Fileset.of(by_id[row.dataset_id]), row, access))

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, name: str) -> WatermarkDetail:
        """Return a watermark with its options, last moves, holders, missing partitions and window programs."""

        def block(db: Db) -> tuple[WatermarkDetail, Fileset, list[KeyText]]:
            fileset, spec, row = self._find(db, name)
            zone, dataset_id = spec.partition_time.zone, fileset.dataset_id
            access = self._project.access
            view = _view(db, fileset, row, access)
            detail = WatermarkDetail(
                view.dataset,
                view.watermark,
                view.reaches,
                view.zone,
                view.column,
                dict(spec.options),
                moves=tuple(
                    MoveView(
                        _shown(move.previous, zone), _shown(move.value, zone), move.cause, move.commit_seq, move.at
                    )
                    for move in list_moves(db, dataset_id, MOST_LISTED)
                ),
                held_by=tuple(
                    HolderView(one.write_pointer, one.run_id, one.began_at) for one in list_holding(db, spec, row)
                ),
                waits_for=tuple(
                    IncompleteView(str(from_wall(time)), number, spec.expected_count)
                    for time, number in list_awaited(db, spec, row, MOST_LISTED)
                ),
                follows=tuple(one for one in list_followed(db, fileset) if access.sees_name(one)),
                incomplete=tuple(
                    IncompleteView(str(from_wall(time)), number, spec.expected_count)
                    for time, number in list_incomplete(db, dataset_id, MOST_LISTED)
                ),
                holes=tuple(str(from_wall(time)) for time in list_holes(db, dataset_id, MOST_LISTED)),
                parked=(),
                advice=tuple(advise(db, fileset)),
                programs=tuple(
                    _program_view(db, state, fileset, spec.window_zone, access)
                    for state in list_states(db, dataset_id)
                    if access.sees_name(state.name)
                ),
            )
            return detail, fileset, list_parked(db, fileset, MOST_LISTED)

        detail, fileset, keys = self._catalog.read(block)
        # The function of a custom extractor may take its time: it is not called while the catalog is read.
        parked = tuple(ParkedView(shown, why) for shown, why in explain_parked(fileset, keys).items())
        return replace(detail, parked=parked)

    @operation(Right.READ)
    def slots(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[SlotView]:
        """List the time slots of a watermark, newest first: complete, late, incomplete or missing.

        The list begins with the newest slot that counts, and goes on to the first one. Cost: the page.
        """
        (upto,) = read_key(after, (0,))
        most = min(one_more(limit), _MOST_SLOTS)

        def block(db: Db) -> Page[SlotView]:
            fileset, spec, row = self._find(db, name)
            try:
                place = from_wall(upto) if after else None
            except OverflowError:
                raise BadPage("after", after) from None
            found = list_newest_slots(db, fileset, spec, row.value, most, place)
            shown = found[: most - 1]
            more = len(found) > len(shown)
            return Page(tuple(shown), write_key(to_wall(datetime.fromisoformat(shown[-1].slot))) if more else None)

        return self._catalog.read(block)

    @operation(Right.OPERATE, in_block=True)
    def advance(self, name: str, to: str) -> MovedWatermark:
        """Move a watermark forward to a wall-clock time of its zone.

        Partitions of earlier times that come later are late. The move is recorded with the user's name. No effect on
        a watermark that stands there. `WatermarkThere` when the watermark is beyond that time.
        """

        def block(db: Db) -> MovedWatermark:
            db.tick()
            fileset, spec, row = self._find(db, name)
            zone = spec.partition_time.zone
            value = zone.closes(_parse(to))
            changed = row.value != value
            if changed:
                move = AdvanceWatermark(fileset, value, self._by_hand(), find_next_slot(db, fileset, value))
                note = self._note("advance", fileset.qualified_name).between(*_places(row.value, value, zone))
                write_effects(db, [move, note])
            return MovedWatermark(fileset.qualified_name, _shown(value, zone) or "", changed)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def rewind(self, name: str, to: str) -> Rewound:
        """Move a watermark back to a wall-clock time of its zone, and open the windows that end after that time.

        The counterpart of `advance`, recorded in the same way. The watermark passes that time when a commit
        brings partitions beyond it. What window programs have published stays until it is replaced. `NotAhead` when
        the watermark has not passed that time.
        """

        def block(db: Db) -> Rewound:
            db.tick()
            fileset, spec, row = self._find(db, name)
            zone = spec.partition_time.zone
            value = zone.closes(_parse(to))
            programs = rewind_watermark(db, fileset, value, self._by_hand())
            shown = tuple(one for one in programs if self._project.access.sees_name(one))
            self._note("rewind", fileset.qualified_name).between(*_places(row.value, value, zone)).write(db)
            return Rewound(fileset.qualified_name, _shown(value, zone) or "", shown)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def reset(self, program: str, to: str | None = None, *, keep_state: bool = False) -> ResetProgram:
        """Have a window program (`app.program`) compute again the windows that end after `to`, or all windows.

        Published windows stay until they are replaced. With `keep_state` no window is computed again: the next
        deployment may bring another query, which computes the windows from then on. `KeepsAll` for `keep_state` with
        `to`.
        """
        if keep_state and to is not None:
            raise KeepsAll(to)

        def block(db: Db) -> ResetProgram:
            db.tick()
            found = self._project.program(db, program)
            state = find_state(db, found.program_id)
            if state is None:
                raise NotFound("window program", found.qualified_name, hint="`tidemill watermark list` shows them")
            zone = self._zone_of(db, state)
            computed = None if to is None else zone.closes(_parse(to))
            if computed is not None and (state.computed is None or computed > state.computed):
                raise BadTime(f"{to} (it has computed up to {_shown(state.computed, zone)})")
            if keep_state:
                set_definition(db, state.program_id, "")
                self._note("keep_state", found.qualified_name).write(db)
                stands = _shown(state.computed, zone)
                return ResetProgram(found.qualified_name, stands, _KEEPS.format(stands or "nothing"))
            upto = None if to is None else to_wall(_parse(to))
            reset_program(db, state, computed, upto, self._by_hand())
            self._note("reset", found.qualified_name).between(*_places(state.computed, computed, zone)).write(db)
            which = "all windows" if to is None else f"the windows that end after {_shown(computed, zone)}"
            said = f"the next runs compute {which} again; published windows stay until they are replaced"
            return ResetProgram(found.qualified_name, _shown(computed, zone), said)

        return self._catalog.write(block)

    def _zone_of(self, db: Db, state: WindowState) -> Zone:
        source = Fileset.of(find_by_id(db, list_inputs(db, state.program_id)[0]))
        return Zone("UTC") if source.watermark is None else source.watermark.window_zone

    def _find(self, db: Db, name: str) -> tuple[Fileset, WatermarkSpec, WatermarkRow]:
        dataset: Dataset = self._project.dataset(db, name)
        fileset = Fileset.of(dataset)
        row = find_watermark(db, fileset.dataset_id)
        if row is None or fileset.watermark is None:
            raise NotFound("watermark", fileset.qualified_name, hint="declare one: watermark=tm.Watermark(…)")
        return fileset, fileset.watermark, row

    def _by_hand(self) -> str:
        return f"by hand: {self._project.actor}"


def _view(db: Db, fileset: Fileset, row: WatermarkRow, access: Access) -> WatermarkView:
    spec = fileset.watermark
    assert spec is not None, "what has a row is declared"  # noqa: S101
    zone = spec.partition_time.zone
    return WatermarkView(
        fileset.qualified_name,
        _shown(row.value, zone),
        _shown(row.target, zone),
        zone.name,
        spec.column,
        tuple(one.write_pointer for one in list_holding(db, spec, row)),
        tuple(state.name for state in list_states(db, fileset.dataset_id) if access.sees_name(state.name)),
    )


def _program_view(db: Db, state: WindowState, source: Fileset, zone: Zone, access: Access) -> ProgramView:
    left_out = read_left_out(db, state.program_id, source.dataset_id, MOST_LISTED)
    some = tuple(LeftOutPartition(source.show(key), late, outside, at) for key, late, outside, at in left_out.some)
    return ProgramView(
        state.name,
        _shown(state.computed, zone),
        others=tuple(one for one in _list_others(db, state, source) if access.sees_name(one.dataset)),
        latest=tuple(
            WindowView(_window(one), pointer, stale)
            for one, pointer, stale in list_results(db, ProgramId(state.program_id), MOST_LISTED)
        ),
        left_out=LeftOutView(left_out.partitions, left_out.late_rows, left_out.outside_rows, some),
        postponed=tuple(
            PostponedWindow(_window(one.window), one.reason, tuple(one.partitions), one.since, one.tried_at)
            for one in list_failures(db, state.program_id, MOST_LISTED)
        ),
    )


def _list_others(db: Db, state: WindowState, source: Fileset) -> Iterator[OtherInput]:
    """Yield the inputs of a window program beside `source`, by name."""
    ids = [one for one in list_inputs(db, state.program_id) if one != source.dataset_id]
    for other in sorted(map(Fileset.of, find_some(db, ids).values()), key=lambda one: one.qualified_name):
        row = find_watermark(db, other.dataset_id)
        zone = Zone("UTC") if other.watermark is None else other.watermark.partition_time.zone
        yield OtherInput(other.qualified_name, _shown(row.value, zone) if row else None)


def _window(window: Window) -> str:
    return f"[{from_wall(window.start)}, {from_wall(window.end)})"


def _shown(instant: Instant | None, zone: Zone) -> str | None:
    return None if instant is None else str(zone.local(instant))


def _places(before: Instant | None, after: Instant | None, zone: Zone) -> tuple[Mapping[str, object], ...]:
    """Return two places of a watermark, as the audit log has them."""
    return tuple({"watermark": _shown(one, zone)} for one in (before, after))


def _parse(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadTime(text) from None
    if time.tzinfo is not None:
        raise BadTime(text)
    return time
