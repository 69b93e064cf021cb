"""`tidemill why`: the reasons for the state of a thing, with evidence and the next step."""

from __future__ import annotations

import json

import click

from tidemill.cli.output import json_option, open_mill
from tidemill.mill.plain import to_plain


@click.command(name="why")
@click.argument("thing")
@click.option(
    "--as",
    "kind",
    metavar="KIND",
    help="The kind of THING: job, run, message, partition, window, file, dataset or schedule. Without the option, the "
    "first of these kinds that the name fits.",
)
@json_option
def command(thing: str, kind: str | None, *, as_json: bool) -> None:
    """Explain why a THING is in its state: what it waits for, since when, and what would end the wait.

    THING is a file (INBOX/FILE, FILE or a path), a partition (FILESET/day=2026-01-01), a message (data:123.0), a window
    (APP.PROGRAM/2026-01-01T10:00), a job, a run, a data set or a schedule.
    """
    with open_mill() as mill:
        found = mill.why(thing, kind=kind)
    plain = to_plain(found)
    if as_json:
        click.echo(json.dumps(plain, indent=2))
        return
    click.echo(f"{found.kind} {found.thing}: {found.state}")
    reasons = plain["because"]
    assert isinstance(reasons, list)  # noqa: S101  # as the record has it
    for one in reasons:
        click.echo(f"- {one['code']}: {one['why']}")
        click.echo(f"  evidence   {json.dumps(one['evidence'])}")
        if one["unblock"]:
            click.echo(f"  ends when  {one['unblock']}")
        if one["next_look_at"]:
            click.echo(f"  next look  {one['next_look_at']}")
    if found.also:
        choices = " or ".join(f"--as {kind}" for kind in found.also)
        click.echo(f"{thing} is taken for a {found.kind}; {choices} explains another thing of this name")
