"""Window programs over tables of other kinds: `python -m tests.sim.policies --seeds 500`, or `--seed 17`.

A table has rows outside of their partitions that count (`outside='include'`), or a custom extractor that fails at
first, or is monitored, or has its windows on demand. Most programs compute one or two windows a run. The rest of
a story is as `stories.py` has it. Exit code 1 when an output is not that of one computation, or has a window too early.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.sim.stories import Act, Story, play_many
from tests.sql.conftest import Windows, open_windows
from tests.sql.hours import HOP, HOUR, TUMBLE, write_app
from tests.sql.test_custom_times import TIMES
from tests.stage import EMPTY, open_stage
from tidemill.frames.spark import PartitionWrites
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset
from tidemill.lake.window.window_plan import WindowShape
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.shapes.custom_time import load
from tidemill.testing.plain import write_texts
from tidemill.world import World

KINDS: Final = ("own", "include", "extractor", "monitored", "on demand")
_DECLARED: Final = "clicks = app.fileset("
_TABLE: Final = """
CREATE TABLE clicks (
    line string, ts timestamp, window_start timestamp, window_time timestamp, WATERMARK FOR ts AS SOURCE_WATERMARK
) PARTITIONED BY (day date, hour int) WITH (
    'partition.time-extractor.timestamp-pattern'='$day $hour:00:00', 'partition.time-interval'='1h',
    'partition.outside-policy'='error'{more}
)
"""
_MONITORED: Final = (
    ", 'connector'='filesystem', 'path'='others', 'format'='json', 'streaming-source.enable'='true',"
    " 'streaming-source.monitor-interval'='1 ms'"
)
_BAD: Final = 2
"""The hour for which the extractor raises at first."""
_FUNCTION: Final = "times:read_time"
_NEVER: Final = 25
"""An hour that no day has."""


class PolicyStory(Story):
    """Windows of clicks, whatever kind of table these are in."""

    hours: ClassVar[Sequence[int]] = range(1, 5)
    acts: ClassVar[Sequence[str]] = (*Story.acts, "another act")
    kind = "own"
    told: list[str]

    def find_passed(self) -> int | None:
        """Return the watermark of clicks. None before the first time, and on demand."""
        return self.find_values().get("clicks")

    def observe(self) -> None:
        """No window is published before it is closed."""
        passed, ends = self.find_passed(), {int(line.split()[1]) for line in self.lines("hourly")}
        early = sorted(end for end in ends if passed is None or end > passed)
        if early:
            self.broken = self.broken or f"windows that end at {early} are published, the watermark is {passed}"

    def expect(self, output: str) -> list[str]:
        """Compute the closed windows plainly, over all rows."""
        del output
        passed = self.find_passed()
        return [] if passed is None else self.expected(passed)

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """Do what there is to do for this kind of table alone."""
        del name, draw
        return "nothing", lambda: None


class IncludingStory(PolicyStory):
    """Rows that lie outside of their partition count in the windows of their own times."""

    minutes: ClassVar[Sequence[int]] = (0, 30, 59, -1, -90, 60, 75, 150)
    kind = "include"


class ExtractedStory(PolicyStory):
    """A function of the project reads the times. It raises for one hour, until a person mends or breaks it."""

    kind = "extractor"
    _bad = _BAD

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """Mend the function, or write one that raises for another hour. Deploy it, or have only writers load it."""
        del name
        bad = _NEVER if self._bad != _NEVER else draw.choice(self.hours)
        deployed = draw.random() < 0.5
        return f"write a function that raises for hour {bad}, {deployed=}", lambda: self._write(bad, deployed=deployed)

    def _write(self, bad: int, *, deployed: bool) -> None:
        self._bad = bad
        write_times(self.mill.project.config.folder, bad)
        if deployed:
            self.mill.deploy()
        else:
            load(_FUNCTION)

    def rest(self) -> None:
        """Let all come to rest, with the function mended."""
        self._write(_NEVER, deployed=True)
        super().rest()


class MonitoredStory(PolicyStory):
    """Another program writes the files of the table. Processes list them, each for a while."""

    kind = "monitored"
    excuse = "FileNotFoundError"
    """A run may look for a file that has vanished since the last listing."""
    _discoverer: Discoverer | None = None
    _files = 0

    @property
    def _folder(self) -> Path:
        return self.mill.project.config.folder / "others"

    def add_to(self, table: str, local: str, *minutes: int, how: str = "append") -> None:
        """Write a file beside the others of the hour, or in the place of the last one."""
        del table
        time = datetime.fromisoformat(local)
        opens = self.zone.opens(time)
        self._files += 1
        folder = self._folder / f"day={time:%Y-%m-%d}/hour={time.hour}"
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in folder.iterdir())
        name = there[-1] if there and how == "overwrite" else f"f{self._files:03}"
        hidden = folder / f".{name}"
        hidden.write_text("".join(f'{{"click": "{opens + minute * 60_000_000} {minute}"}}\n' for minute in minutes))
        hidden.replace(folder / name)

    def drop(self, table: str, hour: int) -> None:
        """Delete the directory of an hour."""
        del table
        for folder in self._folder.glob(f"day=*/hour={hour}"):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    def draw_act(self, name: str, draw: random.Random) -> Act:
        """List the table, by the process that has charge of it or by another one."""
        del name
        others = draw.random() < 0.4
        return f"list, others={others}", lambda: self.list_table(others=others)

    def list_table(self, *, others: bool = False) -> None:
        """List the table. With `others`, the process that has charge of it has died."""
        if self._discoverer is None or others:
            told = Narrator(self.world, lambda _: None, as_json=False)
            self._discoverer = Discoverer(self.mill.project.catalog, told)
        self.world.clock.sleep(timedelta(milliseconds=2))
        self._discoverer.list_due()

    def play(self, most: int = 20) -> list[object]:  # type: ignore[override]  # the runs as no caller looks at them
        """List the table, and let runs run."""
        self.list_table()
        return [*super().play(most)]

    def rest(self) -> None:
        """Let all come to rest. The table is then what its directory is."""
        super().rest()
        there = sorted(line for path in self._folder.rglob("f*") for line in path.read_text().splitlines())
        if there != self.lines("clicks"):
            self.broken = self.broken or f"the table is {self.lines('clicks')}, there is {there}"


class AskedStory(PolicyStory):
    """The watermark does not move: windows are computed on demand alone, of all that is there."""

    kind = "on demand"

    def commit(self, dataset: str, rows: Any, op: str = "append") -> None:
        """Commit lines with the columns of the statement."""
        with self.transaction(dataset, _write_as_declared) as tx:
            getattr(tx.fileset(f"default.{dataset}"), op)(rows)

    def find_passed(self) -> int | None:
        """All windows are closed."""
        return 1 << 62

    def rest(self) -> None:
        """Ask until nothing is left."""
        super().rest()
        for _ in range(20):
            before = self.sql("SELECT computed FROM window_program")
            self.run("shop.count_hours")
            if before == self.sql("SELECT computed FROM window_program") and not self.is_more():
                return


def _write_as_declared(
    world: World, rows: Any, fileset: Fileset, directory: str, columns: ColumnSchema | None
) -> PartitionWrites:
    return replace(write_texts(world, rows, fileset, directory), **({"schema": columns} if columns else {}))


def write_times(folder: Path, bad: int) -> None:
    """Write the function, which raises for hour `bad`."""
    (folder / "times.py").write_text(TIMES.format(bad=bad), encoding="utf-8")


def open_policy(folder: Path, draw: random.Random) -> Story:
    """Draw a kind of table, and make its project."""
    kind, windows = draw.choice(KINDS), draw.choice([TUMBLE, HOP])
    limit = draw.choice(["", "", "max_windows=1", "max_windows=2", "max_partitions=1"])
    url = f"sqlite:///{folder}/catalog.db"
    story: PolicyStory
    match kind:
        case "include":
            made = open_windows(folder, url, write_app(windows=windows, more=f"outside='include', {limit}"))
            story = IncludingStory(made.mill, at=made.at)
        case "extractor":
            write_times(folder, _BAD)
            text = write_app(windows=windows, more=limit)
            made = open_windows(folder, url, text.replace('pattern="$day $hour:00:00"', f'extractor="{_FUNCTION}"'))
            story = ExtractedStory(made.mill, at=made.at)
        case "monitored" | "on demand":
            made = _open_table(folder, url, windows, limit, _MONITORED if kind == "monitored" else "")
            story = (MonitoredStory if kind == "monitored" else AskedStory)(made.mill, at=made.at)
        case _:
            made = open_windows(folder, url, write_app(windows=windows, more=limit or "max_windows=1"))
            story = PolicyStory(made.mill, at=made.at)
    story.shape = WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0)
    story.kind = f"{kind}, {windows}, {limit or 'all windows'}"
    return story


def _open_table(folder: Path, url: str, windows: str, limit: str, more: str) -> Windows:
    """Make a project whose table is declared by a statement."""
    made = open_stage(Windows, folder, url, EMPTY)
    if limit:
        name, _, number = limit.replace("_", "-").partition("=")
        more += f", 'window.batch.{name}'='{number}'"
    made.mill.sql(_TABLE.format(more=more))
    begin, end = (text := write_app(windows=windows)).index(_DECLARED), text.index("hourly = app.fileset(")
    text = (text[:begin] + text[end:]).replace("WatermarkPassed(clicks", 'WatermarkPassed("clicks"')
    made.deploy(text if _MONITORED in more else text[: text.index("app.schedule(")])
    return made


if __name__ == "__main__":
    sys.exit(play_many(open_policy, "policies", __doc__))
