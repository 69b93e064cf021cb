"""Windows over the ticks of a chaos site: computed without Spark, and computed again by the judge, plainly."""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from tests.sql.plain import replace_whole, starts_of
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.window_plan import Window
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import from_wall
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery
from tidemill.storage.locations import open_files

MINUTE: Final = timedelta(minutes=1)
WINDOWS: Final[Mapping[str, tuple[int, int]]] = {
    "threes": (3, 3),
    "fives": (5, 5),
    "sixes": (2, 6),
    "fours": (1, 4),
    "twos": (2, 2),
    "sevens": (7, 7),
}
"""Window programs, and the minutes from one of their windows to the next, and in one."""
_FORMAT: Final = "%Y%m%d%H%M"
_BEGIN: Final = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall-clock time
_WORK: Final = 0.1
"""Seconds: so long a driver can be struck while it has computed and not yet written."""


def minute_at(place: int) -> datetime:
    """The minute of that number, long ago."""
    return _BEGIN + place * MINUTE


def name_of(begin: datetime) -> str:
    """Name a minute, or the window that begins with it."""
    return begin.strftime(_FORMAT)


def result_of(rows: Iterable[str]) -> str:
    """Return the result of a window for its rows, in any order."""
    listed = list(rows)
    return f"{len(listed)} rows, {sum(zlib.crc32(row.encode()) for row in listed)}"


def compute_plainly(ticks: Mapping[str, Sequence[str]], name: str, closed_to: datetime) -> dict[str, str]:
    """The result of each window of a program that ends by `closed_to` and has rows; `ticks` are rows by minute."""
    slide, size = (number * MINUTE for number in WINDOWS[name])
    found: dict[datetime, list[str]] = defaultdict(list)
    for minute, rows in ticks.items():
        at = datetime.strptime(minute, _FORMAT)  # noqa: DTZ007
        for begin in starts_of(at, slide, size):
            found[begin] += rows
    return {name_of(begin): result_of(rows) for begin, rows in found.items() if begin + size <= closed_to}


class Counts:
    """Calculator of a window program in a driver: each window with rows is a partition, named by its begin."""

    def __init__(self, query: WindowQuery) -> None:
        """Nothing of it is needed."""

    def compute(self, run, batches: Sequence[Batch]) -> dict[tuple[str], list[str]]:
        """The windows that have rows."""
        (batch,) = batches
        return _by_key(self._count(run, batch))

    def count_outside(self, run, batch: Batch) -> dict[KeyText, int]:
        """Rows have no time of their own."""
        del run, batch
        return {}

    def replace(self, run, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]):
        """Return the new partition of each window. A window is a partition of its own."""
        (batch,) = batches
        new = self._count(run, batch) if batch.windows else {}
        over, more, keys = replace_whole(batch, gone, old, new, lambda window: name_of(from_wall(window.start)))
        return _by_key(over), more and _by_key(more), keys

    def _count(self, run, batch: Batch) -> dict[str, list[str]]:
        files = open_files(batch.source.dataset.location, run.world)
        rows: dict[str, list[str]] = defaultdict(list)
        for partition in batch.partitions:
            begins, _ = batch.instants[partition.partition_key]
            inside = [window for window in batch.windows if window.start <= begins < window.end]
            for path, _ in partition.files if inside else ():
                texts = files.read(path).decode().splitlines()
                for window in inside:
                    rows[name_of(from_wall(window.start))] += texts
        run.world.mark("windows.computed")
        time.sleep(_WORK)
        return {name: [result_of(texts)] for name, texts in rows.items()}


def _by_key(results: Mapping[str, list[str]]) -> dict[tuple[str], list[str]]:
    return {(name,): texts for name, texts in results.items()}
