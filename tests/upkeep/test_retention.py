"""Retention: the catalog deletes its old history, and nothing that anything still needs; on both databases."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import staged
from tidemill.catalog.engine import open_catalog
from tidemill.doctor import examine
from tidemill.lake.chosen import choose_again
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.time_travel import seq_before
from tidemill.lake.janitor import sweep
from tidemill.mill.metrics import measure
from tidemill.roles.janitor import Janitor, MachineJanitor
from tidemill.run.processes.external import outputs_of
from tidemill.run.records.logs import delete_old_logs, delete_put_logs
from tidemill.upkeep.audit import audit
from tidemill.upkeep.horizon import read_horizon
from tidemill.upkeep.retention import SQL, Historian, _History
from tidemill.upkeep.time_to_live import expire_messages
from tidemill.world import Disk

APP = """
import tidemill as tm

app = tm.App("shop")
days = app.fileset("days", keys={"day": "date"}, format="text", retention="2d")
newest = app.fileset("newest", keys={"name": "string"}, format="text")
small = app.fileset("small", keys={"name": "string"}, format="text")

@app.python(writes=[days, newest])
def load(run):
    day = f"{run.logical_time:%Y-%m-%d}"
    run.output(days).append({f"day={day}": f"{day}\\n"})
    run.output(newest).overwrite({f"name={name}": f"{day}\\n" for name in "ab"})

@app.python(reads=[days, tm.Reads(newest, on_change="again")])
def report(run):
    pass

app.schedule("daily", load, trigger=tm.Cron("0 6 * * *", zone="UTC"))
app.schedule("on_days", report, trigger=tm.NewPartitions(days))
"""
ON_DOOR = """
@app.python()
def ring(run):
    pass

app.schedule("on_door", ring, trigger=tm.MessageOn("door", n=3) | tm.Every("6d"))
"""
ON_LANDING = """
landing = app.inbox("landing", "landing", format="text", settle="0s")

@app.python(reads=[landing])
def take(run):
    pass

app.schedule("on_files", take, trigger=tm.NewFiles(landing))
"""
STEPS = """
@app.python()
def fetch(run):
    run.put("rows", 1)

@app.python(arguments={"works": bool})
def process(run):
    assert run.arguments["works"]

app.workflow("steps", [tm.Node(fetch), tm.Node(process, after=[fetch])], arguments={"works": bool})
"""
WORKER = """
import tidemill as tm

app = tm.App("shop")
days = app.fileset("days", keys={"day": "date"}, format="text", retention="2d")
small = app.fileset("small", keys={"name": "string"}, format="text")

@app.worker(reads=[days], writes=[small])
def tend(run):
    while run.take("0s"):
        run.output(small).overwrite({"name=a": "a\\n"})
        run.commit()
    raise SystemError("gone")
"""
COUNTED = """
import tidemill as tm

app = tm.App("shop")

@app.python(arguments={{"works": bool}})
def load(run):
    assert run.arguments["works"]

daily = tm.Cron("0 6 * * *", zone="UTC")
app.schedule("daily", load, trigger=daily, constraints={constraints}, arguments={{"works": True}})
"""
KEEP = timedelta(days=3)
DAY = timedelta(days=1)
MARKS = (
    "retention.before_move",
    "retention.before_part",
    "retention.part_deleted",
    "topics.before_part",
    "topics.part_deleted",
)
HISTORY = (
    "run",
    "run_input",
    "tx",
    "message",
    "job_history",
    "fire",
    "partition_change",
    "compaction",
    "consumer_work",
)


class Killed(BaseException):
    """The end of a process at a mark."""


class Unforeseen(Exception):
    """An error that no line of the product expects."""


@pytest.fixture
def clock():
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
def stage(tmp_path, catalog_url, clock):
    """A project that loads and reports once a day."""
    with staged(tmp_path, catalog_url, APP, clock) as stage:
        yield stage


@pytest.fixture
def tended(tmp_path, catalog_url, clock):
    """A project with a worker."""
    with staged(tmp_path, catalog_url, WORKER, clock) as stage:
        yield stage


def live(stage, clock, days, janitor, also=lambda _: None):
    """Let days pass, each with its runs, what `also` does, and a sweep."""
    for _ in range(days):
        clock.pass_by(DAY)
        stage.play()
        also(stage)
        janitor.step()


def merge(stage):
    """Replace a partition, and compact the partition twice."""
    stage.publish("small", "name=a", op="overwrite")
    for _ in range(2):
        stage.publish("small", "name=a")
        with stage.transaction("small") as tx:
            outputs = outputs_of(tx)
            found = outputs.find_fragmented("default.small", None)
            outputs.compact("default.small", found, {"name=a": "name=a\n" * found[0].rows})


def sizes(stage):
    """Return the number of rows of each table with history."""
    return {table: stage.sql(f"SELECT count(*) FROM {table}")[0][0] for table in HISTORY}


def make_janitor(stage):
    """Make a janitor that keeps history and messages for three days, and replaced files for one."""
    config = stage.mill.project.config
    return Janitor(stage.mill.project.catalog, DAY, config.state, keep_history=KEEP, keep_messages=KEEP)


def test_a_catalog_that_works_for_long_stays_as_large_as_what_it_keeps(stage, clock):
    """A year at 1,000 runs a day would be 365,000 runs; here the same by tens of days."""
    janitor = make_janitor(stage)
    live(stage, clock, 8, janitor, merge)
    at_first = sizes(stage)
    live(stage, clock, 3, janitor, merge)

    found = audit(stage.mill.project.catalog)
    assert found.findings == ()
    assert stage.mill.catalog.fsck().differences == ()
    assert found.horizon > 0
    assert clock.at - found.horizon_at <= KEEP + DAY
    assert sizes(stage) == at_first
    assert at_first["compaction"] < 2 * 8
    samples = {(one.metric.value, *one.labels.values()): one.value for one in measure(stage.mill.project).samples}
    assert samples["tidemill_history_horizon_age_seconds",] == 0
    assert samples["tidemill_history_deleted_rows", "runs"] >= 2 * 7
    assert samples["tidemill_history_deleted_rows", "compactions"] == 2 * 11 - at_first["compaction"]
    assert samples["tidemill_history_deleted_rows", "backfills"] == 0


def tend(stage, clock):
    """Publish a partition a day later, and have the worker take it; the process is gone before the end of the run."""
    clock.pass_by(DAY)
    stage.publish("days", f"day={clock.at:%Y-%m-%d}")
    stage.balance_workers()
    (run,) = stage.take()
    driver = stage.driver(run)
    driver._end = lambda *_: None
    driver.work(stage.assignment(run))
    stage.end_attempt(run, "lost", "gone")
    return run


def count_history(stage, run):
    """The numbers of transactions and inputs of a run, and of all changes of what the worker reads."""
    ((found,),) = stage.sql("SELECT dataset_id FROM dataset WHERE name = 'days'")
    return tuple(
        stage.sql(f"SELECT count(*) FROM {table} WHERE {key} = '{value}'")[0][0]
        for table, key, value in (
            ("tx", "run_id", run.run_id),
            ("run_input", "run_id", run.run_id),
            ("partition_change", "dataset_id", found),
        )
    )


def test_the_history_of_a_worker_that_goes_on_is_deleted(tended, clock):
    """A worker has one run for perhaps a year, and commits again and again."""
    janitor = make_janitor(tended)
    numbers = []
    for _ in range(12):
        run = tend(tended, clock)
        janitor.step()
        numbers.append(count_history(tended, run))
        assert audit(tended.mill.project.catalog).findings == ()

    assert run.epoch == len(numbers)
    assert numbers[:4] == [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 5)]
    assert numbers[6:] == 6 * [(6, 4, 11)]


@pytest.mark.parametrize("end", ["goes on", "ends"])
def test_inputs_of_a_worker_go_in_parts(tended, clock, monkeypatch, end):
    """A worker may have taken millions of partitions, and a janitor may be killed between two parts."""
    monkeypatch.setattr("tidemill.upkeep.retention._PART", 2)
    run = [tend(tended, clock) for _ in range(5)][-1]
    if end == "ends":
        tended.mill.runs.kill(run.run_id)
    clock.pass_by(KEEP)
    make_janitor(tended).step()
    clock.pass_by(DAY)
    kept = []
    for _ in range(2):
        tended.at["retention.part_deleted"] = _kill
        with pytest.raises(Killed):
            make_janitor(tended).step()
        kept.append(tended.sql(f"SELECT count(*) FROM run_input WHERE run_id = '{run.run_id}'")[0][0])
        assert audit(tended.mill.project.catalog).findings == ()

    assert kept == [3, 1]


def test_a_pass_looks_at_many_partitions_at_once(stage, clock, monkeypatch):
    """The change before the current one stays: a transaction for each such partition took a second in each hour."""
    catalog, numbers, transactions = stage.mill.project.catalog, [], []
    for kind in ("read", "write"):
        real = getattr(catalog, kind)
        monkeypatch.setattr(catalog, kind, lambda block, real=real: (transactions.append(block), real(block))[1])
    for most in (3, 30):
        for _ in range(3):
            clock.pass_by(DAY)
            stage.publish("small", *(f"name={number}" for number in range(most)), op="overwrite")
        for _ in range(6):
            clock.pass_by(DAY)
            make_janitor(stage).step()
        historian = Historian(catalog, KEEP)
        clock.pass_by(DAY)
        transactions.clear()
        historian.step()
        kept = "SELECT count(*) FROM partition_change JOIN dataset USING (dataset_id) WHERE name = 'small'"
        numbers.append((stage.sql(kept)[0][0], len(transactions)))

    assert [changes for changes, _ in numbers] == [6, 60]
    assert numbers[0][1] == numbers[1][1]


def test_a_commit_of_many_partitions_is_looked_at_in_parts(stage, clock, monkeypatch):
    """A commit may replace 50,000 partitions: PostgreSQL ended the statement after five seconds, hour by hour."""
    monkeypatch.setattr("tidemill.upkeep.retention._PART", 4)
    looked, real = [], _History.list_old
    monkeypatch.setattr(_History, "list_old", lambda *given: (looked.append(len(given[2])), real(*given))[1])
    for _ in range(3):
        clock.pass_by(DAY)
        stage.publish("small", *(f"name={number}" for number in range(10)), op="overwrite")
    for _ in range(6):
        clock.pass_by(DAY)
        make_janitor(stage).step()

    assert max(looked) == 4
    assert stage.sql("SELECT count(*) FROM partition_change WHERE superseded_seq IS NOT NULL") == [(10,)]


def test_time_slots_stay_and_the_partitions_go(stage, clock):
    """A watermark that waits may count its slots from the first on: without a slot it would stand still."""
    watermark = 'retention="2d", watermark=tm.Watermark("at", pattern="$day", interval="1d", gap="wait")'
    stage.declare(APP.replace('retention="2d"', watermark))
    numbers = []
    for _ in range(2):
        live(stage, clock, 8, make_janitor(stage))
        ((slots,),) = stage.sql("SELECT count(*) FROM time_slot")
        changes = "SELECT count(*) FROM partition_change JOIN dataset USING (dataset_id) WHERE name = 'days'"
        numbers.append((slots, stage.sql(changes)[0][0]))

    assert [slots for slots, _ in numbers] == [8, 16]
    assert numbers[0][1] == numbers[1][1]


def test_a_compaction_stays_until_its_files_are_deleted(stage, clock):
    """Its row says which files are to be deleted: without the row they would stay for ever."""
    catalog, hour = stage.mill.project.catalog, timedelta(hours=1)
    historian, numbers = Historian(catalog, hour), []
    for _ in range(2):
        merge(stage)
    clock.pass_by(DAY)
    stage.publish("newest", "name=a")
    expire_superseded(catalog, hour)
    for delete in (int, lambda: sweep(catalog)):
        delete()
        for _ in range(3):
            clock.pass_by(2 * hour)
            historian.step()
        numbers.append(stage.sql("SELECT count(*) FROM compaction")[0][0])

    assert numbers == [4, 1]
    assert stage.mill.catalog.fsck().differences == ()


def test_a_horizon_that_no_janitor_moves_is_found_by_the_doctor(stage, clock):
    """The catalog would grow for ever without a sign of the cause."""
    clock.pass_by(DAY)
    stage.play()

    def find():
        found = examine(stage.mill.project.config.folder, world=stage.world).findings
        return next((one.good, one.found) for one in found if one.subject == "retention")

    fresh = find()
    clock.pass_by(92 * DAY)
    old = find()
    Janitor(stage.mill.project.catalog, DAY, stage.mill.project.config.state).step()
    swept = find()

    assert fresh == swept == (True, "history is kept for 90d")
    assert old[0] is False
    assert "no janitor has worked yet" in old[1]


def test_what_is_needed_stays_at_any_age(stage, clock):
    """The last runs say when a schedule ran and whether it failed; what is open needs its rows."""
    janitor = make_janitor(stage)
    live(stage, clock, 1, janitor)
    stage.mill.schedules.suspend("shop.daily")
    last = next(run for run in stage.mill.runs.list(state="COMPLETED") if run.program.endswith("report"))
    replayed = stage.mill.runs.replay(last.run_id, sandbox=True).run_id
    stage.play()
    waiting = stage.mill.runs.start("shop.report").run_id
    newest = {run.run_id for run in stage.runs()} - {replayed}
    for _ in range(6):
        clock.pass_by(DAY)
        janitor.step()
    stage.mill.schedules.resume("shop.daily")

    assert {run.run_id for run in stage.runs()} == newest >= {waiting}
    assert [stage.mill.runs.show(run_id).run_id for run_id in newest]
    assert audit(stage.mill.project.catalog).findings == ()


def make_short_janitor(stage):
    """Make a janitor that keeps history for a day, sooner than constraints and alerts count runs."""
    return Janitor(stage.mill.project.catalog, state=stage.mill.project.config.state, keep_history=DAY)


@contextmanager
def counted(tmp_path, catalog_url, clock, constraint=""):
    """Open a project with a daily schedule under a constraint."""
    app = COUNTED.format(constraints=f"[tm.{constraint}]" if constraint else "[]")
    with staged(tmp_path, catalog_url, app, clock) as stage:
        yield stage


def launch(stage, clock, days, janitor):
    """Let days pass; return those, from 1 on, on which the schedule has launched a run."""
    launched = []
    for day in range(1, days + 1):
        clock.pass_by(DAY)
        launched += [day for run in stage.play() if run.schedule_id]
        janitor.step()
    return launched


def test_launches_that_a_rate_counts_stay(tmp_path, catalog_url, clock):
    """Without them more runs than the limit start, and no record says so."""
    with counted(tmp_path, catalog_url, clock, 'Rate(2, per="20d", on_limit="skip")') as stage:
        janitor = make_short_janitor(stage)
        launched = launch(stage, clock, 24, janitor)
        numbers = [len(stage.runs())]
        stage.declare(
            COUNTED.format(constraints="[]").removeprefix('\nimport tidemill as tm\n\napp = tm.App("shop")\n')
        )
        launch(stage, clock, 4, janitor)
        numbers.append(len(stage.runs()))

    assert launched == [1, 2, 21, 22]
    assert numbers == [2, 3]


@pytest.mark.parametrize(("later", "day"), [("backfill", 9), ("replay", 10), ("sandbox", 10)])
def test_the_last_success_that_a_constraint_counts_stays(tmp_path, catalog_url, clock, later, day):
    """A later run that the constraint does not count would take its place. A replay that publishes counts."""
    with counted(tmp_path, catalog_url, clock, 'SinceLastRun("10d")') as stage:
        janitor, runs = make_short_janitor(stage), stage.mill.runs
        first = runs.start("shop.load", {"works": True}).run_id
        stage.play()
        clock.pass_by(DAY)
        if later == "backfill":
            may = {"by": "times", "schedule": "shop.daily", "since": "2025-05-01", "until": "2025-05-02"}
            stage.mill.backfills.start("shop.load", **may, select="all")
        else:
            runs.replay(first, sandbox=False)
        stage.play()
        clock.pass_by(timedelta(minutes=1))
        if later == "sandbox":
            runs.replay(first, sandbox=True)
            stage.play()
        launched = launch(stage, clock, 14, janitor)

    assert launched == [day]


def test_the_success_that_ended_last_stays(tmp_path, catalog_url, clock):
    """A failure that was made good would be a failure again."""
    with counted(tmp_path, catalog_url, clock) as stage:
        janitor, mill = make_short_janitor(stage), stage.mill
        mill.schedules.suspend("shop.daily")
        mill.alerts.create("once", tm.RunFailed("shop.load"))
        for works in (True, False, True):
            mill.runs.start("shop.load", {"works": works})
            clock.pass_by(timedelta(minutes=1))
        for run in reversed(stage.take()):
            stage.attempt(run)
            clock.pass_by(timedelta(minutes=1))
        mill.runs.replay(run.run_id, sandbox=False)
        stage.play()
        launch(stage, clock, 4, janitor)
        stage.look_at_alerts()

        assert list(mill.alerts.list(rule="once")) == []


def test_failures_that_an_alert_counts_stay(tmp_path, catalog_url, clock):
    """An open alert would end though no run has succeeded."""
    with counted(tmp_path, catalog_url, clock) as stage:
        janitor, mill = make_short_janitor(stage), stage.mill
        mill.schedules.suspend("shop.daily")
        mill.alerts.create("thrice", tm.RunFailed("shop.load", times=3))

        def run(days, *, works):
            numbers = []
            for _ in range(days):
                mill.runs.start("shop.load", {"works": works})
                stage.play()
                clock.pass_by(DAY)
                janitor.step()
                stage.look_at_alerts()
                numbers.append((len(stage.runs()), len(list(mill.alerts.list(rule="thrice")))))
            return numbers

        failed = run(9, works=False)
        launch(stage, clock, 4, janitor)
        stage.look_at_alerts()
        later = len(stage.runs()), len(list(mill.alerts.list(rule="thrice")))
        good = run(4, works=True)

    assert failed[2:] == 7 * [(3, 1)]
    assert later == (3, 1)
    assert good[-1] == (3, 0)


def test_runs_whose_times_an_alert_counts_stay(tmp_path, catalog_url, clock, monkeypatch):
    """A rule about slow runs would be silent: without 5 completed runs no time is usual."""
    monkeypatch.setattr("tidemill.upkeep.retention.USUAL_RUNS", 6)
    with counted(tmp_path, catalog_url, clock) as stage:
        janitor = make_short_janitor(stage)
        stage.mill.alerts.create("slow", tm.RunSlow("shop.load"))
        launch(stage, clock, 12, janitor)
        with_rule = len(stage.runs())
        stage.mill.alerts.delete("slow")
        launch(stage, clock, 3, janitor)

        assert (with_rule, len(stage.runs())) == (6, 3)


def test_runs_of_nodes_stay_as_long_as_their_workflow(stage, clock):
    """The newest workflow of a program in each state stays at any age, and people look at its nodes."""
    stage.declare(STEPS)
    janitor = make_janitor(stage)
    first, second = (stage.mill.runs.start("shop.steps", {"works": works}).run_id for works in (False, True))
    stage.play()
    live(stage, clock, 5, janitor)
    nodes = stage.mill.runs.show(first).workflow.nodes
    stage.mill.runs.start("shop.steps", {"works": True})
    stage.play()
    live(stage, clock, 6, janitor)

    assert [node.run_state for node in nodes] == ["COMPLETED", "FAILED"]
    assert stage.sql(f"SELECT count(*) FROM run WHERE run_id LIKE '{first}%'") == [(3,)]
    assert stage.sql(f"SELECT count(*) FROM run WHERE run_id LIKE '{second}%'") == [(0,)]


@pytest.mark.parametrize("repeat", ["replay", "retry"])
def test_a_run_that_is_deleted_while_it_is_repeated_is_not_repeated_on_no_input(stage, clock, monkeypatch, repeat):
    """Retention deletes a run with its input: the repetition would report success for nothing."""
    clock.pass_by(DAY)
    stage.play()
    ran = next(run for run in stage.mill.runs.list() if run.program.endswith("report"))
    if repeat == "retry":
        ran = stage.mill.runs.start("shop.report", partitions={"newest": ["name=a"]})
        stage.mill.runs.kill(ran.run_id)

    def choose_late(db, *given):
        runs = json.dumps([ran.run_id])
        db.run(SQL.delete_inputs, runs=runs)
        db.run(SQL.delete_runs, runs=runs)
        return choose_again(db, *given)

    monkeypatch.setattr("tidemill.mill.runs.choose_again", choose_late)

    with raises_code("not_found", ran.run_id):
        getattr(stage.mill.runs, repeat)(ran.run_id)


def test_files_are_compared_by_commits_though_the_clock_was_set_back(stage, clock, tmp_path):
    """By its time such a file is young when its message is history."""
    janitor = make_janitor(stage)
    stage.declare(APP + ON_LANDING)
    (tmp_path / "landing" / "a.txt").write_text("1\n")
    stage.mill.inboxes.scan("landing")
    stage.play()
    clock.pass_by(-5 * DAY)
    stage.publish("newest", "name=a")
    live(stage, clock, 6, janitor)

    found = audit(stage.mill.project.catalog)
    assert [one.old for one in found.inboxes] == [1]
    assert found.findings == ()


def test_logs_go_with_the_records_of_their_runs(stage, clock, tmp_path):
    """Logs without a record fill the disk, and no command shows them. The log of a kept run is still read."""
    catalog, world = stage.mill.project.catalog, stage.world
    old, kept = world.new_id("run"), stage.mill.runs.start("shop.report").run_id
    clock.pass_by(DAY)
    young = world.new_id("run")
    for run_id in (old, kept, young):
        for place in ("logs", "far"):
            (tmp_path / place / run_id / "1").mkdir(parents=True)
            (tmp_path / place / run_id / "1" / "stdout").write_text("said")

    assert delete_old_logs(catalog, tmp_path / "logs", clock.at) == 1
    assert delete_put_logs(catalog, (tmp_path / "far").as_uri(), clock.at) == 1
    assert {one.name for one in (tmp_path / "logs").iterdir()} == {kept, young}
    assert {one.parent.parent.name for one in (tmp_path / "far").rglob("stdout")} == {kept, young}


def test_a_log_that_cannot_be_deleted_holds_up_nothing(stage, clock, tmp_path):
    """The error would end the process, with the drivers of its runs, and again after each start."""

    class Stubborn(Disk):
        def remove(self, path):
            if path.name == stuck:
                raise PermissionError(f"{path} belongs to another user")
            super().remove(path)

    stuck, free = stage.world.new_id("run"), stage.world.new_id("run")
    for run_id in (stuck, free):
        (tmp_path / "logs" / run_id).mkdir(parents=True)
    clock.pass_by(DAY)
    with closing(open_catalog(stage.mill.project.config.catalog, replace(stage.world, disk=Stubborn()))) as catalog:
        assert delete_old_logs(catalog, tmp_path / "logs", clock.at) == 1

    assert [one.name for one in (tmp_path / "logs").iterdir()] == [stuck]


def test_a_machine_with_runners_alone_deletes_what_the_catalog_has_no_more(stage, clock, tmp_path):
    """The janitor of another machine does not reach its folders: they would grow for ever."""
    catalog = stage.mill.project.catalog
    janitor, machine = Janitor(catalog, keep_history=KEEP), MachineJanitor(catalog, tmp_path)
    live(stage, clock, 1, janitor)
    logs = [tmp_path / "logs" / run.run_id / "1" for run in stage.runs()]
    code = tmp_path / "bundles" / ("0" * 64)
    for folder in (*logs, code):
        folder.mkdir(parents=True)
    machine.step()
    assert not code.exists()
    assert all(one.exists() for one in logs)

    live(stage, clock, 7, janitor)
    machine.step()
    assert not any(one.exists() for one in logs)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["kill", "exception", "pause"])
def test_a_janitor_struck_anywhere_is_continued_by_the_next(stage, clock, fault):
    """Each part is a transaction of its own, and a repeated deletion finds nothing.

    A janitor that pauses goes on after another janitor has deleted all.
    """
    strike, ends = {
        "kill": (_kill, pytest.raises(Killed)),
        "exception": (_fail, pytest.raises(Unforeseen)),
        "pause": (lambda: make_janitor(stage).step(), nullcontext()),
    }[fault]
    live(stage, clock, 8, make_janitor(stage), merge)
    whole = sizes(stage)

    between = []
    for mark in MARKS:
        clock.pass_by(DAY)
        stage.play()
        merge(stage)
        stage.at[mark] = strike
        with ends:
            make_janitor(stage).step()
        between += audit(stage.mill.project.catalog).findings
    make_janitor(stage).step()

    assert between == []
    assert stage.at == {}
    assert audit(stage.mill.project.catalog).findings == ()
    assert sizes(stage) == whole


def test_the_times_of_an_open_job_stay_at_any_age(stage, clock):
    """A job may wait for data longer than history is kept: a backfill would do its times a second time."""
    janitor, begin = make_janitor(stage), clock.at
    waits = 'trigger=tm.Cron("0 6 * * *", zone="UTC") & tm.NewPartitions(small)'
    stage.declare(APP.replace('trigger=tm.Cron("0 6 * * *", zone="UTC")', waits))
    live(stage, clock, 9, janitor)

    plan = stage.mill.backfills.plan("shop.load", by="times", schedule="shop.daily", since=begin, until=clock.at)
    assert plan.named == {"waiting": 9}


def test_the_horizon_moves_on_though_its_commits_are_deleted(stage, clock):
    """The commits by which it is found are deleted: it stood still, and each half minute a try was a commit."""
    janitor = make_janitor(stage)
    live(stage, clock, 5, janitor)
    catalog, moved = stage.mill.project.catalog, []
    for _ in range(5):
        clock.pass_by(timedelta(hours=2))
        janitor.step()
        moved.append(catalog.read(read_horizon))

    assert [(later.moved_at - one.moved_at, later.at > one.at) for one, later in pairwise(moved)] == [
        (timedelta(hours=2), True)
    ] * 4
    assert [one.seq for one in moved] == sorted(one.seq for one in moved)


def test_the_last_of_many_commits_of_one_millisecond_is_found(stage):
    """PostgreSQL gave any of them: what should have expired stayed for another round."""
    for number in range(12):
        stage.publish("small", f"name={number}")
    stage.sql("UPDATE tx SET ended_at = 1 WHERE commit_seq % 3 = 1 RETURNING 1")
    stage.sql("UPDATE tx SET ended_at = 1 WHERE ended_at IS NOT NULL RETURNING 1")
    ((last,),) = stage.sql("SELECT max(commit_seq) FROM tx")

    assert stage.mill.project.catalog.read(lambda db: seq_before(db, timedelta(0))) == last


def test_two_janitors_move_the_horizon_once(stage, clock):
    """A horizon that moved twice in an hour would delete what an audit under way still compares."""
    live(stage, clock, 5, make_janitor(stage))
    catalog = stage.mill.project.catalog
    clock.pass_by(DAY)
    first, second = (Historian(catalog, KEEP) for _ in range(2))
    first.step()
    before = catalog.read(read_horizon)
    second.step()

    assert catalog.read(read_horizon) == before
    assert before.delete_seq < before.seq


def _kill() -> None:
    raise Killed


def _fail() -> None:
    raise Unforeseen


def test_messages_stay_for_those_that_still_read_them(stage, clock):
    """A message that a job has not been given, or that it holds, would be lost for its schedule."""
    mill = stage.mill
    stage.declare(ON_DOOR)
    mill.topics.create("door", keep="1d")
    mill.topics.publish("door", {"n": 1})
    stage.schedule()
    mill.topics.publish("door", {"n": 2})
    clock.pass_by(5 * DAY)
    make_janitor(stage).step()
    clock.pass_by(DAY)
    make_janitor(stage).step()
    held = [message.payload for message in mill.topics.read("door", after="0")]
    stage.play()
    clock.pass_by(DAY)
    make_janitor(stage).step()

    assert held == [{"n": 1}, {"n": 2}]
    assert list(mill.topics.read("door", after="0")) == []


def test_an_outside_subscriber_that_fell_behind_learns_what_has_expired(stage, clock):
    """A reader that goes on silently would not know that it missed messages."""
    mill = stage.mill
    mill.topics.create("door", keep="1d")
    mill.subscribers.create("desk", "door", start="beginning")
    first = mill.topics.publish("door", {"n": 1}).position
    mill.topics.publish("door", {"n": 2})
    mill.subscribers.acknowledge("desk", first)
    for _ in range(2):
        clock.pass_by(2 * DAY)
        make_janitor(stage).step()
    mill.topics.publish("door", {"n": 3})

    with raises_code("position_expired"):
        mill.subscribers.read("desk")
    with raises_code("position_expired"):
        mill.topics.read("door", after=first)
    mill.subscribers.reset("desk", "beginning")
    assert [message.payload for message in mill.subscribers.read("desk").messages] == [{"n": 3}]


def test_a_topic_that_is_made_again_has_no_old_messages(stage, clock):
    """A reader of the new topic would take the old messages for its own."""
    mill = stage.mill
    mill.topics.publish("door", {"n": 1})
    with raises_code("topic_exists"):
        mill.topics.create("door", keep="1d")
    mill.subscribers.create("desk", "door")
    with raises_code("topic_in_use"):
        mill.topics.delete("door")
    mill.subscribers.delete("desk")

    assert mill.topics.delete("door").messages == 1
    with raises_code("not_found"):
        mill.topics.show("door")
    created = mill.topics.create("door", keep="1d")
    assert (created.newest, created.keep) == ("", DAY)
    assert [one.topic for one in mill.topics.list(kind="own")] == ["door"]
    assert mill.topics.update("door").keep is None
    mill.topics.publish("door", {"n": 2})
    assert [message.payload for message in mill.topics.read("door", after="0")] == [{"n": 2}]


@pytest.mark.parametrize("state", ["run", "job"])
def test_a_topic_is_not_deleted_while_open_work_needs_its_messages(stage, clock, state):
    """The error names the work, since a person can end that alone."""
    stage.declare(ON_DOOR.replace("n=3", "n=1" if state == "run" else "n=3"))
    stage.schedule()
    stage.mill.topics.publish("door", {"n": 1})
    stage.schedule()
    stage.sql("DELETE FROM trigger_key WHERE event_key LIKE '%door%' RETURNING 1")

    with raises_code(
        "topic_in_use", {"run": "needs its messages.* `tidemill run kill run_", "job": "job drop job_"}[state]
    ):
        stage.mill.topics.delete("door")


def test_a_topic_whose_deletion_was_killed_shows_no_old_messages(stage, clock):
    """The topic may be made again at once. The janitor deletes the rest."""
    topics = stage.mill.topics
    topics.publish("door", {"n": 1})

    stage.at["topics.part_deleted"] = _kill
    with pytest.raises(Killed):
        topics.delete("door")
    created = topics.create("door", keep="30d")
    empty = [topics.show("door"), *topics.list(kind="own")]
    topics.publish("door", {"n": 2})
    read = [[one.payload["n"] for one in topics.read("door", **how)] for how in ({}, {"after": "0"})]
    expire_messages(stage.mill.project.catalog, 30 * DAY, 0)

    assert created.keep == 30 * DAY
    assert [(one.newest, one.newest_at) for one in [created, *empty]] == [("", None)] * 3
    assert read == [[2], [2]]
    assert stage.sql("SELECT count(*) FROM message WHERE topic = 'door'") == [(1,)]


def test_a_topic_whose_messages_have_expired_is_still_there(stage, clock):
    """The topic could neither be shown nor created."""
    mill = stage.mill
    mill.topics.publish("door", {"n": 1})
    for _ in range(3):
        clock.pass_by(2 * DAY)
        make_janitor(stage).step()

    assert mill.topics.show("door").newest == ""
    with raises_code("position_expired"):
        mill.topics.read("door", after="1")
    assert mill.topics.create("door", keep="1d").keep == DAY
    assert mill.topics.show("door").keep == DAY


def test_a_topic_is_read_from_a_time_on(stage, clock):
    """A person knows the time of a trouble, and no position."""
    for n in range(5):
        stage.mill.topics.publish("door", {"n": n})
        clock.pass_by(timedelta(hours=1))

    found = stage.mill.topics.read("door", since=clock.at - timedelta(hours=2))
    later = stage.mill.topics.read("door", since=clock.at)

    assert [message.payload["n"] for message in found] == [3, 4]
    assert list(later) == []


def test_a_backfill_goes_with_its_items_when_it_has_ended_long_ago(stage, clock, monkeypatch):
    """In parts; one that is not over stays at any age, and one whose deletion has begun is never tried again."""
    monkeypatch.setattr("tidemill.upkeep.retention._PART", 1)
    janitor, mill = Janitor(stage.mill.project.catalog, keep_history=KEEP), stage.mill
    may = {"by": "times", "schedule": "shop.daily", "since": "2025-05-01", "until": "2025-05-04"}
    old, paused = (mill.backfills.start("shop.load", **may, select="all").backfill_id for _ in range(2))
    mill.backfills.pause(paused)
    stage.play()
    live(stage, clock, 6, janitor)

    left = stage.sql("SELECT DISTINCT backfill_id FROM backfill_item")
    assert ([one.backfill_id for one in mill.backfills.list()], left) == ([paused], [(paused,)])
    with raises_code("not_found", old):
        mill.backfills.retry(old)
