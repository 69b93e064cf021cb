"""INSERT INTO … SELECT: a window program without an app file, which `tidemill up` runs like any other."""

from __future__ import annotations

import pytest

from tests.sql.conftest import open_windows
from tests.sql.test_window_frames import clicks
from tidemill.app.declared import BadDeclaration
from tidemill.errors import NotFound
from tidemill.mill.access import Access, Role
from tidemill.mill.inserts import BadInsert
from tidemill.mill.statements import BadTable
from tidemill.run.step.spans import DeclaredSpan

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
KEY = "day=2021-03-19 hour={}"
COUNT, SUM = INSERT.format(what="count(*)"), INSERT.format(what="count(ts)")


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


def test_a_caller_of_one_namespace_looks_up_no_snapshot_of_another(clicked):
    """The columns of the snapshot would come out in a table of the caller."""
    other = 'other = tm.App("crm", namespace="other")\nother.snapshot("names", key=["a"])\n'
    clicked.mill.project.config.app.write_text(f"{CLICKS}\n{other}", encoding="utf-8")
    clicked.mill.deploy()
    clicked.mill.sql(TABLE)
    joined = COUNT.replace("HOUR))", "HOUR)) w LEFT SEMI JOIN other.names c ON c.a = w.amount")
    caller = clicked.mill.acting_as("ann", Access(Role.DEVELOPER, "default"))

    with pytest.raises(NotFound):
        caller.sql(joined)
    clicked.mill.sql(joined)


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
    ("options", "told"),
    [
        ("'partition.gap-policy'='wait'", "leave out 'partition.gap-policy'='wait'"),
        ("'partition.time-zone'='Europe/Berlin'", "to the zone of the windows, 'UTC'"),
        ("'partition.late-policy'='drop'", "use recompute or error"),
    ],
)
def test_an_alter_is_refused_if_the_watermark_could_not_follow_its_program(clicked, options, told):
    """Without the check the next run of the program fails, long after the statement."""
    watermark = "WATERMARK FOR window_time AS SOURCE_WATERMARK"
    table = TABLE.replace("n bigint", f"window_time TIMESTAMP_LTZ(3), n bigint, {watermark}")
    timed = COUNT.replace("window_start, count", "window_start, window_time, count").replace(
        "GROUP BY", "GROUP BY window_time,"
    )
    given = "'streaming-source.enable'='true', 'partition.time-interval'='1d'"
    clicked.mill.sql(f"{table} WITH ({given}); {timed}")
    before = clicked.mill.watermarks.show("hourly")

    with pytest.raises(BadTable) as refused:
        clicked.mill.sql(f"ALTER TABLE hourly SET ({options})")

    assert "default.sql.hourly writes it, and the watermark of default.hourly is for window_time" in str(refused.value)
    assert told in str(refused.value)
    assert clicked.mill.watermarks.show("hourly") == before


@pytest.mark.parametrize(("size", "every"), [("'1' DAY", "1d"), ("'7' HOUR", "7h")])
def test_a_program_in_a_zone_is_started_once_a_window(clicked, size, every):
    """A run each quarter of an hour would find nothing to do."""
    clicked.deploy(CLICKS.replace('interval="1h"', 'interval="1h", zone="Europe/Berlin"'))

    clicked.mill.sql(TABLE + ";" + COUNT.replace("'1' HOUR", size))

    assert clicked.mill.schedules.show("sql.hourly").trigger == f"WatermarkPassed(default.clicks, every='{every}')"


def explained(mill, text):
    """Return the line of an EXPLAIN, and its rows except those of waits."""
    (done,) = mill.sql(f"EXPLAIN {text}")
    rows = [(row["part"], row["value"], row["why"], row["partitions"]) for row in done.rows if row["part"] != "waits"]
    return done.said, rows


def test_explain_shows_the_windows_and_partitions_of_the_next_run(clicked):
    """Hour 9 has come after the program computed up to 11:00: its window is late. Nothing is declared or changed."""
    for hour in (10, 11):
        clicked.commit("clicks", {f"day=2021-03-19/hour={hour}": "a line"})
    clicked.mill.sql(f"{TABLE}")
    window, zone = [("window", "[2021-03-19 11:00:00, 2021-03-19 12:00:00)", "closed", [KEY.format(11)])], "2021-03-19 "
    ten = ("window", "[2021-03-19 10:00:00, 2021-03-19 11:00:00)", "closed", [KEY.format(10)])

    new = explained(clicked.mill, COUNT)
    select = explained(clicked.mill, COUNT.replace("INSERT INTO hourly", ""))
    clicked.mill.sql(COUNT)
    computed = 1616151600000000  # 2021-03-19 11:00 UTC
    seen = clicked.sql("SELECT max(commit_seq) FROM tx")[0][0] + 1
    clicked.sql(f"UPDATE window_program SET computed = {computed}, seen = {seen} RETURNING 1")
    clicked.commit("clicks", {"day=2021-03-19/hour=9": "a line"})
    after = explained(clicked.mill, COUNT)
    changed = explained(clicked.mill, SUM)

    watermark = ("watermark", f"{zone}12:00:00", "of default.clicks", [])
    assert new == (
        "the next run of sql.hourly would compute 2 windows of default.clicks",
        [watermark, ("computed", None, "by sql.hourly", []), ten, *window],
    )
    assert select == ("the query would compute 2 windows of default.clicks", [watermark, ten, *window])
    late = ("window", "[2021-03-19 09:00:00, 2021-03-19 10:00:00)", "late partitions", [KEY.format(9)])
    assert after[1] == [watermark, ("computed", f"{zone}11:00:00", "by sql.hourly", []), late, *window]
    assert changed[0].startswith("default.sql.hourly has another query now; after a reset the next run")
    assert clicked.sql("SELECT revision FROM window_program") == [(0,)]


def test_explain_shows_what_holds_the_watermark_and_the_tables_of_a_query(clicked):
    """A window that does not come has a reason: here an open transaction that has declared its times."""
    clicked.commit("clicks", {"day=2021-03-19/hour=10": "a line"})
    clicked.mill.sql(TABLE)
    span = DeclaredSpan("default.clicks", "2021-03-19 11:00", "2021-03-19 12:00")

    with clicked.mill.transaction([span]) as tx:
        clicked.commit("clicks", {"day=2021-03-19/hour=12": "a line"})
        (held,) = clicked.mill.sql(f"EXPLAIN {COUNT}")
    tables = explained(clicked.mill, "SELECT * FROM clicks c, hourly")

    waits = [row["why"] for row in held.rows if row["part"] == "waits"]
    assert f"transaction {tx.write_pointer} of {tx.run_id} holds the watermark of default.clicks" in waits[0]
    assert tables == (
        "the query would read",
        [
            ("table", "default.clicks", "current", [KEY.format(10), KEY.format(12)]),
            ("table", "default.hourly", "current", []),
        ],
    )


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


@pytest.mark.spark
def test_results_of_narrower_types_are_cast_to_those_of_the_output(clicked, spark):
    """As Flink and Spark do, where each value fits. Capital letters of names do not count."""
    clicked.spark = spark
    clicked.commit("clicks", clicks(spark, ("10:00:00", 1), ("10:30:00", 2)))
    table = "CREATE TABLE wide (window_start TIMESTAMP(3), N bigint, f double, d decimal(20,2), v string)"
    given = "CAST(count(*) AS int) AS n, CAST(1.5 AS float) AS F, CAST(count(*) AS int) AS d, NULL AS v"
    insert = COUNT.replace("hourly", "wide").replace("count(*) AS n", given)
    clicked.mill.sql(f"{table} PARTITIONED BY (day date); {insert}")

    first = [(run.state, run.exit_reason) for run in clicked.play()]
    clicked.commit("clicks", clicks(spark, ("10:40:00", 5)))
    again = [(run.state, run.exit_reason) for run in clicked.play()]
    (shown,) = clicked.mill.sql("SELECT n, f, d, v FROM wide")

    assert (first, again) == ([("COMPLETED", "")], [("COMPLETED", "")])
    assert shown.rows == ({"n": 3, "f": 1.5, "d": 3.0, "v": None},)


@pytest.mark.spark
def test_a_result_whose_type_spark_alone_knows_is_refused_by_the_run(clicked, spark):
    """A deployment does not know the type of every function."""
    clicked.spark = spark
    clicked.commit("clicks", clicks(spark, ("10:00:00", 1)))
    clicked.mill.sql(f"{TABLE}; {COUNT.replace('count(*)', 'max(date_add(ts, 1))')}")

    (run,) = clicked.play()

    told = ": n of default.hourly is BIGINT, and the query gives DATE, which does not fit into it"
    assert told in run.exit_reason
