"""A workflow in simulated projects: a fork, a condition and a join over files that its first node claims."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.sim.bucket import location_in
from tests.sim.committed import Committed, fold, refuse
from tests.sim.people import Act, start_person
from tidemill import App, Concurrency, NewFiles, Node, NodeValue, When
from tidemill.mill.mill import Mill

if TYPE_CHECKING:
    from tests.sim.projects import Shape
    from tests.sim.simulation import Simulation

STILL_TO_DO: Final = {
    "holds": "SELECT run_id, holding FROM workflow_run WHERE holds_until IS NOT NULL",
    "nodes": "SELECT workflow_id, node FROM workflow_node WHERE outcome IS NULL",
}
_ENDS: Final = ("closed", "returned", "resumed", "nothing")
"""The states in which the claims of a workflow may be at rest."""


def declare(app: App, shape: Shape, folder: Path, python: Callable[..., Any], inbox: Callable[..., Any]) -> None:
    """A workflow whose first and last nodes read the same files; failed runs keep their claims, or return them."""
    if not shape.flowing:
        return
    cargo = inbox("cargo", "cargo", reconcile_every="5m")
    crates = app.fileset("crates", keys={"name": "string"}, location=location_in(shape.stored, folder, "crates"))
    fetch = python("fetch", reads=[cargo], retries=1)
    pick = python("pick", reads=[cargo], writes=[crates])
    extra = python("extra")
    pack = python("pack", reads=[cargo], arguments={"files": int})
    flow = app.workflow(
        "flow",
        [
            Node(fetch),
            Node(pick, after=[fetch]),
            Node(extra, after=[fetch], when=When("fetch.files", ">", 1)),
            Node(pack, after=[pick, extra], arguments={"files": NodeValue("fetch.files")}),
        ],
        holds=[cargo],
        resume_within=random.Random(f"within {shape.number}").choice(["0s", "15s", "60s"]),
    )
    limit = [Concurrency(1)] if shape.one_at_a_time else []
    app.schedule("flow", flow, trigger=NewFiles(cargo), constraints=limit)


def make_story(simulation: Simulation) -> Iterator[tuple[int, Callable[[], object]]]:
    """Draw files, and a person that resumes and ends failed workflows, by chance of its own."""
    if not simulation.shape.flowing:
        return
    draw = random.Random(f"flow {simulation.seed}")
    for number in range(draw.randint(1, 4)):
        name = f"{draw.choice('abc')}{draw.choice([number, 0])}"
        yield draw.randrange(simulation.active // 2), lambda name=name: simulation.land("cargo", name)
    acts: list[Act] = [
        (draw.randint(1, 8), lambda mill: _meddle(simulation, mill, draw)) for _ in range(draw.randint(0, 6))
    ]
    yield draw.randrange(simulation.active), lambda: start_person(simulation, "dispatcher", acts)


def _meddle(simulation: Simulation, mill: Mill, draw: random.Random) -> None:
    """Resume a failed workflow, return what it holds, or end one that is under way."""
    act = draw.choice(["retry", "retry", "retry", "return", "kill"])
    states = "'RUNNING', 'STARTING'" if act == "kill" else "'FAILED'"
    runs = simulation.ground.sql(
        f"SELECT run_id FROM main.run WHERE kind = 'workflow' AND state IN ({states}) ORDER BY run_id"
    )
    if runs:
        (run_id,) = draw.choice(runs)
        mill.runs.retry(run_id) if act == "retry" else mill.runs.kill(run_id)


def check(simulation: Simulation, committed: Committed) -> None:
    """Check that each file is closed by one workflow, and that each workflow has done its nodes once and in order."""
    if simulation.shape.flowing:
        flows = _Flows(simulation, committed)
        for run_id in flows.states:
            flows.check_course(run_id)
            flows.check_resumption(run_id)
        flows.check_files(simulation)


class _Flows:
    """The workflows of a schedule: their runs, their nodes, and the files that these read."""

    def __init__(self, simulation: Simulation, committed: Committed) -> None:
        sql = simulation.ground.sql
        self.committed = committed
        self.intents = simulation.intents
        self.landed = simulation.landed
        self.states: dict[str, tuple[str, str, str, str | None]] = {
            run_id: (state, reason or "", holding, resumed_by)
            for run_id, state, reason, holding, resumed_by in sql(
                "SELECT run_id, r.state, r.exit_reason, w.holding, w.resumed_by"
                " FROM workflow_run AS w JOIN run AS r USING (run_id)"
            )
        }
        self.nodes: dict[str, dict[str, tuple[str, str, dict[str, Any]]]] = {}
        for workflow, node, run_id, outcome, result in sql(
            "SELECT workflow_id, node, run_id, outcome, result FROM workflow_node"
        ):
            self.nodes.setdefault(workflow, {})[node] = run_id, outcome, json.loads(result)
        self.commits = {run_id: (pointer, seq) for pointer, seq, run_id, _ in committed.rows}

    def files_of(self, run_id: str) -> list[str]:
        """Return the contents that the run of a node has read."""
        return sorted(version for _, _, version in self.committed.inputs_of(run_id, "cargo"))

    def check_course(self, run_id: str) -> None:
        """Check the nodes of a workflow against its graph."""
        state, reason, holding, _ = self.states[run_id]
        nodes = self.nodes.get(run_id, {})
        what = f"{run_id} is {state}, {holding}: {nodes}"
        refuse(holding in _ENDS, "stuck", what)
        done = {node: one for node, (one, outcome, _) in nodes.items() if outcome == "COMPLETED"}
        refuse(all(one in self.commits for one in done.values()), "dirty", f"a node is done without a commit: {what}")
        files = nodes["fetch"][2].get("files", 0) if "fetch" in done else 0
        refuse("extra" not in nodes or files > 1, "dirty", f"a node that has no condition was started: {what}")
        idle = reason == "no_input"
        wanted = {"fetch", "pick", "pack", *(["extra"] if files > 1 else [])}
        refuse(idle or (state == "COMPLETED") == (done.keys() == wanted), "lost", what)
        refuse((holding == "closed") == (idle or "pack" in done), "lost", what)
        for node in nodes.keys() & {"pick", "extra"}:
            self._check_order(nodes, node, ["fetch"])
        if "pack" in nodes:
            self._check_order(nodes, "pack", sorted(wanted - {"fetch", "pack"}))
        read = {node: self.files_of(one) for node, one in done.items() if node != "extra"}
        refuse(all(one == read["fetch"] for one in read.values()), "dirty", f"nodes read {read}: {what}")
        refuse("fetch" not in done or len(read["fetch"]) == files, "dirty", f"{files} files, and {read}: {what}")
        if "pick" in done:
            given = Counter(token for version in read["pick"] for token in self.landed[version][2])
            texts = fold(self.intents.get(self.commits[done["pick"]][0], ()), "crates")
            wrote = Counter(token for write in texts.values() for token in write.tokens)
            refuse(given == wrote, "dirty", f"{done['pick']} took {given} and published {wrote}")

    def _check_order(self, nodes: dict[str, tuple[str, str, dict[str, Any]]], node: str, before: list[str]) -> None:
        """Check that the first attempt of a node began after the commits of the nodes before it."""
        began = self.committed.first_attempts.get(nodes[node][0], 2**62)
        early = [one for one in before if one not in nodes or self.commits.get(nodes[one][0], (0, 2**62))[1] > began]
        refuse(not early, "dirty", f"{nodes[node][0]} began before the end of {early}: {nodes}")

    def check_resumption(self, run_id: str) -> None:
        """Check that a run which goes on has what the failed one has completed, and repeats none of it."""
        state, _, holding, resumed_by = self.states[run_id]
        refuse((holding == "resumed") == (resumed_by is not None), "dirty", f"{run_id} is {holding} by {resumed_by}")
        if resumed_by is not None and resumed_by in self.states:
            refuse(state == "FAILED", "dirty", f"{run_id} is {state}, and {resumed_by} goes on with it")
            for node, (one, outcome, _) in self.nodes.get(run_id, {}).items():
                found = self.nodes.get(resumed_by, {}).get(node)
                same = found is not None and found[0] == one
                done = outcome in {"COMPLETED", "NO_INPUT"}
                refuse(same or not done, "doubled", f"{resumed_by} has {found}, {one} was {outcome}")

    def check_files(self, simulation: Simulation) -> None:
        """Check that each file has the end that the workflows gave it."""
        closed: Counter[str] = Counter()
        for run_id, (_, _, holding, _) in self.states.items():
            if holding == "closed" and "pack" in self.nodes[run_id]:
                closed.update(self.files_of(self.nodes[run_id]["pack"][0]))
        dataset = self.committed.datasets["cargo"]
        found = dict(
            simulation.ground.sql(f"SELECT content_version, status FROM inbox_file WHERE dataset_id = '{dataset}'")
        )
        for version, (inbox, name, _) in self.landed.items():
            if inbox != "cargo":
                continue
            status = found.get(version, "never seen")
            refuse(closed[version] <= 1, "doubled", f"{name} was closed by {closed[version]} workflows")
            refuse(closed[version] == (status == "SUCCESS"), "lost", f"{name} is {status}, closed {closed[version]}")
            newest = simulation.newest[inbox, name] == version
            refuse(not newest or status == "SUCCESS", "lost", f"the last version of {name} is {status}")
