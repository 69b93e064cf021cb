"""`tidemill run`: runs of programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.lineage import lineage_options, show_lineage
from tidemill.cli.output import (
    FOUND,
    json_option,
    open_mill,
    page_options,
    say,
    show_page,
    show_rows,
    show_triggered,
)
from tidemill.mill.plain import to_plain
from tidemill.mill.written import read_argument, read_chosen
from tidemill.world import World

_FOLLOWED_EVERY = timedelta(milliseconds=500)


@click.group(name="run", help="Runs of programs.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--program", metavar="APP.PROGRAM", help="Only runs of this program.")
@click.option("--state", metavar="STATE", help="Only runs in this state, such as failed.")
@click.option("--schedule", metavar="APP.SCHEDULE", help="Only runs that this schedule has started.")
@click.option("--parent", metavar="RUN_ID", help="Only runs of the nodes of this run of a workflow.")
@click.option("--since", metavar="TIME", help="Only runs that were made at this time or later, in ISO 8601.")
@click.option("--until", metavar="TIME", help="Only runs that were made before this time.")
@page_options
def list_(*, limit: int, after: str, as_json: bool, **filters: str | None) -> None:
    """List the newest runs first: all, or those that fit each option."""
    with open_mill() as mill:
        runs = mill.runs.list(limit=limit, after=after, **filters)
    none = "no runs yet; `tidemill run start APP.PROGRAM` starts one"
    columns = ("run_id", "program", "state", "epoch", "failures", "created_at", "ended_at", "why")
    show_page(runs, columns, as_json=as_json, empty="no run fits" if any(filters.values()) else none)


@command.command()
@click.argument("run_id")
@json_option
def show(run_id: str, *, as_json: bool) -> None:
    """Show a run: its state with the reason, attempts, cause and inputs; of a workflow also its nodes."""
    with open_mill() as mill:
        show_triggered(mill.runs.show(run_id), as_json=as_json)


@command.command()
@click.argument("run_id")
@lineage_options
@json_option
def lineage(run_id: str, *, direction: str, depth: int, limit: int, as_json: bool) -> None:
    """Show what a run took and wrote, where that came from, and which runs took the results."""
    with open_mill() as mill:
        found = mill.runs.lineage(run_id, direction=direction, depth=depth, limit=limit)
    show_lineage(found, as_json=as_json)


@command.command()
@click.argument("program", metavar="APP.PROGRAM")
@click.option("--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="An argument; VALUE may be JSON.")
@click.option(
    "--partitions",
    multiple=True,
    metavar="DATASET:KEY",
    help="A partition to work on, as `clicks:day=2026-01-01 hour=3`; the run takes nothing else.",
)
@click.option("--files", multiple=True, metavar="DATASET:FILE", help="A file of an inbox to work on, as `raw:a.csv`.")
@click.option("--logical-time", metavar="TIME", help="The time that the program sees as that of a time trigger.")
@click.option("--quiet", is_flag=True, help="No consumer gets what the run publishes, and its messages start no run.")
@json_option
def start(
    program: str,
    arguments: Sequence[str],
    partitions: Sequence[str],
    files: Sequence[str],
    *,
    logical_time: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Start a program now, on what waits for it or on chosen input. The run executes in `tidemill up`."""
    given = dict(map(read_argument, arguments))
    wanted = read_chosen("--partitions", "clicks:day=2026-01-01", partitions)
    wanted_files = read_chosen("--files", "raw:a.csv", files)
    with open_mill() as mill:
        made = mill.runs.start(
            program,
            given,
            partitions=wanted or None,
            files=wanted_files or None,
            logical_time=logical_time,
            quiet=quiet,
        )
    say(made, f"{made.run_id} is made; `tidemill run show {made.run_id}`", as_json=as_json)


@command.command()
@click.argument("run_id")
@json_option
def retry(run_id: str, *, as_json: bool) -> None:
    """Start a new run with the arguments of a run that is FAILED, KILLED or REJECTED.

    A failed workflow goes on with the nodes that have not completed.
    """
    with open_mill() as mill:
        made = mill.runs.retry(run_id)
    say(made, f"{made.run_id} is made; `tidemill run show {made.run_id}`", as_json=as_json)


@command.command()
@click.argument("run_id")
@click.option("--sandbox", is_flag=True, help="Publish nothing.")
@click.option("--diff", is_flag=True, help="Wait for the run, and print how its rows differ. Ends with 6 if they do.")
@click.option("--quiet", is_flag=True, help="No consumer gets what the run publishes, and its messages start no run.")
@json_option
def replay(run_id: str, *, sandbox: bool, diff: bool, quiet: bool, as_json: bool) -> None:
    """Repeat a committed run on its exact input, with its code and arguments. The run executes in `tidemill up`."""
    with open_mill() as mill:
        made = mill.runs.replay(run_id, sandbox=sandbox, diff=diff, quiet=quiet)
        if not diff:
            say(made, f"{made.run_id} is made; `tidemill run show {made.run_id}`", as_json=as_json)
            return
        click.echo(f"{made.run_id} is made, and executes in `tidemill up`", err=True)
        clock = World().clock
        while (ended := mill.runs.show(made.run_id)).ended_at is None:
            clock.sleep(_FOLLOWED_EVERY)
    compared = ended.facts.get("comparison")
    if not isinstance(compared, Mapping):
        raise click.ClickException(f"{ended.run_id} is {ended.state} without a comparison: {ended.why or 'no reason'}")
    if as_json:
        click.echo(json.dumps(to_plain({"run_id": ended.run_id, "replay_of": run_id, **compared})))
    else:
        _show_comparison(compared["outputs"])
    if not compared["same"]:
        sys.exit(FOUND)


def _show_comparison(outputs: Sequence[Mapping[str, Any]]) -> None:
    columns = ("dataset", "partitions", "differing_partitions", "rows_published", "rows_replayed", "by_rows")
    show_rows([{name: one[name] for name in columns} for one in outputs], as_json=False, empty="both wrote nothing")
    for one in outputs:
        if one["differing"]:
            click.echo(f"\n{one['dataset']}")
            show_rows(one["differing"], as_json=False, empty="")
        for side in ("only_published", "only_replayed"):
            for row in one[side]:
                click.echo(f"{side.replace('_', ' ')}: {row}")


@command.command()
@click.argument("run_id")
@json_option
def kill(run_id: str, *, as_json: bool) -> None:
    """Kill a run: end its processes, and publish nothing. No effect on a run that has ended.

    A failed workflow that keeps claims returns them.
    """
    with open_mill() as mill:
        asked = mill.runs.kill(run_id)
    returned = ", and has returned its claims" if asked.changed and asked.state == "FAILED" else ""
    say(asked, f"{run_id} is {asked.state}{returned}", as_json=as_json)


@command.command()
@click.argument("run_id")
@click.option("--follow", is_flag=True, help="Print new lines until the run has ended.")
@click.option("--attempt", type=click.IntRange(1), help="The number of the attempt; without the option, the newest.")
@click.option("--all", "whole", is_flag=True, help="Print Spark's log too, after the program's output.")
@json_option
def logs(run_id: str, attempt: int | None, *, follow: bool, whole: bool, as_json: bool) -> None:
    """Print what the program wrote in an attempt of a run; with --all, Spark's log after the program's output."""
    empty = True
    with open_mill() as mill:
        every = _FOLLOWED_EVERY if follow else None
        for line in mill.runs.logs(run_id, attempt=attempt, follow_every=every, whole=whole):
            empty = False
            click.echo(json.dumps({"file": line.file, "line": line.text}) if as_json else line.text)
    if empty and not as_json:
        click.echo("the program wrote nothing" + ("" if whole else "; --all prints Spark's log"), err=True)
