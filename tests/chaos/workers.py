"""Work of each chaos process, over and over, until the process is killed.

All work goes through the product's own classes. If the catalog is away, the process waits. If the process was fenced,
it continues with other work. Any other error ends the process, which counts as a finding.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from tests.chaos import person
from tests.chaos.minutes import MINUTE, minute_at, name_of
from tests.chaos.site import WAITS, Kind, Site, find_fileset, rows_of
from tests.drivers import cold_drivers
from tests.due import is_any_due
from tests.spawners import PlayedDrivers
from tests.taking import take_runs
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.errors import Conflict, Fenced, Unavailable
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerState, consume_partitions
from tidemill.names import RunId
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import Janitor
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.run.processes.external import open_transaction
from tidemill.run.processes.local_launcher import LocalLauncher
from tidemill.run.processes.reaper import Reaper
from tidemill.run.processes.runner import RENEWALS_IN_A_LEASE, Runner
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import find_program_by_id
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.attempts import renew
from tidemill.run.step.spans import DeclaredSpan
from tidemill.schedule.loop import Scheduler
from tidemill.testing.plain import write_texts
from tidemill.world import Disk, World

HOSTS = 3
PAUSED = 0.05
"""The share of marks at which a process rests for some milliseconds, so that it may be struck there."""
BETWEEN_TAKES = 2.0
MINUTES_A_SECOND = 4
LATE = 0.1
SAYS_WHEN = 0.9
"""The share of ticks whose transactions declare the minute that they will write, so that others may pass them."""
AWAY = 0.2
NAP = timedelta(milliseconds=100)


_Opened = TypeVar("_Opened")


class Regret(Exception):
    """Error by which a writer drops its transaction."""


@dataclass
class Post:
    """Process: its place in the population, and its number in that place."""

    site: Site
    slot: int
    kind: Kind
    incarnation: int
    stand: Callable[[str], None]
    """Shows the storm where this process stands."""
    program: str = ""
    """Program that the process carries out, if any."""

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.slot}/{self.incarnation}")
        self.world = World(
            spawner=PlayedDrivers("-m", "tests.chaos.driver", host=f"machine-{self.slot % HOSTS}"), marked=self._reach
        )

    def numbers(self) -> range:
        """Numbers that no other process in this place has used, or will."""
        return range(self.incarnation * 1000, self.incarnation * 1000 + 1000)

    def rest(self, longest: float = 0.03) -> None:
        """Do nothing for a moment."""
        self.stand(WAITS)
        time.sleep(self.random.uniform(0, longest))

    def _reach(self, mark: str) -> None:
        self.stand(f"{mark} {self.program}")
        if self.random.random() < PAUSED:
            time.sleep(self.random.uniform(0, 0.005))


def work(post: Post) -> None:
    """Do what the post is for, for ever."""
    catalog = _while_away(lambda: open_catalog(post.site.catalog_url, post.world, create=False))
    _WORK[post.kind](post, catalog)


def _while_away(deed: Callable[[], _Opened]) -> _Opened:
    while True:
        try:
            return deed()
        except Unavailable:
            time.sleep(AWAY)


def _write(post: Post, catalog: Catalog) -> None:
    """Publish pairs of partitions, each pair in one transaction, and write down how each ended."""
    notes = os.open(post.site.notes(post.slot), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, number: int) -> None:
        os.write(notes, f"{what} {number}\n".encode())  # one call: it is there as a whole, or not

    for number in post.numbers():
        note("tried", number)
        rows = {(post.slot, number): rows_of(post.slot, number)}
        names = ["default.lines", "default.pairs"]
        opened = open_transaction(catalog, post.world, names, lease=post.site.lease, writer=write_texts)
        try:
            with opened as tx:
                tx.fileset("default.lines").append(rows)
                tx.fileset("default.pairs").create(rows)
                if post.random.random() < 0.15:
                    raise Regret  # noqa: TRY301  # a block that ends so is what is tried
            note("done", number)
        except Regret:
            note("dropped", number)
        except (Unavailable, Fenced):
            note("unknown", number)
            time.sleep(AWAY)
        post.rest()


def _tick(post: Post, catalog: Catalog) -> None:
    """Publish minutes as they pass, four a second, and now and then one that is late."""
    notes = os.open(post.site.tick_notes(post.slot), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    began = post.site.app_file.stat().st_mtime
    for number in post.numbers():
        place = int((time.time() - began) * MINUTES_A_SECOND)
        if post.random.random() < LATE:
            place = max(0, place - post.random.randrange(1, 200))
        minute = minute_at(place)
        writes = DeclaredSpan("default.ticks", minute, minute + MINUTE)
        opened = open_transaction(
            catalog,
            post.world,
            [writes if post.random.random() < SAYS_WHEN else "default.ticks"],
            lease=post.site.lease,
            writer=write_texts,
        )
        os.write(notes, f"tried {number}\n".encode())
        try:
            with opened as tx:
                tx.fileset("default.ticks").append({(name_of(minute),): rows_of(post.slot, number)})
            os.write(notes, f"done {number}\n".encode())
        except (Unavailable, Fenced):
            time.sleep(AWAY)
        post.rest(0.5)


def _land(post: Post, _: Catalog) -> None:
    """Let files arrive, each in one step, every third for the workflow."""
    for number in post.numbers():
        name = f"{post.slot}.{number}.txt"
        path = post.site.folder / "arriving" / name
        path.write_text("".join(f"{row}\n" for row in rows_of(post.slot, number)))
        post.stand("landing")
        path.rename((post.site.landing if number % 3 else post.site.parcels) / name)
        post.rest(0.4)


def _command(post: Post, _: Catalog) -> None:
    """Do what a person does with workflows and backfills."""
    mill = _while_away(lambda: post.site.open_mill(post.world))
    while True:
        with suppress(Unavailable):
            person.act(mill, post.random)
        post.rest(1)


def _follow(post: Post, catalog: Catalog) -> None:
    """Follow a file set with a state of this process's own, kept with what was given."""
    lines = find_fileset(catalog, "lines")
    path, disk = post.site.state(post.slot), Disk()
    while True:
        state, keys = read_follower(path)
        with suppress(Unavailable):
            partitions, state = consume_partitions(catalog, lines, state)
            keys += [[partition.key["writer"], partition.key["number"]] for partition in partitions]
            post.stand("follower.before_store")
            disk.write_bytes(path, json.dumps({"state": state.to_bytes().hex(), "keys": keys}).encode())
        post.rest(0.2)


def read_follower(path: Path) -> tuple[PartitionConsumerState, list[list[int]]]:
    """A follower's state, and the keys that it was given so far."""
    if not path.exists():
        return FROM_BEGINNING, []
    stored = json.loads(path.read_bytes())
    return PartitionConsumerState.from_bytes(bytes.fromhex(stored["state"])), stored["keys"]


def _work(post: Post, catalog: Catalog) -> None:
    """Carry out runs in this very process: a runner and its driver that live and die as one."""
    tag = f"{post.kind}-{post.slot}-{post.incarnation}"
    folder = post.site.folder / "state/drivers" / f"post-{post.slot}"
    folder.mkdir(exist_ok=True)
    code = AppCode(str(post.site.app_file), "")
    start = DriverSetup(
        post.site.catalog_url, code, str(folder), str(folder), spark=False, warm=False, spark_settings={}
    )
    driver = DriverProcess(post.world, catalog, start, tag, writer=write_texts)
    waiter = _waiter(catalog)
    while True:
        post.program = ""
        with suppress(Unavailable):
            if run := _take(post, catalog, tag):
                post.program = catalog.read(lambda db: find_program_by_id(db, run.program_id)).name
                logs = post.site.folder / "state/logs" / run.run_id / str(run.epoch)
                logs.mkdir(parents=True, exist_ok=True)
                with post.world.beside("lease", post.site.lease / RENEWALS_IN_A_LEASE, _renewal(post, catalog, run)):
                    driver.work(Assignment(run.run_id, run.epoch, str(logs)))
                continue
        post.stand(WAITS)
        waiter.wait(NAP)


def _take(post: Post, catalog: Catalog, owner: str) -> RunRecord | None:
    if not catalog.read(is_any_due):
        return None
    host, lease = post.world.spawner.host(), post.site.lease
    runs = catalog.write(lambda db: take_runs(db, most=1, owner=owner, host=host, lease=lease))
    post.world.mark("runner.taken")
    return runs[0] if runs else None


def _renewal(post: Post, catalog: Catalog, run: RunRecord) -> Callable[[], bool]:
    held: list[tuple[RunId, int]] = [(run.run_id, run.epoch)]

    def step() -> bool:
        with suppress(Unavailable):
            return bool(catalog.write(lambda db: renew(db, held, post.site.lease), urgent=True))
        return True

    return step


def _run(post: Post, catalog: Catalog) -> None:
    """Be a runner, with drivers that are processes of their own."""
    folder = post.site.folder / "state"
    options = cold_drivers(post.site.catalog_url, folder, folder / "cache")
    runner = Runner(post.world, catalog, LocalLauncher(post.world, options), slots=2, lease=post.site.lease)
    taken_at = 0.0

    def taking() -> bool:
        # A driver takes half a second of a core to start. If drivers started one after the other, no other process
        # would work.
        nonlocal taken_at
        if time.monotonic() < taken_at + BETWEEN_TAKES:
            return False
        taken_at = time.monotonic()
        return True

    runner.run(_waiter(catalog), lambda: False, taking=taking)


def _schedule(post: Post, catalog: Catalog) -> None:
    """Bring messages to jobs, and jobs to runs."""
    Scheduler(catalog, post.world, lambda _: None).run(_waiter(catalog), lambda: False)


def _discover(post: Post, catalog: Catalog) -> None:
    """List the inbox, and announce what waits no longer."""
    discoverer = Discoverer(catalog, Narrator(post.world, lambda _: None, as_json=False))
    _step(post, Keeper(catalog, discoverer).step, NAP)


def _reap(post: Post, catalog: Catalog) -> None:
    """Fence the dead."""
    reaper = Reaper(post.world, catalog, post.site.lease)
    _step(post, reaper.step, reaper.every)


def _sweep(post: Post, catalog: Catalog) -> None:
    """Clean up after them."""
    janitor = Janitor(catalog)
    _step(post, lambda: (janitor.step(), janitor.empty_inboxes()), timedelta(milliseconds=300))


def _step(post: Post, step: Callable[[], object], every: timedelta) -> None:
    while True:
        with suppress(Unavailable, Conflict):
            step()
        post.stand(WAITS)
        time.sleep(every.total_seconds())


def _waiter(catalog: Catalog):
    while True:
        try:
            return catalog.waiter()
        except Unavailable:
            time.sleep(AWAY)


_WORK = {
    Kind.WRITER: _write,
    Kind.TICKER: _tick,
    Kind.LANDER: _land,
    Kind.PERSON: _command,
    Kind.FOLLOWER: _follow,
    Kind.WORKER: _work,
    Kind.RUNNER: _run,
    Kind.SCHEDULER: _schedule,
    Kind.DISCOVERER: _discover,
    Kind.REAPER: _reap,
    Kind.JANITOR: _sweep,
}
