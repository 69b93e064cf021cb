"""Sessions without Spark, over lines of text (`<microseconds> <amount>`): amounts that are even, and odd ones.

Results are lines too: `<start> <end> <n> <sum> <parity> <forced> <window_time>`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from tests.sql.conftest import open_windows
from tests.sql.hours import HOUR, Plain, write_app
from tests.sql.plain import PlainWindows, Texts, find_span, to_day
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.lake.window.carry import CARRY_KEYS, Carry, list_carries
from tidemill.lake.window.window_plan import Grid, Window, WindowShape
from tidemill.names import WritePointer
from tidemill.shapes.keys import KeySchema, KeyValue
from tidemill.shapes.partition_time import Zone, from_wall, to_wall
from tidemill.shapes.watermark_spec import OutsidePolicy
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery
from tidemill.testing.plain import read_lines

SESSION = "SESSION(TABLE clicks PARTITION BY line, DESCRIPTOR(ts), INTERVAL '{}' MINUTE)"
SLOTS = WindowShape(HOUR, HOUR, 0)


@dataclass(frozen=True)
class Session:
    """A session: wall-clock bounds, the instant of its last millisecond, its line and its rows.

    Also the begin of their chain, and the last row plus the gap.
    """

    start: int
    end: int
    time: int
    line: str
    rows: list[tuple[int, int, int]]
    chain: int
    open_until: int


def find_sessions(rows: Iterable[tuple[int, int, int]], gap: int, longest: int, zone: Zone) -> list[Session]:
    """Find all sessions by one walk over rows (instant, amount, begin of the chain, as far as it is known)."""
    found = []
    ordered = sorted(rows, key=lambda row: (row[1] % 2, row[0]))
    for parity, members in groupby(ordered, key=lambda row: row[1] % 2):
        sessions: list[list[tuple[int, int, int]]] = []
        chains: list[int] = []
        cuts: list[int] = []
        for at, amount, began in members:
            near = bool(sessions) and at - sessions[-1][-1][0] <= gap
            if not near or at >= cuts[-1]:
                chains.append(chains[-1] if near else began)
                cuts.append(at - at % longest + longest if at >= chains[-1] + longest else chains[-1] + longest)
                sessions.append([])
            sessions[-1].append((at, amount, began))
        for each, chain, cut in zip(sessions, chains, cuts, strict=True):
            last = each[-1][0] + gap
            time = min(last, cut) - 1000
            start, end = (to_wall(zone.local(at)) for at in (each[0][0], min(last, cut)))
            total = sum(amount for _, amount, _ in each)
            line = f"{start} {end} {len(each)} {total} {parity} {int(last >= cut)} {time}"
            found.append(Session(start, end, time, line, each, chain, last))
    return found


def read_clicks(lines: Iterable[str]) -> list[tuple[int, int, int]]:
    """Rows of lines. A line of a carry has the begin of its chain."""
    found = []
    for line in lines:
        at, amount, *began = map(int, line.split())
        found.append((at, amount, began[0] if began else at))
    return found


class PlainSessions(PlainWindows):
    """Computes sessions that end in the slots of a batch, by their definition."""

    read: ClassVar[list[set[KeyValue]]] = []
    """The hours of a day, or the days, that each computation has read."""

    def __init__(self, query: WindowQuery) -> None:
        assert query.shape.sessions is not None
        self._gap = query.shape.sessions.gap

    def compute(self, run, batches: Sequence[Batch]) -> Texts:
        """The sessions of the batch, by the day on which they begin."""
        texts: defaultdict[str, str] = defaultdict(str)
        (batch,) = batches
        for one in self._find(run, batch):
            if _ends_within(one.end, batch.windows):
                texts[to_day(batch, one.start, one.time)] += f"{one.line}\n"
        return dict(texts)

    def _find(self, run, batch: Batch, closes: int = 1 << 60) -> list[Session]:
        keys = batch.source.keys
        self.read.append({keys.decode(one.partition_key)[-1] for one in batch.partitions})
        rows, since = [], batch.carry.closes if batch.carry else 0
        if batch.carry:
            rows += read_clicks(read_lines(run.world, batch.carry.fileset, batch.carry.partition))
        for partition in batch.partitions:
            begins, ends = find_span(batch, partition)
            lines = read_lines(run.world, batch.source, partition)
            each = [(at, amount, at) for at, _, amount in (self.to_row(batch, line) for line in lines)]
            within = [row for row in each if begins <= row[0] < ends]
            assert len(within) == len(each) or batch.watermark.outside is not OutsidePolicy.ERROR, each
            rows += [row for row in within if since <= row[0] < closes]
        return find_sessions(rows, self._gap, batch.watermark.session_max, batch.watermark.window_zone)

    def count_forced(self, run, batch: Batch) -> int:
        """By the definition."""
        found = [one for one in self._find(run, batch) if _ends_within(one.end, batch.windows)]
        return sum(one.line.split()[5] == "1" for one in found)

    def pick_open(self, run, batch: Batch, closes: int, key: Mapping[str, KeyValue]) -> Texts:
        """By the definition."""
        found = self._find(run, batch, closes)
        still = [one for one in found if one.end >= batch.windows[-1].end or one.open_until >= closes]
        text = "".join(f"{at} {amount} {one.chain}\n" for one in still for at, amount, _ in one.rows)
        schema = KeySchema.of(CARRY_KEYS)
        return {schema.to_path(tuple(key.values())): text} if text else {}

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
            for start, end, n, _, _, forced, _ in rows
        ]

    def list_carries(self) -> list[str]:
        """The ends of the slots at which there are carries."""
        return [f"{from_wall(one.at):%H:%M}" for one in self.mill.project.catalog.read(self._list_carries)]

    def _list_carries(self, db: Db) -> list[Carry]:
        fileset = Fileset.of(self.mill.project.dataset(db, "count_hours_carry"))
        everything = Snapshot(WritePointer(2**60), self.mill.project.catalog.incarnation)
        return list_carries(db, fileset, everything, Grid(SLOTS, self.zone))

    def expected(self, passed: int) -> list[str]:
        """Compute the closed sessions plainly, over all rows."""
        grid = Grid(SLOTS, self.zone)
        found = find_sessions(read_clicks(self.lines("clicks")), self.gap, self.longest, self.zone)
        return sorted(one.line for one in found if grid.closes(next(SLOTS.list_between(one.end, one.end))) <= passed)


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
