"""`tidemill consumer`: who reads which data set, and what waits for them."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, show_list, show_one


@click.group(name="consumer", help="Consumers of file sets, and what waits for them.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--dataset", metavar="NAME", help="Only consumers of this data set.")
@json_option
def list_(dataset: str | None, *, as_json: bool) -> None:
    """List consumers by data set and name."""
    with open_mill() as mill:
        rows = mill.list_consumers(dataset=dataset)
    columns = ("dataset", "name", "waiting", "bytes", "in_progress", "discarded", "oldest_at")
    show_list(rows, columns, as_json=as_json, empty="no consumers yet; a program that reads a file set makes one")


@command.command()
@click.argument("dataset")
@click.argument("name")
@json_option
def show(dataset: str, name: str, *, as_json: bool) -> None:
    """Show a consumer: its state and its lag."""
    with open_mill() as mill:
        show_one(mill.show_consumer(dataset, name), as_json=as_json)
