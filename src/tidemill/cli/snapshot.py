"""`tidemill snapshot`: versions of snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidemill.cli.output import json_option, open_mill, say, show_list


@click.group(name="snapshot", help="Snapshots: mirrors of sources, in versions.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("name")
@json_option
def versions(name: str, *, as_json: bool) -> None:
    """List the versions that can be read, newest first, and for whom or what each is kept."""
    with open_mill() as mill:
        rows = mill.list_versions(name)
    columns = ("version", "committed_at", "rows", "bytes", "run_id", "current", "rolled_back_to", "kept_for")
    show_list(rows, columns, as_json=as_json, empty=f"{name} has no version yet: run the program that refreshes it")


@command.command()
@click.argument("name")
@click.argument("version", type=int)
@json_option
def rollback(name: str, version: int, *, as_json: bool) -> None:
    """Make an older version current again, as a new version that has its files."""
    with open_mill() as mill:
        made = mill.roll_back(name, version)
    record = {"version": made.version, "rolled_back_to": version, "rows": made.rows, "run_id": made.run_id}
    sentence = f"{name} is at version {made.version} now, with the {made.rows} rows of version {version}"
    say(record, f"{sentence}; the next refresh replaces it", as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--version", "chosen", multiple=True, type=int, help="This version, instead of what retention lets go.")
@json_option
def expire(name: str, chosen: Sequence[int], *, as_json: bool) -> None:
    """Let go what retention does not keep; the janitor deletes the files."""
    with open_mill() as mill:
        gone = mill.expire_versions(name, chosen)
    told = f"let go version {', '.join(map(str, gone))} of {name}" if gone else f"nothing of {name} may go"
    say({"expired": gone}, told, as_json=as_json)
