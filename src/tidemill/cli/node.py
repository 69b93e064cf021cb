"""`tidemill node` and `tidemill drain`: the processes that share the work."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_page
from tidemill.run.records.nodes import NodeState


@click.group(name="node", help="Nodes: the processes that share the work.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@page_options
def list_(*, limit: int, after: str, as_json: bool) -> None:
    """List nodes with their roles, in the order of their starts."""
    with open_mill() as mill:
        rows = mill.nodes.list(limit=limit, after=after)
    columns = ("node_id", "host", "roles", "slots", "state", "started_at", "seen_at")
    show_page(rows, columns, as_json=as_json, empty="no node works; `tidemill up` starts one")


@click.command(name="drain")
@click.argument("node_id", metavar="NODE")
@json_option
def drain(node_id: str, *, as_json: bool) -> None:
    """Have a node take no more runs, and end when its runs have ended. `tidemill node list` lists nodes."""
    with open_mill() as mill:
        done = mill.nodes.drain(node_id)
    already = "" if done.changed else " already"
    drains = f"{node_id} drains{already}: it ends when its runs have ended"
    lost = f"{node_id} is lost, and has ended or does not answer: it drains if it works again"
    say(done, lost if done.state is NodeState.LOST else drains, as_json=as_json)
