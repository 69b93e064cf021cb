"""Sessions without Spark: whatever order partitions come in, the results are those of one computation."""

from __future__ import annotations

import itertools
import re
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.hours import PLACES
from tests.sql.sessions import PlainSessions, open_sessions, write_sessions
from tests.sql.test_window_program import MARKS, kill
from tidemill.errors import UserError
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

_numbers = itertools.count()


@pytest.fixture
def hours(sqlite_catalog_url, tmp_path):
    """Sessions of lines."""
    opened = open_sessions(tmp_path / "project", sqlite_catalog_url)
    yield opened
    opened.mill.close()


def test_rows_exactly_the_gap_apart_are_one_session_that_is_closed_after_its_last_gap(hours):
    """The watermark at 11:00 is not after the end of a session whose last row is of 10:30."""
    hours.add("2021-03-19 10:00", 0, 30)
    hours.add("2021-03-19 08:00", 2, 32)
    hours.add("2021-03-19 09:00", 2)
    hours.settle()
    at_eleven = hours.results()
    hours.add("2021-03-19 11:00", 0, 32)
    hours.settle()

    assert at_eleven == ["08:02 09:32 3"]
    assert hours.results() == ["08:02 09:32 3", "10:00 11:30 3"]


def test_a_session_over_three_partitions_and_several_runs_comes_out_whole(hours):
    """Each run sees one hour more. The rows of other parity are other sessions."""
    hours.add("2021-03-19 08:00", 40, 41)
    hours.settle()
    hours.add("2021-03-19 09:00", 8, 36)
    hours.settle()
    hours.add("2021-03-19 10:00", 4, 28)
    hours.settle()

    assert hours.results() == ["08:40 10:58 5", "08:41 09:11 1"]


def test_a_session_that_goes_on_for_the_longest_time_is_closed_by_force(hours):
    """From 01:10 on it is cut after 4 hours at 05:10, then at each multiple of 4 hours: 08:00."""
    for hour in range(1, 10):
        hours.add(f"2021-03-19 {hour:02}:00", *((10, 20, 50) if hour < 9 else (0, 20)))
    hours.settle()
    runs = [hours.mill.runs.show(run.run_id) for run in hours.mill.runs.list()]

    assert hours.results() == ["01:10 05:10 12 forced", "05:10 08:00 9 forced", "08:10 09:50 5"]
    told = [str(run) for run in runs if "closed by force" in str(run)]
    assert told
    assert "2 sessions of default.clicks went on for 4h: closed by force" in told[0]


def test_a_late_row_joins_two_published_sessions_into_one(hours):
    """Both rows of the output are replaced by one."""
    hours.add("2021-03-19 08:00", 20)
    hours.add("2021-03-19 09:00", 10)
    hours.add("2021-03-19 10:00", 10)
    hours.settle()
    before = hours.results()
    hours.add("2021-03-19 08:00", 40)
    hours.settle()

    assert before == ["08:20 08:50 1", "09:10 09:40 1", "10:10 10:40 1"]
    assert hours.results() == ["08:20 09:40 3", "10:10 10:40 1"]


def test_after_a_reset_another_gap_replaces_all_sessions(hours):
    """Rows of sessions that are no longer there are deleted."""
    for hour in (8, 9):
        hours.add(f"2021-03-19 {hour:02}:00", 0, 20)
    hours.settle()
    before = hours.results()
    hours.mill.watermarks.reset("shop.count_hours")
    hours.deploy(write_sessions(10))
    hours.settle()

    assert before == ["08:00 08:50 2", "09:00 09:50 2"]
    assert hours.results() == ["08:00 08:10 1", "08:20 08:30 1", "09:00 09:10 1", "09:20 09:30 1"]


def test_a_run_reads_the_carry_and_new_partitions_alone(hours):
    """A late partition is read with those after it. Then the next run goes on from a carry that has its rows."""
    read = []
    for hour in (8, 9, 10, 11, 9, 12):
        PlainSessions.read.clear()
        hours.add(f"2021-03-19 {hour:02}:00", *range(0, 60, 20))
        hours.settle()
        read.append(set().union(*PlainSessions.read))

    assert read == [{8}, {9}, {10}, {11}, {9, 10, 11}, {12}]
    assert hours.lines("hourly") == hours.expected(hours.passed)


def test_sessions_whose_carry_is_damaged_are_computed_from_the_files_of_their_partitions(hours):
    """No reset is needed: a run drops the carry, and writes a new one."""
    read = []
    for hour in (8, 9, 10, 11):
        if hour == 10:
            assert hours.lose("count_hours_carry") > 0
        PlainSessions.read.clear()
        hours.add(f"2021-03-19 {hour:02}:00", *range(0, 60, 20))
        hours.settle()
        read.append(set().union(*PlainSessions.read))

    assert read == [{8}, {9}, {8, 9, 10}, {11}]
    assert hours.lines("hourly") == hours.expected(hours.passed)


def test_a_killed_run_leaves_neither_sessions_nor_a_carry(hours):
    """Both come with the commit of the next run, which begins where the killed run began."""
    hours.add("2021-03-19 08:00", 40)
    hours.settle()
    hours.add("2021-03-19 09:00", 0, 20)
    kill(hours, "driver.before_commit")
    killed = hours.results(), hours.list_carries()
    hours.add("2021-03-19 10:00", 50)
    hours.settle()

    assert killed == ([], ["09:00"])
    assert hours.results() == ["08:40 09:50 3"]
    assert hours.list_carries() == ["11:00", "09:00"]


def test_sessions_that_cannot_be_computed_delay_no_earlier_ones_and_come_out_when_their_partition_is_mended(hours):
    """All slots that its rows may reach are postponed: 9 hours. Meanwhile there are no new carries."""
    for hour in (7, 8):
        hours.add(f"2021-03-19 {hour:02}:00", 10)
        hours.settle()
    hours.add("2021-03-19 09:00", 61)
    hours.add("2021-03-19 20:00", 10)
    hours.add("2021-03-19 21:00", 10)
    hours.run()
    before = hours.results(), hours.list_carries()
    hours.add("2021-03-19 09:00", 0, how="overwrite")
    hours.settle()

    assert before == (["07:10 07:40 1", "08:10 08:40 1", "20:10 20:40 1", "21:10 21:40 1"], ["09:00", "08:00"])
    assert hours.lines("hourly") == hours.expected(hours.passed)
    assert hours.list_carries() == ["19:00"]


def test_carries_are_dropped_when_no_late_partition_can_need_them(hours):
    """A late row reaches twice 4 hours and a half."""
    for hour in range(14):
        hours.add(f"2021-03-19 {hour:02}:00", 50)
        hours.settle()

    assert hours.list_carries() == [f"{hour:02}:00" for hour in range(14, 4, -1)]


@pytest.mark.parametrize("column", ["window_time", "window_start"])
def test_a_session_over_a_column_of_its_own_name_is_refused(column):
    """The window function has a column of that name. Under another name it is the time of the rows."""
    query = (
        f"INSERT INTO o SELECT window_end FROM TABLE(SESSION(TABLE hourly, DESCRIPTOR({column}), INTERVAL '1' HOUR))"
    )
    renamed = query.replace("TABLE hourly", f"(SELECT {column} AS at FROM hourly)").replace(f"TOR({column})", "TOR(at)")

    with pytest.raises(BadStatement, match=f"line 1, column [0-9]+: SESSION has a column {column} of its own"):
        read_query(query)
    assert read_query(renamed).tables == {"hourly": column}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("late='drop'", "SESSION needs late='recompute' or 'error'"),
        ("allowed_lateness='7 days'", "without allowed_lateness on default.clicks"),
        ("partial_first='skip'", "SESSION needs partial_first='emit'"),
        ("session_max='30 min'", "the gap of SESSION must be shorter than the longest session"),
    ],
)
def test_a_table_whose_sessions_would_depend_on_the_order_of_arrival_is_refused(hours, option, why):
    """When the app is deployed."""
    text = write_sessions(more=option)

    with pytest.raises(UserError, match=re.escape(why)):
        hours.deploy(text.replace("session_max='4h', session_max", "session_max"))


def test_another_longest_session_needs_a_reset(hours):
    """Published sessions have been cut by the previous one."""
    hours.add("2021-03-19 08:00", 0)
    hours.settle()
    other = write_sessions().replace("session_max='4h'", "session_max='5h'")

    with pytest.raises(UserError, match=r"reset shop\.count_hours` first"):
        hours.deploy(other)
    with pytest.raises(UserError, match="reset` that program first"):
        hours.mill.sql("ALTER TABLE clicks SET ('window.session.max'='5h')")


def test_a_statement_refuses_what_would_stop_a_program_that_has_published(hours):
    """A deployment refuses it too. No run would repeat what a row of the past changes in the sessions."""
    hours.add("2021-03-19 08:00", 0)
    hours.settle()

    with pytest.raises(UserError, match=r"count_hours reads it, and its query would be refused: .*SESSION needs late="):
        hours.mill.sql("ALTER TABLE clicks SET ('partition.late-policy'='drop')")


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "overwrite"]), st.integers(0, 15), st.sets(st.integers(0, 119), max_size=4)),
        st.tuples(st.just("run"), st.just(0), st.just(set())),
        st.tuples(st.just("kill"), st.integers(0, 6), st.just(set())),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(PLACES),
    st.sampled_from(["", "max_windows=2", "gap='wait'"]),
    EVENTS,
)  # fmt: skip
def test_sessions_are_those_of_one_computation_in_every_order_of_arrival(memory_folder, place, more, events):
    """Appends, rewrites, runs, kills in any order: all sessions that are closed, exactly once."""
    zone, day = place
    folder = memory_folder / f"s{next(_numbers)}"
    hours = open_sessions(folder, f"sqlite:///{folder}.db", 110, zone, more)
    start = datetime.fromisoformat(day) - timedelta(hours=2)
    for event, hour, minutes in events:
        local = start + timedelta(hours=hour)
        if event in {"add", "overwrite"}:
            within = hours.fit(str(local), minutes)
            hours.add(str(local), *within, how="append" if event == "add" else "overwrite") if within else None
        elif event == "run":
            assert hours.run().state == "COMPLETED", hours.spawner.complaints
        else:
            kill(hours, MARKS[hour])
    if hours.sql("SELECT 1 FROM watermark WHERE value IS NOT NULL"):
        hours.settle()
        assert hours.lines("hourly") == hours.expected(hours.passed)
    hours.mill.close()
