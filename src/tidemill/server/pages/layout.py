"""Layout of a graph in layers, from sources on the left to results on the right. Pure.

The way of Sugiyama: layers by the longest path, a place for each long edge in the layers that the edge passes, an order
with few crossings by medians, then heights near the neighbours. docs/decisions/ says why this is no vendored script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_SWEEPS: Final = 8
"""More sweeps changed no order of the graphs that were tried (200 nodes, 600 edges)."""


class Edge(NamedTuple):
    """An edge between two nodes, by their ids."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Layers and rows. `places` has the layer and the row of each node; rows are numbers with fractions.

    `bends` has the rows at which a long edge passes the layers between its ends.
    """

    places: Mapping[str, tuple[int, float]]
    bends: Mapping[Edge, tuple[tuple[int, float], ...]]
    layers: int
    rows: float


def lay_out(nodes: Sequence[str], edges: Iterable[Edge]) -> Layout:
    """Return the places of nodes and edges. The same graph gives the same layout. Cost: nodes, edges, and bends.

    An edge that closes a circle goes backwards, and decides no layer.
    """
    known = set(nodes)
    wanted = [edge for edge in dict.fromkeys(edges) if edge.source in known and edge.target in known]
    layer_of = _find_layers(nodes, wanted)
    layers: list[list[str]] = [[] for _ in range(max(layer_of.values(), default=0) + 1)]
    for node in nodes:
        layers[layer_of[node]].append(node)
    links, passed = _pass_through(wanted, layer_of, layers)
    _order(layers, links)
    rows = _find_rows(layers, links)
    lowest = min(rows.values(), default=0.0)
    highest = max(rows.values(), default=0.0)
    return Layout(
        {node: (layer_of[node], rows[node] - lowest) for node in nodes},
        {edge: tuple((layer, rows[name] - lowest) for layer, name in names) for edge, names in passed.items()},
        len(layers),
        highest - lowest + 1,
    )


def _find_layers(nodes: Sequence[str], edges: Iterable[Edge]) -> Mapping[str, int]:
    """Return the layer of each node: one behind the last of its sources. An edge that closes a circle is left out."""
    sources: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        sources[edge.target].append(edge.source)
    layers: dict[str, int] = {}
    for node in nodes:
        if node in layers:
            continue
        path, under_way = [node], set[str]()
        while path:
            here = path[-1]
            under_way.add(here)
            left = [one for one in sources[here] if one not in layers and one not in under_way]
            if left:
                path.append(left[0])
                continue
            layers[here] = max((layers[one] + 1 for one in sources[here] if one in layers), default=0)
            path.pop()
    return layers


def _pass_through(
    edges: Iterable[Edge], layer_of: Mapping[str, int], layers: list[list[str]]
) -> tuple[list[tuple[str, str]], dict[Edge, list[tuple[int, str]]]]:
    """Add a place to each layer that an edge passes; return the links of neighbours, and the places by edge."""
    links: list[tuple[str, str]] = []
    passed: dict[Edge, list[tuple[int, str]]] = {}
    for number, edge in enumerate(edges):
        here, between = edge.source, []
        for layer in range(layer_of[edge.source] + 1, layer_of[edge.target]):
            name = f"\0{number} {layer}"
            layers[layer].append(name)
            links.append((here, name))
            between.append((layer, name))
            here = name
        if layer_of[edge.source] < layer_of[edge.target]:
            links.append((here, edge.target))
        passed[edge] = between
    return links, passed


def _order(layers: list[list[str]], links: Iterable[tuple[str, str]]) -> None:
    """Order each layer by the middle of the neighbours in the layer before, then in the layer behind, in turn."""
    before, behind = _neighbours(links)
    place = {name: number for layer in layers for number, name in enumerate(layer)}
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        beside = before if forward else behind
        for layer in layers if forward else reversed(layers):
            layer.sort(key=lambda name: (_middle([place[one] for one in beside[name]], place[name]), place[name]))
            place |= {name: number for number, name in enumerate(layer)}


def _find_rows(layers: Sequence[Sequence[str]], links: Iterable[tuple[str, str]]) -> Mapping[str, float]:
    """Return the row of each place: near its neighbours, in the order of its layer, a row from the next."""
    before, behind = _neighbours(links)
    rows = {name: float(number) for layer in layers for number, name in enumerate(layer)}
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        beside = before if forward else behind
        for layer in layers if forward else reversed(layers):
            wanted = [_middle([rows[one] for one in beside[name]], rows[name]) for name in layer]
            rows |= dict(zip(layer, _spread(wanted), strict=True))
    return rows


def _spread(wanted: Sequence[float]) -> list[float]:
    """Return rows that keep the order and a distance of one, as near to the wanted rows as groups of them allow."""
    groups: list[list[float]] = []  # each the sum of its wishes for its first row, and its size
    for row in wanted:
        groups.append([row, 1])
        while len(groups) > 1 and groups[-1][0] / groups[-1][1] < groups[-2][0] / groups[-2][1] + groups[-2][1]:
            total, size = groups.pop()
            first = groups[-1]
            first[0] += total - size * first[1]
            first[1] += size
    return [total / size + place for total, size in groups for place in range(int(size))]


def _neighbours(links: Iterable[tuple[str, str]]) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    before: dict[str, list[str]] = defaultdict(list)
    behind: dict[str, list[str]] = defaultdict(list)
    for source, target in links:
        before[target].append(source)
        behind[source].append(target)
    return before, behind


def _middle(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else float(otherwise)
