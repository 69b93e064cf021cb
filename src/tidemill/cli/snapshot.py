"""`tidemill snapshot`: versions of snapshots."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_list, show_one, show_page

if TYPE_CHECKING:
    from tidemill.frames.version_diff import RowChange


@click.group(name="snapshot", help="Snapshots: mirrors of sources, in versions.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("name")
@page_options
def versions(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """List the readable versions, the current version first, each with the reason why it is kept."""
    with open_mill() as mill:
        rows = mill.snapshots.versions(name, limit=limit, after=after)
    figures = ("version", "committed_at", "logical_time", "rows", "bytes", "run_id")
    columns = (*figures, "current", "rolled_back_to", "kept_for")
    show_page(rows, columns, as_json=as_json, empty=f"{name} has no version yet: run the program that refreshes it")


@command.command()
@click.argument("name")
@click.argument("old", type=int)
@click.argument("new", type=int)
@click.option(
    "--key", multiple=True, metavar="COLUMN", help="Columns that identify a row; without the option, the declared key."
)
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(0, 1_000_000), help="The most rows to show."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON document a line: each row that differs, then counts."
)
def diff(name: str, old: int, new: int, key: Sequence[str], limit: int, *, as_json: bool) -> None:
    """Show the rows that differ between two versions, and count inserted, deleted and updated rows.

    Of an updated row, only the columns that differ are shown; --json shows all. Starts Spark.
    """
    if sys.stderr.isatty():
        click.echo(f"starting Spark to compare versions {old} and {new} of {name} …", err=True)
    with open_mill() as mill:
        found = mill.snapshots.diff(name, old, new, key=key, limit=limit)
    if as_json:
        for row in found.rows:
            click.echo(json.dumps({"change": row.change, "key": row.key, "before": row.before, "after": row.after}))
        counts = {kind: getattr(found, kind) for kind in ("inserted", "deleted", "updated")}
        click.echo(json.dumps({"dataset": found.dataset, "old": old, "new": new, **counts, "shown": len(found.rows)}))
        return
    if found.rows:
        show_list([_cells(row) for row in found.rows], ("change", "key", "before", "after"), as_json=False, empty="")
    more = f" ({found.total - len(found.rows)} of them not shown)" if found.total > len(found.rows) else ""
    counts_told = f"{found.inserted} inserted, {found.deleted} deleted, {found.updated} updated{more}"
    click.echo(f"{found.dataset} from version {old} to {new}: {counts_told}")


def _cells(row: RowChange) -> dict[str, str]:
    before, after = row.before or {}, row.after or {}
    own = [name for name in {**before, **after} if name not in row.key]
    if row.before is not None and row.after is not None:
        own = [name for name in own if before.get(name) != after.get(name)]
    told = [", ".join(f"{name}={_text(side[name])}" for name in own if name in side) for side in (before, after)]
    key = ", ".join(f"{name}={_text(value)}" for name, value in row.key.items())
    return {"change": row.change, "key": key, "before": told[0], "after": told[1]}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@command.command()
@click.argument("name")
@click.argument("old", type=int)
@click.argument("new", type=int)
@json_option
def compare(name: str, old: int, new: int, *, as_json: bool) -> None:
    """Compare two versions by rows, bytes, columns and contents of files, without Spark; `diff` compares the rows."""
    with open_mill() as mill:
        show_one(mill.snapshots.compare(name, old, new), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("version", type=int)
@json_option
def rollback(name: str, version: int, *, as_json: bool) -> None:
    """Publish an older version again, as a new version with the same files."""
    with open_mill() as mill:
        made = mill.snapshots.rollback(name, version)
    record = {"version": made.version, "rolled_back_to": version, "rows": made.rows, "run_id": made.run_id}
    sentence = f"{name} is at version {made.version} now, with the {made.rows} rows of version {version}"
    say(record, f"{sentence}; the next refresh replaces it", as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--version", "chosen", multiple=True, type=int, help="Expire this version, whatever the retention.")
@json_option
def expire(name: str, chosen: Sequence[int], *, as_json: bool) -> None:
    """Expire the versions that the retention does not keep. The janitor deletes their files."""
    with open_mill() as mill:
        done = mill.snapshots.expire(name, chosen)
    versions_ = ", ".join(map(str, done.expired))
    text = f"version {versions_} of {name} expired" if versions_ else f"no version of {name} can expire"
    say(done, text, as_json=as_json)
