"""`tidemill watermark`: how far file sets are complete, and how far windows over them are computed."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_one, show_page


@click.group(name="watermark", help="Watermarks of file sets, and the windows computed by them.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--app", help="Only the watermarks of file sets of this app.")
@click.option("--behind", metavar="DURATION", help="Only watermarks that are further behind now, or have no value yet.")
@page_options
def list_(*, limit: int, after: str, as_json: bool, **filters: str | None) -> None:
    """List watermarks by file set, each on the wall clock of its zone: all, or those that fit each option."""
    with open_mill() as mill:
        rows = mill.watermarks.list(limit=limit, after=after, **filters)
    none = "no watermarks yet; declare watermark=tm.Watermark(…)"
    columns = ("dataset", "watermark", "reaches", "zone", "column", "held_by", "programs")
    show_page(rows, columns, as_json=as_json, empty="no watermark fits" if any(filters.values()) else none)


@command.command()
@click.argument("dataset")
@json_option
def show(dataset: str, *, as_json: bool) -> None:
    """Show a watermark: its moves, the transactions that hold it, missing hours, and its window programs."""
    with open_mill() as mill:
        show_one(mill.watermarks.show(dataset), as_json=as_json)


@command.command()
@click.argument("dataset")
@page_options
def slots(dataset: str, *, limit: int, after: str, as_json: bool) -> None:
    """List the time slots of a watermark, newest first: complete, late, incomplete or missing."""
    with open_mill() as mill:
        rows = mill.watermarks.slots(dataset, limit=limit, after=after)
    columns = ("slot", "state", "have", "of", "late", "passed")
    show_page(rows, columns, as_json=as_json, empty=f"no partition of {dataset} has a time yet")


@command.command()
@click.argument("dataset")
@click.argument("to")
@json_option
def advance(dataset: str, to: str, *, as_json: bool) -> None:
    """Move a watermark forward to a wall-clock time. Partitions of earlier times that come later are late."""
    with open_mill() as mill:
        moved = mill.watermarks.advance(dataset, to)
    say(moved, f"the watermark of {dataset} is {moved.watermark}", as_json=as_json)


@command.command()
@click.argument("dataset")
@click.argument("to")
@json_option
def rewind(dataset: str, to: str, *, as_json: bool) -> None:
    """Move a watermark back to a wall-clock time, and open the windows that end after that time."""
    with open_mill() as mill:
        rewound = mill.watermarks.rewind(dataset, to)
    again = "".join(f"; {program} computes later windows again" for program in rewound.programs)
    say(rewound, f"the watermark of {dataset} is {rewound.watermark}{again}", as_json=as_json)


@command.command()
@click.argument("program")
@click.option("--to", metavar="TIME", help="Only windows that end after this time.")
@click.option("--keep-state", is_flag=True, help="Compute nothing again, and let the next deployment change the query.")
@json_option
def reset(program: str, to: str | None, *, keep_state: bool, as_json: bool) -> None:
    """Compute the windows of a program (APP.PROGRAM) again. Published rows stay until they are replaced."""
    with open_mill() as mill:
        done = mill.watermarks.reset(program, to, keep_state=keep_state)
    say(done, f"{program}: {done.consequence}", as_json=as_json)
