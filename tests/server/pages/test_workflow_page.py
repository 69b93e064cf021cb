"""The page of a workflow's run: its nodes as a graph, and as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.stage import Stage, staged
from tidemill.cli.main import main

APP = """
import tidemill as tm

app = tm.App("shop")

@app.python()
def count(run):
    run.put("rows", 3)

@app.python()
def large(run):
    pass

@app.python()
def broken(run):
    raise ValueError("no rate")

@app.python()
def report(run):
    pass

app.workflow("check", [
    tm.Node(count),
    tm.Node(large, after=[count], when=tm.When("count.rows", ">", 10)),
    tm.Node(broken, after=[count]),
    tm.Node(report, after=[broken]),
])
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A project with a workflow that has failed."""
    folder = tmp_path_factory.mktemp("workflow")
    with staged(folder, f"sqlite:///{folder / 'catalog.db'}", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        opened.mill.runs.start("check")
        opened.play()
        yield opened


@pytest.fixture(scope="module")
def workflow(stage: Stage):
    """The run of the workflow."""
    return stage.mill.runs.list(program="check")[0]


def test_the_page_draws_the_nodes_and_says_why_one_did_not_run(browser, read, workflow):
    """At three in the morning: which node failed, what did not start, and what a retry does."""
    words = read(f"/runs/{workflow.run_id}")
    text = browser.get(f"/runs/{workflow.run_id}").text

    assert "node broken: ValueError: no rate" in words
    assert "Graph of 4 things" in text
    assert f'href="/runs/{workflow.run_id}-broken"' in text
    assert "rows=3" in words
    assert "count.rows &gt; 10 does not hold" in text
    assert "a node before it has failed" in words
    assert "Resume" in words


def test_the_page_of_a_node_links_its_workflow(browser, read, workflow):
    """From the error to the whole, which alone is retried."""
    words = read(f"/runs/{workflow.run_id}-broken")
    assert "Retry" not in words
    assert f"Why it ran {workflow.run_id} workflow" in words
    assert f'href="/runs/{workflow.run_id}"' in browser.get(f"/runs/{workflow.run_id}-broken").text


def test_the_commands_show_the_nodes(stage, workflow, monkeypatch, capsys):
    """The same for the terminal and for programs."""
    monkeypatch.chdir(stage.mill.project.config.folder)

    with pytest.raises(SystemExit, match="0"):
        main(["run", "show", workflow.run_id])
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["run", "list", "--parent", workflow.run_id, "--state", "failed", "--json"])
    listed = capsys.readouterr().out

    assert "skipped" in shown
    assert "blocked" in shown
    (one,) = json.loads(listed)
    assert one["run_id"] == f"{workflow.run_id}-broken"
