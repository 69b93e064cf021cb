"""`tidemill sql`: statements that declare tables and their watermarks."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.output import BadOption, json_option, open_mill, read_file, say


@click.command(name="sql")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("-e", "statement", metavar="SQL", help="The statements, instead of a file.")
@json_option
def command(file: Path | None, statement: str | None, *, as_json: bool) -> None:
    """Carry out SQL statements: CREATE TABLE, ALTER TABLE (watermarks and options), DESCRIBE."""
    if (file is None) == (statement is None):
        raise BadOption("sql", str(file or statement or ""), "give a file, or statements by -e")
    with open_mill(create=True) as mill:
        text = read_file(file).decode() if file is not None else str(statement)
        done = mill.sql(text)
    record = [{"said": one.said, "notices": list(one.notices), "rows": list(one.rows)} for one in done]
    lines = []
    for one in done:
        lines += [one.said, *(f"  notice: {notice}" for notice in one.notices)]
        for row in one.rows:
            time = f"WATERMARK AS {row['watermark']}" if row["watermark"] else ""
            marks = [str(row["type"]), "key" if row["key"] else "", time]
            lines.append(f"  {row['column']}  {'  '.join(filter(None, marks))}")
    say({"statements": record}, "\n".join(lines), as_json=as_json)
