"""`tidemill catalog`: the catalog itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.cli.output import FOUND, json_option, open_mill, page_options, say, show_list, show_page, to_plain
from tidemill.sizes import format_bytes

if TYPE_CHECKING:
    from tidemill.upkeep.restore import Adopted


@click.group(name="catalog", help="The catalog itself.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@json_option
def migrate(*, as_json: bool) -> None:
    """Bring the catalog's schema up to this program's version; stop all else and make a backup before."""
    from tidemill.mill.mill import migrate_project

    given = click.get_current_context().find_root().obj
    options = {"catalog": given["catalog"]} if given["catalog"] else {}
    applied = migrate_project(Path(given["project"]), options=options)
    sentence = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do: the schema is up to date"
    say({"applied": applied}, sentence, as_json=as_json)


@command.command()
@click.option("--subject", metavar="NAME", help="Only changes of this thing, by its qualified name or id.")
@page_options
@json_option
def log(subject: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """List the changes that people and programs asked for, newest first: actor, action, subject."""
    with open_mill() as mill:
        rows = mill.catalog.log(subject=subject, limit=limit, after=after)
    columns = ("at", "actor", "action", "subject", "detail", "audit_id")
    show_page(rows, columns, as_json=as_json, empty="no such changes")


@command.command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def backup(target: Path, *, as_json: bool) -> None:
    """Copy the catalog into FILE, as one moment shows it, while work goes on.

    The file can be restored into either database. Data are not in it: they lie in the locations of the data sets.
    """
    with open_mill() as mill:
        written = mill.catalog.backup(target)
    rows = f"{written.rows} rows of {written.tables} tables"
    sentence = f"wrote {written.path}: {rows}, {format_bytes(written.bytes)}, up to tick {written.clock}"
    say(to_plain(written), sentence, as_json=as_json)


@command.command()
@click.argument("backup_file", metavar="BACKUP", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Lose what the catalog has now.")
@click.option("--adopt", "adopting", is_flag=True, help="Then publish again what was committed after the backup.")
@json_option
def restore(backup_file: Path, *, replace: bool, adopting: bool, as_json: bool) -> None:
    """Begin a new life of the catalog from BACKUP; stop all else before.

    Runs that were under way are tried again. What was consumed or processed after the backup comes again, and so does
    what is adopted: across a restore delivery is at least once, never less.
    """
    with open_mill(create=True) as mill:
        restored = mill.catalog.restore(backup_file, replace=replace)
        adopted = mill.catalog.adopt() if adopting else None
        left = len(adopted.left) if adopted else 0
    if as_json:
        whole = {**to_plain(restored), "adopted": None if adopted is None else to_plain(adopted)}
        click.echo(json.dumps(whole, indent=2))
    else:
        click.echo(
            f"restored; the clock begins at {restored.clock}, as life {restored.incarnation}. "
            f"{restored.ended_transactions} transactions and {restored.ended_runs} attempts were under way"
        )
        click.echo(
            "what was consumed or processed after the backup is not known and comes again: consumers and inboxes "
            "deliver at least once across a restore"
        )
        if adopted is None:
            click.echo("`tidemill catalog adopt` publishes again what was committed since; `catalog fsck` lists it")
        else:
            _show_adopted(adopted)
    sys.exit(FOUND if left else 0)


@command.command(name="move")
@click.option("--from", "old", metavar="DIR", type=click.Path(path_type=Path), help="Where the project was before.")
@json_option
def move_(old: Path | None, *, as_json: bool) -> None:
    """Go on in this folder after the project was moved here: name it wherever the catalog names the old one.

    Moves no file. Stop all of Tidemill, move the folder, then run this there. Locations outside of the project stay.
    """
    with open_mill() as mill:
        moved = mill.catalog.move(old)
    names = ", ".join(moved.datasets) or "no data set lies in it"
    say(to_plain(moved), f"moved from {moved.old} to {moved.new}: {names}", as_json=as_json)


@command.command()
@json_option
def adopt(*, as_json: bool) -> None:
    """Publish again what was committed after the backup that the catalog was restored from.

    Only what is marked as committed; the rest is listed, and kept. Consumers get what is adopted, again if they had it.
    Can be repeated. Ends with 6 when something was left.
    """
    with open_mill() as mill:
        adopted = mill.catalog.adopt()
    if as_json:
        click.echo(json.dumps(to_plain(adopted), indent=2))
    else:
        _show_adopted(adopted)
    sys.exit(FOUND if adopted.left else 0)


def _show_adopted(adopted: Adopted) -> None:
    click.echo(f"adopted {adopted.transactions} transactions: {adopted.partitions} partitions, {adopted.rows} rows")
    if adopted.left:
        show_list(adopted.left, ("dataset", "directory", "why"), as_json=False, empty="")


@command.command()
@click.argument("datasets", nargs=-1, metavar="[DATASET]...")
@json_option
def fsck(datasets: tuple[str, ...], *, as_json: bool) -> None:
    """Compare the catalog with storage, both ways: files that are not as manifests say, and what no manifest names.

    Changes nothing. Ends with 6 when something differs.
    """
    with open_mill() as mill:
        found = mill.catalog.fsck(datasets)
    if as_json:
        click.echo(json.dumps({**to_plain(found), "clean": found.clean}, indent=2))
    else:
        others = ", ".join(f"{number} {kind}" for kind, number in found.unnamed.items()) or "none"
        click.echo(
            f"{found.files} files of {found.changes} changes; {found.directories} directories, not named: "
            f"{others}; {found.other_etags} files with another etag and no checksum"
        )
        columns = ("kind", "dataset", "where", "what", "next_step")
        show_list(found.differences, columns, as_json=False, empty="nothing differs")
        if found.not_shown:
            click.echo(f"and {found.not_shown} more")
    sys.exit(0 if found.clean else FOUND)
