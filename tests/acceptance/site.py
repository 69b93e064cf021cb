"""A project for the seed's stories: data arrives, and the scheduler steps, when the test says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tests.manual_clock import ManualClock
from tests.stage import Deployed, RunRecord, Stage
from tests.writers import write_sparse

DATA = """
raw = app.inbox("raw", "landing", format="text", settle="0s")
clicks = app.fileset("clicks", keys={"n": "int"})
users = app.fileset("users", keys={"n": "int"})

@app.python(reads=[raw, clicks], arguments={"level": 0})
def ingest(run):
    pass

@app.python(reads=[clicks, users])
def join(run):
    pass

"""
ONE_RUN = "[tm.Concurrency(1)]"


def on(name: str, program: str, trigger: str, *, constraints: str = "[]", **rules: object) -> str:
    """Declare a schedule that has no constraints unless the story gives some."""
    more = "".join(f", {rule}={value!r}" for rule, value in rules.items())
    return f'app.schedule("{name}", {program}, trigger={trigger}, constraints={constraints}{more})\n'


@dataclass
class Site(Stage):
    """A project whose data arrives when the test says so."""

    clock: ManualClock = field(default_factory=ManualClock)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def deploy(self, *schedules: str, update_schedules: bool = True) -> Deployed:
        """Deploy the app with these schedules."""
        return self.declare(DATA + "".join(schedules), update_schedules=update_schedules)

    def land(self, files: int) -> None:
        """Files arrive in the inbox `raw`."""
        landing = self.mill.project.config.folder / "landing"
        for number in itertools.islice(self.numbers, files):
            (landing / f"{number:06}.csv").write_text(f"{number}\n", encoding="utf-8")
        self.mill.inboxes.scan("raw")

    def add(self, partitions: int, dataset: str = "clicks", *, fails: bool = False, size: int = 0) -> None:
        """Commit so many new partitions of `size` bytes, or fail to."""
        with suppress(ZeroDivisionError), self.transaction(dataset, write_sparse) as tx:
            tx.fileset(f"default.{dataset}").append(
                {f"n={number}": size for number in itertools.islice(self.numbers, partitions)}
            )
            if fails:
                raise ZeroDivisionError

    def schedule(self) -> list[str]:
        """Let a scheduler that was just started do what it can; the schedules whose programs it launched."""
        return [name.removeprefix("default.shop.") for name in super().schedule()]

    def complete_runs(self) -> list[RunRecord]:
        """All runs end well, a second later."""
        self.clock.move("1s")
        return self.work()
