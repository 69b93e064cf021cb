"""INSERT INTO … SELECT: a window program without an app file, which `tidemill up` runs like any other."""

from __future__ import annotations

import pytest

from tests.sql.conftest import open_windows
from tests.sql.test_window_frames import clicks
from tidemill.app.declared import BadDeclaration
from tidemill.errors import UserError
from tidemill.mill.inserts import BadInsert
from tidemill.mill.statements import BadTable

CLICKS = """
import tidemill as tm
app = tm.App("shop")
app.fileset("clicks", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
"""
TABLE = "CREATE TABLE hourly (window_start TIMESTAMP(3), n bigint) PARTITIONED BY (day date)"
INSERT = """
INSERT INTO hourly SELECT window_start, {what} AS n, to_date(window_start) AS day
  FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start"""
COUNT, SUM = INSERT.format(what="count(*)"), INSERT.format(what="sum(amount)")


@pytest.fixture
def clicked(sqlite_catalog_url, tmp_path):
    """A project whose app declares the table with a watermark, and no program."""
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, CLICKS)
    yield opened
    opened.mill.close()


def test_a_program_of_a_statement_outlives_deployments_and_changes_by_the_rules(clicked):
    """An app file never declared the program, so no deployment of an app file may retire it."""
    clicked.mill.sql(f"{TABLE}; {COUNT}; {COUNT}")
    (deployed,) = clicked.mill.deploy()
    clicked.deploy(CLICKS + "app.fileset('more', keys={'day': 'date'})")
    before = clicked.mill.apps.show("sql")
    clicked.sql("UPDATE window_program SET computed = 5 RETURNING 1")

    with pytest.raises(BadInsert) as refused:
        clicked.mill.sql(SUM)
    clicked.mill.watermarks.reset("sql.hourly", keep_state=True)
    (changed,) = clicked.mill.sql(SUM)
    with pytest.raises(BadDeclaration):
        clicked.deploy(CLICKS.replace('"shop"', '"sql"'))

    assert deployed.apps_left == ()
    assert (before.version, before.programs, before.schedules) == (1, ("hourly",), ("hourly",))
    assert "`tidemill watermark reset sql.hourly` first" in str(refused.value)
    assert changed.said == "program default.sql.hourly computes the windows of default.clicks into default.hourly"
    assert clicked.sql("SELECT computed FROM window_program") == [(5,)]


def test_a_table_can_be_dropped_once_its_program_is(clicked):
    """The table is in use as long as the program is there. Another program of a statement stays."""
    clicked.mill.sql(f"{TABLE}; {TABLE.replace('hourly', 'sums')}; {COUNT}; {SUM.replace('hourly', 'sums')}")
    clicked.sql("UPDATE window_program SET computed = 5 RETURNING 1")

    with pytest.raises(BadTable) as used:
        clicked.mill.sql("DROP TABLE hourly")
    clicked.mill.sql("DROP PROGRAM hourly; DROP TABLE hourly; DROP TABLE hourly_side; DROP PROGRAM IF EXISTS hourly")
    left = clicked.mill.apps.show("sql")
    clicked.mill.sql(f"DROP PROGRAM sums; {TABLE}; {COUNT}")

    assert "it is used by program default.sql.hourly;" in str(used.value)
    assert (left.programs, left.schedules, left.datasets) == (("sums",), ("sums",), ("sums_side",))
    assert clicked.mill.apps.show("sql").programs == ("hourly",)
    assert clicked.sql("SELECT computed FROM window_program") == [(None,), (None,)]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (COUNT.replace("hourly", "hourlie"), "there is no such table: CREATE it first"),
        (COUNT.replace("day", "d"), "day of default.hourly is not among the columns of the query"),
        (COUNT.replace("TABLE clicks", "TABLE clickz"), "did you mean 'default.clicks'?"),
        (COUNT.replace("INTO hourly", "INTO other.hourly"), "write into a table of the configured namespace, default"),
        (COUNT.replace("GROUP BY window_start", ""), "line 2, column 38: an aggregate needs GROUP BY"),
        ("DROP PROGRAM count_hours", "'default.sql.count_hours'"),
    ],
)
def test_a_wrong_insert_is_refused_and_declares_nothing(clicked, statement, told):
    """The errors are those of a declaration in an app file, with the statement as the thing to correct."""
    clicked.mill.sql(TABLE)

    with pytest.raises(UserError) as refused:
        clicked.mill.sql(statement)

    assert told in str(refused.value)
    assert [one.name for one in clicked.mill.apps.list()] == ["default.shop"]


@pytest.mark.spark
def test_up_runs_the_program_on_what_is_there_and_on_what_comes(clicked, spark):
    """The bundle has the app file that the statement wrote: a driver loads it without any file in the project."""
    clicked.spark = spark
    clicked.commit("clicks", clicks(spark, ("10:00:00", 1), ("10:30:00", 2)))
    clicked.mill.sql(f"{TABLE}; {COUNT}")

    first = [(run.state, run.exit_reason) for run in clicked.play()]
    clicked.commit("clicks", clicks(spark, ("11:00:00", 5)))
    second = [(run.state, run.exit_reason) for run in clicked.play()]
    (shown,) = clicked.mill.sql("SELECT hour(window_start) AS h, n FROM hourly ORDER BY 1")

    assert (first, second) == ([("COMPLETED", "")], [("COMPLETED", "")])
    assert shown.rows == ({"h": 10, "n": 2}, {"h": 11, "n": 1})
