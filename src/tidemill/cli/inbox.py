"""`tidemill inbox`: raw files that arrived, and claims of them by other workflow engines."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.lineage import lineage_options, show_lineage
from tidemill.cli.output import json_option, open_mill, page_options, parse_json, read_file, say, show_one, show_page
from tidemill.errors import UserError

_STATES = ("NEW", "IN_PROGRESS", "SUCCESS", "ERROR", "QUARANTINED", "IGNORED", "SKIPPED")
_lease_option = click.option(
    "--lease",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long the claim lasts unless renewed: 5s to 1h.",
)


@click.group(name="inbox", help="Inboxes: files that arrived, and their states.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--app", metavar="APP", help="Only inboxes of this app.")
@page_options
def list_(app: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """List inboxes by name, with the number and the size of their files."""
    with open_mill() as mill:
        rows = mill.inboxes.list(app=app, limit=limit, after=after)
    none = "no inboxes yet; declare one in the app and `tidemill deploy`"
    show_page(rows, ("name", "app", "files", "bytes", "location"), as_json=as_json, empty=none)


@command.command()
@click.argument("name")
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), help="Only files in this state.")
@page_options
def files(name: str, state: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """List the files of an inbox by name, with their states and the reasons of waiting files."""
    with open_mill() as mill:
        rows = mill.inboxes.files(name, state=state, limit=limit, after=after)
        waiting = () if as_json or all(row.status != "NEW" for row in rows) else mill.inboxes.explain(name).why
    columns = ("name", "status", "bytes", "modified_at", "failures", "run_id", "afterwards", "error")
    show_page(rows, columns, as_json=as_json, empty=f"no such files in {name}")
    for sentence in waiting:
        click.echo(f"NEW: {sentence}")


@command.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show an inbox: its files by state, and the names that it can never process, with the reasons."""
    with open_mill() as mill:
        show_one(mill.inboxes.show(name), as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--hours", default=24, show_default=True, type=click.IntRange(1, 744), help="The number of hours.")
@json_option
def arrivals(name: str, hours: int, *, as_json: bool) -> None:
    """Count the files of the last hours by state, and balance the rows that runs made of them."""
    with open_mill() as mill:
        show_one(mill.inboxes.arrivals(name, hours=hours), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("file")
@lineage_options
@json_option
def lineage(name: str, file: str, *, direction: str, depth: int, limit: int, as_json: bool) -> None:
    """Show where the rows of a FILE went: the runs that took the file, and what they published."""
    with open_mill() as mill:
        found = mill.inboxes.lineage(name, file, direction=direction, depth=depth, limit=limit)
    show_lineage(found, as_json=as_json)


@command.command()
@click.argument("name")
@json_option
def scan(name: str, *, as_json: bool) -> None:
    """Look for new files now."""
    with open_mill() as mill:
        show_one(mill.inboxes.scan(name), as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--accept-empty", is_flag=True, help="Accept an empty folder that replaces the earlier one.")
@json_option
def reconcile(name: str, *, accept_empty: bool, as_json: bool) -> None:
    """List all files: find files that came later than the lookback, and forget closed files that are deleted."""
    with open_mill() as mill:
        show_one(mill.inboxes.scan(name, reconcile=True, accept_empty=accept_empty), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@json_option
def events(name: str, file: Path, *, as_json: bool) -> None:
    """Look at the files that a notification of S3 names: the JSON in FILE, or standard input.

    Notifications of S3, SQS, SNS and EventBridge are read. The path of the inbox ends as the prefix of the objects.
    """
    body = parse_json("FILE", read_file(file))
    with open_mill() as mill:
        show_one(mill.inboxes.events(name, body), as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@_lease_option
@click.option("--owner", default="", help="The name of the caller, shown with the run.")
@click.option("--no-scan", is_flag=True, help="Claim known files only, without a scan before.")
@json_option
def claim(name: str, limit: int, lease: str, owner: str, *, no_scan: bool, as_json: bool) -> None:
    """Claim the oldest waiting files for another workflow engine; print the id of the claim and the files."""
    with open_mill() as mill:
        got = mill.inboxes.get_latest_files(name, limit, lease=lease, owner=owner, scan=not no_scan)
    if as_json:
        show_one(got, as_json=True)
        return
    click.echo(f"claim {got.claim_id}   {len(got.files)} files" if got.files else f"no files wait in {got.inbox}")
    for file in got.files:
        click.echo(file.url)


@command.command()
@click.argument("claim_id")
@_lease_option
@json_option
def renew(claim_id: str, lease: str, *, as_json: bool) -> None:
    """Extend the lease of a claim."""
    with open_mill() as mill:
        renewed = mill.inboxes.renew_claim(claim_id, lease=lease)
    say(renewed, f"{claim_id} is kept for {renewed.lease}", as_json=as_json)


@command.command()
@click.argument("claim_id")
@click.argument("status", type=click.Choice(("SUCCESS", "ERROR", "NEW"), case_sensitive=False))
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--error", default="", metavar="TEXT", help="The reason, shown with files in ERROR.")
@json_option
def update(claim_id: str, status: str, files: tuple[str, ...], error: str, *, as_json: bool) -> None:
    """Close files of a claim as SUCCESS, as ERROR (retried later) or as NEW (returned). Without a file name, all."""
    with open_mill() as mill:
        closed = mill.inboxes.update_file_status(claim_id, files or None, status, error=error)
    say(closed, f"{claim_id} holds {closed.left} files", as_json=as_json)


@command.command()
@click.argument("name", required=False)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--claim", "claim_id", help="Return all files of this claim.")
@json_option
def release(name: str | None, files: tuple[str, ...], claim_id: str | None, *, as_json: bool) -> None:
    """Release quarantined files of an inbox, so that runs get them again; or return the files of a claim."""
    with open_mill() as mill:
        if claim_id is not None and name is None:
            claim = mill.inboxes.release_claim(claim_id)
            say(claim, f"{claim_id} is {claim.state}", as_json=as_json)
        elif name is not None and files and claim_id is None:
            done = mill.inboxes.release(name, files)
            say(done, f"{done.released} files of {done.inbox} released", as_json=as_json)
        else:
            raise UserError(
                "name an inbox and its files in quarantine (`inbox files NAME --state QUARANTINED`), or --claim"
            )


@command.command()
@click.argument("name")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@json_option
def ignore(name: str, files: tuple[str, ...], *, as_json: bool) -> None:
    """Ignore quarantined files: no run gets them, and no alert counts them. `retry` with their names takes it back."""
    with open_mill() as mill:
        done = mill.inboxes.ignore(name, files)
    say(done, f"{done.ignored} files of {done.inbox} ignored", as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@json_option
def retry(name: str, files: tuple[str, ...], *, as_json: bool) -> None:
    """Retry files in ERROR now, and ignored files. Without a file name, all files in ERROR."""
    with open_mill() as mill:
        done = mill.inboxes.retry(name, files)
    say(done, f"{done.retried} files of {done.inbox} retried", as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@json_option
def reprocess(name: str, files: tuple[str, ...], *, as_json: bool) -> None:
    """Deliver processed files again, as if they were new; a program that appends publishes their rows twice."""
    with open_mill() as mill:
        view = mill.inboxes.reprocess(name, files)
    text = f"{view.files} files of {view.inbox} are delivered again"
    if view.may_double:
        text += (
            f"\nwarning: {', '.join(view.may_double)} publishes their rows a second time, unless it overwrites"
            " partitions or leaves out duplicates (run.deduplicate)"
        )
    say(view, text, as_json=as_json)
