"""`tidemill tx`: transactions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tidemill.cli.output import (
    BadOption,
    json_option,
    open_mill,
    page_options,
    parse_json,
    read_file,
    say,
    show_one,
    show_page,
)

_lease_option = click.option(
    "--lease",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long the transaction stays open unless renewed: 5s to 1h.",
)


@click.group(name="tx", help="Transactions, by write pointer.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only open transactions, the oldest first.")
@click.option("--state", metavar="STATE", help="Only transactions in this state, such as invalid.")
@page_options
def list_(*, open_only: bool, state: str | None, limit: int, after: str, as_json: bool) -> None:
    """List the newest transactions first."""
    with open_mill() as mill:
        rows = mill.transactions.list(open_only=open_only, state=state, limit=limit, after=after)
    columns = ("write_pointer", "state", "commit_seq", "run_id", "epoch", "began_at", "ended_at", "reason")
    show_page(
        rows, columns, as_json=as_json, empty="no transaction fits" if open_only or state else "no transactions yet"
    )


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@json_option
def show(write_pointer: int, *, as_json: bool) -> None:
    """Show a transaction and what it published."""
    with open_mill() as mill:
        show_one(mill.transactions.show(write_pointer), as_json=as_json)


@command.command()
@click.argument("writes", nargs=-1, required=True, metavar="DATASET...")
@_lease_option
@click.option("--owner", default="", help="The name of the writer, shown with the run.")
@json_option
def begin(writes: tuple[str, ...], lease: str, owner: str, *, as_json: bool) -> None:
    """Begin a transaction for files that another process writes; print the folder for the files of each DATASET.

    No reader sees the files before `tidemill tx commit`.
    """
    with open_mill() as mill:
        begun = mill.transactions.begin(writes, lease=lease, owner=owner)
    lines = [f"transaction {begun.write_pointer}, kept for {begun.lease}"]
    lines += [f"{one.dataset}: {one.format} files below {one.location}" for one in begun.outputs]
    say(begun, "\n".join(lines), as_json=as_json)


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@_lease_option
@json_option
def renew(write_pointer: int, lease: str, *, as_json: bool) -> None:
    """Extend the lease of a transaction that `tidemill tx begin` has begun."""
    with open_mill() as mill:
        renewed = mill.transactions.renew(write_pointer, lease=lease)
    say(renewed, f"transaction {write_pointer} is kept for {renewed.lease}", as_json=as_json)


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@json_option
def commit(write_pointer: int, file: Path, *, as_json: bool) -> None:
    """Commit a transaction that `tidemill tx begin` has begun, as FILE says: a JSON document, or - for standard input.

    The document is {"partitions": [{"dataset": "orders", "key": "day=2026-01-01", "op": "append", "files": [{"name":
    "day=2026-01-01/a.parquet", "bytes": 900, "rows": 10}]}]}. The names are below the folder that `begin` printed.
    """
    said = _read_commit(file)
    with open_mill() as mill:
        done = mill.transactions.commit(write_pointer, said["partitions"], messages=said.get("messages", ()))
    text = f"transaction {write_pointer} committed {done.partitions} partitions with {done.rows} rows"
    say(done, text, as_json=as_json)


def _read_commit(file: Path) -> Mapping[str, Any]:
    said = parse_json("FILE", read_file(file))
    if not isinstance(said, dict) or not {"partitions"} <= said.keys() <= {"partitions", "messages"}:
        raise BadOption("FILE", str(file), 'a JSON object with "partitions" is wanted, and maybe "messages"')
    for name, entries in said.items():
        if not isinstance(entries, list):
            raise BadOption("FILE", str(file), f"{name!r} is a list of JSON objects")
    return said


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@json_option
def abort(write_pointer: int, *, as_json: bool) -> None:
    """Abort a transaction. Its process cannot commit the transaction afterwards."""
    with open_mill() as mill:
        done = mill.transactions.abort(write_pointer)
    say(done, f"transaction {write_pointer} is {done.state}", as_json=as_json)
