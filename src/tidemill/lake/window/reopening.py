"""Windows that are open again: the watermark of their table has moved back, or its times are read in another way."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.db import Db
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.outside_times import forget_outside
from tidemill.lake.window.reach import WindowReach
from tidemill.lake.window.retries import forget_failures
from tidemill.lake.window.windows import (
    WindowState,
    list_states,
    read_reaches,
    redefine,
    reset_windows,
    set_definition,
)
from tidemill.shapes.partition_time import Instant, WallTime

_EVER: Final = -(1 << 60)


def reset_program(db: Db, state: WindowState, computed: Instant | None, upto: WallTime | None, cause: str) -> None:
    """Reset the windows of a program that end after `upto`, as `reset_windows` does, also those that were postponed."""
    reset_windows(db, state, computed, upto, cause)
    if computed is None:
        forget_outside(db, state.program_id)
    forget_failures(db, state.program_id, _EVER if upto is None else upto)


def reopen_windows(
    db: Db, source: Fileset, computed: Instant | None, upto: WallTime | None, cause: str
) -> tuple[str, ...]:
    """Move all window programs over `source` back to the watermark `computed`; return the names of those beyond it.

    Windows that end after `upto` are replaced when they are computed again. A run that is computing now is refused at
    its commit. After a tick, when the watermark of `source` has moved back or its times are read in another way.
    """
    reopened = []
    for state in list_states(db, source.dataset_id):
        # Windows that end before `computed` may have waited for later rows of the table.
        lag = read_reaches(state.definition).get(source.qualified_name, WindowReach()).lag
        closed = None if computed is None else Instant(computed - lag)
        after = None if upto is None else WallTime(upto - lag)
        goes_back = state.computed is not None and (closed is None or state.computed > closed)
        set_definition(db, state.program_id, redefine(state.definition, [source]))
        reset_program(db, state, closed if goes_back else state.computed, after, cause)
        reopened += [state.name] if goes_back else []
    return tuple(reopened)
