"""`tidemill tx`: transactions."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_one, show_page


@click.group(name="tx", help="Transactions, by write pointer.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only open transactions, the oldest first.")
@page_options
@json_option
def list_(*, open_only: bool, limit: int, after: str, as_json: bool) -> None:
    """List the newest transactions first."""
    with open_mill() as mill:
        rows = mill.transactions.list(open_only=open_only, limit=limit, after=after)
    columns = ("write_pointer", "state", "commit_seq", "run_id", "epoch", "began_at", "ended_at", "reason")
    show_page(rows, columns, as_json=as_json, empty="no transactions yet")


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@json_option
def show(write_pointer: int, *, as_json: bool) -> None:
    """Show a transaction and what it published."""
    with open_mill() as mill:
        show_one(mill.transactions.show(write_pointer), as_json=as_json)


@command.command()
@click.argument("write_pointer", type=click.IntRange(1))
@json_option
def abort(write_pointer: int, *, as_json: bool) -> None:
    """Abort a transaction. Its process cannot commit the transaction afterwards."""
    with open_mill() as mill:
        done = mill.transactions.abort(write_pointer)
    say(done, f"transaction {write_pointer} is {done.state}", as_json=as_json)
