"""`tidemill search`: things by the beginning of their names."""

from __future__ import annotations

import json

import click

from tidemill.cli.output import json_option, open_mill, show_list
from tidemill.mill.plain import to_plain


@click.command(name="search")
@click.argument("text")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 100), help="The most hits of each kind.")
@json_option
def command(text: str, *, limit: int, as_json: bool) -> None:
    """Find things whose names begin with TEXT, and the command to look at each.

    TEXT is the beginning of a data set, app, program, schedule, topic, file of an inbox, or id of a run or job; or of a
    partition as "day=2026-01". A name may be qualified (shop.load), and a file may stand after its inbox (orders/o_1).
    """
    with open_mill() as mill:
        found = mill.search(text, limit=limit)
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
        return
    show_list(
        [{"kind": hit.kind, "name": hit.name, "look at it": f"tidemill {hit.command}"} for hit in found.hits],
        ("kind", "name", "look at it"),
        as_json=False,
        empty=f"nothing begins with {text!r}; upper and lower case differ",
    )
    if found.more:
        click.echo("there is more: add letters to TEXT, or raise --limit")
