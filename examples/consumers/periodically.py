"""A program that runs every hour, and consumes all partitions that are new since its last run."""

from pathlib import Path

import tidemill as tm

app = tm.App("periodically")
lines = app.fileset("lines", keys={"hour": "int"})


@app.python(reads=[lines], run_on_empty=False)
def report(run):
    """Note all that came since the last time."""
    hours = [str(partition.key["hour"]) for partition in run.input(lines).delivered]
    with (Path(__file__).parent / "report.txt").open("a", encoding="utf-8") as file:
        file.write(f"hours {', '.join(hours)}\n")


app.schedule("hourly", report, trigger=tm.Every("1h"))
