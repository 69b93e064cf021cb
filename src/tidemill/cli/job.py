"""`tidemill job`: what was triggered and waits for its constraints."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidemill.cli.output import json_option, open_mill, say, show_list, show_one


@click.group(name="job", help="Jobs: triggered, and waiting to become runs.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--history", metavar="APP.SCHEDULE", help="The newest jobs of a schedule that have ended, instead.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@json_option
def list_(history: str | None, limit: int, *, as_json: bool) -> None:
    """List waiting jobs, oldest first, each with the reason."""
    with open_mill() as mill:
        if history is not None:
            rows: Sequence[object] = mill.jobs.history(history, limit=limit)
            columns: tuple[str, ...] = ("job_id", "schedule", "outcome", "run_id", "created_at", "ended_at")
        else:
            rows = mill.jobs.list()[:limit]
            columns = ("job_id", "schedule", "state", "created_at", "next_check_at", "why")
    show_list(rows, columns, as_json=as_json, empty="no job waits" if history is None else "no job of it has ended yet")


@command.command()
@click.argument("job_id")
@json_option
def show(job_id: str, *, as_json: bool) -> None:
    """Show a job: its messages, and why it waits or how it ended."""
    with open_mill() as mill:
        show_one(mill.jobs.show(job_id), as_json=as_json)


@command.command()
@click.argument("job_id")
@json_option
def drop(job_id: str, *, as_json: bool) -> None:
    """End a job without a run; the schedule's next run takes the job's data."""
    with open_mill() as mill:
        mill.jobs.drop(job_id)
    say({"job_id": job_id, "outcome": "dropped"}, f"{job_id} is dropped", as_json=as_json)


@command.command()
@click.argument("job_id")
@json_option
def force(job_id: str, *, as_json: bool) -> None:
    """Start a job's run now, without waiting for its trigger or constraints."""
    with open_mill() as mill:
        run_id = mill.jobs.force(job_id)
    say({"job_id": job_id, "run_id": run_id}, f"{run_id} is pending; `tidemill run show {run_id}`", as_json=as_json)
