"""The output of lineage: a tree of sources, then a tree of results. The commands belong to their nouns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from tidemill.epoch import show_time
from tidemill.mill.plain import to_plain

if TYPE_CHECKING:
    from tidemill.mill.lineage import Lineage, LineageNode

Command = TypeVar("Command", bound=Callable[..., object])

CUT: Final = "there is more: raise --depth or --limit"


def lineage_options(command: Command) -> Command:
    """Add the options of a walk: direction, depth and limit."""
    command = click.option(
        "--limit", default=200, show_default=True, type=click.IntRange(1, 1000), help="The most nodes to show."
    )(command)
    command = click.option(
        "--depth", default=4, show_default=True, type=click.IntRange(1, 100), help="The most steps from the thing."
    )(command)
    return click.option(
        "--direction",
        default="both",
        show_default=True,
        type=click.Choice(("upstream", "downstream", "both")),
        help="Show only sources, only results, or both.",
    )(command)


def show_lineage(found: Lineage, *, as_json: bool) -> None:
    """Print the graph as a JSON object; for people, as two trees. A node with several edges is shown in full once."""
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
        return
    nodes = {node.id: node for node in found.nodes}
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for edge in found.edges:
        above.setdefault(edge.target, []).append(edge.source)
        below.setdefault(edge.source, []).append(edge.target)
    click.echo(found.thing)
    roots = [node.id for node in found.nodes if node.depth == 0]
    for title, edges in (("upstream", above), ("downstream", below)):
        lines = list(_branches(nodes, edges, roots))
        click.echo("\n".join([title, *lines]) if lines else f"{title}  none")
    if found.cut:
        click.echo(CUT)


def _branches(
    nodes: Mapping[str, LineageNode], edges: Mapping[str, Sequence[str]], roots: Sequence[str]
) -> Iterator[str]:
    """Yield the lines below `roots`, depth first."""
    shown = set(roots)
    waiting = [(one, 1) for root in reversed(roots) for one in reversed(edges.get(root, ()))]
    while waiting:
        node_id, depth = waiting.pop()
        again = node_id in shown
        yield f"{'  ' * depth}{_line(nodes[node_id])}{'  (see above)' if again and edges.get(node_id) else ''}"
        if not again:
            shown.add(node_id)
            waiting += [(one, depth + 1) for one in reversed(edges.get(node_id, ()))]


def _line(node: LineageNode) -> str:
    words = [node.kind.value, node.name, node.program or "", node.state]
    words += [f"tx {node.write_pointer}"] if node.write_pointer else []
    words += [show_time(node.at)] if node.at else []
    return "  ".join(filter(None, words))
