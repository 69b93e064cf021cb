"""A project of hourly windows over lines of text, in this process, and the plain computation that they must equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.sql.conftest import Windows, open_windows
from tests.sql.plain import count, to_lines
from tidemill.catalog.transactions import Snapshot
from tidemill.epoch import to_micros
from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
from tidemill.lake.window.window_plan import Grid, WindowShape
from tidemill.names import WritePointer
from tidemill.shapes.partition_time import Zone, from_wall
from tidemill.testing.plain import read_lines, read_rows
from tidemill.world import World

HOUR = 3_600_000_000
TUMBLE = "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
HOP = "HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '3' HOUR)"
CUMULATE = HOP.replace("HOP", "CUMULATE")
PLACES = (
    ("UTC", "2021-03-19"),
    ("Europe/Berlin", "2021-03-28"),
    ("Europe/Berlin", "2021-10-31"),
    ("America/New_York", "2021-03-14"),
    ("America/New_York", "2021-11-07"),
    ("Asia/Kolkata", "2021-03-19"),
    ("Australia/Lord_Howe", "2021-04-04"),
    ("Australia/Lord_Howe", "2021-10-03"),
)
"""Zones, with a day each. In the night of most of these days an hour is missing or comes twice; in Lord Howe half."""

APP = """
import tidemill as tm
from tests.sql.plain import PlainWindows
from tidemill.run.records.programs import ProgramKind
from tidemill.sql.window_program import WindowProgram

app = tm.App("shop")
clicks = app.fileset("clicks", keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", zone="{zone}", {outside}{more}))
hourly = app.fileset("hourly", keys={{"day": "date"}})
app.add_windows(WindowProgram("count_hours", '''
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE({windows}) GROUP BY window_start, window_end''',
    calculator=PlainWindows), ProgramKind.PYTHON, retries={retries})
app.schedule("count", "count_hours", trigger=tm.WatermarkPassed(clicks, every="1h"), constraints=[])
"""


SPARK_APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", outside="error", {more}))
hourly = app.fileset("hourly", keys={{"day": "date"}})
app.window_sql("count_hours", '''
    INSERT INTO hourly
    SELECT window_start, window_end, count(*) AS n, sum(amount) AS total, to_date(window_start) AS day
      FROM TABLE({windows}) GROUP BY window_start, window_end''', retries={retries})
app.schedule("count", "count_hours", trigger=tm.WatermarkPassed(clicks, every="1h"), constraints=[])
"""


class Plain(Windows):
    """Clicks as lines, in hours of days."""

    zone = Zone("UTC")
    shape = WindowShape(HOUR, HOUR, 0)

    def add(self, local: str, *minutes: int, how: str = "append") -> None:
        """Publish rows of the hour that begins at `local`, at these minutes of it (of a doubled hour: up to 120)."""
        self.add_to("clicks", local, *minutes, how=how)

    def length(self, local: str) -> int:
        """Return for how many minutes the clocks of the zone show the hour that begins at `local`: 0, 30, 60, ..."""
        time = datetime.fromisoformat(local)
        return (self.zone.closes(time + timedelta(hours=1)) - self.zone.opens(time)) // 60_000_000

    def fit(self, local: str, minutes: Iterable[int]) -> list[int]:
        """Return minutes within that hour in the place of `minutes`; none of an hour that the clocks leave out."""
        length = self.length(local)
        return [minute % length for minute in minutes] if length else []

    def add_to(self, table: str, local: str, *minutes: int, how: str = "append") -> None:
        """Publish rows of a table, as `add` does."""
        self.commit(table, self.write_hour(local, *minutes), how)

    def write_hour(self, local: str, *minutes: int) -> dict[str, str]:
        """Return rows of the hour that begins at `local`, at these minutes, by their partition."""
        time = datetime.fromisoformat(local)
        opens = self.zone.opens(time)
        text = "".join(f"{opens + minute * 60_000_000} {minute}\n" for minute in minutes)
        return {f"day={time:%Y-%m-%d}/hour={time.hour}": text}

    @contextmanager
    def damaged(self, hour: int) -> Iterator[None]:
        """Have the file of the clicks of an hour missing."""
        folder = self.mill.project.config.folder
        (lost,) = (one for one in folder.glob(f"**/hour={hour}/*") if not one.name.startswith("_"))
        kept = lost.rename(lost.with_name("_kept"))
        yield
        kept.rename(lost)

    def lose(self, name: str) -> int:
        """Delete the files of a file set; return their number. Nothing brings them back."""
        found = [one for one in self.mill.project.config.folder.glob(f"**/{name}/**/*") if one.is_file()]
        lost = [one for one in found if not one.name.startswith(("_", "."))]
        for one in lost:
            one.unlink()
        return len(lost)

    def lines(self, name: str) -> list[str]:
        """All that is published."""

        def block(db):
            fileset = Fileset.of(self.mill.project.dataset(db, name))
            everything = Snapshot(WritePointer(2**60), self.mill.project.catalog.incarnation)
            return fileset, read_partitions(db, fileset.dataset_id, everything)

        fileset, partitions = self.mill.project.catalog.read(block)
        return sorted(line for partition in partitions for line in read_lines(World(), fileset, partition))

    def results(self) -> dict[str, int]:
        """Count the rows of each window, by its start."""
        rows = [line.split() for line in self.lines("hourly")]
        return {f"{from_wall(int(start)):%H:%M}": int(number) for start, _, number, _ in rows}

    def settle(self, most: int = 50) -> None:
        """Run until nothing is left: as often as there is a message that says so."""
        for _ in range(most):
            before = self.sql("SELECT computed, seen FROM window_program")
            run = self.run()
            assert run.state == "COMPLETED", (run.exit_reason, self.spawner.complaints)
            after = self.sql("SELECT computed, seen FROM window_program")
            if before[0][0] == after[0][0] and not self.is_more():
                return
        pytest.fail("it comes to no end")

    def is_more(self) -> bool:
        """Return whether the last commit says that work is left."""
        last = "(SELECT max(seq) FROM message WHERE topic = 'data')"
        return bool(self.sql(f"SELECT 1 FROM message WHERE event_type = 'backlog' AND seq = {last}"))

    def expected(self, passed: int) -> list[str]:
        """Compute the closed windows plainly, over all rows."""
        grid = Grid(self.shape, self.zone)
        counted = count(self.lines("clicks"), self.shape, self.zone)
        closed = {window: found for window, found in counted.items() if grid.closes(window) <= passed}
        return to_lines(closed)

    def find_values(self) -> dict[str, int | None]:
        """Return the watermark of each table."""
        return dict(
            self.sql("SELECT d.name, w.value FROM watermark AS w JOIN dataset AS d ON d.dataset_id = w.dataset_id")
        )

    @property
    def passed(self) -> int:
        """W."""
        return int(self.sql("SELECT value FROM watermark")[0][0])


class SparkHours(Plain):
    """The same with rows in Parquet, and windows that Spark computes."""

    def add_to(self, table: str, local: str, *minutes: int, how: str = "append") -> None:
        """Publish rows of a table, as `add` does."""
        time = datetime.fromisoformat(local).replace(tzinfo=UTC)
        keys = {"day": time.date(), "hour": time.hour}
        self.commit(table, [{"ts": time + timedelta(minutes=one), "amount": one, **keys} for one in minutes], how)

    def lose(self, name: str) -> int:
        """Delete the files of a file set; return their number. Nothing brings them back."""
        found = [one for one in self.mill.project.config.folder.glob(f"**/{name}/**/*") if one.is_file()]
        lost = [one for one in found if not one.name.startswith(("_", "."))]
        for one in lost:
            one.unlink()
        return len(lost)

    def lines(self, name: str) -> list[str]:
        """All that is published, as lines."""

        def block(db):
            fileset = Fileset.of(self.mill.project.dataset(db, name))
            everything = Snapshot(WritePointer(2**60), self.mill.project.catalog.incarnation)
            partitions = read_partitions(db, fileset.dataset_id, everything)
            return fileset, partitions, find_schema(db, fileset.dataset_id)

        fileset, partitions, columns = self.mill.project.catalog.read(block)
        rows = read_rows(World(), fileset, partitions, columns)
        names = ("window_start", "window_end", "n", "total") if name == "hourly" else ("ts", "amount")
        return sorted(" ".join(str(_micros(row[one])) for one in names) for row in rows)


def _micros(value: object) -> object:
    return to_micros(value.replace(tzinfo=UTC)) if isinstance(value, datetime) else value


def write_app(zone: str = "UTC", windows: str = TUMBLE, more: str = "", retries: int = 0) -> str:
    """The app file, by default with rows outside their partition as errors."""
    outside = "" if "outside" in more else "outside='error', "
    return APP.format(zone=zone, windows=windows, outside=outside, more=more, retries=retries)


def open_spark_hours(folder: Path, catalog_url: str, windows: str, more: str, retries: int) -> SparkHours:
    """Such a project whose windows Spark computes."""
    text = SPARK_APP.format(windows=windows, more=more, retries=retries)
    hours = SparkHours(open_windows(folder, catalog_url, text).mill)
    hours.shape = WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0)
    return hours


def open_plain(
    folder: Path, catalog_url: str, zone: str = "UTC", windows: str = TUMBLE, more: str = "", retries: int = 0
) -> Plain:
    """Such a project."""
    made = open_windows(folder, catalog_url, write_app(zone, windows, more, retries))
    plain = Plain(made.mill)
    plain.zone = Zone(zone)
    plain.shape = WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0, windows == CUMULATE)
    return plain
