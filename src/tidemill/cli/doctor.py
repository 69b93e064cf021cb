"""`tidemill doctor`: what the project runs with, and what would keep it from running."""

from __future__ import annotations

import json
import sys

import click

from tidemill.cli.output import json_option, read_project
from tidemill.mill.plain import to_plain


@click.command(name="doctor")
@json_option
def command(*, as_json: bool) -> None:
    """Show the effective configuration with its sources, and check Java, Spark, catalog and folders, with cures."""
    from tidemill.doctor import examine

    folder, options = read_project()
    diagnosis = examine(folder, options=options)
    if as_json:
        click.echo(json.dumps(to_plain(diagnosis), indent=2))
    else:
        width = max(map(len, diagnosis.settings))
        for name, value in diagnosis.settings.items():
            click.echo(f"{name:<{width}} {value}  ({diagnosis.sources.get(name, 'default')})")
        click.echo()
        for finding in diagnosis.findings:
            click.echo(f"{'ok  ' if finding.good else 'BAD '} {finding.subject:<12} {finding.found}")
            if finding.cure:
                click.echo(f"     {'':<12} cure: {finding.cure}")
    sys.exit(0 if diagnosis.healthy else 1)
