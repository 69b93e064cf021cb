"""The cost of runs on PostgreSQL, in statements, ticks and notifications: counted on the line to the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta

from tests.catalog.counting import TICK, CountingProxy, Statements
from tests.run.test_runner import Cluster
from tests.stage import Stage, staged
from tidemill.alerts.sending import Reach
from tidemill.catalog.engine import open_catalog
from tidemill.narration import Narrator
from tidemill.roles.alerter import Alerter
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import Janitor
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher
from tidemill.run.processes.runner import Runner
from tidemill.schedule import loop
from tidemill.schedule.loop import Scheduler
from tidemill.storage.hints import FolderHints
from tidemill.world import World

RUNS = 10
MOST_A_SECOND = 1.6
"""Statements of an idle node."""
MOST_A_COMMIT = 5
"""Statements of a node that finds nothing to do after a commit of another node."""
APP = f"""
bell = app.fileset("bell", keys={{"n": "int"}})
made = app.fileset("made", keys={{"n": "int"}})


@app.python(writes=[made])
def work(run):
    run.output(made).create_empty({{"n": run.write_pointer}})


for number in range({RUNS}):
    app.schedule(f"s{{number}}", work, trigger=tm.NewPartitions(bell), constraints=[])
"""


def test_a_run_of_a_plain_program_costs_few_statements(postgres_catalog_url, tmp_path):
    """Each statement, tick and notification of a run bounds the runs a second of all nodes on one server."""
    with CountingProxy(postgres_catalog_url) as line, staged(tmp_path, line.url) as stage:
        stage.declare(APP)
        for number in (1, 2):  # the first round prepares statements
            stage.publish("bell", f"n={number}")
            line.take()
            stage.schedule()
            ended = stage.work()
        sent = line.take()

    # The stage itself looks at each run once more, and at its program.
    own = 2 * RUNS
    assert [run.state for run in ended] == ["COMPLETED"] * RUNS
    assert sent[TICK] == 2 * RUNS
    assert sent["NOTIFY"] <= RUNS + 4
    assert sent.work - own <= 29 * RUNS


def test_an_idle_node_sends_few_statements(postgres_catalog_url, tmp_path):
    """Each node asks for what it may have missed, also at night: a hundred idle nodes must not load a server."""
    with CountingProxy(postgres_catalog_url) as line, staged(tmp_path, line.url) as stage:
        stage.declare(APP)
        with _steps(stage) as steps:
            a_second = sum(_count(line, step).work / nap.total_seconds() for step, nap in _settled(steps))

    assert a_second <= MOST_A_SECOND


def test_a_commit_of_another_node_costs_few_statements(postgres_catalog_url, tmp_path):
    """Each commit has the scheduler and the runner of each node look; the other loops wait before they look again."""
    with CountingProxy(postgres_catalog_url) as line, staged(tmp_path, line.url) as stage:
        stage.declare(APP)
        with _steps(stage) as (schedule, run, *_):
            a_commit = sum(_count(line, step).work for step, _ in _settled([schedule, run]))

    assert a_commit <= MOST_A_COMMIT


def test_a_run_that_leaves_nothing_for_later_wakes_no_keeper(postgres_catalog_url, tmp_path):
    """The end of each run had the keeper of each node look for retries and listings, five times a second."""
    with staged(tmp_path, postgres_catalog_url) as stage:
        stage.declare(APP)
        other = open_catalog(postgres_catalog_url, World())
        waiter = other.waiter(Keeper.AWAITED)
        waiter.wait(timedelta(0))
        stage.publish("bell", "n=1")
        stage.schedule()
        stage.work()
        woken = waiter.wait(timedelta(milliseconds=300))
        waiter.close()
        other.close()

    assert not woken


def test_a_take_of_a_runner_costs_few_messages(postgres_catalog_url, tmp_path):
    """Each message is a round trip, and with one slot each run has a take of its own."""
    with CountingProxy(postgres_catalog_url) as line, staged(tmp_path, line.url) as stage:
        stage.declare(APP)
        stage.publish("bell", "n=1")
        stage.schedule()
        cluster = Cluster(tmp_path)
        cluster.waits = None
        runner = Runner(stage.world, stage.mill.project.catalog, cluster)
        runner.take()  # prepares statements
        sent = []
        for runner.slots in (3, 5, 99, 100):
            line.take()
            taken = runner.take()
            sent.append((len(taken), len([message for message in line.take_messages() if "NOTIFY" not in message])))

    # The take with its BEGIN, the rows of the runs and of their programs, and the COMMIT. No look comes before, as the
    # last take filled all slots. A take that finds less looks for what it may have passed over.
    assert sent == [(1, 3), (2, 3), (RUNS - 5, 4), (0, 1)]


def test_a_completed_run_wakes_the_runner_of_its_node_alone(postgres_catalog_url, tmp_path):
    """The end of each run had the runner and the scheduler of each node look."""
    with staged(tmp_path, postgres_catalog_url) as stage, ExitStack() as opened:
        stage.declare(APP)
        stage.publish("bell", "n=1")
        stage.schedule()
        (run, *_) = stage.take()
        node = stage.mill.project.catalog.node
        listening = [(node, Runner.AWAITED), ("another", Runner.AWAITED), (node, Scheduler.AWAITED)]
        waiters = []
        for name, awaited in listening:
            other = opened.enter_context(closing(open_catalog(postgres_catalog_url, World(), node=name)))
            waiters.append(opened.enter_context(closing(other.waiter(awaited))))
        for waiter in waiters:
            waiter.wait(timedelta(0))
        ended = stage.attempt(run)
        woken = [waiter.wait(timedelta(milliseconds=300)) for waiter in waiters]

    assert ended.state == "COMPLETED"
    assert woken == [True, False, False]


def test_up_until_idle_does_not_wait_for_the_next_look_of_its_scheduler(postgres_catalog_url, tmp_path, monkeypatch):
    """The messages of the last run wake no scheduler, and are work until a scheduler has read them."""
    monkeypatch.setattr(loop, "LONGEST_SLEEP", timedelta(hours=1))
    with staged(tmp_path, postgres_catalog_url) as stage:
        stage.declare(APP)
        stage.publish("bell", "n=1")
        stage.up()
        states = {run.state for run in stage.runs()}

    assert states == {"COMPLETED"}


def _count(line: CountingProxy, step: Callable[[], timedelta]) -> Statements:
    line.take()
    step()
    return line.take()


def _settled(steps: list[Callable[[], timedelta]]) -> Iterator[tuple[Callable[[], timedelta], timedelta]]:
    """Do all that is due by the start alone, and yield each step with its nap."""
    for step in steps:
        while (nap := step()) < timedelta(seconds=1):
            pass
        yield step, nap


@contextmanager
def _steps(stage: Stage) -> Iterator[list[Callable[[], timedelta]]]:
    """Make the steps of all loops of a process, as `tidemill up` has them, over a stage."""
    catalog, world = stage.mill.project.catalog, stage.world
    state = stage.mill.project.config.state
    runner = Runner(world, catalog, LocalLauncher(world, DriverOptions(catalog.url, state, state)))
    alerter = Alerter(catalog, world, Reach(()), state, on_event=lambda *_: None, on_dead=lambda *_: None)
    hints: FolderHints = FolderHints()
    keeper = Keeper(catalog, Discoverer(catalog, Narrator(world, lambda _: None, as_json=False), hints))
    sweeper = Janitor(catalog, state=state)

    def run() -> timedelta:
        runner.step()
        return runner.idle_for()

    try:
        yield [
            stage.scheduler().step,
            run,
            keeper.step,
            alerter.look,
            alerter.send,
            sweeper.step,
            sweeper.empty_inboxes,
        ]
    finally:
        alerter.stop()
        hints.close()
        runner.close()
