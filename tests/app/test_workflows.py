"""Workflows: nodes in order, claims that belong to the workflow, resumption from the failed node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.stage import staged
from tests.yardstick import patience

SAID = """
from pathlib import Path


def say(run, text):
    with open("said.txt", "a") as said:
        print(text, file=said)
"""

STEPS = (
    SAID
    + """
raw = app.inbox("raw", "landing", format="text", settle="0s")
out = app.fileset("out", keys={"step": "string"}, format="text")


@app.python(reads=[raw])
def fetch(run):
    names = run.input(raw).files
    run.put("files", len(names))
    say(run, f"fetch {names}")


@app.python(reads=[raw], writes=[out])
def process(run):
    say(run, f"process {run.input(raw).files} of {run.values['fetch.files']}")
    run.output(out).append({"step=process": f"{run.id}\\n"})
    if Path("broken.txt").read_text():
        raise RuntimeError("process is broken")


@app.python(reads=[raw], arguments={"files": int})
def update(run):
    say(run, f"update {run.input(raw).files} of {run.arguments['files']}")


load = app.workflow("load", [
    tm.Node(fetch),
    tm.Node(process, after=[fetch]),
    tm.Node(update, after=[process], arguments={"files": tm.NodeValue("fetch.files")}),
], holds=[raw])
app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
"""
)


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """The seed's three steps as one workflow, deployed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "broken.txt").write_text("")
    with staged(tmp_path, catalog_url) as opened:
        opened.declare(STEPS)
        yield opened


def land(stage, *names):
    """Let files arrive, and have them found."""
    for name in names:
        (stage.mill.project.config.folder / "landing" / name).write_text(f"{name}\n")
    stage.mill.inboxes.scan("raw")


def states(stage):
    """Return the states of the files."""
    return {file.name: file.status for file in stage.mill.inboxes.files("raw").items}


def runs_of(stage):
    """Return the runs, oldest first, each as program and state."""
    return [(run.program.rpartition(".")[2], run.state) for run in reversed(stage.mill.runs.list().items)]


def test_the_steps_of_a_workflow_get_the_same_files_and_the_last_closes_them(stage):
    """Seed 004: fetch and mark, process, update the status. A file that comes meanwhile waits for the next run."""
    land(stage, "1.txt", "2.txt")
    stage.schedule()
    stage.work()
    land(stage, "3.txt")
    marked = states(stage)
    stage.work()
    stage.work()
    done = states(stage)
    stage.play()

    assert marked == {"1.txt": "IN_PROGRESS", "2.txt": "IN_PROGRESS", "3.txt": "NEW"}
    assert done == {"1.txt": "SUCCESS", "2.txt": "SUCCESS", "3.txt": "NEW"}
    assert set(states(stage).values()) == {"SUCCESS"}
    assert stage.lines_of() == [
        "fetch ['1.txt', '2.txt']",
        "process ['1.txt', '2.txt'] of 2",
        "update ['1.txt', '2.txt'] of 2",
        "fetch ['3.txt']",
        "process ['3.txt'] of 1",
        "update ['3.txt'] of 1",
    ]
    assert {state for _, state in runs_of(stage)} == {"COMPLETED"}
    assert stage.mill.catalog.audit().findings == ()


def test_a_node_is_not_replayed(stage):
    """Its input is on record as that of its workflow: a replay would write the output of no input over good rows."""
    land(stage, "a.csv")
    stage.mill.runs.start("shop.load")
    ran = [*stage.work(), *stage.work(), *stage.work()]

    assert [run.state for run in ran] == ["COMPLETED"] * 3
    for node in ran:
        with raises_code("nothing_to_replay", "is a node of run_"):
            stage.mill.runs.replay(node.run_id)


def test_a_failed_workflow_goes_on_with_the_failed_node_and_the_same_files(stage):
    """Its first node is not repeated, and what arrived meanwhile stays for the next run."""
    (stage.mill.project.config.folder / "broken.txt").write_text("yes")
    land(stage, "1.txt")
    stage.play()
    failed = next(run for run in stage.mill.runs.list().items if run.program.endswith(".load"))
    land(stage, "2.txt")
    kept = states(stage)
    (stage.mill.project.config.folder / "broken.txt").write_text("")
    resumed = stage.mill.runs.retry(failed.run_id)
    with raises_code("not_resumable", failed.run_id):
        stage.mill.runs.retry(failed.run_id)
    while stage.work():
        pass

    assert (failed.state, failed.exit_reason) == ("FAILED", "node process: RuntimeError: process is broken")
    assert kept == {"1.txt": "IN_PROGRESS", "2.txt": "NEW"}
    assert states(stage) == {"1.txt": "SUCCESS", "2.txt": "NEW"}
    assert stage.mill.runs.show(resumed.run_id).state == "COMPLETED"
    assert [line for line in stage.lines_of() if line.startswith("fetch")] == ["fetch ['1.txt']"]
    assert stage.lines_of()[-2:] == ["process ['1.txt'] of 1", "update ['1.txt'] of 1"]
    assert len(stage.mill.datasets.files("out")) == 1
    assert stage.mill.catalog.audit().findings == ()


def test_a_failed_workflow_that_is_not_resumed_returns_its_files(stage):
    """Work never sticks: after the time the files wait for another run, which begins with the first node."""
    (stage.mill.project.config.folder / "broken.txt").write_text("yes")
    land(stage, "1.txt")
    stage.play()
    failed = next(run for run in stage.mill.runs.list().items if run.program.endswith(".load"))
    stage.end_holds()
    returned = states(stage)
    (stage.mill.project.config.folder / "broken.txt").write_text("")
    stage.pass_time("UPDATE inbox_file SET not_before = 1 WHERE not_before > 0")
    stage.play()
    again = stage.mill.runs.retry(failed.run_id)

    assert returned == {"1.txt": "ERROR"}
    assert states(stage) == {"1.txt": "SUCCESS"}
    assert stage.find(again.run_id).triggered_by["retry_of"] == failed.run_id
    assert stage.mill.catalog.audit().findings == ()


@pytest.mark.parametrize("node", ["fetch", "process"])
def test_a_killed_workflow_kills_its_node_and_returns_the_files(stage, node):
    """Nothing of it starts any more, whether the node waited or a driver was at work."""
    land(stage, "1.txt")
    stage.schedule()
    if node == "process":
        stage.work()
    workflow = next(run for run in stage.mill.runs.list().items if run.program.endswith(".load"))
    killed = stage.mill.runs.kill(workflow.run_id)
    left = stage.take()

    assert (killed.state, killed.changed) == ("KILLED", True)
    assert left == []
    assert states(stage) == {"1.txt": "NEW"}
    assert stage.find(f"{workflow.run_id}-{node}").state == "KILLED"
    assert stage.mill.catalog.audit().findings == ()


def test_a_workflow_under_way_is_killed_when_its_node_has_ended(stage):
    """The runner ends the driver first; a process that asked and died is replaced by each runner."""
    land(stage, "1.txt")
    stage.schedule()
    (taken,) = stage.take()
    workflow = stage.mill.runs.kill(taken.workflow)
    asked = stage.find(taken.run_id).state
    stage.end_attempt(taken, "killed", "killed on request")

    assert (workflow.state, asked) == ("STOPPING", "STOPPING")
    assert stage.find(taken.workflow).state == "KILLED"


GRAPH = (
    SAID
    + """
@app.python(arguments={"rows": int})
def count(run):
    run.put("rows", run.arguments["rows"])
    run.put("name", "n")

@app.python()
def small(run):
    say(run, "small")

@app.python()
def large(run):
    say(run, "large")
    run.put("done", True)

@app.python()
def after_small(run):
    say(run, "after_small")

@app.python()
def join(run):
    say(run, f"join {sorted(run.values)}")

graph = app.workflow("graph", [
    tm.Node(join, after=[after_small, large]),
    tm.Node(count),
    tm.Node(small, after=[count], when=tm.When("count.rows", "<", 10)),
    tm.Node(large, after=[count], when=tm.When("count.rows", ">=", 10)),
    tm.Node(after_small, after=[small]),
], arguments={"rows": int})

@app.python(arguments={"rows": int})
def report(run):
    say(run, f"report {run.arguments['rows']}")

app.schedule("after", report, trigger=tm.RunEnded(graph), arguments={"rows": tm.From("run.values.count.rows")})
"""
)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (3, ["small", "after_small", "join ['count.name', 'count.rows']", "report 3"]),
        (30, ["large", "join ['count.name', 'count.rows', 'large.done']", "report 30"]),
    ],
)
def test_a_condition_chooses_a_branch_and_the_join_follows_it(stage, rows, said):
    """A skipped branch does not keep the join from its start, and the message has the values of the nodes."""
    stage.declare(GRAPH)
    stage.mill.runs.start("shop.graph", {"rows": rows})
    stage.play()

    assert stage.lines_of() == said


KILLED = """
import os
import signal
from pathlib import Path

import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="csv", schema="id long, amount double", settle="0s")
clean = app.fileset("clean", keys={"file": "string"})


def once(what):
    mark = Path(f"{what}.mark")
    first = not mark.exists()
    mark.touch()
    return first


def die_once(run):
    with open("seen.txt", "a") as seen:
        print(run.id.rpartition("-")[2], run.input(raw).files, file=seen)
    if once(f"died-{run.id.rpartition('-')[2]}"):
        os.kill(os.getpid(), signal.SIGKILL)


@app.python(reads=[raw])
def fetch(run):
    die_once(run)


@app.spark(reads=[raw], writes=[clean])
def process(run, spark):
    rows = run.input(raw).read().selectExpr("id", "amount", "'all' AS file")
    run.output(clean).append(rows)
    die_once(run)
    if once("failed"):
        raise ValueError("the exchange rates are missing")
    run.put("rows", rows.count())


@app.python(reads=[raw], arguments={"rows": int})
def update(run):
    die_once(run)


app.workflow("load", [
    tm.Node(fetch),
    tm.Node(process, after=[fetch]),
    tm.Node(update, after=[process], arguments={"rows": tm.NodeValue("process.rows")}),
], holds=[raw])
"""


@pytest.mark.spark
@pytest.mark.long
def test_each_node_is_killed_with_signal_nine_and_the_workflow_resumes_where_it_failed(tmp_path, sqlite_catalog_url):
    """Seed 004 on real Spark: each process dies once after its work and before its commit; nothing is there twice."""
    (tmp_path / "app.py").write_text(KILLED)
    (tmp_path / "landing").mkdir()
    for name in ("1.csv", "2.csv"):
        (tmp_path / "landing" / name).write_text(f"id,amount\n{name[0]},2.5\n")
    spark = '[runner]\nslots = 1\n[spark]\nmaster = "local[2]"\nclass_data = false\n'
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n{spark}')
    command = [str(Path(sys.executable).with_name("tidemill")), "up", "--until-idle", "--no-deploy", "--no-server"]
    with tm.open(tmp_path) as mill:
        mill.deploy()
        mill.inboxes.scan("raw")
        failed = mill.runs.start("load").run_id
        subprocess.run(command, cwd=tmp_path, check=False, timeout=patience(240), capture_output=True)
        (tmp_path / "landing" / "3.csv").write_text("id,amount\n3,2.5\n")
        stood = mill.runs.show(failed)
        resumed = mill.runs.retry(failed).run_id
        subprocess.run(command, cwd=tmp_path, check=True, timeout=patience(240), capture_output=True)
        run = mill.runs.show(resumed)
        files = {file.name: file.status for file in mill.inboxes.files("raw").items}
        (partition,) = mill.datasets.partitions("clean")
        findings = mill.catalog.audit().findings

    assert (stood.state, [node.state for node in stood.workflow.nodes]) == ("FAILED", ["done", "failed", "blocked"])
    assert (run.state, [node.state for node in run.workflow.nodes]) == ("COMPLETED", ["done", "done", "done"])
    assert [node.run_id.startswith(failed) for node in run.workflow.nodes] == [True, False, False]
    assert run.workflow.nodes[1].values == {"rows": 2}
    assert files == {"1.csv": "SUCCESS", "2.csv": "SUCCESS", "3.csv": "NEW"}
    assert partition.rows == 2
    assert findings == ()
    seen = (tmp_path / "seen.txt").read_text().splitlines()
    assert [line.partition(" ")[0] for line in seen] == ["fetch"] * 2 + ["process"] * 3 + ["update"] * 2
    assert {line.partition(" ")[2] for line in seen} == {"['1.csv', '2.csv']"}


FORK = (
    SAID
    + """
@app.python()
def left(run):
    run.put("n", 1)

@app.python()
def right(run):
    run.put("n", 2)

@app.python(arguments={"left": int, "right": int})
def join(run):
    say(run, f"join {run.arguments['left']} {run.arguments['right']}")

app.workflow("fork", [
    tm.Node(left),
    tm.Node(right),
    tm.Node(join, after=[left, right], arguments={"left": tm.NodeValue("left.n"), "right": tm.NodeValue("right.n")}),
])
"""
)


@pytest.mark.parametrize("end", ["commit", "failure"])
def test_nodes_that_end_at_once_start_their_join_once(stage, end):
    """Each end is decided while the other node still runs: one of the two is refused by its guard, and looks again."""
    stage.declare(FORK)
    stage.mill.runs.start("shop.fork")
    left, right = sorted(stage.take(), key=lambda run: run.node)
    if end == "commit":
        stage.at["driver.before_commit"] = lambda: stage.attempt(right)
    else:
        stage.at["driver.before_commit"] = lambda: stage.end_attempt(right, "failed", "it is broken")
    stage.attempt(left)
    ended = stage.play()

    workflow = stage.find(left.workflow)
    if end == "commit":
        assert [run.node for run in ended] == ["join"]
        assert stage.lines_of() == ["join 1 2"]
        assert workflow.state == "COMPLETED"
    else:
        assert ended == []
        assert (workflow.state, workflow.exit_reason) == ("FAILED", "node right: it is broken")


REFUSED = [
    ("[tm.Node(one, after=[two]), tm.Node(two, after=[one])]", "go in a circle: one, two"),
    ("[tm.Node(one), tm.Node(one)]", "has the node 'one' twice"),
    ("[tm.Node('noe')]", "did you mean 'one'"),
    ("[tm.Node(loop)]", "is a worker"),
    ("[tm.Node(one, after=[two])]", "which is no node of it"),
    ("[tm.Node(one), tm.Node(two, when=tm.When('one.n', '>', 1))]", "a value of no node before it"),
    ("[tm.Node(one), tm.Node(two, after=[one], when=tm.When('one.n', '=', 1))]", "is no comparison"),
    ("[tm.Node(one, arguments={'day': 1})]", "declares no argument 'day'"),
    ("[tm.Node(needs)]", "needs the argument 'day'"),
    ("[tm.Node(needs, arguments={'day': 3})]", "must be of type string"),
    ("[tm.Node(one)], holds=[raw]", "which none of its nodes reads"),
    ("[tm.Node(inner)]", "which is a workflow"),
    ("[]", "from 1 to 100"),
    ("[tm.Node(one)], resume_within='60d'", "0 to 30 days"),
]


@pytest.mark.parametrize(("nodes", "why"), REFUSED)
def test_a_workflow_that_cannot_be_is_refused_where_it_is_declared(nodes, why):
    """A typing error must not be found at night, by a run that never ends."""
    text = f"""
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text")
lines = app.fileset("lines", keys={{"n": "int"}})

@app.python()
def one(run): pass

@app.python()
def two(run): pass

@app.python(arguments={{"day": str}})
def needs(run): pass

@app.worker(reads=[lines])
def loop(run): pass

inner = app.workflow("inner", [tm.Node(two)])
app.workflow("outer", {nodes})
"""
    with pytest.raises(tm.UserError, match=why):
        exec(text, {})  # as the loader of the app file does


def test_a_program_that_gets_its_input_from_a_workflow_is_not_started_alone(stage):
    """Alone the program would take nothing, or other files than its workflow."""
    with raises_code("node_of_workflow", "raw"):
        stage.mill.runs.start("shop.process")
    with raises_code("node_of_workflow", "raw"):
        stage.declare(STEPS.replace('"on_raw", load', '"on_raw", process'))


@pytest.mark.parametrize("value", [None, [1], float("nan"), "x" * 5000, b"x"])
def test_a_value_that_cannot_be_put_fails_the_run(stage, value):
    """The message about a workflow has all values: none of them may be large."""
    stage.declare(f"nan = float('nan')\n@app.python()\ndef put(run):\n    run.put('n', {value!r})\n")

    state, reason = stage.outcome("put")

    assert state == "FAILED"
    assert "bad_value" in reason or "value 'n' is refused" in reason


def test_partitions_that_a_workflow_holds_are_completed_by_its_last_reader(stage):
    """File sets as inboxes: the consumer is that of the workflow, and a kill returns the partitions."""
    stage.declare(
        SAID
        + """
lines = app.fileset("lines", keys={"n": "int"}, format="text")

@app.python(reads=[lines])
def first(run):
    say(run, f"first {run.input(lines).partitions}")

@app.python(reads=[lines])
def last(run):
    say(run, f"last {run.input(lines).partitions}")

steps = app.workflow("steps", [tm.Node(first), tm.Node(last, after=[first])], holds=[tm.Reads(lines, max_partitions=2)])
app.schedule("on_lines", steps, trigger=tm.NewPartitions(lines))
"""
    )
    for number in (1, 2, 3):
        stage.publish("lines", f"n={number}")
    stage.schedule()
    stage.work()
    (consumer,) = stage.mill.consumers.list().items
    held = stage.sql("SELECT count(*) FROM consumer_work WHERE state = 'in_progress'")
    stage.play()

    assert consumer.name == "default.shop.steps"
    assert held == [(2,)]
    assert stage.lines_of() == [
        "first [{'n': 1}, {'n': 2}]",
        "last [{'n': 1}, {'n': 2}]",
        "first [{'n': 3}]",
        "last [{'n': 3}]",
    ]
    assert stage.mill.catalog.audit().findings == ()
