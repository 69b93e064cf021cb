"""The page Flow: all that is declared as a graph, in layers from sources to results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from shlex import quote
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.lineage import Lineage, LineageNode, NodeKind
from tidemill.mill.mill import Mill
from tidemill.server.pages.columns import STATE, Column
from tidemill.server.pages.layout import Edge, Layout, lay_out
from tidemill.server.pages.render import ago, link, plain, render, state_of

_WIDTH: Final = 160
_HEIGHT: Final = 44
_GAP_ACROSS: Final = 84
_GAP_DOWN: Final = 16
_MARGIN: Final = 12
_MOST: Final = 200
_LETTERS: Final = 20
_ROUND: Final = {NodeKind.PROGRAM: 3, NodeKind.RUN: 3, NodeKind.SCHEDULE: 22}
"""The roundness of corners by kind; of data it is 10."""
_ENDS: Final = frozenset({NodeKind.TOPIC, NodeKind.HOOK})
"""Kinds around which no graph is asked for."""
_OF_APPS: Final = frozenset({NodeKind.PROGRAM, NodeKind.SCHEDULE})
_WORDS: Final = {NodeKind.FILESET: "file set"}
_PAGES: Final = {
    NodeKind.INBOX: "/inboxes",
    NodeKind.FILESET: "/datasets",
    NodeKind.SNAPSHOT: "/datasets",
    NodeKind.SCHEDULE: "/schedules",
    NodeKind.TOPIC: "/topics",
}
_NODES: Final = (
    Column("name", "Thing", "name", "{page}"),
    Column("words", "Kind"),
    STATE,
    Column("at", "Last move", "time"),
)


def words_of(kind: NodeKind) -> str:
    """Return a kind of node in words."""
    return _WORDS.get(kind, kind.value)


def page_of(node: LineageNode) -> str:
    """Return the page of a node of a declared graph; empty for a hook."""
    if node.kind is NodeKind.PROGRAM:
        return f"/runs?{urlencode({'program': node.name})}"
    return link(_PAGES[node.kind], node.name) if node.kind in _PAGES else ""


def _name(node: LineageNode) -> str:
    return node.name


def _around(node: LineageNode) -> str:
    """Return the page Flow around a node."""
    return f"/flow?{urlencode({'around': node.id})}" if node.kind not in _ENDS else page_of(node)


def show_flow(request: Request, around: str = "") -> HTMLResponse:
    """Return the graph of the project, or of all that leads to a thing and away from it."""
    mill: Mill = request.state.mill
    found = mill.flow(around or None, limit=_MOST)
    chosen = next((one for one in found.nodes if around in {one.id, one.name} and one.depth == 0), None)
    return render(
        request,
        "flow.html",
        title="Flow",
        around="" if not around else chosen.name if chosen else found.thing,
        page=page_of(chosen) if chosen else "",
        cut=found.cut,
        **draw(found, mill),
        rows=[plain(one) | {"page": page_of(one), "words": words_of(one.kind)} for one in found.nodes],
        columns=_NODES,
        command=f"flow {quote(around)}" if around else "flow",
    )


def draw(
    found: Lineage,
    mill: Mill,
    *,
    link_of: Callable[[LineageNode], str] = _around,
    name_of: Callable[[LineageNode], str] = _name,
) -> Mapping[str, Any]:
    """Return the places of all nodes, and the paths of all edges, for a picture of a size.

    `link_of` gives the page to which a box leads, and `name_of` the text of a box.
    """
    edges = [Edge(one.source, one.target) for one in found.edges]
    layout = lay_out([one.id for one in found.nodes], edges)
    now, namespace = mill.project.world.clock.now(), mill.project.config.namespace
    by_id = {one.id: one for one in found.nodes}
    # Of one app, its name says nothing.
    one_app = len({one.name.rpartition(".")[0] for one in found.nodes if one.kind in _OF_APPS}) == 1
    boxes = []
    for node in found.nodes:
        x, y = _corner(*layout.places[node.id])
        name = name_of(node).removeprefix(f"{namespace}.")
        if node.kind in _OF_APPS and one_app:
            name = name.rpartition(".")[2]
        shape, sign, words = state_of(node.state)
        boxes.append(
            {
                "name": node.name,
                "x": x,
                "y": y,
                "round": _ROUND.get(node.kind, 10),
                "shape": shape,
                "shown": name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…",
                "said": f"{sign} {words} · {words_of(node.kind)}",
                "chosen": node.depth == 0 and len(by_id) > 1 and any(one.depth for one in found.nodes),
                "link": link_of(node),
            }
        )
    paths, labels = [], {}
    newest: dict[str, datetime] = {}
    for edge, one in zip(edges, found.edges, strict=True):
        alive = "RUNNING" in {by_id[one.source].state, by_id[one.target].state}
        said = ago(one.at, now) if one.at else ""
        paths.append({"d": _path(layout, edge), "shape": "run" if alive else "", "said": said})
        # Times would lie over each other: a box has the last one.
        if one.at and one.at >= newest.get(edge.target, one.at):
            newest[edge.target] = one.at
            x, y = _corner(*layout.places[edge.target])
            labels[edge.target] = {"x": x - 8, "y": y + _HEIGHT // 2 - 5, "said": said}
    return {
        "boxes": boxes,
        "box_width": _WIDTH,
        "paths": paths,
        "labels": list(labels.values()),
        "width": _MARGIN * 2 + layout.layers * (_WIDTH + _GAP_ACROSS) - _GAP_ACROSS,
        "height": round(_MARGIN * 2 + layout.rows * (_HEIGHT + _GAP_DOWN) - _GAP_DOWN),
    }


def _corner(layer: int, row: float) -> tuple[int, int]:
    return _MARGIN + layer * (_WIDTH + _GAP_ACROSS), _MARGIN + round(row * (_HEIGHT + _GAP_DOWN))


def _path(layout: Layout, edge: Edge) -> str:
    """Return curves from the right side of a box, through the layers between, to the left side of another box."""
    x, y = _corner(*layout.places[edge.source])
    x, y = x + _WIDTH, y + _HEIGHT // 2
    parts = [f"M{x} {y}"]
    for place in (*layout.bends[edge], layout.places[edge.target]):
        x2, y2 = _corner(*place)
        y2 += _HEIGHT // 2
        bend = max(abs(x2 - x) // 2, 24)
        parts.append(f"C{x + bend} {y} {x2 - bend} {y2} {x2} {y2}")
        x, y = x2, y2
        if place != layout.places[edge.target]:
            x += _WIDTH
            parts.append(f"H{x}")
    return "".join(parts)
