"""Window programs over several tables: results are worked out by hand, and by one plain computation."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.conftest import open_windows
from tests.sql.hours import CUMULATE, HOP, HOUR, PLACES, TUMBLE, Plain
from tests.sql.plain import count, join_counts, to_lines
from tests.sql.test_window_program import MARKS, kill
from tidemill.app.declared import BadDeclaration
from tidemill.lake.backlog import publish_due
from tidemill.lake.window.retries import WINDOWS
from tidemill.lake.window.window_plan import Grid, WindowShape
from tidemill.mill.metrics import Metric
from tidemill.reasons import Reason
from tidemill.run.step.spans import DeclaredSpan
from tidemill.shapes.partition_time import Zone, from_wall

APP = """
import tidemill as tm
from tests.sql.plain import PlainWindows
from tidemill.run.records.programs import ProgramKind
from tidemill.sql.window_program import WindowProgram

app = tm.App("shop")
clicks, views = (
    app.fileset(name, keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
        "ts", pattern="$day $hour:00:00", interval="1h", zone=zone, late=late,
        idle_timeout=idle))
    for name, zone, late, idle in (("clicks", "UTC", "{clicks}", None), ("views", "{zone}", "{views}", {idle!r})))
hourly = app.fileset("hourly", keys={{"day": "date"}})
app.add_windows(WindowProgram("count_hours", '''
    INSERT INTO hourly
    SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end
     UNION ALL
    SELECT window_start, window_end, count(*), to_date(window_start)
      FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''',
    calculator=PlainWindows), ProgramKind.PYTHON)
app.schedule("count", "count_hours", constraints=[], trigger=tm.AnyOf(
    tm.WatermarkPassed(clicks, every="1h"), tm.WatermarkPassed(views, every="1h")))
"""


def write_app(clicks: str = "recompute", views: str = "recompute", zone: str = "UTC", idle: str | None = None) -> str:
    """The app file, with the late policies of both tables, and the zone and the idle time-out of the second."""
    return APP.format(clicks=clicks, views=views, zone=zone, idle=idle)


def open_both(tmp_path, catalog_url, **given: str) -> Plain:
    """Such a project."""
    return Plain(open_windows(tmp_path / "project", catalog_url, write_app(**given)).mill)


def counts(plain: Plain) -> list[str]:
    """The hour, and the number of rows, of each result."""
    return [f"{(int(start) // 3_600_000_000) % 24} {n}" for start, _, n, _ in map(str.split, plain.lines("hourly"))]


def test_a_window_is_computed_when_the_watermarks_of_all_inputs_have_passed(catalog_url, tmp_path):
    """W of the query is the least of its inputs, and there is none while an input has none."""
    plain = open_both(tmp_path, catalog_url)

    found = []
    for table, hour, rows in (("clicks", 10, 2), ("clicks", 11, 1), ("views", 10, 3), ("views", 12, 1)):
        plain.add_to(table, f"2021-03-19 {hour}:00", *range(rows))
        plain.settle()
        found.append(counts(plain))

    assert found == [[], [], ["10 2", "10 3"], ["10 2", "10 3", "11 1"]]
    (message,) = plain.sql("SELECT payload FROM message WHERE event_type = 'windows' ORDER BY seq DESC LIMIT 1")
    assert json.loads(message[0])["datasets"] == ["default.clicks", "default.views"]
    plain.mill.close()


def test_a_late_partition_of_any_input_has_its_windows_computed_again(catalog_url, tmp_path):
    """And those windows alone: the other hour keeps its transaction."""
    plain = open_both(tmp_path, catalog_url)
    for table in ("clicks", "views"):
        plain.add_to(table, "2021-03-19 10:00", 1, 2)
        plain.add_to(table, "2021-03-19 11:00", 1)
    plain.settle()
    before = dict(plain.sql("SELECT window_start / 3600000000 % 24, write_pointer FROM window_result"))

    plain.add_to("views", "2021-03-19 10:00", 3)
    is_told = plain.is_more()
    plain.settle()

    after = dict(plain.sql("SELECT window_start / 3600000000 % 24, write_pointer FROM window_result"))
    assert is_told
    assert counts(plain) == ["10 2", "10 3", "11 1", "11 1"]
    assert {hour: before[hour] == after[hour] for hour in before} == {10: False, 11: True}
    plain.mill.close()


def test_late_rows_of_each_input_go_to_a_side_table_of_their_own(catalog_url, tmp_path):
    """With the number of rows by input."""
    plain = open_both(tmp_path, catalog_url, clicks="side", views="side")
    for table in ("clicks", "views"):
        plain.add_to(table, "2021-03-19 11:00", 1)
    plain.settle()
    plain.add_to("clicks", "2021-03-19 11:00", 3, 4)
    plain.settle()

    assert counts(plain) == ["11 1", "11 1"]
    assert len(plain.lines("count_hours_side_clicks")) == 2
    assert plain.mill.watermarks.show("clicks").programs[0].left_out.late_rows == 2
    assert plain.mill.watermarks.show("views").programs[0].left_out.late_rows == 0
    plain.mill.close()


def test_inputs_with_several_late_policies_are_refused(catalog_url, tmp_path):
    """A window that is computed again for the one table would count the side rows of the other table too."""
    plain = open_both(tmp_path, catalog_url)

    with pytest.raises(BadDeclaration, match=r"one late policy .*, not default.clicks with 'side', default.views"):
        plain.deploy(write_app(clicks="side"))

    plain.mill.close()


def test_an_idle_input_holds_no_window_and_is_late_when_it_returns(catalog_url, tmp_path):
    """The keeper announces the program when the time comes, without a commit; once, and not again for nothing."""
    plain = open_both(tmp_path, catalog_url, idle="1h")
    for table, hour in (("clicks", 10), ("clicks", 11), ("views", 10)):
        plain.add_to(table, f"2021-03-19 {hour}:00", 1)
    plain.settle()
    waits = plain.sql("SELECT p.retry_at - w.committed_at FROM window_program AS p, watermark AS w, dataset AS d"
                      " WHERE d.name = 'views' AND w.dataset_id = d.dataset_id")  # fmt: skip
    before = counts(plain)
    age = "UPDATE watermark SET committed_at = committed_at - 7200000 RETURNING 1"

    plain.sql(age)
    with plain.mill.transaction([DeclaredSpan("default.views", "2021-03-19 09:00", "2021-03-19 10:00")]):
        pass
    plain.sql("UPDATE window_program SET retry_at = 1 RETURNING 1")
    publish_due(plain.mill.project.catalog, WINDOWS)  # too early: a commit came meanwhile, without rows
    early = plain.is_more(), plain.sql("SELECT retry_at > 1 FROM window_program")[0][0]
    plain.sql(age)
    plain.sql("UPDATE window_program SET retry_at = 1 RETURNING 1")
    due = len(publish_due(plain.mill.project.catalog, WINDOWS))
    announced = plain.is_more()
    why = plain.mill.why("shop.count_hours/2021-03-19 11:00").because[0].code
    plain.settle()
    idle = counts(plain)
    plain.add_to("views", "2021-03-19 11:00", 1, 2)
    plain.settle()

    assert waits == [(3_600_000,)]
    assert early == (False, True)
    assert before == ["10 1", "10 1"]
    assert (due, announced, why) == (1, True, Reason.WINDOW_WAITS_FOR_RUN)
    assert idle == ["10 1", "10 1", "11 1"]
    assert counts(plain) == ["10 1", "10 1", "11 1", "11 2"]
    assert plain.sql("SELECT retry_at FROM window_program") == [(None,)]
    assert not plain.is_more()
    plain.mill.close()


def test_why_names_the_input_that_holds_a_window(catalog_url, tmp_path):
    """And how far it has come."""
    plain = open_both(tmp_path, catalog_url)
    plain.add_to("clicks", "2021-03-19 10:00", 1)
    plain.add_to("clicks", "2021-03-19 11:00", 1)
    plain.add_to("views", "2021-03-19 10:00", 1)
    plain.settle()

    why = plain.mill.why("shop.count_hours/2021-03-19 11:00")

    assert why.because[0].why.endswith("is open: the watermark of default.views stands at 2021-03-19 11:00:00")
    plain.mill.close()


def test_a_table_shows_which_programs_read_it_with_which_other_tables(sqlite_catalog_url, tmp_path):
    """Their windows wait for the watermarks of those tables too."""
    plain = open_both(tmp_path, sqlite_catalog_url)
    plain.add_to("views", "2021-03-19 10:00", 1)

    (program,) = plain.mill.watermarks.show("clicks").programs
    (described,) = plain.mill.sql("DESCRIBE views")

    assert [(one.dataset, one.watermark) for one in program.others] == [("default.views", "2021-03-19 11:00:00")]
    assert described.notices == ("default.shop.count_hours reads the table, and default.clicks",)
    plain.mill.close()


def test_inputs_with_windows_in_several_zones_are_refused(catalog_url, tmp_path):
    """Since windows of one name would close at different times."""
    plain = open_both(tmp_path, catalog_url)

    with pytest.raises(BadDeclaration, match=r"one zone, not default.clicks in UTC, default.views in Asia/Tokyo"):
        plain.deploy(write_app(zone="Asia/Tokyo"))

    plain.mill.close()


def test_a_program_that_reads_another_table_is_another_program(catalog_url, tmp_path):
    """Its published windows are not those of the new query."""
    plain = open_both(tmp_path, catalog_url)
    for table in ("clicks", "views"):
        plain.add_to(table, "2021-03-19 10:00", 1)
    plain.settle()

    with pytest.raises(BadDeclaration, match="would give other windows"):
        plain.deploy(write_app().replace("TABLE views", "TABLE clicks"))

    plain.mill.close()


def test_metrics_say_how_far_windows_are_and_what_they_wait_for(catalog_url, tmp_path):
    """Two hours of one table wait for the other table; one of its hours is missing; late rows were left out."""
    plain = open_both(tmp_path, catalog_url, clicks="drop", views="drop")
    for hour in (10, 11, 13):
        plain.add_to("clicks", f"2021-03-19 {hour}:00", 1)
    plain.add_to("views", "2021-03-19 10:00", 1)
    plain.settle()
    plain.add_to("clicks", "2021-03-19 10:00", 2)
    plain.settle()

    measured = plain.mill.metrics()
    found = {(one.metric, *one.labels.values()): one.value for one in measured.samples}
    ahead = {one[-1]: measured.at.timestamp() - delay for one, delay in found.items() if "delay" in one[0]}
    plain.mill.close()

    assert ahead == {
        "default.clicks": pytest.approx(datetime(2021, 3, 19, 14, tzinfo=UTC).timestamp()),
        "default.views": pytest.approx(datetime(2021, 3, 19, 11, tzinfo=UTC).timestamp()),
        "default.shop.count_hours": pytest.approx(datetime(2021, 3, 19, 11, tzinfo=UTC).timestamp()),
    }
    assert found[Metric.WATERMARK_MISSING_SLOTS, "default.clicks"] == 1
    assert found[Metric.WATERMARK_MISSING_SLOTS, "default.views"] == 0
    assert found[Metric.WATERMARK_OPEN_SLOTS, "default.clicks"] == 0
    assert found[Metric.WATERMARK_HELD, "default.clicks"] == 0
    assert found[Metric.WINDOW_SLOTS_WAITING, "default.shop.count_hours"] == 2
    assert found[Metric.WINDOWS_POSTPONED, "default.shop.count_hours"] == 0
    assert found[Metric.WINDOW_LEFT_OUT, "default.shop.count_hours"] == 1


JOINS = ("", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")
"""The kinds of joins, as the words before JOIN."""


def write_join(windows: str, kind: str = "FULL") -> str:
    """Return a join of windows of clicks and views: the numbers of rows in both, where a kind of join shows them."""

    def side(table: str) -> str:
        counted = f"SELECT window_start, window_end, count(*) AS n FROM {windows.replace('clicks', table)}"
        return f"({counted} GROUP BY window_start, window_end)"

    start, end, left, right = "l.window_start", "l.window_end", "coalesce(l.n, 0)", "coalesce(r.n, 0)"
    if kind in {"RIGHT", "FULL"}:
        start, end = f"coalesce({start}, r.window_start)", f"coalesce({end}, r.window_end)"
    if kind in {"LEFT SEMI", "LEFT ANTI"}:
        right = "0"
    return f"""
    INSERT INTO hourly
    SELECT {start} AS window_start, {end} AS window_end, {left} AS l, {right} AS r, to_date({start}) AS day
      FROM {side("clicks")} l
      {kind} JOIN {side("views")} r
        ON l.window_start = r.window_start AND l.window_end = r.window_end"""


def write_joined(windows: str, kind: str, zone: str, idle: str | None = None) -> str:
    """Return the app file with a join in the place of UNION ALL, of tables in one zone."""
    text = write_app(zone=zone, idle=idle).replace('("clicks", "UTC"', f'("clicks", "{zone}"')
    begin, end = text.index("\n    INSERT"), text.index("''',\n    calculator")
    text = text[:begin] + write_join(windows, kind) + text[end:]
    return text.replace("import PlainWindows", "import join_windows").replace("PlainWindows", f"join_windows({kind!r})")


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("", ["03 1 2"], ["02 2 1", "03 1 2"]),
        ("LEFT", ["02 2 0", "03 1 2"], ["02 2 1", "03 1 2"]),
        ("RIGHT", ["03 1 2", "04 0 1"], ["02 2 1", "03 1 2", "04 0 1"]),
        ("FULL", ["02 2 0", "03 1 2", "04 0 1"], ["02 2 1", "03 1 2", "04 0 1"]),
        ("LEFT SEMI", ["03 1 0"], ["02 2 0", "03 1 0"]),
        ("LEFT ANTI", ["02 2 0"], []),
    ],
)
def test_a_late_row_changes_the_windows_that_a_join_gives(sqlite_catalog_url, tmp_path, kind, first, second):
    """The hour from 2:00 is there twice that night: a late row in its second half is the first view of that hour.

    By hand: the hour, and the rows of both sides. An anti join has no window left then.
    """
    made = open_windows(tmp_path / "project", sqlite_catalog_url, write_joined(TUMBLE, kind, "Europe/Berlin"))
    plain = Plain(made.mill)
    plain.zone = Zone("Europe/Berlin")
    for table, hour, minutes in (
        ("clicks", 2, [5, 65]),
        ("clicks", 3, [1]),
        ("clicks", 5, [1]),
        ("views", 3, [1, 2]),
        ("views", 4, [9]),
    ):
        plain.add_to(table, f"2021-10-31 {hour:02}:00", *minutes)

    def show() -> list[str]:
        plain.settle()
        rows = [line.split() for line in plain.lines("hourly")]
        return [f"{from_wall(int(start)):%H} {left} {right}" for start, _, left, right in rows]

    before = show()
    plain.add_to("views", "2021-10-31 02:00", 70)

    assert before == first
    assert show() == second
    assert not any("got no rows" in str(plain.mill.runs.show(run.run_id)) for run in plain.mill.runs.list())
    plain.mill.close()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["clicks", "views", "run", "clicks", "views", "run", "kill"]),
        st.sampled_from(["append", "overwrite", "drop"]),
        st.integers(0, 4),
        st.lists(st.integers(0, 119), min_size=1, max_size=3),
    ),
    min_size=4,
    max_size=16,
)
_numbers = itertools.count()


@pytest.mark.parametrize(
    ("kinds", "examples"),
    [
        pytest.param(JOINS, 12, id="some"),
        *(pytest.param([one], 40, marks=pytest.mark.long, id=one or "INNER") for one in JOINS),
    ],
)
def test_a_join_is_that_of_one_computation_in_every_order_of_arrival(memory_folder, kinds, examples):
    """Any kind of join, on days of clock change, with rewrites, drops, runs and kills on both sides."""

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(kinds), st.sampled_from(PLACES), st.sampled_from([TUMBLE, HOP, CUMULATE]), EVENTS)
    def play_events(kind, place, windows, events):
        folder = memory_folder / f"j{next(_numbers)}"
        zone, day = place
        plain = Plain(open_windows(folder, f"sqlite:///{folder}.db", write_joined(windows, kind, zone)).mill)
        plain.zone = Zone(zone)
        plain.shape = WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0, windows == CUMULATE)
        for event, how, hour, minutes in events:
            if event == "run":
                assert plain.run().state == "COMPLETED", plain.spawner.complaints
            elif event == "kill":
                kill(plain, MARKS[hour])
            elif how == "drop":
                plain.mill.datasets.drop(event, {"hour": hour})
            elif within := plain.fit(f"{day} 0{hour}:00", minutes):
                plain.add_to(event, f"{day} 0{hour}:00", *within, how=how)
        plain.settle()

        values = plain.find_values().values()
        passed = None if None in values else min(filter(None, values))
        assert plain.lines("hourly") == join_plainly(plain, kind, passed)
        plain.mill.close()

    play_events()


def join_plainly(plain: Plain, kind: str, passed: int | None) -> list[str]:
    """Join the windows of both tables, over all rows, that are closed when both watermarks have `passed` this time."""
    joined = join_counts(*(count(plain.lines(name), plain.shape, plain.zone) for name in ("clicks", "views")), kind)
    grid = Grid(plain.shape, plain.zone)
    return to_lines(
        {window: one for window, one in joined.items() if passed is not None and grid.closes(window) <= passed}
    )
