"""Cascades: window programs over the output of window programs.

A watermark for `window_time` or `window_start` follows the window programs that write its file set. Their commits say
how far they have come, and of which times they have changed rows. Without the latter, each new hour in the partition
of a day would be late data for all earlier hours of that day.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.window_plan import Grid, Window
from tidemill.names import DatasetId, ProgramId
from tidemill.shapes.partition_time import Instant, from_wall
from tidemill.shapes.watermark_spec import WINDOW_TIME

if TYPE_CHECKING:
    from tidemill.lake.window.cascade_sql import Sql

SQL: Sql = load_sql(__file__)

_MILLISECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class OutputReach:
    """Instants before which no new window has its `window_time`, or its `window_start`; None before the first run."""

    window_time: Instant | None
    window_start: Instant | None

    @classmethod
    def of(cls, grid: Grid, computed: Instant | None, *, of_rows: bool = False) -> OutputReach:
        """Return how far a window program has come that has `computed` its windows up to there.

        With `of_rows` a result has the time of a row of its window, as those of an interval join.
        """
        if computed is None:
            return cls(None, None)
        first = grid.zone.opens(from_wall(grid.first_open(computed)))
        if of_rows:
            return cls(first, first)
        if sessions := grid.shape.sessions:
            # A session that is not published ends at `first` or later, and goes on for `longest` at most.
            return cls(Instant(first - _MILLISECOND), Instant(first - sessions.longest))
        # A window that is not computed ends later than `computed`: by a millisecond, if all windows end with one.
        whole = not any(part % _MILLISECOND for part in (grid.shape.slide, grid.shape.size, grid.shape.offset))
        by_time = computed if whole else Instant(computed - _MILLISECOND)
        return cls(by_time, first)

    @property
    def values(self) -> dict[str, Param]:
        """The columns of a row of the catalog."""
        return {"time_value": self.window_time, "start_value": self.window_start}


@dataclass(frozen=True, slots=True)
class MoveOutput(Effect):
    """Note with a commit of a window program how far its output has come, and the times of the rows it `changed`."""

    phase = Phase.CLAIMS

    program_id: ProgramId
    sink: Fileset
    reach: OutputReach
    changed: Sequence[tuple[int, int]]

    def writes(self) -> Sequence[Call]:
        """The place of the program, and the changed times."""
        calls = [SQL.move_output(program_id=self.program_id, **self.reach.values)]
        if self.changed:
            rows = json.dumps([{"begins": begins, "ends": ends} for begins, ends in self.changed])
            calls.append(SQL.note_changes(dataset_id=self.sink.dataset_id, changes=rows))
        return calls


def find_changed(
    grid: Grid, sink: Fileset, new: Iterable[Window], others: Iterable[Window], *, of_rows: bool = False
) -> list[tuple[int, int]]:
    """Return the instants of the rows of `new` windows, as one stretch, and of each of `others`, by their begin.

    No two have one begin. Empty if the watermark of `sink` follows no windows. `of_rows` is that of `OutputReach.of`.
    """
    if sink.watermark is None or not sink.watermark.follows_windows:
        return []
    by_time = sink.watermark.column.lower() == WINDOW_TIME

    def instants(window: Window) -> tuple[int, int]:
        opens, closes = grid.slots.spans(window)
        if of_rows:
            return opens, closes
        if sessions := grid.shape.sessions:
            return (opens - _MILLISECOND, closes) if by_time else (opens - sessions.longest, closes)
        return (closes - _MILLISECOND, closes) if by_time else (opens, opens + 1)

    stretch = sorted(map(instants, new))
    # Of CUMULATE a new window and one that is computed again may have one begin: the stretch, which is longer, stays.
    found = dict(map(instants, others))
    if stretch:
        found[stretch[0][0]] = max(ends for _, ends in stretch)
    return sorted(found.items())


def put_output(db: Db, program_id: ProgramId, dataset_id: DatasetId, reach: OutputReach) -> None:
    """Register the output of a window program, and how far the program has come."""
    db.run(SQL.put_output, program_id=program_id, dataset_id=dataset_id, **reach.values)


def forget_outputs(db: Db, program_ids: Iterable[ProgramId]) -> None:
    """Forget the outputs of window programs that nothing starts any more: no watermark follows them."""
    db.run(SQL.forget_outputs, program_ids=json.dumps(sorted(program_ids)))


def list_changes(db: Db, dataset_id: DatasetId, seen: int, until: int) -> dict[int, list[tuple[int, int]]]:
    """Return the changed times of the commits `[seen, until)` that have noted them, by commit. Cost: what they are."""
    found: dict[int, list[tuple[int, int]]] = {}
    place: dict[str, Param] = {"dataset_id": dataset_id, "seen": seen, "until": until}
    for commit_seq, begins, ends in db.records(SQL.list_changes, tuple[int, int, int], **place):
        found.setdefault(commit_seq, []).append((begins, ends))
    return found


def forget_changes(source: Fileset) -> Call:
    """Forget the noted times that all window programs over `source` have seen."""
    return SQL.forget_changes(dataset_id=source.dataset_id)


def list_followed(db: Db, fileset: Fileset) -> list[str]:
    """Return the window programs that the watermark of a file set follows, by name."""
    if fileset.watermark is None or not fileset.watermark.follows_windows:
        return []
    return db.records(SQL.list_writers, str, dataset_id=fileset.dataset_id)
