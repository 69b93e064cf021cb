"""Window programs of two tables under races and kills: `python -m tests.sim.joins --seeds 500`, or `--seed 17`.

Each schedule is a join of one kind, and a story: hours of either table come in any order, are rewritten and dropped;
one table may be idle; a run stops at a mark, and meanwhile data comes, or another run publishes; a run dies at a mark.
At the end the messages alone have started the runs that were needed, and the output is that of one computation.
Exit code 1 when it is not.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.sql.conftest import open_windows
from tests.sql.hours import HOP, HOUR, TUMBLE
from tests.sql.near import MINUTE, Near, open_near
from tests.sql.plain import count, join_counts, to_texts
from tests.sql.test_several_inputs import APP, JOIN
from tests.sql.test_window_program import MARKS, Killed
from tidemill.lake.window.window_plan import Grid, WindowShape

_BOUNDS: Final = ((90, 30), (0, 120), (-60, 120), (61, -1), (0, 0))
_KINDS: Final = ("", "LEFT", "RIGHT", "FULL", TUMBLE, HOP)
_PASS: Final = "UPDATE partition_change SET at = at - 7200000"
_DUE: Final = "UPDATE window_program SET retry_at = 1 WHERE retry_at > 0"


class Joined(Near):
    """Two tables that are joined, by intervals or by windows, and the acts of a story."""

    windows = ""
    """The window function, of a window join."""
    idles = False

    reached: int | None = None
    """The end of the last window that was ever closed."""
    broken = ""

    @property
    def closed(self) -> int | None:
        """The end of the last window that is closed now: without the lag of views, while they are idle."""
        sql = "SELECT d.name, w.value FROM watermark AS w JOIN dataset AS d ON d.dataset_id = w.dataset_id"
        if not self.idles or not self._is_idle():
            return super().closed
        early, late, kind = self.join
        del early
        lag = {"RIGHT": late, "FULL": max(late, 0)}.get(kind, 0) if not self.windows else 0
        value = dict(self.sql(sql))["clicks"]
        return None if value is None else value - lag * MINUTE

    def _is_idle(self) -> bool:
        last = self.sql(
            "SELECT c.at FROM partition_change AS c JOIN dataset AS d ON d.dataset_id = c.dataset_id"
            " WHERE d.name = 'views' ORDER BY c.commit_seq DESC LIMIT 1"
        )
        return bool(last) and datetime.now(UTC).timestamp() * 1000 - last[0][0] > 3_600_000

    def observe(self) -> None:
        """Note which windows are closed, and any that is published too early."""
        closed = self.closed
        self.reached = closed if self.reached is None else max(self.reached, closed or self.reached)
        ends = sorted({int(line.split()[1]) for line in self.lines("hourly")})
        early = [end for end in ends if self.reached is None or end > self.reached]
        if early:
            self.broken = self.broken or f"windows that end at {early} are published, closed is {self.reached}"

    def expected(self, passed: int | None) -> list[str]:
        """Compute the join plainly."""
        if not self.windows:
            return super().expected(passed)
        counted = [count(self.lines(name), self.shape, self.zone) for name in ("clicks", "views")]
        grid = Grid(self.shape, self.zone)
        closed = {
            window: found
            for window, found in join_counts(*counted).items()
            if passed is not None and grid.closes(window) <= passed
        }
        return sorted(line for text in to_texts(closed).values() for line in text.splitlines())

    def rest(self) -> None:
        """Let all that waits for a time come due, and all runs end that messages start."""
        self.play()
        if self.idles:
            self.sql(f"{_PASS} RETURNING 1")
            self.observe()
        for _ in range(3):
            self.pass_time("UPDATE run SET not_before = 1 WHERE not_before > 0")
            self.pass_time(_DUE)
            self.play()


def open_joined(folder: Path, draw: random.Random) -> Joined:
    """Draw a kind of join, and make its project."""
    kind, idle, url = draw.choice(_KINDS), "1h" if draw.random() < 0.4 else None, f"sqlite:///{folder}/catalog.db"
    if kind in {TUMBLE, HOP}:
        begin, end = APP.index("\n    INSERT"), APP.index("''',\n    calculator")
        query = JOIN.format(clicks=kind, views=kind.replace("clicks", "views"))
        text = APP[:begin] + query.replace("{", "{{").replace("}", "}}") + APP[end:]
        text = text.replace("PlainWindows", "PlainJoin").format(
            clicks="recompute", views="recompute", zone="UTC", idle=idle
        )
        made = open_windows(folder, url, text)
        joined = Joined(made.mill, at=made.at)
        joined.windows, joined.shape = kind, WindowShape(HOUR if kind == TUMBLE else 3 * HOUR, HOUR, 0)
    else:
        bounds = draw.choice(_BOUNDS)
        near = open_near(folder, url, *bounds, kind, idle=idle)
        joined = Joined(near.mill, at=near.at)
        joined.join = near.join
    joined.idles = idle is not None
    return joined


Act = tuple[str, Callable[[], object]]


def draw_data(joined: Joined, draw: random.Random) -> Act:
    """Draw a commit to one of the tables."""
    table, hour = draw.choice(["clicks", "views"]), draw.randrange(4)
    how = draw.choice(["append", "append", "append", "append", "overwrite", "drop"])
    minutes = [draw.choice([0, 1, 29, 30, 31, 59]) for _ in range(draw.randint(1, 2))]
    if how == "drop":
        return f"drop {table} {hour}", lambda: joined.mill.datasets.drop(table, {"hour": hour})
    return f"{how} {table} {hour} {minutes}", lambda: joined.add_to(table, f"2021-03-19 0{hour}:00", *minutes, how=how)


def draw_story(joined: Joined, draw: random.Random) -> list[Act]:
    """Draw the acts of a schedule."""
    story = [draw_data(joined, draw) for _ in range(draw.randint(2, 6))]
    for _ in range(draw.randint(2, 6)):
        mark = draw.choice(MARKS)
        between = [draw_data(joined, draw) for _ in range(draw.randint(0, 2))]
        if draw.random() < 0.5:
            between.insert(draw.randint(0, len(between)), ("another run", joined.run))
        shown = f"at {mark}: {', '.join(what for what, _ in between) or 'nothing'}"
        story.append(draw_data(joined, draw))
        match draw.choice(["data", "play", "run", "run", "kill", "idle"]):
            case "data":
                story.append(draw_data(joined, draw))
            case "play":
                story.append(("play", joined.play))
            case "idle":
                story.append(("time passes", joined.rest))
            case "run":
                story.append((f"run, {shown}", lambda b=between, m=mark: _run(joined, m, b, dies=False)))
            case "kill":
                story.append((f"run that dies, {shown}", lambda b=between, m=mark: _run(joined, m, b, dies=True)))
    # Late data at the end, so that its own message has to start a run.
    return [*story, ("play", joined.play), *(draw_data(joined, draw) for _ in range(draw.randint(1, 2)))]


def _run(joined: Joined, mark: str, between: Sequence[Act], *, dies: bool) -> None:
    """Have a run stop at `mark` for what comes in between. Then the run goes on, or its process has died."""
    joined.mill.runs.start("shop.count_hours")

    def act() -> None:
        for _, each in between:
            each()
            joined.observe()
        if dies:
            raise Killed

    for run in joined.take():
        joined.at[mark] = act
        try:
            joined.driver(run).work(joined.assignment(run))
        except Killed:
            joined.end_attempt(run, "lost", "killed")
        joined.at.pop(mark, None)


def play(seed: int, folder: Path, tell: Callable[[str], None] = lambda _: None) -> str | None:
    """Play a schedule; return what is broken."""
    draw = random.Random(f"joins {seed}")
    joined = open_joined(folder, draw)
    try:
        tell(f"{joined.windows or joined.join} idle={joined.idles}")
        for what, act in draw_story(joined, draw):
            tell(what)
            act()
            joined.observe()
        joined.rest()
        found, expected = joined.lines("hourly"), joined.expected(joined.closed)
        states: list[Any] = joined.sql("SELECT state, exit_reason FROM run WHERE state NOT IN ('COMPLETED', 'KILLED')")
        if joined.broken:
            return joined.broken
        if found != expected:
            return f"the output is {found}, not {expected}"
        return f"runs ended so: {states} {joined.spawner.complaints}" if states else None
    finally:
        joined.mill.close()


def main() -> int:
    """Play many schedules from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.joins", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, with each act")
    asked = parser.parse_args()
    began, failed = time.monotonic(), 0
    seeds = range(asked.first, asked.first + asked.seeds) if asked.seed is None else [asked.seed]
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            broken = play(seed, Path(folder), print if asked.seed is not None else lambda _: None)
        if broken is not None:
            failed += 1
            print(f"BROKEN seed {seed}\n{broken}", flush=True)
    print(f"{len(seeds)} schedules of joins, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
