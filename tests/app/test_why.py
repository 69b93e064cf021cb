"""`tidemill why`: one case for each code of the closed list, and what a name means."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest

from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import Stage, staged
from tidemill import Because, Reason
from tidemill.cli.main import main

APP: Final = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", format="text", settle="0s", ignore=["*_part"])
flagged = app.inbox("flagged", "landing/flagged", format="text", settle="0s", done_flag="{name}.done")
lonely = app.inbox("lonely", "landing/lonely", format="text", settle="0s", expect=tm.Arrivals("1d"))
lines = app.fileset("lines", keys={"hour": "int"}, format="text")
spare = app.fileset("spare", keys={"hour": "int"}, format="text")
few = app.fileset("few", keys={"hour": "int"}, format="text")
users = app.snapshot("users", key=["id"])
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"}, format="text", watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
regions = app.fileset("regions", keys={"day": "date", "region": "string"}, format="text", watermark=tm.Watermark(
    "ts", pattern="$day 00:00:00", interval="1d", expected={"region": ["eu", "us"]}))
patient = app.fileset("patient", keys={"day": "date", "hour": "int"}, format="text", watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", gap="wait(2h)"))
slow = app.fileset("slow", keys={"day": "date"}, format="text", watermark=tm.Watermark(
    "ts", interval="1d", completeness="delay(1h)"))
named = app.fileset("named", keys={"name": "string"}, format="text", watermark=tm.Watermark("ts", interval="1h"))
hourly = app.fileset("hourly", keys={"day": "date"})
always = app.fileset("always", keys={"day": "date"})


@app.python(reads=[orders, tm.Reads(few, where={"hour": tm.Range(6, 22)})])
def load(run):
    run.input(orders)


@app.python(reads=[lines], retries=1, backoff="1m")
def report(run):
    run.input(lines).partitions
    if any("bad" in str(part.key) for part in run.input(lines).partitions):
        raise ValueError("bad")


@app.python()
def other(run):
    pass


@app.python(arguments={"day": str})
def strict(run):
    pass


app.window_sql("count_hours", '''
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
app.window_sql("count_names", '''
    INSERT INTO always SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE named, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
app.schedule("on_orders", load, trigger=tm.NewFiles(orders))
app.schedule("on_lines", report, trigger=tm.NewPartitions(lines, 3))
app.schedule("count_hours", "count_hours", trigger=tm.WatermarkPassed(clicks), suspended=True)
"""
CLICK: Final = "day=2026-03-01/hour=10"
WINDOW: Final = "shop.count_hours/2026-03-01T10:00"

Case = Callable[["Play"], str]
CASES: Final[dict[Reason, Case]] = {}


class Play(Stage):
    """A stage that holds transactions open until the end of the test, and patches modules."""

    enter: Callable[[contextlib.AbstractContextManager[object]], object]
    patch: pytest.MonkeyPatch


def case(*reasons: Reason) -> Callable[[Case], Case]:
    """Register a function that brings about a state, and returns the name of the thing to ask for."""

    def register(function: Case) -> Case:
        for reason in reasons:
            assert reason not in CASES, reason
            CASES[reason] = function
        return function

    return register


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """A deployed project at noon."""
    with staged(tmp_path, catalog_url, APP, ManualClock()) as opened, contextlib.ExitStack() as stack:
        play = Play(opened.mill, at=opened.at)
        play.enter, play.patch = stack.enter_context, monkeypatch
        yield play


def land(stage: Stage, name: str, *, scan: bool = True) -> str:
    """Put a file into an inbox, `INBOX/FILE`, and list the inbox."""
    inbox, _, file = name.partition("/")
    path = stage.mill.project.config.folder / "landing" / inbox / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one line\n")
    if scan:
        stage.mill.inboxes.scan(inbox)
    return name


def clock(stage: Stage) -> ManualClock:
    """Return the clock of the stage."""
    found = stage.world.clock
    assert isinstance(found, ManualClock)
    return found


def waiting_for(stage: Stage, trigger: object) -> str:
    """Make a job whose trigger has one partition, and lacks `trigger`; return the job."""
    partitions = {"type": "new_partitions", "fileset": "spare"}
    stage.mill.schedules.create(
        "shop.both", "shop.other", trigger={"type": "all_of", "triggers": [partitions, trigger]}
    )
    stage.publish("spare", "hour=1")
    stage.schedule()
    (job,) = stage.mill.jobs.list()
    return job.job_id


def constrained(stage: Stage, **constraint: object) -> str:
    """Make a job that waits for a constraint while a run of its program is pending; return the job."""
    stage.mill.schedules.create(
        "shop.one",
        "shop.other",
        trigger={"type": "new_partitions", "fileset": "spare"},
        constraints=[constraint or {"type": "concurrency", "n": 1}],
    )
    stage.mill.runs.start("shop.other")
    stage.publish("spare", "hour=1")
    stage.schedule()
    jobs = [*stage.mill.jobs.list(), *stage.mill.jobs.history("shop.one")]
    return jobs[0].job_id


def started(stage: Stage, state: str = "PENDING", program: str = "shop.other") -> str:
    """Start a run, and write its state into the catalog; return the run."""
    run_id = stage.mill.runs.start(program).run_id
    if state != "PENDING":
        stage.take()
        ended = ", ended_at = 1" if state in {"COMPLETED", "FAILED", "KILLED", "REJECTED"} else ""
        stage.sql(f"UPDATE run SET state = '{state}', exit_reason = 'why'{ended} WHERE run_id = '{run_id}' RETURNING 1")
    return run_id


def published(stage: Stage, hour: int = 1) -> str:
    """Publish a partition of `lines`; return its name."""
    stage.publish("lines", f"hour={hour}")
    return f"lines/hour={hour}"


def taken(stage: Stage, state: str, more: str = "") -> str:
    """Have a run consume a partition of `lines`, and write another state of it into the catalog."""
    name = published(stage)
    stage.outcome("shop.report")
    stage.sql(f"UPDATE consumer_work SET state = '{state}'{more} RETURNING 1")
    return name


def message(stage: Stage, topic: str = "data") -> str:
    """Return the newest message of a topic."""
    return f"{topic}:{stage.mill.topics.read(topic)[-1].position}"


@case(Reason.WAITS_FOR_FILES)
def _(stage):
    return waiting_for(stage, {"type": "new_files", "inbox": "orders", "n": 2})


@case(Reason.WAITS_FOR_PARTITIONS)
def _(stage):
    published(stage)
    stage.schedule()
    return "shop.on_lines"


@case(Reason.WAITS_FOR_DATA)
def _(stage):
    return waiting_for(stage, {"type": "new_data", "fileset": "spare", "bytes": "1 GB"})


@case(Reason.WAITS_FOR_REFRESH)
def _(stage):
    return waiting_for(stage, {"type": "refreshed", "snapshot": "users"})


@case(Reason.WAITS_FOR_WATERMARK)
def _(stage):
    return waiting_for(stage, {"type": "watermark_passed", "fileset": "clicks"})


@case(Reason.WAITS_FOR_RECOMPUTATION)
def _(stage):
    return waiting_for(stage, {"type": "windows_recomputed", "program": "shop.count_hours"})


@case(Reason.WAITS_FOR_MISSING_DATA)
def _(stage):
    return waiting_for(stage, {"type": "missing", "dataset": "lonely"})


@case(Reason.EXPECTATION_BROKEN)
def _(stage):
    clock(stage).move("1d")
    return "lonely"


@case(Reason.WAITS_FOR_RUN_END)
def _(stage):
    return waiting_for(stage, {"type": "run_ended", "program": "shop.report"})


@case(Reason.WAITS_FOR_MESSAGE)
def _(stage):
    return waiting_for(stage, {"type": "message_on", "topic": "orders"})


@case(Reason.WAITS_FOR_HOOK)
def _(stage):
    return waiting_for(stage, {"type": "hook", "name": "door"})


@case(Reason.WAITS_FOR_TIME)
def _(stage):
    return waiting_for(stage, {"type": "cron", "expression": "0 0 * * *"})


@case(Reason.WAITS_FOR_TRIGGER)
def _(stage):
    stage.patch.setattr("tidemill.schedule.explain._OF_TRIGGER", {})
    return waiting_for(stage, {"type": "refreshed", "snapshot": "users"})


@case(Reason.WAITS_FOR_SLOT)
def _(stage):
    return constrained(stage)


@case(Reason.WAITS_FOR_RATE)
def _(stage):
    return constrained(stage, type="rate", n=1, per="1h")


@case(Reason.WAITS_FOR_DELAY)
def _(stage):
    return constrained(stage, type="delay", duration="10m")


@case(Reason.WAITS_FOR_TIME_RANGE)
def _(stage):
    return constrained(stage, type="time_range", start="22:00", end="06:00")


@case(Reason.WAITS_AFTER_LAST_RUN)
def _(stage):
    return constrained(stage, type="since_last_run", duration="10m")


@case(Reason.WAITS_FOR_PROBE)
def _(stage):
    return constrained(stage, type="probe", name="load", at_most=0.5)


@case(Reason.JOB_SKIPPED)
def _(stage):
    return constrained(stage, type="concurrency", n=1, on_limit="skip")


@case(Reason.WAITS_FOR_CONSTRAINT)
def _(stage):
    stage.patch.setattr("tidemill.schedule.explain._OF_CONSTRAINT", {})
    return constrained(stage, type="time_range", start="22:00", end="06:00")


@case(Reason.WAITS_FOR_LAUNCH)
def _(stage):
    for name in ("one", "two"):
        trigger = {"type": "new_partitions", "fileset": "spare"}
        stage.mill.schedules.create(f"shop.{name}", "shop.other", trigger=trigger, constraints=[])
    stage.publish("spare", "hour=1")
    stage.schedule(most_launches=1)
    return stage.mill.jobs.list()[0].job_id


@case(Reason.WAITS_FOR_SCHEDULER)
def _(stage):
    return land(stage, "orders/1.txt")


@case(Reason.JOB_LAUNCHED)
def _(stage):
    land(stage, "orders/1.txt")
    stage.schedule()
    return stage.mill.jobs.history("shop.on_orders")[0].job_id


@case(Reason.JOB_TIMED_OUT)
def _(stage):
    job = constrained(stage)
    clock(stage).move("25h")
    stage.schedule()
    return job


@case(Reason.JOB_TRIGGER_TIMED_OUT)
def _(stage):
    listening = {"type": "new_partitions", "fileset": "spare", "n": 2}
    stage.mill.schedules.create("shop.one", "shop.other", trigger=listening, trigger_timeout="2h")
    stage.publish("spare", "hour=1")
    stage.schedule()
    clock(stage).move("2h")
    stage.schedule()
    return stage.mill.jobs.history("shop.one")[0].job_id


@case(Reason.JOB_REFUSED)
def _(stage):
    listening = {"type": "new_partitions", "fileset": "spare"}
    stage.mill.schedules.create("shop.one", "shop.other", trigger=listening)
    strict = "(SELECT program_id FROM program WHERE name = 'strict')"
    stage.sql(f"UPDATE schedule SET program_id = {strict} WHERE name = 'one' RETURNING 1")
    stage.publish("spare", "hour=1")
    stage.schedule()
    return stage.mill.jobs.history("shop.one")[0].job_id


@case(Reason.JOB_DROPPED)
def _(stage):
    job = waiting_for(stage, {"type": "refreshed", "snapshot": "users"})
    stage.mill.jobs.drop(job)
    return job


@case(Reason.SCHEDULE_SUSPENDED)
def _(stage):
    return "count_hours"


@case(Reason.PROGRAM_RETIRED)
def _(stage):
    stage.sql("UPDATE program SET retired = 1 WHERE name = 'load' RETURNING 1")
    return "on_orders"


@case(Reason.PROGRAM_NOT_SCHEDULED)
def _(stage):
    stage.mill.schedules.delete("shop.on_orders")
    return land(stage, "orders/1.txt")


@case(Reason.RUN_WAITS_FOR_RETRY)
def _(stage):
    run = started(stage)
    stage.take()
    stage.sql("UPDATE run SET state = 'PENDING', not_before = 4102444800000, exit_reason = 'no' RETURNING 1")
    return run


@case(Reason.RUN_WAITS_FOR_CODE)
def _(stage):
    run = started(stage)
    stage.sql("UPDATE run SET exit_cause = 'unloaded', exit_reason = 'no module' RETURNING 1")
    return run


@case(Reason.RUN_WAITS_FOR_PROFILE)
def _(stage):
    run = started(stage)
    stage.sql("UPDATE run SET exit_cause = 'lacking', exit_reason = 'no profile' RETURNING 1")
    return run


@case(Reason.RUN_WAITS_FOR_RUNNER)
def _(stage):
    return started(stage)


@case(Reason.RUN_WAITS_FOR_SLOT)
def _(stage):
    started(stage, "RUNNING")
    return started(stage)


@case(Reason.RUN_STARTING)
def _(stage):
    return started(stage, "STARTING")


@case(Reason.RUN_RUNNING)
def _(stage):
    return started(stage, "RUNNING")


@case(Reason.RUN_LEASE_EXPIRED)
def _(stage):
    run = started(stage, "RUNNING")
    clock(stage).move("1h")
    return run


@case(Reason.RUN_STOPPING)
def _(stage):
    return started(stage, "STOPPING")


@case(Reason.RUN_COMPLETED)
def _(stage):
    return started(stage, "COMPLETED")


@case(Reason.RUN_FAILED)
def _(stage):
    return started(stage, "FAILED")


@case(Reason.RUN_KILLED)
def _(stage):
    return started(stage, "KILLED")


@case(Reason.RUN_REJECTED)
def _(stage):
    return started(stage, "REJECTED")


@case(Reason.FILE_IGNORED)
def _(stage):
    return land(stage, "orders/1.txt_part")


@case(Reason.FILE_UNUSABLE)
def _(stage):
    stage.sql('UPDATE inbox_marker SET unusable = \'[["it is a link", 1, "1.txt"]]\' RETURNING 1')
    return "orders/1.txt"


@case(Reason.FILE_HELD_BACK)
def _(stage):
    return land(stage, "flagged/1.txt")


@case(Reason.FILE_NOT_LISTED)
def _(stage):
    return land(stage, "orders/1.txt", scan=False)


@case(Reason.FILE_WAITS_FOR_RUN)
def _(stage):
    return land(stage, "orders/1.txt")


@case(Reason.FILE_UNREAD)
def _(stage):
    return land(stage, "lonely/1.txt")


@case(Reason.FILE_IN_RUN)
def _(stage):
    land(stage, "orders/1.txt")
    stage.mill.inboxes.get_latest_files("orders")
    return "orders/1.txt"


@case(Reason.FILE_WAITS_FOR_RETRY)
def _(stage):
    land(stage, "orders/1.txt")
    claim = stage.mill.inboxes.get_latest_files("orders")
    stage.mill.inboxes.update_file_status(claim, None, "ERROR", error="no such column")
    return "orders/1.txt"


@case(Reason.FILE_QUARANTINED)
def _(stage):
    land(stage, "orders/1.txt")
    stage.sql("UPDATE inbox_file SET status = 'QUARANTINED', failures = 3, error = 'bad' RETURNING 1")
    return "orders/1.txt"


@case(Reason.FILE_PROCESSED)
def _(stage):
    land(stage, "orders/1.txt")
    claim = stage.mill.inboxes.get_latest_files("orders")
    stage.mill.inboxes.update_file_status(claim, None, "SUCCESS")
    return "orders/1.txt"


@case(Reason.FILE_IGNORED_BY_HAND)
def _(stage):
    land(stage, "orders/1.txt")
    stage.sql("UPDATE inbox_file SET status = 'QUARANTINED', error = 'line 3' RETURNING 1")
    stage.mill.inboxes.ignore("orders", ["1.txt"])
    return "orders/1.txt"


@case(Reason.FILE_SKIPPED)
def _(stage):
    land(stage, "orders/1.txt")
    stage.sql("UPDATE inbox_file SET status = 'SKIPPED' RETURNING 1")
    return "orders/1.txt"


@case(Reason.PARTITION_NOT_PUBLISHED)
def _(stage):
    return "lines/hour=1"


@case(Reason.PARTITION_DROPPED)
def _(stage):
    published(stage)
    stage.mill.datasets.drop("lines", {"hour": 1})
    return "lines/hour=1"


@case(Reason.PARTITION_UNREAD)
def _(stage):
    stage.publish("spare", "hour=1")
    return "spare/hour=1"


@case(Reason.PARTITION_WAITS_FOR_RUN)
def _(stage):
    return published(stage)


@case(Reason.PARTITION_IN_RUN)
def _(stage):
    return taken(stage, "in_progress")


@case(Reason.PARTITION_WAITS_FOR_RETRY)
def _(stage):
    return taken(stage, "new", ", run_id = NULL, not_before = 4102444800000")


@case(Reason.PARTITION_CONSUMED)
def _(stage):
    return taken(stage, "completed")


@case(Reason.PARTITION_DISCARDED)
def _(stage):
    return taken(stage, "discarded", ", failures = 3, error = 'bad'")


@case(Reason.PARTITION_NOT_DELIVERED)
def _(stage):
    stage.publish("few", "hour=1")
    return "few/hour=1"


@case(Reason.PARTITION_COMPUTED)
def _(stage):
    stage.publish("clicks", CLICK)
    stage.sql("UPDATE window_program SET computed = 4102444800000000 RETURNING 1")
    return f"clicks/{CLICK}"


@case(Reason.PARTITION_WAITS_FOR_WATERMARK)
def _(stage):
    stage.publish("clicks", CLICK)
    return f"clicks/{CLICK}"


@case(Reason.PARTITION_PARKED)
def _(stage):
    stage.publish("named", "name=ann")
    return "named/name=ann"


def computed(stage: Stage, stale: int = 0) -> None:
    """Write the result of a window into the catalog."""
    stage.publish("clicks", CLICK)
    end = int(datetime(2026, 3, 1, 11, tzinfo=UTC).timestamp()) * 1_000_000
    stage.sql(
        "INSERT INTO window_result (program_id, window_end, window_start, write_pointer, stale) "
        f"SELECT program_id, {end}, {end - 3_600_000_000}, 7, {stale} FROM window_program WHERE name LIKE '%hours' "
        "RETURNING 1"
    )


@case(Reason.WINDOW_PUBLISHED)
def _(stage):
    computed(stage)
    return WINDOW


@case(Reason.WINDOW_OUTDATED)
def _(stage):
    computed(stage, stale=1)
    return "shop.count_hours/[2026-03-01 10:00:00, 2026-03-01 11:00:00)"


@case(Reason.WINDOW_EMPTY)
def _(stage):
    stage.sql("UPDATE window_program SET computed = 4102444800000000 RETURNING 1")
    return WINDOW


@case(Reason.WINDOW_POSTPONED)
def _(stage):
    computed(stage)
    stage.sql(
        "INSERT INTO window_failure (program_id, window_end, window_start, reason, partitions, since, tried_at) "
        "SELECT program_id, window_end, window_start, 'no such column', '[]', 1, 1 FROM window_result RETURNING 1"
    )
    return WINDOW


@case(Reason.WINDOW_WAITS_FOR_WATERMARK, Reason.WATERMARK_HAS_NO_VALUE)
def _(stage):
    return WINDOW


@case(Reason.WINDOW_WAITS_FOR_RUN)
def _(stage):
    stage.publish("clicks", CLICK)
    return WINDOW


@case(Reason.WATERMARK_HELD)
def _(stage):
    stage.publish("clicks", "day=2026-03-01/hour=8")
    span = "clicks"
    stage.enter(stage.transaction(span))
    stage.sql(
        "UPDATE in_progress SET from_time = 1, to_time = 4102444800000000 "
        "WHERE write_pointer = (SELECT max(write_pointer) FROM in_progress) RETURNING 1"
    )
    stage.publish("clicks", CLICK)
    return "clicks"


@case(Reason.WATERMARK_MISSES_PARTITIONS)
def _(stage):
    stage.publish("regions", "day=2026-02-01/region=eu")
    return "regions"


@case(Reason.WATERMARK_WAITS_FOR_PARTITION)
def _(stage):
    stage.publish("slow", "day=2026-03-01")
    return "slow"


@case(Reason.WATERMARK_WAITS_FOR_TIME)
def _(stage):
    stage.publish("clicks", "day=2026-03-03/hour=8")
    return "clicks"


@case(Reason.WATERMARK_WAITS_FOR_DATA)
def _(stage):
    stage.publish("clicks", CLICK)
    return "clicks"


@case(Reason.MESSAGE_WAITS_FOR_SCHEDULER)
def _(stage):
    published(stage)
    return message(stage)


@case(Reason.MESSAGE_QUARANTINED)
def _(stage):
    published(stage)
    stage.sql("UPDATE message SET payload = 'no JSON' RETURNING 1")
    stage.schedule()
    return message(stage)


@case(Reason.MESSAGE_UNHEARD)
def _(stage):
    stage.publish("spare", "hour=1")
    return message(stage)


@case(Reason.MESSAGE_IN_JOB)
def _(stage):
    published(stage)
    stage.schedule()
    return message(stage)


@case(Reason.MESSAGE_IN_RUN)
def _(stage):
    land(stage, "orders/1.txt")
    stage.schedule()
    return message(stage)


@case(Reason.MESSAGE_DROPPED)
def _(stage):
    published(stage)
    stage.schedule()
    named = message(stage)
    (job,) = stage.mill.jobs.list()
    stage.mill.jobs.drop(job.job_id)
    return named


@case(Reason.MESSAGE_PASSED)
def _(stage):
    stage.publish("clicks", CLICK)
    stage.schedule()
    position = next(one.position for one in stage.mill.topics.read("data") if one.event_key.startswith("watermark:"))
    return f"data:{position}"


@case(Reason.DATASET_EMPTY)
def _(stage):
    return "lines"


@case(Reason.DATASET_WRITTEN, Reason.CONSUMER_LAGS)
def _(stage):
    published(stage)
    return "lines"


@case(Reason.CONSUMER_IS_CURRENT)
def _(stage):
    return "default.lines"


@case(Reason.TRANSACTION_OPEN)
def _(stage):
    stage.enter(stage.transaction("lines"))
    return "lines"


@case(Reason.INBOX_WAITS_FOR_LISTING, Reason.INBOX_HAS_FILES)
def _(stage):
    land(stage, "orders/1.txt")
    return "orders"


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_case(reason, stage):
    """A code that no state leads to would be in the table of the manual, and in no answer."""
    thing = CASES[reason](stage)

    found = stage.mill.why(thing)

    assert reason in [one.code for one in found.because], found
    assert all(one.why and isinstance(one.evidence, dict) for one in found.because)


def test_what_waits_names_its_way_out(stage):
    """A reason without a next step leaves the reader where the reader was."""
    job = constrained(stage)

    (reason,) = stage.mill.why(job).because

    assert reason.why == f"{job} of default.shop.one waits: concurrency 1/1"
    assert [held["run_id"] for held in reason.evidence["held_by"]] == [
        run.run_id for run in stage.mill.runs.list() if run.program == "default.shop.other"
    ]
    assert reason.evidence["timeout_at"] == datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert reason.unblock.endswith(f"`tidemill job force {job}`; at its time-out the job is cancelled")
    assert reason.next_look_at == datetime(2026, 3, 2, 12, tzinfo=UTC)


def of_watermark(stage, name: str) -> list[Because]:
    """Return the reasons of a watermark."""
    return [one for one in stage.mill.why(name).because if one.code.value.startswith("watermark_")]


def test_a_slot_that_the_watermark_has_passed_is_no_cause(stage):
    """Ten old gaps would hide the one that matters."""
    for day in range(1, 13):
        stage.publish("regions", f"day=2026-02-{day:02}/region=eu")
    stage.publish("regions", "day=2026-02-12/region=us")
    passed = of_watermark(stage, "regions")
    stage.publish("regions", "day=2026-02-13/region=us")

    (missing,) = of_watermark(stage, "regions")

    assert [one.code for one in passed] == [Reason.WATERMARK_WAITS_FOR_DATA]
    assert missing.code is Reason.WATERMARK_MISSES_PARTITIONS
    assert missing.evidence["missing"] == [{"slot": "2026-02-13 00:00:00", "have": 1, "of": 2}]
    assert stage.mill.watermarks.show("regions").waits_for[0].slot == "2026-02-13 00:00:00"


def test_a_partition_of_a_slot_that_is_passed_is_not_waited_for(stage):
    """A later day may be complete first: the earlier one is late then, and holds nothing."""
    stage.publish("slow", "day=2026-02-01")
    stage.mill.watermarks.advance("slow", "2026-02-02")
    stage.publish("slow", "day=2026-02-02")

    (waits,) = of_watermark(stage, "slow")

    assert waits.code is Reason.WATERMARK_WAITS_FOR_PARTITION
    assert waits.evidence["partition"] == "day=2026-02-02"


def test_a_missing_hour_says_how_long_the_watermark_waits_for_it(stage):
    """The answer named a complete slot ahead of the clock, which was not there, and hours before an advance."""
    for hour in (5, 8):
        stage.publish("patient", f"day=2026-03-01/hour={hour}")
    stage.mill.watermarks.advance("patient", "2026-03-01 07:00")

    (missing,) = of_watermark(stage, "patient")

    assert missing.code is Reason.WATERMARK_MISSES_PARTITIONS
    assert missing.evidence["missing"] == [{"slot": "2026-03-01 07:00:00", "have": 0, "of": 1}]
    assert missing.unblock.endswith(", or wait(2h) is over")
    assert missing.next_look_at == datetime(2026, 3, 1, 14, tzinfo=UTC)


def test_a_transaction_that_writes_earlier_times_is_no_cause(stage):
    """To abort it would not move the watermark."""
    stage.publish("clicks", "day=2026-03-01/hour=8")
    for begins, ends in (("08", "09"), ("09", "23"), ("10", "11")):
        stage.enter(stage.transaction("clicks"))
        stage.sql(
            f"UPDATE in_progress SET from_time = {micros(begins)}, to_time = {micros(ends)} "
            "WHERE write_pointer = (SELECT max(write_pointer) FROM in_progress) RETURNING 1"
        )
    _, holding, _ = sorted(one for (one,) in stage.sql("SELECT write_pointer FROM in_progress"))
    stage.publish("clicks", CLICK)

    held = of_watermark(stage, "clicks")

    assert [one.code for one in held] == [Reason.WATERMARK_HELD]
    assert [one.evidence["write_pointer"] for one in held] == [holding]
    assert [one.write_pointer for one in stage.mill.watermarks.show("clicks").held_by] == [holding]


def micros(hour: str) -> int:
    """An hour of the first of March, as an instant."""
    return int(datetime(2026, 3, 1, int(hour), tzinfo=UTC).timestamp()) * 1_000_000


def test_a_file_that_has_failed_says_when_it_is_tried_again(stage):
    """`inbox files` has the error, and not the number of attempts that are left, nor the way to try at once."""
    thing = CASES[Reason.FILE_WAITS_FOR_RETRY](stage)

    (reason,) = stage.mill.why(thing).because

    assert reason.why == "default.orders/1.txt has failed in 1 of 3 attempts: no such column"
    assert reason.next_look_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)
    assert "`tidemill inbox retry default.orders 1.txt`" in reason.unblock


def test_a_file_whose_name_has_a_space_has_a_command_that_can_be_typed(stage):
    """Without quotes the command would name two files."""
    land(stage, "orders/a b.txt")
    stage.sql("UPDATE inbox_file SET status = 'QUARANTINED' RETURNING 1")

    (reason,) = stage.mill.why("orders/a b.txt").because

    assert reason.unblock.endswith("`tidemill inbox release default.orders 'a b.txt'`")


def test_a_trigger_that_waits_for_the_end_of_a_silence_says_when(stage):
    """All that such a trigger listens to has come: only the time is missing."""
    listening = {"type": "new_partitions", "fileset": "spare"}
    silence = {"type": "silence", "trigger": listening, "duration": "10m"}
    stage.mill.schedules.create("shop.quiet", "shop.other", trigger=silence)
    stage.publish("spare", "hour=1")
    stage.schedule()

    (reason,) = stage.mill.why("shop.quiet").because

    assert (reason.code, reason.next_look_at) == ("waits_for_time", datetime(2026, 3, 1, 12, 10, tzinfo=UTC))


def test_a_message_is_followed_from_its_job_to_its_run(stage):
    """The message of a file that was dropped, or is in a run, is in no table by itself."""
    thing = CASES[Reason.MESSAGE_IN_RUN](stage)

    (reason,) = stage.mill.why(thing).because

    (run,) = stage.mill.runs.list()
    assert (reason.evidence["run_id"], reason.evidence["state"]) == (run.run_id, "PENDING")


def test_of_two_dropped_messages_each_names_its_own_job(stage):
    """Both jobs ended in the same millisecond: the first job is searched for both messages."""
    jobs, messages = [], []
    for hour in (1, 2):
        published(stage, hour)
        stage.schedule()
        messages.append(message(stage))
        jobs.append(stage.mill.jobs.list()[0].job_id)
        stage.mill.jobs.drop(jobs[-1])

    found = [stage.mill.why(one).because[0].evidence["job_id"] for one in messages]

    assert found == jobs


@pytest.mark.parametrize(
    ("name", "kind", "thing"),
    [
        ("1.txt", "file", "default.orders/1.txt"),
        ("orders/1.txt", "file", "default.orders/1.txt"),
        ("landing/orders/1.txt", "file", "default.orders/1.txt"),
        ("{folder}/landing/orders/1.txt", "file", "default.orders/1.txt"),
        ("file://{folder}/landing/orders/1.txt", "file", "default.orders/1.txt"),
        ("orders", "dataset", "default.orders"),
        ("on_orders", "schedule", "default.shop.on_orders"),
        ("shop.on_orders", "schedule", "default.shop.on_orders"),
        ("clicks/day=2026-03-01 hour=10", "partition", "default.clicks/day=2026-03-01/hour=10"),
        ("default.clicks/day=2026-03-01/hour=10", "partition", "default.clicks/day=2026-03-01/hour=10"),
        (WINDOW, "window", "default.shop.count_hours/[2026-03-01 10:00:00, 2026-03-01 11:00:00)"),
    ],
)
def test_a_name_means_one_thing(stage, name, kind, thing):
    """People type what a line of a log has: the name of a file, a path, a schedule with or without its app."""
    land(stage, "orders/1.txt")

    found = stage.mill.why(name.format(folder=stage.mill.project.config.folder))

    assert (found.kind, found.thing) == (kind, thing)


def test_a_name_of_several_things_means_the_first_and_names_the_others(stage):
    """A schedule that is called as its inbox is usual."""
    stage.mill.schedules.create("shop.orders", "shop.other", trigger={"type": "every", "duration": "1h"})

    first, chosen = stage.mill.why("orders"), stage.mill.why("orders", kind="schedule")

    assert (first.kind, first.also) == ("dataset", ("schedule",))
    assert (chosen.thing, chosen.also) == ("default.shop.orders", ())


def test_a_file_of_two_inboxes_is_ambiguous(stage):
    """The answer would be about the wrong file in half of the cases."""
    land(stage, "orders/1.txt")
    land(stage, "lonely/1.txt")

    with raises_code("ambiguous_name", match="default.lonely/1.txt, default.orders/1.txt"):
        stage.mill.why("1.txt")


@pytest.mark.parametrize(
    ("name", "kind", "code", "text"),
    [
        ("orders/1.tx", None, "not_found", "did you mean '1.txt'"),
        ("oders", None, "not_found", "did you mean 'orders'"),
        ("shop.on_order", None, "not_found", "did you mean 'shop.on_orders'"),
        ("nothing", None, "not_found", "name a file"),
        ("job_1", None, "not_found", "no job named 'job_1'|no thing named 'job_1'"),
        ("data:99999.0", "message", "not_found", "tidemill topic read data"),
        ("lines/hour=x", None, "bad_key", "hour"),
        ("orders", "snapshot", "bad_thing", "use one of job"),
        ("orders", "schedule", "not_found", "did you mean"),
        ("shop.count_hours/9999-12-31T23:59:59", None, "not_found", "window"),
        ("shop.load/2026-03-01", "window", "not_found", "no window named"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(stage, name, kind, code, text):
    """A typing error is the most frequent reason why nothing is found."""
    land(stage, "orders/1.txt")

    with raises_code(code, match=text):
        stage.mill.why(name, kind=kind)


def test_the_command_prints_sentences_or_the_same_json(stage, capsys):
    """The server and scripts read the JSON, people the lines."""
    published(stage)
    stage.schedule()
    (job,) = stage.mill.jobs.list()
    folder = ["--project", str(stage.mill.project.config.folder)]
    printed = []
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit, match="0"):
            main([*folder, "why", job.job_id, *more])
        printed.append(capsys.readouterr().out)

    assert printed[0].splitlines()[:2] == [
        f"job {job.job_id}: PENDING_TRIGGER",
        f"- waits_for_partitions: {job.job_id} of default.shop.on_lines waits: 1/3 new partitions of default.lines",
    ]
    found = json.loads(printed[1])
    assert (found["kind"], found["also"]) == ("job", [])
    assert found["because"][0] == {
        "code": "waits_for_partitions",
        "why": f"{job.job_id} of default.shop.on_lines waits: 1/3 new partitions of default.lines",
        "evidence": {
            "type": "new_partitions",
            "trigger_no": 0,
            "trigger": "NewPartitions(default.lines, 3)",
            "count": 1,
            "event_keys": ["partition:default.lines", "backlog:default.lines"],
        },
        "unblock": "a message that feeds the trigger arrives",
        "next_look_at": None,
    }


def test_a_watermark_without_a_value_says_for_what_partitions_it_waits(stage):
    """A partition has a time, and is not enough: that no partition had one was false."""
    CASES[Reason.WATERMARK_MISSES_PARTITIONS](stage)
    CASES[Reason.WATERMARK_WAITS_FOR_PARTITION](stage)

    found = [[one.why for one in stage.mill.why(name).because] for name in ("regions", "slow", WINDOW)]

    assert "the watermark of default.regions has no value: 1 time slot without all partitions" in found[0]
    assert any(one.startswith("the watermark of default.slow waits for partition day=2026-03-01: ") for one in found[1])
    assert not [one for one in (*found[0], *found[1]) if "no partition has a time yet" in one]
    assert not [one for why in found for one in why if "None" in one]
