"""`tidemill job`: what was triggered and waits for its constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_page, show_triggered
from tidemill.mill.written import BadOption

if TYPE_CHECKING:
    from tidemill.mill.page import Page


@click.group(name="job", help="Jobs: launches of schedules that wait to become runs.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--history", metavar="APP.SCHEDULE", help="Show the newest ended jobs of this schedule instead.")
@click.option("--schedule", metavar="APP.SCHEDULE", help="Only the waiting jobs of this schedule.")
@click.option("--state", metavar="STATE", help="Only the waiting jobs in this state, such as pending_constraint.")
@page_options
def list_(
    history: str | None, schedule: str | None, state: str | None, *, limit: int, after: str, as_json: bool
) -> None:
    """List waiting jobs, oldest first, each with the reason."""
    if history is not None and (schedule or state):
        raise BadOption("--history", history, "leave out --schedule and --state, which choose among waiting jobs")
    with open_mill() as mill:
        if history is not None:
            rows: Page[object] = mill.jobs.history(history, limit=limit, after=after)
            columns: tuple[str, ...] = ("job_id", "schedule", "outcome", "run_id", "created_at", "ended_at")
        else:
            rows = mill.jobs.list(schedule=schedule, state=state, limit=limit, after=after)
            columns = ("job_id", "schedule", "state", "created_at", "next_check_at", "why")
    show_page(rows, columns, as_json=as_json, empty="no job waits" if history is None else "no job of it has ended yet")


@command.command()
@click.argument("job_id")
@json_option
def show(job_id: str, *, as_json: bool) -> None:
    """Show a job: its messages, and why it waits or how it ended."""
    with open_mill() as mill:
        show_triggered(mill.jobs.show(job_id), as_json=as_json)


@command.command()
@click.argument("job_id")
@json_option
def drop(job_id: str, *, as_json: bool) -> None:
    """End a job without a run. The schedule's next run gets the data of the job."""
    with open_mill() as mill:
        dropped = mill.jobs.drop(job_id)
    say(dropped, f"{job_id} is dropped", as_json=as_json)


@command.command()
@click.argument("job_id")
@json_option
def force(job_id: str, *, as_json: bool) -> None:
    """Start a job's run now, without waiting for its trigger or constraints."""
    with open_mill() as mill:
        forced = mill.jobs.force(job_id)
    say(forced, f"{forced.run_id} is made; `tidemill run show {forced.run_id}`", as_json=as_json)
