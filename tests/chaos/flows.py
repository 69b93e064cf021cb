"""Promises about workflows, and about the files that they hold, after the storm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.breadth import rows_by_key
from tests.chaos.site import rows_of_file

if TYPE_CHECKING:
    from tests.chaos.verdict import Judge

_NODES = {"fetch", "shelve", "inspect", "tick_off"}
_READERS = ("fetch", "shelve", "tick_off")


@dataclass
class _Workflow:
    """Run of a workflow, with the runs of the nodes that have completed."""

    run_id: str
    state: str
    holding: str
    resumed_by: str | None
    done: dict[str, str] = field(default_factory=dict)


def judge_workflows(judge: Judge) -> None:
    """Each parcel was closed by one workflow; its nodes have ended once, and have read and published the same files."""
    flows = {
        row[0]: _Workflow(*row)
        for row in judge.sql(
            "SELECT w.run_id, r.state, w.holding, w.resumed_by FROM workflow_run AS w JOIN run AS r USING (run_id)"
        )
    }
    for workflow, node, outcome, run_id, state, reason in judge.sql(
        "SELECT n.workflow_id, n.node, n.outcome, n.run_id, r.state, r.exit_reason"
        " FROM workflow_node AS n LEFT JOIN run AS r USING (run_id)"
    ):
        found = "NO_INPUT" if reason == "no_input" else state
        if outcome != found:
            judge.verdict.dirty.append(f"{node} of {workflow} is {outcome}, its run {run_id} is {found}")
        if outcome == "COMPLETED":
            flows[workflow].done[node] = run_id
    read: dict[str, set[str]] = {}
    for run_id, name in judge.sql(
        "SELECT i.run_id, i.item FROM run_input AS i JOIN dataset AS d USING (dataset_id) WHERE d.name = 'parcels'"
    ):
        read.setdefault(run_id, set()).add(name)
    for flow in flows.values():
        _judge_course(judge, flow, flows, read)
    _judge_parcels(judge, flows, read)
    counts = Counter(flow.state for flow in flows.values())
    counts.update(flow.holding for flow in flows.values())
    for what in ("COMPLETED", "FAILED", "KILLED"):
        judge.verdict.counts[f"workflows {what.lower()}"] = counts[what]
    for fate in ("resumed", "returned"):
        judge.verdict.counts[f"workflows whose claims were {fate}"] = counts[fate]


def _judge_course(judge: Judge, flow: _Workflow, flows: Mapping[str, _Workflow], read: Mapping[str, set[str]]) -> None:
    """A completed workflow has done all nodes or none, and closed its claims; a resumed one repeats no done node."""
    files = {node: read.get(flow.done[node], set()) for node in _READERS if node in flow.done}
    if any(one != files.get("fetch") for one in files.values()):
        judge.verdict.differing.append(f"the nodes of {flow} read {files}")
    if flow.state == "COMPLETED" and flow.done and flow.done.keys() != _NODES:
        judge.verdict.lost.append(f"nodes of {flow}")
    if (flow.holding == "closed") != (flow.state == "COMPLETED"):  # one without input closes nothing
        judge.verdict.dirty.append(f"the claims of {flow}")
    if flow.holding == "held" or (flow.holding == "resumed") != (flow.resumed_by is not None):
        judge.verdict.dirty.append(f"the claims of {flow}")
    if flow.resumed_by is not None and not flow.done.items() <= flows[flow.resumed_by].done.items():
        judge.verdict.doubled.append(f"nodes of {flow} by {flows[flow.resumed_by]}")


def _judge_parcels(judge: Judge, flows: Mapping[str, _Workflow], read: Mapping[str, set[str]]) -> None:
    closed = Counter(
        name
        for flow in flows.values()
        if flow.holding == "closed"
        for name in read.get(flow.done.get("tick_off", ""), ())
    )
    landed = {path.name for path in judge.site.parcels.iterdir()}
    judge.verdict.doubled += [f"parcel {name} was closed {times} times" for name, times in closed.items() if times > 1]
    judge.verdict.lost += [f"parcel {name} was closed by no workflow" for name in landed - closed.keys()]
    # A workflow that began again has published the rows of its files again: in another run of the node.
    shelvings = {flow.done["shelve"] for flow in flows.values() if "shelve" in flow.done}
    wanted = Counter(row for run_id in shelvings for name in read.get(run_id, ()) for row in rows_of_file(name))
    rows = Counter(row for _, files in rows_by_key(judge, "shelves") for texts in files for row in texts)
    judge.verdict.lost += [f"{row} of a parcel is not on the shelves" for row in (wanted - rows).elements()]
    judge.verdict.doubled += [f"{row} is on the shelves once more" for row in (rows - wanted).elements()]
