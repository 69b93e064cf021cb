"""`tidemill inbox`: raw files that arrived."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, show_list

_STATES = ("NEW", "IN_PROGRESS", "SUCCESS", "ERROR", "QUARANTINED", "SKIPPED")


@click.group(name="inbox", help="Raw files that arrived, and what became of them.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("name")
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), help="Only files in this state.")
@click.option("--after", default="", metavar="FILE", help="Only files whose name sorts behind this one: the next page.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000), help="How many at most.")
@json_option
def files(name: str, state: str | None, after: str, limit: int, *, as_json: bool) -> None:
    """List the files of an inbox by name, with their states."""
    with open_mill() as mill:
        rows = mill.list_inbox_files(name, state=state, after=after, limit=limit)
    columns = ("name", "status", "bytes", "modified_at", "failures", "run_id", "error")
    show_list(rows, columns, as_json=as_json, empty=f"no such files in {name}")
