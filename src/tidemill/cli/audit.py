"""`tidemill audit`: whether everything that was committed came through, once, and the log of changes."""

from __future__ import annotations

import json
import sys

import click

from tidemill.cli.output import FOUND, json_option, open_mill, page_options, show_list, show_page
from tidemill.epoch import show_time
from tidemill.mill.plain import to_plain
from tidemill.upkeep.balance import Balance


class _CheckByDefault(click.Group):
    """A group whose command is `check` unless the first word is another one: `tidemill audit orders` checks orders."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args[:1] and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["check", *args])


@click.group(
    name="audit",
    cls=_CheckByDefault,
    help="Check that each change came through once, and list the changes that callers asked for.",
)
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("datasets", nargs=-1, metavar="[DATASET]...")
@json_option
def check(datasets: tuple[str, ...], *, as_json: bool) -> None:
    """Check that each committed change was delivered, consumed and announced once; `tidemill audit` alone does so too.

    Reads the whole history while other processes work, and changes nothing. Ends with 6 if there are findings.
    """
    with open_mill() as mill:
        found = mill.catalog.audit(datasets)
    if as_json:
        click.echo(json.dumps({**to_plain(found), "clean": found.clean}, indent=2))
    else:
        click.echo(f"looked at {found.commits} commits and {found.runs} runs, up to tick {found.tick}")
        if found.horizon_at is not None:
            click.echo(
                f"retention deletes what is older: the commits up to {found.horizon}, before "
                f"{show_time(found.horizon_at)}, were not compared with runs and messages"
            )
        for fileset in found.filesets:
            click.echo(
                f"file set  {fileset.dataset}: {fileset.changes} changes, {fileset.by_pointer} delivered by write "
                f"pointer, {fileset.by_commit} by commit sequence, {fileset.announced} announced"
            )
        for consumer in found.consumers:
            click.echo(
                f"consumer  {consumer.consumer} of {consumer.dataset}: {consumer.completed} done, "
                f"{consumer.overwritten} overwritten before, {consumer.dropped} dropped before, "
                f"{consumer.ignored} ignored, {consumer.own} its own, "
                f"{consumer.in_progress} in progress, {consumer.new} wait, {consumer.untaken} not taken yet, "
                f"{consumer.discarded} discarded"
            )
        for inbox in found.inboxes:
            states = ", ".join(f"{number} {state}" for state, number in inbox.states.items()) or "no files"
            click.echo(f"inbox     {inbox.dataset}: {states}; {inbox.announced} announced; {_balance(inbox.balance)}")
        for snapshot in found.snapshots:
            now = "none is current" if snapshot.current is None else f"{snapshot.current} is current"
            told = f"{snapshot.versions} versions, {snapshot.announced} announced, {now}"
            click.echo(f"snapshot  {snapshot.dataset}: {told}")
        click.echo()
        show_list(found.findings, ("kind", "subject", "what", "next_step"), as_json=False, empty="nothing was found")
        if found.not_shown:
            click.echo(f"and {found.not_shown} more")
    sys.exit(0 if found.clean else FOUND)


@command.command()
@click.option("--subject", metavar="NAME", help="Only changes of this subject: a qualified name or an id.")
@click.option("--actor", metavar="ACTOR", help="Only changes of this actor, as the list names actors.")
@page_options
def log(subject: str | None, actor: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """List the changes that people and programs asked for, newest first: actor, action, subject."""
    with open_mill() as mill:
        rows = mill.audit.log(subject=subject, actor=actor, limit=limit, after=after)
    columns = ("at", "actor", "action", "subject", "detail", "audit_id")
    show_page(rows, columns, as_json=as_json, empty="no such changes")


def _balance(balance: Balance) -> str:
    """Return the balance of the rows of raw files, as one line."""
    runs = f"{balance.balanced} runs balance"
    if balance.differing:
        runs += f", {balance.differing} differ ({', '.join(balance.differ)})"
    if balance.not_known:
        runs += f", of {balance.not_known} it is not known"
    rows = f"{balance.rows_in} rows in, {balance.rows_out} out, {balance.rejected} rejected"
    return f"{runs}: {rows}, {balance.duplicates} duplicates"
