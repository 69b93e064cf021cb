"""`tidemill open`: the pages of the project in a browser."""

from __future__ import annotations

import webbrowser

import click

from tidemill.cli.output import json_option, open_mill, say


@click.command(name="open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@json_option
def command(*, only_print: bool, as_json: bool) -> None:
    """Open the pages of the project in a browser, signed in. The link works once, within ten minutes."""
    from tidemill.server.listen import find_server, make_link

    with open_mill() as mill:
        link = make_link(mill, find_server(mill))
    say({"link": link}, link, as_json=as_json)
    if not only_print:
        webbrowser.open(link)
