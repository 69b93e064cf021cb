"""Nodes with separate roles that are killed while workflows process files and backfills go over minutes.

Each file is processed once, each item is done once, and the audit is clean. Retention deletes what is older than a few
seconds.

`python -m tests.postgres_server -- python -m tests.chaos.roles --kills 100` is the campaign. Two schedulers, two
runners and a janitor share one PostgreSQL, each a process of its own command. A kill (-9) strikes any of them, and
another process of the same role starts. Between the kills a person resumes and kills workflows, and changes backfills.
The judge reads what is published, never counters of runs.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import tidemill as tm
from tests.chaos.launches import own_schema
from tests.chaos.person import LAST_YEAR, WORKFLOW, act, tidy_up
from tests.command import TIDEMILL
from tests.postgres_server import ADDRESS
from tests.yardstick import patience
from tidemill.mill.metrics import Metric

ROLES = ("scheduler", "scheduler", "runner", "runner", "janitor")
CONFIG = """
[runner]
slots = 2
lease = "5s"
[retention]
history = "5s"
"""
APP = """
from zlib import crc32

import tidemill as tm

app = tm.App("chaos")
raw = app.inbox("raw", "landing", format="csv", schema="line string", settle="0s", max_files=3, after="delete")


def fail(run, one_in):
    if crc32(run.id.encode()) % one_in == 0:
        raise ValueError(run.id)


@app.python(reads=[raw])
def fetch(run):
    run.put("files", len(run.input(raw).files))


@app.python()
def inspect(run):
    fail(run, 8)


@app.python(reads=[raw])
def load(run):
    run.publish("loaded", {"files": list(run.input(raw).files)})


@app.python()
def remember(run):
    fail(run, 10)
    run.publish("remembered", {"minute": run.logical_time.isoformat()})


nodes = [tm.Node(fetch), tm.Node(inspect, after=[fetch]), tm.Node(load, after=[fetch, inspect])]
unpack = app.workflow("unpack", nodes, holds=[raw])
app.schedule("on_raw", unpack, trigger=tm.NewFiles(raw), constraints=[tm.Concurrency(2)])
app.schedule("every_minute", remember, trigger=tm.Cron("* * * * *"))
"""


@dataclass
class Figures:
    """Result of a campaign."""

    files: int = 0
    kills: int = 0
    workflows: Counter[str] = field(default_factory=Counter)
    items: Counter[str] = field(default_factory=Counter)
    deleted: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.files} files, {self.kills} kills in {self.seconds:.0f} s"
        told += f"; kept: workflows {dict(self.workflows)}, items of backfills {dict(self.items)}"
        told += f"; deleted by retention: {self.deleted}"
        return f"{told}; {len(self.breaches)} breaches {self.breaches[:5]}"


class Site:
    """Processes of the roles on one project, and the hands that land files and kill processes."""

    def __init__(self, mill: tm.Mill, folder: Path, seed: int) -> None:
        self._mill = mill
        self._folder = folder
        self._dice = random.Random(seed)
        self.figures = Figures()
        self._processes = [self._start(role) for role in ROLES]

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        command = [TIDEMILL, "--project", str(self._folder), role]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def play(self, kills: int, kill_every: float) -> None:
        """Land files, and kill one process after the other."""
        for _ in range(kills):
            kill_at = time.monotonic() + self._dice.uniform(0.5, 1.5) * kill_every
            while time.monotonic() < kill_at:
                self._land()
                time.sleep(0.1)
            number = self._dice.randrange(len(ROLES))
            act(self._mill, self._dice)
            self._look(number)
            self._processes[number].kill()
            self._processes[number].wait()
            self._processes[number] = self._start(ROLES[number])
            self.figures.kills += 1

    def _look(self, number: int) -> None:
        """Note a process that has ended by itself."""
        ended = self._processes[number].poll()
        if ended is not None:
            self.figures.breaches.append(f"a {ROLES[number]} ended by itself with {ended}")

    def _land(self) -> None:
        # In one step: without `settle`, a file that is still written would be seen twice.
        (self._folder / "next").write_text("line\nx\n")
        (self._folder / "next").rename(self._folder / "landing" / f"{self.figures.files}.csv")
        self.figures.files += 1

    def stop(self) -> None:
        """End all processes."""
        for number, process in enumerate(self._processes):
            self._look(number)
            process.terminate()
        for process in self._processes:
            process.wait(patience(60))


def campaign(catalog_url: str, folder: Path, *, kills: int, seed: int, kill_every: float) -> Figures:
    """Play in a new project, and judge."""
    begin = time.monotonic()
    (folder / "landing").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n{CONFIG}')
    with tm.open(folder) as mill:
        mill.deploy()
        mill.topics.create("remembered")  # a short campaign may publish nothing to it
        site = Site(mill, folder, seed)
        figures = site.figures
        try:
            site.play(kills, kill_every)
            give_up_at = time.monotonic() + patience(60)
            while (left := _left(mill, folder, figures.files)) and time.monotonic() < give_up_at:
                tidy_up(mill)
                time.sleep(0.2)
        finally:
            site.stop()
        if left:
            figures.breaches.append(left)
        _judge(mill, figures)
    figures.seconds = time.monotonic() - begin
    return figures


def _left(mill: tm.Mill, folder: Path, files: int) -> str:
    """Return what is not done yet: files that are not processed, or that the janitor has not deleted, and backfills."""
    unfinished = [str(one) for one in tm.iterate(mill.backfills.list) if one.running or not one.ended_at]
    if unfinished:
        return f"backfills {unfinished} have not ended"
    processed = mill.inboxes.show("raw").files.get("SUCCESS", 0)
    landed = len(list((folder / "landing").iterdir()))
    return (
        "" if processed == files and not landed else f"{processed} of {files} are processed, {landed} still lie there"
    )


def _judge(mill: tm.Mill, figures: Figures) -> None:
    heard: Counter[str] = Counter()
    for message in tm.iterate(mill.topics.read, "loaded", after="0"):
        heard.update(message.payload["files"])
    figures.breaches += [f"{name} was processed {times} times" for name, times in heard.items() if times > 1]
    missing = {f"{number}.csv" for number in range(figures.files)} - heard.keys()
    figures.breaches += [f"{name} was not processed" for name in sorted(missing)]
    remembered = Counter(message.payload["minute"] for message in tm.iterate(mill.topics.read, "remembered", after="0"))
    figures.breaches += [f"minute {one} was done {times} times" for one, times in remembered.items() if times > 1]
    loud = 0
    for backfill in tm.iterate(mill.backfills.list):
        counts = Counter(str(one.state) for one in tm.iterate(mill.backfills.items, backfill.backfill_id))
        if [backfill.done, backfill.failed, backfill.dropped] != [
            counts[what] for what in ("DONE", "FAILED", "DROPPED")
        ]:
            figures.breaches.append(f"{backfill} has {counts}")
        figures.items += counts
        loud += 0 if backfill.quiet else counts["DONE"]  # a quiet run publishes no messages
    past = sum(datetime.fromisoformat(minute).year <= LAST_YEAR for minute in remembered)
    if past < loud:
        figures.breaches.append(f"{past} minutes were done, and {loud} items that are kept")
    samples = mill.metrics().samples
    figures.deleted = {one.labels["kind"]: int(one.value) for one in samples if one.metric is Metric.HISTORY_DELETED}
    figures.workflows.update(str(one.state) for one in tm.iterate(mill.runs.list, program=WORKFLOW))
    figures.breaches += [str(one) for one in mill.catalog.audit().findings]
    figures.breaches += [f"{one.node_id} is still listed" for one in mill.nodes.list() if one.state == "WORKING"]


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every", type=float, default=1.0)
    options = parser.parse_args()
    with own_schema(os.environ[ADDRESS]) as url, tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "project"
        figures = campaign(url, folder, kills=options.kills, seed=options.seed, kill_every=options.kill_every)
    sys.stdout.write(f"{figures}\n")
    return 1 if figures.breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
