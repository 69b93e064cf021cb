"""Backfills: runs over parts of the past, some at a time, beside the runs of schedules."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import staged
from tests.yardstick import patience

APP = """
import tidemill as tm
from pathlib import Path

app = tm.App("shop")
HERE = Path(__file__).parent


@app.python(arguments={"day": str})
def daily(run):
    if (HERE / f"broken {run.logical_time:%d}").exists():
        raise ValueError("broken")
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{run.arguments['day'][:10]}\\n")


app.schedule("nightly", daily, trigger=tm.Cron("0 3 * * *"), arguments={"day": tm.From("logical_time")},
             constraints=[tm.Concurrency(1), tm.SinceLastRun("1h"), tm.Rate(1, per="1d")])
"""
DATA = """
import tidemill as tm
from pathlib import Path

app = tm.App("shop")
HERE = Path(__file__).parent
days = app.fileset("days", keys={"day": "int"}, format="text")
sums = app.fileset("sums", keys={"day": "int"}, format="text")


@app.python(reads=[days], writes=[sums], arguments={"rate": 1})
def daily(run):
    took = [partition["day"] for partition in run.input(days).partitions]
    if (HERE / "broken").exists():
        raise ValueError("broken")
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{took} {run.arguments['rate']}\\n")
    run.output(sums).overwrite({f"day={day}": "sum\\n" for day in took})


@app.python(reads=[sums])
def follow(run):
    with (HERE / "followed.txt").open("a") as said:
        said.write(f"{[partition['day'] for partition in run.input(sums).partitions]}\\n")


app.schedule("nightly", daily, trigger=tm.Cron("0 3 * * *"))
app.schedule("on_days", daily, trigger=tm.NewPartitions(days), constraints=[tm.Concurrency(1)])
app.schedule("on_sums", follow, trigger=tm.NewPartitions(sums))
app.schedule("after", follow, trigger=tm.RunEnded(daily))
"""
FLOW = """
import tidemill as tm

app = tm.App("shop")


@app.python(arguments={"day": str})
def one(run):
    pass


flow = app.workflow("flow", [tm.Node(one)], arguments={"day": str})
app.schedule("nightly", flow, trigger=tm.Cron("0 3 * * *"), arguments={"day": tm.From("logical_time")})
"""
JANUARY = {"by": "times", "schedule": "shop.nightly", "since": "2026-01-01", "until": "2026-01-11"}


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Deploy a program that works for logical times."""
    with staged(tmp_path, catalog_url, APP, ManualClock()) as opened:
        yield opened


def finish(stage, backfill_id, most=30):
    """Schedule and work until a backfill has nothing under way; return it."""
    for _ in range(most):
        stage.schedule()
        if not stage.work():
            return stage.mill.backfills.show(backfill_id)
    raise AssertionError


def now(stage):
    """Return the time of the catalog."""
    ((millis,),) = stage.sql("SELECT tidemill_now() FROM clock")
    return datetime.fromtimestamp(millis / 1000, UTC)


def counts(backfill):
    """Return the state of a backfill with the numbers of its items."""
    return backfill.state, backfill.waiting, backfill.running, backfill.done, backfill.failed, backfill.dropped


def test_a_backfill_by_times_makes_a_run_for_each_time(stage):
    """A program that runs daily is brought up to its past."""
    planned = stage.mill.backfills.plan("shop.daily", **JANUARY)
    started = stage.mill.acting_as("ann@desk").backfills.start("shop.daily", **JANUARY, concurrency=3)
    ended = finish(stage, started.backfill_id)

    assert (planned.items, planned.named, planned.first[0].item) == (10, {"missing": 10}, "2026-01-01T03:00:00Z")
    assert counts(started) == ("RUNNING", 7, 3, 0, 0, 0)
    assert counts(ended) == ("COMPLETED", 0, 0, 10, 0, 0)
    assert stage.lines_of() == [f"2026-01-{day:02}" for day in range(1, 11)]
    assert {(run.priority, run.triggered_by["by"]) for run in stage.runs()} == {(-1, "ann@desk")}
    assert {one.state for one in stage.mill.backfills.items(ended.backfill_id)} == {"DONE"}


def test_an_argument_of_which_a_backfill_has_no_value_is_given_by_hand(stage):
    """The schedule takes the argument from a message, and the past has none."""
    trigger = tm.AnyOf(tm.Cron("0 3 * * *"), tm.MessageOn("go"))
    stage.mill.schedules.create("shop.both", "shop.daily", trigger=trigger, arguments={"day": tm.From("message.day")})
    both = {**JANUARY, "schedule": "shop.both"}
    planned = stage.mill.backfills.plan("shop.daily", **both)
    with raises_code("missing_source", "'day' has no value: a backfill by times has a logical time alone"):
        stage.mill.backfills.start("shop.daily", **both)
    started = stage.mill.backfills.start("shop.daily", {"day": "by hand"}, **both)
    finish(stage, started.backfill_id)

    assert planned.items == 10
    assert stage.lines_of() == ["by hand"] * 10


def test_a_default_stands_for_the_message_that_the_past_lacks(stage):
    """The schedule takes the argument from a message, or else a default."""
    trigger = tm.AnyOf(tm.Cron("0 3 * * *"), tm.MessageOn("go"))
    day = tm.From("message.day", default="by default")
    stage.mill.schedules.create("shop.both", "shop.daily", trigger=trigger, arguments={"day": day})
    started = stage.mill.backfills.start("shop.daily", **{**JANUARY, "schedule": "shop.both", "until": "2026-01-02"})
    finish(stage, started.backfill_id)

    assert stage.lines_of() == ["by default"]


def test_what_is_done_is_no_part_of_the_next_backfill(stage):
    """Missing and failed items are the default; all are taken only when asked for."""
    stage.mill.runs.start("shop.daily", {"day": "2026-01-01"}, logical_time="2026-01-01T03:00")
    (stage.mill.project.config.folder / "broken 02").touch()
    stage.mill.runs.start("shop.daily", {"day": "2026-01-02"}, logical_time="2026-01-02T03:00")
    stage.work()
    stage.mill.runs.start("shop.daily", {"day": "2026-01-03"}, logical_time="2026-01-03T03:00")

    def items(select):
        return stage.mill.backfills.plan("shop.daily", **JANUARY, select=select).items

    assert stage.mill.backfills.plan("shop.daily", **JANUARY).named == {
        "missing": 7, "failed": 1, "done": 1, "running": 1
    }  # fmt: skip
    assert [items(select) for select in ("unfinished", "missing", "failed", "all")] == [8, 7, 1, 10]


def test_times_that_wait_for_the_schedule_are_no_items(stage):
    """The scheduler was down for three days, and makes their runs when it comes back."""
    stage.world.clock.move("3d")
    day = now(stage)
    choice = {**JANUARY, "since": day - timedelta(days=5), "until": day}
    before = stage.mill.backfills.plan("shop.daily", **choice).named
    stage.mill.runs.start("shop.daily", {"day": "busy"})
    stage.schedule()
    queued = stage.mill.backfills.plan("shop.daily", **choice).named

    assert (before, queued) == ({"missing": 2, "waiting": 3}, {"missing": 2, "waiting": 3})


def test_times_that_the_schedule_skips_are_items(stage):
    """The scheduler was down for three days, and leaves out what is older than the grace of the schedule."""
    day = {"day": tm.From("logical_time")}
    skips = {"trigger": tm.Cron("0 3 * * *"), "misfire": "skip", "grace": "1d"}
    stage.mill.schedules.create("shop.skips", "shop.daily", **skips, arguments=day)
    stage.world.clock.move("3d")
    choice = {**JANUARY, "schedule": "shop.skips", "since": now(stage) - timedelta(days=3), "until": now(stage)}

    assert stage.mill.backfills.plan("shop.daily", **choice).named == {"missing": 2, "waiting": 1}


def test_a_run_that_was_made_before_its_time_counts(stage):
    """A person starts the run of tonight in the evening."""
    tonight = now(stage).replace(hour=3, minute=0, second=0, microsecond=0) + timedelta(days=1)
    stage.mill.runs.start("shop.daily", {"day": "tonight"}, logical_time=tonight)
    stage.work()
    stage.world.clock.move("2d")
    choice = {**JANUARY, "since": tonight, "until": tonight + timedelta(hours=1)}

    assert stage.mill.backfills.plan("shop.daily", **choice).named == {"done": 1}


def test_times_are_not_checked_again_before_their_runs(stage):
    """A run by hand for one of the days does not change what the backfill does."""
    two = {**JANUARY, "until": "2026-01-03"}
    backfill_id = stage.mill.backfills.start("shop.daily", **two).backfill_id
    stage.mill.runs.start("shop.daily", {"day": "by hand"}, logical_time="2026-01-02T03:00Z")
    stage.work()
    ended = finish(stage, backfill_id)

    assert counts(ended) == ("COMPLETED", 0, 0, 2, 0, 0)
    assert sorted(stage.lines_of()) == ["2026-01-01", "2026-01-02", "by hand"]


def test_a_paused_backfill_makes_no_more_runs_until_it_is_resumed(stage):
    """The machine is needed for something else for a while."""
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY, concurrency=2).backfill_id
    paused = stage.mill.backfills.pause(backfill_id)
    again = stage.mill.backfills.pause(backfill_id)
    waiting = finish(stage, backfill_id)
    resumed = stage.mill.backfills.resume(backfill_id)
    ended = finish(stage, backfill_id)

    assert [(one.state, one.changed) for one in (paused, again, resumed)] == [
        ("PAUSED", True), ("PAUSED", False), ("RUNNING", True)
    ]  # fmt: skip
    assert counts(waiting) == ("PAUSED", 8, 0, 2, 0, 0)
    assert counts(ended) == ("COMPLETED", 0, 0, 10, 0, 0)
    with raises_code("backfill_over"):
        stage.mill.backfills.pause(backfill_id)


@pytest.mark.parametrize("kill", [True, False])
def test_a_cancelled_backfill_drops_what_waits(stage, kill):
    """A wrong choice ends at once, and what is under way ends as usual, or is killed."""
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY, concurrency=2).backfill_id
    cancelled = stage.mill.backfills.cancel(backfill_id, kill=kill)
    again = stage.mill.backfills.cancel(backfill_id, kill=kill)
    ended = finish(stage, backfill_id)

    assert (cancelled.state, cancelled.killed, again.changed) == ("CANCELLED", 2 if kill else 0, False)
    assert counts(ended) == ("CANCELLED", 0, 0, *((0, 2) if kill else (2, 0)), 8)
    for change in (stage.mill.backfills.resume, stage.mill.backfills.retry):
        with raises_code("backfill_over"):
            change(backfill_id)


def test_failed_items_are_shown_and_tried_again(stage):
    """A bad day stops no other day."""
    broken = stage.mill.project.config.folder / "broken 04"
    broken.touch()
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY, concurrency=5).backfill_id
    failed = finish(stage, backfill_id)
    (shown,) = stage.mill.backfills.items(backfill_id, state="failed")
    broken.unlink()
    with raises_code("retried_by_backfill", backfill_id):
        stage.mill.runs.retry(shown.run_id)
    (why,) = stage.mill.why(shown.run_id).because
    assert f"`tidemill backfill retry {backfill_id}` tries its item again" in why.unblock
    stage.mill.backfills.retry(backfill_id)
    tried = list(stage.mill.backfills.items(backfill_id))[3]
    ended = finish(stage, backfill_id)

    assert (tried.state, tried.why) == ("RUNNING", "")
    assert counts(failed) == ("COMPLETED", 0, 0, 9, 1, 0)
    assert (shown.no, shown.item, shown.why) == (3, "2026-01-04T03:00:00Z", "failed: ValueError: broken")
    assert counts(ended) == ("COMPLETED", 0, 0, 10, 0, 0)
    with raises_code("nothing_failed"):
        stage.mill.backfills.retry(backfill_id)


def test_the_schedule_goes_on_beside_a_backfill(stage):
    """Its runs count for no constraint of the schedule: neither while they run, nor by their ends or starts."""
    stage.mill.backfills.start("shop.daily", **JANUARY, concurrency=2)
    stage.work()
    stage.world.clock.move("1d")

    assert stage.schedule() == ["default.shop.nightly"]
    assert [run.priority for run in stage.take()] == [0, -1, -1]


def test_a_backfill_of_a_workflow_takes_no_slot_either(stage):
    """Its nodes do the work."""
    stage.declare(FLOW)
    started = stage.mill.backfills.start("shop.flow", **JANUARY, concurrency=2)
    slots = stage.sql("SELECT * FROM slot")
    ended = finish(stage, started.backfill_id)

    assert slots == []
    assert counts(ended) == ("COMPLETED", 0, 0, 10, 0, 0)
    assert stage.mill.catalog.audit().findings == ()


def test_a_backfill_of_a_retired_program_pauses_by_itself(stage):
    """The app was deployed without the program."""
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY).backfill_id
    (run,) = stage.take()
    stage.declare("")
    stage.end_attempt(run, "killed", "by a test")
    stage.schedule()
    paused = stage.mill.backfills.show(backfill_id)

    assert counts(paused) == ("PAUSED", 9, 0, 0, 1, 0)
    assert "retired" in paused.reason


def test_a_backfill_ends_though_its_program_is_retired(stage):
    """Its last run was under way at the deployment."""
    backfill_id = stage.mill.backfills.start("shop.daily", **{**JANUARY, "until": "2026-01-02"}).backfill_id
    (run,) = stage.take()
    stage.declare("")
    stage.end_attempt(run, "killed", "by a test")
    stage.schedule()

    assert stage.mill.backfills.show(backfill_id).state == "COMPLETED"


@pytest.mark.parametrize("ending", ["done", "failed"])
def test_a_paused_backfill_ends_with_its_last_run(stage, ending):
    """A script waits for its end. Failed items are tried again after its resumption, so it does not end before."""
    if ending == "failed":
        (stage.mill.project.config.folder / "broken 01").touch()
    backfill_id = stage.mill.backfills.start("shop.daily", **{**JANUARY, "until": "2026-01-02"}).backfill_id
    stage.mill.backfills.pause(backfill_id)
    ended = finish(stage, backfill_id)

    assert ended.state == ("COMPLETED" if ending == "done" else "PAUSED")
    assert (ended.ended_at is None) == (ending == "failed")


def test_a_failed_item_that_another_backfill_has_is_not_tried_again(stage):
    """A person starts a backfill for what has failed, and another person tries the first backfill again."""
    broken = [stage.mill.project.config.folder / f"broken {day}" for day in ("01", "02")]
    for one in broken:
        one.touch()
    first = stage.mill.backfills.start("shop.daily", **JANUARY, concurrency=10).backfill_id
    finish(stage, first)
    for one in broken:
        one.unlink()
    second = stage.mill.backfills.start("shop.daily", **{**JANUARY, "until": "2026-01-02"}).backfill_id
    retried = stage.mill.backfills.retry(first)
    (left,) = stage.mill.backfills.items(first, state="failed")
    ended = [finish(stage, one) for one in (first, second)]

    assert (retried.state, left.item) == ("RUNNING", "2026-01-01T03:00:00Z")
    assert left.why == "another backfill of the program has the item; `tidemill backfill retry` looks again"
    assert [counts(one) for one in ended] == [("COMPLETED", 0, 0, 9, 1, 0), ("COMPLETED", 0, 0, 1, 0, 0)]
    assert sorted(stage.lines_of()) == [f"2026-01-{day:02}" for day in range(1, 11)]


def test_a_cancellation_counts_the_runs_that_it_kills(stage):
    """A run that had ended by itself is not killed, though no scheduler has seen its end."""
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY, concurrency=2).backfill_id
    ended, _ = stage.take()
    stage.attempt(ended)

    assert stage.mill.backfills.cancel(backfill_id, kill=True).killed == 1


def test_the_retry_of_a_paused_backfill_waits_for_its_resumption(stage):
    """The machine is still needed for something else."""
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY).backfill_id
    stage.mill.backfills.pause(backfill_id)
    (run,) = stage.take()
    stage.end_attempt(run, "killed", "by a test")
    stage.schedule()
    retried = stage.mill.backfills.retry(backfill_id)

    assert (retried.state, counts(stage.mill.backfills.show(backfill_id))) == ("PAUSED", ("PAUSED", 10, 0, 0, 0, 0))
    assert {one.why for one in stage.mill.backfills.items(backfill_id)} == {""}


def test_a_scheduler_advances_a_backfill_once_a_step(stage):
    """Runs that end at once must not keep it from its schedules."""
    backfill_id = stage.mill.backfills.start("shop.daily", **JANUARY).backfill_id
    stage.work()
    stage.at["backfill.advanced"] = stage.work
    stage.scheduler().step()

    assert counts(stage.mill.backfills.show(backfill_id)) == ("RUNNING", 8, 1, 1, 0, 0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"by": "weeks"}, "by"),
        ({**JANUARY, "select": "some"}, "select"),
        ({**JANUARY, "where": ["day=1"]}, "where goes with by=partitions or by=versions"),
        ({**JANUARY, "schedule": None}, "name the schedule"),
        ({**JANUARY, "since": None}, "give `since` and `until`"),
        ({**JANUARY, "concurrency": 0}, "from 1 to 100"),
        (
            {**JANUARY, "since": "2026-04-01", "until": "2026-05-01"},
            r"select='unfinished' takes none of the named items \(none\)",
        ),
        ({**JANUARY, "select": "failed"}, r"select='failed' takes none of the named items \(10 missing\)"),
        ({**JANUARY, "since": "1900-01-01"}, "times of schedules begin with 1970"),
        ({"by": "runs"}, "name the runs"),
        ({}, "takes partitions of no file set; choose its items by times or runs"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_reason(stage, wrong, why):
    """A backfill that does something else than meant costs hours."""
    with raises_code("bad_backfill", why):
        stage.mill.backfills.start("shop.daily", **wrong)


@pytest.mark.parametrize("day", [{"a": 1}, {"from": "trigger.day"}])
def test_only_the_logical_time_is_an_argument_of_each_item(stage, day):
    """Another mapping is no text."""
    with raises_code("bad_argument", "day"):
        stage.mill.backfills.start("shop.daily", {"day": day}, **JANUARY)


def test_a_backfill_has_a_largest_size(stage, monkeypatch):
    """Its start is one transaction."""
    monkeypatch.setattr("tidemill.mill.backfill_plan.MOST_ITEMS", 9)
    with raises_code("bad_backfill", "more than 9 items"):
        stage.mill.backfills.start("shop.daily", **JANUARY)
    with raises_code("bad_backfill", "more than 9 items"):
        stage.mill.backfills.plan("shop.daily", **JANUARY, select="failed")


@pytest.fixture
def past(catalog_url, tmp_path):
    """Deploy a program that works for partitions, of which it took none of the first six."""
    with staged(tmp_path, catalog_url, DATA, ManualClock()) as opened:
        opened.publish("days", *(f"day={day}" for day in range(6)))
        opened.mill.consumers.reset("days", "default.shop.daily", "now")
        opened.schedule()
        opened.play()
        for said in ("said.txt", "followed.txt"):
            (tmp_path / said).unlink(missing_ok=True)
        yield opened


@pytest.mark.parametrize("quiet", [True, False])
def test_a_backfill_by_partitions_takes_those_that_no_run_took(past, quiet):
    """Downstream gets what it publishes, or nothing under `quiet`; the daily runs go on beside it."""
    started = past.mill.backfills.start("shop.daily", {"rate": 7}, where=["day<5"], concurrency=2, quiet=quiet)
    (run, _) = past.take()
    past.publish("days", "day=6")
    daily = past.schedule()
    past.work()
    past.attempt(run)
    past.play()
    ended = past.mill.backfills.show(started.backfill_id)

    assert daily == ["default.shop.on_days"]
    assert counts(ended) == ("RUNNING", 0, 1, 4, 0, 0)
    assert sorted(past.lines_of()) == ["[0] 7", "[2] 7", "[3] 7", "[4] 7", "[6] 1"]
    followed = {day for line in past.lines_of("followed.txt") for day in numbers(line)}
    assert followed == ({6} if quiet else {0, 2, 3, 4, 6})
    assert past.mill.catalog.audit().findings == ()


def test_failed_partitions_are_tried_again(past):
    """Their runs get their input in the transaction of the retry, behind the items that wait again."""
    broken = past.mill.project.config.folder / "broken"
    broken.touch()
    started = past.mill.backfills.start("shop.daily", where=["day<3"], concurrency=3)
    failed = finish(past, started.backfill_id)
    broken.unlink()
    past.mill.backfills.retry(started.backfill_id)
    ended = finish(past, started.backfill_id)

    assert counts(failed) == ("COMPLETED", 0, 0, 0, failed.items, 0)
    assert counts(ended) == ("COMPLETED", 0, 0, failed.items, 0, 0)


def test_a_backfill_by_times_leaves_what_waits_to_the_schedule(past):
    """Its first run would take all that waits today, and a quiet one would hide the results from downstream."""
    past.publish("days", "day=6")

    with raises_code("takes_work", "default.days"):
        past.mill.backfills.start("shop.daily", **JANUARY)
    with raises_code("takes_work", "default.days"):
        past.mill.runs.start("shop.daily", quiet=True)


def test_runs_and_consumer_say_whether_a_partition_needs_a_run(past):
    """A partition that waits for the schedule is no part of a backfill: it would be processed twice."""
    past.publish("days", "day=6")
    past.play()
    broken = past.mill.project.config.folder / "broken"
    broken.touch()
    past.mill.runs.start("shop.daily", partitions={"days": ["day=1"]})
    past.work()
    broken.unlink()
    past.mill.runs.start("shop.daily", partitions={"days": ["day=2"]})
    past.publish("days", "day=7")

    planned = past.mill.backfills.plan("shop.daily", select="all")

    assert [(one.item, one.need) for one in planned.first] == [
        ("day=0", "missing"), ("day=1", "failed"), ("day=2", "running"), ("day=3", "missing"), ("day=4", "missing"),
        ("day=5", "missing"), ("day=6", "done"), ("day=7", "waiting"),
    ]  # fmt: skip
    assert (planned.items, planned.bytes, planned.rows) == (8, 8 * len("day=0\n"), 8)
    assert past.mill.backfills.plan("shop.daily").items == 5


def replay(stage, run_id, *, sandbox):
    """Replay a run a minute later, and return the state in which the replay has ended."""
    stage.world.clock.move("1m")
    replay_id = stage.mill.runs.replay(run_id, sandbox=sandbox).run_id
    stage.work()
    return stage.find(replay_id).state


def test_a_replay_does_not_change_what_a_partition_needs(past):
    """A comparison of an earlier run publishes nothing, whatever its end; a refused one leaves the published rows."""
    done = past.mill.runs.start("shop.daily", partitions={"days": ["day=1"]}).run_id
    past.work()
    good = past.mill.runs.start("shop.daily", partitions={"days": ["day=2"]}).run_id
    past.work()
    broken = past.mill.project.config.folder / "broken"
    broken.touch()
    past.world.clock.move("1m")
    past.mill.runs.start("shop.daily", partitions={"days": ["day=2"]})
    past.work()
    replayed = [replay(past, done, sandbox=sandbox) for sandbox in (True, False)]
    broken.unlink()
    replayed.append(replay(past, good, sandbox=True))
    planned = past.mill.backfills.plan("shop.daily", where=["day>=1", "day<3"], select="all")

    assert replayed == ["FAILED", "FAILED", "COMPLETED"]
    assert [(one.item, one.need) for one in planned.first] == [("day=1", "done"), ("day=2", "failed")]


def test_a_replay_does_not_change_what_a_time_needs(stage):
    """As for partitions."""
    done = stage.mill.runs.start("shop.daily", {"day": "2026-01-01"}, logical_time="2026-01-01T03:00").run_id
    stage.work()
    (stage.mill.project.config.folder / "broken 01").touch()
    replayed = replay(stage, done, sandbox=True)

    assert replayed == "FAILED"
    assert stage.mill.backfills.plan("shop.daily", **JANUARY).named == {"missing": 9, "done": 1}


def test_the_current_content_of_a_partition_says_whether_it_needs_a_run(past):
    """A run that took an earlier content, or a part of the content, has not processed what is there now."""
    past.publish("days", "day=6", "day=7", "day=8")
    past.play()
    past.publish("days", "day=6", op="overwrite")
    past.play()
    (changed,) = past.mill.datasets.partitions("days", where=["day=6"])
    past.sql(f"UPDATE consumer_work SET state = 'discarded' WHERE write_pointer = {changed.write_pointer} RETURNING 1")
    past.sql(f"DELETE FROM run_input WHERE write_pointer = {changed.write_pointer} RETURNING 1")
    past.commit("days", {"day=7": "quiet\n"}, "overwrite", quiet=True)
    past.publish("days", "day=9")
    past.commit("days", {"day=9": "quiet\n"}, quiet=True)

    planned = past.mill.backfills.plan("shop.daily", where=["day>=6"], select="all")

    assert [(one.item, one.need) for one in planned.first] == [
        ("day=6", "failed"), ("day=7", "missing"), ("day=8", "done"), ("day=9", "waiting")
    ]  # fmt: skip


def test_partitions_that_the_program_does_not_want_are_no_items(past):
    """The filter of its input holds for backfills too."""
    past.declare(DATA.replace("reads=[days]", 'reads=[tm.Reads(days, where={"day": tm.Range(3)})]'))

    assert [one.item for one in past.mill.backfills.plan("shop.daily").first] == ["day=3", "day=4", "day=5"]


def test_a_backfill_that_is_started_twice_takes_nothing_twice(past):
    """The reply to the first start was lost."""
    past.mill.backfills.start("shop.daily")

    with raises_code("bad_backfill", "1 running, 5 waiting"):
        past.mill.backfills.start("shop.daily")


def test_what_was_processed_while_a_backfill_was_paused_is_not_processed_again(past):
    """The schedule went on for a day."""
    backfill_id = past.mill.backfills.start("shop.daily").backfill_id
    past.mill.backfills.pause(backfill_id)
    past.publish("days", "day=2", op="overwrite")
    past.play()
    past.publish("days", "day=3", op="overwrite")
    past.mill.backfills.resume(backfill_id)
    past.work()
    past.play()
    items = past.mill.backfills.items(backfill_id)

    assert [(one.item, one.state) for one in items if one.run_id is None] == [
        ("day=2", "DROPPED"), ("day=3", "FAILED")
    ]  # fmt: skip
    assert sorted(past.lines_of()) == [f"[{day}] 1" for day in range(6)]


def test_an_advance_looks_at_a_bounded_number_of_items(past, monkeypatch):
    """Other commits wait meanwhile. A scheduler is woken, and looks at the rest at once: no time passes."""
    monkeypatch.setattr("tidemill.schedule.backfills._MOST_LOOKED_AT", 4)
    backfill_id = past.mill.backfills.start("shop.daily").backfill_id
    past.mill.backfills.pause(backfill_id)
    past.work()
    past.mill.datasets.drop("days", ["day=0"])
    past.publish("days", *(f"day={day}" for day in range(1, 6)), op="overwrite")
    past.play()
    waiter = past.mill.project.catalog.waiter(past.scheduler().AWAITED)
    while waiter.wait(timedelta(milliseconds=50)):
        pass
    past.mill.backfills.resume(backfill_id)
    woken = waiter.wait(timedelta(seconds=patience(10)))
    waiter.close()
    resumed = counts(past.mill.backfills.show(backfill_id))
    past.schedule()

    assert woken
    assert resumed == ("RUNNING", 1, 0, 1, 0, 4)
    assert counts(past.mill.backfills.show(backfill_id)) == ("COMPLETED", 0, 0, 1, 0, 5)


@pytest.mark.parametrize("of_backfill", [True, False])
def test_the_end_of_a_run_wakes_schedulers_if_a_backfill_waits_for_the_end(past, of_backfill):
    """The end of each run had the scheduler of each node look."""
    if of_backfill:
        past.mill.backfills.start("shop.daily")
        past.schedule()
    else:
        past.mill.runs.start("shop.daily")
    (run,) = past.take(most=1)

    wakes = past.complete(run)

    assert ("job" in wakes) is of_backfill


def test_a_backfill_whose_items_the_schedule_takes_pauses_by_itself(past):
    """The consumer was reset: the next scheduled run takes all that waits for the backfill."""
    past.publish("days", *(f"day={day}" for day in range(10, 40)))
    past.mill.consumers.reset("days", "default.shop.daily", "now")
    backfill_id = past.mill.backfills.start("shop.daily").backfill_id
    past.mill.backfills.pause(backfill_id)
    past.mill.consumers.reset("days", "default.shop.daily", "beginning")
    past.mill.backfills.resume(backfill_id)
    past.work()
    past.schedule()
    paused = past.mill.backfills.show(backfill_id)

    assert counts(paused) == ("PAUSED", 15, 0, 1, 20, 0)
    assert "no run could be made of the last 20 items: another run of the program has taken" in paused.reason


def test_an_item_that_its_program_does_not_read_any_more_fails(past):
    """A deployment changed the inputs during the backfill: nothing was processed, and all items were done."""
    backfill_id = past.mill.backfills.start("shop.daily", where=["day=1"]).backfill_id
    past.declare(DATA.replace("reads=[days]", "reads=[other]").replace("run.input(days)", "run.input(other)").replace(
        "sums =", 'other = app.fileset("other", keys={"day": "int"}, format="text")\nsums =', 1))  # fmt: skip
    ended = finish(past, backfill_id)
    (failed,) = past.mill.backfills.items(backfill_id)

    assert counts(ended) == ("COMPLETED", 0, 0, 0, 1, 0)
    assert "input_not_read: the run was given input of default.days" in failed.why


def test_a_backfill_by_versions_takes_what_transactions_have_changed(past):
    """A source was wrong for an afternoon, and was corrected: all that came meanwhile is processed again."""
    past.publish("days", "day=3", "day=8", op="overwrite")
    (wrong,) = {one.write_pointer for one in past.mill.datasets.partitions("days", where=["day=8"])}
    past.play()
    choice = {"by": "versions", "from_version": wrong, "to_version": wrong, "select": "all"}
    started = past.mill.backfills.start("shop.daily", **choice)
    finish(past, started.backfill_id)

    assert [one.item for one in past.mill.backfills.items(started.backfill_id)] == ["day=3", "day=8"]
    assert past.lines_of()[-2:] == ["[3] 1", "[8] 1"]


def test_a_backfill_by_runs_takes_their_inputs_again(past):
    """A bug of yesterday is corrected: its runs are repeated on what they took, with their arguments."""
    past.publish("days", "day=6", "day=7")
    (run,) = (one for one in past.play() if one.arguments)
    past.publish("days", "day=6", op="overwrite")
    past.play()
    since, until = run.created_at - timedelta(days=1), run.created_at + timedelta(days=1)
    planned = past.mill.backfills.plan("shop.daily", by="runs", since=since, until=until)
    started = past.mill.backfills.start("shop.daily", {"rate": 2}, by="runs", runs=[run.run_id])
    ended = finish(past, started.backfill_id)

    assert planned.items == 2
    assert counts(ended) == ("COMPLETED", 0, 0, 1, 0, 0)
    assert past.lines_of()[-1] == "[6, 7] 2"


def test_a_backfill_of_a_period_repeats_each_run_once(past):
    """Repetitions and replays of a run have its input: repeated too, they would publish its rows again."""
    past.publish("days", "day=6")
    (run,) = (one for one in past.play() if one.arguments)
    since, until = run.created_at - timedelta(days=1), run.created_at + timedelta(days=1)
    period = {"by": "runs", "since": since, "until": until}
    empty = past.mill.runs.start("shop.daily").run_id
    (past.mill.project.config.folder / "broken").touch()
    past.mill.runs.start("shop.daily", partitions={"days": ["day=1"]})
    past.play()
    (past.mill.project.config.folder / "broken").unlink()
    replay(past, run.run_id, sandbox=True)
    first = past.mill.backfills.start("shop.daily", {"rate": 2}, **period, quiet=True).backfill_id
    finish(past, first)
    second = past.mill.backfills.start("shop.daily", {"rate": 3}, **period, quiet=True).backfill_id
    finish(past, second)
    named = past.mill.backfills.plan("shop.daily", by="runs", runs=[empty, run.run_id])

    assert [[one.item for one in past.mill.backfills.items(each)] for each in (first, second)] == [[run.run_id]] * 2
    assert [line for line in past.lines_of() if line.startswith("[6]")] == ["[6] 1", "[6] 1", "[6] 2", "[6] 3"]
    assert named.items == 2


def test_an_item_that_is_gone_fails_by_itself(past):
    """A partition was dropped while the backfill was under way."""
    started = past.mill.backfills.start("shop.daily")
    past.mill.datasets.drop("days", ["day=2"])
    ended = finish(past, started.backfill_id)
    (failed,) = past.mill.backfills.items(started.backfill_id, state="failed")

    assert counts(ended) == ("COMPLETED", 0, 0, 5, 1, 0)
    assert (failed.item, failed.run_id) == ("day=2", None)
    assert "partition day=2" in failed.why


def test_a_backfill_of_which_no_item_can_be_started_pauses_by_itself(past):
    """A backfill does not make fifty thousand useless look-ups."""
    past.publish("days", *(f"day={day}" for day in range(10, 40)))
    started = past.mill.backfills.start("shop.daily", select="all")
    past.mill.datasets.drop("days", [f"day={day}" for day in range(1, 40) if day not in (6, 7, 8, 9)])
    paused = finish(past, started.backfill_id)

    assert counts(paused) == ("PAUSED", 15, 0, 1, 20, 0)
    assert "no run could be made of the last 20 items" in paused.reason


def test_a_run_whose_input_is_no_longer_kept_is_not_repeated(past):
    """The item fails with the reason, and the scheduler goes on."""
    past.publish("days", "day=6", "day=7")
    (run,) = (one for one in past.play() if one.arguments)
    past.publish("days", "day=6", op="overwrite")
    past.play()
    past.sql("UPDATE dataset SET horizon = 1000000 WHERE name = 'days' RETURNING 1")
    started = past.mill.backfills.start("shop.daily", by="runs", runs=[run.run_id], select="all")
    (failed,) = past.mill.backfills.items(started.backfill_id)

    assert (started.state, failed.state) == ("COMPLETED", "FAILED")
    assert "are deleted" in failed.why
    assert past.sql("SELECT * FROM reader_pin") == []


def numbers(line):
    """Return the days that a program has noted."""
    return [int(day) for day in re.findall(r"\d+", line.partition("]")[0])]


@pytest.mark.long
def test_five_hundred_partitions_are_processed_once_whatever_happens_meanwhile(past):
    """A backfill is paused, resumed, killed in part and cancelled, and another one does the rest."""
    past.publish("days", *(f"day={day}" for day in range(100, 600)))
    past.mill.consumers.reset("days", "default.shop.daily", "now")
    choice = {"where": ["day>=100", "day<600"], "concurrency": 10, "quiet": True}
    first = past.mill.backfills.start("shop.daily", **choice).backfill_id
    daily = []
    for day in range(1000, 1015):
        past.work()
        past.publish("days", f"day={day}")
        if day == 1003:
            past.mill.backfills.pause(first)
        daily += past.schedule()
        if day == 1006:
            past.mill.backfills.resume(first)
        if day == 1009:
            for run in past.take(3):
                past.end_attempt(run, "killed", "by a person")
    cancelled = past.mill.backfills.cancel(first, kill=True)
    past.play()
    left = past.mill.backfills.plan("shop.daily", where=choice["where"])
    second = past.mill.backfills.start("shop.daily", **choice).backfill_id
    ended = finish(past, second, 200)
    shown = past.mill.backfills.show(first)

    done = [line for line in past.lines_of() if all(day < 1000 for day in numbers(line))]
    followed = [day for line in past.lines_of("followed.txt") for day in numbers(line)]
    assert daily.count("default.shop.on_days") == 15
    assert cancelled.state == "CANCELLED"
    assert (shown.done + ended.done, shown.done + left.items) == (500, 500)
    assert sorted(done) == sorted(f"[{day}] 1" for day in range(100, 600))
    assert sorted(followed) == list(range(1000, 1015))
    assert past.mill.catalog.audit().findings == ()
