"""Real drivers of a window program, killed (-9) at every step: `python -m tests.chaos.windows --kills 100`.

Hours come in any order, late and again; runner, scheduler and keeper are the product's own, in this process. Each
driver is a process of its own, which kills itself at a mark that is drawn for it, with nothing of Python in between.
Waits between attempts are skipped.
After each commit, and at the end, each window is there once, and equals one plain computation.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from tests.chaos.window_projects import Kind, open_project
from tests.drivers import cold_drivers
from tests.spawners import PlayedDrivers
from tests.yardstick import patience
from tidemill.lake import janitor
from tidemill.narration import Narrator
from tidemill.processes import LocalChild, LocalSpawner
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.driver import main as drive
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.processes.runner import Runner
from tidemill.run.step.outputs import write_frames
from tidemill.schedule.loop import Scheduler
from tidemill.testing.plain import write_texts
from tidemill.upkeep.audit import audit
from tidemill.world import World

FIRST = datetime(2021, 3, 19)  # noqa: DTZ001  # a wall-clock time of UTC
_SPARK = {"spark.master": "local[1]", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
_FATAL = "TIDEMILL_FATAL_MARK"
_KILLS = "TIDEMILL_KILLS"
ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = patience(600)
_MARKS_OF_A_RUN = 26
"""About so many steps has a driver on its way from its start to its end."""


def drive_until_killed(*, spark: bool) -> None:
    """Be a driver, up to its fatal mark."""
    fatal, told = int(os.environ[_FATAL]), os.environ[_KILLS]
    reached = 0

    def marked(name: str) -> None:
        nonlocal reached
        reached += 1
        if reached == fatal:
            with Path(told).open("a", encoding="utf-8") as kills:
                kills.write(f"{name}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    drive(World(marked=marked), writer=write_frames if spark else write_texts)


def _options_of(catalog_url: str, folder: Path, *, spark: bool) -> DriverOptions:
    """Return how drivers start: two with Spark, since a JVM takes longer to start than a run takes."""
    if not spark:
        return cold_drivers(catalog_url, folder / "state", folder / "cache")
    profiles = {"": ProfileOptions(_SPARK, warm=2)}
    return DriverOptions(catalog_url, folder / "state", folder / "cache", profiles, plain=0, class_data=True)


class _Drivers(PlayedDrivers):
    """Starts drivers that die, and any other process as it is: the one that makes the archive of Spark's classes."""

    def start(self, argv, *, env, **how) -> LocalChild:
        """Start one."""
        if "tidemill.run.processes.driver" in argv:
            return super().start(argv, env=env, **how)
        return LocalSpawner.start(self, argv, env=env, **how)


class Campaign:
    """Project of the campaign, and the processes that work on it."""

    def __init__(
        self,
        folder: Path,
        url: str | None,
        kind: Kind,
        seed: int,
        *,
        spark: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tell = tell
        # A driver with Spark serves many runs: it may die in the second one.
        self._mortal, self._longest_life = (1.0, _MARKS_OF_A_RUN * 3 // 2) if spark else (0.8, _MARKS_OF_A_RUN)
        self.chance = random.Random(seed)
        self.told = folder / "kills"
        self.plain = open_project(kind, folder / "project", url or f"sqlite:///{folder}/catalog.db", spark=spark)
        self.deadly = True
        """False: drivers live from now on."""
        arguments = ("-m", "tests.chaos.windows", "--driver", *(["--spark"] if spark else []))
        world = World(spawner=_Drivers(*arguments, environ=self._draw_death))
        catalog = self.plain.mill.project.catalog
        launcher = LocalLauncher(world, _options_of(catalog.url, folder, spark=spark))
        self.runner = Runner(world, catalog, launcher, slots=1)
        self.scheduler = Scheduler(catalog, world, lambda _: None)
        self.keeper = Keeper(catalog, Discoverer(catalog, Narrator(world, lambda _: None, as_json=False)))
        self.hours = dict.fromkeys(kind.tables, 0)
        """The next hour of each table."""
        self.looks = 0
        self.seen = 0

    def _draw_death(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Draw the step at which the next driver dies. Its Python has to find the tests, from another folder."""
        fatal = self.chance.randint(1, self._longest_life) if self.deadly and self.chance.random() < self._mortal else 0
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), environ.get("PYTHONPATH", "")])
        return {"PYTHONPATH": path, _FATAL: str(fatal), _KILLS: str(self.told)}

    def kills(self) -> Counter[str]:
        """Count the drivers that have died at each mark."""
        return Counter(self.told.read_text(encoding="utf-8").split()) if self.told.exists() else Counter()

    def play(self, kills: int) -> None:
        """Publish and kill until so many have died; then let all work come to its end."""
        dead, began = 0, time.monotonic()
        since = began
        while dead < kills:
            assert time.monotonic() < since + _PATIENCE, f"{dead} drivers died, and then none: do they start at all?"
            if self.is_idle():
                self.publish()
            self.step()
            if (now := self.kills().total()) > dead:
                dead, since = now, time.monotonic()
                self._tell(
                    f"{since - began:.0f} s: {dead} of {kills} drivers have died, {self.seen} runs have committed"
                )
        self.deadly = False
        until = time.monotonic() + _PATIENCE
        while not self.is_idle():
            assert time.monotonic() < until, "stuck: it comes to no end"
            self.step()
        self.runner.launcher.close()

    def publish(self) -> None:
        """An hour or two: the next, an earlier one that is late, or one again."""
        for _ in range(self.chance.randint(1, 3)):
            # The table that is behind, so that no table holds the windows of the other one for long.
            table = min(self.hours, key=lambda name: self.hours[name])
            what, next_hour = self.chance.random(), self.hours[table]
            late = next_hour and what < 0.4
            hour = self.chance.randrange(next_hour) if late else next_hour
            self.hours[table] += not late
            how = "overwrite" if what < 0.1 else "append"
            minutes = self.chance.sample(range(60), self.chance.randint(1, 3))
            self.plain.add_to(table, str(FIRST + timedelta(hours=hour)), *minutes, how=how)

    def step(self) -> None:
        """Everybody's turn; what was published meanwhile is looked at."""
        while self.scheduler.step() == timedelta(0):
            pass
        self.runner.step()
        self.keeper.step()
        if self.plain.sql("SELECT 1 FROM run WHERE ended_at IS NULL AND not_before > 1"):
            self.plain.pass_time("UPDATE run SET not_before = 1 WHERE ended_at IS NULL AND not_before > 1")
        ((commits,),) = self.plain.sql("SELECT count(*) FROM message WHERE event_type = 'windows'")
        if commits > self.seen:
            self.seen = commits
            self.look()
        time.sleep(0.02)

    def look(self) -> None:
        """No window is there twice."""
        self.looks += 1
        windows = Counter(tuple(line.split()[:2]) for line in self.plain.lines("hourly"))
        twice = {window: number for window, number in windows.items() if number > 1}
        assert not twice, f"doubled: {twice}"

    def is_idle(self) -> bool:
        """Return whether nothing is left to do."""
        return not self.plain.sql(
            "SELECT 1 FROM run WHERE ended_at IS NULL UNION ALL SELECT 1 FROM job WHERE state <> 'PENDING_TRIGGER'"
            " UNION ALL SELECT 1 FROM window_program AS p WHERE p.retry_at IS NOT NULL OR coalesce(p.computed, -1) <"
            " (SELECT min(coalesce(w.value, -1)) FROM window_input AS i JOIN watermark AS w"
            " ON w.dataset_id = i.dataset_id WHERE i.program_id = p.program_id) OR EXISTS (SELECT 1"
            " FROM window_input AS i JOIN partition_change AS c ON c.dataset_id = i.dataset_id"
            " WHERE i.program_id = p.program_id AND c.commit_seq >= p.seen AND c.partition_time < p.computed)"
        )

    def judge(self) -> dict[str, object]:
        """Return the figures of the campaign. AssertionError if a promise does not hold."""
        plain = self.plain
        found, wanted = plain.lines("hourly"), plain.expected(plain.passed)
        assert found == wanted, f"the windows are {found}, not {wanted}"
        computed = None
        for (text,) in plain.sql("SELECT payload FROM message WHERE event_type = 'windows' ORDER BY seq"):
            said = json.loads(text)
            assert said["from"] == computed, f"computed went on from {said['from']}, not {computed}"
            computed = said["to"]
        findings = audit(plain.mill.project.catalog).findings
        assert not findings, f"the audit finds {findings}"
        janitor.sweep(plain.mill.project.catalog)
        left = plain.sql("SELECT count(*) FROM tx WHERE state = 'in_progress'")
        assert left == [(0,)], "a transaction is open"
        kills = self.kills()
        ((attempts,),) = plain.sql("SELECT sum(epoch) FROM run WHERE kind = 'program'")
        ((runs,),) = plain.sql("SELECT count(*) FROM run WHERE kind = 'program' AND state = 'COMPLETED'")
        return {
            "drivers killed (-9)": kills.total(),
            "at so many steps": len(kills),
            "attempts / completed runs": f"{attempts} / {runs}",
            "hours": sum(self.hours.values()),
            "windows": len(found),
            "looks of readers": self.looks,
            "lost, doubled, wrong": 0,
        }


def main() -> int:
    """Run the campaign from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.windows", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--catalog", metavar="URL", help="an empty database; one of SQLite unless told")
    parser.add_argument("--kind", type=Kind, choices=list(Kind), default=Kind.TUMBLE, help="session and join: --spark")
    parser.add_argument("--spark", action="store_true", help="windows that Spark computes, over Parquet")
    parser.add_argument("--driver", action="store_true", help="be one of its drivers")
    asked = parser.parse_args()
    if asked.driver:
        drive_until_killed(spark=asked.spark)
        return 0
    if asked.kind in {Kind.SESSION, Kind.JOIN} and not asked.spark:
        parser.error(f"--kind {asked.kind} needs --spark")
    # As for the tests: JVMs that live so short a time spend a third of it on compiling code twice.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    began, tell = time.monotonic(), functools.partial(print, flush=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tidemill-windows-", dir=memory) as folder:
        campaign = Campaign(Path(folder), asked.catalog, asked.kind, asked.seed, spark=asked.spark, tell=tell)
        campaign.play(asked.kills)
        figures = campaign.judge()
        for name, number in campaign.kills().most_common():
            print(f"  {name:<40}{number:>6}")
        campaign.plain.mill.close()
    for name, figure in {**figures, "seconds": round(time.monotonic() - began)}.items():
        print(f"{name:<42}{figure:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
