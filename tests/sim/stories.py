"""Stories of window programs in one process: data comes, while runs stop at a mark, overlap or die.

The acts of a story are drawn from a seed. At the end the messages alone have started the runs that were needed, and
the outputs are those of one computation.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.sql.hours import Plain
from tests.sql.test_window_program import MARKS, Killed

_DUE = "UPDATE window_program SET retry_at = 1 WHERE retry_at > 0"
Act = tuple[str, Callable[[], object]]


class Story(Plain):
    """Tables and window programs of a story."""

    tables: ClassVar[Sequence[str]] = ("clicks",)
    programs: ClassVar[Sequence[str]] = ("count_hours",)
    outputs: ClassVar[Sequence[str]] = ("hourly",)
    day = "2021-03-19"
    hours: ClassVar[Sequence[int]] = range(4)
    """The hours of the day in which rows may come."""
    minutes: ClassVar[Sequence[int]] = (0, 1, 29, 30, 31, 59)
    """The minutes of these hours."""
    acts: ClassVar[Sequence[str]] = ("data", "play", "run", "run", "kill", "idle")
    kind = ""
    """The kind of the programs, for people."""
    broken = ""
    """The first promise that did not hold."""
    excuse = ""
    """A reason for which runs may fail, none if empty."""

    def observe(self) -> None:
        """Note in `broken` if an output has what may not be published yet."""
        raise NotImplementedError

    def expect(self, output: str) -> list[str]:
        """Compute the lines of an output plainly, as it is at the end of the story."""
        raise NotImplementedError

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """Draw an act of this kind of story alone, by its name in `acts`."""
        raise NotImplementedError

    def drop(self, table: str, hour: int) -> None:
        """Drop an hour of a table."""
        self.mill.datasets.drop(table, {"hour": hour})

    def rest(self) -> None:
        """Let all that waits for a time come due, and all runs end that messages start."""
        self.play()
        for _ in range(3):
            self.pass_time("UPDATE run SET not_before = 1 WHERE not_before > 0")
            self.pass_time(_DUE)
            self.play()

    def end(self) -> None:
        """Do what is left to do at the end of the story."""
        self.rest()

    def run_until(self, program: str, mark: str, between: Sequence[Act], *, dies: bool) -> None:
        """Have a run stop at `mark` for the acts `between`. Then the run goes on, or its process has died."""
        self.mill.runs.start(f"shop.{program}")

        def act() -> None:
            for _, each in between:
                each()
                self.observe()
            if dies:
                raise Killed

        for run in self.take():
            self.at[mark] = act
            try:
                self.driver(run).work(self.assignment(run))
            except Killed:
                self.end_attempt(run, "lost", "killed")
            self.at.pop(mark, None)


def draw_data(story: Story, draw: random.Random) -> Act:
    """Draw a commit to one of the tables."""
    table = draw.choice(story.tables) if story.tables[1:] else story.tables[0]
    hour = draw.choice(story.hours)
    how = draw.choice(["append", "append", "append", "append", "overwrite", "drop"])
    minutes = [draw.choice(story.minutes) for _ in range(draw.randint(1, 2))]
    if how == "drop":
        return f"drop {table} {hour}", lambda: story.drop(table, hour)
    local = f"{story.day} {hour:02}:00"
    minutes = story.fit(local, minutes)
    if not minutes:  # the clocks of the zone leave the hour out
        return f"no {table} {hour}", lambda: None
    return f"{how} {table} {hour} {minutes}", lambda: story.add_to(table, local, *minutes, how=how)


def draw_story(story: Story, draw: random.Random) -> list[Act]:
    """Draw the acts of a schedule."""
    plan = [draw_data(story, draw) for _ in range(draw.randint(2, 6))]
    for _ in range(draw.randint(2, 6)):
        mark = draw.choice(MARKS)
        between = [draw_data(story, draw) for _ in range(draw.randint(0, 2))]
        program = draw.choice(story.programs) if story.programs[1:] else story.programs[0]
        if draw.random() < 0.5:
            between.insert(draw.randint(0, len(between)), ("another run", lambda p=program: story.run(f"shop.{p}")))
        shown = f"{program}, at {mark}: {', '.join(what for what, _ in between) or 'nothing'}"
        plan.append(draw_data(story, draw))
        match draw.choice(story.acts):
            case "data":
                plan.append(draw_data(story, draw))
            case "play":
                plan.append(("play", story.play))
            case "idle":
                plan.append(("time passes", story.rest))
            case "run" | "kill" as act:
                how = {"mark": mark, "between": between, "dies": act == "kill"}
                plan.append((f"{act} {shown}", lambda p=program, h=how: story.run_until(p, **h)))
            case other:
                plan.append(story.draw_act(other, draw))
    # Late data at the end, so that its own message has to start a run.
    return [*plan, ("play", story.play), *(draw_data(story, draw) for _ in range(draw.randint(1, 2)))]


OpenStory = Callable[[Path, random.Random], Story]


def play(
    open_story: OpenStory, name: str, seed: int, folder: Path, tell: Callable[[str], None] = lambda _: None
) -> str | None:
    """Play a schedule; return the promise that does not hold."""
    draw = random.Random(f"{name} {seed}")
    story = open_story(folder, draw)
    try:
        tell(story.kind)
        for what, act in draw_story(story, draw):
            tell(what)
            act()
            story.observe()
        story.end()
        story.observe()
        if story.broken:
            return story.broken
        for output in story.outputs:
            found, expected = story.lines(output), story.expect(output)
            if found != expected:
                return f"{output} is {found}, not {expected}"
        states: list[Any] = story.sql("SELECT state, exit_reason FROM run WHERE state NOT IN ('COMPLETED', 'KILLED')")
        ended = [one for one in states if not story.excuse or story.excuse not in (one[1] or "")]
        return f"runs ended so: {ended} {story.spawner.complaints}" if ended else None
    finally:
        story.mill.close()


def play_each(open_story: OpenStory, name: str, seeds: Iterable[int], folder: Path) -> Iterator[tuple[int, str | None]]:
    """Play schedules, each in a folder of its own; yield each seed with the promise that does not hold."""
    for seed in seeds:
        own = folder / f"{name}-{seed}"
        own.mkdir(parents=True)
        yield seed, play(open_story, name, seed, own)


def play_many(open_story: OpenStory, name: str, text: str | None) -> int:
    """Play the schedules that the command line names; return the exit code, 1 if one is broken."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.sim.{name}", description=text)
    parser.add_argument("--seeds", type=int, default=200, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, with each act")
    asked = parser.parse_args()
    began, failed = time.monotonic(), 0
    seeds = range(asked.first, asked.first + asked.seeds) if asked.seed is None else [asked.seed]
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            broken = play(open_story, name, seed, Path(folder), print if asked.seed is not None else lambda _: None)
        if broken is not None:
            failed += 1
            print(f"BROKEN seed {seed}\n{broken}", flush=True)
    print(f"{len(seeds)} schedules of {name}, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0
