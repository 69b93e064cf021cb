"""A catalog with a program in it, on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from tests.taking import take_runs
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Dialect, Statement
from tidemill.names import Namespace, ProgramId, RunId
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.records.runs import NewRun, RunRecord, create_pending, find_run
from tidemill.run.step.attempts import Registration, register
from tidemill.world import World

LEASE = timedelta(seconds=60)


@dataclass
class Works:
    """A catalog and what happens to runs in it."""

    catalog: Catalog
    world: World
    programs: list[Program] = field(default_factory=list)

    def program(self, name: str = "load", **changes: Any) -> Program:
        """Register a program `default.shop.<name>`."""
        program = Program(
            ProgramId(f"prg_{name}"), Namespace("default"), "shop", name, ProgramKind.PYTHON, app_file="/nowhere/app.py"
        )
        program = dataclasses.replace(program, **changes)
        self.catalog.write(lambda db: put_program(db, program))
        return program

    def start(self, program: Program, **changes: Any) -> RunId:
        """Make a run of `program`."""
        run_id = RunId(self.world.new_id("run"))
        self.catalog.write(lambda db: create_pending(db, [NewRun(run_id, program.program_id, **changes)]))
        return run_id

    def take(self, most: int = 1, owner: str = "runner_1") -> list[RunRecord]:
        """Take runs as a runner does."""
        return self.catalog.write(lambda db: take_runs(db, most=most, owner=owner, host="here", lease=LEASE))

    def under_way(self, program: Program) -> RunRecord:
        """Give a run that its driver has registered."""
        run_id = self.start(program)
        (run,) = self.take()
        self.catalog.write(lambda db: register(db, Registration(run_id, run.epoch, 1, {}, "logs")))
        return self.run(run_id)

    def run(self, run_id: RunId) -> RunRecord:
        """Return the record of the run."""
        return self.catalog.read(lambda db: find_run(db, run_id))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Ask the database itself; one text for both."""
        return rows_of(self.catalog, text)


def rows_of(catalog: Catalog, text: str) -> list[tuple[Any, ...]]:
    """Rows of a statement written by hand."""
    statement = by_hand(text)
    return catalog.write(lambda db: db.all(statement))


def by_hand(text: str, *parameters: str) -> Statement:
    """A statement that stands in no file; one text for both databases."""
    name = f"by_hand_{abs(hash(text))}"
    texts = dict.fromkeys(Dialect, text)
    positional = text
    for place, parameter in enumerate(parameters, start=1):
        positional = positional.replace(f":{parameter}", f"${place}")
    return Statement(name, texts, parameters, gives=(), locks=(), rank=None, wakes=frozenset(), positional=positional)


@pytest.fixture
def world() -> World:
    """The world as it is."""
    return World()


@pytest.fixture
def works(catalog_url: str, world: World) -> Iterator[Works]:
    """An empty catalog, on each database."""
    catalog = open_catalog(catalog_url, world)
    yield Works(catalog, world)
    catalog.close()
