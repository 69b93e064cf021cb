"""Replays: a committed run repeated on its exact input, in a sandbox or published, and compared."""

from __future__ import annotations

import json
from datetime import timedelta
from threading import Thread

import pytest

from tests.app.test_chosen_input import state_of
from tests.errors import raises_code
from tests.stage import EMPTY, staged
from tidemill.cli.main import main

APP = """
from pathlib import Path

HERE = Path(__file__).parent
lines = app.fileset("lines", keys={"hour": "int"})
sums = app.fileset("sums", keys={"hour": "int"})
log = app.fileset("log", keys={"hour": "int"})
raw = app.inbox("raw", "landing", format="csv", schema="id INT", settle="0s", after="delete")
mirror = app.snapshot("mirror", key=["line"])
users = app.snapshot("users", key=["line"])


def say(text):
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{text}\\n")


@app.python(reads=[lines, raw, mirror, tm.Changes(users)], writes=[sums, log], arguments={"level": 1}, retries=2)
def report(run):
    taken, changes = run.input(lines), run.input(users)
    got = [(p["hour"], d.kind.value, len(d.files)) for p, d in zip(taken.partitions, taken.deliveries)]
    seen = [changes.since, changes.version, run.input(mirror).version, run.input(raw).files]
    say(f"{got} {seen} {run.arguments['level']} {run.logical_time:%H:%M} VERSION")
    more = (HERE / "more").read_text() if (HERE / "more").exists() else ""
    run.output(sums).overwrite({f"hour={hour}": f"sum {hour}\\n{more}" for hour, *_ in got})
    if more != "none":
        run.output(log).append({f"hour={hour}": "x\\n" for hour, *_ in got if run.arguments["level"] > 1})


@app.python(reads=[sums])
def follow(run):
    say("follow")


app.schedule("follow", follow, trigger=tm.NewPartitions(sums))
"""
OVERWRITTEN = {"hour=3": "other\n"}


@pytest.fixture
def stage(tmp_path, catalog_url):
    """The project, with something in each kind of input."""
    with staged(tmp_path, catalog_url, EMPTY + APP) as stage:
        (tmp_path / "landing").mkdir(exist_ok=True)
        (tmp_path / "landing" / "a.csv").write_text("id\n1\n")
        stage.mill.inboxes.scan("raw")
        for name, text in (("mirror", "a\n"), ("users", "a\n")):
            with stage.transaction(name) as tx:
                tx.snapshot(f"default.{name}").replace({"": text})
        stage.publish("lines", "hour=3", "hour=5")
        yield stage


def run_once(stage, **arguments):
    """Start the program on what waits, and return the run."""
    made = stage.mill.runs.start("shop.report", arguments, logical_time="2026-01-31T06:00Z")
    (ran,) = [run for run in stage.work() if run.run_id == made.run_id]
    assert ran.state == "COMPLETED", ran.exit_reason
    return ran


def refresh(stage, text):
    """Give the feed of the program another version."""
    with stage.transaction("users") as tx:
        tx.snapshot("default.users").replace({"": text})


def move_on(stage):
    """Have newer content in each input, and other defaults and code in the program."""
    stage.publish("lines", "hour=3", "hour=9")
    stage.commit("lines", OVERWRITTEN, "overwrite")
    for name in ("mirror", "users"):
        with stage.transaction(name) as tx:
            tx.snapshot(f"default.{name}").replace({"": "b\n"})
    stage.declare(APP.replace("VERSION", "NEWER").replace('"level": 1', '"level": 7'))


def replay(stage, run, **how):
    """Replay a run, and return the replay."""
    made = stage.mill.runs.replay(run.run_id, **how)
    (ran,) = [one for one in stage.work() if one.run_id == made.run_id]
    return ran


def test_a_sandbox_has_the_exact_input_and_code_and_publishes_nothing(stage):
    """The inputs have moved on, the program was deployed again, and the consumer has other work waiting."""
    run = run_once(stage)
    move_on(stage)
    stage.play()
    before = state_of(stage), stage.sql("SELECT count(*) FROM partition_change"), stage.sql("SELECT count(*) FROM tx")

    ran = replay(stage, run, sandbox=True, diff=True)
    (row,) = stage.mill.audit.log(subject=run.run_id)
    again = replay(stage, run, sandbox=True, diff=True)
    after = state_of(stage), stage.sql("SELECT count(*) FROM partition_change"), stage.sql("SELECT count(*) FROM tx")

    assert (ran.state, ran.exit_reason) == ("COMPLETED", "sandbox")
    assert (row.action, row.detail) == ("run.replay", {"run_id": ran.run_id})
    lines = [line for line in stage.lines_of() if line != "follow"]
    assert lines[0] == lines[1] == lines[2]
    assert lines[0].endswith("['a.csv']] 1 06:00 VERSION")
    assert ran.facts["comparison"] == again.facts["comparison"]
    assert ran.facts["comparison"]["same"] is True
    assert after[:2] == before[:2]
    assert after[2][0][0] == before[2][0][0] + 2
    assert stage.schedule() == []
    assert stage.sql("SELECT pin_id FROM reader_pin") == []
    assert stage.mill.catalog.audit().findings == ()


def test_a_replay_says_which_partitions_differ(stage):
    """A program that reads the clock or another system gives other rows."""
    run = run_once(stage)
    (stage.mill.project.config.folder / "more").write_text("one more\n")

    ran = replay(stage, run, sandbox=True, diff=True)
    (sums,) = ran.facts["comparison"]["outputs"]

    assert ran.facts["comparison"]["same"] is False
    assert (sums["dataset"], sums["rows_published"], sums["rows_replayed"]) == ("default.sums", 2, 4)
    assert [one["partition"] for one in sums["differing"]] == ["hour=3", "hour=5"]


def test_a_replay_publishes_again_what_no_other_run_has_written(stage):
    """Twice gives the same partitions; what a later run has written stays."""
    run = run_once(stage)
    first, second = replay(stage, run, quiet=True), replay(stage, run, diff=True)
    launched = stage.schedule()
    stage.commit("sums", {"hour=5": "by hand\n"}, "overwrite")
    third = replay(stage, run)

    assert (first.state, second.state, third.state) == ("COMPLETED", "COMPLETED", "FAILED")
    assert second.facts["comparison"]["same"] is True
    assert launched == ["default.shop.follow"]
    assert "replay_refused" in str(third.exit_reason)
    assert "hour=5 of default.sums" in str(third.exit_reason)
    assert stage.mill.catalog.audit().findings == ()


def test_a_replay_does_not_bring_back_what_was_dropped_since(stage):
    """The rows were deleted on purpose, perhaps because a law demands it."""
    run = run_once(stage, level=2)
    with stage.transaction("sums") as tx:
        tx.fileset("default.sums").drop({"hour": 5})

    ran = replay(stage, run)

    assert ran.state == "FAILED"
    assert f"hour=5 of default.sums: {tx.run_id} has dropped it" in str(ran.exit_reason)


def test_a_replay_does_not_append_rows_twice(stage):
    """The rows of the run are there."""
    run = run_once(stage, level=2)

    ran = replay(stage, run)
    compared = replay(stage, run, sandbox=True, diff=True)

    assert "hour=3 of default.log: its rows would be there twice" in str(ran.exit_reason)
    assert compared.facts["comparison"]["same"] is True


def test_a_replay_names_what_is_not_kept(stage):
    """The files that were replaced have expired, and the inbox has deleted its file."""
    run = run_once(stage)
    move_on(stage)
    stage.empty_inboxes()
    stage.sql("UPDATE tx SET ended_at = 1 WHERE ended_at IS NOT NULL RETURNING 1")
    stage.sweep()

    with raises_code("missing_input", "file a.csv of default.raw .*partition hour=3 of default.lines as transaction"):
        stage.mill.runs.replay(run.run_id)
    with raises_code("nothing_to_replay", "is PENDING"):
        stage.mill.runs.replay(stage.mill.runs.start("shop.report").run_id)


def test_a_replay_that_failed_is_retried_as_a_replay(stage):
    """And a sandbox stays one, with the arguments of its run, of which the program of today lacks one."""
    run = run_once(stage)
    more = stage.mill.project.config.folder / "more"
    more.mkdir()
    failed = replay(stage, run, sandbox=True)
    more.rmdir()
    stage.declare(APP.replace('"level": 1', '"grade": 1'))

    made = stage.mill.runs.retry(failed.run_id)
    (ran,) = stage.work()

    assert (failed.state, ran.state, ran.exit_reason) == ("FAILED", "COMPLETED", "sandbox")
    assert ran.triggered_by["replay"]["of"] == run.run_id
    assert made.run_id == ran.run_id


def test_a_replay_whose_code_no_longer_loads_fails(stage):
    """For ever waiting, the replay would keep the slot of its program, and the bundle away from runs of today."""
    stage.declare(APP + 'if (HERE / "broken").exists(): raise OSError("no such library")')
    run = run_once(stage)
    move_on(stage)
    run_once(stage)
    (stage.mill.project.config.folder / "broken").touch()

    ran = replay(stage, run, sandbox=True)

    assert (ran.state, "no such library" in str(ran.exit_reason)) == ("FAILED", True)


@pytest.mark.parametrize(
    ("then", "now", "code", "why"),
    [
        (
            "reads=[lines, raw,",
            "reads=[lines,",
            "missing_input",
            "default.raw, which default.shop.report reads no more",
        ),
        ('"level": 1', '"level": "high"', "bad_argument", "'level' .* must be of type string, not 1"),
    ],
)
def test_a_program_that_was_declared_otherwise_since_is_not_replayed(stage, then, now, code, why):
    """The old code would silently get no files, or a text where the code counts with a number."""
    run = run_once(stage)
    stage.declare(APP.replace(then, now))

    with raises_code(code, why):
        stage.mill.runs.replay(run.run_id)


class Killed(BaseException):
    """The end of a process at a mark."""


def _kill():
    raise Killed


@pytest.mark.parametrize("mark", ["sandbox.before_discard", "sandbox.discarded"])
def test_a_sandbox_killed_at_its_end_ends_once(stage, mark):
    """Its end is one transaction: the next attempt compares again, or there is none."""
    run = run_once(stage)
    before = state_of(stage)
    made = stage.mill.runs.replay(run.run_id, sandbox=True)
    stage.at[mark] = _kill
    (taken,) = stage.take()
    with pytest.raises(Killed):
        stage.attempt(taken)
    if stage.find(made.run_id).state == "RUNNING":
        stage.end_attempt(taken, "lost", "the process is gone")
        stage.work()

    ran = stage.find(made.run_id)
    assert (ran.state, ran.exit_reason, ran.failures) == ("COMPLETED", "sandbox", 0)
    assert state_of(stage) == before


def test_a_sandbox_starts_no_schedule(stage):
    """Neither by its begin nor by its failure."""
    run = run_once(stage)
    states = '["STARTED", "COMPLETED", "FAILED"]'
    stage.declare(APP + f'app.schedule("after", follow, trigger=tm.RunEnded(report, {states}))')
    stage.play()
    (stage.mill.project.config.folder / "more").mkdir()

    ran = replay(stage, run, sandbox=True)

    assert (ran.state, stage.schedule()) == ("FAILED", [])


def test_a_sandbox_is_not_the_last_run_of_its_program(stage):
    """A schedule would wait for an hour after a run that has published nothing, and its work would lie."""
    run = run_once(stage)
    seldom = 'constraints=[tm.SinceLastRun("1h")]'
    stage.declare(f'{APP}app.schedule("seldom", report, trigger=tm.MessageOn("go"), {seldom})')
    stage.play()
    stage.pass_time("UPDATE run SET started_at = 1, ended_at = 2 WHERE ended_at IS NOT NULL")

    ran = replay(stage, run, sandbox=True)
    stage.mill.topics.publish("go", {})
    launched = stage.schedule()

    assert (ran.state, ran.exit_reason) == ("COMPLETED", "sandbox")
    assert launched == ["default.shop.seldom"]


def test_a_replay_keeps_both_versions_of_its_feed(stage):
    """The newer one would expire before the replay begins, if the older one alone were pinned."""
    run_once(stage)
    refresh(stage, "b\n")
    refresh(stage, "c\n")
    run = run_once(stage)
    refresh(stage, "d\n")
    refresh(stage, "e\n")

    made = stage.mill.runs.replay(run.run_id, sandbox=True)
    _, _, newer, _, older = stage.mill.snapshots.versions("users")

    assert made.run_id in str(older.kept_for)
    assert made.run_id in str(newer.kept_for)


REFRESHES = """
mirror = app.snapshot("mirror", key=["line"])


@app.python(writes=[mirror])
def refresh(run):
    run.output(mirror).replace({"": "a\\n"})
"""


def test_a_sandbox_of_a_refresh_is_not_measured_by_the_guards_of_today(tmp_path, catalog_url):
    """The snapshot has grown since, and the guard against lost rows would refuse what is not published at all."""
    with staged(tmp_path, catalog_url, EMPTY + REFRESHES) as stage:
        stage.mill.runs.start("shop.refresh")
        (run,) = stage.work()
        with stage.transaction("mirror") as tx:
            tx.snapshot("default.mirror").replace({"": "a\n" * 9})
        ran = replay(stage, run, sandbox=True, diff=True)

    assert ran.state == "COMPLETED", ran.exit_reason
    assert ran.facts["comparison"]["same"] is True


def test_the_command_line_prints_the_comparison(stage, monkeypatch, capsys):
    """And ends with 6 when rows differ."""
    run = run_once(stage)
    (stage.mill.project.config.folder / "more").write_text("one more\n")
    monkeypatch.chdir(stage.mill.project.config.folder)
    monkeypatch.setattr("tidemill.cli.run._FOLLOWED_EVERY", timedelta(milliseconds=20))

    def work():
        while not stage.work():
            pass

    worker = Thread(target=work)
    worker.start()
    with pytest.raises(SystemExit, match="6"):
        main(["run", "replay", run.run_id, "--sandbox", "--diff", "--json"])
    worker.join()
    printed = json.loads(capsys.readouterr().out)

    assert (printed["replay_of"], printed["same"]) == (run.run_id, False)


ROWS = """
from pathlib import Path

HERE = Path(__file__).parent
made = app.fileset("made", keys={"hour": "int"})


@app.spark(writes=[made])
def make(run, spark):
    tasks, least = (HERE / "how").read_text().split()
    rows = spark.sql(
        "SELECT id, map('a', id, 'b', 2) AS entries, timestamp_micros(id) AS at, int(id % 2) AS hour "
        f"FROM range({least}, 10) UNION ALL SELECT 3, map('a', 3), NULL, 1"
    )
    run.output(made).overwrite(rows.repartition(int(tasks), "id"))
"""


READS = """
seen = app.fileset("seen", keys={"hour": "int"})
out = app.fileset("out", keys={"hour": "int"})


@app.spark(writes=[seen])
def fill(run, spark):
    run.output(seen).append(spark.sql("SELECT 1 AS id, 1 AS hour"))


@app.spark(writes=[out])
def copy(run, spark):
    run.output(out).overwrite(run.read(seen).groupBy("hour").count())
"""


@pytest.mark.spark
def test_a_replay_of_a_replay_reads_what_the_run_saw(tmp_path, sqlite_catalog_url, spark):
    """The snapshot of the first replay has what came after the run."""

    def start(program):
        stage.mill.runs.start(f"shop.{program}")
        (run,) = stage.work()
        return run

    with staged(tmp_path, sqlite_catalog_url, EMPTY + READS, spark=spark) as stage:
        start("fill")
        run = start("copy")
        start("fill")
        again = replay(stage, run)
        ran = replay(stage, again, sandbox=True, diff=True)

    assert again.state == "COMPLETED", again.exit_reason
    assert ran.facts["comparison"]["same"] is True


GROWS = """
orders = app.inbox("orders", "landing", schema="id INT", bad_rows="reject", max_rejects="60%", settle="0s")
grown = app.fileset("grown", keys={"part": "int"}, schema="evolve")


@app.spark(reads=[orders], writes=[grown])
def load(run, spark):
    run.output(grown).overwrite(run.input(orders).read().selectExpr("*", "1 AS part"))


@app.spark(writes=[grown])
def grow(run, spark):
    run.output(grown).append(spark.sql("SELECT 1 AS id, 2 AS more, 2 AS part"))
"""


@pytest.mark.spark
@pytest.mark.long
def test_rejects_and_columns_that_came_later_are_no_difference(tmp_path, sqlite_catalog_url, spark):
    """Rejects have the run and the time of their discovery; the rows have no value in the new column."""

    def start(program):
        stage.mill.runs.start(f"shop.{program}")
        (run,) = stage.work()
        return run

    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.csv").write_text("id\n1\nx\n")
    with staged(tmp_path, sqlite_catalog_url, EMPTY + GROWS, spark=spark) as stage:
        stage.mill.inboxes.scan("orders")
        run = start("load")
        start("grow")
        again = replay(stage, run, diff=True)
        named = "SELECT dataset_id FROM dataset WHERE name = 'orders_rejects'"
        (rejects,) = stage.sql(f"SELECT count(*) FROM partition_change WHERE dataset_id = ({named})")

    assert run.state == "COMPLETED", run.exit_reason
    assert again.state == "COMPLETED", again.exit_reason
    assert again.facts["comparison"]["same"] is True, again.facts
    assert rejects == (1,)


@pytest.mark.spark
def test_rows_are_compared_and_not_files(tmp_path, sqlite_catalog_url, spark):
    """The rows of hour 1 come in other files, since Spark spreads them in another way; in hour 0 a row is missing."""
    how = tmp_path / "how"
    with staged(tmp_path, sqlite_catalog_url, EMPTY + ROWS, spark=spark) as stage:
        how.write_text("1 0")
        stage.mill.runs.start("shop.make")
        (run,) = stage.work()
        how.write_text("2 1")
        other = replay(stage, run, sandbox=True, diff=True)

    assert run.state == "COMPLETED", run.exit_reason
    assert other.facts["comparison"]["same"] is False, other.facts
    (made,) = other.facts["comparison"]["outputs"]
    assert (made["by_rows"], made["partitions"]) == (True, 2)
    assert [tuple(one.values()) for one in made["differing"]] == [("hour=0", "its rows differ", 1, 0)]
    (lost,) = made["only_published"]
    assert json.loads(lost)["entries"] == '{"a":0,"b":2}'
    assert json.loads(lost)["at"].startswith("1970-01-01 ")
