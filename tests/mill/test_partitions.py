"""Partitions chosen by their keys: in Python, on the command line and by REST, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.served import serving
from tests.stage import Stage, staged
from tidemill import iterate
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.mill import datasets

APP = """
import tidemill as tm

app = tm.App("shop")
hours = app.fileset("hours", keys={"day": "date", "hour": "int"})
"""


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """Three days of four hours; one hour has two changes."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as made:
        made.publish("hours", *(f"day=2026-01-0{day}/hour={hour}" for day in (1, 2, 3) for hour in range(4)))
        made.publish("hours", "day=2026-01-02/hour=1")
        yield made


def chosen(mill: tm.Mill, where: object, limit: int = 100) -> list[str]:
    """Return the partitions of all pages."""
    return [one.partition for one in iterate(mill.datasets.partitions, "hours", where=where, limit=limit)]


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("part", [1, 3, 1000])
def test_where_chooses_partitions_on_pages_of_any_size(stage, monkeypatch, limit, part):
    """A page that is cut within the rows that a filter refuses loses none of the accepted rows."""
    monkeypatch.setattr(datasets, "_PART", part)
    everything = chosen(stage.mill, None, limit)

    assert len(everything) == 13
    assert chosen(stage.mill, ["day=2026-01-02"], limit) == [one for one in everything if "01-02" in one]
    assert chosen(stage.mill, ["hour=1"], limit) == [one for one in everything if one.endswith("hour=1")]
    assert chosen(stage.mill, {"day": tm.Range(date(2026, 1, 2)), "hour": {0, 3}}, limit) == [
        f"day=2026-01-0{day} hour={hour}" for day in (2, 3) for hour in (0, 3)
    ]
    assert chosen(stage.mill, ["day<2026-01-01"], limit) == []


def test_a_condition_that_fits_no_key_is_refused(stage):
    """A slip in a name would show all partitions, or none."""
    with raises_code("bad_key"):
        stage.mill.datasets.partitions("hours", where=["dya=2026-01-02"])


def test_rest_client_and_command_line_choose_the_same(stage, capsys):
    """The words are those of `dataset files`."""
    expected = chosen(stage.mill, ["day=2026-01-02", "hour=1"])
    with serving(stage.mill) as (url, secret), connect(url, token=secret) as far:
        assert chosen(far, {"day": date(2026, 1, 2), "hour": 1}, 1) == expected
    words = ["dataset", "partitions", "hours", "--where", "day=2026-01-02", "--where", "hour=1"]
    with pytest.raises(SystemExit, match="0"):
        main(["--project", str(stage.mill.project.config.folder), *words])

    assert len(expected) == 2
    assert capsys.readouterr().out.count("day=2026-01-02 hour=1") == 2
