"""The program that drivers call in these scenarios: it looks at its input, and says what it saw."""

from tests.explore.stage import Stage
from tidemill import App

app = App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, location="/lake/lines")


@app.python(reads=[lines], retries=1, backoff="10s")
def total(run):
    """Note what was given; fail when the scenario wants that."""
    note(run, "default.shop.total")


@app.python(reads=[lines])
def mean(run):
    """The same, for the scenarios with two programs."""
    note(run, "default.shop.mean")


@app.python()
def plain(run):
    """Work on nothing, for the scenarios of backfills."""
    Stage.on_stage.ending()


def note(run, reader):
    """Write down what the program was given."""
    stage = Stage.on_stage
    for delivery in run.input(lines).deliveries:
        for change in delivery.changes:
            stage.note(
                "INSERT INTO given VALUES (?, ?, ?, ?, ?)",
                *(reader, run.id, run.attempt, change.write_pointer, change.partition_key),
            )
    stage.ending()
