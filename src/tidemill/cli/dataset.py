"""`tidemill dataset`: file sets and inboxes."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, show_list, show_one


@click.group(name="dataset", help="Data sets: file sets and inboxes.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List all data sets by name."""
    with open_mill() as mill:
        rows = mill.list_datasets()
    columns = ("name", "kind", "app", "partitions", "files", "bytes", "rows", "location")
    show_list(rows, columns, as_json=as_json, empty="no data sets yet; declare one in the app and `tidemill deploy`")


@command.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show a data set: its keys, schema, location and size."""
    with open_mill() as mill:
        show_one(mill.show_dataset(name), as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="How many at most.")
@json_option
def partitions(name: str, limit: int, *, as_json: bool) -> None:
    """List the current partitions of a file set by key."""
    with open_mill() as mill:
        rows = mill.list_partitions(name, limit=limit)
    columns = ("partition", "files", "bytes", "rows", "write_pointer", "commit_seq", "run_id", "committed_at")
    show_list(rows, columns, as_json=as_json, empty=f"{name} has no partitions yet")


_where = click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only these partitions: day=2026-01-01, hour>=6, hour<12. The same field again with = means one of them.",
)
_as_of = click.option(
    "--as-of", metavar="WHEN", help="An earlier state: a commit sequence, or a time (2026-01-01T12:00Z)."
)


@command.command()
@click.argument("name")
@_where
@_as_of
@json_option
def files(name: str, *, where: tuple[str, ...], as_of: str | None, as_json: bool) -> None:
    """List the committed files of a file set, for engines other than Spark."""
    with open_mill() as mill:
        rows = mill.list_files(name, where=where, as_of=as_of)
    show_list(rows, ("path", "bytes", "rows", "partition"), as_json=as_json, empty=f"{name} has no files yet")
