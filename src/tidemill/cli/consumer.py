"""`tidemill consumer`: the consumers of each data set, and their waiting partitions."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_list, show_one, show_page


@click.group(name="consumer", help="Consumers of file sets, and their waiting partitions.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--dataset", metavar="NAME", help="Only consumers of this data set.")
@click.option("--program", metavar="PROGRAM", help="Only consumers by which this program reads.")
@page_options
def list_(*, dataset: str | None, program: str | None, limit: int, after: str, as_json: bool) -> None:
    """List consumers by data set and name."""
    with open_mill() as mill:
        rows = mill.consumers.list(dataset=dataset, program=program, limit=limit, after=after)
    columns = ("dataset", "name", "waiting", "bytes", "in_progress", "discarded", "dropped", "retired", "oldest_at")
    show_page(rows, columns, as_json=as_json, empty="no consumers yet; a program that reads a file set makes one")


@command.command()
@click.argument("dataset")
@click.argument("name")
@json_option
def show(dataset: str, name: str, *, as_json: bool) -> None:
    """Show a consumer: state, lag, claimed and discarded partitions, and resets with the names of their users."""
    with open_mill() as mill:
        show_one(mill.consumers.show(dataset, name), as_json=as_json)


@command.command()
@click.argument("dataset")
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), help="The most partitions to show.")
@json_option
def peek(dataset: str, name: str, limit: int | None, *, as_json: bool) -> None:
    """List the partitions that the next take would claim, in order, without a claim."""
    with open_mill() as mill:
        rows = mill.consumers.peek(dataset, name, limit=limit)
    columns = ("partition", "kind", "files", "bytes", "rows")
    show_list(rows, columns, as_json=as_json, empty="nothing waits for it")


@command.command("take")
@click.argument("dataset")
@click.argument("name")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1, 10_000), help="How many at most.")
@click.option(
    "--lease",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long the take lasts unless renewed: 5s to 1h.",
)
@click.option("--owner", default="", help="The name of the caller, shown with the run.")
@json_option
def take_waiting(dataset: str, name: str, limit: int, lease: str, owner: str, *, as_json: bool) -> None:
    """Take the oldest waiting partitions for another engine; print the transaction of the take and the files.

    `tidemill tx commit` completes the partitions. `tx fail` and `tx abort` return them.
    """
    with open_mill() as mill:
        taken = mill.consumers.take(dataset, name, limit=limit, lease=lease, owner=owner)
    lines = [
        f"transaction {taken.write_pointer}   {len(taken.partitions)} partitions"
        if taken.partitions
        else f"no partitions of {taken.dataset} wait for {taken.consumer}"
    ]
    lines += [file.path for partition in taken.partitions for file in partition.files]
    say(taken, "\n".join(lines), as_json=as_json)


@command.command()
@click.argument("dataset")
@click.argument("name")
@json_option
def drop(dataset: str, name: str, *, as_json: bool) -> None:
    """Delete a retired consumer, whose program is no longer declared. The name of the user is recorded."""
    with open_mill() as mill:
        dropped = mill.consumers.drop(dataset, name)
    say(dropped, f"dropped consumer {name} of {dataset}", as_json=as_json)


@command.command()
@click.argument("dataset")
@click.argument("name")
@click.option("--to", required=True, metavar="START", help="beginning, now, or a time like 2026-01-31T06:00:00Z.")
@click.option(
    "--where", multiple=True, metavar="CONDITION", help="Of earlier commits, only these partitions: day>=2026-01-01."
)
@click.option("--time-from", metavar="TIME", help="Of earlier commits, only partitions from this time on.")
@click.option("--time-until", metavar="TIME", help="Of earlier commits, only partitions before this time.")
@json_option
def reset(
    dataset: str,
    name: str,
    to: str,
    *,
    where: tuple[str, ...],
    time_from: str | None,
    time_until: str | None,
    as_json: bool,
) -> None:
    """Start a consumer again from a given position. Refused while a run holds partitions of the consumer.

    START is a commit time. --where and the times choose among the partitions that have committed since START. All
    partitions that commit after the reset are delivered too. The name of the user is recorded.
    """
    with open_mill() as mill:
        view = mill.consumers.reset(dataset, name, to, where=where, time_from=time_from, time_until=time_until)
    if as_json:
        show_one(view, as_json=True)
    else:
        click.echo(f"{name} starts again from {to}: {view.waiting} changes ({view.bytes} bytes) wait for it")


@command.command()
@click.option("--dataset", metavar="NAME", help="Only consumers of this data set.")
@click.option("--name", metavar="NAME", help="Only consumers of this name.")
@page_options
def lag(dataset: str | None, name: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """Show the waiting partitions of consumers: their number, bytes, and the age of the oldest."""
    with open_mill() as mill:
        rows = mill.consumers.lag(dataset=dataset, name=name, limit=limit, after=after)
    columns = ("dataset", "name", "partitions", "bytes", "age", "oldest_at")
    show_page(rows, columns, as_json=as_json, empty="no consumers yet; a program that reads a file set makes one")


@command.command()
@click.argument("dataset")
@click.argument("name")
@click.argument("partitions", nargs=-1)
@json_option
def requeue(dataset: str, name: str, partitions: tuple[str, ...], *, as_json: bool) -> None:
    """Deliver discarded PARTITIONS (such as day=2026-01-31) again; without PARTITIONS, all of them."""
    with open_mill() as mill:
        done = mill.consumers.requeue(dataset, name, partitions or None)
    number = done.requeued
    say(done, f"{number} partition{'' if number == 1 else 's'} requeued", as_json=as_json)
