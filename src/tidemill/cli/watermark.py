"""`tidemill watermark`: how far file sets are complete, and how far windows over them are computed."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_one, show_page


@click.group(name="watermark", help="Watermarks of file sets, and the windows computed by them.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@page_options
@json_option
def list_(*, limit: int, after: str, as_json: bool) -> None:
    """List watermarks by file set, each on the wall clock of its zone."""
    with open_mill() as mill:
        rows = mill.watermarks.list(limit=limit, after=after)
    columns = ("dataset", "watermark", "reaches", "zone", "column", "held_by", "programs")
    show_page(rows, columns, as_json=as_json, empty="no watermarks yet; declare watermark=tm.Watermark(…)")


@command.command()
@click.argument("dataset")
@json_option
def show(dataset: str, *, as_json: bool) -> None:
    """Show a watermark: its moves, what holds it, what is missing or has no time, and its window programs."""
    with open_mill() as mill:
        show_one(mill.watermarks.show(dataset), as_json=as_json)


@command.command()
@click.argument("dataset")
@click.argument("to")
@json_option
def advance(dataset: str, to: str, *, as_json: bool) -> None:
    """Move a watermark forward by hand, to a time on its wall clock: what comes before it later is late."""
    with open_mill() as mill:
        moved = mill.watermarks.advance(dataset, to)
    say(moved, f"the watermark of {dataset} is {moved.watermark}", as_json=as_json)


@command.command()
@click.argument("dataset")
@click.argument("to")
@json_option
def rewind(dataset: str, to: str, *, as_json: bool) -> None:
    """Move a watermark back by hand, to a time on its wall clock, and open the windows that end after that time."""
    with open_mill() as mill:
        rewound = mill.watermarks.rewind(dataset, to)
    again = "".join(f"; {program} goes on from there" for program in rewound.programs)
    say(rewound, f"the watermark of {dataset} is {rewound.watermark}{again}", as_json=as_json)


@command.command()
@click.argument("program")
@click.option("--to", metavar="TIME", help="Only windows that end after this time.")
@json_option
def reset(program: str, to: str | None, *, as_json: bool) -> None:
    """Have a window program (app.program) compute its windows again; each is replaced when it is computed."""
    with open_mill() as mill:
        done = mill.watermarks.reset(program, to)
    where = done.computed or "the beginning"
    say(done, f"{program} goes on from {where}", as_json=as_json)
