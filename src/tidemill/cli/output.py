"""What commands print: tables for people, one JSON document for programs, one line for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidemill.epoch import from_ms
from tidemill.errors import TidemillError, UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from tidemill.mill.mill import Mill

_TIMES: Final = ("_at", "_until", "not_before", "deadline")
_NEVER: Final = "-"

FOUND: Final = 6
"""The exit code of a command that looked, and found what should not be."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")


def open_mill(*, create: bool = False) -> Mill:
    """The facade for the project that the command line names."""
    from tidemill.mill.mill import open_project

    given = click.get_current_context().find_root().obj
    options = {"catalog": given["catalog"]} if given["catalog"] else {}
    return open_project(Path(given["project"]), options=options, create=create)


class BadOption(UserError):
    """An option that cannot be read."""

    code = "bad_option"

    def __init__(self, what: str, given: str, cure: str) -> None:
        self.what = what
        self.given = given
        self.cure = cure
        super().__init__(f"{what} {given!r} is refused: {cure}")


def parse_argument(text: str) -> tuple[str, object]:
    """Name and value of `NAME=VALUE`, where VALUE may be JSON."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadOption("argument", text, "write it as NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse_json(option: str, text: str) -> object:
    """What the JSON of an option says."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadOption(option, text, f"it is no JSON: {error}") from None


def show_list(records: Sequence[object], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print `records` as a table of `columns` (fields, in order), or all their fields as a JSON list.

    `empty` is what a person reads when there are none, with the next step.
    """
    plain = [to_plain(record) for record in records]
    if as_json:
        click.echo(json.dumps(plain, indent=2))
    elif not plain:
        click.echo(empty)
    else:
        _print_table([[_cell(row.get(column)) for column in columns] for row in plain], columns)


def show_one(record: object, *, as_json: bool) -> None:
    """Print all fields of a record, one a line, or as a JSON object."""
    plain = to_plain(record)
    if as_json:
        click.echo(json.dumps(plain, indent=2))
        return
    width = max(len(name) for name in plain)
    for name, value in plain.items():
        click.echo(f"{name:<{width}}  {_cell(value)}")


def say(record: Mapping[str, object], sentence: str, *, as_json: bool) -> None:
    """Print what a command did: a sentence for people, the record for programs."""
    click.echo(json.dumps(to_plain(record)) if as_json else sentence)


def report(error: TidemillError, *, as_json: bool) -> None:
    """Print an error as one line on standard error, or as a JSON object."""
    if as_json:
        document = {"code": error.code, "message": str(error), **to_plain(error.fields())}
        click.echo(json.dumps(document), err=True)
    else:
        click.echo(f"error: {' '.join(str(error).split())}  [{error.code}]", err=True)


def to_plain(record: object) -> dict[str, object]:
    """The fields of a record as JSON knows them: times in ISO 8601 (UTC), paths and other values as text."""
    fields: Mapping[str, object]
    if isinstance(record, Mapping):
        fields = record
    elif is_dataclass(record) and not isinstance(record, type):
        fields = _fields(record)
    else:
        raise TypeError(f"{type(record).__name__} has no fields")
    return {str(name): _plain(str(name), value) for name, value in fields.items()}


def _fields(record: DataclassInstance) -> dict[str, Any]:
    return asdict(record)


def _plain(name: str, value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith(_TIMES):
        return _iso(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain("", inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _iso(milliseconds: int) -> str | None:
    if milliseconds == 0:
        return None
    return from_ms(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cell(value: object) -> str:
    if value is None or value == "":
        return _NEVER
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value)


def _print_table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    if not sys.stdout.isatty():
        # Whole values for a pipe or file, aligned, nothing cut.
        widths = [max(len(line[place]) for line in [columns, *rows]) for place in range(len(columns))]
        for line in [columns, *rows]:
            click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
