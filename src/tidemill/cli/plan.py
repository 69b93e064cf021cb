"""`tidemill plan`: show what a deployment would change."""

from __future__ import annotations

import sys

import click

from tidemill.cli.output import FOUND, json_option, open_plan, say, schedules_option


@click.command(name="plan")
@schedules_option
@click.option("--check", is_flag=True, help="End with exit code 6 if a deployment would change something.")
@json_option
def command(*, update_schedules: bool | None, check: bool, as_json: bool) -> None:
    """Show what `tidemill deploy` would change: a line for each part of an app, marked +, ~ or -.

    Changes nothing. Lines name data sets, programs, consumers and schedules, and each changed field. With --json, a
    line of JSON for each app. Before the first deployment, everything is new.
    """
    with open_plan() as mill:
        plans = mill.plan(update_schedules=update_schedules)
    for plan in plans:
        say(plan, plan.sentence(), as_json=as_json)
    sys.exit(FOUND if check and any(plan.changes for plan in plans) else 0)
