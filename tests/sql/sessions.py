"""Sessions without Spark, over lines of text (`<microseconds> <amount>`): amounts that are even, and odd ones.

Results are lines too: `<start> <end> <n> <sum> <parity> <forced>`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from tests.sql.conftest import open_windows
from tests.sql.hours import HOUR, Plain, write_app
from tests.sql.plain import PlainWindows, Texts
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.window_plan import Grid, Window, WindowShape
from tidemill.shapes.partition_time import Zone, from_wall, to_wall
from tidemill.shapes.watermark_spec import OutsidePolicy
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery
from tidemill.testing.plain import read_lines

SESSION = "SESSION(TABLE clicks PARTITION BY parity, DESCRIPTOR(ts), INTERVAL '{}' MINUTE)"
SLOTS = WindowShape(HOUR, HOUR, 0)


def find_sessions(rows: Iterable[tuple[int, int]], gap: int, longest: int, zone: Zone) -> list[tuple[int, int, str]]:
    """Return the wall-clock bounds of each session and its line, by one walk over rows in the order of their times."""
    found = []
    ordered = sorted(rows, key=lambda row: (row[1] % 2, row[0]))
    for parity, members in groupby(ordered, key=lambda row: row[1] % 2):
        sessions: list[list[tuple[int, int]]] = []
        cuts: list[int] = []
        for at, amount in members:
            if not sessions or at - sessions[-1][-1][0] > gap:
                sessions.append([])
                cuts.append(at + longest)
            elif at >= cuts[-1]:
                sessions.append([])
                cuts.append(at - at % longest + longest)
            sessions[-1].append((at, amount))
        for each, cut in zip(sessions, cuts, strict=True):
            last = each[-1][0] + gap
            start, end = to_wall(zone.local(each[0][0])), to_wall(zone.local(min(last, cut)))
            total = sum(amount for _, amount in each)
            found.append((start, end, f"{start} {end} {len(each)} {total} {parity} {int(last >= cut)}"))
    return found


class PlainSessions(PlainWindows):
    """Computes sessions that end in the slots of a batch, by their definition."""

    def __init__(self, query: WindowQuery) -> None:
        assert query.shape.sessions is not None
        self._gap = query.shape.sessions.gap

    def compute(self, run, batches: Sequence[Batch]) -> Texts:
        """The sessions of the batch, by the day on which they begin."""
        texts: defaultdict[str, str] = defaultdict(str)
        (batch,) = batches
        for start, _, line in self._find(run, batch):
            texts[f"day={from_wall(start):%Y-%m-%d}"] += f"{line}\n"
        return dict(texts)

    def _find(self, run, batch: Batch) -> list[tuple[int, int, str]]:
        rows = []
        for partition in batch.partitions:
            begins, ends = batch.instants[partition.partition_key]
            each = [
                (int(at), int(amount)) for at, amount in map(str.split, read_lines(run.world, batch.source, partition))
            ]
            within = [row for row in each if begins <= row[0] < ends]
            assert len(within) == len(each) or batch.watermark.outside is not OutsidePolicy.ERROR, each
            rows += within
        found = find_sessions(rows, self._gap, batch.watermark.session_max, batch.watermark.window_zone)
        return [one for one in found if _ends_within(one[1], batch.windows)]

    def count_forced(self, run, batch: Batch) -> int:
        """By the definition."""
        return sum(line.endswith(" 1") for _, _, line in self._find(run, batch))

    def replace(self, run, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]):
        """Old lines without sessions that end in the slots, and new ones where there were some; the rest as new."""
        (batch,) = batches
        replaced = [*batch.windows, *gone]
        new = dict(self.compute(run, batches)) if batch.windows else {}
        over, keys = {}, []
        for partition in old:
            lines = read_lines(run.world, batch.sink, partition)
            kept = [line for line in lines if not _ends_within(int(line.split()[1]), replaced)]
            if len(kept) < len(lines):
                key = batch.sink.keys.decode(partition.partition_key)
                path = batch.sink.keys.to_path(key)
                keys.append(dict(zip(batch.sink.keys.names, key, strict=True)))
                text = "".join(f"{line}\n" for line in kept) + new.pop(path, "")
                over |= {path: text} if text else {}
        return over, new or None, keys


def _ends_within(end: int, slots: Iterable[Window]) -> bool:
    return any(slot.start <= end < slot.end for slot in slots)


class SessionHours(Plain):
    """Clicks as lines, in hours of days, and their sessions."""

    gap = HOUR // 2
    longest = 4 * HOUR

    def results(self) -> list[str]:
        """Show each session: begin, end, number of rows, and whether it was closed by force."""
        rows = [line.split() for line in self.lines("hourly")]
        return [
            f"{from_wall(int(start)):%H:%M} {from_wall(int(end)):%H:%M} {n}{' forced' if int(forced) else ''}"
            for start, end, n, _, _, forced in rows
        ]

    def expected(self, passed: int) -> list[str]:
        """Compute the closed sessions plainly, over all rows."""
        grid = Grid(SLOTS, self.zone)
        rows = [(int(at), int(amount)) for at, amount in map(str.split, self.lines("clicks"))]
        return sorted(
            line
            for _, end, line in find_sessions(rows, self.gap, self.longest, self.zone)
            if grid.closes(next(SLOTS.list_between(end, end))) <= passed
        )


def write_sessions(minutes: int = 30, zone: str = "UTC", more: str = "") -> str:
    """The app file: sessions with gaps of so many minutes, 4 hours long at most."""
    text = write_app(zone, SESSION.format(minutes), f"session_max='4h', {more}")
    text = text.replace("tests.sql.plain import PlainWindows", "tests.sql.sessions import PlainSessions")
    return text.replace("PlainWindows", "PlainSessions")


def open_sessions(folder: Path, catalog_url: str, minutes: int = 30, zone: str = "UTC", more: str = "") -> SessionHours:
    """Make a project of hourly clicks and their sessions."""
    made = open_windows(folder, catalog_url, write_sessions(minutes, zone, more))
    hours = SessionHours(made.mill)
    hours.gap = minutes * 60_000_000
    hours.zone = Zone(zone)
    return hours
