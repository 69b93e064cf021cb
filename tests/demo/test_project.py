"""The demo's app on a plain Spark session: what its programs make of what they get."""

from __future__ import annotations

import importlib.util
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidemill.demo
from tests.stage import staged

pytestmark = pytest.mark.spark

DAY = date(2013, 1, 1)
TEN, ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    """A session with the time zone of drivers."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


APP = Path(tidemill.demo.__file__).parent / "project" / "app.py"


@pytest.fixture(scope="module")
def app() -> ModuleType:
    """The app file, loaded as a user's is."""
    spec = importlib.util.spec_from_file_location("demo_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Given:
    """An input: a frame, with the names or keys of what it was made from."""

    frame: DataFrame | None = None
    files: tuple[str, ...] = ()
    partitions: tuple[dict[str, object], ...] = ()

    def read(self) -> DataFrame:
        """Its rows."""
        return self.frame


@dataclass
class Run:
    """Stands for a program's run: inputs and file sets by name. Keeps the written rows, by name and operation."""

    inputs: dict[str, Given]
    filesets: dict[str, DataFrame]
    written: dict[tuple[str, str], list[dict[str, object]]] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)

    def input(self, dataset) -> Given:
        """An input, empty unless the test gives one."""
        return self.inputs.get(dataset.name, Given())

    def read(self, dataset) -> DataFrame:
        """A file set."""
        return self.filesets[dataset.name]

    def put(self, name, value) -> None:
        """Keep a value."""
        self.values[name] = value

    def output(self, dataset) -> Written:
        """An output, which keeps the written rows."""
        return Written(self, dataset.name)


@dataclass
class Written:
    """Takes what is written."""

    run: Run
    name: str

    def append(self, rows: DataFrame) -> None:
        """Keep it."""
        self.run.written[self.name, "append"] = [row.asDict() for row in rows.collect()]

    def overwrite(self, rows: DataFrame) -> None:
        """Keep it."""
        self.run.written[self.name, "overwrite"] = [row.asDict() for row in rows.collect()]


def arrived(spark, *flights: tuple[str, int]) -> DataFrame:
    """Flights as a file has them; year, month, day, hour and minute are New York's."""
    rows = [(2013, 1, 1, 5, 15, time, "UA", number, 517 if number else None) for time, number in flights]
    columns = (
        "year int, month int, day int, hour int, minute int, time string, carrier string, flight int, dep_time int"
    )
    return spark.createDataFrame(rows, columns).selectExpr("*", "to_timestamp(time) AS time_hour").drop("time")


def loaded(spark, *flights: tuple[int, int]) -> DataFrame:
    """Flights as they are published, by hour and number."""
    rows = [(DAY, hour, number, "EWR", 10.0 * number) for hour, number in flights]
    return spark.createDataFrame(rows, "day date, hour int, flight int, origin string, dep_delay double")


def hours(*hours: int) -> Given:
    """Partitions of that day."""
    return Given(partitions=tuple({"day": DAY, "hour": hour} for hour in hours))


def test_each_row_is_loaded_once_into_the_hour_of_its_utc(spark, app):
    """Rows come twice in one batch, and again after they were published."""
    known = arrived(spark, (TEN, 1)).selectExpr("time_hour", "carrier", "flight", "to_date(time_hour) AS day", "hour")
    given = Given(arrived(spark, (TEN, 1), (TEN, 2), (TEN, 2), (ELEVEN, 1)), files=("a.csv", "b.csv"))
    run = Run({"flights_raw": given}, {"flights": known})

    app.load(run, spark)

    rows = run.written["flights", "append"]
    assert sorted((row["day"], row["hour"], row["flight"]) for row in rows) == [(DAY, 10, 2), (DAY, 11, 1)]
    assert list(run.written) == [("flights", "append")]


def test_the_first_files_are_loaded_into_what_has_no_columns_yet(spark, app):
    """Before its first commit a file set has only the columns of its key."""
    given = Given(arrived(spark, (TEN, 1), (TEN, 1)), files=("a.csv",))
    run = Run({"flights_raw": given}, {"flights": spark.createDataFrame([], "day date, hour int")})

    app.load(run, spark)

    assert [row["flight"] for row in run.written["flights", "append"]] == [1]


def test_hours_with_new_flights_or_new_weather_are_joined_again(spark, app):
    """Weather that comes after its flights must reach them; hours without news are left alone."""
    weather = spark.createDataFrame(
        [(DAY, 10, "EWR", 39.0, 1), (DAY, 12, "EWR", 41.0, 1)],
        "day date, hour int, origin string, temp double, time_hour int",
    )
    given = {"flights": hours(11), "weather": hours(10)}
    run = Run(given, {"flights": loaded(spark, (10, 1), (11, 2), (12, 3)), "weather": weather})

    app.join(run, spark)

    rows = run.written["flights_weather", "overwrite"]
    assert sorted((row["hour"], row["flight"], row["temp"]) for row in rows) == [(10, 1, 39.0), (11, 2, None)]


def test_an_hour_and_its_whole_day_are_reported_together(spark, app):
    """A day is made of all its hours, not only of those that have just changed."""
    joined = loaded(spark, (10, 1), (11, 2), (11, 4)).selectExpr(
        "*", "nullif(flight, 2) AS dep_time", "40.0 AS temp", "5.0 AS wind_speed"
    )
    run = Run({"flights_weather": hours(11)}, {"flights_weather": joined})

    app.report(run, spark)

    (hour,), (day,) = run.written["hourly", "overwrite"], run.written["daily", "overwrite"]
    assert (hour["hour"], hour["flights"], hour["departed"], hour["dep_delay"]) == (11, 2, 1, 30.0)
    assert (day["day"], day["flights"], day["departed"]) == (DAY, 3, 2)


def test_airlines_are_compared_by_the_reference_data_as_they_are_now(spark, app):
    """A plane or airline without reference data must not take its flights out of the report."""
    flown = loaded(spark, (10, 1), (11, 2)).selectExpr("*", "if(flight = 1, 'N1', 'N2') AS tailnum", "'UA' AS carrier")
    planes = spark.createDataFrame([("N1", 100)], "tailnum string, seats int")
    airlines = spark.createDataFrame([("UA", "United")], "carrier string, name string")
    run = Run({"planes": Given(planes), "airlines": Given(airlines)}, {"flights_weather": flown})

    app.compare(run, spark)

    (row,) = run.written["by_airline", "overwrite"]
    assert (row["name"], row["flights"], row["seats"], row["dep_delay"]) == ("United", 2, 100, 15.0)


def test_nothing_is_compared_before_there_are_flights(spark, app):
    """The reference data come first."""
    run = Run({}, {"flights_weather": spark.createDataFrame([], "day date, hour int")})

    app.compare(run, spark)

    assert run.written == {}


def test_each_comparison_is_announced_once_its_numbers_are_published(spark, tmp_path, sqlite_catalog_url):
    """The last step of the demo, a workflow: its second program tells other systems what the first has done."""
    with closing(sqlite3.connect(tmp_path / "reference.db")) as reference:
        reference.executescript(
            "CREATE TABLE airlines AS SELECT 'UA' AS carrier, 'United' AS name; "
            "CREATE TABLE planes AS SELECT 'N1' AS tailnum, '2000' AS year, '737' AS model, '100' AS seats;"
        )
    with staged(tmp_path, sqlite_catalog_url, APP, spark=spark) as stage:
        flown = loaded(spark, (10, 1)).selectExpr("*", "'N1' AS tailnum", "'UA' AS carrier")
        stage.commit("flights_weather", flown)
        for program in ("mirror_airlines", "mirror_planes"):
            stage.mill.runs.start(f"new_york.{program}")
        stage.work()
        workflow = stage.mill.runs.start("new_york.comparison").run_id
        stage.work()
        (telling,) = stage.work()
        compared = stage.mill.runs.show(workflow)
        messages = stage.mill.topics.read("airlines_compared")

    assert (compared.state, compared.exit_reason) == ("COMPLETED", "")
    assert [one.payload for one in messages] == [{"run": telling.run_id}]
