"""Lineage: a graph of data and work, walked from a thing up to its sources and down to its results.

A graph is either declared (data sets, programs, schedules) or actual (files, partitions, versions, runs). The walk is
the same for both. It reads no database: a graph answers for a few places at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidemill.errors import UserError
from tidemill.mill.page import check_filter

P = TypeVar("P")

DEPTH: Final = 4
"""The number of steps of a walk, unless the caller gives another: from a file to the partitions of the next run."""
MOST_DEPTH: Final = 100
NODES: Final = 200
"""The most nodes of an answer, unless the caller gives another number."""
MOST_NODES: Final = 1000
FORGOTTEN: Final = "forgotten"
"""The state of a file of which a run tells, and of which the inbox has no record any more."""
_EDGES: Final = 4
"""So many times the most nodes are the most edges that one step reads."""


class NodeKind(StrEnum):
    """Kinds of nodes. The last four are of actual graphs, the others of declared graphs."""

    INBOX = "inbox"
    FILESET = "fileset"
    SNAPSHOT = "snapshot"
    PROGRAM = "program"
    SCHEDULE = "schedule"
    TOPIC = "topic"
    HOOK = "hook"
    FILE = "file"
    PARTITION = "partition"
    VERSION = "version"
    RUN = "run"


class EdgeKind(StrEnum):
    """Kinds of edges, by what the source or the target does."""

    READS = "reads"
    """From data to the program or run that reads the data."""
    WRITES = "writes"
    """From a program or run to the data that it writes."""
    STARTS = "starts"
    """From a schedule to its program."""
    TRIGGERS = "triggers"
    """From a data set, program, topic or hook to a schedule that listens."""


class Direction(StrEnum):
    """Directions of a walk."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    BOTH = "both"


class BadLineage(UserError):
    """A bound of a walk that cannot be, or a part that the data set does not have."""

    code = "bad_lineage"

    def __init__(self, what: str, given: object, cure: str) -> None:
        self.what = what
        self.given = str(given)
        self.cure = cure
        super().__init__(f"{what} {self.given!r} is refused", cure, before=": ")


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A node. `depth` counts steps from the thing: below zero upstream, above zero downstream.

    `at` is the time of the last arrival, commit or run. `program` is the program of a run. `write_pointer` is the
    transaction that wrote a partition or version. `state` is that of the thing: of a run COMPLETED, of a partition
    current, superseded or dropped, of a data set filled, empty or late.
    """

    id: str
    kind: NodeKind
    name: str
    state: str
    at: datetime | None
    depth: int
    program: str | None = None
    write_pointer: int | None = None


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """An edge between two nodes, by their ids, in the direction of the data. `at`: the last move along the edge."""

    source: str
    target: str
    kind: EdgeKind
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """A part of a graph around a thing. `cut` is true if the graph has more than depth and limit allow to show."""

    thing: str
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """Directions and limits of a walk, checked."""

    directions: tuple[Direction, ...] = (Direction.UPSTREAM, Direction.DOWNSTREAM)
    depth: int = DEPTH
    nodes: int = NODES

    def __post_init__(self) -> None:
        """Refuse numbers that are too small or too large."""
        for what, given, most in (("depth", self.depth, MOST_DEPTH), ("limit", self.nodes, MOST_NODES)):
            if not 1 <= given <= most:
                raise BadLineage(what, given, f"use a number from 1 to {most:,}")


def read_bounds(direction: str, depth: int, limit: int) -> Bounds:
    """Return the bounds that a caller gives; `BadFilter` for a direction that there is not, `BadLineage`."""
    wanted = check_filter("direction", direction, Direction)
    both = (Direction.UPSTREAM, Direction.DOWNSTREAM)
    return Bounds(both if wanted is Direction.BOTH else (wanted,), depth, limit)


@dataclass(frozen=True, slots=True)
class DescribedPlace:
    """A place as people read it, without its depth. `made_by` is the program of the last commit to a data set."""

    id: str
    kind: NodeKind
    name: str
    state: str
    at: datetime | None
    program: str | None = None
    write_pointer: int | None = None
    made_by: str | None = None


class LineageStep(NamedTuple, Generic[P]):
    """An edge as a graph knows the edge, in the direction of the data."""

    source: P
    target: P
    kind: EdgeKind


class Graph(Protocol[P]):
    """Contract of a graph. Places are values that can be compared and hashed."""

    def steps(self, places: Sequence[P], direction: Direction, most: int) -> Iterator[LineageStep[P]]:
        """Yield the edges that lead from `places` in a direction. Reads at most `most` of one place. Cost: look-ups."""

    def describe(self, places: Sequence[P]) -> Mapping[P, DescribedPlace]:
        """Describe the places that the caller may read. The other places are missing: the walk leaves them out."""


@dataclass(slots=True)
class _Walk(Generic[P]):
    """Nodes and edges that a walk has found."""

    graph: Graph[P]
    bounds: Bounds
    depths: dict[P, int] = field(default_factory=dict)
    described: dict[P, DescribedPlace] = field(default_factory=dict)
    edges: dict[LineageStep[P], None] = field(default_factory=dict)
    cut: bool = False

    def start(self, roots: Sequence[P]) -> list[P]:
        """Add the places where the walk begins; return those that the caller may read."""
        self.described.update(self.graph.describe(roots))
        shown = [place for place in roots if place in self.described]
        self.cut = len(shown) > self.bounds.nodes
        self.depths.update(dict.fromkeys(shown[: self.bounds.nodes], 0))
        return list(self.depths)

    def go(self, front: Sequence[P], direction: Direction, distance: int, seen: set[P]) -> list[P]:
        """Take one step from each place of `front`; return the places that are reached for the first time."""
        most = _EDGES * self.bounds.nodes
        found = list(islice(self.graph.steps(front, direction, most + 1), most + 1))
        self.cut |= len(found) > most
        up = direction is Direction.UPSTREAM
        reached = list(dict.fromkeys(step.source if up else step.target for step in found))
        unknown = [place for place in reached if place not in self.described]
        self.described.update(self.graph.describe(unknown))
        shown = []
        for place in reached:
            if place not in self.described or place in seen:
                continue
            if place not in self.depths and (len(self.depths) >= self.bounds.nodes or distance > self.bounds.depth):
                self.cut = True
                continue
            self.depths.setdefault(place, -distance if up else distance)
            seen.add(place)
            shown.append(place)
        self.edges |= {one: None for one in found[:most] if one.source in self.depths and one.target in self.depths}
        return shown


def walk(graph: Graph[P], thing: str, roots: Sequence[P], bounds: Bounds) -> Lineage:
    """Walk from `roots` step by step, all directions in turn, as far as `bounds` allow.

    Upstream are sources and their sources, not the other results of a source. Cost: look-ups for the nodes of the
    answer.
    """
    found = _Walk(graph, bounds)
    start = found.start(roots)
    fronts = {direction: (start, set(start)) for direction in bounds.directions}
    # The last step adds nothing: it tells whether the depth has cut the graph.
    for distance in range(1, bounds.depth + 2):
        for direction, (front, seen) in fronts.items():
            if front:
                fronts[direction] = (found.go(front, direction, distance, seen), seen)
    return _record(thing, found)


def _record(thing: str, found: _Walk[P]) -> Lineage:
    nodes = tuple(_node(found.described[place], depth) for place, depth in found.depths.items())
    edges = tuple(_edge(found.described[one.source], found.described[one.target], one.kind) for one in found.edges)
    return Lineage(thing, nodes, edges, found.cut)


def _node(of: DescribedPlace, depth: int) -> LineageNode:
    return LineageNode(of.id, of.kind, of.name, of.state, of.at, depth, of.program, of.write_pointer)


def _edge(source: DescribedPlace, target: DescribedPlace, kind: EdgeKind) -> LineageEdge:
    at = source.at if kind is EdgeKind.STARTS else target.at
    if kind is EdgeKind.WRITES and source.kind is NodeKind.PROGRAM and target.made_by != source.name:
        at = None
    return LineageEdge(source.id, target.id, kind, at)
