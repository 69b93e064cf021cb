"""Window programs of two tables under races and kills: `python -m tests.sim.joins --seeds 500`, or `--seed 17`.

Each schedule is a join of one kind, in a zone whose clocks may change that night, and a story: hours of either table
come in any order, are rewritten and dropped; one table may be idle; a run stops at a mark, and meanwhile data comes, or
another run publishes; a run dies at a mark. At the end the messages alone have started the runs that were needed, and
the output is that of one computation.
Exit code 1 when it is not.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

from tests.sim.stories import Story, play_many
from tests.sql.conftest import open_windows
from tests.sql.hours import CUMULATE, HOP, HOUR, PLACES, TUMBLE
from tests.sql.near import MINUTE, Near, open_near
from tests.sql.test_several_inputs import JOINS, join_plainly, write_joined
from tidemill.lake.window.window_plan import WindowShape
from tidemill.shapes.partition_time import Zone, from_wall

_BOUNDS: Final = ((90, 30), (0, 120), (-60, 120), (61, -1), (0, 0))
_KINDS: Final = ("", "LEFT", "RIGHT", "FULL")
_PASS: Final = "UPDATE watermark SET committed_at = committed_at - 7200000"


class Joined(Story, Near):
    """Two tables that are joined, by intervals or by windows."""

    tables: ClassVar[Sequence[str]] = ("clicks", "views")
    windows = ""
    """The window function, of a window join."""
    idles = False

    reached: int | None = None
    """The end of the last window that was ever closed."""

    @property
    def closed(self) -> int | None:
        """The end of the last window that is closed now: without the lag of views, while they are idle."""
        if not self.idles or not self._is_idle():
            return super().closed
        early, late, kind = self.join
        del early
        lag = {"RIGHT": late, "FULL": max(late, 0)}.get(kind, 0) if not self.windows else 0
        value = self.find_values()["clicks"]
        return None if value is None else value - lag * MINUTE

    def _is_idle(self) -> bool:
        ((last,),) = self.sql(
            "SELECT w.committed_at FROM watermark AS w JOIN dataset AS d ON d.dataset_id = w.dataset_id"
            " WHERE d.name = 'views'"
        )
        return last is not None and datetime.now(UTC).timestamp() * 1000 - last > 3_600_000

    def observe(self) -> None:
        """Note which windows are closed, and any that is published too early."""
        closed = self.closed
        self.reached = closed if self.reached is None else max(self.reached, closed or self.reached)
        ends = sorted({int(line.split()[1]) for line in self.lines("hourly")})
        early = [end for end in ends if self.reached is None or self.zone.closes(from_wall(end)) > self.reached]
        if early:
            self.broken = self.broken or f"windows that end at {early} are published, closed is {self.reached}"

    def expect(self, output: str) -> list[str]:
        """Compute the join plainly."""
        del output
        return self.expected(self.closed)

    def expected(self, passed: int | None) -> list[str]:
        """Compute the join plainly, of windows that end by then."""
        return join_plainly(self, self.join[2], passed) if self.windows else super().expected(passed)

    def rest(self) -> None:
        """Let all that waits for a time come due, and all runs end that messages start."""
        self.play()
        if self.idles:
            self.sql(f"{_PASS} RETURNING 1")
            self.observe()
        super().rest()


def open_joined(folder: Path, draw: random.Random) -> Joined:
    """Draw a kind of join, and make its project."""
    idle, url = "1h" if draw.random() < 0.4 else None, f"sqlite:///{folder}/catalog.db"
    zone, day = draw.choice(PLACES)
    if draw.random() < 0.4:
        windows, kind = draw.choice([TUMBLE, HOP, CUMULATE]), draw.choice(JOINS)
        made = open_windows(folder, url, write_joined(windows, kind, zone, idle))
        joined = Joined(made.mill, at=made.at)
        joined.windows, joined.join = windows, (0, 0, kind)
        joined.shape = WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0, windows == CUMULATE)
    else:
        near = open_near(folder, url, *draw.choice(_BOUNDS), draw.choice(_KINDS), idle=idle, zone=zone)
        joined = Joined(near.mill, at=near.at)
        joined.join = near.join
    joined.idles, joined.zone, joined.day = idle is not None, Zone(zone), day
    joined.kind = f"{joined.join} of {joined.windows or 'rows'} idle={joined.idles} in {zone} on {day}"
    return joined


if __name__ == "__main__":
    sys.exit(play_many(open_joined, "joins", __doc__))
