"""docs/workflows.md: its apps deploy as they stand, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stage import staged

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "workflows.md").read_text(encoding="utf-8")
STEPS, BRANCHES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.spark
def test_the_steps_of_the_page_load_files(sqlite_catalog_url, tmp_path, spark):
    """The last node closes what the first has taken."""
    with staged(tmp_path, sqlite_catalog_url, STEPS, spark=spark) as stage:
        (tmp_path / "landing").mkdir(exist_ok=True)
        for name in ("a.csv", "b.csv"):
            (tmp_path / "landing" / name).write_text("id,amount,ordered_at\n1,2.5,2026-01-01T10:00:00\n")
        stage.mill.inboxes.scan("raw")
        stage.pass_time("UPDATE inbox_marker SET next_listing_at = 1")
        stage.mill.inboxes.scan("raw")
        ran = [(str(run.node), str(run.state)) for run in stage.play()]
        files = stage.mill.inboxes.show("raw").files
        (workflow,) = stage.mill.runs.list(program="load").items
        nodes = stage.mill.runs.list(parent=workflow.run_id).items
        shown = stage.mill.runs.show(workflow.run_id).workflow

    assert ran == [("fetch", "COMPLETED"), ("process", "COMPLETED"), ("update", "COMPLETED")]
    assert files == {"SUCCESS": 2}
    assert [run.run_id for run in nodes] == [f"{workflow.run_id}-{node}" for node in ("update", "process", "fetch")]
    assert [(node.node, node.state, node.after) for node in shown.nodes] == [
        ("fetch", "done", ()),
        ("process", "done", ("fetch",)),
        ("update", "done", ("process",)),
    ]
    assert shown.claims == "closed"


def test_the_branches_of_the_page_join(sqlite_catalog_url, tmp_path, capsys):
    """The skipped branch does not keep the report from its start."""
    with staged(tmp_path, sqlite_catalog_url, BRANCHES) as stage:
        run_id = stage.mill.runs.start("check", {"day": "2026-01-02"}).run_id
        stage.play()
        workflow = stage.mill.runs.show(run_id).workflow
        shown = {node.node: (node.state, node.why) for node in workflow.nodes}

    assert shown["large"] == ("skipped", "count.rows >= 1000 does not hold")
    assert shown["report"] == ("done", "")
    assert workflow.claims == ""
    assert capsys.readouterr().out.splitlines() == ["a quick look", "10"]
