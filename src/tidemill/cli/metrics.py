"""`tidemill metrics`: what waits, runs and is late, as numbers."""

from __future__ import annotations

import json

import click

from tidemill.cli.output import json_option, open_mill, show_list
from tidemill.mill.plain import to_plain


@click.command(name="metrics")
@json_option
def command(*, as_json: bool) -> None:
    """Show the metrics of the catalog; `/metrics` of the server has them for Prometheus."""
    with open_mill() as mill:
        found = mill.metrics()
    if as_json:
        click.echo(json.dumps(to_plain(found), indent=2))
        return
    show_list(found.samples, ("metric", "labels", "value"), as_json=False, empty="nothing to measure")
