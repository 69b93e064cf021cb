"""`tidemill schedule`: what starts a program, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from tidemill.cli.output import (
    generation_option,
    json_option,
    open_mill,
    page_options,
    parse_json,
    read_file,
    say,
    show_list,
    show_one,
    show_page,
)
from tidemill.mill.plain import to_plain
from tidemill.mill.written import BadOption, read_argument

if TYPE_CHECKING:
    from tidemill.mill.schedules import ScheduleChange


@click.group(name="schedule", help="Schedules: the triggers and constraints that start programs.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--app", help="Only the schedules of this app.")
@click.option("--program", metavar="APP.PROGRAM", help="Only the schedules that start this program.")
@click.option("--trigger", metavar="TYPE", help="Only schedules with a trigger of this type, such as cron.")
@click.option("--status", metavar="STATUS", help="Only schedules that are scheduled, or suspended.")
@page_options
def list_(*, limit: int, after: str, as_json: bool, **filters: str | None) -> None:
    """List schedules by app and name: all, or those that fit each option."""
    with open_mill() as mill:
        rows = mill.schedules.list(limit=limit, after=after, **filters)
    columns = ("name", "program", "status", "trigger", "constraints", "owner", "generation")
    none = "no schedules yet; declare one in the app and `tidemill deploy`"
    show_page(rows, columns, as_json=as_json, empty="no schedule fits" if any(filters.values()) else none)


@command.command()
@click.argument("name", metavar="APP.SCHEDULE")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show a schedule: its trigger, constraints, arguments and status."""
    with open_mill() as mill:
        show_one(mill.schedules.show(name), as_json=as_json)


@command.command()
@click.argument("name", metavar="APP.SCHEDULE", required=False)
@click.option("--all", "every", is_flag=True, help="Suspend all schedules that are not suspended, of all apps.")
@click.option("--app", metavar="APP", help="With --all: only the schedules of this app.")
@click.option(
    "--mode",
    default="drop",
    show_default=True,
    type=click.Choice(["drop", "hold", "backlog"]),
    help="Drop waiting jobs and what comes meanwhile; hold both until `schedule resume`; or drop the waiting jobs, and "
    "keep what comes meanwhile.",
)
@generation_option
@json_option
def suspend(
    name: str | None, *, every: bool, app: str | None, mode: str, if_generation: int | None, as_json: bool
) -> None:
    """Suspend a schedule, so that it starts no run. Print the number of waiting jobs that are dropped."""
    if (name is None) is not every:
        raise click.UsageError("name one schedule, or give --all")
    if app is not None and not every:
        raise click.UsageError("--app needs --all")
    if every and if_generation is not None:
        raise click.UsageError("--if-generation is about one schedule")
    with open_mill() as mill:
        if name is None:
            _show_changes(mill.schedules.suspend_all(app=app, mode=mode), as_json=as_json)
            return
        done = mill.schedules.suspend(name, mode=mode, if_generation=if_generation)
    say(done, f"{name} is suspended, {_dropped(done.dropped_jobs)}", as_json=as_json)


@command.command()
@click.argument("name", metavar="APP.SCHEDULE", required=False)
@click.option(
    "--suspended-between",
    "period",
    nargs=2,
    metavar="FROM UNTIL",
    help="Resume all schedules that were suspended from the first time on and before the second, in ISO 8601.",
)
@generation_option
@json_option
def resume(name: str | None, *, period: tuple[str, str] | None, if_generation: int | None, as_json: bool) -> None:
    """Resume a suspended schedule. Its program starts at once if there is work."""
    if (name is None) is (period is None):
        raise click.UsageError("name one schedule, or give --suspended-between")
    if period is not None and if_generation is not None:
        raise click.UsageError("--if-generation is about one schedule")
    with open_mill() as mill:
        if period is not None:
            _show_changes(mill.schedules.resume_suspended(since=period[0], until=period[1]), as_json=as_json)
            return
        done = mill.schedules.resume(str(name), if_generation=if_generation)
    say(done, f"{name} is scheduled", as_json=as_json)


@command.command("next")
@click.argument("name", metavar="APP.SCHEDULE", required=False)
@click.option("--from", "start", metavar="TIME", help="Only times from this one on, such as 2026-01-31T06:00.")
@click.option("--until", metavar="TIME", help="Only times before this one.")
@partial(page_options, limit=5)
def next_(name: str | None, start: str | None, until: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """List the next times at which time triggers fire: those of a schedule, or of all schedules.

    A TIME without an offset is in UTC.
    """
    with open_mill() as mill:
        rows = mill.schedules.next(name, start=start, until=until, limit=limit, after=after)
    columns = ("fire_at", "trigger") if name else ("fire_at", "schedule", "trigger")
    none = "none: no schedule fires in that time" if start or until or not name else ""
    show_page(rows, columns, as_json=as_json, empty=none or "none: it is suspended, or has no time trigger")


@command.command("triggered-by")
@click.argument("name", metavar="DATASET|APP.PROGRAM")
@page_options
def triggered_by(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """List the schedules that listen to a data set, or to the outputs of a program."""
    with open_mill() as mill:
        rows = mill.schedules.triggered_by(name, limit=limit, after=after)
    columns = ("name", "program", "status", "trigger")
    show_page(rows, columns, as_json=as_json, empty=f"no schedule listens to {name}")


def _spec_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a schedule is, each of them as in the JSON form."""
    options = [
        click.option("--constraint", "constraints", multiple=True, metavar="JSON", help='{"type": "concurrency", …}'),
        click.option("--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="An argument; VALUE may be JSON."),
        click.option("--description", metavar="TEXT", help="A text for readers of the list."),
        click.option("--timeout", metavar="DURATION", help="The longest wait of a job for its constraints."),
        click.option(
            "--on-timeout",
            type=click.Choice(["cancel", "force"]),
            help="After --timeout, end the job or start its run.",
        ),
        click.option("--trigger-timeout", metavar="DURATION", help="The longest wait of a job for its trigger."),
        click.option("--priority", type=int, help="Runs of a higher priority start first."),
        click.option(
            "--deadline", metavar="DURATION", help="After this wait, a run starts before runs of a higher priority."
        ),
        click.option(
            "--misfire",
            type=click.Choice(["once", "all", "skip"]),
            help="One run for all missed times, a run for each, or none for old ones.",
        ),
        click.option(
            "--grace",
            metavar="DURATION",
            help="With --misfire skip: the age up to which a missed time still has a run.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@command.command()
@click.argument("name", metavar="APP.SCHEDULE", required=False)
@click.argument("program", metavar="APP.PROGRAM", required=False)
@click.option("--trigger", metavar="JSON", help='{"type": "cron", "expression": "@daily"}, …')
@click.option(
    "--suspended/--scheduled",
    default=None,
    help="Let it wait for `schedule resume`, or not. Without the option, the setting `schedules.suspended` says so.",
)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Create the schedules of a JSON list instead, all or none. `-` reads standard input.",
)
@_spec_options
@json_option
def create(
    name: str | None,
    program: str | None,
    trigger: str | None,
    *,
    suspended: bool | None,
    file: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Create a schedule that no app file declares, or all of --file. The next deployment of its app deletes it."""
    given = _given(options)
    if file is not None:
        if given or suspended is not None or name or program or trigger:
            raise BadOption("--file", str(file), "leave out the other options; each entry of the file has its own")
        _create_many(file, as_json=as_json)
        return
    if name is None or program is None or trigger is None:
        raise BadOption("schedule create", name or "", "give APP.SCHEDULE, APP.PROGRAM and --trigger, or --file")
    with open_mill() as mill:
        made = mill.schedules.create(
            name, program, trigger=parse_json("--trigger", trigger), suspended=suspended, **given
        )
    say(to_plain(made), f"{made.name} is {made.status.lower()}", as_json=as_json)


def _create_many(file: Path, *, as_json: bool) -> None:
    with open_mill() as mill:
        text = read_file(file)
        entries = parse_json(str(file), text)
        made = mill.schedules.create_many(cast("Sequence[Mapping[str, object]]", entries))
    show_list(made, ("name", "program", "status", "trigger"), as_json=as_json, empty="the list has no entries")


@command.command()
@click.argument("name", metavar="APP.SCHEDULE")
@click.option("--trigger", metavar="JSON", help="The new trigger.")
@_spec_options
@generation_option
@json_option
def update(name: str, trigger: str | None, *, if_generation: int | None, as_json: bool, **options: object) -> None:
    """Change the named options of a schedule, and drop its waiting jobs. --arg replaces all arguments."""
    changes = _given(options) | ({} if trigger is None else {"trigger": parse_json("--trigger", trigger)})
    with open_mill() as mill:
        done = mill.schedules.update(name, if_generation=if_generation, **changes)
    say(done, f"{name} is changed, {_dropped(done.dropped_jobs)}", as_json=as_json)


@command.command()
@click.argument("names", metavar="APP.SCHEDULE...", nargs=-1, required=True)
@generation_option
@json_option
def delete(names: Sequence[str], *, if_generation: int | None, as_json: bool) -> None:
    """Delete schedules, all or none, and drop their waiting jobs. Print the number of these jobs."""
    if if_generation is not None and len(names) > 1:
        raise click.UsageError("--if-generation is about one schedule")
    with open_mill() as mill:
        if if_generation is None:
            done = mill.schedules.delete_many(names)
        else:
            (name,) = names
            done = [mill.schedules.delete(name, if_generation=if_generation)]
    if as_json:
        show_list(done, (), as_json=True, empty="")
        return
    for one in done:
        click.echo(f"{one.schedule} is deleted, {_dropped(one.dropped_jobs)}")


def _given(options: Mapping[str, Any]) -> dict[str, object]:
    """Return the given options in their JSON form."""
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    if "arguments" in given:
        given["arguments"] = dict(map(read_argument, given["arguments"]))
    if "constraints" in given:
        given["constraints"] = [parse_json("--constraint", text) for text in given["constraints"]]
    return given


def _show_changes(changes: Sequence[ScheduleChange], *, as_json: bool) -> None:
    show_list(changes, ("schedule", "status", "dropped_jobs"), as_json=as_json, empty="there is none to change")


def _dropped(jobs: int) -> str:
    return f"{jobs} pending {'job was' if jobs == 1 else 'jobs were'} dropped"
