"""Window programs over the output of window programs: results are worked out by hand, and by one plain computation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql import near
from tests.sql.cascades import BEGIN, FIRST, SECOND, Cascade, open_cascade, open_kinds, write_app
from tests.sql.conftest import open_windows
from tests.sql.hours import CUMULATE, HOP, HOUR, PLACES
from tests.sql.plain import PlainWindows, Row, Texts
from tests.sql.sessions import write_sessions
from tests.sql.test_window_program import MARKS, kill
from tidemill.app.declared import BadDeclaration
from tidemill.errors import UserError
from tidemill.lake.window.cascade import OutputReach
from tidemill.lake.window.window_plan import Grid, Sessions, WindowShape
from tidemill.shapes.partition_time import Instant, Zone
from tidemill.sql.batches import Batch


@pytest.mark.parametrize("column", ["window_time", "window_start"])
def test_the_watermark_of_an_output_follows_its_window_program(catalog_url, tmp_path, column):
    """Not its partitions: the first hour of a day completes no day."""
    cascade = open_cascade(tmp_path, catalog_url, column=column)

    found = []
    for hour, rows in ((9, 1), (10, 2), (11, 4), (12, 8)):
        cascade.add(f"2021-03-19 {hour:02}:00", *range(rows))
        cascade.settle_both()
        found.append((cascade.watermark_of("hourly"), cascade.shown("shifts")))

    # By hand: 1 + 2 + 4 rows from 9 to 12, when the hour from 11 on is computed.
    assert found == [("10:00", []), ("11:00", []), ("12:00", ["09 7"]), ("13:00", ["09 7"])]
    assert cascade.announced() == 0
    moved = cascade.sql("SELECT count(*) FROM message WHERE event_key = 'watermark:default.hourly'")
    assert moved == [(4,)]
    cascade.mill.close()


def test_windows_that_overlap_hold_a_watermark_of_their_begin(tmp_path):
    """At 11:00 the window [09:00, 12:00) is open: a row with its begin comes later."""
    found = {}
    for column in ("window_time", "window_start"):
        folder = tmp_path / column
        folder.mkdir()
        cascade = open_cascade(folder, f"sqlite:///{folder}/catalog.db", column=column, windows=HOP)
        for hour in (9, 10):
            cascade.add(f"2021-03-19 {hour:02}:00", 1)
        cascade.run()
        found[column] = cascade.watermark_of("hourly")
        cascade.mill.close()

    assert found == {"window_time": "11:00", "window_start": "09:00"}


def test_new_and_late_windows_of_one_begin_are_one_change(sqlite_catalog_url, tmp_path):
    """Windows of CUMULATE share a begin: [09:00, 10:00) comes again with [09:00, 11:00) and others."""
    cascade = open_cascade(tmp_path, sqlite_catalog_url, column="window_start", windows=CUMULATE)
    cascade.add("2021-03-19 09:00", 1)
    cascade.run()
    cascade.add("2021-03-19 09:00", 2)
    cascade.add("2021-03-19 10:00", 1)
    cascade.add("2021-03-19 12:00", 1)

    run = cascade.run()

    assert run.state == "COMPLETED", cascade.spawner.complaints
    assert cascade.shown("hourly") == ["09 2", "09 3", "09 3", "12 1"]
    (change,) = cascade.sql(
        f"SELECT begins - {BEGIN + 9 * HOUR} FROM window_change WHERE commit_seq > {run.write_pointer}"
    )
    assert change == (0,)
    cascade.mill.close()


def test_a_window_that_is_computed_again_is_late_data_for_the_next_program(catalog_url, tmp_path):
    """For its own window alone, though its partition has the rows of the whole day."""
    cascade = open_cascade(tmp_path, catalog_url)
    for hour in (6, 7, 9, 12):
        cascade.add(f"2021-03-19 {hour:02}:00", 1)
    cascade.add("2021-03-19 14:00", 1)
    cascade.settle_both()
    before, first = cascade.versions(), cascade.shown("shifts")

    cascade.add("2021-03-19 10:00", 1, 2)
    cascade.run()
    told = cascade.announced()
    cascade.settle_both()

    after = cascade.versions()
    assert first == ["06 2", "09 1", "12 2"]
    assert told == 1
    assert cascade.shown("shifts") == ["06 2", "09 3", "12 2"]
    assert {hour for hour in after if before[hour] != after[hour]} == {"09"}
    seen = "SELECT seen FROM window_program WHERE name = 'default.shop.add_up'"
    assert cascade.sql(f"SELECT count(*) FROM window_change WHERE commit_seq < ({seen})") == [(0,)]
    cascade.mill.close()


def test_a_reset_of_the_first_program_replaces_the_rows_of_both(catalog_url, tmp_path):
    """The watermark of the output stays where it is, and what the reset deletes is deleted further on."""
    cascade = open_cascade(tmp_path, catalog_url)
    for hour in (9, 10, 12, 14):
        cascade.add(f"2021-03-19 {hour:02}:00", 1)
    cascade.settle_both()
    first = cascade.shown("shifts")
    cascade.commit("clicks", {"day=2021-03-19/hour=12": ""}, "overwrite")
    cascade.commit("clicks", {"day=2021-03-19/hour=9": f"{BEGIN + 9 * HOUR} 5\n"}, "overwrite")

    cascade.mill.watermarks.reset("shop.count_hours")
    stands = cascade.watermark_of("hourly")
    cascade.settle_both()

    assert (first, stands) == (["09 2", "12 2"], "15:00")
    assert cascade.shown("hourly") == ["09 1", "10 1", "14 1"]
    assert cascade.shown("shifts") == ["09 2", "12 1"]
    assert cascade.lines("shifts")[0].split()[3] == "6"
    cascade.mill.close()


def test_a_watermark_that_is_declared_later_begins_where_the_program_is(sqlite_catalog_url, tmp_path):
    """Not at the end of the day, which the partitions of the output would complete."""
    cascade = open_cascade(tmp_path, sqlite_catalog_url, column="")
    cascade.add("2021-03-19 10:00", 1)
    cascade.run()

    cascade.deploy(write_app())
    stands = cascade.watermark_of("hourly")
    cascade.add("2021-03-19 11:00", 1)
    cascade.settle_both()
    found = cascade.watermark_of("hourly"), cascade.shown("shifts")
    cascade.commit("clicks", {"day=2021-03-19/hour=12": ""}, "overwrite")
    cascade.run()

    assert (stands, found) == ("11:00", ("12:00", ["09 2"]))
    assert cascade.watermark_of("hourly") == "13:00", "a run without rows moves it too"
    cascade.mill.close()


def test_a_program_that_is_declared_later_takes_the_watermark_over(sqlite_catalog_url, tmp_path):
    """Partitions move it until a window program writes the file set, and never back."""
    text = write_app()
    alone = text[: text.index("app.add_windows")]
    cascade = open_cascade(tmp_path, sqlite_catalog_url, alone)
    start = BEGIN - 24 * HOUR
    for day, begin in ((16, start - 48 * HOUR), (18, start)):
        cascade.commit("hourly", {f"day=2021-03-{day}": f"{begin} {begin + HOUR} 1 1\n"})
    before = cascade.mill.watermarks.show("hourly")

    cascade.deploy(text)
    cascade.add("2021-03-19 10:00", 1)
    cascade.run()

    after = cascade.mill.watermarks.show("hourly")
    assert (before.watermark, before.follows, len(before.holes)) == ("2021-03-19 00:00:00", (), 1)
    assert (after.watermark, after.follows) == ("2021-03-19 11:00:00", ("default.shop.count_hours",))
    assert after.holes == ()
    cascade.mill.close()


def test_what_cannot_follow_is_refused(sqlite_catalog_url, tmp_path):
    """Each with the option or the column to change."""
    cascade = open_cascade(tmp_path, sqlite_catalog_url, column="")
    wrong = {
        "SELECT window_time unchanged": {"columns": "window_start, window_end"},
        "of default.hourly to the zone of the windows, 'Europe/Berlin'": {"zone": "Europe/Berlin"},
        "window_start has no time zone, so the windows must lie in UTC": {
            "column": "window_start",
            "zone": "Europe/Berlin",
            "more": "zone='Europe/Berlin'",
        },
        "leave out 'partition.gap-policy'='wait'": {"more": "gap='wait'"},
        "leave out 'window.partial-first'='skip'": {"more": "partial_first='skip'"},
        "'partition.late-policy'='side' would count twice": {"more": "late='side'"},
    }

    for why, options in wrong.items():
        with pytest.raises(BadDeclaration) as caught:
            cascade.deploy(write_app(**options))
        assert why in str(caught.value)
    text = write_app(column="", more='tm.Watermark("window_time", interval="1 day")')
    first = text[text.index("app.add_windows") : text.index('if ""')]
    with pytest.raises(BadDeclaration, match=r"by default\.shop\.again and default\.shop\.count_hours, but"):
        cascade.deploy(text + first.replace("count_hours", "again"))

    cascade.mill.close()


def test_windows_without_results_say_nothing_about_their_partition(sqlite_catalog_url, tmp_path):
    """No partition is missing: the watermark of the output follows the program, and moves without one."""
    text = write_app().replace("PlainWindows), ProgramKind.PYTHON)\nif", "NoResults), ProgramKind.PYTHON)\nif")
    text = text.replace("app = tm", "from tests.sql.test_cascades import NoResults\napp = tm")
    cascade = open_cascade(tmp_path, sqlite_catalog_url, text)
    cascade.add("2021-03-19 09:00", 1)

    run = cascade.run()

    assert (run.state, cascade.watermark_of("hourly")) == ("COMPLETED", "10:00")
    assert cascade.lines("hourly") == []
    assert "got no rows" not in str(cascade.mill.runs.show(run.run_id))
    cascade.mill.close()


@pytest.mark.parametrize(
    ("zone", "day", "hours", "expected"),
    [
        ("Europe/Berlin", "2021-10-31", {1: [59], 2: [5, 65], 3: [0]}, ["02:00", "03:00 of 3", "04:00 of 3"]),
        ("Europe/Berlin", "2021-03-28", {0: [1], 1: [59], 3: [0]}, ["01:00", "03:00 of 2", "04:00 of 2"]),
        ("America/New_York", "2021-11-07", {1: [5, 65], 2: [0]}, ["02:00", "03:00 of 3"]),
        ("Australia/Lord_Howe", "2021-04-04", {1: [5, 85], 2: [0]}, ["02:00", "03:00 of 3"]),
        ("Australia/Lord_Howe", "2021-10-03", {1: [5], 2: [29]}, ["02:30", "03:00 of 2"]),
        ("Asia/Kolkata", "2021-03-19", {1: [5], 2: [59]}, ["02:00", "03:00 of 2"]),
    ],
)
def test_windows_of_windows_lie_on_the_wall_clock(sqlite_catalog_url, tmp_path, zone, day, hours, expected):
    """The clocks skip or repeat an hour, or half of one, within the shift of three hours from midnight.

    By hand: the watermark of the hours as the clocks show it, and the rows of the shift as soon as there is one. The
    hour from 2:00 in Berlin has the minutes 0 to 119 when the clocks go back, and none when they go forward.
    """
    text = write_app(zone=zone, more=f"zone='{zone}'")
    cascade = open_cascade(tmp_path, sqlite_catalog_url, text)
    cascade.zone = Zone(zone)

    found = []
    for hour, minutes in hours.items():
        cascade.add(f"{day} {hour:02}:00", *minutes)
        cascade.settle_both()
        found.append(" of ".join([cascade.watermark_of("hourly"), *(one[3:] for one in cascade.shown("shifts"))]))
    cascade.add(f"{day} 01:00", 30)
    cascade.settle_both()

    assert found == expected
    assert cascade.shown("shifts") == [f"00 {int(expected[-1][-1]) + 1}"]
    cascade.mill.close()


def test_the_reach_of_a_program_is_where_its_earliest_open_window_begins():
    """On window_time it is what is computed; the windows of HOP and CUMULATE begin before they end by several steps."""
    noon = Instant(12 * HOUR)
    shapes: Sequence[tuple[WindowShape, int]] = [
        (WindowShape(HOUR, HOUR, 0), 12),
        (WindowShape(3 * HOUR, HOUR, 0), 10),
        (WindowShape(8 * HOUR, HOUR, 0, cumulative=True), 8),
    ]

    found = [OutputReach.of(Grid(shape, Zone("UTC")), noon) for shape, _ in shapes]

    assert found == [OutputReach(noon, Instant(start * HOUR)) for _, start in shapes]
    assert OutputReach.of(Grid(shapes[0][0], Zone("UTC")), None) == OutputReach(None, None)
    half = OutputReach.of(Grid(shapes[0][0], Zone("UTC")), Instant(noon - HOUR // 2), of_rows=True)
    assert half.window_time == noon - HOUR, "the window of the rows from 11:00 on is open"
    slots = Grid(WindowShape(HOUR, HOUR, 0, sessions=Sessions(HOUR // 2, 4 * HOUR)), Zone("Europe/Lisbon"))
    sessions = OutputReach.of(slots, noon)
    assert sessions == OutputReach(Instant(noon - 1000), Instant(noon - 4 * HOUR)), "a session of 4 hours ends at noon"
    odd = OutputReach.of(Grid(WindowShape(HOUR, HOUR, 500), Zone("UTC")), noon)
    assert odd.window_time == noon - 1000, "the next window ends half a millisecond later"


class NoResults(PlainWindows):
    """Gives out no windows, as a query that leaves out all rows."""

    def compute(self, run, batches: Sequence[Batch]) -> Texts:
        """Nothing."""
        del run, batches
        return {}


class PlainTimes(PlainWindows):
    """Counts the results of an interval join by the time of their left row."""

    def to_row(self, batch: Batch, line: str) -> Row:
        """Return a result as a row of further windows."""
        del batch
        return int(line.split()[2]), 1, 0


NEXT = """
shifts = app.fileset("shifts", keys={{"day": "date"}})
app.add_windows(WindowProgram("add_up", '''
    INSERT INTO shifts SELECT window_start, window_end, sum(n) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE hourly, DESCRIPTOR({column}), INTERVAL '{hours}' HOUR))
     GROUP BY window_start, window_end''',
    calculator={calculator}), ProgramKind.PYTHON)
"""


def follow(text: str, column: str, hours: int, calculator: type[PlainWindows]) -> str:
    """Return an app file whose file set `hourly` has a watermark for `column`, and windows of `hours` over it."""
    made = f'keys={{"day": "date"}}, watermark=tm.Watermark("{column}", interval="1 day"))'
    text = text.replace(
        'hourly = app.fileset("hourly", keys={"day": "date"})', f'hourly = app.fileset("hourly", {made}'
    )
    name = calculator.__name__
    text = text.replace("app = tm", f"from {calculator.__module__} import {name}\napp = tm")
    return text + NEXT.format(column=column, hours=hours, calculator=name)


@pytest.mark.parametrize(("column", "reached"), [("window_time", "12:59"), ("window_start", "09:00")])
def test_the_watermark_of_sessions_follows_them(sqlite_catalog_url, tmp_path, column, reached):
    """At 13:00 a session that ends at 13:00 may come. It may have begun at 9:00, 4 hours before."""
    text = write_sessions()
    if column == "window_time":
        text = text.replace("window_start, window_end", "window_start, window_end, window_time")
    cascade = open_cascade(tmp_path, sqlite_catalog_url, follow(text, column, 3, PlainWindows))

    for hour, minutes in ((8, [40]), (9, [0]), (10, [50]), (11, [])):
        cascade.add(f"2021-03-19 {hour:02}:00", *minutes)
        cascade.settle_both()
    open_shift = cascade.shown("shifts")
    cascade.add("2021-03-19 12:00")
    cascade.settle_both()
    found = cascade.watermark_of("hourly"), cascade.shown("shifts")
    cascade.add("2021-03-19 08:00", 10)
    cascade.settle_both()

    # By hand: the sessions are [08:40, 09:30) of 2 rows and [10:50, 11:20) of one row. A late row is of the first one.
    if column == "window_time":
        assert (open_shift, found, cascade.shown("shifts")) == ([], (reached, ["09 3"]), ["09 4"])
    else:
        assert (open_shift, found, cascade.shown("shifts")) == ([], (reached, ["06 2"]), ["06 3"])
    cascade.mill.close()


def test_the_watermark_of_an_interval_join_follows_its_windows(sqlite_catalog_url, tmp_path):
    """The watermark passes the rows of 10:00 to 12:00 when the views of 12:59 are there."""
    join = 60, 30, "LEFT"
    text = near.APP.format(
        time="l.ts", near=near.near(*join), join=join, late="recompute", idle=None, zone="UTC", outside="side"
    )
    text = follow(text.replace("l.ts AS ts", "l.ts AS window_time"), "window_time", 2, PlainTimes)
    cascade = open_cascade(tmp_path, sqlite_catalog_url, text)

    found = []
    for table, hour, minutes in (
        ("clicks", 10, [5, 40]),
        ("clicks", 11, [20]),
        ("views", 11, [15]),
        ("clicks", 12, []),
        ("views", 12, [0]),
        ("views", 11, [10]),
    ):
        cascade.add_to(table, f"2021-03-19 {hour:02}:00", *minutes)
        cascade.settle_both()
        found.append((cascade.watermark_of("hourly"), cascade.shown("shifts")))

    # By hand: 10:05 has no view, 10:40 that of 11:15, and 11:20 those of 11:15 and 12:00. The late view is of both.
    assert found[:5] == [(None, []), (None, []), ("11:00", []), ("11:00", []), ("12:00", ["10 4"])]
    assert found[5] == ("12:00", ["10 6"])
    cascade.mill.close()


def test_a_watermark_that_cannot_follow_an_interval_join_is_refused(sqlite_catalog_url, tmp_path):
    """The time of a row is its window_time, under this name."""
    join = 60, 30, "FULL"
    text = near.APP.format(
        time=near.row_time("FULL"),
        near=near.near(*join),
        join=join,
        late="recompute",
        idle=None,
        zone="UTC",
        outside="side",
    )

    with pytest.raises(UserError, match=r"have no window_time; SELECT coalesce\(l\.ts, r\.ts\) AS window_time"):
        open_cascade(tmp_path, sqlite_catalog_url, follow(text, "window_time", 2, PlainTimes))


HOURS = st.sampled_from([-4, -1, 0, 1, 2, 3, 4, 23, 25])
"""Hours around the change of clocks, and at the ends of days, from the begin of the day on."""
ROWS = st.tuples(HOURS, st.lists(st.integers(0, 119), min_size=1, max_size=3))
PROGRAMS = st.sampled_from(["count_hours", "add_up"])
APPENDS = st.tuples(st.just("append"), ROWS)
SETTLES = st.tuples(st.just("settle"), st.none())
STEPS = st.lists(
    st.one_of(
        APPENDS,
        APPENDS,
        SETTLES,
        SETTLES,
        st.tuples(st.just("overwrite"), ROWS),
        st.tuples(st.just("drop"), HOURS),
        st.tuples(st.sampled_from(["run", "reset"]), PROGRAMS),
        st.tuples(st.just("kill"), st.tuples(PROGRAMS, st.sampled_from(MARKS))),
    ),
    min_size=5,
    max_size=16,
)
PLACES_OF = [("window_start", PLACES[0]), *(("window_time", place) for place in PLACES)]
"""Columns for a watermark, with places. That of `window_start` is for windows in UTC alone."""
_numbers = itertools.count()


@pytest.mark.parametrize(
    ("firsts", "seconds", "examples"),
    [
        pytest.param([*FIRST], [*SECOND], 12, id="some"),
        *(
            pytest.param([one], [other], 25, marks=pytest.mark.long, id=f"{one} {other}")
            for one in FIRST
            for other in SECOND
        ),
    ],
)
def test_a_cascade_is_one_computation_in_every_order_of_arrival(memory_folder, firsts, seconds, examples):
    """Any two kinds of windows, on days of clock change, with late, rewritten and missing hours, resets and kills."""

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(firsts), st.sampled_from(seconds), st.sampled_from(PLACES_OF), STEPS)
    def play_steps(first, second, by, steps):
        folder = memory_folder / f"cascade{next(_numbers)}"
        column, (zone, day) = by
        kinds = FIRST[first], SECOND[second]
        cascade = open_kinds(folder, f"sqlite:///{folder}.db", column, *kinds, zone, Cascade)
        for act, value in steps:
            take_step(cascade, datetime.fromisoformat(day), act, value)
        cascade.settle_both()

        assert {name: cascade.lines(name) for name in ("hourly", "shifts")} == cascade.compute()
        cascade.mill.close()

    play_steps()


def take_step(cascade, begin, act, value) -> None:
    """Take one of `STEPS` on the day that begins then."""
    if act == "settle":
        cascade.settle_both()
    elif act == "run":
        assert cascade.run(f"shop.{value}").state == "COMPLETED", cascade.spawner.complaints
    elif act == "reset":
        cascade.mill.watermarks.reset(f"shop.{value}")
    elif act == "kill":
        program, mark = value
        kill(cascade, mark, f"shop.{program}")
    elif act == "drop":
        hour = begin + timedelta(hours=value)
        cascade.mill.datasets.drop("clicks", {"day": hour.date(), "hour": hour.hour})
    else:
        hour, minutes = value
        local = str(begin + timedelta(hours=hour))
        if within := cascade.fit(local, minutes):
            cascade.add(local, *within, how=act)


SPARK_APP = """
import tidemill as tm

app = tm.App("shop")
zone = "Europe/Berlin"
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", zone=zone, emit_empty=True))
hourly = app.fileset("hourly", keys={"day": "date"}, watermark=tm.Watermark("window_time", interval="1 day", zone=zone))
shifts = app.fileset("shifts", keys={"day": "date"})
app.window_sql("count_hours", '''
    INSERT INTO hourly
    SELECT window_start, window_end, window_time, coalesce(sum(amount), 0L) + 1 AS total, max(amount) AS most,
           count(*) AS n, -- of rows
           to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS c
     WHERE amount > 0 OR amount IS NOT DISTINCT FROM NULL
     GROUP BY window_start, window_end, window_time''')
app.schedule("count", "count_hours", trigger=tm.WatermarkPassed(clicks, every="1h"))
app.window_sql("add_up", '''
    INSERT INTO shifts
      WITH some AS (SELECT window_time, n, window_start AS of FROM hourly)
    SELECT window_start, window_end, sum(n) AS n, count(*) AS hours, min(of) AS first, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE some, DESCRIPTOR(window_time), INTERVAL '3' HOUR)) GROUP BY window_start, window_end''')
"""


def rows_of(windows, name: str, *columns: str) -> list[tuple[object, ...]]:
    """Return columns of an output, with the hour at which each window begins."""
    found = windows.read(name).selectExpr("date_format(window_start, 'HH') AS hour", *columns).collect()
    return sorted(tuple(row) for row in found)


@pytest.mark.spark
def test_spark_computes_windows_of_windows_and_of_hours_without_rows(sqlite_catalog_url, tmp_path, spark):
    """An hour that never came is a row of the hours, and counts in its shift; so is one that loses its rows.

    The first partition of all has no rows. Its window waits for the first rows, which say the types of the columns.
    """
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, SPARK_APP, spark=spark)
    with windows.transaction("clicks") as tx:
        tx.fileset("default.clicks").create_empty({"day": date(2021, 3, 19), "hour": 9})
    first = windows.run()

    def add(hour: int, *amounts: int) -> None:
        time = f"2021-03-19 {hour}:15:00 Europe/Berlin"
        values = ", ".join(f"({amount}L)" for amount in amounts)
        made = f"SELECT TIMESTAMP'{time}' AS ts, amount, DATE'2021-03-19' AS day, {hour} AS hour"
        windows.commit("clicks", spark.sql(f"{made} FROM VALUES {values} AS v(amount)"))

    add(9, 1, 2)
    started = windows.schedule()
    add(11, 5)
    for name in ("count_hours", "add_up"):
        run = windows.run(f"shop.{name}")
        assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
    before = [rows_of(windows, "hourly", "total", "most", "n"), rows_of(windows, "shifts", "n", "hours")]
    windows.mill.datasets.drop("clicks", {"hour": 9})
    add(10, 7)
    for name in ("count_hours", "add_up"):
        run = windows.run(f"shop.{name}")
        assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)

    assert (first.state, started) == ("COMPLETED", ["default.shop.count"])
    # By hand: an hour without rows has no sum, which is 0 here, and 1 is added to each.
    assert before == [[("09", 4, 2, 2), ("10", 1, None, 0), ("11", 6, 5, 1)], [("09", 3, 3)]]
    assert rows_of(windows, "hourly", "total", "most", "n") == [("09", 1, None, 0), ("10", 8, 7, 1), ("11", 6, 5, 1)]
    assert rows_of(windows, "shifts", "n", "hours", "date_format(first, 'HH')") == [("09", 2, 3, "09")]
    windows.mill.close()
