"""`tidemill catalog`: the catalog itself."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.output import json_option, say


@click.group(name="catalog", help="The catalog itself.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@json_option
def migrate(*, as_json: bool) -> None:
    """Bring the catalog's schema up to this program's version; stop all else and make a backup before."""
    from tidemill.mill import migrate_project

    given = click.get_current_context().find_root().obj
    options = {"catalog": given["catalog"]} if given["catalog"] else {}
    applied = migrate_project(Path(given["project"]), options=options)
    sentence = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do: the schema is up to date"
    say({"applied": applied}, sentence, as_json=as_json)
