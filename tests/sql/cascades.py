"""Cascades of two window programs without Spark, and the plain computation that they must equal.

The first program computes windows of clicks. The second one computes `shifts`: windows over the results of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from tests.sql.conftest import open_windows
from tests.sql.hours import CUMULATE, HOP, HOUR, TUMBLE, Plain
from tests.sql.plain import Row, add_up, last_instant, to_click, to_line, windows_of
from tests.sql.sessions import find_sessions
from tidemill.lake.window.window_plan import Sessions, WindowShape
from tidemill.shapes.partition_time import Zone, from_wall, to_wall

APP: Final = """
import tidemill as tm
from tests.sql.plain import PlainWindows
from tests.sql.sessions import PlainSessions
from tidemill.run.records.programs import ProgramKind
from tidemill.sql.window_program import WindowProgram

app = tm.App("shop")
clicks = app.fileset("clicks", keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", zone="{zone}", outside="error", session_max="4h"))
hourly = app.fileset("hourly", keys={{"day": "date"}}, watermark={watermark})
shifts = app.fileset("shifts", keys={{"day": "date"}})
app.add_windows(WindowProgram("count_hours", '''
    INSERT INTO hourly SELECT {columns}, count(*) AS n, to_date({key}) AS day
      FROM TABLE({windows}) GROUP BY {columns}''',
    calculator={first}), ProgramKind.PYTHON)
if "{column}":
    app.add_windows(WindowProgram("add_up", '''
        INSERT INTO shifts SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
          FROM TABLE({shifts}) GROUP BY window_start, window_end''',
        calculator={second}), ProgramKind.PYTHON)
    app.schedule("add", "add_up", trigger=tm.WatermarkPassed(hourly, every="3h"), constraints=[])
app.schedule("count", "count_hours", trigger=tm.WatermarkPassed(clicks, every="1h"), constraints=[])
"""
COLUMNS: Final = "window_start, window_end, window_time"
BEGIN: Final = to_wall(datetime.fromisoformat("2021-03-19"))
_HALF: Final = HOUR // 2
_DAY: Final = 24 * HOUR
_MILLISECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of windows: a call over clicks, and the shape of the windows."""

    call: str
    shape: WindowShape

    def over(self, column: str) -> str:
        """Return the call over `hourly` and its time."""
        rows, at = "TABLE hourly", column
        if self.shape.sessions:  # SESSION has columns of these names itself
            rows, at = f"(SELECT {column} AS at, line FROM hourly)", "at"
        return self.call.replace("TABLE clicks", rows).replace("DESCRIPTOR(ts)", f"DESCRIPTOR({at})")

    @property
    def calculator(self) -> str:
        """The name of the class that computes them."""
        return "PlainSessions" if self.shape.sessions else "PlainWindows"

    def compute(self, rows: Iterable[Row], zone: Zone, reached: int) -> list[Result]:
        """Compute plainly the windows that are closed when the watermark has `reached` this time."""
        if sessions := self.shape.sessions:
            each = [(at, total, at) for at, _, total in rows]
            found = [
                (one.end, Result(one.line, one.start, one.time, *map(int, one.line.split()[2:4])))
                for one in find_sessions(each, sessions.gap, sessions.longest, zone)
            ]
        else:
            found = [
                (window.end, Result(to_line(window, counted), window.start, last_instant(window, zone), *counted))
                for window, counted in add_up(rows, self.shape, zone).items()
            ]
        return [result for end, result in found if self.closes(end, zone) <= reached]

    def closes(self, end: int, zone: Zone) -> int:
        """Return the time at which windows are closed that end then. Sessions are closed with their slot."""
        slot = next(self.shape.list_between(end, end)) if self.shape.sessions else None
        return zone.closes(from_wall(slot.end if slot else end))

    def find_reach(self, column: str, passed: int, zone: Zone) -> int:
        """Return the time before which no new window has its `column`, when W of the rows is `passed`, a full hour."""
        if sessions := self.shape.sessions:
            return passed - (_MILLISECOND if column == "window_time" else sessions.longest)
        if column == "window_time":
            return passed
        return min(window.start for window in windows_of(passed, self.shape, zone))


@dataclass(frozen=True, slots=True)
class Result:
    """A line of an output. It is a row of further windows at its `start`, or at its last instant, `time`."""

    line: str
    start: int
    time: int
    number: int
    total: int


FIRST: Final[Mapping[str, Kind]] = {
    "TUMBLE": Kind(TUMBLE, WindowShape(HOUR, HOUR, 0)),
    "HOP": Kind(HOP.replace("'1' HOUR", "'30' MINUTE"), WindowShape(3 * HOUR, _HALF, 0)),
    "CUMULATE": Kind(CUMULATE, WindowShape(3 * HOUR, HOUR, 0, cumulative=True)),
    "SESSION": Kind(
        "SESSION(TABLE clicks PARTITION BY line, DESCRIPTOR(ts), INTERVAL '30' MINUTE)",
        WindowShape(HOUR, HOUR, 0, sessions=Sessions(_HALF, 4 * HOUR)),
    ),
}
"""Windows of clicks, of each kind."""
SECOND: Final[Mapping[str, Kind]] = {
    "TUMBLE": Kind(TUMBLE.replace("'1'", "'3'"), WindowShape(3 * HOUR, 3 * HOUR, 0)),
    "HOP": Kind(HOP.replace("'3'", "'2'"), WindowShape(2 * HOUR, HOUR, 0)),
    "CUMULATE": Kind(CUMULATE.replace("'1' HOUR", "'30' MINUTE"), WindowShape(3 * HOUR, _HALF, 0, cumulative=True)),
    "SESSION": Kind(
        "SESSION(TABLE clicks PARTITION BY line, DESCRIPTOR(ts), INTERVAL '90' MINUTE)",
        WindowShape(_DAY, _DAY, 0, sessions=Sessions(3 * _HALF, 6 * HOUR)),
    ),
}
"""Windows of windows, of each kind. The slots of these sessions are days, as the partitions of the windows are."""


class Cascade(Plain):
    """Windows of clicks, and shifts over them."""

    column = "window_time"
    first = FIRST["TUMBLE"]
    second = SECOND["TUMBLE"]

    def settle_both(self) -> None:
        """Run both programs until nothing is left."""
        for name in ("count_hours", "add_up"):
            for _ in range(20):
                run = self.run(f"shop.{name}")
                assert run.state == "COMPLETED", (run.exit_reason, self.spawner.complaints)
                if not self.is_more():
                    break

    def shown(self, name: str) -> list[str]:
        """The hour and the number of rows of each window of an output."""
        rows = [line.split() for line in self.lines(name)]
        return [f"{from_wall(int(start)):%H} {number}" for start, _, number, *_ in rows]

    def watermark_of(self, name: str) -> str | None:
        """Return the watermark as people see it, without the day."""
        value = self.mill.watermarks.show(name).watermark
        return None if value is None else value[11:16]

    def versions(self) -> dict[str, int]:
        """The transaction that wrote each shift last, by the hour."""
        found = self.sql(
            "SELECT r.window_start, r.write_pointer FROM window_result AS r JOIN window_program AS p"
            " ON p.program_id = r.program_id WHERE p.name = 'default.shop.add_up'"
        )
        return {f"{from_wall(start):%H}": pointer for start, pointer in found}

    def announced(self) -> int:
        """The number of messages that the shifts have work though no watermark has moved."""
        found = self.sql("SELECT payload FROM message WHERE event_type = 'backlog'")
        return sum('"default.shop.add_up"' in payload for (payload,) in found)

    def find_reach(self) -> int | None:
        """Return the time before which no new window of clicks has its `column`, by the watermark of clicks."""
        passed = self.find_values()["clicks"]
        return None if passed is None else self.first.find_reach(self.column, passed, self.zone)

    def compute(self) -> dict[str, list[str]]:
        """Compute plainly, from all clicks, the lines of both outputs."""
        passed, reach = self.find_values()["clicks"], self.find_reach()
        if passed is None or reach is None:
            return {"hourly": [], "shifts": []}
        windows = self.first.compute(map(to_click, self.lines("clicks")), self.zone, passed)
        rows = [(one.time if self.column == "window_time" else one.start, one.number, one.total) for one in windows]
        shifts = self.second.compute(rows, self.zone, reach)
        return {"hourly": sorted(one.line for one in windows), "shifts": sorted(one.line for one in shifts)}


Opened = TypeVar("Opened", bound=Cascade)


def write_app(
    column: str = "window_time",
    columns: str = COLUMNS,
    more: str = "",
    zone: str = "UTC",
    windows: str = TUMBLE,
    shifts: Kind = SECOND["TUMBLE"],
) -> str:
    """The app file; without a `column` there are no shifts, and no watermark of hours unless `more` declares it."""
    made = f'tm.Watermark("{column}", interval="1 day", session_max="6h", {more})' if column else more or "None"
    return APP.format(
        column=column,
        columns=columns,
        watermark=made,
        zone=zone,
        key=column or "window_time",
        windows=windows,
        first="PlainSessions" if windows.startswith("SESSION") else "PlainWindows",
        shifts=shifts.over(column),
        second=shifts.calculator,
    )


def open_cascade(tmp_path: Path, catalog_url: str, text: str = "", **given: str) -> Cascade:
    """Such a project."""
    return Cascade(open_windows(tmp_path / "project", catalog_url, text or write_app(**given)).mill)


def open_kinds(  # three declare the windows, three say where
    folder: Path, catalog_url: str, column: str, first: Kind, second: Kind, zone: str, made: type[Opened]
) -> Opened:
    """Such a project, of windows and shifts of any kind."""
    text = write_app(column, more=f"zone='{zone}'", zone=zone, windows=first.call, shifts=second)
    windows = open_windows(folder, catalog_url, text)
    cascade = made(windows.mill, at=windows.at)
    cascade.column, cascade.first, cascade.second, cascade.zone = column, first, second, Zone(zone)
    return cascade
