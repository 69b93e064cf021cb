"""`tidemill tx`: transactions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tidemill.cli.output import (
    json_option,
    open_mill,
    page_options,
    parse_json,
    read_file,
    say,
    show_one,
    show_page,
)
from tidemill.mill.written import BadOption

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
@click.argument("writes", nargs=-1, metavar="[DATASET]...")
@click.option(
    "--read",
    "reads",
    multiple=True,
    nargs=2,
    metavar="DATASET CONSUMER",
    help="Take waiting partitions of this data set by this consumer.",
)
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1, 10_000), help="The most of each read.")
@_lease_option
@click.option("--owner", default="", help="The name of the writer, shown with the run.")
@json_option
def begin(
    writes: tuple[str, ...], reads: tuple[tuple[str, str], ...], limit: int, lease: str, owner: str, *, as_json: bool
) -> None:
    """Begin a transaction for files that another process writes; print the folder for the files of each DATASET.

    No reader sees the files before `tidemill tx commit`. The commit also completes the partitions of each --read.
    """
    with open_mill() as mill:
        wanted = [{"dataset": dataset, "consumer": consumer, "limit": limit} for dataset, consumer in reads]
        begun = mill.transactions.begin(writes, reads=wanted, lease=lease, owner=owner)
    lines = [f"transaction {begun.write_pointer}, kept for {begun.lease}"]
    lines += [f"{one.dataset}: {one.format} files below {one.location}" for one in begun.outputs]
    lines += [f"{one.dataset}: {len(one.partitions)} partitions taken by {one.consumer}" for one in begun.inputs]
    lines += [file.path for one in begun.inputs for partition in one.partitions for file in partition.files]
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
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
@json_option
def commit(write_pointer: int, file: Path | None, *, as_json: bool) -> None:
    """Commit a transaction that `tidemill tx begin` has begun, as FILE says: a JSON document, or - for standard input.

    Without FILE, complete what a transaction has taken that writes no data set.

    The document is {"partitions": [{"dataset": "orders", "key": "day=2026-01-01", "op": "append", "files": [{"name":
    "day=2026-01-01/a.parquet", "bytes": 900, "rows": 10}]}]}. The names are below the folder that `begin` printed.
    """
    said: Mapping[str, Any] = {} if file is None else _read_commit(file)
    with open_mill() as mill:
        done = mill.transactions.commit(write_pointer, said.get("partitions"), messages=said.get("messages", ()))
    text = f"transaction {write_pointer} committed {done.partitions} partitions with {done.rows} rows"
    text += f", and completed {done.taken} taken partitions" if done.taken else ""
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
@click.option("--error", required=True, metavar="TEXT", help="The reason of the failure.")
@json_option
def fail(write_pointer: int, error: str, *, as_json: bool) -> None:
    """End a transaction whose work failed. Its taken partitions are retried later; discarded after 3 failures."""
    with open_mill() as mill:
        done = mill.transactions.fail(write_pointer, error)
    say(done, f"transaction {write_pointer} is {done.state}: {done.reason}", as_json=as_json)


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@json_option
def abort(write_pointer: int, *, as_json: bool) -> None:
    """Abort a transaction, and return what it has taken. Its process cannot commit the transaction afterwards."""
    with open_mill() as mill:
        done = mill.transactions.abort(write_pointer)
    say(done, f"transaction {write_pointer} is {done.state}", as_json=as_json)
