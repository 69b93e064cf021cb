"""`tidemill sql`: statements that declare tables and their watermarks."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.output import json_option, open_mill, read_file, say, show_rows
from tidemill.mill.plain import to_plain
from tidemill.mill.written import BadOption


@click.command(name="sql")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("-e", "statement", metavar="SQL", help="The statements, instead of a file.")
@json_option
def command(file: Path | None, statement: str | None, *, as_json: bool) -> None:
    """Carry out SQL statements: CREATE, ALTER, DROP TABLE, INSERT, SELECT and others."""
    if (file is None) == (statement is None):
        raise BadOption("sql", str(file or statement or ""), "give a file, or statements by -e")
    with open_mill(create=True) as mill:
        text = read_file(file).decode() if file is not None else str(statement)
        done = mill.sql(text)
    if as_json:
        say({"statements": [to_plain(one) for one in done]}, "", as_json=True)
        return
    for one in done:
        say({}, "\n".join([one.said, *(f"  notice: {notice}" for notice in one.notices)]), as_json=False)
        if one.rows:
            show_rows([to_plain(row) for row in one.rows], as_json=False, empty="")
