"""A bucket whose requests break at random: each file is processed once, and nothing is left behind.

`python -m tests.chaos.s3 --files 2000 [--seed S]` (`make chaos-s3`): on SQLite, and on PostgreSQL if
`TIDEMILL_TEST_POSTGRES` names one. Its short form is tests/chaos/test_s3.py.

Inbox, archive and file set are in a bucket of the stub (tests/s3_stub.py), which breaks a fifth of all requests. Roles
and drivers are those of the product, in this process, and take turns. At the end the storm is over, and the judge looks
at the bucket by requests of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.chaos.launches import own_schema
from tests.postgres_server import ADDRESS
from tests.s3_server import KEYS
from tests.s3_stub import S3Stub, running_s3_stub
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.errors import Unavailable
from tidemill.lake.inbox.leaving import empty_inboxes
from tidemill.storage.locations import open_files

if TYPE_CHECKING:
    from tidemill.run.step.context import Run

SHARE = 0.2
"""The share of requests that break."""
AT_ONCE = 20
"""Files that land in one turn."""
APP = """
import tidemill as tm
from tests.chaos.s3 import read_lines

app = tm.App("shop")
raw = app.inbox(
    "raw", "s3://{bucket}/landing", format="text", settle="0s", attempts=1000, retry_after="1s", max_files=5,
    after="archive", archive="s3://{bucket}/archive",
)
lines = app.fileset("lines", keys={{"name": "string"}}, location="s3://{bucket}/lines")


@app.python(reads=[raw], writes=[lines], retries=100, backoff="1s")
def load(run):
    run.output(lines).append(read_lines(run, "s3://{bucket}/landing"))


app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
"""


@dataclass
class Figures:
    """Result of a campaign."""

    files: int = 0
    turns: int = 0
    seconds: float = 0.0
    troubles: dict[str, int] = field(default_factory=dict)
    away: int = 0
    """Turns of a role or a run that the bucket has ended."""
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        broken = f"{sum(self.troubles.values())} requests broken in {len(self.troubles)} ways"
        told = f"{self.files} files in {self.turns} turns, {broken}, {self.away} turns ended by the bucket"
        return f"{told}, {self.seconds:.0f} s; {len(self.breaches)} breaches {self.breaches[:5]}"


def read_lines(run: Run, landing: str) -> dict[tuple[str], list[str]]:
    """Return the lines of the files of a run, by the names of the files: what its program publishes."""
    taken = run.input("default.raw")
    files = open_files(landing, taken._run.world)
    return {(name,): files.read(name).decode().splitlines() for name in taken.files}


class Storm:
    """A project in a bucket, the hand that puts files there, and the turns of all roles."""

    def __init__(self, stage: Stage, stub: S3Stub, bucket: str, seed: int) -> None:
        self.stage = stage
        self.stub = stub
        self.bucket = bucket
        self.dice = random.Random(seed)
        self.landed: Counter[str] = Counter()
        """The lines that have landed."""
        self.figures = Figures()

    def play(self, files: int) -> None:
        """Take turns until so many files have landed and all of them have left the inbox."""
        begun = time.monotonic()
        while self.figures.files < files:
            self._land(min(AT_ONCE, files - self.figures.files))
            self._turn()
        self.stub.storm(0, 0)
        give_up_at = time.monotonic() + patience(120)
        while self._is_left() and time.monotonic() < give_up_at:
            self._turn()
        self.figures.seconds = time.monotonic() - begun
        self.figures.troubles = self.stub.read_troubles()

    def _land(self, count: int) -> None:
        """Put files there as their sender does, past the storm."""
        for _ in range(count):
            self.figures.files += 1
            line = f"line {self.figures.files}"
            self.stub.put_raw(self.bucket, f"landing/{self.figures.files}.txt", f"{line}\n".encode())
            self.landed[line] += 1

    def _turn(self) -> None:
        mill, catalog = self.stage.mill, self.stage.mill.project.catalog
        self.figures.turns += 1
        roles: list[Callable[[], object]] = [
            lambda: mill.inboxes.scan("raw"),
            self._let_time_pass,
            self.stage.schedule,
            self.stage.work,
            lambda: empty_inboxes(catalog),
            self.stage.sweep,
        ]
        for role in roles:
            try:
                role()
            except Unavailable:
                self.figures.away += 1

    def _let_time_pass(self) -> None:
        """Let retries come due, and garbage that is kept for a while."""
        self.stage.sql("UPDATE run SET not_before = 1 WHERE state = 'PENDING' AND not_before > 0 RETURNING 1")
        self.stage.sql("UPDATE garbage SET not_before = 0 WHERE not_before > 0 RETURNING 1")
        self.stage.pass_time("UPDATE inbox_file SET not_before = 1 WHERE not_before > 0")

    def _is_left(self) -> bool:
        return bool(self._names("landing/"))

    def _names(self, prefix: str) -> list[str]:
        return [name for name in self.stub.list(self.bucket) if name.startswith(prefix)]

    def judge(self) -> None:
        """Compare what landed with what was published and archived, and the bucket with the catalog."""
        figures, stage = self.figures, self.stage
        published: Counter[str] = Counter()
        for file in stage.mill.datasets.files("lines"):
            published.update(self._read(file.path.removeprefix(f"s3://{self.bucket}/")).splitlines())
        archived = Counter(line for name in self._names("archive/") for line in self._read(name).splitlines())
        for what, found in (("published", published), ("archived", archived)):
            figures.breaches += [f"{line} is not {what}" for line in self.landed - found]
            figures.breaches += [f"{line} is {what} more than once" for line in found - self.landed]
        figures.breaches += [f"left in the inbox: {name}" for name in self._names("landing/")]
        for _ in range(3):
            self._let_time_pass()
            stage.sweep()
        figures.breaches += [str(one) for one in stage.mill.catalog.fsck().differences]
        figures.breaches += [str(one) for one in stage.mill.catalog.audit().findings]

    def _read(self, name: str) -> str:
        return httpx.get(f"{self.stub.url}/{self.bucket}/{name}", timeout=patience(20)).raise_for_status().text


def campaign(catalog_url: str, stub: S3Stub, folder: Path, *, files: int, seed: int) -> Figures:
    """Play a storm on an empty catalog and in an empty bucket, and judge."""
    bucket = stub.make_bucket()
    environ = {**os.environ, "AWS_ENDPOINT_URL": stub.url, "AWS_REGION": "us-east-1", **KEYS}
    with staged(folder, catalog_url, APP.format(bucket=bucket), environ=environ) as stage:
        storm = Storm(stage, stub, bucket, seed)
        stub.storm(seed, SHARE)
        try:
            storm.play(files)
        finally:
            stub.storm(0, 0)
        storm.judge()
        return storm.figures


@contextmanager
def _catalogs() -> Iterator[dict[str, str]]:
    with ExitStack() as ending:
        folder = ending.enter_context(tempfile.TemporaryDirectory())
        catalogs = {"SQLite": f"sqlite:///{folder}/catalog.db"}
        if address := os.environ.get(ADDRESS):
            catalogs["PostgreSQL"] = ending.enter_context(own_schema(address))
        yield catalogs


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    breaches = 0
    with _catalogs() as catalogs, tempfile.TemporaryDirectory() as folder:
        for database, url in catalogs.items():
            with running_s3_stub() as stub:
                figures = campaign(url, stub, Path(folder) / database, files=options.files, seed=options.seed)
            sys.stdout.write(f"{database}: {figures}\n")
            breaches += len(figures.breaches)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
