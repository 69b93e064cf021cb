"""Workflows as data: their nodes, and the decision which nodes come next. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tidemill.errors import UserError
from tidemill.json_specs import sparse
from tidemill.names import BadName, advise, check_name
from tidemill.run.records.values import Value, name_values

MOST_NODES: Final = 100
LONGEST_HOLD: Final = timedelta(days=30)
"""A failed workflow keeps its claims no longer."""

_COMPARISONS: Final[Mapping[str, Callable[..., bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class BadWorkflow(UserError):
    """A declaration of a workflow that cannot be."""

    code = "bad_workflow"
    hint = "correct the declaration of the workflow, and deploy again"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the workflow is refused: {why}")


@sparse
@dataclass(frozen=True, slots=True)
class NodeValue:
    """The value that an earlier node of the workflow puts, as an argument of a node: `NodeValue("fetch.rows")`.

    If the earlier node has not put the value, the argument is `default`. Without a default, the node fails.
    """

    name: str
    default: Value | None = None

    def __post_init__(self) -> None:
        """Refuse a name that no value can have."""
        _split(self.name)

    @property
    def node(self) -> str:
        """The node that puts the value."""
        return _split(self.name)[0]


@dataclass(frozen=True, slots=True)
class When:
    """Condition of a node: a value of an earlier node is compared with `than`, as in `When("fetch.rows", ">", 0)`.

    Comparisons: `==`, `!=`, `<`, `<=`, `>`, `>=`. The condition does not hold if the earlier node has not put the
    value. If a text and a number are to be ordered, the node fails.
    """

    name: str
    comparison: str
    than: Value

    def __post_init__(self) -> None:
        """Refuse a name that no value can have, and a comparison that is not known."""
        _split(self.name)
        if self.comparison not in _COMPARISONS:
            known = ", ".join(_COMPARISONS)
            raise BadWorkflow(f"{self.comparison!r} is no comparison: use one of {known}")
        if not isinstance(self.than, str | int | float | bool):
            raise BadWorkflow(f"a value is compared with {self.than!r}: use a text, a number, True or False")

    def __str__(self) -> str:
        """Return the condition as people read it."""
        return f"{self.name} {self.comparison} {self.than!r}"

    @property
    def node(self) -> str:
        """The node that puts the value."""
        return _split(self.name)[0]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the condition holds. Raises `TypeError` for values that have no order."""
        if self.name not in values:
            return False
        value = values[self.name]
        try:
            return bool(_COMPARISONS[self.comparison](value, self.than))
        except TypeError:
            kinds = f"{self.name} is the {_kind_of(value)} {value!r}, and {self.than!r} is a {_kind_of(self.than)}"
            raise TypeError(f"{self} compares a text with a number: {kinds}") from None


def _kind_of(value: Value) -> str:
    return "text" if isinstance(value, str) else "number"


@sparse
@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of a workflow: a program of the same app, named like the node.

    `after` are the nodes before it. `values` are arguments that other nodes put. `held` are the data sets that the node
    reads and the workflow holds.
    """

    name: str
    after: tuple[str, ...] = ()
    when: tuple[When, ...] = ()
    arguments: Mapping[str, Value] = field(default_factory=dict)
    values: Mapping[str, NodeValue] = field(default_factory=dict)
    held: tuple[str, ...] = ()


@sparse
@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """The nodes of a workflow, in an order in which each node follows its predecessors.

    A failed workflow keeps the claims of its nodes for `resume_within`.
    """

    nodes: tuple[NodeSpec, ...]
    resume_within: timedelta

    def __post_init__(self) -> None:
        """Refuse a graph that no run could go through."""
        if not 1 <= len(self.nodes) <= MOST_NODES:
            raise BadWorkflow(f"it has {len(self.nodes)} nodes: from 1 to {MOST_NODES} are possible")
        if not timedelta(0) <= self.resume_within <= LONGEST_HOLD:
            raise BadWorkflow(f"resume_within is {self.resume_within}: from 0 to {LONGEST_HOLD.days} days are possible")
        before: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            if node.name in before:
                raise BadWorkflow(f"it has the node {node.name!r} twice: a program is one node")
            for name in node.after:
                if name not in before:
                    raise BadWorkflow(f"the node {node.name!r} comes after {name!r}, which does not come before it")
            before[node.name] = frozenset(node.after).union(*(before[name] for name in node.after))
            used: list[When | NodeValue] = [*node.when, *node.values.values()]
            for named in used:
                if named.node not in before[node.name]:
                    there = f"before it come {', '.join(sorted(before[node.name])) or 'none'}"
                    advice = advise(named.node, before[node.name], there)
                    raise BadWorkflow(
                        f"the node {node.name!r} uses {named.name}, a value of no node before it; {advice}"
                    )

    def shares(self, node: str) -> bool:
        """Return whether another node may work on what the workflow holds before this node, or at the same time."""
        return any(one.held and one.name != node and node not in self.ancestors(one.name) for one in self.nodes)

    @property
    def held(self) -> frozenset[str]:
        """The data sets that the workflow holds for its nodes."""
        return frozenset(name for node in self.nodes for name in node.held)

    def find(self, node: str) -> NodeSpec:
        """Return the node of that name."""
        return next(one for one in self.nodes if one.name == node)

    def list_read(self, nodes: Mapping[str, NodeStand]) -> list[str]:
        """List the held data sets that a node has read, or has found empty: of the others no node has seen anything."""
        saw = {NodeOutcome.COMPLETED, NodeOutcome.NO_INPUT}
        ended = [node for node in self.nodes if node.name in nodes and nodes[node.name].outcome in saw]
        return sorted({name for node in ended for name in node.held})

    def follows_reader(self, node: str) -> bool:
        """Return whether a node before this one reads what the workflow holds."""
        before = self.ancestors(node)
        return any(one.held for one in self.nodes if one.name in before)

    def ancestors(self, node: str) -> frozenset[str]:
        """Return the nodes before a node, at any distance."""
        found: set[str] = set()
        for one in reversed(self.nodes):
            if one.name == node or one.name in found:
                found.update(one.after)
        return frozenset(found)


def in_order(nodes: Sequence[NodeSpec]) -> tuple[NodeSpec, ...]:
    """Return `nodes` in an order in which each node follows its predecessors, else as given.

    Raises `BadWorkflow` for a circle.
    """
    known = {node.name for node in nodes}
    for node in nodes:
        for name in node.after:
            if name not in known:
                advice = advise(name, known, f"there are {', '.join(sorted(known))}")
                raise BadWorkflow(f"the node {node.name!r} comes after {name!r}, which is no node of it; {advice}")
    ordered: list[NodeSpec] = []
    placed: set[str] = set()
    waiting = list(nodes)
    while waiting:
        ready = [node for node in waiting if placed.issuperset(node.after)]
        if not ready:
            raise BadWorkflow(f"its nodes go in a circle: {', '.join(node.name for node in waiting)}")
        ordered += ready
        placed.update(node.name for node in ready)
        waiting = [node for node in waiting if node.name not in placed]
    return tuple(ordered)


class NodeOutcome(StrEnum):
    """End of the run of a node."""

    COMPLETED = "COMPLETED"
    NO_INPUT = "NO_INPUT"
    """The node had nothing to work on, and its program was not called."""
    FAILED = "FAILED"
    KILLED = "KILLED"
    REJECTED = "REJECTED"


@dataclass(frozen=True, slots=True)
class NodeStand:
    """The run of a node: `outcome` is None while the run is under way, and `reason` says why the run failed."""

    outcome: NodeOutcome | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    reason: str = ""


class Stand(StrEnum):
    """Stand of a node in a workflow."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    BLOCKED = "blocked"
    """The node never starts: a node before it has failed, or the workflow is being killed."""


@dataclass(frozen=True, slots=True)
class Course:
    """The stand of each node, with the reason why a node was skipped, has failed or is blocked."""

    stands: Mapping[str, Stand]
    reasons: Mapping[str, str]
    ready: tuple[tuple[NodeSpec, Mapping[str, Value]], ...]
    """Nodes to start now, with the arguments that the workflow gives them."""
    idle: bool
    """True if no node had anything to work on."""

    @property
    def over(self) -> bool:
        """True if no node runs, and no other node can start."""
        return not {Stand.WAITING, Stand.READY, Stand.RUNNING} & set(self.stands.values())

    @property
    def succeeded(self) -> bool:
        """True if each node has completed or was skipped."""
        return set(self.stands.values()) <= {Stand.DONE, Stand.SKIPPED}

    @property
    def first_failure(self) -> str:
        """The first node that failed, with the reason; empty if no node failed."""
        failed = (name for name, stand in self.stands.items() if stand is Stand.FAILED)
        return next((f"node {name}: {self.reasons[name]}" for name in failed), "")

    def frees_claims(self, nodes: Iterable[NodeSpec]) -> bool:
        """Return whether no node of `nodes` will read what the workflow holds any more, and none has failed."""
        ended = {Stand.DONE, Stand.SKIPPED}
        return all(self.stands[node.name] in ended for node in nodes if node.held)


def decide_course(
    spec: WorkflowSpec, nodes: Mapping[str, NodeStand], faults: Mapping[str, str], *, killed: bool = False
) -> Course:
    """Decide which nodes of a workflow start now.

    `nodes` are those whose runs were made. `faults` are nodes that cannot be started, with the reasons. A node starts
    when all nodes before it have ended, one of them has completed, and its conditions hold. A node that had no input
    counts as skipped. A node behind a failed one never starts; other branches go on.
    """
    values = name_values({name: stand.values for name, stand in nodes.items()})
    stands: dict[str, Stand] = {}
    reasons: dict[str, str] = {}
    ready = []
    for node in spec.nodes:
        run = nodes.get(node.name)
        arguments: dict[str, Value] = {}
        if run is not None:
            stand, why = _BY_OUTCOME.get(run.outcome, (Stand.FAILED, run.reason or f"its run was {run.outcome}"))
        else:
            stand, why = _judge(node, {stands[name] for name in node.after})
        if stand is Stand.READY:
            before = spec.ancestors(node.name)
            seen = {name: value for name, value in values.items() if name.partition(".")[0] in before}
            stand, why = _ask_conditions(node, seen)
            arguments, fault = _resolve(node, seen)
            fault = faults.get(node.name) or fault
            if stand is Stand.READY and fault:
                stand, why = Stand.FAILED, fault
        if stand is Stand.READY and killed:
            # After the conditions: they are as true as before, and a join may have passed over a skipped node already.
            stand, why = Stand.BLOCKED, "the workflow is being killed"
        stands[node.name] = stand
        reasons |= {node.name: why} if why else {}
        if stand is Stand.READY:
            ready.append((node, arguments))
    worked = any(stand is Stand.DONE for stand in stands.values())
    return Course(stands, reasons, tuple(ready), idle=not worked)


_BY_OUTCOME: Final = {
    None: (Stand.RUNNING, ""),
    NodeOutcome.COMPLETED: (Stand.DONE, ""),
    NodeOutcome.NO_INPUT: (Stand.SKIPPED, "it had no input"),
}


def _judge(node: NodeSpec, before: AbstractSet[Stand]) -> tuple[Stand, str]:
    """Return the stand of a node without a run, by the stands of the nodes before it alone."""
    if before & {Stand.FAILED, Stand.BLOCKED}:
        return Stand.BLOCKED, "a node before it has failed"
    if before & {Stand.WAITING, Stand.READY, Stand.RUNNING}:
        return Stand.WAITING, ""
    if node.after and Stand.DONE not in before:
        return Stand.SKIPPED, "all nodes before it were skipped"
    return Stand.READY, ""


def _ask_conditions(node: NodeSpec, values: Mapping[str, Value]) -> tuple[Stand, str]:
    """Return whether a node that could start does so."""
    try:
        failing = [str(one) for one in node.when if not one.holds(values)]
    except TypeError as error:
        return Stand.FAILED, f"its condition cannot be decided: {error}"
    return (Stand.SKIPPED, f"{failing[0]} does not hold") if failing else (Stand.READY, "")


def _resolve(node: NodeSpec, values: Mapping[str, Value]) -> tuple[dict[str, Value], str]:
    """Return the arguments of a node, and the reason why one has no value; empty if all have one."""
    arguments = dict(node.arguments)
    for name, given in node.values.items():
        value = values.get(given.name, given.default)
        if value is None:
            return {}, f"its argument {name!r} has no value: no node has put {given.name}, and there is no default"
        arguments[name] = value
    return arguments, ""


def _split(name: str) -> tuple[str, str]:
    node, _, value = name.partition(".") if isinstance(name, str) else ("", "", "")
    try:
        return check_name("node", node), check_name("value", value)
    except BadName:
        raise BadWorkflow(f"{name!r} names no value of a node: write it as 'fetch.rows'") from None
