"""`tidemill catalog`: the catalog itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.cli.output import FOUND, json_option, open_mill, read_project, say, show_list
from tidemill.mill.plain import to_plain
from tidemill.sizes import format_bytes

if TYPE_CHECKING:
    from tidemill.upkeep.restore import Adopted


@click.group(name="catalog", help="The catalog: backup, restore, checks and migration.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@json_option
def migrate(*, as_json: bool) -> None:
    """Upgrade the catalog to this version of Tidemill. Stop all other processes and make a backup before."""
    from tidemill.mill.mill import migrate_project

    folder, options = read_project()
    applied = migrate_project(folder, options=options)
    sentence = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do: the schema is up to date"
    say({"applied": applied}, sentence, as_json=as_json)


@command.command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False))
@json_option
def backup(target: str, *, as_json: bool) -> None:
    """Copy one state of the catalog into FILE, while other processes work.

    FILE is a path, or the URL of a new object in a bucket, as s3://lake/backups/monday.

    SQLite and PostgreSQL can restore the file. The file does not contain the data of data sets.
    """
    with open_mill() as mill:
        written = mill.catalog.backup(target)
    rows = f"{written.rows} rows of {written.tables} tables"
    sentence = f"wrote {written.path}: {rows}, {format_bytes(written.bytes)}, up to tick {written.clock}"
    say(to_plain(written), sentence, as_json=as_json)


@command.command()
@click.argument("backup_file", metavar="BACKUP")
@click.option("--replace", is_flag=True, help="Replace a catalog that is not empty.")
@click.option("--adopt", "adopting", is_flag=True, help="Then adopt the commits that came after the backup.")
@json_option
def restore(backup_file: str, *, replace: bool, adopting: bool, as_json: bool) -> None:
    """Restore the catalog from BACKUP, as a new life. Stop all other processes before.

    Open runs are retried. Partitions and files that were consumed after the backup are delivered again, and so are
    adopted partitions: after a restore, delivery is at least once.
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
            f"{restored.ended_transactions} open transactions and {restored.ended_runs} attempts were ended"
        )
        click.echo(
            "partitions and files that were consumed after the backup are delivered again: after a restore, delivery "
            "is at least once"
        )
        if adopted is None:
            click.echo("`tidemill catalog adopt` publishes later commits again; `tidemill catalog fsck` lists them")
        else:
            _show_adopted(adopted)
    sys.exit(FOUND if left else 0)


@command.command(name="move")
@click.option("--from", "old", metavar="DIR", type=click.Path(path_type=Path), help="The old folder of the project.")
@json_option
def move_(old: Path | None, *, as_json: bool) -> None:
    """Replace the old folder of a moved project by this folder, in all paths of the catalog.

    Moves no file. Stop all Tidemill processes, move the folder, and run the command there. Locations outside of the
    project stay as they are.
    """
    with open_mill() as mill:
        moved = mill.catalog.move(old)
    names = ", ".join(moved.datasets) or "no data set lies in it"
    say(to_plain(moved), f"moved from {moved.old} to {moved.new}: {names}", as_json=as_json)


@command.command()
@json_option
def adopt(*, as_json: bool) -> None:
    """Publish again the commits that came after the backup of a restored catalog.

    Adopts only directories with a marker of a commit; lists the others, and keeps their files. Consumers get adopted
    partitions, even if they consumed these before. A repeated call continues. Ends with exit code 6 if a directory is
    left.
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
    """Compare the catalog with storage: find missing and damaged files, and files that no manifest names.

    Changes nothing. Ends with exit code 6 if there are findings.
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
