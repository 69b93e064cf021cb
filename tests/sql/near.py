"""Interval joins without Spark: rows and results are lines of text, as of `plain.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from tests.sql.conftest import open_windows
from tests.sql.hours import Plain
from tests.sql.plain import PlainWindows, Texts
from tidemill.lake.window.carry import CARRY_KEYS, to_carry_key
from tidemill.lake.window.side import name_partition
from tidemill.lake.window.window_plan import Grid, Window, WindowShape
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.partition_time import WallTime, Zone, from_wall, to_wall
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery
from tidemill.testing.plain import read_lines

MINUTE: Final = 60_000_000
HOUR: Final = 60 * MINUTE
Pair = tuple[int | None, int | None]
"""The times of the rows of a result."""


def near(early: int, late: int, kind: str) -> str:
    """Return the FROM of an interval join: the left row is up to `early` minutes before the right one, or `late` after.

    `kind` is the word before JOIN.
    """
    bounds = f"r.ts - INTERVAL '{early}' MINUTE AND r.ts + INTERVAL '{late}' MINUTE"
    return f"clicks l {kind} JOIN views r ON l.ts BETWEEN {bounds}"


def row_time(kind: str) -> str:
    """Return the expression that tells the window of a result."""
    return {"RIGHT": "r.ts", "FULL": "coalesce(l.ts, r.ts)"}.get(kind, "l.ts")


def join_near(left: Iterable[int], right: Iterable[int], early: int, late: int, kind: str) -> list[Pair]:
    """Join times plainly, each with each."""
    left, right = [*left], [*right]
    pairs: list[Pair] = [
        (one, other) for one in left for other in right if other - early * MINUTE <= one <= other + late * MINUTE
    ]
    if kind in {"LEFT", "FULL"}:
        pairs += [(one, None) for one in left if one not in {pair[0] for pair in pairs}]
    if kind in {"RIGHT", "FULL"}:
        pairs += [(None, one) for one in right if one not in {pair[1] for pair in pairs}]
    return pairs


def window_of(pair: Pair, kind: str, zone: Zone) -> Window:
    """Return the hour in which a result lies."""
    left, right = reversed(pair) if kind == "RIGHT" else pair
    time = left if left is not None else right
    assert time is not None, pair
    start = to_wall(zone.local(time).replace(minute=0, second=0, microsecond=0))
    return Window(start, WallTime(start + HOUR))


def to_lines(pairs: Iterable[Pair], kind: str, zone: Zone) -> list[tuple[Window, str]]:
    """Return each result as a line, with its window."""
    windows = [(window_of(pair, kind, zone), pair) for pair in pairs]
    shown = [(window, ["-" if one is None else str(one) for one in pair]) for window, pair in windows]
    return [(window, f"{window.start} {window.end} {left} {right}\n") for window, (left, right) in shown]


class PlainNear(PlainWindows):
    """Computes the windows of an interval join."""

    hours: ClassVar[dict[str, set[int]]] = {}
    """The hours that computations have read, by table."""

    def __init__(self, query: WindowQuery, early: int, late: int, kind: str) -> None:
        super().__init__(query)
        self._join = early, late, kind

    def compute(self, run, batches: Sequence[Batch]) -> Texts:
        """The results that lie in the windows of the batches, from the rows that belong to their partitions."""
        left, right = ([int(line.split()[0]) for line in self._read_all(run, batch)] for batch in batches)
        kind, wanted, found = self._join[2], set(batches[0].windows), defaultdict[str, str](str)
        for window, line in sorted(
            to_lines(join_near(left, right, *self._join), kind, batches[0].watermark.window_zone)
        ):
            if window in wanted:
                found[f"day={from_wall(window.start):%Y-%m-%d}"] += line
        return dict(found)

    def _read_all(self, run, batch: Batch) -> list[str]:
        """The rows of partitions and of carries."""
        decode = batch.source.keys.decode
        hours = self.hours.setdefault(batch.source.qualified_name.split(".")[1], set())
        hours |= {int(decode(one.partition_key)[1]) for one in batch.partitions}
        carried = [read_lines(run.world, one.fileset, one.partition) for one in batch.carried.values()]
        return [*self.read(run, batch), *(line for lines in carried for line in lines)]

    def pick_carried(self, run, batch: Batch, of: str, seen: int) -> Texts:
        """The rows that belong to the partitions, by their names."""
        texts = {}
        for one in batch.partitions:
            key = to_carry_key(of, name_partition(batch.source.keys, one.partition_key), seen)
            text = "".join(f"{line}\n" for line in self.read(run, replace(batch, partitions=(one,))))
            texts |= {KeySchema.of(CARRY_KEYS).to_path(tuple(key.values())): text} if text else {}
        return texts


def compute_near(early: int, late: int, kind: str) -> Callable[[WindowQuery], PlainNear]:
    """Return what makes such a calculator."""
    return lambda query: PlainNear(query, early, late, kind)


APP = """
import tidemill as tm
from tests.sql.near import compute_near
from tidemill.run.records.programs import ProgramKind
from tidemill.sql.window_program import WindowProgram

app = tm.App("shop")
clicks, views = (
    app.fileset(name, keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
        "ts", pattern="$day $hour:00:00", interval="1h", zone="{zone}", late="{late}", outside="{outside}",
        idle_timeout=idle))
    for name, idle in (("clicks", None), ("views", {idle!r})))
hourly = app.fileset("hourly", keys={{"day": "date"}})
app.add_windows(WindowProgram("count_hours", '''
    INSERT INTO hourly SELECT {time} AS ts, l.line AS a, r.line AS b, to_date({time}) AS day FROM {near}''',
    calculator=compute_near(*{join!r})), ProgramKind.PYTHON)
app.schedule("count", "count_hours", constraints=[], trigger=tm.AnyOf(
    tm.WatermarkPassed(clicks, every="30m"), tm.WatermarkPassed(views, every="30m")))
"""


class Near(Plain):
    """Clicks and views that are joined by a range of times."""

    join: tuple[int, int, str] = (0, 0, "")

    @property
    def closed(self) -> int | None:
        """By the closing rules: the end of the last window that may be given out."""
        early, late, kind = self.join
        left, right = (self.find_values()[name] for name in ("clicks", "views"))
        if left is None or right is None:
            return None
        waits_left, waits_right = max(late, 0) * MINUTE, max(early, 0) * MINUTE
        match kind:
            case "RIGHT":
                return min(right, left - late * MINUTE)
            case "FULL":
                return min(left - waits_left, right - waits_right)
            case _:
                return min(left, right - early * MINUTE)

    def expected(self, passed: int | None) -> list[str]:
        """Join all rows plainly, and keep the results in windows that end by then."""
        kind = self.join[2]
        left, right = ([int(line.split()[0]) for line in self.lines(name)] for name in ("clicks", "views"))
        lines = to_lines(join_near(left, right, *self.join), kind, self.zone)
        grid = Grid(WindowShape(HOUR, HOUR, 0), self.zone)
        return sorted(line.rstrip() for window, line in lines if passed is not None and grid.closes(window) <= passed)

    def list_carried(self, table: str) -> list[str]:
        """The hours of a table that are carried."""
        pages = self.mill.datasets.partitions(f"count_hours_carry_{table}")
        return sorted(one.partition.split("hour=")[-1][:2] for one in pages.items)

    def shown(self) -> list[str]:
        """The results: the times of the left and of the right row."""

        def show(text: str) -> str:
            return text if text == "-" else f"{from_wall(int(text)):%H:%M}"

        return sorted(" ".join(map(show, line.split()[2:])) for line in self.lines("hourly"))


def open_near(
    folder: Path,
    catalog_url: str,
    early: int,
    late: int,
    kind: str,
    *,
    policy: str = "recompute",
    idle: str | None = None,
    zone: str = "UTC",
    outside: str = "side",
) -> Near:
    """Such a project, with the policies and the zone of both tables, and the idle time-out of the second."""
    join = early, late, kind
    text = APP.format(
        time=row_time(kind), near=near(*join), join=join, late=policy, idle=idle, zone=zone, outside=outside
    )
    made = open_windows(folder, catalog_url, text)
    opened = Near(made.mill, at=made.at)
    opened.join = join
    opened.zone = Zone(zone)
    return opened
