"""`tidemill backfill`: runs of a program over parts of the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tidemill.cli.output import (
    json_option,
    open_mill,
    page_options,
    say,
    show_list,
    show_one,
    show_page,
)
from tidemill.mill.written import read_argument

_F = TypeVar("_F", bound=Callable[..., object])
_CHOICE = (
    click.option("--by", default="partitions", help="The kind of its items: partitions, times, runs or versions."),
    click.option("--dataset", metavar="NAME", help="The input whose partitions are meant, if the program has several."),
    click.option("--where", multiple=True, metavar="CONDITION", help="Only these partitions: day>=2026-01-01."),
    click.option("--schedule", metavar="APP.SCHEDULE", help="By times: the schedule whose times are meant."),
    click.option("--since", metavar="TIME", help="By times or runs: from this time on, in ISO 8601."),
    click.option("--until", metavar="TIME", help="By times or runs: before this time."),
    click.option("--run", "runs", multiple=True, metavar="RUN", help="By runs: this run; may be given again."),
    click.option("--from-version", type=int, metavar="N", help="By versions: from this write pointer on."),
    click.option("--to-version", type=int, metavar="N", help="By versions: up to this write pointer."),
    click.option(
        "--select",
        help="Of these, only missing, failed or unfinished (missing or failed) items, or all. Default: unfinished, and "
        "all by runs.",
    ),
)


def _choice_options(function: _F) -> _F:
    for option in reversed(_CHOICE):
        function = option(function)
    return function


def _given(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a choice without those that were not given."""
    return {name: value for name, value in choice.items() if value not in (None, ())}


@click.group(name="backfill", help="Backfills: runs of a program over parts of the past.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("program", metavar="APP.PROGRAM")
@_choice_options
@json_option
def plan(program: str, *, as_json: bool, **choice: Any) -> None:  # noqa: ANN401  # the options
    """Count the runs that a backfill would make, and their input. Changes nothing."""
    with open_mill() as mill:
        planned = mill.backfills.plan(program, **_given(choice))
    if as_json:
        show_one(planned, as_json=True)
        return
    named = ", ".join(f"{number} {need}" for need, number in planned.named.items()) or "none"
    show_list(planned.first, ("item", "need", "bytes", "rows"), as_json=False, empty="no item needs a run")
    sizes = "" if planned.bytes is None else f": {planned.bytes} bytes, {planned.rows} rows"
    click.echo(f"{planned.items} runs of {planned.program}{sizes} (named: {named})")


@command.command()
@click.argument("program", metavar="APP.PROGRAM")
@click.option("--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="An argument; VALUE may be JSON.")
@_choice_options
@click.option("--concurrency", type=int, default=1, show_default=True, help="The most runs at a time.")
@click.option("--priority", type=int, default=-1, show_default=True, help="Runs of a higher priority go first.")
@click.option("--quiet", is_flag=True, help="Deliver nothing of what the runs publish.")
@json_option
def start(
    program: str,
    arguments: Sequence[str],
    *,
    concurrency: int,
    priority: int,
    quiet: bool,
    as_json: bool,
    **choice: Any,  # noqa: ANN401  # the options
) -> None:
    """Start a backfill: one run for each item that `backfill plan` counts."""
    given = dict(map(read_argument, arguments))
    with open_mill() as mill:
        made = mill.backfills.start(
            program, given, concurrency=concurrency, priority=priority, quiet=quiet, **_given(choice)
        )
    sentence = f"{made.backfill_id} has {made.items} items; `tidemill backfill show {made.backfill_id}`"
    say(made, sentence, as_json=as_json)


@command.command("list")
@click.option("--program", metavar="APP.PROGRAM", help="Only backfills of this program.")
@click.option("--state", metavar="STATE", help="Only backfills in this state, such as running.")
@page_options
def list_(*, limit: int, after: str, as_json: bool, **filters: str | None) -> None:
    """List the newest backfills first: all, or those that fit each option."""
    with open_mill() as mill:
        found = mill.backfills.list(limit=limit, after=after, **filters)
    none = "no backfills yet; `tidemill backfill plan APP.PROGRAM` plans one"
    columns = ("backfill_id", "program", "state", "items", "done", "failed", "running", "waiting", "dropped", "reason")
    show_page(found, columns, as_json=as_json, empty="no backfill fits" if any(filters.values()) else none)


@command.command()
@click.argument("backfill_id")
@json_option
def show(backfill_id: str, *, as_json: bool) -> None:
    """Show a backfill: its choice, and the numbers of its items by their states."""
    with open_mill() as mill:
        show_one(mill.backfills.show(backfill_id), as_json=as_json)


@command.command()
@click.argument("backfill_id")
@click.option("--state", metavar="STATE", help="Only items in this state, such as failed.")
@page_options
def items(backfill_id: str, *, state: str | None, limit: int, after: str, as_json: bool) -> None:
    """List the items of a backfill in their order, each with its newest run."""
    with open_mill() as mill:
        found = mill.backfills.items(backfill_id, state=state, limit=limit, after=after)
    show_page(found, ("no", "item", "state", "run_id", "why"), as_json=as_json, empty="no item fits")


@command.command()
@click.argument("backfill_id")
@json_option
def pause(backfill_id: str, *, as_json: bool) -> None:
    """Make no more runs of a backfill. Runs that are under way go on."""
    with open_mill() as mill:
        after = mill.backfills.pause(backfill_id)
    say(after, f"{backfill_id} is {after.state}", as_json=as_json)


@command.command()
@click.argument("backfill_id")
@json_option
def resume(backfill_id: str, *, as_json: bool) -> None:
    """Go on with a paused backfill."""
    with open_mill() as mill:
        after = mill.backfills.resume(backfill_id)
    say(after, f"{backfill_id} is {after.state}", as_json=as_json)


@command.command()
@click.argument("backfill_id")
@click.option("--kill", is_flag=True, help="Kill its runs that are under way.")
@json_option
def cancel(backfill_id: str, *, kill: bool, as_json: bool) -> None:
    """Drop the waiting items of a backfill for good. Runs that are under way end as usual."""
    with open_mill() as mill:
        after = mill.backfills.cancel(backfill_id, kill=kill)
    killed = f"; {after.killed} runs are killed" if kill else ""
    say(after, f"{backfill_id} is {after.state}{killed}", as_json=as_json)


@command.command()
@click.argument("backfill_id")
@json_option
def retry(backfill_id: str, *, as_json: bool) -> None:
    """Try the failed items of a backfill again."""
    with open_mill() as mill:
        after = mill.backfills.retry(backfill_id)
    say(after, f"{backfill_id} is {after.state}", as_json=as_json)
