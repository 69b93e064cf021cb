"""`tidemill flow`: all that is declared, as one graph."""

from __future__ import annotations

import json

import click

from tidemill.cli.lineage import CUT
from tidemill.cli.output import json_option, open_mill, show_list
from tidemill.mill.plain import to_plain


@click.command(name="flow")
@click.argument("around", required=False)
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1, 1000), help="The most nodes to show.")
@json_option
def command(around: str | None, *, limit: int, as_json: bool) -> None:
    """Show all that is declared as one graph: inboxes, data sets, programs, schedules, topics and hooks.

    With AROUND, the name of a data set, program or schedule, only what lies upstream and downstream of it.
    For people, a line for each edge in the direction of the data, with the time of the last move along the edge.
    """
    with open_mill() as mill:
        found = mill.flow(around, limit=limit)
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
        return
    empty = "nothing is declared yet; declare data sets and programs in the app and `tidemill deploy`"
    show_list(found.edges, ("source", "kind", "target", "at"), as_json=False, empty=empty)
    if found.cut:
        click.echo(CUT)
