"""`tidemill demo`: the main job on real data."""

from __future__ import annotations

import click


@click.command(name="demo")
@click.option("--days", default=3, show_default=True, type=click.IntRange(1, 365), help="Days of data, from 1 January.")
@click.option("--keep", is_flag=True, help="Keep the folder of the project, and print its path.")
@click.option("--crash", is_flag=True, help="Kill the driver with -9 in the middle of a write.")
@click.option("--ui", is_flag=True, help="Serve the pages, print their link, and stay until Ctrl-C.")
@click.option("--s3", metavar="URL", help="Land files and publish data below `s3://BUCKET[/NAME]`.")
@click.option("--cluster", is_flag=True, help="Start a Spark cluster with two workers, and work there.")
def command(days: int, *, keep: bool, crash: bool, ui: bool, s3: str | None, cluster: bool) -> None:
    """Land New York's flights and weather of 2013 hour by hour; load, join and report them as they arrive."""
    from tidemill.demo.demo import run_demo

    if s3 is not None and not s3.startswith("s3://"):
        raise click.BadParameter("use the URL of a bucket, or of a folder in it, as s3://lake", param_hint="--s3")
    if s3 and crash:
        raise click.UsageError("--crash looks for a write in a folder: leave out --s3")
    run_demo(days=days, keep=keep, crash=crash, echo=click.echo, ui=ui, bucket=s3 or "", cluster=cluster)
