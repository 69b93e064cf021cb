"""`tidemill deploy`: register what the app file declares."""

from __future__ import annotations

import click

from tidemill.cli.output import begin_mill, generation_option, json_option, new_option, say, schedules_option


@click.command(name="deploy")
@schedules_option
@generation_option
@new_option
@json_option
def command(*, update_schedules: bool | None, if_generation: int | None, new: bool, as_json: bool) -> None:
    """Register the data sets, programs and schedules of the app file, in one transaction.

    The generation of an app is its version, as `tidemill app show` prints it. 0 stands for an app that is not there.
    """
    with begin_mill(new=new) as mill:
        for deployed in mill.deploy(update_schedules=update_schedules, if_generation=if_generation):
            say(deployed, deployed.sentence(), as_json=as_json)
