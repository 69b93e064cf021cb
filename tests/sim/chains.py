"""Window programs that hand something on: `python -m tests.sim.chains --seeds 500`, or `--seed 17`.

Each schedule has sessions with carries, or a cascade of two programs, and a story as `stories.py` has it: hours come in
any order, are rewritten and dropped; runs overlap, or die at a mark; programs are reset. Exit code 1 when an output is
not that of one computation, or has a window too early.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from tests.sim.stories import Act, Story, play_many
from tests.sql.cascades import FIRST, SECOND, Cascade, open_kinds
from tests.sql.conftest import open_windows
from tests.sql.hours import HOUR, PLACES
from tests.sql.sessions import SessionHours, write_sessions

_GAPS: Final = (30, 61)


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
    hours: ClassVar[Sequence[int]] = (0, 1, 2, 3, 4, 8, 22, 23)
    """Hours around the change of clocks, and at the ends of the day."""
    acts: ClassVar[Sequence[str]] = (*Story.acts, "reset")
    empties = False
    """True if the last hour of all has no rows."""

    def end(self) -> None:
        """Let all runs end that messages start. The last of them may close windows without any rows."""
        super().end()
        if self.empties:
            after = datetime.fromisoformat(self.day) + timedelta(days=1, hours=5)
            self.add_to("clicks", str(after), 0)
            self.drop("clicks", after.hour)
            self.rest()

    def observe(self) -> None:
        """No window is published before it is closed, and the watermark of the windows is not ahead of them."""
        values, reach = self.find_values(), self.find_reach()
        for output, kind, closed in (("hourly", self.first, values["clicks"]), ("shifts", self.second, reach)):
            ends = {int(line.split()[1]) for line in self.lines(output)}
            if early := sorted(end for end in ends if closed is None or kind.closes(end, self.zone) > closed):
                self.broken = self.broken or f"{output} has windows that end at {early}, closed is {closed}"
        value = values["hourly"]
        if value is not None and (reach is None or value > reach):
            self.broken = self.broken or f"the watermark of hourly is {value}, and new windows come from {reach} on"

    def expect(self, output: str) -> list[str]:
        """Compute the closed windows plainly, and from them the closed shifts."""
        return self.compute()[output]

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """Draw a program that is reset."""
        program = draw.choice(self.programs)
        return f"{name} {program}", lambda: self.mill.watermarks.reset(f"shop.{program}")


def open_chain(folder: Path, draw: random.Random) -> Story:
    """Draw sessions or a cascade, and make its project."""
    url = f"sqlite:///{folder}/catalog.db"
    if draw.random() < 0.35:
        gap, hours = draw.choice(_GAPS), draw.choice([2, 4])
        made = open_windows(folder, url, _write(gap, hours * HOUR))
        sessions = SessionStory(made.mill, at=made.at)
        sessions.gap, sessions.longest = gap * HOUR // 60, hours * HOUR
        sessions.kind = f"sessions with gaps of {gap} minutes, {hours} hours long at most"
        return sessions
    column = draw.choice(["window_time", "window_time", "window_start"])
    zone, day = draw.choice(PLACES) if column == "window_time" else PLACES[0]
    first, second = draw.choice([*FIRST]), draw.choice([*SECOND])
    opened = open_kinds(folder, url, column, FIRST[first], SECOND[second], zone, CascadeStory)
    opened.day, opened.empties = day, draw.random() < 0.5
    opened.kind = f"a cascade on {column}, {second} of {first} in {zone} on {day}"
    return opened


if __name__ == "__main__":
    sys.exit(play_many(open_chain, "chains", __doc__))
