"""`tidemill schedule`: what starts a program, and when."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, say, show_list, show_one


@click.group(name="schedule", help="What starts a program: trigger and constraints.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List schedules by app and name."""
    with open_mill() as mill:
        rows = mill.list_schedules()
    columns = ("name", "program", "status", "trigger", "constraints", "owner", "generation")
    show_list(rows, columns, as_json=as_json, empty="no schedules yet; declare one in the app and `tidemill deploy`")


@command.command()
@click.argument("name", metavar="APP.SCHEDULE")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show a schedule: its trigger, constraints, arguments and status."""
    with open_mill() as mill:
        show_one(mill.show_schedule(name), as_json=as_json)


@command.command()
@click.argument("name", metavar="APP.SCHEDULE")
@json_option
def suspend(name: str, *, as_json: bool) -> None:
    """Let a schedule start nothing; its pending jobs are dropped, and counted."""
    with open_mill() as mill:
        dropped = mill.suspend_schedule(name)
    sentence = f"{name} is suspended, {dropped} pending {'job was' if dropped == 1 else 'jobs were'} dropped"
    say({"schedule": name, "status": "SUSPENDED", "dropped_jobs": dropped}, sentence, as_json=as_json)


@command.command()
@click.argument("name", metavar="APP.SCHEDULE")
@json_option
def resume(name: str, *, as_json: bool) -> None:
    """Let a schedule start its program again, on what happens from now on."""
    with open_mill() as mill:
        mill.resume_schedule(name)
    say({"schedule": name, "status": "SCHEDULED"}, f"{name} is scheduled", as_json=as_json)
