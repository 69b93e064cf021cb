"""The page Lineage: the graph of where a thing came from and where it went, and the same as a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.lake.datasets import DatasetKind
from tidemill.mill.lineage import DEPTH, FORGOTTEN, MOST_DEPTH, BadLineage, Direction, Lineage, LineageNode, NodeKind
from tidemill.mill.mill import Mill
from tidemill.server.pages.columns import PROGRAM, STATE, Column
from tidemill.server.pages.data_view import command_of, number_of, query
from tidemill.server.pages.flow import draw, page_of, words_of
from tidemill.server.pages.render import link, plain, render

_MOST: Final = 200
_RUN: Final = "run_"
_NODES: Final = (
    Column("way", "Way"),
    Column("name", "Thing", "name", "{page}"),
    Column("words", "Kind"),
    PROGRAM,
    STATE,
    Column("at", "At", "time"),
    Column("write_pointer", "Transaction", "number"),
)


def show_lineage(
    request: Request, thing: str = "", direction: str = Direction.BOTH, depth: str = str(DEPTH)
) -> HTMLResponse:
    """Return the page of a data set, `DATASET/PARTITION`, `SNAPSHOT@VERSION`, `INBOX/FILE`, or the id of a run."""
    mill: Mill = request.state.mill
    steps = _read_depth(depth)
    found, command = _trace(mill, thing, direction, steps) if thing else (Lineage("", (), (), cut=False), ())
    options = [] if direction == Direction.BOTH else ["--direction", direction]
    options += [] if steps == DEPTH else ["--depth", str(steps)]

    def link_of(node: LineageNode) -> str:
        asked = {"direction": direction, "depth": steps}
        kept = {name: value for name, value in asked.items() if value not in {Direction.BOTH, DEPTH}}
        traced = thing_of(node)
        return f"/lineage{query(thing=traced, **kept)}" if traced else page_of(node)

    root = next((node for node in found.nodes if node.depth == 0), None)
    return render(
        request,
        "lineage.html",
        title="Lineage",
        thing=thing,
        found=found,
        page=_page(root) if root else "",
        directions=[(one.value, one == direction) for one in Direction],
        depth=steps,
        most_depth=MOST_DEPTH,
        deeper=query(thing=thing, direction=direction, depth=min(2 * steps, MOST_DEPTH)) if found.cut else "",
        **draw(found, mill, link_of=link_of, name_of=_short_name),
        rows=[_row(node) for node in sorted(found.nodes, key=lambda node: node.depth)],
        columns=_NODES,
        command=command_of(*(command or ("dataset", "lineage", "NAME")), *options),
    )


def thing_of(node: LineageNode) -> str:
    """Return the thing that this page takes for a node; empty for a node of another page."""
    match node.kind:
        case NodeKind.VERSION:
            return f"{node.name}@{node.write_pointer}"
        case NodeKind.PROGRAM | NodeKind.SCHEDULE | NodeKind.TOPIC | NodeKind.HOOK:
            return ""
        case NodeKind.FILE if node.state == FORGOTTEN:
            return ""
        case _:
            return node.name


def _read_depth(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadLineage("depth", text, f"use a number from 1 to {MOST_DEPTH}") from None


def _trace(mill: Mill, thing: str, direction: str, depth: int) -> tuple[Lineage, tuple[str, ...]]:
    """Return the lineage of a thing, and the command that gives the same."""
    name, _, part = thing.partition("/")
    if thing.startswith(_RUN) and not part:
        found = mill.runs.lineage(thing, direction=direction, depth=depth, limit=_MOST)
        return found, ("run", "lineage", thing)
    if part and mill.datasets.show(name).kind == DatasetKind.INBOX:
        found = mill.inboxes.lineage(name, part, direction=direction, depth=depth, limit=_MOST)
        return found, ("inbox", "lineage", name, part)
    if part:
        found = mill.datasets.lineage(name, partition=part, direction=direction, depth=depth, limit=_MOST)
        return found, ("dataset", "lineage", name, part)
    dataset, _, version = name.partition("@")
    if version.isascii() and version.isdigit():
        found = mill.datasets.lineage(dataset, version=int(version), direction=direction, depth=depth, limit=_MOST)
        return found, ("dataset", "lineage", dataset, "--version", version)
    return mill.datasets.lineage(name, direction=direction, depth=depth, limit=_MOST), ("dataset", "lineage", name)


def _short_name(node: LineageNode) -> str:
    """Return the text of a box: of a run its program, of a partition or file its own part of the name."""
    match node.kind:
        case NodeKind.RUN:
            return (node.program or node.name).rpartition(".")[2]
        case NodeKind.PARTITION | NodeKind.FILE:
            return node.name.partition("/")[2]
        case _:
            return node.name


def _row(node: LineageNode) -> Mapping[str, Any]:
    if node.depth == 0:
        way = "the thing itself"
    else:
        way = f"{number_of(abs(node.depth), 'step')} {'upstream' if node.depth < 0 else 'downstream'}"
    return plain(node) | {"way": way, "words": words_of(node.kind), "page": _page(node)}


def _page(node: LineageNode) -> str:
    """Return the page of a node."""
    dataset, _, part = node.name.partition("/")
    match node.kind:
        case NodeKind.RUN:
            return link("/runs", node.name)
        case NodeKind.FILE:
            return link("/why", node.name)
        case NodeKind.PARTITION:
            return link("/datasets", dataset, part)
        case NodeKind.VERSION:
            return link("/datasets", dataset)
        case _:
            return page_of(node)
