"""Lineage: from a file to the data made of the file and back, and the graph of all that is declared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import Stage, staged
from tidemill.cli.main import main
from tidemill.mill.access import Access, Role

APP: Final = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", format="text", settle="0s")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")
users = app.snapshot("users", key=["id"])
report = app.fileset("report", keys={"day": "date"}, format="text")


@app.python(reads=[orders], writes=[lines])
def load(run):
    if run.input(orders):
        run.output(lines).append({"hour=10": "a\\n"})


@app.python(writes=[users])
def mirror(run):
    run.output(users).replace({"": "a\\n"})


@app.python(reads=[lines, users], writes=[report])
def count(run):
    run.input(lines).partitions
    run.input(users)
    run.output(report).append({"day=2026-01-01": "1\\n"})


app.schedule("on_orders", load, trigger=tm.NewFiles(orders))
app.schedule("on_lines", count, trigger=tm.AllOf(tm.NewPartitions(lines, 1), tm.RunEnded("shop.mirror")))
app.schedule("at_signal", mirror, trigger=tm.AnyOf(tm.Hook("go"), tm.MessageOn("news")))
"""


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A project in which one file has become a report: three runs, one after the other."""
    with staged(tmp_path, catalog_url, APP, ManualClock(datetime(2026, 1, 1, 12, tzinfo=UTC))) as opened:
        path = tmp_path / "landing" / "orders" / "o 1.txt"
        path.write_text("a\n")
        opened.mill.inboxes.scan("orders")
        for program in ("load", "mirror", "count"):
            assert opened.outcome(f"shop.{program}") == ("COMPLETED", "")
        yield opened


def depths(found):
    """Return the nodes by name, with their depths; a run by its program."""
    return {node.program or node.name: node.depth for node in found.nodes}


def edges(found):
    """Return the edges by the names of their nodes."""
    names = {node.id: node.program or node.name for node in found.nodes}
    return {(names[edge.source], edge.kind.value, names[edge.target]) for edge in found.edges}


FILE, HOUR, DAY = "default.orders/o 1.txt", "default.lines/hour=10", "default.report/day=2026-01-01"
LOAD, MIRROR, COUNT = "default.shop.load", "default.shop.mirror", "default.shop.count"


def test_a_file_is_followed_to_all_that_was_made_of_it(stage):
    """A file turns out to be wrong: the engineer on duty asks which reports have its rows."""
    found = stage.mill.inboxes.lineage("orders", "o 1.txt")

    assert depths(found) == {FILE: 0, LOAD: 1, HOUR: 2, COUNT: 3, DAY: 4}
    assert edges(found) == {
        (FILE, "reads", LOAD),
        (LOAD, "writes", HOUR),
        (HOUR, "reads", COUNT),
        (COUNT, "writes", DAY),
    }
    assert [node.state for node in found.nodes] == ["SUCCESS", "COMPLETED", "current", "COMPLETED", "current"]
    assert not found.cut


def test_a_partition_is_followed_back_to_files_and_versions(stage):
    """A number looks wrong: its owner asks from which files and which version of the users it comes."""
    found = stage.mill.datasets.lineage("report", partition="day=2026-01-01")

    assert depths(found) == {DAY: 0, COUNT: -1, HOUR: -2, "default.users": -2, LOAD: -3, MIRROR: -3, FILE: -4}
    assert ("default.users", "reads", COUNT) in edges(found)
    version = next(node for node in found.nodes if node.kind == "version")
    assert version.write_pointer == stage.mill.snapshots.versions("users")[0].version


def test_a_version_and_a_run_have_sources_and_results(stage):
    """A version is read by any number of runs; a run stands between its inputs and outputs."""
    version = stage.mill.snapshots.versions("users")[0].version
    run = next(run for run in stage.mill.runs.list() if run.program == LOAD)

    of_version = stage.mill.datasets.lineage("users", version=version)
    of_run = stage.mill.runs.lineage(run.run_id, depth=1)

    assert depths(of_version) == {"default.users": 0, MIRROR: -1, COUNT: 1, DAY: 2}
    assert depths(of_run) == {LOAD: 0, FILE: -1, HOUR: 1}
    assert of_run.cut
    assert {edge.at for edge in of_run.edges} == {run.ended_at}


@pytest.mark.parametrize(("direction", "only"), [("upstream", {LOAD, FILE}), ("downstream", {COUNT, DAY})])
def test_a_walk_goes_in_the_wanted_direction_only(stage, direction, only):
    """The sources of a result's other sources are no sources of this partition."""
    found = stage.mill.datasets.lineage("lines", partition="hour=10", direction=direction)

    assert depths(found).keys() == {HOUR} | only


def test_each_append_is_a_node_and_a_replaced_change_says_so(stage):
    """A partition of three appends has three sources; after an overwrite the runs that took them still count."""
    stage.publish("lines", "hour=10")
    appended = stage.mill.datasets.lineage("lines", partition="hour=10", depth=1)
    stage.publish("lines", "hour=10", op="overwrite")
    replaced = stage.mill.inboxes.lineage("orders", "o 1.txt")

    assert [node.kind for node in appended.nodes if node.depth == 0] == ["partition", "partition"]
    assert [node.kind for node in appended.nodes if node.depth == -1] == ["run", "run"]
    assert {node.state for node in replaced.nodes if node.name == HOUR} == {"superseded"}


def test_the_limit_cuts_and_says_so(stage):
    """A feed of a year has too many nodes to draw: an answer without a bound would be no answer."""
    found = stage.mill.datasets.lineage("report", partition="day=2026-01-01", limit=3)

    assert len(found.nodes) == 3
    assert found.cut
    assert {edge.source for edge in found.edges} | {edge.target for edge in found.edges} <= {n.id for n in found.nodes}


def test_a_data_set_is_shown_as_it_is_declared(stage):
    """The newcomer asks which programs fill a data set, when, and which read it."""
    found = stage.mill.datasets.lineage("lines")

    assert depths(found) == {
        "default.lines": 0,
        LOAD: -1,
        COUNT: 1,
        "default.shop.on_lines": 1,
        "default.orders": -2,
        "default.shop.on_orders": -2,
        "default.report": 2,
    }
    assert ("default.orders", "triggers", "default.shop.on_orders") in edges(found)
    assert not found.cut


def test_the_flow_has_all_that_is_declared(stage):
    """The page Flow draws all of it: what is missing there does not exist for its reader."""
    found = stage.mill.flow()

    assert edges(found) == {
        ("default.orders", "reads", LOAD),
        ("default.orders", "triggers", "default.shop.on_orders"),
        ("default.shop.on_orders", "starts", LOAD),
        (LOAD, "writes", "default.lines"),
        ("default.lines", "reads", COUNT),
        ("default.users", "reads", COUNT),
        (COUNT, "writes", "default.report"),
        ("default.lines", "triggers", "default.shop.on_lines"),
        (MIRROR, "triggers", "default.shop.on_lines"),
        ("default.shop.on_lines", "starts", COUNT),
        ("default.go", "triggers", "default.shop.at_signal"),
        ("news", "triggers", "default.shop.at_signal"),
        ("default.shop.at_signal", "starts", MIRROR),
        (MIRROR, "writes", "default.users"),
    }
    states = {node.name: node.state for node in found.nodes}
    assert states["default.orders"] == "filled"
    assert states[LOAD] == "COMPLETED"
    assert not found.cut


def test_edges_have_the_times_of_the_last_moves(stage):
    """An arrow without a time says nothing of a feed that stopped a week ago."""
    at = {run.program: run.ended_at for run in stage.mill.runs.list()}
    names = {node.id: node.name for node in stage.mill.flow().nodes}
    moved = {(names[one.source], names[one.target]): one.at for one in stage.mill.flow().edges}

    assert moved["default.orders", LOAD] == at[LOAD]
    assert moved[LOAD, "default.lines"] is not None
    assert moved["default.shop.on_orders", LOAD] is None


@pytest.mark.parametrize("around", ["shop.load", "program:default.shop.load", "load"])
def test_the_flow_narrows_to_what_lies_around_a_program(stage, around):
    """A click on a node of the page Flow leaves its sources and results, and hides the rest."""
    found = stage.mill.flow(around)

    assert depths(found) == {
        LOAD: 0,
        "default.orders": -1,
        "default.shop.on_orders": -1,
        "default.lines": 1,
        COUNT: 2,
        "default.shop.on_lines": 2,
        "default.report": 3,
    }


def test_the_flow_narrows_to_schedules_and_data_sets_too(stage):
    """Each node of the page can be clicked."""
    assert depths(stage.mill.flow("shop.at_signal")).keys() >= {"default.go", "news", MIRROR, "default.report"}
    assert depths(stage.mill.flow("schedule:default.shop.on_lines"))["default.shop.on_lines"] == 0
    assert depths(stage.mill.flow("inbox:default.orders")) == depths(stage.mill.flow("orders"))


def test_the_flow_around_what_is_not_declared_is_not_found(stage):
    """A retired program has no place in the graph, and a name of another namespace is no name."""
    stranger = stage.mill.acting_as("ann", Access(Role.VIEWER, "abc"))
    stage.declare("")

    for ask, around in ((stage.mill.flow, "shop.load"), (stage.mill.flow, "a b"), (stranger.flow, "default.orders")):
        with raises_code("not_found"):
            ask(around)


def test_the_flow_is_cut_at_its_limit(stage):
    """Five thousand schedules are no picture."""
    found = stage.mill.flow(limit=4)

    assert (len(found.nodes), found.cut) == (4, True)


def test_a_caller_of_one_namespace_sees_nothing_of_another(stage):
    """A lineage would else name data sets and programs that the lists of the caller leave out."""
    stage.sql("UPDATE dataset SET namespace = 'secret' WHERE name = 'lines' RETURNING 1")
    caller = stage.mill.acting_as("ann", Access(Role.VIEWER, "default"))
    stranger = stage.mill.acting_as("bob", Access(Role.VIEWER, "secret"))
    run = next(run for run in stage.mill.runs.list() if run.program == LOAD)

    assert depths(caller.inboxes.lineage("orders", "o 1.txt")) == {FILE: 0, LOAD: 1}
    assert "secret" not in json.dumps([node.name for node in caller.flow().nodes])
    assert [node.name for node in stranger.flow().nodes] == ["secret.lines"]
    with raises_code("not_found"):
        stranger.runs.lineage(run.run_id)


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("nothing", {}, "not_found"),
        ("lines", {"partition": "hour=11"}, "not_found"),
        ("lines", {"partition": "minute=11"}, "bad_key"),
        ("lines", {"version": 3}, "bad_lineage"),
        ("users", {"version": 3}, "not_found"),
        ("users", {"partition": "id=3"}, "bad_lineage"),
        ("lines", {"partition": "hour=10", "version": 3}, "bad_lineage"),
        ("lines", {"depth": 0}, "bad_lineage"),
        ("lines", {"limit": 1001}, "bad_lineage"),
        ("lines", {"direction": "sideways"}, "bad_filter"),
    ],
)
def test_what_cannot_be_asked_is_refused(stage, name, options, code):
    """A wrong name has an answer that helps, and never a traceback or an empty graph."""
    with raises_code(code):
        stage.mill.datasets.lineage(name, **options)


@pytest.mark.parametrize("text", ["a\0", "\ud800"])
def test_a_text_that_no_catalog_holds_names_no_run(stage, text):
    """PostgreSQL would answer with a traceback, and the server with 500."""
    for ask in (stage.mill.runs.show, stage.mill.runs.lineage):
        with raises_code("not_found" if "sqlite" in stage.mill.project.config.catalog else "unstorable_text"):
            ask(text)


def test_unknown_files_and_runs_are_not_found(stage):
    """An empty graph would say that nothing was made of the file."""
    with raises_code("not_found"):
        stage.mill.inboxes.lineage("orders", "o 2.txt")
    with raises_code("not_found"):
        stage.mill.runs.lineage("run_1")


def test_the_commands_print_trees_and_json(stage, tmp_path, capsys):
    """People read a tree, a script one document."""

    def say(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *words])
        assert not ended.value.code
        return capsys.readouterr().out

    tree = say("dataset", "lineage", "report", "day=2026-01-01", "--direction", "upstream").splitlines()

    assert (tree[0], tree[1], tree[-1]) == (DAY, "upstream", "downstream  none")
    assert {line.split("  20")[0].split("  tx ")[0].rstrip() for line in tree[2:-1] if "run_" not in line} == {
        f"    partition  {HOUR}  current",
        f"        file  {FILE}  SUCCESS",
        "    version  default.users  current",
    }
    assert json.loads(say("inbox", "lineage", "orders", "o 1.txt", "--json"))["cut"] is False
    run_id = stage.mill.runs.list()[0].run_id
    assert say("run", "lineage", run_id, "--depth", "1").splitlines()[-1] == "there is more: raise --depth or --limit"
    assert "program:default.shop.load" in say("flow")
    assert json.loads(say("flow", "--json"))["nodes"]
    assert "mirror" not in say("flow", "orders", "--limit", "5")
