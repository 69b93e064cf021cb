# ruff: noqa: E501  # statements on one line each, as a table
"""Statements: those of the seed unchanged, what they change, and queries that are refused."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from tidemill.cli.main import cli
from tidemill.config import BadConfig
from tidemill.durations import parse_duration
from tidemill.errors import UserError
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.janitor import sweep
from tidemill.mill.mill import open_project
from tidemill.mill.statements import BadTable
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.shapes.watermark_spec import WatermarkSpec
from tidemill.sql.ddl import read_statement
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

HIVE = """
CREATE TABLE hive_table (
  x int,
  y string,
  z int,
  ts timestamp,
  WATERMARK FOR ts AS SOURCE_WATERMARK
) PARTITIONED BY (pt_day string, pt_hour string)
TBLPROPERTIES (
  'streaming-source.enable'='true',
  'streaming-source.monitor-interval'='1s',
  'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00',
  'partition.time-interval'='1h'
);
"""
FILES = """
CREATE TABLE fs_table (
    x int,
    y string,
    z int,
    ts TIMESTAMP(3),
    pt_day string,
    pt_hour string,
    WATERMARK FOR ts AS SOURCE_WATERMARK
) PARTITIONED BY (pt_day, pt_hour)
  WITH (
    'connector' = 'filesystem',
    'path' = 'data/file',
    'format' = 'parquet',

    'streaming-source.enable'='true',
    'streaming-source.monitor-interval'='1s',
    'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00',
    'partition.time-interval'='1h'
);
"""
WITHOUT = "CREATE TABLE hive_table (x int, ts timestamp) PARTITIONED BY (pt_day string, pt_hour string)"
ADD = """
ALTER TABLE hive_table ADD (
  WATERMARK FOR ts AS SOURCE_WATERMARK
);

ALTER TABLE hive_table SET (
  'streaming-source.enable'='true',
  'streaming-source.monitor-interval'='1s',
  'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00',
  'partition.time-interval'='1h'
);
"""
SELECT = """
SELECT window_start, window_end, COUNT(*), MAX(y), SUM(z)
FROM TABLE(
   TUMBLE(TABLE hive_table, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end;
"""


@pytest.fixture
def mill(sqlite_catalog_url, tmp_path):
    """Empty project: the results of a statement are the same on each database."""
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as opened:
        yield opened


@pytest.fixture
def on_each(catalog_url, tmp_path):
    """An empty project, on each database."""
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as opened:
        yield opened


def described(mill, table):
    """Columns with their types, keys and watermark."""
    (done,) = mill.sql(f"DESCRIBE {table}")
    return {row["column"]: (row["type"], row["key"], row["watermark"]) for row in done.rows}


def test_the_statements_of_the_seed_run_unchanged(on_each):
    """Hive's form, the file system's, and ALTER TABLE on a table that is there."""
    (hive,) = on_each.sql(HIVE)
    (files,) = on_each.sql(FILES)

    columns = described(on_each, "hive_table")
    assert [notice.split("'")[1] for notice in hive.notices] == ["streaming-source.monitor-interval"]
    assert columns["ts"] == ("timestamp", False, "SOURCE_WATERMARK")
    assert columns["pt_hour"] == ("string", True, None)
    assert described(on_each, "fs_table")["ts"] == ("timestamp_ntz", False, "SOURCE_WATERMARK")
    assert "fs_table" in files.said
    assert on_each.datasets.show("fs_table").location.endswith("/data/file")
    assert [view.dataset for view in on_each.watermarks.list()] == ["default.fs_table", "default.hive_table"]


def test_a_watermark_is_added_to_a_table_that_is_there_and_dropped(on_each):
    """ADD and SET, in the seed's order; what it then has is what CREATE TABLE would have given."""
    on_each.sql(WITHOUT)
    before = on_each.watermarks.list()
    on_each.sql(ADD)
    added = on_each.watermarks.show("hive_table")
    on_each.sql("ALTER TABLE hive_table SET ('partition.gap-policy'='wait'); ALTER TABLE hive_table DROP WATERMARK")

    assert list(before) == []
    assert added.column == "ts"
    assert added.options["partition.time-interval"] == "1h"
    assert list(on_each.watermarks.list()) == []
    assert described(on_each, "hive_table")["ts"] == ("timestamp", False, None)


def test_the_query_of_the_seed_is_one_window_program(mill):
    """With an output named, it is what `app.window_sql` takes."""
    query = read_query(f"INSERT INTO hourly {SELECT}")

    assert (query.tables, query.shape.size) == ({"hive_table": "ts"}, 3_600_000_000)
    assert "TUMBLE" not in query.select(str, lambda rows, *_: rows)


def test_the_tables_of_a_namespace_are_listed(mill):
    """Plain names are of the configured namespace, and so is the list without a name."""
    mill.sql(f"{HIVE}; {WITHOUT.replace('hive_table', 'other.plain')}")

    own, other = mill.sql("SHOW TABLES; SHOW TABLES IN other")

    assert own.rows == ({"table": "default.hive_table", "watermark": "ts"},)
    assert other.rows == ({"table": "other.plain", "watermark": None},)


USES = """
import tidemill as tm

app = tm.App("shop")

@app.python(writes=["default.hive_table"])
def fill(run):
    pass

app.schedule("on_hive", fill, trigger=tm.NewPartitions("default.hive_table"))
app.fileset("hourly", keys={"day": "date"})
app.window_sql("count_hours", '''
    INSERT INTO hourly SELECT window_start, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE hive_table, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start''')
"""


def test_a_table_that_something_uses_is_not_dropped(on_each):
    """The refusal names each use: what reads or writes the table would fail later, and say less."""
    on_each.sql(HIVE)
    on_each.project.config.app.write_text(USES, encoding="utf-8")
    on_each.deploy()

    with on_each.transaction(["hive_table"]) as tx, pytest.raises(BadTable) as refused:
        on_each.sql("DROP TABLE hive_table")
    with pytest.raises(BadTable) as declared:
        on_each.sql("DROP TABLE hourly")

    used = "program default.shop.count_hours, program default.shop.fill, schedule default.shop.on_hive"
    assert f"it is used by {used}, the open transaction {tx.write_pointer}; nothing" in str(refused.value)
    assert "it is declared by app shop" in str(declared.value)
    assert [one.dataset for one in on_each.watermarks.list()] == ["default.hive_table"]


DAY = "pt_day=2021-03-19"


def write_file(folder, **columns):
    """Write a row of the partition DAY, with `columns` beside `x`, and return the file as a commit names it."""
    path = folder / DAY / "a.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.table({"x": pa.array([1], pa.int32()), **columns}), path)
    return {"name": f"{DAY}/a.parquet", "bytes": path.stat().st_size, "rows": 1}


def test_a_dropped_table_frees_its_name_and_its_files(on_each):
    """Another table of that name can be made at once. The janitor deletes the files like those of replaced partitions."""
    on_each.sql("CREATE TABLE hive_table (x int) PARTITIONED BY (pt_day string)")
    catalog, begun = on_each.project.catalog, on_each.transactions.begin(["hive_table"])
    written = write_file(Path(begun.outputs[0].location))
    change = {"dataset": "hive_table", "key": DAY, "op": "append", "files": [written]}
    on_each.transactions.commit(begun.write_pointer, [change])
    files = [file.path for file in on_each.datasets.files("hive_table")]

    (dropped, missing) = on_each.sql("DROP TABLE hive_table; DROP TABLE IF EXISTS hive_table")
    on_each.sql("CREATE TABLE hive_table (x string) PARTITIONED BY (day date)")
    on_each.transactions.commit(on_each.transactions.begin(["hive_table"]).write_pointer, [])
    expired = expire_superseded(catalog, timedelta(0))
    sweep(catalog)

    assert (dropped.said, missing.said) == ("table default.hive_table is dropped", "there is no table hive_table")
    assert list(described(on_each, "hive_table")) == ["x", "day"]
    assert expired == len(files) == 1
    assert on_each.catalog.audit().findings == ()
    assert not Path(files[0]).exists()


def test_a_directory_of_another_program_outlives_its_table(mill):
    """Tidemill stops the listings, and deletes none of the files, not even later."""
    mill.sql(
        "CREATE TABLE fs_table (x int) PARTITIONED BY (pt_day string) WITH ("
        "'path'='others', 'streaming-source.enable'='true', 'partition.time-interval'='1d')"
    )
    catalog = mill.project.catalog
    write_file(mill.project.config.folder / "others")
    told: list[str] = []
    Discoverer(catalog, Narrator(mill.project.world, told.append, as_json=False)).list_due()
    listed = [file.path for file in mill.datasets.files("fs_table")]

    (dropped,) = mill.sql("DROP TABLE fs_table")
    expire_superseded(catalog, timedelta(0))
    sweep(catalog)

    assert [Path(path).exists() for path in listed] == [True], told
    assert "stay: other programs write that directory" in dropped.notices[0]
    assert list(mill.datasets.list()) == []


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("ts TIMESTAMP(3) NOT NULL", "timestamp_ntz"),
        ("ts TIMESTAMP(3) NOT NULL COMMENT 'of the event'", "timestamp_ntz"),
        ("ts TIMESTAMP(3) WITH LOCAL TIME ZONE", "timestamp"),
        ("ts TIMESTAMP WITH LOCAL TIME ZONE NOT NULL", "timestamp"),
        ("ts TIMESTAMP(6) WITHOUT TIME ZONE", "timestamp_ntz"),
        ("ts TIMESTAMP_LTZ(3) NOT NULL", "timestamp"),
        ("ts TIMESTAMP COMMENT 'of the event'", "timestamp"),
        ("ts DECIMAL(10,2) NOT NULL", "decimal(10,2)"),
        ("ts DECIMAL(10) COMMENT 'money'", "decimal(10,0)"),
        ("ts VARCHAR(10) NOT NULL", "string"),
        ("ts ARRAY<MAP<STRING, ARRAY<BIGINT>>> NOT NULL", "array<map<string,array<long>>>"),
        ("ts STRUCT<name: STRING, age INT COMMENT 'years'>", "struct<name:string,age:integer>"),
        ("ts ROW<price DECIMAL(10,2), at TIMESTAMP(3)>", "struct<price:decimal(10,2),at:timestamp_ntz>"),
    ],
)
def test_types_are_written_as_hive_and_flink_write_them(mill, column, kind):
    """With a precision, a zone, NOT NULL and a comment, in this order."""
    mill.sql(f"CREATE TABLE t (x int, {column}, y string) PARTITIONED BY (d date)")

    assert [row[0] for row in described(mill, "t").values()] == ["integer", kind, "string", "date"]


def test_a_zone_is_refused_for_times_without_one_when_it_is_set(mill):
    """Not when the first window is computed; and the windows' zone likewise."""
    mill.sql(FILES)

    for option in ("partition.time-zone", "window.time-zone"):
        with pytest.raises(UserError, match=f"leave out '{option}'='Asia/Tokyo'"):
            mill.sql(f"ALTER TABLE fs_table SET ('{option}'='Asia/Tokyo')")


def test_a_watermark_records_the_zone_of_the_session_that_declares_it(mill):
    """The default follows neither a later session nor a later statement; a time without a zone has none to record."""
    tokyo, berlin = "SET TIME ZONE 'Asia/Tokyo'; ", "SET 'table.local-time-zone' = 'Europe/Berlin'; "
    given = HIVE.replace("hive_table", "given").replace("'1h'", "'1h', 'partition.time-zone'='America/Lima'")
    mill.sql(
        f"{HIVE.replace('hive_table', 'before')} {tokyo} {HIVE} {FILES} {given} {berlin} {WITHOUT.replace('hive', 'a')}"
    )

    def zones() -> dict[str, str]:
        return {view.dataset.removeprefix("default."): view.zone for view in mill.watermarks.list()}

    declared = zones()
    lag = ("before", "hive_table")
    mill.sql(berlin + "".join(f"ALTER TABLE {one} SET ('partition.row-lag'='1h');" for one in lag))
    mill.sql(berlin + ADD.replace("hive", "a"))
    altered = zones()
    reset = "ALTER TABLE hive_table RESET ('partition.time-zone');"
    mill.sql(f"SET spark.sql.session.timeZone = 'Asia/Kolkata'; {reset}")
    kolkata = zones()["hive_table"]
    mill.sql(reset)

    assert declared == {"before": "UTC", "hive_table": "Asia/Tokyo", "fs_table": "UTC", "given": "America/Lima"}
    assert altered == {**declared, "a_table": "Europe/Berlin"}
    assert (kolkata, zones()["hive_table"]) == ("Asia/Kolkata", "UTC")


APP = """
import tidemill as tm

app = tm.App("shop")
for name, options in ({tables}):
    app.fileset(name, keys={{"day": "date"}}, columns=options.pop("columns", None),
                watermark=tm.Watermark("ts", interval="1d", **options))
"""


def test_the_zone_of_the_project_is_recorded_where_a_declaration_names_none(sqlite_catalog_url, tmp_path):
    """In SQL and in Python. A later change of the project's zone changes no table that is there."""
    tables = "('plain', {}), ('given', {'zone': 'America/Lima'}), ('walls', {'columns': 'ts timestamp(3)'})"

    def declare(zone: str, tables: str, sql: str) -> dict[str, str]:
        named = f'catalog = "{sqlite_catalog_url}"\n[spark.conf]\n"spark.sql.session.timeZone" = "{zone}"\n'
        (tmp_path / "tidemill.toml").write_text(named)
        (tmp_path / "app.py").write_text(APP.format(tables=tables))
        with closing(open_project(tmp_path, create=True)) as mill:
            mill.deploy()
            mill.sql(sql)
            return {view.dataset.removeprefix("default."): view.zone for view in mill.watermarks.list()}

    berlin = declare("Europe/Berlin", tables, HIVE)
    more = f"{tables}, ('later', {{}})"
    tokyo = declare("Asia/Tokyo", more, "ALTER TABLE plain SET ('partition.row-lag'='1h')")

    assert berlin == {"plain": "Europe/Berlin", "given": "America/Lima", "walls": "UTC", "hive_table": "Europe/Berlin"}
    assert tokyo == {**berlin, "later": "Asia/Tokyo"}
    with pytest.raises(BadConfig, match=r"'spark.conf.spark.sql.session.timeZone' .*there is no zone 'Berlin'"):
        declare("Berlin", tables, "")


READER = """
import tidemill as tm

app = tm.App("shop")
app.fileset("clicks", keys={{"day": "date"}}, schema="evolve", columns="{columns}",
            watermark=tm.Watermark("ts", interval="1d"))
app.fileset("hourly", keys={{"day": "date"}})
app.window_sql("count", "INSERT INTO hourly SELECT window_start, {column}, day FROM {hour}")
"""


def test_one_deployment_brings_a_column_and_its_first_reader(sqlite_catalog_url, tmp_path):
    """The columns come before the queries that name them. A name that is in neither is refused as before."""
    hour = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n')
    with closing(open_project(tmp_path, create=True)) as mill:
        for columns, column in (("a int, ts timestamp", "a"), ("a int, ts timestamp, b int", "b")):
            (tmp_path / "app.py").write_text(READER.format(columns=columns, column=column, hour=hour))
            mill.deploy()
        (tmp_path / "app.py").write_text(READER.format(columns=columns, column="c", hour=hour))

        with pytest.raises(UserError, match="there is no column c: there are a, ts, b, day"):
            mill.deploy()
        assert [row["column"] for row in mill.sql("DESCRIBE clicks")[0].rows] == ["a", "ts", "b", "day"]


def test_a_duration_is_written_in_either_way(mill):
    """Before, one option refused a form that another accepted."""
    mill.sql(HIVE)
    for one, other in (("15m", "15 min"), ("1h30m", "90 minutes")):
        mill.sql(f"ALTER TABLE hive_table SET ('partition.row-lag'='{one}', 'watermark.max-ahead'='{other}')")
        fileset = Fileset.of(mill.project.catalog.read(lambda db: mill.project.dataset(db, "hive_table")))
        assert parse_duration(one) == parse_duration(other)
        spec = fileset.watermark
        assert spec.row_lag == spec.max_ahead == parse_duration(one) // timedelta(microseconds=1)


def test_an_option_has_one_value_under_all_its_names(mill):
    """SET and RESET by another name of the option changed nothing, without a word."""
    mill.sql(HIVE)

    def timeout() -> timedelta | None:
        fileset = Fileset.of(mill.project.catalog.read(lambda db: mill.project.dataset(db, "hive_table")))
        return fileset.watermark.idle_timeout

    found = []
    for change in ("SET ('{}'='1h')", "SET ('{}'='2h')", "RESET ('{}')"):
        for name in ("scan.watermark.idle-timeout", "watermark.idle-timeout"):
            mill.sql(f"ALTER TABLE hive_table {change.format(name)}")
            found.append(timeout())
            if change.startswith("RESET"):
                break
    hour = timedelta(hours=1)

    assert found == [hour, hour, 2 * hour, 2 * hour, None]


def test_what_a_watermark_needs_cannot_be_reset(mill):
    """RESET of the interval, ADD where there is one: refused, nothing changed."""
    mill.sql(HIVE)
    before = mill.watermarks.show("hive_table")

    with pytest.raises(UserError, match="a watermark needs it"):
        mill.sql("ALTER TABLE hive_table RESET ('partition.time-interval')")
    with pytest.raises(UserError, match="write MODIFY WATERMARK"):
        mill.sql("ALTER TABLE hive_table ADD WATERMARK FOR ts AS SOURCE_WATERMARK()")

    assert mill.watermarks.show("hive_table") == before


def test_a_monitored_table_without_a_watermark_needs_no_interval(mill):
    """The interval says when windows end. A watermark that comes later needs it."""
    mill.sql(
        "CREATE TABLE fs_table (x int, ts timestamp) PARTITIONED BY (pt_day string) WITH ("
        "'path'='others', 'streaming-source.enable'='true', 'streaming-source.monitor-interval'='2s')"
    )
    write_file(mill.project.config.folder / "others", ts=pa.array([0], pa.timestamp("us", "UTC")))
    told: list[str] = []
    Discoverer(mill.project.catalog, Narrator(mill.project.world, told.append, as_json=False)).list_due()

    with pytest.raises(UserError, match=r"'partition\.time-interval'='' is refused: a watermark needs it"):
        mill.sql("ALTER TABLE fs_table ADD WATERMARK FOR ts AS SOURCE_WATERMARK")
    with pytest.raises(UserError, match="use a duration above 0"):
        mill.sql("ALTER TABLE fs_table SET ('streaming-source.monitor-interval'='0 ms')")

    assert len(list(mill.datasets.files("fs_table"))) == 1, told
    (table,) = mill.datasets.list()
    assert table.spec["monitor_every"] == "2s"


def test_the_watermark_may_be_for_another_column(mill):
    """Its options stay: they say how the times of partitions are read."""
    mill.sql(HIVE.replace("ts timestamp,", "ts timestamp, at timestamp,"))

    def spec() -> WatermarkSpec:
        return Fileset.of(mill.project.catalog.read(lambda db: mill.project.dataset(db, "hive_table"))).watermark

    before = spec()
    (done,) = mill.sql("ALTER TABLE hive_table MODIFY WATERMARK FOR at AS SOURCE_WATERMARK()")

    assert (before.column, spec().column) == ("ts", "at")
    assert spec() == replace(before, column="at")
    assert "watermark" in done.said


def test_if_exists_and_if_not_exists_say_so(mill):
    """For scripts that run more than once."""
    first, again = mill.sql(f"{WITHOUT}; {WITHOUT.replace('TABLE', 'TABLE IF NOT EXISTS')}")
    (gone,) = mill.sql("ALTER TABLE IF EXISTS nothing DROP WATERMARK")

    assert (first.said, again.said) == (
        "table default.hive_table is there",
        "table default.hive_table is there already",
    )
    assert gone.said == "there is no table nothing"
    with pytest.raises(UserError, match="write CREATE TABLE IF NOT EXISTS"):
        mill.sql(WITHOUT)


def test_types_have_the_names_of_flink_too(mill):
    """A statement of Flink runs unchanged."""
    types = "a BYTES, b NUMERIC(5,2), c REAL, d DOUBLE PRECISION NOT NULL, e VARBINARY(9), f DEC"

    mill.sql(f"CREATE TABLE named ({types}, KEY string) PARTITIONED BY (key)")

    (shown,) = mill.sql("DESCRIBE named")
    found = {row["column"]: row["type"] for row in shown.rows}
    decimals = {"b": "decimal(5,2)", "f": "decimal(10,0)"}
    assert found == {"a": "binary", **decimals, "c": "float", "d": "double", "e": "binary", "KEY": "string"}


def test_a_watermark_has_the_name_of_its_column_as_the_table_has_it(mill):
    """Capital letters do not count: DESCRIBE showed no watermark, and SHOW TABLES another name."""
    options = "'streaming-source.enable'='true', 'partition.time-interval'='1d'"
    mill.sql(f"CREATE TABLE capitals (ts timestamp) PARTITIONED BY (day date) WITH ({options})")

    mill.sql("ALTER TABLE capitals ADD WATERMARK FOR TS AS SOURCE_WATERMARK")

    described, shown = mill.sql("DESCRIBE capitals; SHOW TABLES")
    assert described.rows[0] == {"column": "ts", "type": "timestamp", "key": False, "watermark": "SOURCE_WATERMARK"}
    assert {"table": "default.capitals", "watermark": "ts"} in shown.rows


@pytest.mark.parametrize(
    ("over", "windows"),
    [
        ("w", "w AS (PARTITION BY window_start, window_end ORDER BY ts)"),
        ("(v ORDER BY ts)", "v AS (w), w AS (PARTITION BY window_end)"),
    ],
)
def test_a_ranking_may_name_its_window(over, windows):
    """WINDOW gives a name to what OVER has in its parentheses elsewhere."""
    ranked = f"INSERT INTO o SELECT window_start, a, row_number() OVER {over} AS n {FROM} WINDOW "

    assert read_query(f"{ranked}{windows}").bounds == {"window_start": "window_start"}
    with pytest.raises(BadStatement, match="needs PARTITION BY window_start, window_end"):
        read_query(f"{ranked}{windows.replace('window_end', 'a').replace('window_start, ', '')}")


CHANGING = (
    *(
        "rand()",
        "randn()",
        "random(3)",
        "uuid()",
        "shuffle(a)",
        "now()",
        "current_timestamp",
        "current_date()",
        "curdate()",
        "TIMESTAMP'now'",
        "DATE 'Today'",
        "CAST('now' AS TIMESTAMP)",
        "try_cast(' yesterday UTC' AS date)",
        "to_date('tomorrow')",
        "to_timestamp('now')",
        "getdate()",
        "sysdate()",
    ),
    *("localtimestamp()", "localtimestamp", "unix_timestamp()", "current_timezone()", "monotonically_increasing_id()"),
    *("spark_partition_id()", "input_file_name()", "input_file_block_start()", "current_user()", "user()", "version()"),
    *("current_database()", "current_catalog()", "java_method('a', 'b')", "_metadata.file_path", "upper(uuid())"),
)
FROM = "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
SESSION = "FROM TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(ts), INTERVAL '30' MINUTE))"
BOTH = "l.window_start = r.window_start AND l.window_end = r.window_end"
CUMULATE = "FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY))"


def below(select: str) -> str:
    """Windows of a query."""
    return FROM.replace("TABLE clicks", f"({select})")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (f"SELECT window_start {FROM} GROUP BY window_start", "a window program is one INSERT INTO"),
        (f"INSERT OVERWRITE TABLE o SELECT window_start {FROM}", "write INSERT INTO"),
        ("INSERT INTO o SELECT a FROM clicks", "FROM must be a window function"),
        (f"INSERT INTO o SELECT count(*) {FROM}", "an aggregate needs GROUP BY window_start"),
        (f"INSERT INTO o SELECT a, count(*) {FROM} GROUP BY a", "GROUP BY needs window_start"),
        (f"INSERT INTO o SELECT a {FROM} LIMIT 3", "LIMIT would cut"),
        (f"INSERT INTO o SELECT window_start, a {FROM} JOIN (SELECT * FROM x) r ON r.a = a", "a join is of windows"),
        (f"INSERT INTO o SELECT window_start, a {FROM}, x", "a join with the snapshot x needs ON or USING"),
        *((f"INSERT INTO o SELECT window_start, {one} AS r {FROM}", "another value each time") for one in CHANGING),
        (
            f"INSERT INTO o SELECT a, row_number() OVER (PARTITION BY a ORDER BY ts) AS n {FROM}",
            "needs PARTITION BY window",
        ),
        *(
            (
                f"INSERT INTO o SELECT window_start, a {FROM} GROUP BY {sets}",
                "each set of GROUP BY needs window_start or",
            )
            for sets in (
                "ROLLUP (window_start, a)",
                "CUBE (a, window_start)",
                "a, window_start WITH ROLLUP",
                "GROUPING SETS ((window_start, a), a)",
                "a, window_end GROUPING SETS ((window_end, a), (a))",
            )
        ),
        (
            f"INSERT INTO o SELECT window_start, window_end, count(*) {CUMULATE} GROUP BY window_start",
            "each set of GROUP BY needs window_end",
        ),
        (
            f"INSERT INTO o SELECT window_start, count(*) {SESSION} GROUP BY window_start",
            "each set of GROUP BY needs window_end",
        ),
        (
            f"INSERT INTO o SELECT window_end, a {SESSION}\n UNION ALL SELECT window_end, a {FROM}",
            "line 2, column 49: all windows of a program are of one kind",
        ),
        (f"INSERT INTO o SELECT * {SESSION} UNION ALL SELECT * {SESSION}", "a query has one SESSION"),
        (
            f"INSERT INTO o WITH s AS (SELECT * {SESSION}) SELECT l.window_end FROM s l\nJOIN s r ON {BOTH}",
            "line 2, column 6: a join of SESSION windows is not supported",
        ),
        (
            f"INSERT INTO o WITH s AS (SELECT * {SESSION}) SELECT window_end FROM s l WHERE EXISTS (SELECT 1 FROM s r WHERE {BOTH})",
            "EXISTS or IN of SESSION windows is not supported",
        ),
        (
            f"INSERT INTO o WITH x AS (SELECT * FROM clicks) SELECT window_end {SESSION.replace('clicks', 'x')}",
            "WITH cannot name that query",
        ),
        (
            f"INSERT INTO o SELECT window_end {SESSION.replace('30', '0')}",
            "the gap of SESSION must be longer than nothing",
        ),
        (f"INSERT INTO o SELECT window_end {SESSION.replace('BY who', 'BY upper(who)')}", "names columns of its table"),
        (
            f"INSERT INTO o SELECT window_end {FROM.replace('clicks', 'clicks PARTITION BY who')}",
            "TUMBLE has no PARTITION BY",
        ),
        (
            f"INSERT INTO o\nSELECT window_start,\n  (SELECT max(a) FROM clicks) AS m {FROM}",
            "line 3, column 13: queries within expressions come later",
        ),
        (
            f"INSERT INTO o SELECT a, b {FROM} UNION SELECT a, b {FROM}",
            "UNION needs window_start, window_end in one place",
        ),
        (
            f"INSERT INTO o SELECT window_start, b {FROM} INTERSECT SELECT window_end, b {FROM}",
            "INTERSECT needs window_start, window_end in one place",
        ),
        (f"INSERT INTO o SELECT window_start, b {FROM} UNION ALL SELECT a, b FROM clicks", "must be over windows"),
        (f"INSERT INTO o SELECT window_start, b {FROM} UNION ALL SELECT window_start {FROM}", "the same columns"),
        (
            f"INSERT INTO o WITH x AS (SELECT a FROM\n y) SELECT window_start, b {FROM}",
            "line 2, column 2: y is read without windows",
        ),
        (f"INSERT INTO o SELECT * {FROM} UNION ALL SELECT * {FROM.replace('clicks', 'x')}", "the same columns"),
        (
            f"INSERT INTO o SELECT window_start, b {FROM} UNION ALL SELECT window_start, b {CUMULATE}",
            "all windows of a program are of one kind",
        ),
        *(
            (f"INSERT INTO o SELECT window_start {below(select)}", told)
            for select, told in (
                ("SELECT max(ts) AS ts FROM clicks GROUP BY a", "GROUP BY below the window function"),
                ("SELECT DISTINCT ts FROM clicks", "DISTINCT below the window function"),
                ("SELECT ts, sum(a) OVER (ORDER BY ts) FROM clicks", "below the window function"),
                ("SELECT ts + INTERVAL '1' HOUR AS ts FROM clicks", "must be the time column of the table, unchanged"),
                ("SELECT a FROM clicks", "must be the time column of the table, unchanged"),
            )
        ),
        (
            f"INSERT INTO o SELECT sum(n) OVER (PARTITION BY w) FROM (SELECT 1 AS n, max(ts) AS w {FROM} GROUP BY window_end)",
            "needs PARTITION BY window_start",
        ),
        (f"INSERT INTO o SELECT window_start, a {FROM} TABLESAMPLE (10 PERCENT)", "other rows each time"),
        ("INSERT INTO o SELECT a FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(ts)))", "TUMBLE lacks SIZE"),
        ("INSERT INTO o SELECT a FROM TABLE(TUMBLE(TABLE c, ts, INTERVAL '1' HOUR))", "must be DESCRIPTOR(<column>)"),
        ("INSERT INTO o SELECT a FROM TABLE(TUMBLE(c, DESCRIPTOR(ts), INTERVAL '1' HOUR))", "must be TABLE <name>"),
        ("INSERT INTO o SELECT a FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' MONTH))", "windows of months"),
        (
            "INSERT INTO o SELECT a FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '0' HOUR))",
            "longer than nothing",
        ),
        (
            "INSERT INTO o SELECT a FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
            "shorter",
        ),
        (
            "INSERT INTO o SELECT a FROM TABLE(HOP(TABLE c, DESCRIPTOR(ts), INTERVAL '24' HOUR, INTERVAL '1' HOUR))",
            "SLIDE, SIZE",
        ),
        (
            "INSERT INTO o SELECT a FROM TABLE(TUMBLE(DATA => TABLE c, TIMECOL => DESCRIPTOR(ts), SIZ => INTERVAL '1' HOUR))",
            "SIZE?",
        ),
    ],
)
def test_what_cannot_be_windowed_is_refused_with_the_reason(query, told):
    """When it is declared: a window that could not be computed by itself would differ from run to run."""
    with pytest.raises(UserError) as refused:
        read_query(query)

    assert refused.value.in_statement is not None
    assert told in str(refused.value)


def test_statements_come_from_a_file_or_the_command_line(mill, tmp_path):
    """Each statement is one line, or a document. The error of a wrong one is a line with its place."""
    mill.close()
    (tmp_path / "tables.sql").write_text(HIVE, encoding="utf-8")
    command = ["--project", str(tmp_path), "sql"]

    made = CliRunner().invoke(cli, [*command, str(tmp_path / "tables.sql")])
    shown = CliRunner().invoke(cli, [*command, "-e", "DESCRIBE hive_table"])

    assert made.output.splitlines()[0] == "table default.hive_table is there"
    assert "ts timestamp False SOURCE_WATERMARK" in [" ".join(line.split()) for line in shown.output.splitlines()]


def test_reading_needs_no_catalog():
    """A statement is read before anything is opened."""
    assert read_statement("DESCRIBE a.b").name == "a.b"


def test_columns_named_as_functions_are_columns():
    """A table may have a column `user`, or a quoted one of any name."""
    query = read_query(
        f"INSERT INTO o SELECT window_start, user, version, `current_date`, unix_timestamp(ts) AS n {FROM}"
    )

    assert query.columns == ("window_start", "user", "version", "current_date", "n")


@pytest.mark.parametrize(
    ("query", "found", "bounds"),
    [
        (f"SELECT * FROM (SELECT * EXCEPT (A) {FROM}) WHERE b > 1", "b window_start window_end window_time", "both"),
        (f"SELECT w, n FROM (SELECT window_end AS w, count(*) AS n {FROM} GROUP BY ALL)", "w n", "window_end"),
        (f"SELECT window_start, window_end AS w, a {FROM} GROUP BY window_end, ROLLUP (window_start, a)",
         "window_start w a", "window_end"),
        (f"WITH x AS (SELECT window_start AS s, b {FROM}), y AS (SELECT b, s FROM x) SELECT DISTINCT s FROM y",
         "s", "window_start"),
        (f"SELECT window_start, window_end, a {FROM} UNION SELECT window_start, window_start, b {FROM}",
         "window_start window_end a", "window_start"),
        (f"SELECT a, t, window_end AS e {FROM} LATERAL VIEW explode(b) AS t", "a t e", "window_end"),
        (f"SELECT window_start, window_end {CUMULATE}", "window_start window_end", "window_end"),
        (f"SELECT * {below('SELECT b AS c, ts FROM clicks')}", "c ts window_start window_end window_time", "both"),
    ],
)  # fmt: skip
def test_the_columns_and_the_bounds_of_nested_queries_are_known(query, found, bounds):
    """By the columns a deployment looks for the keys of the output; by the bounds a run finds rows to replace."""
    read = read_query(f"INSERT INTO o {query}")

    assert read.find_columns({"clicks": ["a", "b"]}) == tuple(found.split())
    assert [*read.bounds] == (["window_start", "window_end"] if bounds == "both" else [bounds])


def test_a_query_by_with_may_stand_before_the_insert():
    """As Spark and Hive write it; the places of both are kept apart."""
    before = read_query(f"WITH x AS (SELECT ts FROM s.clicks c) INSERT INTO o SELECT * {FROM.replace('clicks', 'x')};")

    assert [*before.tables] == ["s.clicks"]
    text = before.select(lambda _: "rows", lambda rows, column, *_: f"({column} of {rows})")
    assert " ".join(text.split()) == "WITH x AS (SELECT ts FROM rows c) SELECT * FROM (ts of x) AS `x`"
