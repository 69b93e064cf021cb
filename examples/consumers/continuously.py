"""A worker that looks for new partitions continuously: milliseconds after a commit it has what was committed.

`tidemill up` keeps it alive. Each take and commit is a transaction of its own.
"""

from pathlib import Path

import tidemill as tm

app = tm.App("continuously")
lines = app.fileset("lines", keys={"hour": "int"})


@app.worker(reads=[lines])
def look(run):
    """Note what came, as soon as it comes."""
    while run.take():
        with (Path(__file__).parent / "report.txt").open("a", encoding="utf-8") as report:
            for partition in run.input(lines).delivered:
                report.write(f"hour {partition.key['hour']}: {partition.rows} rows in {len(partition.files)} files\n")
        run.commit()
