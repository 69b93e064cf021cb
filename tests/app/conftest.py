"""A project on both databases."""

from __future__ import annotations

import pytest

import tidemill as tm

APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", format="csv", schema="id long, amount double")
clean = app.fileset("clean", keys={"day": "date"})

@app.python(reads=[orders], writes=[clean], arguments={"limit": 5})
def load(run):
    pass

@app.python(reads=[clean])
def report(run):
    pass

app.schedule("on_orders", load, trigger=tm.NewFiles(orders), constraints=[tm.Concurrency(1)])
app.schedule("on_clean", report, trigger=tm.NewPartitions(clean, 2), suspended=True)
"""


@pytest.fixture
def project(catalog_url, tmp_path):
    """A project's folder with an app file, whose catalog is `catalog_url`."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    return tmp_path


@pytest.fixture
def mill(project):
    """The project, opened."""
    with tm.open(project) as opened:
        yield opened
