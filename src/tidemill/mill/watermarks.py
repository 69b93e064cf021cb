"""Watermarks and windows, as `Mill` offers them. Times are shown on the wall clock of the file set's zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.catalog.db import Db
from tidemill.errors import NotFound, UserError
from tidemill.lake.datasets import Dataset, find_by_id
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.partition_time import Instant, Zone, from_wall, to_wall
from tidemill.lake.window.retries import forget_failures, list_failures
from tidemill.lake.window.watermark import (
    EARLIEST,
    AdvanceWatermark,
    WatermarkRow,
    find_next_slot,
    find_watermark,
    list_holders,
    list_holes,
    list_incomplete,
    list_moves,
    list_parked,
    list_watermarks,
    rewind_watermark,
)
from tidemill.lake.window.watermark_spec import WatermarkSpec
from tidemill.lake.window.windows import (
    WindowState,
    find_state,
    list_results,
    list_states,
    read_left_out,
    reset_windows,
)
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun
from tidemill.names import ProgramId

_FEW = 20


class BadTime(UserError):
    """A time that cannot be read."""

    code = "bad_wall_time"

    def __init__(self, given: str) -> None:
        self.given = given
        super().__init__(f"time {given!r} is refused: write it on the file set's wall clock, as '2021-03-19 11:00'")


@dataclass(frozen=True, slots=True)
class Rewound:
    """A rewind of a watermark by hand: where W stands, and the window programs whose windows are open again."""

    watermark: str
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WatermarkView:
    """Where the watermark of a file set stands; `reaches` is where it would stand with nobody in its way."""

    dataset: str
    watermark: str | None
    reaches: str | None
    zone: str
    column: str
    held_by: tuple[int, ...]
    programs: tuple[str, ...]


class Watermarks(Noun):
    """Operations on watermarks and window programs."""

    noun = "watermark"

    @operation(Right.READ)
    def list(self) -> Sequence[WatermarkView]:
        """List all watermarks by the names of their file sets."""

        def block(db: Db) -> Sequence[WatermarkView]:
            found = [(Fileset.of(find_by_id(db, row.dataset_id)), row) for row in list_watermarks(db)]
            return [_view(db, fileset, row) for fileset, row in sorted(found, key=lambda one: one[0].qualified_name)]

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, name: str) -> dict[str, object]:
        """Return a watermark with its options, last moves, holders, missing partitions and window programs."""

        def block(db: Db) -> dict[str, object]:
            fileset, spec, row = self._find(db, name)
            zone, dataset_id = spec.partition_time.zone, fileset.dataset_id
            view = _view(db, fileset, row)
            return {
                "dataset": view.dataset,
                "watermark": view.watermark,
                "reaches": view.reaches,
                "zone": view.zone,
                "column": view.column,
                "options": dict(spec.options),
                "moves": [
                    {
                        "from": _shown(move.previous, zone),
                        "to": _shown(move.value, zone),
                        "cause": move.cause,
                        "commit_seq": move.commit_seq,
                        "moved_at": move.at,
                    }
                    for move in list_moves(db, dataset_id, _FEW)
                ],
                "held_by": [
                    {"write_pointer": one.write_pointer, "run_id": one.run_id, "began_at": one.began_at}
                    for one in list_holders(db, dataset_id)
                ],
                "incomplete": [
                    {"slot": str(from_wall(time)), "have": number, "of": spec.expected_count}
                    for time, number in list_incomplete(db, dataset_id, _FEW)
                ],
                "holes": [str(from_wall(time)) for time in list_holes(db, dataset_id, _FEW)],
                "parked": [fileset.show(key) for key in list_parked(db, fileset, _FEW)],
                "programs": [
                    _program_view(db, state, fileset, spec.window_zone) for state in list_states(db, dataset_id)
                ],
            }

        return self._catalog.read(block)

    @operation(Right.OPERATE)
    def advance(self, name: str, to: str) -> str:
        """Move a watermark forward to a wall-clock time of its zone, and return where it stands.

        Partitions of earlier times that come later are late. The move is recorded with the user's name.
        `WatermarkPassed` when the watermark stands there already.
        """
        fileset, spec, _ = self._catalog.read(lambda db: self._find(db, name))
        zone = spec.partition_time.zone
        value = zone.closes(_parse(to))
        next_time = self._catalog.read(lambda db: find_next_slot(db, fileset, value))
        note = self._note("advance", fileset.qualified_name, to=to)
        self._catalog.apply([AdvanceWatermark(fileset, value, self._by_hand(), next_time), note])
        return _shown(value, zone) or ""

    @operation(Right.OPERATE)
    def rewind(self, name: str, to: str) -> Rewound:
        """Move a watermark back to a wall-clock time of its zone, and open the windows that end after that time.

        The counterpart of `advance`, recorded in the same way. The watermark passes that time when a commit
        brings partitions beyond it. What window programs have published stays until it is replaced. `NotAhead` when
        the watermark has not passed that time.
        """

        def block(db: Db) -> Rewound:
            db.tick()
            fileset, spec, _ = self._find(db, name)
            zone = spec.partition_time.zone
            value = zone.closes(_parse(to))
            programs = rewind_watermark(db, fileset, value, self._by_hand())
            self._note("rewind", fileset.qualified_name, to=to).write(db)
            return Rewound(_shown(value, zone) or "", programs)

        return self._catalog.write(block)

    @operation(Right.OPERATE)
    def reset(self, program: str, to: str | None = None) -> str | None:
        """Have a window program (`app.program`) compute again the windows that end after `to`, or all windows.

        Returns the time up to which it has computed then. Published windows stay until they are replaced.
        """

        def block(db: Db) -> str | None:
            db.tick()
            found = self._project.program(db, program)
            state = find_state(db, found.program_id)
            if state is None:
                raise NotFound("window program", found.qualified_name, hint="`tidemill watermark list` shows them")
            zone = self._zone_of(db, state)
            computed = None if to is None else zone.closes(_parse(to))
            if computed is not None and (state.computed is None or computed > state.computed):
                raise BadTime(f"{to} (it has computed up to {_shown(state.computed, zone)})")
            upto = None if to is None else to_wall(_parse(to))
            reset_windows(db, state, computed, upto, self._by_hand())
            forget_failures(db, state.program_id, EARLIEST if upto is None else upto)
            self._note("reset", found.qualified_name, to=to).write(db)
            return _shown(computed, zone)

        return self._catalog.write(block)

    def _zone_of(self, db: Db, state: WindowState) -> Zone:
        source = Fileset.of(find_by_id(db, state.dataset_id))
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


def _view(db: Db, fileset: Fileset, row: WatermarkRow) -> WatermarkView:
    spec = fileset.watermark
    assert spec is not None, "what has a row is declared"  # noqa: S101
    zone = spec.partition_time.zone
    return WatermarkView(
        fileset.qualified_name,
        _shown(row.value, zone),
        _shown(row.target, zone),
        zone.name,
        spec.column,
        tuple(one.write_pointer for one in list_holders(db, fileset.dataset_id)),
        tuple(state.name for state in list_states(db, fileset.dataset_id)),
    )


def _program_view(db: Db, state: WindowState, source: Fileset, zone: Zone) -> dict[str, object]:
    latest = list_results(db, ProgramId(state.program_id), _FEW)
    left_out = read_left_out(db, state.program_id, _FEW)
    return {
        "program": state.name,
        "computed": _shown(state.computed, zone),
        "latest": [
            {"window": f"[{from_wall(one.start)}, {from_wall(one.end)})", "write_pointer": pointer, "stale": stale}
            for one, pointer, stale in latest
        ],
        "left_out": {
            "partitions": left_out.partitions,
            "late_rows": left_out.late_rows,
            "outside_rows": left_out.outside_rows,
            "some": [
                {"partition": source.show(key), "late_rows": late, "outside_rows": outside, "counted_at": at}
                for key, late, outside, at in left_out.some
            ],
        },
        "failing": [
            {
                "window": f"[{from_wall(one.window.start)}, {from_wall(one.window.end)})",
                "reason": one.reason,
                "partitions": list(one.partitions),
                "since_at": one.since,
                "tried_at": one.tried_at,
            }
            for one in list_failures(db, state.program_id, _FEW)
        ],
    }


def _shown(instant: Instant | None, zone: Zone) -> str | None:
    return None if instant is None else str(zone.local(instant))


def _parse(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadTime(text) from None
    if time.tzinfo is not None:
        raise BadTime(text)
    return time
