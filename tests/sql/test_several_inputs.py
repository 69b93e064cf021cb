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
from tests.sql.plain import count, join_counts, to_texts
from tests.sql.test_window_program import MARKS, kill
from tidemill.app.declared import BadDeclaration
from tidemill.lake.backlog import publish_due
from tidemill.lake.window.retries import WINDOWS
from tidemill.lake.window.window_plan import Grid, WindowShape
from tidemill.mill.metrics import Metric
from tidemill.reasons import Reason
from tidemill.run.step.spans import DeclaredSpan
from tidemill.shapes.partition_time import Zone

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


JOIN = """
    INSERT INTO hourly
    SELECT coalesce(l.window_start, r.window_start) AS window_start, coalesce(l.window_end, r.window_end) AS window_end,
           coalesce(l.n, 0) AS l, coalesce(r.n, 0) AS r, to_date(coalesce(l.window_start, r.window_start)) AS day
      FROM (SELECT window_start, window_end, count(*) AS n FROM {clicks} GROUP BY window_start, window_end) l
      FULL JOIN (SELECT window_start, window_end, count(*) AS n FROM {views} GROUP BY window_start, window_end) r
        ON l.window_start = r.window_start AND l.window_end = r.window_end"""
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["clicks", "views", "clicks", "views", "run", "kill"]),
        st.sampled_from(["append", "overwrite", "drop"]),
        st.integers(0, 4),
        st.lists(st.integers(0, 59), min_size=1, max_size=3),
    ),
    max_size=14,
)
_numbers = itertools.count()


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PLACES), st.sampled_from([TUMBLE, HOP, CUMULATE]), EVENTS)
def test_a_join_is_that_of_one_computation_in_every_order_of_arrival(memory_folder, place, windows, events):
    """Also on days of clock change, with rewrites, drops, runs and kills on both sides: each window exactly once."""
    zone, day = place
    folder = memory_folder / f"j{next(_numbers)}"
    query = JOIN.format(clicks=windows, views=windows.replace("clicks", "views"))
    begin, end = APP.index("\n    INSERT"), APP.index("''',\n    calculator")
    text = (APP[:begin] + query.replace("{", "{{").replace("}", "}}") + APP[end:]).replace("PlainWindows", "PlainJoin")
    text = text.replace('("clicks", "UTC"', '("clicks", "{zone}"')
    text = text.format(clicks="recompute", views="recompute", zone=zone, idle=None)
    plain = Plain(open_windows(folder, f"sqlite:///{folder}.db", text).mill)
    plain.zone = Zone(zone)
    plain.shape = WindowShape(HOUR if windows == TUMBLE else 3 * HOUR, HOUR, 0, windows == CUMULATE)
    for event, how, hour, minutes in events:
        if event == "run":
            assert plain.run().state == "COMPLETED", plain.spawner.complaints
        elif event == "kill":
            kill(plain, MARKS[hour])
        elif how == "drop":
            plain.mill.datasets.drop(event, {"hour": hour})
        elif plain.has(f"{day} 0{hour}:00"):
            plain.add_to(event, f"{day} 0{hour}:00", *minutes, how=how)
    plain.settle()

    values = [value for (value,) in plain.sql("SELECT value FROM watermark")]
    passed = -1 if None in values else min(values)
    joined = join_counts(*(count(plain.lines(name), plain.shape, plain.zone) for name in ("clicks", "views")))
    closed = {
        window: found for window, found in joined.items() if Grid(plain.shape, plain.zone).closes(window) <= passed
    }
    assert plain.lines("hourly") == sorted(line for text in to_texts(closed).values() for line in text.splitlines())
    plain.mill.close()
