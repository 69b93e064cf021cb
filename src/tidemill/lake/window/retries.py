"""Windows that are tried again: those of a run that did not publish, and those that could not be computed.

Nobody else would speak of them: the messages that started the run are used up, and the watermark may never move again.
So the state of a window program says when the keeper is to announce that there is work left; a commit that leaves
nothing behind takes it back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.durations import to_milliseconds
from tidemill.lake.window.partition_time import WallTime
from tidemill.lake.window.window_plan import Window
from tidemill.lake.window.windows import to_rows
from tidemill.names import ProgramId

if TYPE_CHECKING:
    from tidemill.lake.window.retries_sql import Sql

SQL: Sql = load_sql(__file__)

_AGAIN: Final = timedelta(minutes=1)
"""When windows that were postponed are tried again, at the soonest."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that was postponed, with the partitions that it could not be computed from; times in milliseconds."""

    window: Window
    reason: str
    partitions: tuple[str, ...]
    since: int = 0
    tried_at: int = 0


@dataclass(frozen=True, slots=True)
class PostponeWindows(Effect):
    """Have the keeper announce that a window program has work left, after `wait` at the soonest.

    The longer its runs have failed the later, up to an hour. Of what is no window program it changes nothing.
    """

    phase = Phase.CLAIMS

    program_id: ProgramId
    wait: timedelta

    def writes(self) -> Sequence[Call]:
        """When."""
        params: dict[str, Param] = {"program_id": self.program_id, "wait": max(1, to_milliseconds(self.wait))}
        return (SQL.postpone(**params),)


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
            calls += PostponeWindows(self.program_id, _AGAIN).writes()
        return calls


def forget_failures(db: Db, program_id: ProgramId, from_end: int) -> None:
    """Forget the windows that end after `from_end`, at a reset, by which they are planned anew."""
    db.run(SQL.forget_failures_after, program_id=program_id, from_end=from_end)


def list_failures(db: Db, program_id: ProgramId, limit: int) -> list[Failure]:
    """The windows that are postponed; those that were tried longest ago come first."""
    rows = db.records(
        SQL.list_failures,
        tuple[WallTime, WallTime, str, tuple[str, ...], int, int],
        program_id=program_id,
        limit=limit,
    )
    return [
        Failure(Window(start, end), reason, partitions, since, tried_at)
        for start, end, reason, partitions, since, tried_at in rows
    ]


def list_postponed(db: Db, program_id: ProgramId, limit: int) -> list[Window]:
    """Which windows are postponed; those that were tried longest ago come first."""
    rows = db.records(SQL.list_postponed, tuple[WallTime, WallTime], program_id=program_id, limit=limit)
    return [Window(*row) for row in rows]


def next_due(db: Db) -> int | None:
    """When a window program is to be told of its work again, epoch milliseconds, maybe past; None for never."""
    return db.value(SQL.next_due, int)


def announce_due(catalog: Catalog) -> int:
    """Announce the work of window programs whose time to wait is over; how many. A role calls it."""
    due = [ProgramId(str(row[0])) for row in catalog.read(lambda db: db.all(SQL.find_due))]
    if due:
        catalog.apply([_AnnounceDue(due)])
    return len(due)


@dataclass(frozen=True, slots=True)
class _AnnounceDue(Effect):
    phase = Phase.CLAIMS

    programs: Sequence[ProgramId]

    def writes(self) -> Sequence[Call]:
        params: dict[str, Param] = {"program_ids": json.dumps(self.programs)}
        return SQL.publish_due(**params), SQL.clear_due(**params)
