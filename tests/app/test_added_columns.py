"""Columns that an inbox adds under `unknown="evolve"`, through programs on Spark: the run records each of them."""

from __future__ import annotations

import pytest

from tests.app import test_pipeline
from tests.app.test_bad_files import LOAD, land, states

pytestmark = pytest.mark.spark
site = test_pipeline.site

LINES = 'lines = app.fileset("lines", keys={{"part": "int"}}, schema="{policy}")\n'
ORDERS = 'orders = app.inbox("orders", "landing", schema="id INT, name STRING", unknown="evolve", settle="0s"{more})\n'


def facts_of(site, run: int) -> dict[str, object]:
    """Return the facts of a run about its inbox. 0 is the newest run."""
    return site.mill.runs.show(site.mill.runs.list()[run].run_id).facts["read"][0]


def test_a_run_records_the_columns_that_it_adds(site):
    """A file whose fields do not fit is bad, and fails no run. A bad file adds no column."""
    site.declare(ORDERS.format(more="") + LINES.format(policy="evolve") + LOAD)
    land(site, {"a.csv": "id,name,zip\n1,a,x\n", "b.csv": "Zip,id,name\nx,2,b\n", "c.csv": "id,name,bad\nx,c,d\n"})

    first = site.outcome("shop.load")
    site.mill.inboxes.retry("orders")
    second = site.outcome("shop.load")
    recorded = facts_of(site, 0)
    land(site, {"d.csv": "name,id\nd,4\n"})
    third = site.outcome("shop.load")

    assert (first[0], second, third) == ("FAILED", ("COMPLETED", ""), ("COMPLETED", ""))
    assert (recorded["unknown"], recorded["added"]) == ("evolve", {"zip": "STRING"})
    assert facts_of(site, 0)["added"] == {}
    assert site.rows("lines", "id", "name", "zip") == [(1, "a", "x"), (4, "d", None)]
    found = states(site)
    assert found["b.csv"][0] == found["c.csv"][0] == "ERROR"
    assert found["b.csv"][2] == "its column Zip STRING does not fit the column zip STRING of other files"


def test_a_file_set_with_fixed_columns_refuses_added_ones(site):
    """The file set decides. The error names the column, for the run and for the file."""
    site.declare(ORDERS.format(more=', format="json"') + LINES.format(policy="fail") + LOAD)
    land(site, {"a.json": '{"id": 1, "name": "a"}\n'})
    first = site.outcome("shop.load")
    land(site, {"b.json": '{"id": 2, "name": "b", "zip": 5}\n'})

    state, why = site.outcome("shop.load")

    assert first == ("COMPLETED", "")
    assert state == "FAILED"
    assert "zip" in why
    assert states(site)["b.json"] == ("ERROR", 1, why)
