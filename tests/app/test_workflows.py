"""Workflows: nodes in order, claims that belong to the workflow, resumption from the failed node."""

from __future__ import annotations

import subprocess

import pytest

import tidemill as tm
from tests.command import TIDEMILL
from tests.errors import raises_code
from tests.run.test_attempts import beside
from tests.stage import staged
from tests.yardstick import patience
from tidemill.mill.metrics import Metric, measure
from tidemill.run.records.nodes import SQL as NODES
from tidemill.run.records.workflows import hold_claims, lock_workflow
from tidemill.upkeep.restore import end_attempts

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
    writer = next(run.run_id for run in stage.runs() if run.node == "process")
    above = stage.mill.runs.lineage(writer, direction="upstream").nodes
    assert [node.name for node in above if node.depth] == ["default.raw/1.txt", "default.raw/2.txt"]


def test_the_refusal_of_a_workflow_that_takes_files_names_another_way(stage):
    """The advice for programs would be refused: a workflow is given no chosen input."""
    days = {"by": "times", "schedule": "shop.on_raw", "since": "2026-01-01", "until": "2026-01-03"}
    for start in (
        lambda: stage.mill.runs.start("shop.load", quiet=True),
        lambda: stage.mill.backfills.start("shop.load", **days),
    ):
        with raises_code("takes_work", "declare a program of its own for the past"):
            start()


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
    (of_run,) = stage.mill.why(failed.run_id).because
    (of_file,) = stage.mill.why("raw/1.txt").because
    stage.mill.alerts.create("fails", tm.RunFailed(failed.program))
    stage.look_at_alerts()
    (alert,) = stage.mill.alerts.list()
    (stage.mill.project.config.folder / "broken.txt").write_text("")
    resumed = stage.mill.runs.retry(failed.run_id)
    with raises_code("not_resumable", f"{failed.run_id} .* run retry {resumed.run_id}"):
        stage.mill.runs.retry(failed.run_id)
    while stage.work():
        pass

    assert (failed.state, failed.exit_reason) == ("FAILED", "node process: RuntimeError: process is broken")
    assert "keeps its claims until" in of_run.why
    assert alert.why.startswith(f"run {failed.run_id} of {failed.program} failed: node process: RuntimeError")
    assert "; it keeps its claims until 20" in alert.why
    assert alert.why.endswith(f"`tidemill run retry {failed.run_id}`")
    for reason in (of_run, of_file):
        assert reason.next_look_at is not None
        assert f"run kill {failed.run_id}` returns them" in reason.unblock
    assert kept == {"1.txt": "IN_PROGRESS", "2.txt": "NEW"}
    assert states(stage) == {"1.txt": "SUCCESS", "2.txt": "NEW"}
    assert stage.mill.runs.show(resumed.run_id).state == "COMPLETED"
    assert stage.mill.runs.show(failed.run_id).workflow.claims == "resumed"
    assert [line for line in stage.lines_of() if line.startswith("fetch")] == ["fetch ['1.txt']"]
    assert stage.lines_of()[-2:] == ["process ['1.txt'] of 1", "update ['1.txt'] of 1"]
    assert len(stage.mill.datasets.files("out")) == 1
    assert stage.mill.catalog.audit().findings == ()


def count_holding(stage):
    """Return the number of failed workflows that keep claims, as the metrics have it."""
    samples = measure(stage.mill.project).samples
    return next(one.value for one in samples if one.metric is Metric.WORKFLOWS_HOLDING)


@pytest.mark.parametrize("returned_by", ["its time", "a kill"])
def test_a_failed_workflow_that_is_not_resumed_returns_its_files(stage, returned_by):
    """Work never sticks: after the time the files wait for another run, which begins with the first node."""
    (stage.mill.project.config.folder / "broken.txt").write_text("yes")
    land(stage, "1.txt")
    stage.play()
    failed = next(run for run in stage.mill.runs.list().items if run.program.endswith(".load"))
    holding = count_holding(stage)
    if returned_by == "a kill":
        killed = [stage.mill.runs.kill(failed.run_id) for _ in range(2)]
        assert [(one.state, one.changed) for one in killed] == [("FAILED", True), ("FAILED", False)]
    else:
        stage.end_holds()
    (why,) = stage.mill.why(failed.run_id).because
    told = [one.event_type for one in stage.mill.topics.read("program") if one.event_key.endswith(":CLAIMS_RETURNED")]
    returned = states(stage)
    (stage.mill.project.config.folder / "broken.txt").write_text("")
    stage.pass_time("UPDATE inbox_file SET not_before = 1 WHERE not_before > 0")
    stage.play()
    again = stage.mill.runs.retry(failed.run_id)

    assert "; the run has returned its claims: another run takes them" in why.why
    assert told == ["claims_returned"]
    assert (holding, count_holding(stage)) == (1, 0)
    assert returned == {"1.txt": "ERROR"}
    assert states(stage) == {"1.txt": "SUCCESS"}
    assert stage.find(again.run_id).triggered_by["retry_of"] == failed.run_id
    assert stage.mill.catalog.audit().findings == ()


@pytest.mark.parametrize("by", ["a retry", "another keeper"])
def test_a_failed_workflow_that_another_process_ends_first_returns_nothing_more(stage, by):
    """The claims then belong to the run that goes on, or wait for any run: to return them again would double them."""
    (stage.mill.project.config.folder / "broken.txt").write_text("yes")
    land(stage, "1.txt")
    stage.play()
    failed = next(run for run in stage.mill.runs.list().items if run.program.endswith(".load"))
    faster = (lambda: stage.mill.runs.retry(failed.run_id)) if by == "a retry" else stage.end_holds
    stage.at["end_hold.before_commit"] = faster
    stage.end_holds()
    told = [one.event_type for one in stage.mill.topics.read("program") if one.event_key.endswith(":CLAIMS_RETURNED")]

    assert told == ([] if by == "a retry" else ["claims_returned"])
    assert states(stage) == {"1.txt": "IN_PROGRESS" if by == "a retry" else "ERROR"}
    assert stage.mill.runs.show(failed.run_id).workflow.claims == ("resumed" if by == "a retry" else "returned")
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


def test_a_workflow_that_goes_on_without_a_node_is_reported_by_the_audit(stage):
    """Nothing would ever end it: each end of a node decides what comes next."""
    land(stage, "1.txt")
    stage.schedule()
    under_way = stage.mill.catalog.audit().findings
    stage.sql("UPDATE workflow_node SET outcome = 'FAILED' RETURNING 1")
    (found,) = stage.mill.catalog.audit().findings

    assert under_way == ()
    assert "none of its nodes is under way" in found.what


def test_a_workflow_under_way_is_killed_when_its_node_has_ended(stage):
    """The runner ends the driver first; a process that asked and died is replaced by each runner."""
    land(stage, "1.txt")
    stage.schedule()
    (taken,) = stage.take()
    workflow = stage.mill.runs.kill(taken.workflow)
    asked = stage.find(taken.run_id).state
    (reason,) = stage.mill.why(taken.workflow).because
    stage.end_attempt(taken, "killed", "killed on request")

    assert (workflow.state, asked) == ("STOPPING", "STOPPING")
    assert f"run list --parent {taken.workflow}" in reason.why
    assert stage.find(taken.workflow).state == "KILLED"


SHORT = """
raw = app.inbox("raw", "landing", format="text", settle="0s")

@app.python()
def side(run):
    raise RuntimeError("side is broken")

@app.python(reads=[raw])
def first(run):
    run.input(raw).files

@app.python(reads=[raw])
def last(run):
    run.input(raw).files

load = app.workflow("load", [tm.Node(side), tm.Node(first), tm.Node(last, after=[side, first])], holds=[raw],
                    resume_within="0s")
"""


@pytest.mark.parametrize("left", [0, 1])
def test_a_failed_workflow_that_holds_for_no_time_returns_its_files_with_its_last_node(stage, left):
    """The last node refuses a deleted file in the same commit. That file is not among those that are returned."""
    stage.declare(SHORT)
    land(stage, "1.txt", *["2.txt"][:left])
    (stage.mill.project.config.folder / "landing" / "1.txt").unlink()
    workflow = stage.mill.runs.start("shop.load").run_id
    taken = {run.node: run for run in stage.take()}
    stage.attempt(taken["side"])
    first = stage.attempt(taken["first"])

    assert (first.state, first.failures) == ("COMPLETED", 0)
    assert stage.find(workflow).state == "FAILED"
    assert stage.mill.runs.show(workflow).workflow.claims == "returned"
    assert states(stage) == {"1.txt": "SKIPPED", "2.txt": "ERROR"} if left else {"1.txt": "SKIPPED"}
    assert stage.mill.catalog.audit().findings == ()


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
    command = [TIDEMILL, "up", "--until-idle", "--no-deploy", "--no-server"]
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


def test_a_node_is_retried_by_its_workflow_alone(stage):
    """A retry beside the workflow ran the node once more than the workflow that was resumed later."""
    stage.declare(FORK)
    stage.mill.runs.start("shop.fork")
    left, right = sorted(stage.take(), key=lambda run: run.node)
    stage.attempt(left)
    stage.end_attempt(right, "failed", "it is broken")

    with raises_code("retried_by_workflow", f"run retry {right.workflow}"):
        stage.mill.runs.retry(right.run_id)
    stage.mill.runs.retry(right.workflow)
    assert [run.node for run in stage.play()] == ["right", "join"]
    assert [run.node for run in stage.runs() if run.node].count("right") == 2


REFUSED = [
    ("[tm.Node(one, after=[two]), tm.Node(two, after=[one])]", "go in a circle: one, two"),
    ("[tm.Node(one), tm.Node(one)]", "has the node 'one' twice"),
    ("[tm.Node(one), two]", "has two as a node: write tm.Node"),
    ("['one']", "has 'one' as a node: write tm.Node\\('one'"),
    ("one", "has no list of nodes: write \\[tm.Node\\(one"),
    ("tm.Node(one)", "has no list of nodes: write \\[tm.Node\\("),
    ("[tm.Node(one), tm.Node(two, after=one)]", "has the node two with after=one: write after=\\[one\\]"),
    ("[tm.Node('noe')]", "did you mean 'one'"),
    ("[tm.Node(loop)]", "is a worker"),
    ("[tm.Node(one, after=[two])]", "which is no node of it"),
    ("[tm.Node(one), tm.Node(two, when=tm.When('one.n', '>', 1))]", "a value of no node before it"),
    ("[tm.Node(one), tm.Node(two, after=[one], when=tm.When('one.n', '=', 1))]", "is no comparison"),
    ("[tm.Node(one, arguments={'day': 1})]", "declares no argument 'day'"),
    ("[tm.Node(needs)]", "needs the argument 'day'"),
    ("[tm.Node(needs, arguments={'day': 3})]", "must be of type string"),
    ("[tm.Node(one)], holds=[raw]", "which none of its nodes reads"),
    ("[tm.Node(one)], holds=[lines, tm.Reads(lines, max_partitions=1)]", "names default.lines twice in holds="),
    ("[tm.Node(inner)]", "which is a workflow"),
    ("[tm.Node(compact)], holds=[lines]", "holds default.lines and has the node 'compact', which writes default.lines"),
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

@app.python(reads=[lines], writes=[lines], deliver_own=False)
def compact(run): pass

inner = app.workflow("inner", [tm.Node(two)])
app.workflow("outer", {nodes})
"""
    with pytest.raises(tm.UserError, match=why):
        exec(text, {})  # as the loader of the app file does


def test_a_workflow_of_which_no_node_can_start_is_not_started(stage):
    """No end of a node would ever end the run. Each argument fits, and all of the node together do not."""
    stage.declare(f"""
@app.python(arguments={{"a": str, "b": str}})
def first(run): pass

flow = app.workflow("flow", [tm.Node(first, arguments={{"b": "{"b" * 60_000}"}})], arguments={{"a": str}})
app.schedule("long", flow, trigger=tm.MessageOn("go"), arguments={{"a": "{"a" * 60_000}"}})
""")
    with raises_code("nothing_starts", "workflow default.shop.flow is not started, .* node first: bad_argument: "):
        stage.mill.runs.start("shop.flow", {"a": "a" * 60_000})
    stage.mill.topics.publish("go", {})
    stage.schedule()

    assert list(stage.mill.runs.list()) == []
    (job,) = stage.mill.jobs.history("shop.long")
    assert "no node of it can start: node first: bad_argument" in str(job)


def test_a_workflow_that_has_ended_keeps_its_history_after_a_deployment(stage):
    """A failed run showed nodes that wait, once the program that had refused its arguments was deployed again."""
    declared = """
@app.python()
def first(run):
    run.put("n", "many")

@app.python(arguments={"n": int})
def second(run): pass

@app.python()
def third(run): pass

app.workflow("flow", [
    tm.Node(first),
    tm.Node(second, after=[first], arguments={"n": tm.NodeValue("first.n")}),
    tm.Node(third, after=[second]),
])
"""
    stage.declare(declared)
    run_id = stage.mill.runs.start("shop.flow").run_id
    stage.play()
    ended = stage.mill.runs.show(run_id)
    stage.declare(declared.replace('"n": int', '"n": str'))
    later = stage.mill.runs.show(run_id)

    assert [one.state for one in ended.workflow.nodes] == ["done", "failed", "blocked"]
    assert ended.workflow.nodes[1].why.startswith("bad_argument: ")
    assert ended.exit_reason == f"node second: {ended.workflow.nodes[1].why}"
    assert later.workflow.nodes == ended.workflow.nodes
    assert stage.mill.runs.retry(run_id).run_id != run_id
    stage.play()
    assert stage.mill.runs.show(run_id).workflow.nodes == ended.workflow.nodes


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


UNREAD = """
raw = app.inbox("raw", "landing", format="text", settle="0s")
lines = app.fileset("lines", keys={"n": "int"}, format="text")

@app.python(reads=[raw])
def first(run):
    run.put("go", Path("go.txt").exists())

@app.python(reads=[lines])
def last(run):
    say(run, f"last {run.input(lines).partitions}")

steps = app.workflow("steps", [
    tm.Node(first),
    tm.Node(last, after=[first], when=tm.When("first.go", "==", True)),
], holds=[raw, lines])
app.schedule("on_data", steps, trigger=tm.NewFiles(raw) | tm.NewPartitions(lines))
"""


@pytest.mark.parametrize("skipped", ["by its condition", "since the node before it had no input"])
def test_what_no_node_has_read_is_not_completed_and_comes_again_later(stage, skipped):
    """The first take claims of all that the workflow holds. Announced at once, the same would happen for ever."""
    stage.declare(SAID + UNREAD)
    if skipped == "by its condition":
        land(stage, "1.txt")
    stage.publish("lines", "n=1")
    stage.play()
    left = stage.sql("SELECT state, not_before > 0 FROM consumer_work")
    (stage.mill.project.config.folder / "go.txt").write_text("")
    land(stage, "2.txt")
    stage.pass_time()
    stage.play()

    assert left in ([("new", 1)], [("new", True)])
    assert stage.lines_of() == ["last [{'n': 1}]"]
    assert set(states(stage).values()) == {"SUCCESS"}
    assert stage.mill.catalog.audit().findings == ()


def test_work_whose_only_reader_is_skipped_does_not_start_the_workflow_again_at_once(stage):
    """No node has taken anything. The files wait, and are announced after the back-off."""
    reader = STEPS.partition("@app.python(reads=[raw], writes")[0]
    stage.declare(f"""{reader}
@app.python()
def look(run):
    run.put("go", Path("go.txt").exists())

load = app.workflow("load", [
    tm.Node(look),
    tm.Node(fetch, after=[look], when=tm.When("look.go", "==", True)),
], holds=[raw])
app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
""")
    land(stage, "1.txt", "2.txt")
    stage.play()
    left = states(stage)
    (stage.mill.project.config.folder / "go.txt").write_text("")
    stage.pass_time("UPDATE inbox_file SET not_before = 1 WHERE not_before > 0")
    stage.play()

    assert left == {"1.txt": "NEW", "2.txt": "NEW"}
    assert stage.lines_of() == ["fetch ['1.txt', '2.txt']"]


PAIR = (
    SAID
    + """
raw = app.inbox("raw", "landing", format="text", settle="0s")

@app.python(reads=[raw], retries=1, backoff="0s")
def left(run):
    say(run, f"left {run.input(raw).files}")
    if not Path("tried.txt").exists():
        Path("tried.txt").touch()
        raise RuntimeError("left is broken")

@app.python()
def right(run):
    say(run, "right")

load = app.workflow("load", [tm.Node(left), tm.Node(right)], holds=[raw])
"""
)


def take_pair(stage):
    """Deploy, let a file arrive, and take the runs of both nodes."""
    stage.declare(PAIR)
    land(stage, "1.txt")
    stage.mill.runs.start("shop.load")
    return sorted(stage.take(), key=lambda run: run.node)


def test_a_node_that_ends_while_another_takes_keeps_what_was_taken(stage):
    """Forgotten, a second attempt would take again, and close a file that an earlier node has not seen."""
    left, right = take_pair(stage)
    stage.at["driver.before_commit"] = lambda: stage.attempt(left)
    stage.attempt(right)
    land(stage, "2.txt")
    stage.play()

    assert stage.lines_of() == ["right", "left ['1.txt']", "left ['1.txt']"]
    assert states(stage) == {"1.txt": "SUCCESS", "2.txt": "NEW"}


@pytest.mark.parametrize("node", ["left", "right"])
def test_a_node_that_waits_for_the_take_of_another_finds_what_it_took(stage, node):
    """PostgreSQL compares with what was there before the wait, if one statement waits and compares."""
    (stage.mill.project.config.folder / "tried.txt").touch()
    runs = dict(zip(["left", "right"], take_pair(stage), strict=True))
    workflow = runs[node].workflow

    def take(db):
        lock_workflow(db, workflow)
        hold_claims(db, workflow)

    beside(stage.mill.project, take, lambda: stage.attempt(runs[node]))

    ((holding,),) = stage.sql("SELECT holding FROM workflow_run")
    assert (holding, states(stage)) == ("held" if node == "right" else "closed", {"1.txt": "NEW"})


def test_a_node_that_was_deployed_with_other_holds_fails_and_goes_on_with_the_former_ones(stage):
    """The node would take other files than the nodes before, and the workflow would close what no node has seen."""
    land(stage, "1.txt")
    stage.schedule()
    stage.work()
    land(stage, "2.txt")
    stage.declare(STEPS.replace("], holds=[raw])\napp.schedule", "])\n#"))
    stage.play()
    failed = next(run for run in stage.runs() if run.kind == "workflow")
    kept = states(stage)
    with raises_code("not_resumable", "other data sets"):
        stage.mill.runs.retry(failed.run_id)
    stage.declare(STEPS)
    stage.mill.runs.retry(failed.run_id)
    stage.work()
    stage.work()

    assert failed.state == "FAILED"
    assert "node process: holds_changed" in failed.exit_reason
    assert kept == {"1.txt": "IN_PROGRESS", "2.txt": "NEW"}
    assert states(stage) == {"1.txt": "SUCCESS", "2.txt": "NEW"}
    assert [line for line in stage.lines_of() if "2.txt" in line] == []


def test_a_restore_leaves_a_workflow_under_way_to_its_nodes(stage):
    """The run of a workflow has no attempt: as a lost one it would wait for a runner, which has no code to execute."""
    land(stage, "1.txt")
    stage.schedule()
    (taken,) = stage.take()
    ended = end_attempts(stage.mill.project.catalog)
    workflow = stage.find(taken.workflow)
    stage.play()

    assert ended == 1
    assert workflow.state == "RUNNING"
    assert stage.find(taken.workflow).state == "COMPLETED"
    assert states(stage) == {"1.txt": "SUCCESS"}


def test_files_beyond_those_of_a_failed_workflow_do_not_wait_for_its_claims(stage):
    """The run keeps its claims for a day, and the files behind them are in no message that is still to come."""
    stage.declare(STEPS.replace('settle="0s"', 'settle="0s", max_files=1'))
    (stage.mill.project.config.folder / "broken.txt").write_text("yes")
    land(stage, "1.txt", "2.txt", "3.txt")
    stage.schedule()
    stage.work()
    stage.work()
    (stage.mill.project.config.folder / "broken.txt").write_text("")
    stage.play()

    assert states(stage) == {"1.txt": "IN_PROGRESS", "2.txt": "SUCCESS", "3.txt": "SUCCESS"}


LISTENING = """
rates = app.snapshot("rates", key=["currency"])
hours = tm.Watermark("ts", pattern="$day $hour:00:00", interval="1h")
lines = app.fileset("lines", keys={"day": "date", "hour": "int"}, watermark=hours)

@app.python(reads=[tm.Changes(rates)])
def left(run): pass

@app.python(reads=[lines])
def right(run): pass

fork = app.workflow("fork", [tm.Node(left), tm.Node(right)])
"""


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        ("tm.RunEnded(left)", "default.shop.left would start itself for ever"),
        ("tm.RunEnded(fork)", "default.shop.fork would start itself for ever"),
        ("tm.RunEnded(fork, 'STARTED')", "name its node left"),
        ("tm.WatermarkPassed(lines)", "right reads default.lines by itself; name it in holds="),
        ("tm.Refreshed(rates)", "left reads default.rates by itself; give left a schedule of its own"),
    ],
)
def test_a_schedule_that_a_workflow_could_never_serve_is_refused(stage, trigger, why):
    """Found at the deployment, and not by a night of runs, or by a night without one."""
    with raises_code("bad_schedule", why):
        stage.declare(LISTENING + f"app.schedule('it', fork, trigger={trigger})")


def test_the_nodes_of_a_workflow_have_its_deadline_and_its_turn_and_alone_take_slots(stage):
    """Behind work that came later, a workflow would wait with each of its nodes."""
    stage.declare(STEPS.replace("tm.NewFiles(raw)", "tm.NewFiles(raw), deadline='1h'"))
    land(stage, "1.txt")
    stage.schedule()
    stage.work()
    stage.take()
    turns = stage.sql("SELECT DISTINCT deadline, came_at FROM run")
    taken = stage.mill.project.catalog.read(lambda db: db.value(NODES.count_taken_slots, int))

    assert len(turns) == 1
    assert turns[0][0] > turns[0][1]
    assert taken == 1


def test_a_file_that_changes_after_it_was_processed_does_not_fail_the_node_that_closes_it(stage):
    """All would come again, though it was published. The contents that were processed are on record all the same."""
    land(stage, "1.txt", "2.txt")
    stage.schedule()
    stage.work()
    stage.work()
    landing = stage.mill.project.config.folder / "landing"
    (landing / "1.txt").write_text("written again\n")
    (landing / "2.txt").unlink()
    stage.work()
    ended = states(stage)
    checksums = stage.sql("SELECT count(*) FROM inbox_file WHERE checksum IS NOT NULL")
    stage.mill.inboxes.scan("raw")
    stage.play()

    assert ended == {"1.txt": "SUCCESS", "2.txt": "SUCCESS"}
    assert checksums == [(2,)]
    assert stage.lines_of()[-1] == "update ['1.txt'] of 1"
    assert {run.state for run in stage.runs()} == {"COMPLETED"}
