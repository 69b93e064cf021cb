"""Window programs that hand something on: `python -m tests.sim.chains --seeds 500`, or `--seed 17`.

Each schedule has sessions with carries, or a cascade of two programs, and a story as `stories.py` has it: hours come in
any order, are rewritten and dropped; runs overlap, or die at a mark; programs are reset. Exit code 1 when an output is
not that of one computation, or has a window too early.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from tests.sim.stories import Act, Story, play_many
from tests.sql.conftest import open_windows
from tests.sql.hours import HOP, HOUR, TUMBLE
from tests.sql.plain import count, to_texts, windows_of
from tests.sql.sessions import SessionHours, write_sessions
from tests.sql.test_cascades import SHIFT, Cascade
from tests.sql.test_cascades import write_app as write_cascade
from tidemill.lake.window.window_plan import Window, WindowShape

_GAPS: Final = (30, 61)
_MILLISECOND: Final = 1000


class SessionStory(Story, SessionHours):
    """Sessions of clicks, over carries."""

    hours: ClassVar[Sequence[int]] = range(8)
    acts: ClassVar[Sequence[str]] = (*Story.acts, "gap")

    def observe(self) -> None:
        """No session is published before its slot is closed."""
        passed = self.find_values()["clicks"]
        ends = {line: int(line.split()[1]) for line in self.lines("hourly")}
        early = [line for line, end in ends.items() if passed is None or end - end % HOUR + HOUR > passed]
        if early:
            self.broken = self.broken or f"sessions {early} are published, the watermark is {passed}"

    def expect(self, output: str) -> list[str]:
        """Find the closed sessions by one walk."""
        del output
        passed = self.find_values()["clicks"]
        return [] if passed is None else self.expected(passed)

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """Draw another gap, for which the program is reset."""
        gap = draw.choice(_GAPS)

        def change() -> None:
            self.mill.watermarks.reset("shop.count_hours")
            self.gap = gap * HOUR // 60
            self.deploy(_write(gap, self.longest))

        return f"{name} {gap}", change


def _write(gap: int, longest: int) -> str:
    return write_sessions(gap).replace("session_max='4h'", f"session_max='{longest // HOUR}h'")


class CascadeStory(Story, Cascade):
    """Windows of clicks, and shifts over these windows."""

    programs: ClassVar[Sequence[str]] = ("count_hours", "add_up")
    outputs: ClassVar[Sequence[str]] = ("hourly", "shifts")
    hours: ClassVar[Sequence[int]] = range(2, 9)
    """No window of them begins on the day before."""
    acts: ClassVar[Sequence[str]] = (*Story.acts, "reset")
    column = "window_time"

    @property
    def reach(self) -> int | None:
        """The time before which no new window has its `column`."""
        passed = self.find_values()["clicks"]
        if passed is None or self.column == "window_time":
            return passed
        return passed - (self.shape.size - self.shape.slide)

    def observe(self) -> None:
        """No window is published before it is closed, and the watermark of the windows is not ahead of them."""
        values, reach = self.find_values(), self.reach
        for output, closed in (("hourly", values["clicks"]), ("shifts", reach)):
            ends = {int(line.split()[1]) for line in self.lines(output)}
            if early := sorted(end for end in ends if closed is None or end > closed):
                self.broken = self.broken or f"{output} has windows that end at {early}, closed is {closed}"
        value = values["hourly"]
        if value is not None and (reach is None or value > reach):
            self.broken = self.broken or f"the watermark of hourly is {value}, and new windows come from {reach} on"

    def expect(self, output: str) -> list[str]:
        """Compute the closed windows plainly, and from them the closed shifts."""
        passed, reach = self.find_values()["clicks"], self.reach
        if passed is None or reach is None:
            return []
        counted = count(self.lines("clicks"), self.shape, self.zone)
        windows = {window: one for window, one in counted.items() if window.end <= passed}
        if output == "shifts":
            windows = {shift: one for shift, one in self._add_up(windows).items() if shift.end <= reach}
        return sorted(line for text in to_texts(windows).values() for line in text.splitlines())

    def _add_up(self, windows: dict[Window, tuple[int, int]]) -> dict[Window, tuple[int, int]]:
        found: defaultdict[Window, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for window, (number, total) in windows.items():
            at = window.end - _MILLISECOND if self.column == "window_time" else window.start
            (shift,) = windows_of(at, SHIFT, self.zone)
            found[shift] = found[shift][0] + number, found[shift][1] + total
        return found

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """Draw a program that is reset."""
        program = draw.choice(self.programs)
        return f"{name} {program}", lambda: self.mill.watermarks.reset(f"shop.{program}")


def open_chain(folder: Path, draw: random.Random) -> Story:
    """Draw sessions or a cascade, and make its project."""
    url = f"sqlite:///{folder}/catalog.db"
    if draw.random() < 0.5:
        gap, hours = draw.choice(_GAPS), draw.choice([2, 4])
        made = open_windows(folder, url, _write(gap, hours * HOUR))
        sessions = SessionStory(made.mill, at=made.at)
        sessions.gap, sessions.longest = gap * HOUR // 60, hours * HOUR
        sessions.kind = f"sessions with gaps of {gap} minutes, {hours} hours long at most"
        return sessions
    column, windows = draw.choice(["window_time", "window_start"]), draw.choice([TUMBLE, HOP])
    made = open_windows(folder, url, write_cascade(column).replace(TUMBLE, windows))
    cascade = CascadeStory(made.mill, at=made.at)
    cascade.column, cascade.shape = column, WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0)
    cascade.kind = f"a cascade on {column} of {windows}"
    return cascade


if __name__ == "__main__":
    sys.exit(play_many(open_chain, "chains", __doc__))
