"""Lineage of a data set, a partition, a file, a version and a run: one page, as a picture and as a list."""

from __future__ import annotations

import re
import shlex
from html import unescape
from urllib.parse import quote

import pytest

PARTITION = "default.orders/day=2026-01-01"


def _command(page: str) -> list[str]:
    found = re.search(r"<span>\$ tidemill ([^<]+)</span>", page)
    assert found is not None
    return shlex.split(unescape(found.group(1)))


@pytest.fixture
def page(browser):
    """Return the page of a thing."""

    def read(thing: str, more: str = "") -> str:
        answer = browser.get(f"/lineage?thing={quote(thing)}{more}")
        assert answer.status_code == 200, answer.text[-300:]
        return answer.text

    return read


def test_a_partition_is_traced_up_to_its_file_and_down_to_its_readers(page):
    """After a wrong figure, a person asks which file it came from."""
    text = page(PARTITION)
    words = re.sub(r"<[^>]+>", " ", text)

    assert text.count('<g class="box') == 3
    assert "a.csv" in words
    assert re.search(r"2 steps upstream\s+raw/a.csv\s+file", words)
    assert re.search(r"1 step upstream\s+run_\w+\s+run\s+shop.load", words)
    assert "/lineage?thing=default.raw%2Fa.csv" in text
    assert _command(text) == ["dataset", "lineage", PARTITION.partition("/")[0], "day=2026-01-01"]


def test_a_file_and_a_run_are_traced(page, stage):
    """The same page, whatever the thing is."""
    run = stage.mill.runs.list(program="shop.load", state="completed")[0]
    of_file, of_run = page("raw/a.csv"), page(run.run_id)

    assert "day=2026-01-02" in of_file
    assert _command(of_file) == ["inbox", "lineage", "raw", "a.csv"]
    assert "day=2026-01-02" in of_run
    assert "1 step upstream" in of_run
    assert _command(of_run) == ["run", "lineage", run.run_id]


def test_a_data_set_is_traced_as_declared(page):
    """Before anything has run, too."""
    text = page("orders")

    assert "shop.sift" in text
    assert 'href="/runs?program=default.shop.load"' in text
    assert "/lineage?thing=default.late" in text
    assert _command(text) == ["dataset", "lineage", "orders"]


def test_a_version_of_a_snapshot_is_traced(stage, page):
    """Versions have a number behind the name."""
    stage.mill.project.config.app.write_text(
        stage.mill.project.config.app.read_text(encoding="utf-8")
        + '\nplanes = app.snapshot("planes", key=["id"], max_versions=9)\n',
        encoding="utf-8",
    )
    stage.mill.deploy()
    with stage.transaction("planes") as tx:
        tx.snapshot("default.planes").replace({"": "a\n"})
    version = stage.mill.snapshots.versions("planes")[0].version
    text = page(f"default.planes@{version}")

    assert f"/lineage?thing=default.planes%40{version}" in text
    assert _command(text) == ["dataset", "lineage", "default.planes", "--version", str(version)]


def test_direction_and_depth_are_in_the_url_of_each_box(page):
    """A link says what was seen."""
    text = page(PARTITION, "&direction=upstream&depth=1")

    assert text.count('<g class="box') == 2
    assert "cut: there is more" in text
    assert "depth=2" in text
    assert '<option value="upstream" selected>' in text
    assert "&amp;direction=upstream&amp;depth=1" in text
    assert _command(text)[4:] == ["--direction", "upstream", "--depth", "1"]


@pytest.mark.parametrize(
    "query",
    ["thing=nothing", "thing=orders&depth=x", "thing=orders&depth=0", "thing=orders&direction=aside", "thing=run_1",
     "thing=orders/hour%3D1", "thing=raw/none.csv", "thing=orders@99999999999999999999", "thing=%2F", "thing=a%00b"],
)  # fmt: skip
def test_what_cannot_be_traced_is_refused_in_words(browser, query):
    """A mistyped link is the caller's."""
    assert browser.get(f"/lineage?{query}").status_code in {404, 422}


def test_without_a_thing_the_page_says_what_to_give(browser):
    """The form is there."""
    answer = browser.get("/lineage")

    assert answer.status_code == 200
    assert "name a data set, a partition" in answer.text


def test_pages_of_things_lead_to_their_lineage(browser, stage):
    """From each kind of thing."""
    run = stage.mill.runs.list(program="shop.load", state="completed")[0]
    pages = {
        "/datasets/orders": "/lineage?thing=default.orders",
        "/inboxes/raw": "/lineage?thing=default.raw",
        f"/datasets/orders/{quote('day=2026-01-01')}": "/lineage?thing=default.orders%2Fday%3D2026-01-01",
        "/why/raw/a.csv": "/lineage?thing=default.raw%2Fa.csv",
        f"/runs/{run.run_id}": f"/lineage?thing={run.run_id}",
    }

    assert [path for path, href in pages.items() if f'href="{href}"' not in browser.get(path).text] == []
