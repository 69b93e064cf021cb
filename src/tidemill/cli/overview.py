"""`tidemill overview`: the project at a glance."""

from __future__ import annotations

import json

import click

from tidemill.cli.output import open_mill, page_options, show_list
from tidemill.mill.plain import to_plain


@click.command(name="overview")
@page_options
def command(*, limit: int, after: str, as_json: bool) -> None:
    """Show the things that need a person, the feeds with their freshness, and the runs and jobs of the moment."""
    with open_mill() as mill:
        found = mill.overview(limit=limit, after=after)
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
        return
    show_list(found.needs, ("kind", "said", "evidence", "since", "look"), as_json=False, empty="nothing needs you")
    click.echo()
    columns = ("state", "name", "kind", "last_arrival", "expect", "waiting", "filled_by")
    show_list(found.feeds, columns, as_json=False, empty="no data sets yet; declare one and `tidemill deploy`")
    click.echo()
    show_list(found.running, ("run_id", "program", "state", "started_at"), as_json=False, empty="nothing runs")
    click.echo()
    show_list(found.waiting, ("job_id", "schedule", "why"), as_json=False, empty="no job waits")
    if found.next is not None:
        click.echo(f"more feeds: add --after {found.next}")
