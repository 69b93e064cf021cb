"""`tidemill dataset`: file sets and inboxes."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import click

from tidemill.cli.lineage import lineage_options, show_lineage
from tidemill.cli.output import (
    FOUND,
    json_option,
    open_mill,
    page_options,
    say,
    show_list,
    show_one,
    show_page,
    show_rows,
)
from tidemill.mill.plain import to_plain

_DROPPED: Final = ("partition", "files", "bytes", "rows")


@click.group(name="dataset", help="Data sets: file sets, inboxes and snapshots.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--kind", metavar="KIND", help="Only data sets of this kind: fileset, inbox or snapshot.")
@click.option("--app", metavar="APP", help="Only data sets of this app.")
@page_options
def list_(*, kind: str | None, app: str | None, limit: int, after: str, as_json: bool) -> None:
    """List data sets by name: all, or those that fit each option."""
    with open_mill() as mill:
        rows = mill.datasets.list(kind=kind, app=app, limit=limit, after=after)
    columns = ("name", "kind", "app", "partitions", "files", "bytes", "rows", "location")
    none = "no data sets yet; declare one in the app and `tidemill deploy`"
    show_page(rows, columns, as_json=as_json, empty="no data set fits" if kind or app else none)
    for hint in [] if as_json else [row.hint for row in rows if row.hint]:
        click.echo(hint)


@command.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show a data set: its keys, schema, location and size."""
    with open_mill() as mill:
        show_one(mill.datasets.show(name), as_json=as_json)


_where = click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only these partitions: day=2026-01-01, hour>=6, hour<12. The same field again with = means one of them.",
)


@command.command()
@click.argument("name")
@_where
@page_options
def partitions(name: str, *, where: tuple[str, ...], limit: int, after: str, as_json: bool) -> None:
    """List the current partitions of a file set by key."""
    with open_mill() as mill:
        rows = mill.datasets.partitions(name, where=where, limit=limit, after=after)
    columns = ("partition", "files", "bytes", "rows", "write_pointer", "commit_seq", "run_id", "committed_at")
    show_page(
        rows,
        columns,
        as_json=as_json,
        empty=f"{name} has no such partitions" if where else f"{name} has no partitions yet",
    )


@command.command()
@click.argument("name")
@click.option("--within", default="", metavar="PERIOD", help="2026, 2026-01, 2026-W02 or 2026-01-31; or all.")
@json_option
def calendar(name: str, within: str, *, as_json: bool) -> None:
    """Show the partitions of a file set by time, in a period: present, late, rewritten, missing.

    Without a period, the last week or month that has partitions.
    """
    with open_mill() as mill:
        found = mill.datasets.calendar(name, within=within)
    if as_json:
        show_one(found, as_json=True)
        return
    columns = ("slot", "state", "partitions", "rows", "bytes", "late", "rewritten", "missing", "more")
    show_list(
        found.cells,
        columns,
        as_json=False,
        empty=f"the partitions of {name} have no times; `tidemill dataset partitions {name}` lists them",
    )


@command.command()
@click.argument("name")
@json_option
def growth(name: str, *, as_json: bool) -> None:
    """Show how much was written to a file set or snapshot, by day, in UTC."""
    with open_mill() as mill:
        found = mill.datasets.growth(name)
    if as_json:
        show_one(found, as_json=True)
        return
    columns = ("day", "changes", "files", "bytes", "rows")
    show_list(found.days, columns, as_json=False, empty=f"nothing was written to {name} yet")


@command.command()
@click.argument("name")
@click.argument("key")
@json_option
def partition(name: str, key: str, *, as_json: bool) -> None:
    """Show the partition KEY ("day=2026-01-01") of a file set: its files, metadata, past and readers."""
    with open_mill() as mill:
        show_one(mill.datasets.partition(name, key), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("partition", required=False)
@click.option("--version", type=click.IntRange(1), help="A version of a snapshot, instead of PARTITION.")
@lineage_options
@json_option
def lineage(
    name: str, partition: str | None, *, version: int | None, direction: str, depth: int, limit: int, as_json: bool
) -> None:
    """Show where a data set comes from and where it goes: its programs, their data sets and schedules.

    With a PARTITION ("day=2026-01-01") or a version: the runs, files and partitions that it was made of, and the runs
    that took it.
    """
    with open_mill() as mill:
        found = mill.datasets.lineage(
            name, partition=partition, version=version, direction=direction, depth=depth, limit=limit
        )
    show_lineage(found, as_json=as_json)


_as_of = click.option(
    "--as-of", metavar="WHEN", help="An earlier state: a commit sequence, or a time (2026-01-01T12:00Z)."
)


@command.command()
@click.argument("name")
@click.argument("key", required=False)
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 1000), help="The most rows to show.")
@json_option
def head(name: str, key: str | None, limit: int, *, as_json: bool) -> None:
    """Show the first rows of a file set or snapshot, or of the partition KEY ("day=2026-01-01"), without Spark."""
    with open_mill() as mill:
        rows = mill.datasets.head(name, key, limit=limit)
    show_rows(rows, as_json=as_json, empty=f"{name} has no rows yet")


@command.command()
@click.argument("name")
@_where
@_as_of
@partial(page_options, limit=None)
def files(
    name: str, *, where: tuple[str, ...], as_of: str | None, limit: int | None, after: str, as_json: bool
) -> None:
    """List the committed files of a file set, for engines other than Spark."""
    with open_mill() as mill:
        rows = mill.datasets.files(name, where=where, as_of=as_of, limit=limit, after=after)
    show_page(rows, ("path", "bytes", "rows", "partition"), as_json=as_json, empty=f"{name} has no files yet")


@command.command()
@click.argument("name")
@_where
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@json_option
def drop(name: str, *, where: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Drop partitions of a file set, and list the dropped partitions. The files stay for `keep_superseded`."""
    with open_mill() as mill:
        rows = mill.datasets.drop(name, where, dry_run=dry_run)
    show_list(rows, _DROPPED, as_json=as_json, empty="no partition is meant by that")


@command.command()
@click.argument("name")
@_where
@json_option
def compact(name: str, *, where: tuple[str, ...], as_json: bool) -> None:
    """Merge the small files of each partition of a file set. The rows stay the same, and consumers get nothing."""
    with open_mill() as mill:
        rows = mill.datasets.compact(name, where)
    columns = ("partition", "files_before", "files", "bytes", "rows")
    show_list(rows, columns, as_json=as_json, empty=f"{name} has no partition with many small files")


@command.command()
@click.argument("name")
@click.option(
    "--older-than", metavar="DURATION", help="An age such as 90d; without the option, the retention of the file set."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@json_option
def expire(name: str, *, older_than: str | None, dry_run: bool, as_json: bool) -> None:
    """Drop partitions that are older than the retention, and list the dropped partitions."""
    with open_mill() as mill:
        rows = mill.datasets.expire(name, older_than, dry_run=dry_run)
    show_list(rows, _DROPPED, as_json=as_json, empty="no partition is that old")


@command.command()
@click.argument("name")
@page_options
def dropped(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """List dropped partitions of a file set, the newest first."""
    with open_mill() as mill:
        rows = mill.datasets.dropped(name, limit=limit, after=after)
    columns = ("partition", "commit_seq", "run_id", "dropped_at")
    show_page(rows, columns, as_json=as_json, empty=f"nothing was dropped from {name}")


@command.command()
@click.argument("name")
@page_options
def schemas(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """List the columns that a file set has had, the oldest first, with the run that introduced each."""
    with open_mill() as mill:
        rows = mill.datasets.schemas(name, limit=limit, after=after)
    show_page(rows, ("commit_seq", "run_id", "schema"), as_json=as_json, empty=f"{name} has no columns yet")


@command.command()
@click.argument("name")
@click.argument("partition")
@click.option("--add", multiple=True, metavar="NAME=TEXT", help="Metadata to add; refused if the name exists.")
@click.option("--set", "set_", multiple=True, metavar="NAME=TEXT", help="Metadata to add or replace.")
@click.option("--remove", multiple=True, metavar="NAME", help="The name of metadata to remove.")
@json_option
def describe(
    name: str, partition: str, *, add: tuple[str, ...], set_: tuple[str, ...], remove: tuple[str, ...], as_json: bool
) -> None:
    """Change the metadata of a partition, given as "day=2026-01-01 hour=5"."""
    with open_mill() as mill:
        done = mill.datasets.describe(name, partition, add=_entries(add), set=_entries(set_), remove=remove)
    say(done, f"described {partition} of {name}", as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("partition")
@json_option
def add(name: str, partition: str, *, as_json: bool) -> None:
    """Register the existing folder of one partition in Hive's layout: "day=2026-01-01 hour=5"."""
    with open_mill() as mill:
        done = mill.datasets.add(name, partition)
    sentence = (
        f"{name}: added {partition} with {done.rows} rows" if done.partitions else f"{partition} was there before"
    )
    say(to_plain(done), sentence, as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("folder", default="")
@json_option
def adopt(name: str, folder: str, *, as_json: bool) -> None:
    """Register existing folders in Hive's layout (day=2026-01-01/…) as partitions. Moves no file.

    FOLDER is below the location of the file set; without FOLDER, the whole location. Lists refused folders, and ends
    with exit code 6 if there are any.
    """
    with open_mill() as mill:
        done = mill.datasets.adopt(name, folder)
    sentence = (
        f"{name}: registered {done.partitions} partitions with {done.rows} rows in {done.bytes} bytes; "
        f"{done.known} were registered before; {len(done.refused)} refused"
    )
    lines = [sentence, *(f"refused {one.directory}: {one.why}" for one in done.refused)]
    say(to_plain(done), "\n".join(lines), as_json=as_json)
    sys.exit(FOUND if done.refused else 0)


def _entries(given: tuple[str, ...]) -> dict[str, str]:
    for entry in given:
        if "=" not in entry:
            raise click.UsageError(f"{entry!r} is no metadata: write NAME=TEXT")
    return {entry.partition("=")[0]: entry.partition("=")[2] for entry in given}
