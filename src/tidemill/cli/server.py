"""`tidemill server`: pages and REST alone; any number of such processes on one PostgreSQL."""

from __future__ import annotations

import sys

import click

from tidemill.cli.output import json_option, logs_json, open_mill, say


@click.command(name="server")
@json_option
def command(*, as_json: bool) -> None:
    """Serve pages and REST of the project until Ctrl-C; `tidemill up` does so beside all else."""
    from tidemill.catalog.meter import Meter
    from tidemill.narration import Narrator, log_to
    from tidemill.roles.loops import LONGEST_NAP, Loops
    from tidemill.roles.process_end import asked_by_signals
    from tidemill.server.listen import Listener

    with open_mill(meter=Meter()) as mill:
        as_json = as_json or logs_json(mill)
        narrator = Narrator(mill.project.world, click.echo, as_json=as_json)
        listener = Listener(mill, with_link=sys.stdout.isatty())
        loops = Loops(mill.project.catalog, mill.project.world)
        with asked_by_signals(loops.ending), log_to(narrator, as_json=as_json):
            link = listener.start(loops.fail)
            opening = f"\nopen    {link}" if link else ""
            say({"url": listener.url, "link": link}, f"ready   {listener.url}{opening}", as_json=as_json)
            try:
                while not loops.ending.wait(LONGEST_NAP):
                    mill.project.catalog.check_place()
            finally:
                listener.stop()
            loops.stop()
