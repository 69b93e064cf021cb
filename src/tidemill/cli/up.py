"""`tidemill up`: all roles in one process."""

from __future__ import annotations

import sys

import click

from tidemill.cli.output import begin_mill, json_option, logs_json, new_option, open_mill
from tidemill.cli.role import drain_option, parse_drain


@click.command(name="up")
@click.option("--no-deploy", is_flag=True, help="Run what is deployed, without reading the app file.")
@click.option(
    "--until-idle",
    type=click.Choice(["all", "data"]),
    is_flag=False,
    flag_value="all",
    help="End when no run works, waits or is due; with =data, ignore time triggers.",
)
@drain_option
@click.option("--no-server", is_flag=True, help="Serve no pages and no REST. With --until-idle, nothing is served.")
@new_option
@json_option
def command(drain: str, *, no_deploy: bool, until_idle: str | None, no_server: bool, new: bool, as_json: bool) -> None:
    """Run scheduler, runner, inbox listing, janitor and server until Ctrl-C. Print a line for each event."""
    from tidemill.catalog.meter import Meter
    from tidemill.roles.up import UntilIdle, run_node
    from tidemill.server.listen import Listener

    idle = None if until_idle is None else UntilIdle(until_idle)
    wait = parse_drain(drain)
    meter = None if no_server or idle else Meter()
    with open_mill(meter=meter) if no_deploy else begin_mill(new=new, meter=meter) as mill:
        # A link in a log would let its readers in.
        server = None if no_server or idle else Listener(mill, with_link=sys.stdout.isatty())
        run_node(
            mill,
            echo=click.echo,
            deploy=not no_deploy,
            until_idle=idle,
            drain=wait,
            as_json=as_json or logs_json(mill),
            server=server,
        )
