"""The cost of runs on PostgreSQL, in statements, ticks and notifications: counted on the line to the server."""

from __future__ import annotations

from tests.catalog.counting import TICK, CountingProxy
from tests.stage import staged

RUNS = 10
APP = f"""
bell = app.fileset("bell", keys={{"n": "int"}})


@app.python()
def work(run):
    pass


for number in range({RUNS}):
    app.schedule(f"s{{number}}", work, trigger=tm.NewPartitions(bell), constraints=[])
"""


def test_a_run_of_a_plain_program_costs_few_statements(postgres_catalog_url, tmp_path):
    """Each statement, tick and notification of a run bounds the runs a second of all nodes on one server."""
    with CountingProxy(postgres_catalog_url) as line, staged(tmp_path, line.url) as stage:
        stage.declare(APP)
        for number in (1, 2):  # the first round prepares statements
            stage.publish("bell", f"n={number}")
            line.take()
            stage.schedule()
            ended = stage.work()
        sent = line.take()

    assert [run.state for run in ended] == ["COMPLETED"] * RUNS
    assert sent[TICK] == 2 * RUNS
    assert sent["NOTIFY"] <= RUNS + 4
    assert sent.work <= 36 * RUNS
