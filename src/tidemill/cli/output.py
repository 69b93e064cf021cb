"""The output of commands: tables for people, one JSON document for programs, one line for an error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tidemill.errors import TidemillError
from tidemill.mill.plain import to_plain, to_readable
from tidemill.mill.written import BadOption

if TYPE_CHECKING:
    from tidemill.catalog.meter import Meter
    from tidemill.mill.mill import Mill
    from tidemill.mill.page import Page

Command = TypeVar("Command", bound=Callable[..., object])

_NEVER: Final = "-"

_MOST_SHOWN: Final = 120
"""The most characters of a payload in a table."""

FOUND: Final = 6
"""The exit code of a command that looked, and found what should not be."""

DEFAULT_TOKEN: Final = "env:TIDEMILL_TOKEN"  # noqa: S105  # the place of a secret

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")


def open_mill(*, create: bool = False, meter: Meter | None = None) -> Mill:
    """Open the project that the command line names; `meter` counts what its catalog does in this process."""
    from tidemill.mill.mill import open_project

    if _root()["server"]:
        return _connect()
    folder, options = read_project()
    return open_project(folder, options=options, create=create, meter=meter)


def begin_mill(*, new: bool, meter: Meter | None = None) -> Mill:
    """The facade for the project that the command line names, whose app file is to be deployed."""
    from tidemill.mill.mill import begin_project

    if server := _root()["server"]:
        if new:
            raise BadOption("--server", server, "the server has a catalog already; leave --new out")
        return _connect()
    folder, options = read_project()
    return begin_project(folder, options=options, new=new, meter=meter)


def open_plan() -> Mill:
    """Open the project that the command line names, to plan a deployment of its app file."""
    from tidemill.mill.mill import open_planned

    if _root()["server"]:
        return _connect()
    folder, options = read_project()
    return open_planned(folder, options=options)


def read_project() -> tuple[Path, dict[str, str]]:
    """Return the folder of the project, and the options that override its settings."""
    given = _root()
    if given["server"]:
        raise BadOption("--server", given["server"], "the command works beside the catalog only; leave the option out")
    return Path(given["project"]), {"catalog": given["catalog"]} if given["catalog"] else {}


def _connect() -> Mill:
    from tidemill.client.connect import connect

    return connect(_root()["server"], token=_read_token(), project=_root()["project"])


def _root() -> dict[str, Any]:
    options: dict[str, Any] = click.get_current_context().find_root().obj
    return options


def _read_token() -> str:
    """Return the secret of the caller. It is never an argument, which other users of the machine can read."""
    from tidemill.secret_places import NoSecret, read_secret
    from tidemill.world import World

    given, world = _root()["token"], World()
    try:
        return read_secret(world, "--token", given)
    except NoSecret:
        if given == DEFAULT_TOKEN:
            return ""
        raise


def read_file(path: Path) -> bytes:
    """Return the content of a file that an option names; of standard input for `-`."""
    from tidemill.world import World

    if str(path) == "-":
        with click.open_file("-", "rb") as stream:
            return bytes(stream.read())
    return World().disk.read_bytes(path)


new_option = click.option("--new", is_flag=True, help="Begin with an empty catalog beside the data of an earlier one.")


schedules_option = click.option(
    "--update-schedules/--keep-schedules",
    default=None,
    help="Change schedules as the app file declares, or keep them. Without the option, as the setting "
    "deploy.update_schedules says.",
)


generation_option = click.option(
    "--if-generation",
    type=click.IntRange(0),
    metavar="N",
    help="Change it only if it still has this generation; else end with exit code 3.",
)


_TRIGGER: Final = """{"type": "every", "duration": "1h"}"""
_PAYLOAD: Final = """{"rows": 3}"""


def parse_json(option: str, text: str | bytes, example: str = _TRIGGER) -> object:
    """Parse the JSON of an option, which is like `example`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        given = text if isinstance(text, str) else text.decode(errors="backslashreplace")
        raise BadOption(option, given, f"it is not JSON ({error}); write it like {example} in single quotes") from None


def parse_payload(option: str, text: str) -> dict[str, object]:
    """Parse the payload of a message, a JSON object."""
    said = parse_json(option, text, _PAYLOAD)
    if not isinstance(said, dict):
        raise BadOption(option, text, "a JSON object is wanted")
    return said


def page_options(command: Command, *, limit: int | None = 100) -> Command:
    """Add the options by which a command shows one page of a list, as a table or as JSON."""
    shown = "The most rows to show." if limit else "The most rows to show; without the option, all."
    command = click.option(
        "--after",
        default="",
        metavar="KEY",
        help="Begin after this key, which the last line of the previous page shows.",
    )(json_option(command))
    return click.option(
        "--limit", default=limit, show_default=limit is not None, type=click.IntRange(1, 1_000_000), help=shown
    )(command)


def show_page(page: Page[object], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print a page as `show_list` does, and how to see the next one.

    With `as_json` that is a line of JSON on standard error, {"next": "…"}: standard output stays one document.
    """
    show_list(page, columns, as_json=as_json, empty=empty)
    if page.next is not None:
        more = json.dumps({"next": page.next}) if as_json else f"more: add --after {shlex.quote(page.next)}"
        click.echo(more, err=as_json)


def show_list(records: Sequence[object], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print `records` as a table of `columns` (fields, in order), or all their fields as a JSON list.

    `empty` is what a person reads when there are none, with the next step.
    """
    if as_json:
        click.echo(json.dumps([to_plain(record) for record in records], indent=2))
    elif not records:
        click.echo(empty)
    else:
        rows = map(to_readable, records)
        _print_table([[_cell(row.get(column)) for column in columns] for row in rows], columns)


def show_rows(rows: Sequence[Mapping[str, object]], *, as_json: bool, empty: str) -> None:
    """Print rows of data, whose columns mean nothing to Tidemill, as a table or as a JSON list."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif not rows:
        click.echo(empty)
    else:
        _print_table([[_cell(row.get(column)) for column in columns] for row in rows], columns)


def show_one(record: object, *, as_json: bool) -> None:
    """Print all fields of a record as indented lines, or as a JSON object."""
    click.echo(json.dumps(to_plain(record), indent=2) if as_json else "\n".join(_lines(to_readable(record))))


def show_triggered(record: object, *, as_json: bool) -> None:
    """Print a run or job as `show_one` does. For people, its triggers are a table with a line for each message.

    Of the reasons for the state of a job, people see the code and the sentence.
    """
    if as_json:
        show_one(record, as_json=True)
        return
    plain: dict[str, Any] = to_readable(record)
    plain["triggers"] = [line for feed in plain["triggers"] for line in _message_lines(feed)]
    if "because" in plain:
        plain["because"] = [{"reason": one["code"], "why": one["why"]} for one in plain["because"]]
    if isinstance(cause := plain.get("triggered_by"), dict):
        plain["triggered_by"] = {name: value for name, value in cause.items() if name != "triggers"}
    show_one(plain, as_json=False)


def _message_lines(feed: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Yield a line for each message of a leaf, or one for a leaf without messages, and one for later messages."""
    fed = {"trigger": feed["trigger"], "fed": feed["why"]}
    for message in feed["messages"]:
        payload = message["flaw"] or json.dumps(message["payload"])
        yield fed | {
            "message": f"{message['topic']} {message['position']}",
            "published_at": message["published_at"],
            "event_type": message["event_type"],
            "payload": payload if len(payload) <= _MOST_SHOWN else f"{payload[: _MOST_SHOWN - 1]}…",
        }
    if feed["more"]:
        yield fed | {"message": f"and {feed['more']} later messages"}
    elif not feed["messages"]:
        yield fed


def say(record: object, sentence: str, *, as_json: bool) -> None:
    """Print what a command did: a sentence for people, the record for programs."""
    click.echo(json.dumps(to_plain(record)) if as_json else sentence)


def logs_json(mill: Mill) -> bool:
    """Return whether a process that goes on logs JSON: as the setting `log_format` says, and never on a terminal."""
    from tidemill.config import LogFormat

    return mill.project.config.log_format is LogFormat.JSON and not sys.stdout.isatty()


def report(error: TidemillError, *, as_json: bool) -> None:
    """Print an error as one line on standard error, or as a JSON object."""
    if as_json:
        document = {"code": error.code, "message": str(error), "hint": error.hint, **to_plain(error.fields())}
        click.echo(json.dumps(document), err=True)
    else:
        click.echo(f"error: {' '.join(error.sentence.split())}  [{error.code}]", err=True)


def _lines(value: object) -> list[str]:
    """Return a plain value as lines for people: a field a line, a table for a list of records."""
    if isinstance(value, dict) and value:
        width = max(map(len, value))
        lines = []
        for name, inner in value.items():
            first, *more = _lines(inner)
            lines.append(f"{name:<{width}}  {first}")
            lines += [f"{'':<{width}}  {line}" for line in more]
        return lines
    if isinstance(value, list) and value:
        if all(isinstance(inner, dict) for inner in value):
            columns = list(dict.fromkeys(name for inner in value for name in inner))
            rows = [[_cell(inner.get(column)) for column in columns] for inner in value]
            return _aligned([columns, *rows])
        if any(isinstance(inner, dict | list) for inner in value):
            return [line for inner in value for line in (_lines(inner) if isinstance(inner, dict) else [_cell(inner)])]
        return [", ".join(map(_cell, value))]
    return _cell(value).splitlines()


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(value: object) -> str:
    if value is None or value == "":
        return _NEVER
    if isinstance(value, dict):
        return ", ".join(f"{name}={_cell(inner)}" for name, inner in value.items()) or _NEVER
    if isinstance(value, list):
        # A record has commas of its own.
        between = "; " if any(isinstance(inner, dict) for inner in value) else ", "
        return between.join(map(_cell, value)) or _NEVER
    return str(value)


def _print_table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    if not sys.stdout.isatty():
        # Whole values for a pipe or file, aligned, nothing cut.
        click.echo("\n".join(_aligned([columns, *rows])))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
