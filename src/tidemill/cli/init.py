"""`tidemill init`: a project to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.output import json_option, say


@click.command(name="init")
@click.argument("name", metavar="NAME")
@json_option
def command(name: str, *, as_json: bool) -> None:
    """Write a small project that runs as it is: app.py, a test, tidemill.toml and an inbox."""
    from tidemill.starter.starter import INBOX, write_project
    from tidemill.world import World

    folder = Path(click.get_current_context().find_root().obj["project"]) / name
    files = write_project(World(), folder)
    record = {"project": str(folder), "files": [str(file) for file in files], "inbox": str(folder / INBOX)}
    sentence = (
        f"{folder} has {', '.join(map(str, files))}\n"
        f"next: cd {folder}; tidemill up, and in another terminal put a CSV file into {INBOX}/ (id,amount,ordered_at)"
    )
    say(record, sentence, as_json=as_json)
