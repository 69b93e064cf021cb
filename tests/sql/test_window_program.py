"""Window programs without Spark: whatever order partitions come in, the results are those of one computation."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.conftest import open_windows
from tests.sql.hours import CUMULATE, HOP, HOUR, PLACES, TUMBLE, Plain, open_plain, write_app
from tidemill.catalog.transactions import Transaction
from tidemill.errors import UserError
from tidemill.lake.backlog import publish_due
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import ColumnSchema
from tidemill.lake.janitor import sweep
from tidemill.lake.window.retries import WINDOWS
from tidemill.lake.window.window_plan import Stored, Window, WindowShape
from tidemill.lake.window.windows import MoveWindows, WindowState, list_waiting
from tidemill.names import ProgramId, RunId, WritePointer
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.external import open_transaction
from tidemill.run.step.attempts import AttemptEnd, Cause, end_attempt
from tidemill.schedule.loop import Scheduler
from tidemill.shapes.partition_time import WallTime, from_wall, to_wall
from tidemill.sql import window_program
from tidemill.testing.plain import write_texts
from tidemill.upkeep.retention import Historian
from tidemill.world import World


def play(plain) -> int:
    """Let the scheduler do all that it can, then a driver; the number of runs."""
    scheduler = Scheduler(plain.mill.project.catalog, World(), lambda _launched: None)
    while scheduler.step() == timedelta(0):
        pass
    return plain.drive()


@pytest.fixture
def plain(catalog_url, tmp_path):
    """Hourly windows of lines, on each database."""
    opened = open_plain(tmp_path / "project", catalog_url)
    yield opened
    opened.mill.close()


def test_the_window_comes_out_when_its_hour_is_committed(plain):
    """The seed: [10:00, 11:00) when hour 10 is there, before any row of hour 11 exists; and nothing twice."""
    plain.add("2021-03-19 10:00", 0, 59)

    first = plain.run()
    again = plain.run()

    assert (first.state, again.state) == ("COMPLETED", "COMPLETED"), plain.spawner.complaints
    assert plain.results() == {"10:00": 2}
    assert len(plain.lines("hourly")) == 1


def test_the_trigger_fires_when_the_watermark_passes_and_when_windows_are_late(plain):
    """A late partition moves no watermark: its commit says that the program has work."""
    plain.add("2021-03-19 10:00", 5)
    passed = play(plain)
    plain.add("2021-03-19 10:00", 6)
    late = play(plain)

    assert (passed, late) == (1, 1)
    assert plain.results() == {"10:00": 2}
    assert play(plain) == 0


def test_an_hour_that_comes_below_an_advanced_watermark_is_computed_at_once(catalog_url, tmp_path):
    """Nothing has been computed yet, and the watermark may stand for long: the hour waited for its next move."""
    plain = open_plain(tmp_path / "project", catalog_url, more="expected_count=2")
    with contextlib.closing(plain.mill):
        plain.add("2021-03-19 10:00", 5)  # one of two
        plain.mill.watermarks.advance("clicks", "2021-03-19T10:00")
        first = play(plain)
        plain.add("2021-03-19 08:00", 6)
        second = play(plain)

        assert (first, second) == (0, 1)
        assert plain.results() == {"08:00": 1}


def test_windows_that_close_or_change_while_the_schedule_is_suspended_come_out_when_it_is_resumed(plain):
    """The watermark may stand for long: the program computed nothing until it moved again."""
    plain.mill.schedules.suspend("shop.count")
    plain.add("2021-03-19 10:00", 5)
    play(plain)
    plain.mill.schedules.resume("shop.count")
    closed = play(plain)
    plain.mill.schedules.suspend("shop.count")
    plain.add("2021-03-19 10:00", 6)
    play(plain)
    plain.mill.schedules.resume("shop.count")

    late = play(plain)

    assert (closed, late) == (1, 1)
    assert plain.results() == {"10:00": 2}


def test_a_window_program_that_is_deployed_over_a_watermark_computes_what_is_closed(catalog_url, tmp_path):
    """The table has been there for a year: its windows must not wait for the next hour."""
    plain = open_plain(tmp_path / "project", catalog_url)
    app = plain.mill.project.config.app
    with_windows = app.read_text()
    table = with_windows.partition("app.add_windows")[0]
    with contextlib.closing(plain.mill):
        app.write_text(table)
        plain.mill.deploy()
        plain.add("2021-03-19 10:00", 5)
        play(plain)
        app.write_text(with_windows)
        plain.mill.deploy()

        ran = play(plain)

        assert ran == 1
        assert plain.results() == {"10:00": 1}


def test_late_rows_replace_a_window_whose_history_is_deleted(plain):
    """Its rows are found by the change that wrote them first: with that deleted, a second result was appended."""
    catalog = plain.mill.project.catalog
    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    for minute in (2, 3, 4):
        plain.add("2021-03-19 09:00", minute)
        plain.settle()
    for _ in range(4):
        expire_superseded(catalog, timedelta(0))
        sweep(catalog)
        Historian(catalog, timedelta(milliseconds=1), timedelta(0)).step()
        World().clock.sleep(timedelta(milliseconds=5))

    plain.add("2021-03-19 08:00", 2)
    plain.settle()

    assert plain.results() == {"08:00": 2, "09:00": 4, "10:00": 1}
    assert len(plain.lines("hourly")) == 3


def test_a_late_partition_has_its_windows_computed_again_and_no_others(plain):
    """The day's partition is overwritten with the other windows unchanged. A reader never sees both versions."""
    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()

    plain.add("2021-03-19 09:00", 2, 3)
    plain.settle()

    assert plain.results() == {"08:00": 1, "09:00": 3, "10:00": 1}
    assert len(plain.lines("hourly")) == 3
    pointers = plain.sql("SELECT count(DISTINCT write_pointer) FROM window_result WHERE stale = 0")
    assert pointers == [(2,)]


def test_a_rewritten_or_dropped_partition_changes_its_windows(plain):
    """Deleted rows disappear from the results."""
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1, 2)
    plain.settle()

    plain.add("2021-03-19 08:00", 7, how="overwrite")
    plain.settle()
    rewritten = plain.results()
    plain.mill.datasets.drop("clicks", {"hour": 9})
    plain.settle()

    assert rewritten == {"08:00": 1, "09:00": 2}
    assert plain.results() == {"08:00": 1}


def test_windows_may_lie_in_another_zone_than_partitions(sqlite_catalog_url, tmp_path):
    """Days of Berlin over hours of UTC: on the day of clock change one lasts from 23:00 of the day before to 22:00."""
    windows = "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' DAY)"
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, windows=windows, more="window_zone='Europe/Berlin'")

    def days() -> list[tuple[str, int]]:
        rows = [line.split() for line in plain.lines("hourly")]
        return [(f"{from_wall(int(start)):%d %H:%M}", int(number)) for start, _, number, _ in rows]

    found = []
    for local, minute in (("27 22", 59), ("27 23", 0), ("28 20", 5), ("28 21", 59), ("28 22", 0)):
        plain.add(f"2021-03-{local}:00", minute)
        plain.settle()
        found.append(days())

    first, second = ("27 00:00", 1), ("28 00:00", 3)
    assert found == [[first], [first], [first], [first, second], [first, second]]
    plain.mill.close()


def test_late_partitions_may_be_dropped(catalog_url, tmp_path):
    """Late partitions then count in open windows only, and start no run for the others."""
    plain = open_plain(tmp_path / "project", catalog_url, windows=HOP, more="late='drop'")
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    before = plain.results()

    plain.add("2021-03-19 08:00", 2)
    told = plain.is_more()
    plain.add("2021-03-19 10:00", 1)
    plain.settle()

    assert before == {"06:00": 1, "07:00": 2}
    assert not told
    assert plain.results() == {"06:00": 1, "07:00": 2, "08:00": 4}
    plain.mill.close()


def test_a_window_that_closes_later_has_the_rows_of_before(catalog_url, tmp_path):
    """Sliding windows that close after a pause hold partitions that ended before the pause."""
    plain = open_plain(tmp_path / "project", catalog_url, windows=HOP)
    plain.add("2021-03-19 08:00", 1)
    plain.settle()
    plain.add("2021-03-19 20:00", 1)
    plain.settle()

    assert plain.results() == {"06:00": 1, "07:00": 1, "08:00": 1, "18:00": 1}
    plain.mill.close()


def test_windows_that_begin_before_the_first_hour_may_be_left_out(catalog_url, tmp_path):
    """[06:00, 09:00) and [07:00, 10:00) lack hours. When hour 7 comes, the latter is whole."""
    plain = open_plain(tmp_path / "project", catalog_url, windows=HOP, more="partial_first='skip'")
    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    first = plain.results()
    plain.add("2021-03-19 07:00", 1)
    plain.settle()

    assert first == {"08:00": 3}
    assert plain.results() == {"07:00": 3, "08:00": 3}
    plain.mill.close()


@pytest.mark.parametrize("more", ["max_windows=3", "max_partitions=3", "max_bytes='60 B'"])
def test_a_batch_is_cut_at_its_limit_and_the_rest_reported_as_left(catalog_url, tmp_path, more):
    """10,000 waiting hours cost tens of runs, each a transaction of its own. A partition here has 19 bytes."""
    plain = open_plain(tmp_path / "project", catalog_url, more=more)
    for hour in range(7):
        plain.add(f"2021-03-19 {hour:02}:00", hour)

    seen = []
    for _ in range(3):
        plain.run()
        seen.append((len(plain.results()), plain.is_more()))

    assert seen == [(3, True), (6, True), (7, False)]
    plain.mill.close()


def write_hours(plain: Plain, hours: Iterable[int]) -> dict[str, str]:
    """Return a row for each of these hours since 10 March 2021, by its partition."""
    start = datetime(2021, 3, 10)  # noqa: DTZ001  # a wall-clock time
    return {k: v for hour in hours for k, v in plain.write_hour(str(start + timedelta(hours=hour)), 1).items()}


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    zone=st.sampled_from(["UTC", "Asia/Kolkata"]),
    kind=st.sampled_from(
        [(TUMBLE, "max_windows"), (HOP, "max_windows"), (CUMULATE, "max_windows"), (TUMBLE, "max_partitions")]
    ),
    most=st.integers(1, 5),
    hours=st.sets(st.integers(0, 80), min_size=1, max_size=30),
    appends=st.integers(1, 9),
)
def test_each_run_of_a_back_fill_computes_as_many_windows_as_it_may(memory_folder, zone, kind, most, hours, appends):
    """However far the next windows lie apart, though a run does not read all partitions that wait."""
    folder = memory_folder / f"p{next(_numbers)}"
    windows, limit = kind
    plain = open_plain(folder, f"sqlite:///{folder}.db", zone, windows, f"{limit}={most}")
    for _ in range(appends):
        plain.commit("clicks", write_hours(plain, hours))
    plain.settle(200)

    closed = [json.loads(text)["closed"] for (text,) in plain.sql(WINDOW_MESSAGES)]
    total = sum(closed)
    assert closed[: total // most] == [most] * (total // most)
    assert plain.lines("hourly") == plain.expected(plain.passed)
    plain.mill.close()


def test_a_run_of_a_back_fill_reads_the_partitions_of_its_windows(catalog_url, tmp_path, monkeypatch):
    """Each run would else read all hours that wait."""
    read: list[int] = []

    def count(*args: Any) -> list[Stored]:
        found = list_waiting(*args)
        read.append(len(found))
        return found

    monkeypatch.setattr(window_program, "list_waiting", count)
    plain = open_plain(tmp_path / "project", catalog_url, more="max_windows=8")
    plain.commit("clicks", write_hours(plain, range(240)))
    for _ in range(8):
        plain.run()

    # Those of its windows and some more, and those that may have rows of windows that are computed.
    assert len(read) == 8
    assert max(read) < 8 + 3 + 2 * 27
    plain.mill.close()


def test_a_rewritten_day_touches_all_windows_that_share_an_hour_with_it(sqlite_catalog_url, tmp_path):
    """Windows of 24 hours begin each hour: 47 do. They are computed again in batches, the newest first."""
    windows = HOP.replace("'3' HOUR", "'24' HOUR")
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, windows=windows, more="max_windows=20")
    plain.shape = WindowShape(24 * HOUR, HOUR, 0)
    days = ("18", "19", "20", "21")
    plain.commit("clicks", {_hour_of(day, hour): _row_of(day, hour) for day in days for hour in range(24)}, "overwrite")
    plain.settle()
    begun = len(plain.sql(WINDOW_MESSAGES))
    plain.commit("clicks", {_hour_of("19", hour): _row_of("19", hour) * 2 for hour in range(24)}, "overwrite")
    seen = []
    while not seen or plain.is_more():
        plain.run()
        rows = [line.split() for line in plain.lines("hourly")]
        seen.append(sorted(from_wall(int(start)) for start, _, count, _ in rows if int(count) > 24))

    again = [json.loads(text)["recomputed"] for (text,) in plain.sql(WINDOW_MESSAGES)[begun:]]
    assert again == [20, 20, 7]
    shared = [datetime(2021, 3, 18, 1) + timedelta(hours=hours) for hours in range(47)]  # noqa: DTZ001  # of UTC
    assert seen == [shared[-20:], shared[-40:], shared]
    plain.mill.close()


def _hour_of(day: str, hour: int) -> str:
    return f"day=2021-03-{day}/hour={hour}"


def _row_of(day: str, hour: int) -> str:
    return f"{to_wall(datetime(2021, 3, int(day), hour))} 1\n"  # noqa: DTZ001  # a wall-clock time of UTC


@pytest.mark.parametrize("more", ["max_windows=2", "max_partitions=2", "max_bytes='80 B'"])
def test_one_commit_that_touches_many_windows_is_cut_at_the_limits_too(catalog_url, tmp_path, more):
    """The newest windows come first, and each is replaced once. An overwritten partition has 38 bytes."""
    plain = open_plain(tmp_path / "project", catalog_url, more=more)
    for hour in range(6):
        plain.add(f"2021-03-19 {hour:02}:00", hour)
    plain.settle()
    hours = [datetime(2021, 3, 19, hour) for hour in range(1, 6)]  # noqa: DTZ001  # wall-clock times of UTC
    texts = {f"day=2021-03-19/hour={hour.hour}": f"{to_wall(hour)} 1\n" * 2 for hour in hours}
    plain.commit("clicks", texts, "overwrite")

    seen = []
    for _ in range(3):
        plain.run()
        seen.append(([*plain.results().values()], len(plain.lines("hourly")), plain.is_more()))
    again = [json.loads(text)["recomputed"] for (text,) in plain.sql(WINDOW_MESSAGES)[-3:]]

    assert seen == [
        ([1, 1, 1, 1, 2, 2], 6, True),
        ([1, 1, 2, 2, 2, 2], 6, True),
        ([1, 2, 2, 2, 2, 2], 6, False),
    ]
    assert again == [2, 2, 1]
    plain.mill.close()


def test_left_windows_that_cannot_be_computed_delay_no_older_ones(sqlite_catalog_url, tmp_path):
    """All late windows of a run fail: an older one that can be computed shows that the query is right."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="max_windows=2")
    for hour in range(6):
        plain.add(f"2021-03-19 {hour:02}:00", hour)
    plain.settle()
    hours = [datetime(2021, 3, 19, hour) for hour in range(1, 6)]  # noqa: DTZ001  # wall-clock times of UTC
    texts = {f"day=2021-03-19/hour={hour.hour}": f"{to_wall(hour)} 1\n" * 2 for hour in hours}
    plain.commit("clicks", texts, "overwrite")
    plain.run()
    for hour in (2, 3):
        newest = max(plain.mill.project.config.folder.glob(f"**/hour={hour}/*"), key=lambda one: one.stat().st_mtime_ns)
        newest.unlink()

    plain.run()
    plain.run()

    assert [*plain.results().values()] == [1, 2, 1, 1, 2, 2]
    assert plain.sql("SELECT count(*) FROM window_failure") == [(2,)]
    plain.mill.close()


def test_late_windows_that_are_left_wait_beside_those_of_later_commits(catalog_url, tmp_path):
    """A window that had no rows is among them. A run that is killed leaves all of them to the next run."""
    plain = open_plain(tmp_path / "project", catalog_url, more="max_windows=2")
    for hour in (1, 3, 4):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    for hour in (1, 2, 3, 4):
        plain.add(f"2021-03-19 {hour:02}:00", 2)
    plain.run()
    first = plain.results()
    for hour in (2, 4, 5):
        plain.add(f"2021-03-19 {hour:02}:00", 3)
    kill(plain, "driver.before_commit")
    killed = plain.results()

    seen = []
    for _ in range(3):
        plain.run()
        seen.append((plain.results(), plain.is_more()))

    assert first == killed == {"01:00": 1, "03:00": 2, "04:00": 2}
    second = {"01:00": 1, "03:00": 2, "04:00": 3, "05:00": 1}
    assert seen == [
        (second, True),
        ({**second, "01:00": 2, "02:00": 2}, False),
        ({**second, "01:00": 2, "02:00": 2}, False),
    ]
    assert plain.sql("SELECT count(*) FROM window_result WHERE stale = 1") == [(0,)]
    plain.mill.close()


def test_a_late_window_that_is_left_is_not_final_before_it_is_computed(sqlite_catalog_url, tmp_path):
    """`computed` goes on meanwhile: a further late row of the window counted in it, and in the side table too."""
    more = "max_windows=1, allowed_lateness='3h'"
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more=more)
    for hour in range(4):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    for hour in (1, 2, 3):
        plain.add(f"2021-03-19 {hour:02}:00", 2)
    for hour in (4, 5, 6):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.run()
    plain.run()
    before = plain.results()
    plain.add("2021-03-19 01:00", 3)
    plain.settle()
    after, side = plain.results(), plain.lines("count_hours_side")
    plain.add("2021-03-19 01:00", 4)
    plain.settle()

    assert before == {"00:00": 1, "01:00": 1, "02:00": 2, "03:00": 2, "04:00": 1, "05:00": 1}
    assert (after, side) == ({**before, "01:00": 3, "06:00": 1}, [])
    assert plain.results() == after
    assert len(plain.lines("count_hours_side")) == 1
    plain.mill.close()


def test_a_failing_window_is_postponed_and_delays_no_other(plain):
    """A row outside its partition: the batch is halved until the window is known, and shown with its partitions."""
    for hour in (8, 9, 11):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.add("2021-03-19 10:00", 61)

    first = plain.run()
    plain.add("2021-03-19 12:00", 1)
    second = plain.run()
    (shown,) = plain.mill.watermarks.show("clicks").programs

    assert (first.state, second.state) == ("COMPLETED", "COMPLETED"), plain.spawner.complaints
    assert plain.results() == {"08:00": 1, "09:00": 1, "11:00": 1, "12:00": 1}
    assert shown.computed == "2021-03-19 13:00:00"
    (postponed,) = shown.postponed
    assert postponed.window == "[2021-03-19 10:00:00, 2021-03-19 11:00:00)"
    assert postponed.partitions == ("day=2021-03-19 hour=10",)
    assert "AssertionError" in postponed.reason
    assert postponed.tried_at > postponed.since_at
    assert plain.sql("SELECT count(*) FROM window_program WHERE retry_at > failing_since") == [(1,)]


def test_a_late_window_that_fails_keeps_its_rows_until_it_can_be_computed(plain):
    """Later windows go on; once its partitions are mended it is replaced, and nothing is left to be tried."""
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2, 99)
    plain.add("2021-03-19 10:00", 1)

    failing = plain.run()
    before = plain.results()
    plain.add("2021-03-19 08:00", 3, how="overwrite")
    plain.settle()

    assert failing.state == "COMPLETED", plain.spawner.complaints
    assert before == {"08:00": 1, "09:00": 1, "10:00": 1}
    assert plain.results() == before
    assert len(plain.lines("hourly")) == 3
    assert plain.sql("SELECT count(*) FROM window_failure") == [(0,)]
    assert plain.sql("SELECT retry_at FROM window_program") == [(None,)]


def test_when_no_window_can_be_computed_the_run_fails(plain):
    """The cause may lie in no single window. The error names a failed window and its partitions."""
    plain.add("2021-03-19 10:00", 61)

    run = plain.run()

    assert run.state == "FAILED"
    assert "window [2021-03-19 10:00:00, 2021-03-19 11:00:00) cannot be computed" in run.exit_reason
    assert "day=2021-03-19 hour=10" in run.exit_reason
    assert plain.sql("SELECT computed FROM window_program") == [(None,)]


def test_where_many_windows_fail_the_rest_is_left_to_the_next_run(plain):
    """Finding each costs some jobs: after eight of one batch the run publishes what it has."""
    for hour in range(12):
        plain.add(f"2021-03-19 {hour:02}:00", 61 if 0 < hour < 11 else 1)

    plain.run()
    first, more = plain.results(), plain.is_more()
    plain.run()

    assert (first, more) == ({"00:00": 1}, True)
    assert plain.results() == {"00:00": 1, "11:00": 1}
    assert plain.sql("SELECT count(*) FROM window_failure") == [(10,)]


@pytest.mark.parametrize("first", [[], ["2021-03-18 22:00"]])
@pytest.mark.parametrize(
    ("windows", "shape", "touched"),
    [
        (TUMBLE.replace("'1' HOUR", "'5' MINUTE"), WindowShape(HOUR // 12, HOUR // 12, 0), 12),
        (HOP.replace("'3' HOUR", "'24' HOUR"), WindowShape(24 * HOUR, HOUR, 0), 24),
    ],
)
def test_all_windows_of_a_bad_partition_hold_up_no_other(catalog_url, tmp_path, windows, shape, touched, first):
    """A bad partition may have any number of windows.

    The others are computed in the same run, and these after the repair.
    """
    plain = open_plain(tmp_path / "project", catalog_url, windows=windows)
    plain.shape = shape
    plain.add("2021-03-19 00:00", 61)
    for hour in (*first, "2021-03-19 01:00", "2021-03-19 02:00", "2021-03-20 01:00"):
        plain.add(hour, 3)

    run = plain.run()
    before, aside = plain.lines("hourly"), plain.sql("SELECT count(*) FROM window_failure")
    plain.add("2021-03-19 00:00", 7, how="overwrite")
    plain.settle()

    bad = to_wall(datetime.fromisoformat("2021-03-19 00:00"))
    wanted = plain.expected(plain.passed)
    assert run.state == "COMPLETED", run.exit_reason
    assert aside == [(touched,)]
    assert before == [line for line in wanted if int(line.split()[0]) >= bad + HOUR or int(line.split()[1]) <= bad]
    assert plain.lines("hourly") == wanted
    assert plain.sql("SELECT count(*) FROM window_failure") == [(0,)]
    plain.mill.close()


@pytest.mark.parametrize("more", ["", "max_windows=3"])
def test_bad_partitions_in_front_of_all_others_hold_up_none(catalog_url, tmp_path, more):
    """Every window of such a run fails. A window that the run leaves to the next shows that the query is right."""
    plain = open_plain(tmp_path / "project", catalog_url, more=more)
    for hour in range(15):
        plain.add(f"2021-03-19 {hour:02}:00", 61 if hour < 12 else 1)

    plain.run()
    first = plain.results()
    plain.settle()

    assert first == {}
    assert plain.results() == {"12:00": 1, "13:00": 1, "14:00": 1}
    assert plain.sql("SELECT count(*) FROM window_failure") == [(12,)]
    plain.mill.close()


def test_late_windows_that_fail_hold_up_no_other_late_one(plain):
    """A failed window is postponed, and the next run does not try it first."""
    for hour in range(14):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    for hour in range(14):
        plain.add(f"2021-03-19 {hour:02}:00", 61 if hour > 1 else 2)

    plain.settle()

    assert plain.results() == {f"{hour:02}:00": 1 if hour > 1 else 2 for hour in range(14)}
    assert plain.sql("SELECT count(*) FROM window_failure") == [(12,)]


def test_windows_of_a_run_that_is_killed_are_not_forgotten(plain):
    """The message that started it is used up, and the watermark may never move again: the keeper says it once more."""
    scheduler = Scheduler(plain.mill.project.catalog, World(), lambda _launched: None)
    catalog = plain.mill.project.catalog
    keeper = Keeper(catalog, Discoverer(catalog, Narrator(World(), lambda _: None, as_json=False)))
    plain.add("2021-03-19 10:00", 5)
    while scheduler.step() == timedelta(0):
        pass
    (run,) = plain.mill.runs.list(limit=1)
    plain.mill.runs.kill(run.run_id)
    told = plain.is_more()
    plain.sql("UPDATE window_program SET retry_at = 1 RETURNING 1")

    keeper.step()
    while scheduler.step() == timedelta(0):
        pass
    plain.drive()
    keeper.step()

    assert (told, plain.results()) == (False, {"10:00": 1})
    assert plain.sql("SELECT retry_at, failing_since FROM window_program") == [(None, None)]


def test_the_first_windows_start_a_run_where_rows_lie_before_their_partition(catalog_url, tmp_path):
    """The first partition has rows of windows before its time, and the watermark may never move again."""
    plain = open_plain(tmp_path / "project", catalog_url, more="row_lag='72h'")
    plain.add("2021-03-19 10:00", 5 - 72 * 60)

    assert (play(plain), plain.results()) == (1, {"10:00": 1})
    plain.mill.close()


def test_late_rows_of_a_killed_run_are_not_forgotten_where_rows_lie_days_before_their_partition(catalog_url, tmp_path):
    """A partition of a time far behind the computed windows may still hold rows of them."""
    plain = open_plain(tmp_path / "project", catalog_url, more="row_lag='72h'")
    scheduler = Scheduler(plain.mill.project.catalog, World(), lambda _launched: None)
    catalog = plain.mill.project.catalog
    keeper = Keeper(catalog, Discoverer(catalog, Narrator(World(), lambda _: None, as_json=False)))
    lag = 72 * 60
    plain.add("2021-03-19 10:00", 5 - lag)
    plain.settle()
    plain.add("2021-03-19 10:00", 6 - lag)
    while scheduler.step() == timedelta(0):
        pass
    (run,) = plain.mill.runs.list(limit=1)
    plain.mill.runs.kill(run.run_id)
    plain.sql("UPDATE window_program SET retry_at = 1 RETURNING 1")

    keeper.step()
    play(plain)

    assert plain.results() == {"10:00": 2}
    plain.mill.close()


def test_late_rows_that_come_while_a_run_computes_are_not_forgotten_where_rows_lie_days_before(catalog_url, tmp_path):
    """The run's own commit says that work is left."""
    plain = open_plain(tmp_path / "project", catalog_url, more="row_lag='72h'")
    lag = 72 * 60
    plain.add("2021-03-19 10:00", 1 - lag)
    plain.mill.runs.start("shop.count_hours")

    def marked(name: str) -> None:
        if name == "windows.written" and len(plain.lines("clicks")) == 1:
            plain.add("2021-03-19 10:00", 2 - lag)

    plain.drive(World(spawner=plain.spawner, marked=marked))

    assert (plain.results(), plain.is_more()) == ({"10:00": 1}, True)
    plain.mill.close()


def test_programs_that_are_due_at_one_time_are_announced_together(catalog_url, tmp_path):
    """Each by a message of its own, in one commit."""
    plain = open_plain(tmp_path / "project", catalog_url)
    plain.sql(
        "INSERT INTO window_program (program_id, name, definition, seen, revision)"
        " VALUES ('program_2', 'default.shop.another', '', 0, 0) RETURNING 1"
    )
    plain.sql(
        "INSERT INTO window_input (program_id, dataset_id, late)"
        " SELECT 'program_2', dataset_id, late FROM window_input RETURNING 1"
    )
    plain.sql("UPDATE window_program SET retry_at = 1 RETURNING 1")
    plain.sql("UPDATE watermark SET value = 1 RETURNING 1")

    announced = [len(publish_due(plain.mill.project.catalog, WINDOWS)) for _ in range(2)]

    said = plain.sql("SELECT event_key, payload FROM message WHERE event_type = 'backlog' ORDER BY seq, n")
    assert announced == [2, 0]
    assert plain.sql("SELECT count(DISTINCT seq) FROM message WHERE event_type = 'backlog'") == [(1,)]
    assert {key for key, _ in said} == {"backlog:default.clicks"}
    assert {json.loads(text)["dataset"] for _, text in said} == {"default.clicks"}
    names = plain.sql("SELECT name FROM window_program ORDER BY name")
    assert sorted(json.loads(text)["consumer"] for _, text in said) == [name for (name,) in names]
    plain.mill.close()


def test_the_message_of_a_run_says_what_it_has_published(plain):
    """Alerts and subscribers read these fields: each window is new, computed again, failed or mended."""

    def run() -> dict[str, object]:
        assert plain.run().state == "COMPLETED", plain.spawner.complaints
        *_, (text,) = plain.sql("SELECT payload FROM message WHERE event_type = 'windows' ORDER BY seq")
        return json.loads(text)

    def at(hour: int) -> int:
        return to_wall(datetime(2021, 3, 19, hour))  # noqa: DTZ001  # a wall-clock time of UTC

    for hour in (8, 9, 11):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    first = run()
    plain.commit("clicks", {"day=2021-03-19/hour=8": ""}, "overwrite")
    plain.commit("clicks", {"day=2021-03-19/hour=9": f"{at(9)} 3\n{at(9)} 4\n"}, "overwrite")
    plain.commit("clicks", {"day=2021-03-19/hour=12": f"{at(12)} bad\n"})
    second = run()
    plain.add("2021-03-19 12:00", 5, how="overwrite")
    third = run()

    same = {"program": "default.shop.count_hours", "datasets": ["default.clicks"], "late_rows": 0, "outside_rows": 0}
    none = {"closed": 0, "first": None, "last": None, "recomputed": 0, "failed": [], "mended": []}
    eight, eleven, twelve = ([at(hour), at(hour + 1)] for hour in (8, 11, 12))
    moved = {"from": None, "to": at(12), "closed": 3, "first": eight, "last": eleven, "rows": 3}
    assert first == {**same, **none, **moved}
    # The partition of the day is overwritten, with one row for each of its windows that are left.
    changed = {"from": at(12), "to": at(13), "recomputed": 2, "failed": [twelve], "rows": 2}
    assert second == {**same, **none, **changed}
    assert third == {**same, **none, "from": at(13), "to": at(13), "recomputed": 1, "mended": [twelve], "rows": 1}


def test_a_run_that_mends_very_many_windows_announces_them():
    """Its message would be too large, and its commit would fail for ever."""
    state = WindowState(ProgramId("program_1"), "default.shop.count_hours", "", None, 0, 0, 0)
    windows = [Window(WallTime(n * 3_600_000_000), WallTime((n + 1) * 3_600_000_000)) for n in range(20_000)]
    begun = Transaction(WritePointer(1), frozenset(), RunId("run_1"), 1, frozenset())
    move = MoveWindows(begun, (), state, None, 0, failed=windows, mended=windows)

    (payload,) = [json.loads(str(call.params["payload"])) for call in move.writes() if "payload" in call.params]
    assert (len(payload["failed"]), len(payload["mended"])) == (1000, 1000)


def test_metrics_count_what_windows_wait_for_and_what_they_leave_out(catalog_url, tmp_path):
    """A dashboard shows them; each number is worked out by hand."""
    plain = open_plain(tmp_path / "project", catalog_url, more="outside='drop'")

    def measure() -> dict[str, float]:
        labels = ({"dataset": "default.clicks"}, {"program": "default.shop.count_hours"})
        return {one.metric.partition("_")[2]: one.value for one in plain.mill.metrics().samples if one.labels in labels}

    with contextlib.closing(plain.mill):
        before = measure()
        start = to_wall(datetime(2021, 3, 19, 8))  # noqa: DTZ001  # a wall-clock time of UTC
        plain.commit("clicks", {"day=2021-03-19/hour=8": f"{start} 1\n{start - 1} 2\n"})
        plain.commit("clicks", {"day=2021-03-19/hour=9": f"{start + HOUR} bad\n"})
        plain.run()
        plain.add("2021-03-19 12:00", 1)
        with open_transaction(plain.mill.project.catalog, World(), ["default.clicks"], writer=write_texts):
            after = measure()

    assert "window_delay_seconds" not in before
    behind = round(after["window_delay_seconds"] - after["watermark_delay_seconds"])
    assert behind == 3 * 3600, "computed is 10:00, the watermark 13:00"
    # The hours 10 and 11 are one gap.
    names = ("watermark_incomplete_slots", "watermark_missing_slots", "window_slots_waiting", "windows_postponed")
    assert [after[name] for name in (*names, "window_partitions_left_out")] == [0, 1, 1, 1, 1]


def test_of_two_runs_of_one_program_one_publishes(plain):
    """`computed` moves by compare-and-set: the other run has to run again, and finds nothing to do."""
    plain.add("2021-03-19 10:00", 1)
    plain.mill.runs.start("shop.count_hours")
    raced = []

    def marked(name: str) -> None:
        if name == "windows.written" and not raced:
            raced.append(plain.run().state)

    plain.drive(World(spawner=plain.spawner, marked=marked))
    states = {run.state for run in plain.mill.runs.list()}
    plain.settle()

    assert raced == ["COMPLETED"]
    assert states == {"COMPLETED", "PENDING"}
    assert plain.results() == {"10:00": 1}
    assert len(plain.lines("hourly")) == 1


def test_a_run_that_does_not_see_the_windows_that_another_has_published_replaces_none(plain):
    """The run began before the commit of the other one and read the state after it: the rows came twice."""
    plain.add("2021-03-19 10:00", 1)
    plain.mill.runs.start("shop.count_hours")
    raced = []

    def marked(name: str) -> None:
        if name == "begin.after_commit" and not raced:
            raced.append("begun")
            raced.append(plain.run().state)
            plain.mill.watermarks.reset("shop.count_hours")

    plain.drive(World(spawner=plain.spawner, marked=marked))
    refused = [run.exit_reason for run in plain.mill.runs.list() if run.state == "PENDING"]
    lines = len(plain.lines("hourly"))
    plain.settle()

    assert raced == ["begun", "COMPLETED"]
    assert [reason.partition(":")[0] for reason in refused] == ["windows_moved"]
    assert lines == 1
    assert (plain.results(), len(plain.lines("hourly"))) == ({"10:00": 1}, 1)


def test_what_comes_while_a_run_computes_is_not_forgotten(plain):
    """Its commit cannot know that the window will be computed: the run's own commit says that work is left."""
    plain.add("2021-03-19 10:00", 1)
    plain.mill.runs.start("shop.count_hours")

    def marked(name: str) -> None:
        if name == "windows.written" and len(plain.lines("clicks")) == 1:
            plain.add("2021-03-19 10:00", 2)

    plain.drive(World(spawner=plain.spawner, marked=marked))
    before, more = plain.results(), plain.is_more()
    plain.settle()

    assert (before, more) == ({"10:00": 1}, True)
    assert plain.results() == {"10:00": 2}


def test_a_reset_replaces_all_and_lets_another_query_in(plain):
    """Another definition is refused while there are results of the old one."""
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1, 31)
    plain.settle()
    halves = write_app(windows=TUMBLE.replace("'1' HOUR", "'30' MINUTE"))

    with pytest.raises(Exception, match=r"watermark reset shop\.count_hours"):
        plain.deploy(halves)
    plain.mill.watermarks.reset("shop.count_hours")
    plain.deploy(halves)
    plain.settle()

    assert plain.results() == {"08:00": 1, "08:30": 1, "09:00": 1, "09:30": 1}
    assert plain.sql("SELECT count(*) FROM window_result WHERE stale = 1") == [(0,)]


def test_windows_of_another_size_go_with_the_first_run_after_a_reset(plain):
    """A row of the output names the start of its window: in later runs old hours would look like new halves."""
    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1, 31)
    plain.settle()
    plain.mill.watermarks.reset("shop.count_hours")
    plain.deploy(write_app(windows=TUMBLE.replace("'1' HOUR", "'30' MINUTE"), more="max_windows=1"))

    plain.run()

    assert plain.results() == {"08:00": 1}
    plain.settle()
    assert list(plain.results().values()) == [1] * 6


def test_another_query_goes_on_from_a_state_that_was_kept(plain):
    """Published windows stay, but those that a late partition touches: the new query has windows of half an hour."""
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1, 31)
    plain.settle()

    plain.mill.watermarks.reset("shop.count_hours", keep_state=True)
    with pytest.raises(UserError, match="until it is deployed again"):
        plain.mill.why("shop.count_hours/2021-03-19 08:00")
    plain.deploy(write_app(windows=TUMBLE.replace("'1' HOUR", "'30' MINUTE")))
    plain.settle()
    kept = plain.results()
    plain.add("2021-03-19 10:00", 1, 31, 32)
    plain.settle()

    assert kept == {"08:00": 2, "09:00": 2}
    assert plain.results() == {**kept, "10:00": 1, "10:30": 2}
    with pytest.raises(Exception, match=r"watermark reset shop\.count_hours"):
        plain.deploy(write_app())


def test_late_windows_of_another_size_stay_as_they_are_when_the_state_is_kept(sqlite_catalog_url, tmp_path):
    """A run left one of two late windows. The query has windows of half an hour since, and no run has work with it."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="max_windows=1")
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2)
    plain.add("2021-03-19 09:00", 2)
    plain.run()

    plain.mill.watermarks.reset("shop.count_hours", keep_state=True)
    plain.deploy(write_app(windows=TUMBLE.replace("'1' HOUR", "'30' MINUTE")))
    left = plain.sql("SELECT count(*) FROM window_result WHERE stale = 1")
    plain.settle()

    assert left == [(1,)]
    assert plain.results() == {"08:00": 1, "09:00": 2}
    assert plain.sql("SELECT count(*) FROM window_result WHERE stale = 1") == [(0,)]
    plain.mill.close()


def test_a_wrong_zone_is_mended_by_a_deployment(catalog_url, tmp_path):
    """The gap that the mistake left is open again: with `late="drop"` all its data were left out in silence."""
    wrong = open_plain(tmp_path / "project", catalog_url, zone="America/Los_Angeles", more='late="drop"')
    wrong.add("2021-03-19 08:00")
    wrong.settle()
    ahead = wrong.mill.watermarks.list()[0].watermark
    computed = wrong.sql("SELECT computed FROM window_program")
    plain = Plain(wrong.mill)

    deployed = plain.deploy(write_app(more='late="drop"'))
    back = plain.mill.watermarks.list()[0].watermark
    for hour in (9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    again = plain.deploy(write_app(more='late="drop"'))

    assert ahead == back == "2021-03-19 09:00:00"
    assert computed == [(to_wall(datetime(2021, 3, 19, 16)),)]  # noqa: DTZ001  # of UTC
    assert deployed.watermarks == (
        (
            "the watermark of default.clicks moved from 2021-03-19 16:00:00 to 2021-03-19 09:00:00: its times are read "
            "in another way; default.shop.count_hours computes its windows again"
        ),
    )
    assert again.watermarks == ()
    assert plain.results() == {"09:00": 1, "10:00": 1}
    plain.mill.close()


def test_a_statement_that_changes_how_times_are_read_has_windows_computed_again(catalog_url, tmp_path):
    """Published windows stay until they are replaced. Windows with deleted partitions are not lost."""
    plain = open_plain(tmp_path / "project", catalog_url, more='late="drop"')
    for hour in (6, 8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    with open_transaction(plain.mill.project.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").drop({"hour": 6})

    (done,) = plain.mill.sql("ALTER TABLE clicks SET ('partition.row-lag'='20 min')")
    before = plain.results()
    plain.settle()

    assert before == {"06:00": 1, "08:00": 1, "09:00": 1, "10:00": 1}
    assert "moved from 2021-03-19 11:00:00 to 2021-03-19 10:40:00" in done.notices[0]
    assert plain.results() == before
    assert plain.sql("SELECT window_start FROM window_result WHERE stale = 1") != []  # 10:00 is not closed any more
    plain.add("2021-03-19 11:00", 1, 2)
    plain.settle()
    assert plain.results() == before
    assert plain.sql("SELECT count(*) FROM window_result WHERE stale = 1") == [(0,)]
    plain.mill.close()


def test_a_rewind_opens_windows_again(catalog_url, tmp_path):
    """Also where late partitions are dropped: what comes now counts in the windows beyond."""
    plain = open_plain(tmp_path / "project", catalog_url, more='late="drop"')
    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()

    rewound = plain.mill.watermarks.rewind("clicks", "2021-03-19 09:00")
    plain.settle()
    before = plain.results()
    plain.add("2021-03-19 09:00", 2)
    plain.add("2021-03-19 10:00", 2)
    plain.settle()

    assert (rewound.watermark, rewound.programs) == ("2021-03-19 09:00:00", ("default.shop.count_hours",))
    assert before == {"08:00": 1, "09:00": 1, "10:00": 1}
    assert plain.results() == {"08:00": 1, "09:00": 2, "10:00": 2}
    plain.mill.close()


def test_a_rewind_refuses_the_commit_of_a_run_that_computes_beyond(plain):
    """The run has planned by the earlier watermark."""
    plain.add("2021-03-19 09:00", 1)

    def marked(name: str) -> None:
        if name == "windows.written" and not plain.results():
            plain.mill.watermarks.rewind("clicks", "2021-03-19 09:00")

    run = plain.run(world=World(spawner=plain.spawner, marked=marked))

    assert run.state == "PENDING"
    assert plain.results() == {}
    plain.settle()
    assert plain.results() == {}
    plain.add("2021-03-19 09:00", 2)
    plain.settle()
    assert plain.results() == {"09:00": 2}


def test_a_rewind_refuses_the_commit_of_a_run_that_reads_the_state_after_it(plain):
    """The run had begun before: it saw the earlier watermark, and computed beyond the rewind."""
    plain.add("2021-03-19 09:00", 1)
    moved = []

    def marked(name: str) -> None:
        if name == "begin.after_commit" and not moved:
            moved.append(plain.mill.watermarks.rewind("clicks", "2021-03-19 09:00"))

    run = plain.run(world=World(spawner=plain.spawner, marked=marked))
    plain.settle()

    assert (run.state, run.exit_reason.partition(":")[0]) == ("PENDING", "windows_moved")
    assert plain.results() == {}
    plain.add("2021-03-19 09:00", 2)
    plain.settle()
    assert plain.results() == {"09:00": 2}


def test_another_query_refuses_the_commit_of_a_run_of_the_old_one(plain):
    """Its windows would stand under the new query for ever. The run began after the reset that let the query in."""
    plain.add("2021-03-19 09:00", 1)
    plain.settle()
    plain.mill.watermarks.reset("shop.count_hours")
    deployed = []

    def marked(name: str) -> None:
        if name == "windows.written" and not deployed:
            deployed.append(plain.deploy(write_app(windows=TUMBLE.replace("'1' HOUR", "'30' MINUTE"))))

    run = plain.run(world=World(spawner=plain.spawner, marked=marked))
    plain.settle()

    assert (run.state, run.exit_reason.partition(":")[0]) == ("PENDING", "windows_moved")
    assert plain.results() == {"09:00": 1}
    assert plain.sql("SELECT DISTINCT window_end - window_start FROM window_result") == [(1_800_000_000,)]


def test_a_reset_of_some_windows_leaves_no_late_ones_behind(plain):
    """A late partition that no run has seen yet touches a window that the reset leaves as it is."""
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2)

    plain.mill.watermarks.reset("shop.count_hours", "2021-03-19 09:00")
    plain.settle()

    assert plain.results() == {"08:00": 2, "09:00": 1}


def test_an_hour_without_rows_is_passed_before_any_row_is_there(plain):
    """The first partition of all has no rows, so that not even the columns are known; no window comes of it."""
    with open_transaction(plain.mill.project.catalog, World(), ["default.clicks"], writer=write_texts) as tx:
        tx.fileset("default.clicks").create_empty({"day": date(2021, 3, 19), "hour": 8})
    plain.settle()
    plain.add("2021-03-19 09:00", 1)
    plain.settle()

    assert plain.results() == {"09:00": 1}


@pytest.mark.parametrize("late", ["recompute", "drop", "side", "error"])
def test_a_query_without_a_bound_is_refused_whatever_becomes_of_late_rows(catalog_url, tmp_path, late):
    """A reset replaces windows under each policy: the run would not find their rows."""
    plain = open_plain(tmp_path / "project", catalog_url, more=f'late="{late}"')
    app = write_app(more=f'late="{late}"').replace("window_start, window_end, count(*)", "count(*)")

    with contextlib.closing(plain.mill), pytest.raises(UserError, match="SELECT window_start or window_end unchanged"):
        plain.deploy(app)


def test_a_key_of_the_output_that_the_query_lacks_is_refused_at_deployment(plain):
    """Not by the first run, which would blame a partition of the input."""
    before = plain.sql("SELECT definition FROM window_program")
    app = write_app()

    with pytest.raises(
        UserError, match=r"day of default\.hourly is not among the columns of the query \(window_start,"
    ):
        plain.deploy(app.replace(", to_date(window_start) AS day", ", to_date(window_start) AS date"))

    assert plain.sql("SELECT definition FROM window_program") == before


def test_a_key_that_a_star_does_not_bring_is_refused_at_deployment(plain):
    """The columns of the table are known at deployment; `*` selects those of the table and of its windows."""
    plain.add("2021-03-19 10:00", 0)
    app = write_app()
    query = "SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day"
    app = app.replace(" GROUP BY window_start, window_end", "").replace('{"day": "date"}', '{"month": "string"}')

    with pytest.raises(
        UserError, match=r"month of default\.monthly is not .*\(line, ts, day, hour, window_start, window_"
    ):
        plain.deploy(app.replace(query, "SELECT *").replace("hourly", "monthly"))
    with pytest.raises(UserError, match=r"day of default\.other is not .*\(line, ts, hour, window_start"):
        plain.deploy(app.replace(query, "SELECT * EXCEPT (day)").replace("hourly", "other").replace("month", "day"))
    plain.deploy(app.replace(query, "SELECT *, 'x' AS month").replace("hourly", "months"))


def test_a_key_that_a_star_does_not_bring_is_reported_by_the_first_run(catalog_url, tmp_path):
    """The columns are known by then: the run computes no window, and no partition of the input is blamed."""
    app = write_app()
    query = "SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day"
    app = app.replace(" GROUP BY window_start, window_end", "").replace(
        '{"day": "date"})\napp.add', '{"m": "string"})\napp.add'
    )
    plain = Plain(open_windows(tmp_path / "project", catalog_url, app.replace(query, "SELECT *")).mill)
    plain.add("2021-03-19 10:00", 0)

    run = plain.run()

    assert run.state == "FAILED"
    assert "m of default.hourly is not among the columns of the query (line, ts, day," in run.exit_reason
    assert plain.sql("SELECT count(*) FROM window_failure") == [(0,)]
    plain.mill.close()


def write_local_times(world, rows, fileset, directory, columns=None):
    """Write what `write_texts` does, with times without a zone."""
    written = write_texts(world, rows, fileset, directory, columns)
    return replace(written, schema=ColumnSchema(written.schema.text.replace('"timestamp"', '"timestamp_ntz"')))


def test_a_zone_for_times_without_one_is_refused_when_their_type_is_known(catalog_url, tmp_path):
    """By the first commit that brings the columns (test_columns); else by the next deployment, and by each run."""
    plain = open_plain(tmp_path / "project", catalog_url, zone="Europe/Berlin")
    with open_transaction(plain.mill.project.catalog, World(), ["default.clicks"], writer=write_local_times) as tx:
        tx.fileset("default.clicks").append({"day=2021-03-19/hour=10": "1616144400000000 1\n"})
    app = write_app("Europe/Berlin")
    said = r"column 'ts' of default\.clicks .* leave out 'partition\.time-zone'='Europe/Berlin' \(in Python zone=\)"

    run = plain.run()
    with pytest.raises(UserError, match=said):
        plain.deploy(app)
    with pytest.raises(UserError, match=said):
        plain.deploy(app[: app.index("hourly =")])

    assert run.state == "FAILED"
    assert re.search(said, run.exit_reason)
    assert plain.sql("SELECT count(*) FROM window_failure") == [(0,)]
    plain.mill.close()


def test_late_rows_that_are_dropped_are_counted(catalog_url, tmp_path):
    """By partition, in the run that passes them over, in its message, and in `watermark show`."""
    plain = open_plain(tmp_path / "project", catalog_url, more='late="drop"')
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2, 3)
    plain.add("2021-03-19 10:00", 1)
    run = plain.run()
    plain.add("2021-03-19 08:00", 4)
    plain.settle()

    shown = plain.mill.watermarks.show("clicks").programs[0].left_out
    said = [json.loads(text)["late_rows"] for (text,) in plain.sql(WINDOW_MESSAGES)]
    facts = next(one for one in plain.mill.runs.show(run.run_id).facts["outputs"] if "notes" in one)
    plain.mill.watermarks.reset("shop.count_hours")
    after = plain.mill.watermarks.show("clicks").programs[0].left_out

    assert (shown.partitions, shown.late_rows, shown.outside_rows) == (1, 3, 0)
    assert [(one.partition, one.late_rows) for one in shown.some] == [("day=2021-03-19 hour=8", 3)]
    assert [number for number in said if number] == [2, 1]
    assert "2 late rows of default.clicks (day=2021-03-19 hour=8) are left out" in facts["notes"][0]
    assert (after.partitions, after.late_rows) == (0, 0)
    plain.mill.close()


def test_rows_outside_their_partition_that_are_dropped_are_counted(catalog_url, tmp_path):
    """By partition, in the run that reads it, its message, and `watermark show`; once, however often it is read."""
    plain = open_plain(tmp_path / "project", catalog_url, windows=HOP, more='outside="drop"')

    def show():
        found = plain.mill.watermarks.show("clicks").programs[0].left_out
        return found.outside_rows, {one.partition: one.outside_rows for one in found.some}

    plain.add("2021-03-19 08:00", 1, 60, -1, 2)
    plain.add("2021-03-19 09:00", 1)
    run = plain.run()
    facts = next(one for one in plain.mill.runs.show(run.run_id).facts["outputs"] if "notes" in one)
    said = [json.loads(text)["outside_rows"] for (text,) in plain.sql(WINDOW_MESSAGES)]
    plain.settle()
    first = show()
    plain.add("2021-03-19 09:00", 1, 61, how="overwrite")
    plain.settle()
    second = show()
    plain.add("2021-03-19 08:00", 1, how="overwrite")
    plain.settle()
    third = show()
    plain.mill.watermarks.reset("shop.count_hours")

    assert first == (2, {"day=2021-03-19 hour=8": 2})
    assert "2 rows of default.clicks (day=2021-03-19 hour=8) lie outside the time of their" in facts["notes"][0]
    assert said == [2]
    assert second == (3, {"day=2021-03-19 hour=8": 2, "day=2021-03-19 hour=9": 1})
    assert third == (1, {"day=2021-03-19 hour=9": 1})
    assert show() == (0, {})
    plain.mill.close()


def test_rows_of_a_dropped_partition_are_no_longer_counted_as_left_out(catalog_url, tmp_path):
    """They are nowhere any more; a window run that was under way meanwhile brings them back in vain."""
    plain = open_plain(tmp_path / "project", catalog_url, more='outside="drop"')
    for hour in (8, 9):
        opens = plain.zone.opens(datetime(2021, 3, 19, hour))  # noqa: DTZ001  # a wall-clock time
        plain.commit("clicks", {f"day=2021-03-19/hour={hour}": f"{opens} 1\n{opens + HOUR} 2\n"})
    plain.settle()
    before = plain.mill.watermarks.show("clicks").programs[0].left_out
    with open_transaction(plain.mill.project.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").drop({"day": date(2021, 3, 19), "hour": 8})
    after = plain.mill.watermarks.show("clicks").programs[0].left_out

    assert (before.partitions, before.outside_rows) == (2, 2)
    assert (after.partitions, after.outside_rows) == (1, 1)
    assert [one.partition for one in after.some] == ["day=2021-03-19 hour=9"]
    plain.mill.close()


def test_rows_may_be_late_and_others_outside_of_one_partition(catalog_url, tmp_path):
    """Each number is kept by itself: the late ones add up, those outside are what the partition holds.

    With `drop` a row that comes late and lies outside is in both: no run reads a partition only to tell them apart.
    """
    plain = open_plain(tmp_path / "project", catalog_url, windows=HOP, more='outside="drop", late="drop"')
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1, 90)
    plain.settle()
    plain.add("2021-03-19 09:00", 2, 95)
    plain.settle()
    plain.add("2021-03-19 10:00", 1)
    plain.settle()

    shown = plain.mill.watermarks.show("clicks").programs[0].left_out

    numbers = {one.partition: (one.late_rows, one.outside_rows) for one in shown.some}
    assert numbers == {"day=2021-03-19 hour=8": (0, 1), "day=2021-03-19 hour=9": (2, 2)}
    assert (shown.partitions, shown.late_rows, shown.outside_rows) == (2, 2, 3)
    plain.mill.close()


def test_another_late_policy_holds_at_once(catalog_url, tmp_path):
    """The next late partition starts the program, though the watermark does not move and nothing is deployed."""
    plain = open_plain(tmp_path / "project", catalog_url, more='late="drop"')
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2)
    dropped = plain.is_more()

    plain.mill.sql("ALTER TABLE clicks SET ('partition.late-policy'='recompute')")
    announced = plain.is_more()
    plain.settle()
    first = plain.results()
    plain.add("2021-03-19 08:00", 3)
    more = plain.is_more()
    plain.settle()

    assert (dropped, announced, more) == (False, True, True)
    assert first == {"08:00": 2, "09:00": 1}
    assert plain.results() == {"08:00": 3, "09:00": 1}
    plain.mill.close()


WINDOW_MESSAGES = "SELECT payload FROM message WHERE event_type = 'windows' ORDER BY seq"
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["add", "overwrite"]), st.integers(0, 27), st.sets(st.integers(-90, 149), max_size=3)
        ),
        st.tuples(st.just("run"), st.just(0), st.just(set())),
        st.tuples(st.just("kill"), st.integers(0, 6), st.just(set())),
    ),
    min_size=1,
    max_size=10,
)
MARKS = ["driver.begun", "windows.planned", "output.written", "windows.written", "driver.before_commit",
         "commit.before_message", "driver.committed"]  # fmt: skip
_numbers = itertools.count()


class Killed(BaseException):
    """The process ends here."""


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(PLACES),
    st.sampled_from([TUMBLE, HOP, CUMULATE]),
    st.sampled_from(["", "max_windows=2", "gap='wait'", "outside='include'", "outside='include', max_windows=2"]),
    EVENTS,
)
def test_results_are_those_of_one_computation_in_every_order_of_arrival(memory_folder, place, windows, more, events):
    """Appends, rewrites, runs, kills in any order, on both days of clock change: all that is closed, exactly once."""
    zone, day = place
    folder = memory_folder / f"p{next(_numbers)}"
    plain = open_plain(folder, f"sqlite:///{folder}.db", zone, windows, more)
    start = datetime.fromisoformat(day) - timedelta(hours=2)
    for event, hour, minutes in events:
        local = start + timedelta(hours=hour)
        if event in {"add", "overwrite"}:
            how = "append" if event == "add" else "overwrite"
            within = {*plain.fit(str(local), minutes)}
            within = minutes if "include" in more and within else within
            plain.add(str(local), *within, how=how) if within else None
        elif event == "run":
            assert plain.run().state == "COMPLETED", plain.spawner.complaints
        else:
            kill(plain, MARKS[hour])
    if not plain.sql("SELECT 1 FROM watermark WHERE value IS NOT NULL"):
        plain.mill.close()
        return
    plain.settle()
    assert plain.lines("hourly") == plain.expected(plain.passed)
    plain.mill.close()


def kill(plain: Plain, mark: str, program: str = "shop.count_hours") -> None:
    """A run that dies at `mark`, and what its runner does then."""
    run_id = plain.mill.runs.start(program).run_id

    def marked(name: str) -> None:
        if name == mark:
            raise Killed

    with contextlib.suppress(Killed):
        plain.drive(World(spawner=plain.spawner, marked=marked))
    end_attempt(plain.mill.project.catalog, run_id, 1, AttemptEnd(Cause.LOST, "killed"))
    plain.mill.runs.kill(run_id)
