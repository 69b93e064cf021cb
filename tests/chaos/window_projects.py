"""Projects of the campaign that kills drivers of window programs: hours, sessions, and joins of two tables."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

from tests.sql.conftest import open_windows
from tests.sql.hours import HOP, HOUR, TUMBLE, Plain, SparkHours, open_plain, open_spark_hours
from tests.sql.plain import count, join_counts, to_lines
from tests.sql.sessions import SLOTS, find_sessions
from tests.sql.test_several_inputs import write_join
from tidemill.lake.window.window_plan import Grid

_GAP: Final = 45
_LONGEST: Final = 4
_LIMIT: Final = "max_windows=3"
_RETRIES: Final = 100
_JOINED: Final = """
import tidemill as tm

app = tm.App("shop")
clicks, views = (
    app.fileset(name, keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
        "ts", pattern="$day $hour:00:00", interval="1h", outside="error", {limit}))
    for name in ("clicks", "views"))
hourly = app.fileset("hourly", keys={{"day": "date"}})
app.window_sql("count_hours", '''{statement}''', retries={retries})
app.schedule("count", "count_hours", constraints=[], trigger=tm.AnyOf(
    tm.WatermarkPassed(clicks, every="1h"), tm.WatermarkPassed(views, every="1h")))
"""


class Kind(StrEnum):
    """Kind of window program."""

    TUMBLE = "tumble"
    HOP = "hop"
    SESSION = "session"
    JOIN = "join"

    @property
    def tables(self) -> Sequence[str]:
        """The tables to which hours come."""
        return ("clicks", "views") if self is Kind.JOIN else ("clicks",)


class SparkSessions(SparkHours):
    """Sessions of all clicks, which Spark computes with carries."""

    def expected(self, passed: int) -> list[str]:
        """Find the closed sessions by one walk."""
        grid = Grid(SLOTS, self.zone)
        clicks = [tuple(map(int, line.split())) for line in self.lines("clicks")]
        # One walk is over amounts of one parity: here all are even.
        rows = [(at, 2 * amount, at) for at, amount in clicks]
        found = find_sessions(rows, _GAP * HOUR // 60, _LONGEST * HOUR, self.zone)
        closed = [one for one in found if grid.closes(next(SLOTS.list_between(one.end, one.end))) <= passed]
        totals = [(one, sum(amount for _, amount, _ in one.rows) // 2) for one in closed]
        return sorted(f"{one.start} {one.end} {len(one.rows)} {total}" for one, total in totals)


class SparkJoin(SparkHours):
    """The full join of the hours of two tables: the number of rows in each."""

    tables: ClassVar[Sequence[str]] = Kind.JOIN.tables

    @property
    def passed(self) -> int:
        """The least of both watermarks."""
        return min(int(value) for (value,) in self.sql("SELECT value FROM watermark"))

    def expected(self, passed: int) -> list[str]:
        """Join the closed hours plainly."""
        grid = Grid(self.shape, self.zone)
        joined = join_counts(*(count(self.lines(table), self.shape, self.zone) for table in self.tables))
        closed = {window: found for window, found in joined.items() if grid.closes(window) <= passed}
        return to_lines(closed)


def open_project(kind: Kind, folder: Path, url: str, *, spark: bool) -> Plain:
    """Make a project of that kind. Only Spark computes sessions and joins."""
    match kind:
        case Kind.TUMBLE | Kind.HOP:
            make = open_spark_hours if spark else open_plain
            return make(folder, url, windows=HOP if kind is Kind.HOP else TUMBLE, more=_LIMIT, retries=_RETRIES)
        case Kind.SESSION:
            windows = f"SESSION(TABLE clicks, DESCRIPTOR(ts), INTERVAL '{_GAP}' MINUTE)"
            made = open_spark_hours(folder, url, windows, f"{_LIMIT}, session_max='{_LONGEST}h'", _RETRIES)
            return SparkSessions(made.mill)
        case Kind.JOIN:
            statement = write_join(TUMBLE).replace(" AS l,", " AS n,").replace(" AS r,", " AS total,")
            text = _JOINED.format(limit=_LIMIT, statement=statement, retries=_RETRIES)
            return SparkJoin(open_windows(folder, url, text).mill)
