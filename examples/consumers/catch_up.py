"""A program that catches up with old partitions while new ones are made.

Each run takes three: the two newest that wait, and the oldest, until the backlog is gone.
"""

from pathlib import Path

import tidemill as tm

app = tm.App("catch_up")
lines = app.fileset("lines", keys={"hour": "int"})


@app.python(reads=[tm.Reads(lines, max_partitions=3, order="newest", old_share=0.34)])
def report(run):
    """Note what this run got."""
    hours = [str(partition.key["hour"]) for partition in run.input(lines).delivered]
    with (Path(__file__).parent / "report.txt").open("a", encoding="utf-8") as file:
        file.write(f"hours {', '.join(hours)}\n")


app.schedule("report", report, trigger=tm.NewPartitions(lines))
