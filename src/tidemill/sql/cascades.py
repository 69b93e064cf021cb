"""Window programs into a table whose watermark follows them: refusals, and the effects of their commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemill.catalog.effects import Effect
from tidemill.errors import UserError
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.cascade import MoveOutput, OutputReach, find_changed
from tidemill.lake.window.watermark import FollowWindows
from tidemill.lake.window.window_plan import Grid
from tidemill.lake.window.windows import MoveWindows
from tidemill.shapes.partition_time import Zone
from tidemill.shapes.watermark_spec import (
    ALLOWED,
    COMPLETENESS,
    EXPECTED,
    EXPECTED_COUNT,
    GAP,
    LATE,
    PARTIAL_FIRST,
    ZONE,
    LatePolicy,
    PartialFirst,
)
from tidemill.sql.windows import WindowQuery

_OF_PARTITIONS: Final = (GAP, EXPECTED_COUNT, COMPLETENESS, ALLOWED)


def check_output(query: WindowQuery, sink: Fileset, zone: Zone) -> None:
    """Refuse a watermark of the output that cannot follow the windows of `query`, which lie in `zone`."""
    spec = sink.watermark
    if spec is None or not spec.enabled or not spec.follows_windows:
        return
    name, column = sink.qualified_name, spec.column.lower()
    follows = f"the watermark of {name} is for {column}, so it follows this program"
    if query.interval is not None and column not in query.times:
        advice = f"SELECT {query.interval.time} AS window_time"
        raise UserError(f"{follows}: rows of an interval join have no {column}; {advice}")
    if column == "window_start" and zone.name != "UTC":
        raise UserError(f"{follows}: window_start has no time zone, so the windows must lie in UTC; use window_time")
    if column not in query.times:
        raise UserError(f"{follows}: SELECT {column} unchanged, also name it in GROUP BY")
    if spec.partition_time.zone != zone:
        raise UserError(
            f"{follows}: set '{ZONE}' of {name} to the zone of the windows, '{zone.name}', not "
            f"'{spec.partition_time.zone.name}'"
        )
    useless = [option for option in spec.options if option in _OF_PARTITIONS or option.startswith(EXPECTED)]
    if spec.partial_first is PartialFirst.SKIP:
        useless.append(PARTIAL_FIRST)
    if useless:
        raise UserError(f"{follows}, and not its partitions: leave out '{useless[0]}'='{spec.options[useless[0]]}'")
    if spec.late not in {LatePolicy.RECOMPUTE, LatePolicy.ERROR}:
        raise UserError(
            f"{follows}: a window that is computed again replaces rows, which '{LATE}'='{spec.late}' would count "
            "twice; use recompute or error"
        )


def follow_output(moved: MoveWindows, sink: Fileset, grid: Grid, *, of_rows: bool) -> Sequence[Effect]:
    """Return what the commit that moves the state of a window program does to the watermark of its output.

    `of_rows` is that of `OutputReach.of`.
    """
    reach = OutputReach.of(grid, moved.computed, of_rows=of_rows)
    changed = find_changed(grid, sink, moved.new, (*moved.again, *moved.gone), of_rows=of_rows)
    return MoveOutput(moved.state.program_id, sink, reach, changed), FollowWindows(sink, moved.tx.run_id)
