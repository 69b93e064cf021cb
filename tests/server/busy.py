"""A project in which something of each kind has happened: processed, failed, waiting and quarantined."""

from __future__ import annotations

from tests.stage import Stage

APP = """
import datetime
import tidemill as tm

app = tm.App("shop")
hourly = tm.Arrivals(every="1h", grace="1m")
raw = app.inbox("raw", "landing", schema="id int, ts string, n int", attempts=1, settle="0s", expect=hourly)
days = tm.Watermark("ts", pattern="$day 00:00:00", interval="1d")
orders = app.fileset("orders", keys={"day": "date"}, watermark=days)
late = app.fileset("late", keys={"day": "date"})

@app.python(reads=[raw], writes=[orders])
def load(run):
    print("an <b>Error</b> line")
    files = run.input(raw)
    for name in files.files:
        if "bad" in name:
            raise ValueError(name)
    run.output(orders).append([{"n": 1, "day": datetime.date(2026, 1, day)} for day in (1, 2, 3)])

@app.python(reads=[orders], writes=[late])
def sift(run):
    pass

@app.python()
def broken(run, when="now"):
    raise ValueError("<script>alert(1)</script>")

app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
app.schedule("on_orders", sift, trigger=tm.NewPartitions(orders, 9) & tm.RunEnded(broken), constraints=[tm.Delay("1h")])
app.schedule("nightly", broken, trigger=tm.Cron("30 2 * * *", zone="Europe/Berlin"))
"""


def make_busy(stage: Stage) -> Stage:
    """Let files arrive and programs run."""
    landing = stage.mill.project.config.folder / "landing"
    landing.mkdir(exist_ok=True)
    for name in ("a.csv", "bad.csv"):
        (landing / name).write_text("id,ts,n\n1,2026-01-01,3" + ("\n" if name == "a.csv" else ""), encoding="utf-8")
    stage.mill.inboxes.scan("raw")
    stage.play()
    stage.mill.runs.start("shop.broken")
    stage.play()
    stage.mill.topics.publish("own", {"text": "<i>hostile</i>"}, key="k")
    stage.mill.runs.start("shop.sift")
    stage.mill.schedules.suspend("shop.nightly")
    return stage
