"""`tidemill scheduler`, `tidemill runner` and `tidemill janitor`: one role of a node each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.output import json_option, logs_json, open_mill
from tidemill.durations import parse_duration

if TYPE_CHECKING:
    from tidemill.run.records.nodes import NodeRole

drain_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--drain", metavar="DURATION", default="0s", show_default=True, help="The longest wait for runs at the end."
)


def parse_drain(drain: str) -> timedelta:
    """Return the value of `--drain`. `BadDuration`."""
    return parse_duration(drain) if drain != "0s" else timedelta(0)


@click.command(name="scheduler")
@json_option
def scheduler(*, as_json: bool) -> None:
    """Make runs when triggers fire, list inboxes and send alerts, until Ctrl-C."""
    from tidemill.run.records.nodes import NodeRole

    _run(NodeRole.SCHEDULER, as_json=as_json)


@click.command(name="runner")
@drain_option
@json_option
def runner(drain: str, *, as_json: bool) -> None:
    """Work on runs until Ctrl-C, with as many slots as `runner.slots` says."""
    from tidemill.run.records.nodes import NodeRole

    _run(NodeRole.RUNNER, as_json=as_json, drain=parse_drain(drain))


@click.command(name="janitor")
@json_option
def janitor(*, as_json: bool) -> None:
    """Delete what is old or unused, and empty inboxes of processed files, until Ctrl-C."""
    from tidemill.run.records.nodes import NodeRole

    _run(NodeRole.JANITOR, as_json=as_json)


def _run(role: NodeRole, *, as_json: bool, drain: timedelta = timedelta(0)) -> None:
    from tidemill.roles.up import run_node

    with open_mill() as mill:
        as_json = as_json or logs_json(mill)
        run_node(mill, echo=click.echo, roles=[role], deploy=False, drain=drain, as_json=as_json)
