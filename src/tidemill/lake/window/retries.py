"""Retries of windows: windows of a run that did not publish, and windows that could not be computed.

The messages that started the run are used up, and the watermark may never move again. So without a retry no later
message would start a run for these windows. The state of a window program has the time at which the keeper announces
the waiting windows. A commit after which no window waits deletes that time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.lake.backlog import Backlog, Postpone
from tidemill.lake.window.window_plan import MARGIN, Window
from tidemill.lake.window.windows import SQL as WINDOW_SQL
from tidemill.lake.window.windows import to_rows
from tidemill.names import ProgramId
from tidemill.shapes.partition_time import WallTime

if TYPE_CHECKING:
    from tidemill.lake.window.retries_sql import Sql

SQL: Sql = load_sql(__file__)

WINDOWS: Final = Backlog(
    phase=Phase.CLAIMS,
    publish=partial(WINDOW_SQL.publish_closed, margin=MARGIN),
    postpone=SQL.postpone,
    find_next_due=SQL.find_next_due,
    find_due=SQL.find_due,
    clear_due=SQL.clear_due,
    rearm=SQL.rearm,
)
"""Windows that are closed and not published, or out of date, by the ids of window programs; none of other programs."""

_AGAIN: Final = timedelta(minutes=1)
"""Shortest wait before a postponed window is retried."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that was postponed, with the partitions that it could not be computed from."""

    window: Window
    reason: str
    partitions: tuple[str, ...]
    since: datetime | None = None
    tried_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NotePostponed(Effect):
    """Note in the commit of a run which windows it could not compute, to be tried again, and which it could at last.

    Stands after `MoveWindows`, which takes back when to try again.
    """

    phase = Phase.CLAIMS

    program_id: ProgramId
    failures: Sequence[Failure]
    mended: Sequence[Window]
    left: bool
    """Other windows of the program are postponed, and this run has not tried them."""

    def writes(self) -> Sequence[Call]:
        """The windows, and when they are tried again."""
        one: dict[str, Param] = {"program_id": self.program_id}
        calls = []
        if self.mended:
            calls.append(SQL.forget_failures(**one, windows=to_rows(self.mended)))
        if self.failures:
            rows = [
                {
                    "window_start": failure.window.start,
                    "window_end": failure.window.end,
                    "reason": failure.reason,
                    "partitions": json.dumps(failure.partitions),
                }
                for failure in self.failures
            ]
            calls.append(SQL.note_failures(**one, failures=json.dumps(rows)))
        if self.failures or self.left:
            calls += Postpone(WINDOWS, [self.program_id], _AGAIN).writes()
        return calls


def forget_failures(db: Db, program_id: ProgramId, from_end: int) -> None:
    """Forget the postponed windows that end after `from_end`. A reset plans these windows again."""
    db.run(SQL.forget_failures_after, program_id=program_id, from_end=from_end)


def list_failures(db: Db, program_id: ProgramId, limit: int) -> list[Failure]:
    """The windows that are postponed; those that were tried longest ago come first."""
    rows = db.records(
        SQL.list_failures,
        tuple[WallTime, WallTime, str, tuple[str, ...], datetime, datetime],
        program_id=program_id,
        limit=limit,
    )
    return [
        Failure(Window(start, end), reason, partitions, since, tried_at)
        for start, end, reason, partitions, since, tried_at in rows
    ]


def list_postponed(db: Db, program_id: ProgramId, limit: int) -> list[Window]:
    """List the postponed windows. The ones that were tried longest ago come first."""
    rows = db.records(SQL.list_postponed, tuple[WallTime, WallTime], program_id=program_id, limit=limit)
    return [Window(*row) for row in rows]
