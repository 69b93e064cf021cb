"""`tidemill tx`: transactions."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, say, show_list, show_one


@click.group(name="tx", help="Transactions, by write pointer.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only those in progress, the oldest first.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@json_option
def list_(limit: int, *, open_only: bool, as_json: bool) -> None:
    """List the newest transactions first."""
    with open_mill() as mill:
        rows = mill.transactions.list(limit=limit, open_only=open_only)
    columns = ("write_pointer", "state", "commit_seq", "run_id", "epoch", "began_at", "ended_at", "reason")
    show_list(rows, columns, as_json=as_json, empty="no transactions yet")


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
    """End a transaction without commit: its run's process can never commit it afterwards."""
    with open_mill() as mill:
        state = mill.transactions.abort(write_pointer)
    say({"write_pointer": write_pointer, "state": state}, f"transaction {write_pointer} is {state}", as_json=as_json)
