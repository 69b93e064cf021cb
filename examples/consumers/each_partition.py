"""A schedule that starts a program every time there is a new partition: one run for each."""

from pathlib import Path

import tidemill as tm

app = tm.App("each_partition")
lines = app.fileset("lines", keys={"hour": "int"})


@app.python(reads=[tm.Reads(lines, max_partitions=1)])
def report(run):
    """Note the one partition of this run."""
    (partition,) = run.input(lines).delivered
    with (Path(__file__).parent / "report.txt").open("a", encoding="utf-8") as file:
        file.write(f"hour {partition.key['hour']}, {partition.kind}\n")


app.schedule("report", report, trigger=tm.NewPartitions(lines))
