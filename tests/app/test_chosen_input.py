"""Runs with chosen input: they work on what they were given, and change no consumer and no inbox."""

from __future__ import annotations

import json

import pytest

from tests.errors import raises_code
from tests.stage import staged
from tidemill.cli.main import main

APP = """
from pathlib import Path
import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("shop")
lines = app.fileset("lines", keys={"day": "date", "hour": "int"})
sums = app.fileset("sums", keys={"hour": "int"})
raw = app.inbox("raw", "landing", format="csv", schema="id INT", settle="0s", after="delete")
mirror = app.snapshot("mirror")


def say(text):
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{text}\\n")


@app.python(reads=[lines, raw], writes=[sums], retries=1, backoff="0s")
def report(run):
    hours = [p["hour"] for p in run.input(lines).partitions]
    kinds = [d.kind.value for d in run.input(lines).deliveries]
    say(f"{hours} {kinds} {run.input(raw).files} {[len(d.files) for d in run.input(lines).deliveries]}")
    if (HERE / "fail").exists():
        raise ValueError("told to fail")
    run.publish("own", {"hours": hours})
    run.output(sums).overwrite({f"hour={hour}": "x\\n" for hour in hours})


@app.python(reads=[sums])
def follow(run):
    say(f"follow {[p['hour'] for p in run.input(sums).partitions]}")


@app.python(writes=[mirror])
def refresh(run):
    run.output(mirror).replace({"": "x\\n"})


app.schedule("report", report, trigger=tm.NewPartitions(lines))
app.schedule("follow", follow, trigger=tm.NewPartitions(sums))
app.schedule("after", follow, trigger=tm.RunEnded(report), arguments={})
app.schedule("own", follow, trigger=tm.MessageOn("own"))
app.schedule("refreshed", follow, trigger=tm.Refreshed(mirror))
"""
DAY = "day=2026-11-01"
PARTITIONS = {"lines": [{"day": "2026-11-01", "hour": 3}, f"{DAY} hour=5"]}


@pytest.fixture
def stage(tmp_path, catalog_url):
    """The project, whose scheduled runs have taken hours 3 to 5, and the file a.csv."""
    with staged(tmp_path, catalog_url, APP) as stage:
        (tmp_path / "landing").mkdir(exist_ok=True)
        (tmp_path / "landing" / "a.csv").write_text("id\n1\n")
        stage.mill.inboxes.scan("raw")
        stage.publish("lines", *(f"{DAY}/hour={hour}" for hour in (3, 4, 5)))
        stage.publish("lines", f"{DAY}/hour=3")
        stage.play()
        (tmp_path / "said.txt").unlink()
        yield stage


def state_of(stage):
    """Return all that consumers and inboxes have stored."""
    tables = ("consumer", "consumer_work", "inbox_file")
    return [sorted(map(repr, stage.sql(f"SELECT * FROM {table}"))) for table in tables]


def test_a_run_with_chosen_partitions_gets_these_whole_and_changes_no_consumer(stage):
    """The consumer has completed them long ago, and has something else to take by now."""
    stage.mill.schedules.suspend("shop.report")
    stage.publish("lines", f"{DAY}/hour=9")
    before = state_of(stage)

    made = stage.mill.acting_as("ann@desk").runs.start("shop.report", partitions=PARTITIONS, quiet=True)
    (ran,) = stage.work()
    after = state_of(stage)
    launched = stage.schedule()
    shown = stage.mill.runs.show(made.run_id)
    audit = stage.mill.catalog.audit()

    assert ran.state == "COMPLETED", ran.exit_reason
    assert stage.lines_of() == ["[3, 5] ['new', 'new'] [] [2, 1]"]
    assert after == before
    assert launched == []
    cause = {"asked": "by hand", "by": "ann@desk", "chosen": {"default.lines": 2}, "quiet": True}
    assert shown.triggered_by == cause
    assert sorted(one.item for one in shown.inputs) == [f"{DAY} hour=3"] * 2 + [f"{DAY} hour=5"]
    assert audit.findings == ()
    assert stage.sql("SELECT run_id FROM reader_pin") == []


def test_what_a_run_with_chosen_input_publishes_is_delivered_unless_it_is_quiet(stage):
    """Only the input is out of the ordinary."""
    stage.mill.runs.start("shop.report", partitions=PARTITIONS)
    stage.work()

    launched = [run.triggered_by["schedule"] for run in stage.play()]

    assert sorted(map(str, launched)) == ["default.shop.after", "default.shop.follow", "default.shop.own"]
    assert "follow [3, 5]" in stage.lines_of()


def test_a_quiet_refresh_starts_nothing_and_the_audit_knows_it(stage):
    """A version without its message would look like a lost one."""
    stage.mill.runs.start("shop.refresh", quiet=True)
    (ran,) = stage.work()

    assert (ran.state, stage.schedule()) == ("COMPLETED", [])
    assert stage.mill.catalog.audit().findings == ()


def test_chosen_files_stay_until_the_run_has_ended(stage):
    """The inbox deletes processed files: the janitor would delete what the run is to read."""
    landing = stage.mill.project.config.folder / "landing"
    before = state_of(stage)

    stage.mill.runs.start("shop.report", files={"raw": ["a.csv"]})
    stage.empty_inboxes()
    (ran,) = stage.work()
    after = state_of(stage)
    stage.empty_inboxes()
    with raises_code("missing_input", r"file a\.csv of default\.raw \(deleted\)"):
        stage.mill.runs.start("shop.report", files={"raw": ["a.csv"]})

    assert ran.state == "COMPLETED", ran.exit_reason
    assert stage.lines_of() == ["[] [] ['a.csv'] []"]
    assert after == before
    assert not (landing / "a.csv").exists()


def test_a_chosen_file_that_is_bad_fails_the_run_and_not_the_file(stage):
    """The inbox would give a bad file to a later run; a run with chosen input has none after it."""
    (stage.mill.project.config.folder / "landing" / "a.csv").write_text("other\n1\n")
    before = state_of(stage)

    made = stage.mill.runs.start("shop.report", files={"raw": ["a.csv"]})
    stage.work()
    (ran,) = stage.work()

    assert (ran.state, ran.run_id) == ("FAILED", made.run_id)
    assert "bad_chosen_file: file a.csv of default.raw" in str(ran.exit_reason)
    assert state_of(stage) == before


def test_each_attempt_and_a_retry_have_the_same_input(stage):
    """Though the partitions are overwritten, and old files expire, between the attempts."""
    stage.mill.schedules.suspend("shop.report")
    failing = stage.mill.project.config.folder / "fail"
    failing.touch()
    made = stage.mill.runs.start("shop.report", partitions=PARTITIONS)
    first = stage.work()[0].state
    stage.publish("lines", f"{DAY}/hour=3", f"{DAY}/hour=5")
    stage.commit("lines", {f"{DAY}/hour=3": "new\n"}, "overwrite")
    stage.sql("UPDATE tx SET ended_at = 1 WHERE ended_at IS NOT NULL RETURNING 1")
    stage.sweep()
    second = stage.work()[0].state
    failing.unlink()
    again = stage.mill.runs.retry(made.run_id)
    third = stage.work()[0].state
    stage.sweep()

    assert (first, second, third) == ("PENDING", "FAILED", "COMPLETED")
    assert len(set(stage.lines_of())) == 1
    assert len(stage.lines_of()) == 3
    assert stage.mill.runs.show(again.run_id).inputs == stage.mill.runs.show(made.run_id).inputs
    with raises_code("missing_input", "hour=3 of default.lines as transaction"):
        stage.mill.runs.retry(made.run_id)


def test_a_choice_that_is_not_there_names_all_that_is_missing(stage):
    """And makes no run."""
    before = len(stage.runs())

    with raises_code("missing_input", "hour=7 of default.lines, partition day=2026-11-02 hour=3"):
        stage.mill.runs.start("shop.report", partitions={"lines": [f"{DAY} hour=7", "day=2026-11-02/hour=3"]})
    with raises_code("missing_input", r"file b\.csv of default\.raw"):
        stage.mill.runs.start("shop.report", files={"raw": ["b.csv"]})
    with raises_code("bad_choice", "does not read default.sums"):
        stage.mill.runs.start("shop.report", partitions={"sums": ["hour=3"]})
    for nothing in ({"partitions": {}}, {"files": {}}, {"partitions": {"lines": []}}):
        with raises_code("bad_choice", "was given nothing"):
            stage.mill.runs.start("shop.report", **nothing)
    with raises_code("bad_choice", "kind inbox, not fileset"):
        stage.mill.runs.start("shop.report", partitions={"raw": ["a.csv"]})

    assert len(stage.runs()) == before


def test_a_data_set_that_is_named_twice_is_one(stage):
    """By its short and its qualified name."""
    named = {"lines": [f"{DAY} hour=4"], "default.lines": [f"{DAY} hour=4", f"{DAY} hour=5"]}
    made = stage.mill.runs.start("shop.report", partitions=named)

    assert sorted(one.item for one in stage.mill.runs.show(made.run_id).inputs) == [f"{DAY} hour=4", f"{DAY} hour=5"]


def test_the_command_line_chooses_partitions_and_files(stage, monkeypatch, capsys):
    """As `dataset partitions` and `inbox files` write them."""
    monkeypatch.chdir(stage.mill.project.config.folder)

    words = ["--partitions", f"lines:{DAY} hour=3", "--partitions", f"lines:{DAY}/hour=4", "--files", "raw:a.csv"]
    with pytest.raises(SystemExit, match="0"):
        main(["run", "start", "shop.report", *words, "--quiet", "--json"])
    made = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "start", "shop.report", "--partitions", "lines"])

    said = stage.mill.runs.show(made["run_id"]).triggered_by
    assert said["chosen"] == {"default.lines": 2, "default.raw": 1}


def test_a_killed_run_with_chosen_input_keeps_no_pin(stage):
    """Its files would stay for ever."""
    made = stage.mill.runs.start("shop.report", partitions=PARTITIONS)

    stage.mill.runs.kill(made.run_id)

    assert stage.sql("SELECT run_id FROM reader_pin") == []
