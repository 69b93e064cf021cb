"""`tidemill app`: what was deployed."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, show_list, show_one


@click.group(name="app", help="Deployed apps.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List deployed apps by name."""
    with open_mill() as mill:
        rows = mill.list_apps()
    columns = ("name", "version", "deployed_at", "file")
    show_list(
        rows, columns, as_json=as_json, empty="no apps yet; `tidemill deploy` registers what the app file declares"
    )


@command.command()
@click.argument("name", metavar="APP")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show an app as it was last deployed, with its data sets, programs and schedules."""
    with open_mill() as mill:
        show_one(mill.show_app(name), as_json=as_json)
