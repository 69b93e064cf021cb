"""Scenarios of workflows: nodes that end at once, fail, are fenced and killed, in all orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

from tests.explore import promises
from tests.explore.consumers import DAY, LEASE, LINES, fencer, note_given, publish, writer
from tests.explore.promises import ENDED, must
from tests.explore.search import Actor, Scenario, Tables
from tests.explore.stage import Stage
from tests.taking import take_runs
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import begin, commit
from tidemill.errors import Fenced
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.datasets import declare
from tidemill.lake.fileset.fileset import Unpin
from tidemill.names import Namespace, ProgramId, RunId
from tidemill.run.records.programs import Program, ProgramKind, find_program_by_id, put_program
from tidemill.run.records.runs import Cause, NewRun, create_external, create_pending
from tidemill.run.records.workflow_spec import NodeOutcome, NodeSpec, NodeStand, WorkflowSpec
from tidemill.run.records.workflows import WorkflowMoved
from tidemill.run.step.attempts import (
    AttachTransaction,
    AttemptEnd,
    FinishRun,
    Registration,
    ask_kill,
    end_attempt,
    kill_nodes,
    register,
)
from tidemill.run.step.inputs import find_inputs
from tidemill.run.step.node_end import decide_node_end
from tidemill.run.step.resumption import NotResumable, end_holds, resume_workflow
from tidemill.upkeep.retention import Historian

WORKFLOW, RESUMED, NEWER = RunId("run_w"), RunId("run_x"), RunId("run_y")
KEEP = timedelta(hours=1)
"""Time for which history is kept. All that was there before the scenario is older."""
FORK = WorkflowSpec(
    (
        NodeSpec("left", held=("default.lines",)),
        NodeSpec("right", held=("default.lines",)),
        NodeSpec("join", ("left", "right"), held=("default.lines",)),
    ),
    timedelta(hours=1),
)


def _program(name: str, reads: tuple[str, ...], spec: WorkflowSpec | None = None) -> Program:
    made = Program(ProgramId(name), Namespace("default"), "shop", name, ProgramKind.PYTHON, "/app.py", reads=reads)
    if spec is None:
        return replace(made, held=made.reads)
    return replace(made, kind=ProgramKind.WORKFLOW, workflow=spec)


def _set_up(stage: Stage, *, late: bool, aside: bool) -> None:
    nodes = tuple(replace(node, held=()) if aside and node.name == "left" else node for node in FORK.nodes)

    def block(db: Db) -> None:
        declare(db, LINES.dataset)
        for node in nodes:
            put_program(db, _program(node.name, node.held))
        put_program(db, _program("fork", ("default.lines",), replace(FORK, nodes=nodes)))
        ensure_consumer(db, LINES.dataset_id, "default.shop.fork")
        if late:
            create_external(db, RunId("run_late"), owner="me", host="here", pid=1, lease=timedelta(minutes=1))

    stage.catalog.write(block)
    publish(stage, "earlier", (1, "create"))
    stage.catalog.write(lambda db: create_pending(db, [NewRun(WORKFLOW, ProgramId("fork"))]))


def driver(name: str, endings: Sequence[str]) -> Actor:
    """A runner with its driver: works on the attempt of a node."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["take"] if _is_any_pending(stage) else [])
        work(stage, endings)

    return Actor(name, body, repeats=True, group="driver")


def _is_any_pending(stage: Stage) -> bool:
    return bool(stage.connection.execute("SELECT 1 FROM run WHERE state = 'PENDING'").fetchall())


def work(stage: Stage, endings: Sequence[str]) -> bool:
    """Do one attempt of a node, as the driver does. Return whether there was one."""
    catalog = stage.catalog

    def take_one(db: Db):
        runs = take_runs(db, most=1, owner="runner", host="here", lease=LEASE)
        for run in runs:
            register(db, Registration(run.run_id, run.epoch, run.epoch, {}, "logs"))
        return [(run, find_inputs(db, find_program_by_id(db, run.program_id), run)) for run in runs]

    taken = catalog.write(take_one)
    if not taken:
        return False
    ((run, inputs),) = taken
    try:
        effects = [AttachTransaction(run.run_id, run.epoch), *inputs.begin(run, catalog.world)]
        tx = begin(catalog, run_id=run.run_id, epoch=run.epoch, effects=effects)
        inputs.take(catalog, tx)
        given = [delivery for taken in inputs.taken.values() for delivery in taken.deliveries]
        for delivery in given:
            for change in delivery.changes:
                note_given(stage, run.node, run.run_id, run.epoch, change.write_pointer, change.partition_key)
        if (stage.pick(lambda: endings) if len(endings) > 1 else endings[0]) == "fail":
            end_attempt(catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "it raised"))
            return True
        stand = NodeStand(NodeOutcome.COMPLETED)
        while True:
            node = catalog.read(lambda db: decide_node_end(db, run, stand, inputs.held))
            finish = FinishRun(run.run_id, run.epoch, "", {})
            try:
                commit(catalog, tx, [*inputs.complete(tx), *node.before, finish, *node.after, Unpin(run.run_id)])
            except WorkflowMoved:
                continue
            return True
    except Fenced:
        return True


def killer(*, at_once: bool) -> Actor:
    """A person that ends the workflow, and a runner that carries out the kills if it lives to.

    `at_once` asks in one turn.
    """

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["kill"])
        if at_once:
            stage.turn(lambda: _ask_at_once(stage))
        else:
            ask_kill(stage.catalog, WORKFLOW)
        _carry_out(stage)

    return Actor("killer", body)


def _ask_at_once(stage: Stage) -> None:
    with stage.freely():
        ask_kill(stage.catalog, WORKFLOW)


def _carry_out(stage: Stage) -> None:
    stopping = stage.turn(
        lambda: stage.connection.execute(
            "SELECT run_id, epoch FROM run WHERE kind = 'program' AND state = 'STOPPING' ORDER BY run_id"
        ).fetchall()
    )
    for run_id, epoch in stopping:
        end_attempt(stage.catalog, run_id, epoch, AttemptEnd(Cause.KILLED, "killed on request", zombie=True))


def recover(stage: Stage) -> None:
    """Fence what was under way, kill the nodes of what is stopping, work on the others, and let time pass."""
    for _ in range(10):
        live = stage.connection.execute(
            "SELECT run_id, epoch, kind, state FROM run WHERE state IN ('STARTING', 'RUNNING', 'STOPPING')"
        ).fetchall()
        for run_id, epoch, kind, state in live:
            if kind == "workflow" and state == "STOPPING":
                kill_nodes(stage.catalog, run_id)
            elif kind != "workflow":
                end_attempt(stage.catalog, run_id, epoch, AttemptEnd(Cause.LOST, "power", zombie=True))
        while work(stage, ("commit",)):
            pass
        stage.clock.at += DAY
    end_holds(stage.catalog)


def sound(tables: Tables) -> None:
    """A node runs once, behind those before it. All nodes have the same claims, and the last one completes them."""
    runs = {run.run_id: run for run in tables["run"]}
    workflow = runs[WORKFLOW]
    nodes = {node.node: node for node in tables["workflow_node"]}
    done = {name for name, node in nodes.items() if node.outcome == "COMPLETED"}
    for name, node in nodes.items():
        must(node.run_id in runs, f"node {name} has no run")
        run = runs[node.run_id]
        must((node.outcome is None) == (run.state not in ENDED), f"node {name} is {node.outcome}, its run {run.state}")
        must(workflow.state not in ENDED or run.state in ENDED, f"{name} is {run.state}, its workflow {workflow.state}")
    must("join" not in nodes or {"left", "right"} <= done, f"join has a run, and only {done} are done")
    must("join" in nodes or not {"left", "right"} <= done or workflow.kill_asked, "no run of join was made")
    must((workflow.state == "COMPLETED") == (len(done) == len(FORK.nodes)), f"it is {workflow.state}, {done} are done")
    for claim in tables["consumer_work"]:
        whose = claim.run_id in {None, WORKFLOW}
        must(whose, f"{claim.partition_key} belongs to {claim.run_id}")
        if claim.run_id is None:
            continue
        must((claim.state == "completed") == ("join" in done), f"{claim.partition_key} is {claim.state} with {done}")
    claimed = any(claim.run_id == WORKFLOW and claim.state == "in_progress" for claim in tables["consumer_work"])
    for row in tables["workflow_run"]:
        must(row.holding == "held" or not claimed, f"claims are held, and {row.run_id} says {row.holding}")
    given: dict[tuple[str, int], set[tuple[int, str]]] = defaultdict(set)
    for one in tables["given"]:
        given[one.run_id, one.epoch].add((one.write_pointer, one.partition_key))
    must(len({frozenset(one) for one in given.values()}) <= 1, f"nodes were given different claims: {dict(given)}")


def _at_rest(tables: Tables) -> None:
    for run in tables["run"]:
        must(run.state in ENDED, f"{run.run_id} is {run.state}")
    for claim in tables["consumer_work"]:
        must(claim.state in {"completed", "new"}, f"{claim.partition_key} is {claim.state}")
    must(not tables["slot"], "slots are held")


def forked(
    *endings: str,
    drivers: int = 2,
    kills: bool = False,
    fences: int = 0,
    losses: int = 0,
    late: bool = False,
    aside: bool = False,
) -> Callable[[str], Scenario]:
    """A fork of two nodes and their join. With `aside` the left one reads nothing of what the workflow holds."""

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "the next node starts once, and the workflow ends, with the commit that ends the last node before it",
            partial(_set_up, late=late, aside=aside),
            lambda: [
                *(driver(f"driver{n}", endings) for n in range(drivers)),
                *([writer("late", (2, "create"), endings=("commit",))] if late else []),
                *([killer(at_once=drivers == 1)] if kills else []),
                *(fencer(f"reaper{n}", only="run_w-") for n in range(fences)),
            ],
            promises.all_of(promises.transactions, promises.slots, sound),
            recover,
            _at_rest,
            promises.never_undone,
            losses=losses,
        )

    return make


def _set_up_old(stage: Stage) -> None:
    """Have two workflows fail at one node, of which the older one holds claims, long ago: history is due."""
    _set_up(stage, late=False, aside=False)
    for workflow in (WORKFLOW, NEWER):
        if workflow == NEWER:
            stage.catalog.write(lambda db: create_pending(db, [NewRun(NEWER, ProgramId("fork"))]))
        work(stage, ("commit",))
        work(stage, ("fail",))
        stage.clock.at += DAY
        Historian(stage.catalog, KEEP, KEEP).step()
    stage.clock.at += DAY


def resumer() -> Actor:
    """A person that resumes the older workflow in one turn, unless its claims are returned."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["resume"])
        program = stage.catalog.read(lambda db: find_program_by_id(db, ProgramId("fork")))
        with suppress(NotResumable):
            stage.catalog.write(lambda db: resume_workflow(db, WORKFLOW, program, NewRun(RESUMED, ProgramId("fork"))))

    return Actor("resumer", body)


def ender() -> Actor:
    """The scheduler that returns the claims of workflows that were not resumed in time."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["end holds"])
        end_holds(stage.catalog)

    return Actor("ender", body)


def historian(name: str) -> Actor:
    """Deletes old history, once, as a janitor does."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["forget"])
        Historian(stage.catalog, KEEP, KEEP).step()

    return Actor(name, body)


def kept(tables: Tables) -> None:
    """A workflow that holds claims, or goes on, is there whole, with its nodes and the runs of these."""
    runs = {run.run_id: run for run in tables["run"]}
    workflows = {row.run_id: row for row in tables["workflow_run"]}
    for row in workflows.values():
        must(row.run_id in runs, f"workflow {row.run_id} has no run")
    for node in tables["workflow_node"]:
        must(node.workflow_id in workflows, f"{node.node} is a node of {node.workflow_id}, which is deleted")
        must(node.run_id in runs, f"the run of {node.node} of {node.workflow_id} is deleted")
    for claim in tables["consumer_work"]:
        if claim.state == "in_progress":
            row = workflows.get(claim.run_id)
            must(row is not None and row.holding == "held", f"{claim.partition_key} belongs to {claim.run_id}: {row}")
            nodes = {node.node for node in tables["workflow_node"] if node.workflow_id == claim.run_id}
            must({"left", "right"} <= nodes, f"{claim.run_id} holds {claim.partition_key}, and has the nodes {nodes}")


def _recover_old(stage: Stage) -> None:
    recover(stage)
    for _ in range(3):
        stage.clock.at += DAY
        Historian(stage.catalog, KEEP, KEEP).step()


def _forgotten(tables: Tables) -> None:
    """The older workflow is deleted once it holds nothing, with the run that went on: newer ones have ended so."""
    _at_rest(tables)
    runs = {run.run_id for run in tables["run"]}
    resumed = RESUMED in runs
    must(WORKFLOW not in runs or resumed, f"{WORKFLOW} is still there beside {runs}")
    # The newest completed workflow stays, and its nodes.
    states = {claim.state for claim in tables["consumer_work"]}
    must(states == ({"completed"} if resumed else {"new"}), f"claims are {states}, and the runs are {runs}")


def forgotten(*, drivers: int = 1) -> Callable[[str], Scenario]:
    """A failed workflow is resumed or returns its claims, while retention deletes what is as old as the workflow."""

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "retention deletes nothing that a workflow holds, goes on with or inherits",
            _set_up_old,
            lambda: [
                resumer(),
                ender(),
                historian("janitor"),
                *(driver(f"driver{n}", ("commit",)) for n in range(drivers)),
            ],
            promises.all_of(promises.slots, kept),
            _recover_old,
            _forgotten,
        )

    return make


SCENARIOS = {
    "fork-forgotten": forgotten(),
    "fork-forgotten-small": forgotten(drivers=0),
    "fork": forked("commit", "fail"),
    "fork-aside": forked("commit", aside=True),
    "fork-late": forked("commit", drivers=1, late=True),
    "fork-killed": forked("commit", drivers=1, kills=True),
    "forks-killed": forked("commit", kills=True),
    "fork-fenced": forked("commit", fences=1),
    "fork-lost-reply": forked("commit", losses=1),
}
