"""New York's flights and weather of 2013: loaded as their files arrive, joined, reported by hour, day and airline."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pyspark.sql import functions as F

import tidemill as tm

app = tm.App("new_york")

FLIGHTS = """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour timestamp"""
WEATHER = """origin string, year int, month int, day int, hour int, temp double, dewp double, humid double,
    wind_dir int, wind_speed double, wind_gust double, precip double, pressure double, visib double,
    time_hour timestamp"""

# Files arrive here, renamed into place. One that cannot be read is quarantined after three attempts; it holds up no
# other.
raw = {"format": "csv", "options": {"nullValue": "NA"}, "attempts": 3, "retry_after": "1s", "settle": "100ms"}
flights_raw = app.inbox("flights_raw", "landing/flights", schema=FLIGHTS, **raw)
weather_raw = app.inbox("weather_raw", "landing/weather", schema=WEATHER, **raw)

# What is made of them, in partitions of an hour (UTC) or a day.
by_hour = {"day": "date", "hour": "int"}
hours = tm.Watermark("time_hour", pattern="$day $hour:00:00", interval="1h", zone="UTC")
flights = app.fileset("flights", keys=by_hour, watermark=hours)
weather = app.fileset("weather", keys=by_hour)
flights_weather = app.fileset("flights_weather", keys=by_hour)
hourly = app.fileset("hourly", keys=by_hour)
daily = app.fileset("daily", keys={"day": "date"})
by_airline = app.fileset("by_airline", keys={"day": "date"})
delays_by_hour = app.fileset("delays_by_hour", keys={"day": "date"})
delays_of_24h = app.fileset("delays_of_24h", keys={"day": "date"})

# The database of another team. Each refresh is a version of the whole table, without the rows deleted there.
airlines = app.snapshot("airlines", key=["carrier"])
planes = app.snapshot("planes", key=["tailnum"])


def query(text, columns):
    """Read the database by one statement, which sees one state of it."""

    def read(run, spark):
        with closing(sqlite3.connect(Path(__file__).parent / "reference.db")) as database:
            return spark.createDataFrame(database.execute(text).fetchall(), columns)

    return read


all_airlines = query("SELECT carrier, name FROM airlines", "carrier string, name string")
all_planes = query(
    "SELECT tailnum, year, model, seats FROM planes", "tailnum string, year string, model string, seats string"
)
app.pipeline("mirror_airlines", source=all_airlines, sink=airlines)
numbers_of_planes = "SELECT tailnum, model, CAST(year AS INT) AS built, CAST(seats AS INT) AS seats FROM source"
app.pipeline("mirror_planes", source=all_planes, transform=numbers_of_planes, sink=planes)


# A window is computed when the hour that closes it is loaded, and again when one of its hours comes late.
DELAYS = """INSERT INTO {sink}
    SELECT window_start, window_end, origin, count(*) AS flights, avg(dep_delay) AS dep_delay,
        to_date(window_start) AS day
    FROM TABLE({windows}) GROUP BY window_start, window_end, origin"""
each_hour = "TUMBLE(TABLE flights, DESCRIPTOR(time_hour), INTERVAL '1' HOUR)"
last_24_hours = "HOP(TABLE flights, DESCRIPTOR(time_hour), INTERVAL '1' HOUR, INTERVAL '24' HOUR)"
app.window_sql("count_hours", DELAYS.format(sink="delays_by_hour", windows=each_hour), retries=3, backoff="1s")
app.window_sql("count_24h", DELAYS.format(sink="delays_of_24h", windows=last_24_hours), retries=3, backoff="1s")


@app.spark(reads=[flights_raw, weather_raw], writes=[flights, weather], retries=3, backoff="1s")
def load(run, spark):
    """Publish what is new in the files that arrived: rows may come again, in the same file or in another."""
    feeds = [
        (flights_raw, flights, ["time_hour", "carrier", "flight"]),
        (weather_raw, weather, ["time_hour", "origin"]),
    ]
    for inbox, table, key in feeds:
        arrived = run.input(inbox)
        if arrived.files:
            rows, known = arrived.read().dropDuplicates(key), run.read(table)
            if set(key) <= set(known.columns):  # before anything is published, its columns are not known
                rows = rows.join(known, key, "left_anti")
            by_time = rows.withColumn("day", F.to_date("time_hour")).withColumn("hour", F.hour("time_hour"))
            run.output(table).append(by_time.drop("year", "month", "minute"))


@app.spark(reads=[flights, weather], writes=[flights_weather], retries=3, backoff="1s", run_on_empty=False)
def join(run, spark):
    """Join each hour again that has new flights or new weather, so that their order does not matter."""
    changed = in_hours([*run.input(flights).partitions, *run.input(weather).partitions])
    at_airport = run.read(weather).where(changed).drop("time_hour")
    joined = run.read(flights).where(changed).join(at_airport, ["day", "hour", "origin"], "left")
    run.output(flights_weather).overwrite(joined)


@app.spark(reads=[flights_weather], writes=[hourly, daily], retries=3, backoff="1s", run_on_empty=False)
def report(run, spark):
    """Report each hour that has changed, and its day; both in one transaction, so that they always agree."""
    hours = run.input(flights_weather).partitions
    days = run.read(flights_weather).where(F.col("day").isin([hour["day"] for hour in hours]))
    numbers = [
        F.count("*").alias("flights"),
        F.count("dep_time").alias("departed"),
        F.avg("dep_delay").alias("dep_delay"),
        F.avg("temp").alias("temp"),
        F.avg("wind_speed").alias("wind_speed"),
    ]
    run.output(hourly).overwrite(days.where(in_hours(hours)).groupBy("day", "hour").agg(*numbers))
    run.output(daily).overwrite(days.groupBy("day").agg(*numbers))


@app.spark(reads=[flights_weather, airlines, planes], writes=[by_airline], retries=3, backoff="1s", run_on_empty=False)
def compare(run, spark):
    """Compare the airlines, day by day, as the newest version of the reference data knows them and their planes."""
    flown = run.read(flights_weather)
    if "tailnum" not in flown.columns:  # nothing is published yet
        return
    known = flown.join(run.input(planes).read(), "tailnum", "left")
    numbers = [F.count("*").alias("flights"), F.avg("dep_delay").alias("dep_delay"), F.sum("seats").alias("seats")]
    figures = known.groupBy("day", "carrier").agg(*numbers)
    run.output(by_airline).overwrite(figures.join(run.input(airlines).read(), "carrier", "left"))
    run.put("compared", True)


@app.python()
def tell(run):
    """Tell other systems of each comparison of the airlines, once its numbers are published."""
    run.publish("airlines_compared", {"run": run.id})


# The last step: two programs in order, each in a transaction of its own.
comparison = app.workflow(
    "comparison",
    [tm.Node(compare), tm.Node(tell, after=[compare], when=tm.When("compare.compared", "==", True))],
    holds=[flights_weather],
)


def in_hours(partitions):
    """The condition that a row belongs to one of these partitions."""
    condition = F.lit(False)
    for partition in partitions:
        condition |= (F.col("day") == partition["day"]) & (F.col("hour") == partition["hour"])
    return condition


app.schedule("load", load, trigger=tm.NewFiles(flights_raw) | tm.NewFiles(weather_raw))
# Flights of an hour without news of the weather wait a moment for them, and then are joined all the same.
both = tm.AllOf(tm.NewPartitions(flights), tm.NewPartitions(weather), patience="3s")
app.schedule("join", join, trigger=both)
app.schedule("report", report, trigger=tm.NewPartitions(flights_weather))
# The owner of the database asks for new versions; they would also be made every night.
night = tm.Cron("30 2 * * *", zone="America/New_York")
app.schedule("mirror_airlines", "mirror_airlines", trigger=night)
app.schedule("mirror_planes", "mirror_planes", trigger=night)
# Six hours at once are cheaper than six times one. What is left is compared when nothing more comes.
news = tm.NewPartitions(flights_weather, 6) | tm.Silence(tm.NewPartitions(flights_weather), "5s") | tm.Refreshed(planes)
app.schedule("compare", comparison, trigger=news, constraints=[tm.SinceLastRun("2s")])
app.schedule("count_hours", "count_hours", trigger=tm.WatermarkPassed(flights, every="1h"))
app.schedule("count_24h", "count_24h", trigger=tm.WatermarkPassed(flights, every="1h"))
