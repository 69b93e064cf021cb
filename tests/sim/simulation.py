"""Simulation of one schedule from one seed: a small project on one or two nodes, from the first file to the rest.

The catalog, the consumers, the inbox, scheduler, runner, reaper, keeper and janitor are the product's own. The
simulation plays the time, the choice of the next process and its faults (`chance`), and the outside: files, notebooks,
people, restarts of dead nodes. It also plays the programs.
"""

from __future__ import annotations

import logging
import os
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.drivers import cold_drivers
from tests.sim import flows, monitored, past, truth, windows
from tests.sim.bucket import bucket_below, location_in
from tests.sim.chance import DEADLY, Chance, ProgramStumbled, node_of
from tests.sim.committed import Write, fold, plain
from tests.sim.projects import KEEP, LEASE, SHAPES, Ground, Programs, Shape, lack_library, read_text, write_texts
from tidemill.catalog.db import Db
from tidemill.errors import Conflict, Fenced, Unavailable, UserError
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerResult, consume_partitions
from tidemill.lake.datasets import find
from tidemill.lake.fileset.fileset import Fileset, Partition, pin_within, read_partitions
from tidemill.lake.inbox.inbox import content_version
from tidemill.names import DEFAULT_NAMESPACE, PinId, RunId, ScheduleId
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import Janitor
from tidemill.roles.keeper import Keeper
from tidemill.roles.loops import loop
from tidemill.run.processes.external import open_transaction
from tidemill.run.processes.java import NoJava
from tidemill.run.processes.launcher import Running
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher
from tidemill.run.processes.reaper import Reaper
from tidemill.run.processes.runner import Runner, _Held, _Waiting
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import Cause, RunRecord
from tidemill.run.step.attempts import AttemptEnd, ask_kill
from tidemill.run.step.context import workspace_of
from tidemill.schedule.changes import Resume, Suspend, announce_work, change_schedules
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.schedules import list_schedules
from tidemill.schedule.specs import SuspendMode
from tidemill.storage.locations import open_files
from tidemill.testing.machine import Group, Machine, PointKind, Process
from tidemill.upkeep.retention import Historian
from tidemill.world import World

MOST_STEPS: Final = 40_000
"""Steps after which work that still goes on counts as stuck. The longest of 9,600 schedules took 12,494."""
LONGEST_REST: Final = timedelta(minutes=45)
_AWAY: Final = timedelta(seconds=1)
_LEAVE_FOR: Final = timedelta(seconds=2)
_SOON: Final = timedelta(minutes=2)


class Broken(Exception):
    """A promise that does not hold in this schedule."""


class Abandoned(Exception):
    """Error by which a notebook's user aborts a transaction."""


@dataclass
class Outcome:
    """Outcome of a schedule. `broken` names a broken promise, None if all hold."""

    seed: int
    steps: int
    runs: int
    transactions: int
    struck: Counter[str]
    broken: str | None = None
    kind: str = ""
    trace: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Intent:
    """A write call of a transaction that came to its end: tokens by partition."""

    dataset: str
    op: str
    texts: Mapping[str, list[str]]


class PlayedLauncher(LocalLauncher):
    """Finds no Java at times, as if all programs needed one."""

    def __init__(self, simulation: Simulation, process: Process, options: DriverOptions) -> None:
        super().__init__(process.world, options)
        self.simulation = simulation

    def start(self, run_id: RunId, epoch: int, program: Program, code: AppCode) -> str | None:
        if self.world.clock.monotonic() < self.simulation.without_java_until:
            self.simulation.refused[run_id] += 1
            raise NoJava("it was taken away")
        return super().start(run_id, epoch, program, code)


class PlayedRunner(Runner):
    """Tells the simulation which leases it took, or got to renew, and when."""

    simulation: Simulation

    def _launch_waiting(self, waiting: _Waiting) -> bool:
        attempt = (waiting.run.run_id, waiting.run.epoch)
        if attempt not in self.simulation.leases:
            self.simulation.leased([attempt], waiting.since)
        return super()._launch_waiting(waiting)

    def _end_waiting(self, waiting: _Waiting, end: AttemptEnd) -> None:
        self.simulation.unloaded[waiting.run.run_id] += end.cause in {Cause.UNLOADED, Cause.LACKING}
        super()._end_waiting(waiting, end)

    def _learn(self, held: _Held, run: RunRecord) -> None:
        self.simulation.unloaded[run.run_id] += run.exit_cause in {Cause.UNLOADED, Cause.POSTPONED}
        super()._learn(held, run)

    def _leave(self, what: str, duration: timedelta = _LEAVE_FOR) -> None:
        """For a moment only, so that a run meets many nodes that lack something."""
        super()._leave(what, min(duration, _LEAVE_FOR))

    def renew(self) -> None:
        before, now = self._renewed_at, self.world.clock.monotonic()
        attempts = [(run_id, held.run.epoch) for run_id, held in self._held.items()]
        working = [attempt for attempt in attempts if isinstance(self.launcher.poll(*attempt), Running)]
        super().renew()
        if self._renewed_at != before:
            self.simulation.leased(working, now)


class PlayedReaper(Reaper):
    """Reaper that sometimes waits between its look and its fence, and reports the fence to the simulation."""

    simulation: Simulation

    def _fence(self, run: RunRecord, end: AttemptEnd) -> bool:
        self.simulation.wake_sleeper(self.world.clock)
        fenced = super()._fence(run, end)
        if fenced and end.unrenewed is not None:
            self.simulation.fenced(run)
        return fenced


class PlayedMachine(Machine):
    """Tells the simulation of ends and of idle moments."""

    simulation: Simulation

    def ready(self) -> list[Process]:
        now = self.current
        works = now is not None and not now.finished and now.wakes_at is None and now.held_until is None
        # Most turns go to a process that works already: then the other processes need no look.
        return [now] if works and self.simulation.chance.stays(self) else super().ready()

    def glides(self, process: Process) -> bool:
        return process.wakes_at is None and self.simulation.passes(process)

    def ended(self, process: Process) -> None:
        self.simulation.ended(process)

    def idle(self) -> bool:
        return self.simulation.is_over()


class Simulation(Programs):
    """A schedule under way."""

    suspended = False
    """True if a person has suspended schedules: no schedule has heard what came then."""
    _resumed = False
    _landed_at = 0
    """Time of the last file that has landed, in nanoseconds."""
    _hours_to_come = 0
    _failures_left = 3
    """Number of runs of nodes, and of backfills, that may still fail by themselves."""
    _meddlers = 3
    """Number of notebooks that still change data under compaction."""
    sleeper: Process | None = None
    """Runner that is stopped while one of its drivers works."""

    def __init__(self, ground: Ground, seed: int, *, last_fault: int | None = None, traced: bool = False) -> None:
        self.seed = seed
        self.ground = ground
        self.folder = ground.folder
        self.shape = Shape.of(seed % SHAPES)
        ground.prepare(self.shape, self)
        self.whims = random.Random(f"story {seed}")
        self.active = self.whims.randint(60, 200)
        """Steps after which the outside rests, and nothing goes wrong any more."""
        careful = self.shape.poison or self.shape.poison_partition
        until = self.active if last_fault is None else min(last_fault, self.active)
        self.chance = Chance(
            seed, until, gap=self.whims.choice([40, 80, 160]), may_stumble=not careful, shape=self.shape
        )
        if traced:
            self.chance.trace = []
        self.machine = PlayedMachine(ground.catalog, ground.clock, self.chance, random.Random(seed), self.write)
        self.machine.simulation = self
        # No process can see a difference between the point after a read and the point before the next call.
        self.machine.passed = frozenset({PointKind.AFTER_READ})
        self.outside = self.machine.group("outside", "outside")
        self.nodes: list[Group] = []
        self.intents: dict[int, list[Intent]] = {}
        """By write pointer."""
        self.taken: dict[int, list[tuple[int, str]]] = {}
        """The changes of `lines` that a transaction's program was given, by write pointer."""
        self.landed: dict[str, tuple[str, str, list[str]]] = {}
        """By content version: inbox, name, tokens."""
        self.newest: dict[tuple[str, str], str] = {}
        """The content version that stands in an inbox under a name."""
        self.committed_notebooks: list[int] = []
        self.refused_notebooks: list[int] = []
        self.followed: list[PartitionConsumerResult] = []
        self.follows = self.whims.random() < 0.4
        self.drops: list[tuple[int, str, str, bool]] = []
        """Intended drops of transactions, by write pointer, and whether the partition was there."""
        self.looked: list[tuple[int, Mapping[str, list[str]]]] = []
        """Content of all of `lines` as programs saw it, by write pointer."""
        self.viewed: list[tuple[int, int]] = []
        """Version of the copy that an attempt was given, by write pointer."""
        self.ticks = windows.Ticks()
        self.refused: Counter[str] = Counter()
        self.unloaded: Counter[str] = Counter()
        """Attempts that could not be started, by run."""
        self.without_java_until = timedelta(0)
        self.leases: dict[tuple[str, int], timedelta] = {}
        """When an attempt could be given its last lease."""
        self._deaths = 6 if self.whims.random() < 0.02 and not self.shape.poison else 0
        """Number of processes that still die while they read a file."""
        self._rewrites = int(self.whims.random() < 0.1)
        """Number of files that are still written again while they are read."""
        self.quiet_since: timedelta | None = None
        self._failures = random.Random(f"failures {seed}")
        self._story = self._make_story()

    # What programs do

    def load(self, run: Any) -> None:
        self._digest_files(run, "raw", "lines")

    def both(self, run: Any) -> None:
        self._digest_files(run, "again", "mixed")
        self._digest_lines(run, "mixed", "b", lambda key: key)

    def sum_up(self, run: Any) -> None:
        self._digest_lines(run, "totals", "s", lambda key: key)

    def second(self, run: Any) -> None:
        self._digest_lines(run, "others", "o", lambda key: key)

    def once(self, run: Any) -> None:
        self._digest_lines(run, "firsts", "f", lambda key: key)

    def tidy(self, run: Any) -> None:
        self._digest_lines(run, "lines", "t", lambda key: f"t{key}")

    def fetch(self, run: Any) -> None:
        self._fail_at_times()
        run.put("files", len(run.input("default.cargo").files))

    def pick(self, run: Any) -> None:
        self._digest_files(run, "cargo", "crates")
        self._fail_at_times()

    def extra(self, run: Any) -> None:
        del run
        self.reach("extra")
        self._fail_at_times()

    def pack(self, run: Any) -> None:
        self.reach("pack")
        self._fail_at_times()
        found = len(run.input("default.cargo").files)
        if run.arguments["files"] != found:
            raise Broken(f"dirty: a node was told of {run.arguments['files']} files, and got {found}")

    def daily(self, run: Any) -> None:
        if "backfill" in run.triggered_by:
            self._fail_at_times()
        self._digest_lines(run, "days", "d", lambda key: key)

    def below(self, run: Any) -> None:
        texts = {}
        for partition in run.input("default.days").partitions:
            key = str(partition["name"])
            self.reach(f"read {key} of days")
            texts[key] = [f"{run.write_pointer}.{key}"]
        self._publish(run, "weeks", texts)

    def _fail_at_times(self) -> None:
        if self._failures_left and self._failures.random() < 0.3:
            self._failures_left -= 1
            raise ProgramStumbled("by itself")

    def after(self, run: Any) -> None:
        del run
        self.reach("after")

    def strike(self, run: Any) -> None:
        del run
        self.reach("strike")

    def mirror(self, run: Any) -> None:
        self.reach("read the source")
        if self.whims.random() < 0.3:
            workspace_of(run).world.clock.sleep(timedelta(seconds=6))  # the next refresh overtakes this one
        texts = {"": [f"{run.write_pointer}.{place}" for place in range(self.whims.randint(2, 3))]}
        self.put(run.write_pointer, run.output("default.copy"), "copy", "replace", texts)

    def compact(self, run: Any) -> None:
        """Compact as `run.compact` does, with text in place of Spark's frame."""
        workspace, name = workspace_of(run), "default.lines"
        outputs = workspace.outputs
        found = outputs.find_fragmented(name, None)
        if not found:
            return
        dataset_id, pin_id = self._lines().dataset_id, PinId(workspace.world.new_id("pin"))
        workspace.catalog.write(lambda db: pin_within(db, workspace.tx, pin_id, dataset_id, workspace.tx))
        self.reach("read to compact")
        if self._meddlers and self.whims.random() < 0.5:
            self._meddlers -= 1
            key, op = plain(found[0].partition_key), self.whims.choice(["append", "overwrite", "drop"])
            self._story.append((self.chance.step, lambda: self.publish_by_hand(8, [(op, key)])))
        if self.whims.random() < 0.5:
            workspace.world.clock.sleep(timedelta(seconds=6))  # others publish and compact meanwhile
        rows = {
            partition.partition_key: [
                token for file, _ in partition.files for token in read_text(self.folder / "lines", file)
            ]
            for partition in found
        }
        outputs.compact(name, found, rows)

    def view(self, run: Any) -> None:
        given = run.input("default.copy")
        self.viewed.append((run.write_pointer, given.version))
        self._look_at_copy(given)
        if self.whims.random() < 0.1:
            self._take_time()
            self._look_at_copy(given)

    def _look_at_copy(self, given: Any) -> None:
        version = given._version
        self.reach(f"read version {version.version}")
        found = [
            token
            for file in version.manifest.files
            for token in read_text(self.folder / "copy", f"{version.location}/{file.name}")
        ]
        wanted = fold(self.intents.get(version.version, []), "copy").get("", Write(replaces=True, tokens=[])).tokens
        if found != wanted:
            raise Broken(f"dirty: version {version.version} of the copy holds {found}, not {wanted}")

    def read_hour(self, run: Any, partition: Partition) -> list[str]:
        self.reach(f"read {partition.partition_key}")
        if self.whims.random() < 0.1:
            run.world.clock.sleep(timedelta(seconds=6))  # others publish meanwhile, or compute the same
        if self.ticks.are_unreadable(partition.partition_key, self.whims):
            self._hours_to_come = 3  # so long may it take until it is tried again, when the clock was set
            raise ValueError(f"cannot read {partition.partition_key}")
        return [token for name, _ in partition.files for token in read_text(self.folder / "ticks", name)]

    def reach(self, name: str) -> None:
        """Come to a point in code of the user's."""
        process = self.machine.current
        assert process is not None
        process.reach(PointKind.PROGRAM, name)

    def write(
        self, _world: World, rows: Mapping[str, list[str]], fileset: Fileset, directory: str, _columns: object
    ) -> Any:
        """Spark's place."""
        process = self.machine.current
        assert process is not None
        return write_texts(rows, fileset, directory, self.folder, lambda what: process.reach(PointKind.DISK, what))

    def _digest_files(self, run: Any, inbox: str, output: str) -> None:
        texts: dict[str, list[str]] = {}
        for name in run.input(f"default.{inbox}").files:
            self.reach(f"read {name}")
            if self._deaths:
                self._deaths -= 1
                self.reach(DEADLY)
            if self._rewrites and not name.startswith("poison"):
                self._rewrites -= 1
                self.land(inbox, name)
            if name.startswith("poison"):
                raise ValueError(f"cannot digest {self.folder / 'landing' / name}" if self.seed % 2 else "poisoned")
            texts.setdefault(name[0], []).extend(read_text(self._inbox_folder(inbox), name))
        self._publish(run, output, texts)

    def _digest_lines(self, run: Any, output: str, mark: str, name: Callable[[str], str]) -> None:
        given = run.input("default.lines")
        looks = self.whims.random()
        if looks < 0.08:
            self._look_at_all(run)
        if looks < 0.04:
            self._take_time()
            self._look_at_all(run)
        texts: dict[str, list[str]] = {}
        taken = self.taken.setdefault(run.write_pointer, [])
        for partition, delivery in zip(given.partitions, given.deliveries, strict=True):
            key = str(partition["name"])
            self.reach(f"read {key}")
            if key == "p" and mark == "s" and self.shape.poison_partition:
                raise ValueError("poisoned")
            for change in delivery.changes:
                taken.append((change.write_pointer, key))
                found = [
                    token
                    for file in change.manifest.files
                    for token in read_text(self.folder / "lines", f"{change.location}/{file.name}")
                ]
                wanted = fold(self.intents.get(change.write_pointer, []), "lines").get(key)
                if wanted is None or sorted(found) != sorted(wanted.tokens):
                    raise Broken(f"dirty: {key} of {change.write_pointer} holds {found}, not {wanted}")
                texts.setdefault(name(key), []).extend(f"{token}+{mark}" for token in found)
        self._publish(run, output, texts)

    def _look_at_all(self, run: Any) -> None:
        """Look as `run.read` does before Spark reads."""
        workspace, dataset_id = workspace_of(run), self._lines().dataset_id
        catalog, tx = workspace.catalog, workspace.tx
        pin_id = PinId(catalog.world.new_id("pin"))
        catalog.write(lambda db: pin_within(db, tx, pin_id, dataset_id, tx))
        seen = catalog.read(lambda db: read_partitions(db, dataset_id, tx, compacted=True))
        self.looked.append((run.write_pointer, truth.read_tokens(self.folder / "lines", seen)))

    def _take_time(self) -> None:
        """Work for longer than a lease; others publish, the clock is set, or the runner alone is stopped meanwhile."""
        driver = self.machine.current
        assert driver is not None
        duration = LEASE * (1.4 + self.whims.random() / 2)
        runners = [p for p in self.machine.processes if p.group is driver.group.parent and p.name.startswith("runner")]
        if self.whims.random() < 0.5:
            self.start_notebook(10 + len(self.looked), key="n")
        what = self.whims.random()
        if what < 0.5:
            self.ground.clock.jump(timedelta(hours=1))
        elif what < 0.8 and self.shape.nodes > 1 and runners:
            self.sleeper = runners[0]
            self.machine.hold(self.sleeper, duration)
        driver.world.clock.sleep(duration)

    def _publish(self, run: Any, name: str, texts: Mapping[str, list[str]]) -> None:
        if not texts:
            return
        parts = [texts]
        if len(texts) > 1 and self.whims.random() < 0.3:
            parts = [{key: texts[key]} for key in texts]
        for part in parts:
            self.put(run.write_pointer, run.output(f"default.{name}"), name, "append", part)

    def put(self, write_pointer: int, output: Any, name: str, op: str, texts: Mapping[str, list[str]]) -> None:
        again = self.whims.random() < 0.5
        try:
            getattr(output, op)(texts)
        except OSError:
            if not again:
                raise
            getattr(output, op)(texts)  # some users' code tries again
        self.intend(write_pointer, name, op, texts)

    def intend(self, write_pointer: int, name: str, op: str, texts: Mapping[str, list[str]]) -> None:
        """Keep in mind what a transaction has written."""
        self.intents.setdefault(write_pointer, []).append(Intent(name, op, texts))

    # What happens outside

    def _make_story(self) -> list[tuple[int, Callable[[], object]]]:
        draw = self.whims
        story: list[tuple[int, Callable[[], object]]] = []

        def at(action: Callable[[], object], latest: float = 0.8) -> None:
            story.append((int(draw.random() ** 2 * latest * self.active), action))

        for number in range(draw.choice([1, 1, 1, 2, 2, 3])):
            name = f"{'abc'[draw.randrange(3)]}{number}"
            at(lambda name=name: self.land("raw", name))
            if draw.random() < 0.3:
                at(lambda name=name: self.land("raw", name), 1.0)
        if self.shape.poison:
            at(lambda: self.land("raw", "poison"))
        if self.shape.both:
            at(lambda: self.land("again", f"g{draw.randrange(9)}"))
        for number in range(draw.choice([0, 0, 0, 1, 1, 2])):
            at(lambda number=number: self.start_notebook(number))
        if self.shape.poison_partition:
            at(lambda: self.start_notebook(7, key="p"), 0.3)
        for share, latest, action in (
            (0.15, 1.0, self.kill_some_run),
            (0.04, 0.8, self.remove_java),
            (float(self.follows), 0.8, self.start_follower),
        ):
            if draw.random() < share:
                at(action, latest)
        story += windows.make_story(self, draw)
        story += monitored.make_story(self)
        story += flows.make_story(self)
        story += past.make_story(self)
        story += self._library_story()
        story += self._suspension_story()
        story += self._sending_story()
        story += self._compaction_story()
        story += self._drop_story()
        return sorted(story, key=lambda entry: -entry[0])

    def _library_story(self) -> list[tuple[int, Callable[[], object]]]:
        """By chance of its own, so that the rest of the story is as it was."""
        draw = random.Random(f"library {self.seed}")
        if draw.random() >= 0.1:
            return []
        duration = timedelta(seconds=draw.randint(1, 20))
        at, node = draw.randrange(self.active), draw.choice([None, "up 0"])
        return [(at, lambda: self.remove_library(duration, node))]

    def _sending_story(self) -> list[tuple[int, Callable[[], object]]]:
        """Send files to a bucket a second time with their content, by chance of its own."""
        draw = random.Random(f"sending {self.seed}")
        if not self.shape.stored or draw.random() >= 0.5:
            return []
        return [(draw.randrange(self.active), lambda: self.send_again(draw)) for _ in range(draw.randint(1, 3))]

    def send_again(self, draw: random.Random) -> None:
        """Write the content of a file of `raw` once more under its name."""
        names = sorted(name for inbox, name in self.newest if inbox == "raw" and not name.startswith("poison"))
        if names:
            self.land("raw", draw.choice(names), again=True)

    def _suspension_story(self) -> list[tuple[int, Callable[[], object]]]:
        """Draw a suspension, by its own chance.

        The person that suspends all schedules resumes them, at the latest at rest.
        """
        draw = random.Random(f"suspension {self.seed}")
        # Times that come while a schedule is suspended are passed over: hours of their own, too.
        timed = self.shape.timed or (self.shape.windowed and self.shape.windows.mode == "each")
        if timed or draw.random() >= 0.15:
            return []
        first = draw.randrange(self.active)
        after = first + draw.randint(1, 40)
        mode = draw.choice(list(SuspendMode))
        return [
            (first, lambda: self.change_all("suspend", partial(Suspend, mode=mode))),
            (after, lambda: self.change_all("resume", Resume)),
        ]

    def _drop_story(self) -> list[tuple[int, Callable[[], object]]]:
        """Draw drops, by their own chance: a person drops partitions of `lines`, and another may publish them again."""
        draw = random.Random(f"drops {self.seed}")
        if draw.random() >= 0.3:
            return []
        story: list[tuple[int, Callable[[], object]]] = []
        for number in range(20, 20 + draw.randint(1, 2)):
            key, at, wait = draw.choice("aabbcn"), draw.randrange(self.active), draw.choice([0, 5, 10, 20])
            writes = [(op, key) for op in draw.choice([["drop"], ["drop"], ["drop", "append"]])]
            story.append((at, partial(self.publish_by_hand, number, writes, wait=timedelta(seconds=wait))))
            if draw.random() < 0.7:
                wait += draw.randint(1, 10)
                again = [(draw.choice(["append", "create"]), key)]
                story.append((at, partial(self.publish_by_hand, number + 10, again, wait=timedelta(seconds=wait))))
        return story

    def _compaction_story(self) -> list[tuple[int, Callable[[], object]]]:
        """Small files to compact, by chance of its own."""
        draw = random.Random(f"compaction {self.seed}")
        if not self.shape.compacted:
            return []
        steps = [draw.randrange(self.active) for _ in range(5)]
        return [(step, lambda: self.publish_by_hand(9, [("append", "a")])) for step in steps]

    def change_all(self, name: str, change: Callable[[ScheduleId], Suspend | Resume]) -> None:
        """A person suspends or resumes all schedules, in one transaction."""

        def block(db: Db) -> None:
            seq = db.tick()
            changes = [change(schedule.schedule_id) for schedule in list_schedules(db)]
            announce_work(db, change_schedules(db, self.ground.catalog.world, seq, changes))

        self.suspended = True
        self.machine.start(name, lambda process: process.catalog.write(block), self.machine.group(name, "desk"))

    def _inbox_folder(self, inbox: str) -> Path:
        return self.folder / ("landing" if inbox == "raw" else inbox)

    def land(self, inbox: str, name: str, *, again: bool = False) -> None:
        """Let a file arrive, or be written again under its name: with another content, or `again` with its own."""
        number = sum(other == (inbox, name) for other in ((i, n) for i, n, _ in self.landed.values()))
        tokens = [f"{name}@{number}" + "." * number]
        folder = self._inbox_folder(inbox)
        if again and (inbox, name) in self.newest:
            tokens = self.landed[self.newest[inbox, name]][2]
        folder.mkdir(exist_ok=True)
        path = folder / f".{name}"
        path.write_text("".join(f"{token}\n" for token in tokens))
        # No two at one time; a bucket has times of whole seconds.
        apart = 1_000_000_000 if self.shape.stored else 1_000_000
        now = max(int(self.ground.clock.at.timestamp() * 1e9), self._landed_at + apart)
        self._landed_at = now
        os.utime(path, ns=(now, now))
        path.replace(folder / name)
        location = location_in(self.shape.stored, self.folder, folder.name)
        status = open_files(location, self.ground.catalog.world).stat(name)
        assert status is not None
        version = content_version(status)
        self.landed[version] = (inbox, name, tokens)
        self.newest[inbox, name] = version

    def start_notebook(self, number: int, key: str | None = None) -> None:
        """Publish to `lines` once from a notebook's own process, whatever the outcome."""
        draw = self.whims
        writes = [
            (draw.choice(["append", "append", "overwrite", "create"]), draw.choice("abn"))
            for _ in range(draw.randint(1, 2))
        ]
        if key is not None:
            writes = [("append", key), ("append", "q"), ("append", "r")]
        self.publish_by_hand(number, writes, abandons=key is None and draw.random() < 0.15)

    def publish_by_hand(
        self,
        number: int,
        writes: Sequence[tuple[str, str]],
        *,
        abandons: bool = False,
        wait: timedelta = timedelta(0),
    ) -> None:
        """Write to partitions of `lines` in one transaction of a notebook's own process, after a wait."""

        def body(process: Process) -> None:
            if wait:
                process.world.clock.sleep(wait)
            pointer = 0
            try:
                with open_transaction(
                    process.catalog, process.world, ["default.lines"], lease=LEASE, writer=self.write
                ) as tx:
                    pointer = tx.write_pointer
                    for place, (op, name) in enumerate(writes):
                        self.reach("notebook")
                        if op == "drop":
                            self.drop(pointer, tx.fileset("default.lines"), "lines", {"name": name})
                            continue
                        texts = {name: [f"n{number}.{place}@{op}"]}
                        self.put(pointer, tx.fileset("default.lines"), "lines", op, texts)
                    if abandons:
                        raise Abandoned  # noqa: TRY301  # as a user would
            except (Conflict, UserError, Fenced, Abandoned):
                self.refused_notebooks.append(pointer)
                raise
            self.committed_notebooks.append(pointer)

        self.machine.start(f"notebook {number}", body, self.machine.group(f"notebook {number}", "desk"))

    def drop(self, write_pointer: int, output: Any, name: str, key: Mapping[str, str]) -> None:
        """Drop a partition; it need not be there."""
        found, text = output.drop(key), "!".join(key.values())
        self.drops.append((write_pointer, name, text, bool(found)))
        if found:
            self.intend(write_pointer, name, "drop", {text: []})

    def kill_some_run(self) -> None:
        """A person asks for the end of a run."""
        rows = self.ground.sql("SELECT run_id FROM run WHERE ended_at IS NULL ORDER BY run_id")
        if rows:
            run_id = RunId(self.whims.choice(rows)[0])
            self.machine.start(
                "person", lambda process: ask_kill(process.catalog, run_id), self.machine.group("person", "desk")
            )

    def remove_java(self) -> None:
        """For a while no attempt can be started."""
        self._hours_to_come = 1
        self.without_java_until = self.ground.clock.elapsed + timedelta(seconds=self.whims.randint(2, 20))

    def remove_library(self, duration: timedelta, node: str | None) -> None:
        """For a while no driver can load the code of the app: none at all, or none of a node."""
        clock, until = self.ground.clock, self.ground.clock.elapsed + duration
        lack_library(lambda: clock.elapsed < until and node in {None, node_of(self.machine.current)})

    def start_follower(self) -> None:
        """Start a consumer that keeps its own state, and stores the state with its deliveries in one step."""
        lines = self._lines()

        def body(process: Process) -> None:
            while True:
                with suppress(Unavailable):
                    self._follow(process, lines)
                process.world.clock.sleep(timedelta(seconds=2))

        self.machine.start("follower", body, self.machine.group("follower", "desk"))

    def _follow(self, process: Process, lines: Fileset) -> None:
        state = self.followed[-1].state if self.followed else FROM_BEGINNING
        result = consume_partitions(process.catalog, lines, state)
        self.reach("store")
        self.followed.append(result)

    def _lines(self) -> Fileset:
        return Fileset.of(self.ground.catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, "lines")))

    # Nodes

    def start_node(self, number: int) -> None:
        """Start `tidemill up` on a machine: the threads of one process."""
        host = "host" if self.shape.one_host else f"host {number}"
        group = self.machine.group(f"up {number}", host)
        self.nodes[number : number + 1] = [group]
        for name, run in (
            ("scheduler", self._schedule),
            ("runner", self._run),
            ("keeper", self._keep),
            ("janitor", self._sweep),
        ):
            self.machine.start(f"{name} {number}", _as_role(run), group)
        if self.shape.aged:
            self.machine.start(f"historian {number}", _as_role(self._forget), group)
        if self.shape.stored:
            self.machine.start(f"emptier {number}", _as_role(self._empty_inboxes), group)

    def _schedule(self, process: Process) -> None:
        Scheduler(process.catalog, process.world, lambda _: None).run(process.catalog.waiter(Scheduler.AWAITED), _never)

    def _run(self, process: Process) -> None:
        place = self.folder / "state" / process.group.name
        options = cold_drivers(self.ground.url, place, place / "cache", plain=1)
        launcher = PlayedLauncher(self, process, options)
        runner = PlayedRunner(process.world, process.catalog, launcher, slots=self.shape.slots, lease=LEASE)
        runner.reaper = PlayedReaper(process.world, process.catalog, LEASE)
        runner.simulation = runner.reaper.simulation = self
        runner.run(process.catalog.waiter(Runner.AWAITED), _never)

    def _keep(self, process: Process) -> None:
        narrator = Narrator(process.world, lambda _: None, as_json=False)
        keeper = Keeper(process.catalog, Discoverer(process.catalog, narrator))
        loop(process.world, keeper.step)(process.catalog.waiter(Keeper.AWAITED), _never)

    def _sweep(self, process: Process) -> None:
        loop(process.world, Janitor(process.catalog).step)(process.catalog.waiter(frozenset()), _never)

    def _forget(self, process: Process) -> None:
        historian = Historian(process.catalog, KEEP, KEEP)

        def step() -> timedelta:
            historian.step()
            return KEEP

        loop(process.world, step)(process.catalog.waiter(frozenset()), _never)

    def _empty_inboxes(self, process: Process) -> None:
        loop(process.world, Janitor(process.catalog).empty_inboxes)(process.catalog.waiter(Janitor.AWAITED), _never)

    def _watch_over(self, process: Process) -> None:
        """Start dead nodes again, after a while."""
        while True:
            process.sleep(timedelta(seconds=2))
            for number, group in enumerate(list(self.nodes)):
                if not group.alive:
                    self.start_node(number)

    # Leases

    def leased(self, attempts: Iterable[tuple[RunId, int]], at: timedelta) -> None:
        """A runner has set the leases of `attempts`, not before `at`; those that are fenced already do not count."""
        for run_id, epoch in attempts:
            alive = f"run_id = '{run_id}' AND epoch = {epoch} AND lease_until IS NOT NULL"
            if self.ground.sql(f"SELECT 1 FROM run WHERE {alive}"):
                self.leases[run_id, epoch] = at

    def wake_sleeper(self, clock: Any) -> None:
        """Let the stopped runner continue just when a reaper, after its look, is about to fence."""
        if self.sleeper is not None:
            self.sleeper.held_until, self.sleeper = None, None
            clock.sleep(LEASE / 2)

    def fenced(self, run: RunRecord) -> None:
        """An attempt was fenced because of its lease: not before a whole one since its runner got to set it."""
        since = self.ground.clock.elapsed - self.leases.get((run.run_id, run.epoch), timedelta.min / 2)
        if since < LEASE:
            self.unexpected = f"fenced: attempt {run.epoch} of {run.run_id}, to whose lease its runner saw {since} ago"

    # From the beginning to the end

    def play(self) -> Outcome:
        """Play it to the end, and look at what came of it."""
        broken, kind = None, ""
        try:
            self._play()
            truth.check(self)
        except Broken as error:
            broken, kind = str(error), str(error).partition(":")[0]
        finally:
            self.machine.stop()
        ((transactions,),) = self.ground.sql("SELECT count(*) FROM tx")
        ((runs,),) = self.ground.sql("SELECT count(*) FROM run")
        trace = self.chance.trace or []
        return Outcome(self.seed, self.chance.step, runs, transactions, self.chance.struck, broken, kind, trace)

    def _play(self) -> None:
        for number in range(self.shape.nodes):
            self.start_node(number)
        self.machine.start("supervisor", self._watch_over, self.outside)
        machine, chance = self.machine, self.chance
        self.unexpected: str | None = None
        strikes = 0
        over = False
        while not over:
            while self._story and self._story[-1][0] <= chance.step and not machine.inside:
                self._story.pop()[1]()
            over = not machine.step()
            if self.unexpected is not None:
                raise Broken(self.unexpected)
            if chance.strikes > strikes:
                strikes = chance.strikes
                truth.check_markers(self)
            if self.quiet_since is None:
                if chance.step >= self.active:
                    chance.rest()
                    self.quiet_since = machine.clock.elapsed
            elif self._hours_to_come and machine.clock.elapsed - self.quiet_since > _SOON:
                # Work of a run that could not start is postponed for as long as the work had waited, an hour at most.
                # The clock may have been set meanwhile too.
                self._hours_to_come -= 1
                self.quiet_since = machine.clock.elapsed
                machine.clock.jump(timedelta(hours=1))
            elif chance.step > MOST_STEPS or machine.clock.elapsed - self.quiet_since > LONGEST_REST:
                raise Broken(f"stuck: {truth.still_to_do(self)}")

    def passes(self, process: Process) -> bool:
        """Return whether nothing happens at this point: no fault, no outside event, no other process's turn."""
        chance = self.chance
        if process.point.name == DEADLY:
            return False
        due = self._story[-1][0] if self._story else MOST_STEPS
        if chance.step + 1 >= (min(due, self.active) if self.quiet_since is None else MOST_STEPS):
            return False
        return chance.passes(self.machine, process)

    def ended(self, process: Process) -> None:
        """A process has come to its end by itself."""
        error = process.error
        if isinstance(error, Broken):
            self.unexpected = str(error)
        elif error is None:
            return
        elif process.group in self.nodes:
            if isinstance(error, OSError):
                self.machine.kill(process.group)  # an error of a role ends all
            else:
                self._report(process, error)
        elif process.child is not None:
            if not isinstance(error, Unavailable | OSError):
                self._report(process, error)
        elif not isinstance(error, Unavailable | OSError | Conflict | UserError | Fenced | Abandoned | ProgramStumbled):
            self._report(process, error)

    def _report(self, process: Process, error: BaseException) -> None:
        frames = [f"{f.name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-6:]]
        self.unexpected = f"died: {process.name} by {type(error).__name__}: {error} at {' '.join(frames)}"

    def is_over(self) -> bool:
        """Return whether no process can continue: perhaps all work is done."""
        if self.quiet_since is not None and not self._resumed and truth.is_suspended(self):
            self._resumed = True
            self.change_all("resume", Resume)
            return False
        if self.quiet_since is not None and past.resume_paused(self):
            return False
        if self.quiet_since is None or truth.is_busy(self):
            return False
        # A stopped process still has work.
        return all(process.held_until is None for process in self.machine.processes)


def _never() -> bool:
    return False


def _as_role(run: Callable[[Process], None]) -> Callable[[Process], None]:
    """Run a role as `tidemill up` does: an unavailable catalog makes the role wait, any other error ends all roles."""

    def body(process: Process) -> None:
        while True:
            try:
                run(process)
            except Unavailable:
                process.world.clock.sleep(_AWAY)

    return body


@contextmanager
def prepared() -> Iterator[Callable[..., Outcome]]:
    """Give a function that plays a seed: `play(seed, last_fault=None, traced=False)`."""
    ground = Ground()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)

    def play(seed: int, *, last_fault: int | None = None, traced: bool = False) -> Outcome:
        return Simulation(ground, seed, last_fault=last_fault, traced=traced).play()

    try:
        with bucket_below(ground.folder):
            yield play
    finally:
        logging.disable(level)
        ground.close()
