"""Worker programs: as many runs of each as were declared are kept alive, by whichever runner sees that one is missing.

A worker's run is a run like any other, with attempts, a lease and claims, but its program runs until it is stopped, and
commits again and again under that one run (seed 000: a worker that looks for new partitions continuously).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.names import Namespace, ProgramId, RunId
from tidemill.run.records.runs import NewRun, create_pending
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.run.records.workers_sql import Sql

SQL: Sql = load_sql(__file__)


def put_worker(db: Db, program_id: ProgramId, instances: int) -> None:
    """Have so many runs of a program kept alive from now on."""
    db.run(SQL.put_worker, program_id=program_id, instances=instances)


def retire_others(db: Db, namespace: Namespace, app: str, program_ids: Iterable[ProgramId]) -> None:
    """Have no run of the other workers of an app kept alive: it does not declare them any more."""
    db.run(SQL.retire_others, namespace=namespace, app=app, program_ids=json.dumps(sorted(program_ids)))


UNBALANCED: Final = SQL.find_unbalanced()
"""Finds a worker with too few or too many runs, if there is one."""


def next_start(since: datetime) -> Call:
    """Return the read of the first time after `since`, maybe past, at which a run of a worker may be started."""
    return SQL.find_next_start(since=since)


def balance(catalog: Catalog) -> list[RunId]:
    """Make the runs that are missing, and give those that are too many, which are to be killed.

    Only a look if there are none. Cost: how many workers there are.
    """
    surplus: list[RunId] = []
    for row in catalog.read(lambda db: db.all(SQL.find_unbalanced)):
        surplus += catalog.write(partial(_balance, world=catalog.world, program_id=ProgramId(str(row[0]))))
        catalog.world.mark("workers.balanced")
    return surplus


def _balance(db: Db, world: World, program_id: ProgramId) -> list[RunId]:
    """Make what is missing, in the caller's transaction; give what is too many, the newest first."""
    instances = db.value(SQL.lock_worker, int, program_id=program_id)
    if instances is None:
        return []  # the worker was postponed meanwhile
    there = db.records(SQL.list_runs, RunId, program_id=program_id)
    missing = instances - len(there)
    runs = [
        NewRun(RunId(world.new_id("run")), program_id, triggered_by={"asked": "as a worker"}) for _ in range(missing)
    ]
    if runs:
        create_pending(db, runs)
    return there[: max(-missing, 0)]


@dataclass(frozen=True, slots=True)
class PostponeStarts(Effect):
    """Postpone the next start of a worker, at the end of its run. A start at once would fail or return again."""

    phase = Phase.RUN

    program_id: ProgramId
    backoff: timedelta
    failed: bool

    def writes(self) -> Sequence[Call]:
        """The time before which nothing is started; it doubles with each failure in a row."""
        backoff = max(timedelta(milliseconds=1), self.backoff)
        params: dict[str, Param] = {
            "program_id": self.program_id,
            "backoff": backoff,
            "failed": int(self.failed),
        }
        return (SQL.postpone_starts(**params),)
