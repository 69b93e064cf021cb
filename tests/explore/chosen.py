"""A run with chosen input among writers, a janitor and a reaper: each attempt gets the same, and claims nothing."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from tests.explore import promises
from tests.explore.consumers import ALWAYS, LINES, TABLES, cut_power, fencer, lake, take_run, writer
from tests.explore.promises import must
from tests.explore.search import Actor, Scenario, Tables
from tests.explore.stage import Stage
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import begin, commit
from tidemill.errors import Fenced
from tidemill.lake.chosen import MissingInput, choose
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import NotKept
from tidemill.names import ProgramId, RunId, WritePointer
from tidemill.run.records.runs import NewRun, create_pending
from tidemill.run.step.attempts import AttachTransaction, AttemptEnd, Cause, FinishRun, end_attempt

HOUR_1 = LINES.keys.encode((1,))
GIVEN = RunId("run_given")


def person(stage: Stage) -> None:
    """Choose a partition for a run, if it is there."""

    def block(db: Db) -> None:
        chosen = choose(db, WritePointer(db.tick()), [(LINES, [HOUR_1])])
        create_pending(db, [NewRun(GIVEN, ProgramId("a"), chosen=chosen)])

    with contextlib.suppress(MissingInput, NotKept):
        stage.catalog.write(block)


def work(stage: Stage, endings: tuple[str, ...]) -> bool:
    """Do one attempt of a due run. Return whether there was a run."""
    catalog = stage.catalog
    if (taken := take_run(catalog)) is None:
        return False
    run, inputs = taken
    try:
        effects = [AttachTransaction(run.run_id, run.epoch), *inputs.begin(run, catalog.world)]
        tx = begin(catalog, run_id=run.run_id, epoch=run.epoch, effects=effects)
        inputs.take(catalog, tx)
        got = inputs.taken["default.lines"].deliveries
        must([one.partition_key for one in got] == [HOUR_1], f"the attempt got {got}")
        if len(endings) > 1 and stage.pick(lambda: endings) == "fail":
            end_attempt(catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "it raised"))
            return True
        commit(catalog, tx, [*inputs.complete(tx), FinishRun(run.run_id, run.epoch, "", {}), *inputs.announce()])
    except Fenced:
        pass
    return True


def worker(name: str) -> Actor:
    """Runner and driver of one attempt after the other."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["take"] if stage.connection.execute(PENDING).fetchall() else [])
        work(stage, ("commit", "fail"))

    return Actor(name, body, repeats=True, group="worker")


PENDING = "SELECT 1 FROM run WHERE state = 'PENDING'"


def janitor(stage: Stage) -> None:
    """Expire all that nothing needs any more."""
    expire_superseded(stage.catalog, timedelta(0))


def recover(stage: Stage) -> None:
    """Start again, until nothing waits."""
    cut_power(stage)
    for _ in range(10):
        stage.clock.at += timedelta(days=1)
        while work(stage, ("commit",)):
            pass
        if not stage.connection.execute(PENDING).fetchall():
            break


def given_stays(tables: Tables) -> None:
    """The input of a run has its files until the run has ended, and no consumer knows of the run."""
    ended = {run.run_id for run in tables["run"] if run.state in promises.ENDED}
    gone = {(row.write_pointer, row.partition_key) for row in tables["partition_change"] if row.expired_at is not None}
    for row in tables["run_input"]:
        must(
            row.run_id in ended or (row.write_pointer, row.item) not in gone,
            f"{row.run_id} has lost {row.item} of transaction {row.write_pointer}",
        )
    must(all(row.run_id != GIVEN for row in tables["consumer_work"]), "a run with chosen input has claimed something")
    inputs = {(row.write_pointer, row.item) for row in tables["run_input"] if row.run_id == GIVEN}
    must(len(inputs) <= 1, f"its input has changed: {inputs}")


def at_rest(tables: Tables) -> None:
    """Nothing is pinned by a run that has ended, and none waits."""
    must(all(run.state in promises.ENDED for run in tables["run"]), "a run is left")
    must(not tables["reader_pin"], f"pins are left: {tables['reader_pin']}")
    must(not tables["slot"], "slots are held")


def chosen(fences: int) -> object:
    """The scenario with so many reapers."""

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "each attempt of a run with chosen input gets the same content, and changes no consumer",
            lake(writers=["w"], runs=[], programs=["a"], earlier=[(1, "append")], retries=1),
            lambda: [
                Actor("person", person),
                writer("w", (1, "overwrite"), endings=ALWAYS),
                worker("worker"),
                Actor("janitor", janitor, repeats=True),
                *(fencer(f"reaper{n}", only=GIVEN) for n in range(fences)),
            ],
            promises.all_of(promises.transactions, promises.changes, given_stays),
            recover,
            at_rest,
            promises.never_undone,
            tables=(*TABLES, "reader_pin") if "reader_pin" not in TABLES else TABLES,
        )

    return make


SCENARIOS = {"given": chosen(1)}
