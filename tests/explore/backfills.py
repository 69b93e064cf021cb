"""Scenarios of backfills: schedulers, runners and people in all orders."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.explore import promises
from tests.explore.consumers import cut_power, fencer, killer
from tests.explore.promises import must
from tests.explore.schedules import APP_FILE, HOUR, drive, driver, scheduler
from tests.explore.search import Actor, Scenario, Tables
from tests.explore.stage import Stage
from tidemill.catalog.db import Db
from tidemill.errors import Conflict
from tidemill.names import BackfillId, Namespace, ProgramId, WritePointer
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.schedule.backfill_records import By, NewBackfill
from tidemill.schedule.backfills import (
    cancel_backfill,
    pause_backfill,
    resume_backfill,
    retry_backfill,
    start_backfill,
)
from tidemill.schedule.loop import Scheduler

BACKFILL = BackfillId("backfill")
TABLES = ("tx", "run", "slot", "backfill", "backfill_item")
Act = Callable[[Db, Stage], object]


def pause(db: Db, _stage: Stage) -> object:
    """Pause the backfill."""
    return pause_backfill(db, BACKFILL)


def resume(db: Db, stage: Stage) -> object:
    """Go on."""
    return resume_backfill(db, stage.world, WritePointer(db.tick()), BACKFILL)


def cancel(db: Db, _stage: Stage) -> object:
    """Cancel the backfill."""
    return cancel_backfill(db, BACKFILL)


def retry(db: Db, stage: Stage) -> object:
    """Try failed items again."""
    return retry_backfill(db, stage.world, WritePointer(db.tick()), BACKFILL)


def person(name: str, *acts: Act) -> Actor:
    """Person that changes the backfill, one change a turn; a change that comes too late is refused."""

    def body(stage: Stage) -> None:
        for act in acts:
            try:
                stage.catalog.write(lambda db, act=act: act(db, stage))
            except Conflict:
                stage.note("SELECT ?", "refused")

    return Actor(name, body)


def _set_up(items: int, concurrency: int) -> Callable[[Stage], None]:
    def block(db: Db, stage: Stage) -> None:
        pointer = WritePointer(db.tick())
        program = Program(
            ProgramId("plain"),
            Namespace("default"),
            "shop",
            "plain",
            ProgramKind.PYTHON,
            str(APP_FILE),
            backoff=timedelta(seconds=10),
        )
        put_program(db, program)
        times = [f"2026-01-0{day + 1}T00:00:00+00:00" for day in range(items)]
        new = NewBackfill(BACKFILL, program, By.TIMES, False, {}, None, {}, concurrency, -1, False, "ann", times)
        start_backfill(db, stage.world, pointer, new)

    return lambda stage: stage.catalog.write(lambda db: block(db, stage))


def counted(tables: Tables) -> None:
    """The counts are those of the items, no limit is passed, and no item is done twice."""
    runs = {run.run_id: run for run in tables["run"]}
    (backfill,) = tables["backfill"]
    states = Counter(item.state for item in tables["backfill_item"])
    kept = (backfill.waiting, backfill.running, backfill.done, backfill.failed, backfill.dropped)
    found = tuple(states[state] for state in ("WAITING", "RUNNING", "DONE", "FAILED", "DROPPED"))
    must(kept == found, f"the items are kept as {kept}, and are {found}")
    must(backfill.running <= backfill.concurrency, f"{backfill.running} run, and {backfill.concurrency} may")
    for item in tables["backfill_item"]:
        if item.state in {"RUNNING", "DONE"}:
            must(item.run_id in runs, f"item {item.no} is {item.state} without a run")
        if item.state == "DONE":
            must(runs[item.run_id].state == "COMPLETED", f"item {item.no} is done by {runs[item.run_id].state}")
    done = Counter(json.loads(run.triggered_by)["item"] for run in runs.values() if run.state == "COMPLETED")
    must(all(times == 1 for times in done.values()), f"items were done so often: {done}")
    under_way = {run.run_id for run in runs.values() if run.state not in promises.ENDED}
    held = {item.run_id for item in tables["backfill_item"] if item.state == "RUNNING"}
    must(under_way <= held, f"{under_way - held} are under way for no item")
    must(not tables["slot"], "a run of a backfill has a slot")


def held_back(before: Tables, after: Tables) -> None:
    """A backfill that is paused or cancelled makes no run, and what has ended stays so."""
    promises.never_undone(before, after)
    (was,), (now,) = before["backfill"], after["backfill"]
    more = len(after["run"]) > len(before["run"])
    must(not more or now.state in {"RUNNING", "COMPLETED"}, f"a run was made of a backfill that is {now.state}")
    must(was.state != "CANCELLED" or now.state == "CANCELLED", f"a cancelled backfill is {now.state}")


def ended(tables: Tables) -> None:
    """Nothing waits for ever."""
    counted(tables)
    (backfill,) = tables["backfill"]
    must(backfill.state in {"COMPLETED", "CANCELLED"}, f"all rest, and the backfill is {backfill.state}")
    must(backfill.running + backfill.waiting == 0, "all rest, and items wait or run")


def recover(stage: Stage) -> None:
    """Start again, and resume the backfill; what waits for a retry comes due."""
    cut_power(stage)
    with contextlib.suppress(Conflict):
        stage.catalog.write(lambda db: resume(db, stage))
    process = Scheduler(stage.catalog, stage.world, lambda _launch: None)
    for _ in range(30):
        while process.step() == timedelta(0):
            pass
        stage.clock.at += HOUR
        if not drive(stage):
            return
    raise AssertionError("there is no end of it")


def backfill(
    *acts: Act,
    items: int = 2,
    concurrency: int = 1,
    schedulers: int = 2,
    drivers: int = 1,
    fences: int = 0,
    kills: int = 0,
    endings: Sequence[str] = ("commit",),
    losses: int = 0,
) -> Callable[[str], Scenario]:
    """Make a scenario of a backfill that a person changes by `acts`."""

    def make(name: str) -> Scenario:
        def set_up(stage: Stage) -> None:
            stage.endings = tuple(endings)
            _set_up(items, concurrency)(stage)

        return Scenario(
            name,
            "each item is done once, no limit is passed, and nothing waits for ever",
            set_up,
            lambda: [
                *(scheduler(f"scheduler{n}") for n in range(schedulers)),
                *(driver(f"driver{n}") for n in range(drivers)),
                *(fencer(f"reaper{n}") for n in range(fences)),
                *(killer(f"killer{n}", at_once=True) for n in range(kills)),
                *([person("person", *acts)] if acts else []),
            ],
            promises.all_of(promises.transactions, counted),
            recover,
            ended,
            held_back,
            losses=losses,
            tables=TABLES,
        )

    return make


SCENARIOS = {
    "backfill": backfill(items=3, concurrency=2),
    "backfill-cancelled": backfill(cancel, schedulers=1),
    "backfill-paused": backfill(pause, resume, schedulers=1),
    "backfill-failed": backfill(retry, schedulers=1, endings=("commit", "fail")),
    "backfill-fenced": backfill(fences=1, schedulers=1),
    "backfill-killed": backfill(cancel, schedulers=1, kills=1),
    "backfill-lost-reply": backfill(cancel, schedulers=2, losses=1),
}
