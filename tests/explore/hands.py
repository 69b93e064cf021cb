"""Consumers in people's hands beside takes, and workers beside reapers: all orders of small scenarios.

A change may come again after a reset, and a worker's run completes things while it goes on, so that what is judged here
is each generation of a consumer by itself, and each commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.explore import promises
from tests.explore.consumers import DAY, LINES, TABLES, _find_live, cut_power, fencer, lake, recover, take_run, worker
from tests.explore.promises import must
from tests.explore.search import Actor, Scenario, Tables
from tests.explore.stage import Stage
from tidemill.catalog.db import Db
from tidemill.errors import Conflict, Fenced
from tidemill.lake.consumer.managed import ConsumerMoved, find_consumer
from tidemill.lake.consumer.resets import requeue, reset
from tidemill.lake.consumer.starts import Start
from tidemill.names import ProgramId
from tidemill.run.processes.worker import Steps
from tidemill.run.records.programs import find_program_by_id
from tidemill.run.records.workers import put_worker
from tidemill.run.step.attempts import AttemptEnd, Cause, end_attempt
from tidemill.run.step.outputs import write_frames

NAME = "default.shop.sum"
_GIVE_UP = """
    INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state, run_id, epoch, failures,
                               error)
    SELECT consumer_id, write_pointer, partition_key, commit_seq, 'discarded', 'run_x', 1, 3, 'boom'
      FROM consumer JOIN partition_change USING (dataset_id)
"""


def resetter(name: str) -> Actor:
    """Person that resets the consumer to the beginning. Refused while a run holds claims."""

    def body(stage: Stage) -> None:
        try:
            reset(stage.catalog, LINES.dataset_id, NAME, Start(), name)
        except Conflict:
            stage.note("SELECT ?", "refused")

    return Actor(name, body)


def requeuer(name: str) -> Actor:
    """Person that requeues discarded partitions."""

    def body(stage: Stage) -> None:
        requeue(stage.catalog, stage.catalog.read(lambda db: find_consumer(db, LINES.dataset_id, NAME)))

    return Actor(name, body)


def taker(name: str) -> Actor:
    """A worker of `consumers`, which a reset may overtake: its attempt is lost then."""
    plain = worker(name)

    def body(stage: Stage) -> None:
        try:
            plain.body(stage)
        except ConsumerMoved:
            run_id, epoch = stage.pick(lambda: _find_live(stage))
            end_attempt(stage.catalog, run_id, epoch, AttemptEnd(Cause.LOST, "its consumer was reset"))

    return Actor(name, body, repeats=True, group="worker")


def loop(name: str, commits: int) -> Actor:
    """A worker program, in the hands of a driver: it takes and commits so often."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["take"])
        go_on(stage, commits)

    return Actor(name, body, repeats=True, group="worker")


def go_on(stage: Stage, commits: int) -> None:
    """Do one attempt of a worker's run."""
    if (taken := take_run(stage.catalog)) is None:
        return
    run, _ = taken
    program = stage.catalog.read(lambda db: find_program_by_id(db, ProgramId("sum")))
    one = Steps(stage.catalog, run, program, {}, {}, write_frames)
    try:
        for _ in range(commits):
            if one.take("0s"):
                one.commit()
    except Fenced:
        pass


def _sound(*more: Callable[[Tables], None]) -> Callable[[Tables], None]:
    return promises.all_of(promises.changes, promises.consumers, promises.slots, _claims, *more)


def _claims(tables: Tables) -> None:
    """Nothing is held of a consumer that is no more; what is completed is an input; of one consumer's runs just one."""
    live = {consumer.consumer_id for consumer in tables["consumer"]}
    inputs = {(row.run_id, row.write_pointer, row.item) for row in tables["run_input"]}
    completed = {(work.run_id, work.write_pointer, work.partition_key) for work in tables["consumer_work"]}
    runs = {run.run_id: run for run in tables["run"]}
    for row in tables["consumer_work"]:
        what = f"{row.partition_key!r} of tx {row.write_pointer}"
        if row.state in {"new", "in_progress"}:
            must(row.consumer_id in live, f"{what} waits for a consumer that was reset")
        if row.state == "in_progress":
            must(runs[row.run_id].state not in promises.ENDED, f"{what} is held by {row.run_id}, which has ended")
        if row.state == "completed":
            must((row.run_id, row.write_pointer, row.partition_key) in inputs, f"{what} is completed, and no input")
    for run_id, pointer, item in inputs:
        must((run_id, pointer, item) in completed, f"{item!r} of tx {pointer} is an input of {run_id}, and not its own")


def _once(tables: Tables) -> None:
    """Each change is the input of one run."""
    times = Counter((row.write_pointer, row.item) for row in tables["run_input"])
    must(all(number == 1 for number in times.values()), f"consumed more than once: {times}")


def _all_done(tables: Tables) -> None:
    """The consumer has each change in its working set, completed."""
    (consumer,) = tables["consumer"]
    done = {
        (work.write_pointer, work.partition_key)
        for work in tables["consumer_work"]
        if work.consumer_id == consumer.consumer_id and work.state == "completed"
    }
    for row in tables["partition_change"]:
        must((row.write_pointer, row.partition_key) in done, f"tx {row.write_pointer} was never consumed")


def by_hand(
    actors: Callable[[], Sequence[Actor]],
    runs: Sequence[str],
    earlier: Sequence[tuple[int, str]],
    *,
    given_up: bool = False,
    reset_allowed: bool = False,
) -> Callable[[str], Scenario]:
    """People beside takes; `given_up`: what there is was discarded before."""

    def set_up(stage: Stage) -> None:
        lake(runs=runs, earlier=earlier)(stage)
        if given_up:
            stage.connection.execute(_GIVE_UP)
            stage.connection.execute("UPDATE consumer SET start_version = (SELECT value + 1 FROM clock)")

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "each generation of a consumer has each change in one committed run, whatever people do meanwhile",
            set_up,
            actors,
            _sound(promises.transactions, *(() if reset_allowed else (_once,))),
            recover("sum"),
            promises.all_of(promises.at_rest, *(() if given_up else (_all_done,))),
            promises.never_undone,
            tables=TABLES,
        )

    return make


def working(earlier: Sequence[tuple[int, str]], commits: int, fences: int) -> Callable[[str], Scenario]:
    """A worker's run, fenced between any two of its steps."""

    def set_up(stage: Stage) -> None:
        lake(runs=["sum"], earlier=earlier)(stage)

        def block(db: Db) -> None:
            put_worker(db, ProgramId("sum"), 1)

        stage.catalog.write(block)

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "a worker's commits complete each change once, and a fenced attempt completes nothing",
            set_up,
            lambda: [loop("worker0", commits), loop("worker1", commits), *(fencer(f"r{n}") for n in range(fences))],
            _sound(_once),
            lambda stage: _finish(stage, commits),
            _all_done,
            promises.never_undone,
            tables=TABLES,
        )

    return make


def _finish(stage: Stage, commits: int) -> None:

    cut_power(stage)
    for _ in range(3):
        stage.clock.at += DAY
        go_on(stage, commits)
        cut_power(stage)


SCENARIOS = {
    "reset": by_hand(lambda: [taker("worker0"), resetter("ann")], ["sum"], [(1, "append")], reset_allowed=True),
    "requeue": by_hand(
        lambda: [taker("worker0"), requeuer("ann"), requeuer("ben")], ["sum"], [(1, "append")], given_up=True
    ),
    "loop": working([(1, "append"), (2, "append")], 2, 1),
}
