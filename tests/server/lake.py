"""A project with data of each kind in each state: hours that are late, missing and rewritten, versions, windows."""

from __future__ import annotations

from tests.stage import Stage

APP = """
import datetime
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", schema="id int, ts string, n int", attempts=1, settle="0s")
hours = tm.Watermark("ts", pattern="$day $hour:00:00", interval="1h", gap="wait")
flights = app.fileset("flights", keys={"day": "date", "hour": "int"}, watermark=hours)
days = app.fileset("days", keys={"day": "date"}, expect=tm.Arrivals(every="1d"))
lines = app.fileset("lines", keys={"carrier": "string"})
planes = app.snapshot("planes", key=["id"], max_versions=9)
real = app.fileset("real", keys={"day": "date"})
empty = app.fileset("empty", keys={"day": "date"})

@app.python(reads=[raw], writes=[lines])
def load(run):
    for name in run.input(raw).files:
        if "bad" in name:
            raise ValueError(f"{name} line 3 column 2: <b>no</b> number")
    run.output(lines).append([{"n": 1, "carrier": "AA"}])

@app.python(reads=[flights], writes=[days])
def sum_up(run):
    pass

@app.python(writes=[real])
def seed(run):
    run.output(real).append([{"n": n, "text": "<i>x</i>", "day": datetime.date(2026, 1, 1)} for n in range(30)])

app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
app.schedule("on_flights", sum_up, trigger=tm.NewPartitions(flights, 99))
"""


def hour(day: int, number: int) -> str:
    """Return the path of an hour of January 2026."""
    return f"day=2026-01-{day:02}/hour={number}"


def fill_lake(stage: Stage) -> Stage:
    """Commit what `APP` declares.

    Of `flights`, 1 January has the hours 5 to 23, 2 January all but 8, 3 January 0 to 14 (hour 3 was rewritten), and
    hour 4 of 1 January came last, when the watermark had passed it.
    """
    with stage.transaction("flights") as tx:
        tx.fileset("default.flights").append({hour(1, n): f"{n}\n" * (n + 1) for n in range(5, 24)})
    stage.publish("flights", *(hour(2, n) for n in range(24) if n != 8))
    stage.publish("flights", *(hour(3, n) for n in range(15)))
    stage.publish("flights", hour(3, 3), op="overwrite")
    stage.publish("flights", hour(1, 4))
    stage.publish("days", "day=2026-01-01", "day=2026-01-02", "day=2026-01-05")
    stage.publish("lines", "carrier=AA", "carrier=B<i>C")
    stage.mill.datasets.drop("days", ["day=2026-01-02"])
    for rows in ("a\n", "a\nb\n", "a\nb\nc\n"):
        with stage.transaction("planes") as tx:
            tx.snapshot("default.planes").replace({"": rows}, allow=["drop"])
    landing = stage.mill.project.config.folder / "landing"
    landing.mkdir(exist_ok=True)
    for name in ("a.csv", "b.csv", "bad.csv", "<i>x.csv"):
        (landing / name).write_text("id,ts,n\n1,2026-01-01,3\n", encoding="utf-8")
    stage.mill.inboxes.scan("raw")
    stage.mill.runs.start("shop.seed")
    stage.play()
    return stage
