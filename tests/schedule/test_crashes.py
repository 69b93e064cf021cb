"""A scheduler that dies at any of its marks, and what it loses: nothing."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import pytest

from tidemill.names import RunId
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.specs import Misfire
from tidemill.schedule.time_triggers import Cron, Every

MARKS = [
    "subscriber.read",
    "subscriber.before_jobs",
    "subscriber.before_commit",
    "timekeeper.locked",
    "timekeeper.before_jobs",
    "timekeeper.before_timers",
    "timekeeper.before_commit",
    "checker.locked",
    "checker.before_runs",
    "checker.before_commit",
    "checker.before_cancel",
]


class Crash(BaseException):
    """The end of the process, as far as the database can tell."""


def _logical_times(shop) -> list[tuple[str, int]]:
    """For each run that a time started: its schedule, and how many times it carries."""
    causes = [json.loads(str(cause)) for (cause,) in shop.sql("SELECT triggered_by FROM run WHERE job_id IS NOT NULL")]
    return [(c["schedule"].rpartition(".")[2], len(c["logical_times"])) for c in causes if c["logical_times"]]


@pytest.mark.parametrize("mark", MARKS)
def test_a_crash_at_any_mark_loses_and_doubles_nothing(shop, mark):
    """Nothing at a start-up or after a failed launch deletes a job; a message and a fire are in one run, once."""
    program = shop.program()
    shop.schedule(NewPartitions("clicks", 2), name="data", program=shop.program("data"))
    shop.schedule(Every("1h"), name="time", program=shop.program("time"))
    shop.schedule(Cron("*/20 * * * *"), name="each", program=shop.program("each"), misfire=Misfire.ALL)
    shop.schedule(Cron("*/20 * * * *"), name="once", program=shop.program("once"))
    shop.schedule(
        NewPartitions("clicks"),
        name="late",
        program=program,
        constraints=(Concurrency(1),),
        timeout=timedelta(minutes=30),
    )
    blocker = shop.start(program)
    crashes = Counter()

    def crash(reached: str) -> None:
        if reached == mark and crashes[mark] < 2:
            crashes[mark] += 1
            raise Crash

    def step() -> None:
        for _ in range(3):
            try:
                launches.extend(launch.schedule for launch in shop.step())
            except Crash:
                continue
            return

    launches: list[str] = []
    shop.at_mark = crash
    shop.add()
    step()
    shop.add()
    shop.clock.move("1h")
    step()
    shop.end(blocker)
    for _ in range(4):  # a missed time of `each` starts when the run before it has ended
        step()
        for (run_id,) in shop.sql("SELECT run_id FROM run WHERE ended_at IS NULL"):
            shop.end(RunId(str(run_id)))

    runs = shop.sql("SELECT s.name FROM run AS r JOIN schedule AS s ON s.schedule_id = r.schedule_id ORDER BY s.name")
    assert crashes[mark] == 2
    assert runs == [("data",), *3 * [("each",)], ("late",), ("once",), ("time",)]
    assert sorted(_logical_times(shop)) == [("each", 1), ("each", 1), ("each", 1), ("once", 3), ("time", 1)]
    # The loop's report of its launches is for people. A crash after the commit may lose the report.
    assert Counter(launches) <= Counter(f"default.shop.{name}" for (name,) in runs)
    assert shop.jobs() == []
