"""The page Flow: all that is declared as a graph, in layers from sources to results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.lineage import Lineage, LineageEdge, LineageNode, NodeKind
from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import Column, section
from tidemill.server.pages.render import ago, link, plain, render, state_of

_WIDTH: Final = 180
_HEIGHT: Final = 44
_GAP_ACROSS: Final = 56
_GAP_DOWN: Final = 16
_MARGIN: Final = 12
_MOST: Final = 200
_LETTERS: Final = 24
_PAGES: Final = {
    NodeKind.INBOX: "/inboxes",
    NodeKind.FILESET: "/datasets",
    NodeKind.SNAPSHOT: "/datasets",
    NodeKind.SCHEDULE: "/schedules",
    NodeKind.TOPIC: "/topics",
}
_NODES: Final = (
    Column("name", "Thing", "name"),
    Column("kind", "Kind"),
    Column("state", "State", "state"),
    Column("at", "Last move", "time"),
)


def show_flow(request: Request, around: str = "") -> HTMLResponse:
    """Return the graph of the project, or of all that leads to a data set and away from it."""
    mill: Mill = request.state.mill
    found = mill.flow(around or None, limit=_MOST)
    return render(
        request,
        "flow.html",
        title="Flow",
        around=around,
        cut=found.cut,
        **draw(found, mill),
        table=section("Things", found.nodes, _NODES, "nothing is declared yet"),
        command=f"flow {quote(around)}" if around else "flow",
    )


def draw(found: Lineage, mill: Mill) -> Mapping[str, Any]:
    """Return the places of all nodes, and the paths of all edges, for a picture of a size."""
    layers = _layers(found.nodes, found.edges)
    now, namespace = mill.project.world.clock.now(), mill.project.config.namespace
    rows: dict[int, int] = defaultdict(int)
    places: dict[str, tuple[int, int]] = {}
    boxes = []
    for node in found.nodes:
        layer = layers[node.id]
        x = _MARGIN + layer * (_WIDTH + _GAP_ACROSS)
        y = _MARGIN + rows[layer] * (_HEIGHT + _GAP_DOWN)
        rows[layer] += 1
        places[node.id] = (x, y)
        name = node.name.removeprefix(f"{namespace}.")
        boxes.append(
            {
                **plain(node),
                "x": x,
                "y": y,
                "shown": name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…",
                "said": " · ".join([node.kind, state_of(node.state)[2], *([ago(node.at, now)] if node.at else [])]),
                "link": _link(node),
            }
        )
    return {
        "boxes": boxes,
        "paths": [_path(places[edge.source], places[edge.target]) for edge in found.edges],
        "width": _MARGIN * 2 + (max(rows, default=0) + 1) * (_WIDTH + _GAP_ACROSS) - _GAP_ACROSS,
        "height": _MARGIN * 2 + max(rows.values(), default=1) * (_HEIGHT + _GAP_DOWN) - _GAP_DOWN,
    }


def _layers(nodes: Sequence[LineageNode], edges: Sequence[LineageEdge]) -> Mapping[str, int]:
    """Return the layer of each node: one behind the last of its sources. An edge that closes a circle is left out."""
    sources: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        sources[edge.target].append(edge.source)
    layers: dict[str, int] = {}
    for node in nodes:
        path, under_way = [node.id], set[str]()
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


def _path(source: tuple[int, int], target: tuple[int, int]) -> str:
    """Return a curve from the right side of a box to the left side of another."""
    x1, y1 = source[0] + _WIDTH, source[1] + _HEIGHT // 2
    x2, y2 = target[0], target[1] + _HEIGHT // 2
    bend = max(abs(x2 - x1) // 2, 24)
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _link(node: LineageNode) -> str:
    if node.kind is NodeKind.PROGRAM:
        return f"/runs?program={node.name}"
    return link(_PAGES[node.kind], node.name) if node.kind in _PAGES else ""
