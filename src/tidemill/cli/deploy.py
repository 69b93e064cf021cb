"""`tidemill deploy`: register what the app file declares."""

from __future__ import annotations

import click

from tidemill.cli.output import begin_mill, json_option, new_option, say, schedules_option


@click.command(name="deploy")
@schedules_option
@new_option
@json_option
def command(*, update_schedules: bool | None, new: bool, as_json: bool) -> None:
    """Register the data sets, programs and schedules of the app file, in one transaction."""
    with begin_mill(new=new) as mill:
        for deployed in mill.deploy(update_schedules=update_schedules):
            say(deployed, deployed.sentence(), as_json=as_json)
