"""`tidemill app`: what was deployed, and the end of it."""

from __future__ import annotations

import click

from tidemill.app.difference import describe
from tidemill.cli.output import (
    generation_option,
    json_option,
    open_mill,
    page_options,
    say,
    schedules_option,
    show_one,
    show_page,
)
from tidemill.mill.plain import to_plain


@click.group(name="app", help="Deployed apps.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--namespace", metavar="NAMESPACE", help="Only the apps of this namespace.")
@page_options
def list_(*, namespace: str | None, limit: int, after: str, as_json: bool) -> None:
    """List deployed apps by name: all, or those of a namespace."""
    with open_mill() as mill:
        rows = mill.apps.list(namespace=namespace, limit=limit, after=after)
    columns = ("name", "version", "deployed_at", "file")
    none = "no apps yet; `tidemill deploy` registers what the app file declares"
    show_page(rows, columns, as_json=as_json, empty="no app fits" if namespace else none)


@command.command()
@click.argument("name", metavar="APP")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show an app as it was last deployed, with its data sets, programs and schedules."""
    with open_mill() as mill:
        show_one(mill.apps.show(name), as_json=as_json)


@command.command()
@click.argument("name", metavar="APP")
@page_options
def history(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """List the deployments of an app that changed something, newest first.

    A rollback can return to a deployment whose code is kept.
    """
    with open_mill() as mill:
        rows = mill.apps.history(name, limit=limit, after=after)
    columns = ("version", "deployed_at", "actor", "code", "kept", "rolled_back_to", "changes")
    show_page(rows, columns, as_json=as_json, empty="no deployments yet; `tidemill deploy` makes the first")


@command.command()
@click.argument("name", metavar="APP")
@click.option("--to", type=int, metavar="VERSION", help="The deployment. Without it, the newest of other code.")
@schedules_option
@generation_option
@json_option
def rollback(
    name: str, *, to: int | None, update_schedules: bool | None, if_generation: int | None, as_json: bool
) -> None:
    """Deploy an earlier deployment of an app again, as a new deployment, in one transaction.

    The app gets the code of that deployment, and all that the code declares. Attempts under way keep their code. The
    app file stays as it is: the next `tidemill deploy`, or start of `tidemill up` without --no-deploy, deploys it.
    """
    with open_mill() as mill:
        deployed = mill.apps.rollback(name, to=to, update_schedules=update_schedules, if_generation=if_generation)
    lines = describe(deployed.app, deployed.version, deployed.changes)
    say(deployed, "\n".join([*lines, deployed.sentence()]), as_json=as_json)


@command.command()
@click.argument("name", metavar="APP")
@generation_option
@json_option
def delete(name: str, *, if_generation: int | None, as_json: bool) -> None:
    """Undo the deployment of an app: delete its schedules with their pending jobs, and retire its programs.

    Data sets stay with their data, and runs under way go on. Consumers of retired programs stay until `tidemill
    consumer drop`.
    """
    with open_mill() as mill:
        deleted = mill.apps.delete(name, if_generation=if_generation)
    say(to_plain(deleted), deleted.sentence(), as_json=as_json)
