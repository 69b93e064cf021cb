"""The command of a button: what a person would type for the request that the button makes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Final
from urllib.parse import unquote

from tidemill.mill.routes import list_routes
from tidemill.mill.written import write_argument

_OPTIONS: Final = {("alert.silence", "duration"): "--for", ("backfill.start", "runs"): "--run"}
"""Options that have another name than the parameter."""
_OF_PROGRAM: Final = frozenset({"run.start", "backfill.start"})
"""Operations whose command names the program without an option."""


def write_command(method: str, path: str, body: str) -> str:
    """Return the command line of a request, without `tidemill`; empty if no route takes the request.

    `POST /v1/schedules/shop.nightly:suspend` is `schedule suspend shop.nightly`.
    """
    for wanted, pattern, action, command in _routes():
        found = pattern.fullmatch(path) if method == wanted else None
        if found is not None:
            words = [*command.split(), *map(unquote, found.groups())]
            for name, value in json.loads(body).items():
                words += _write(action, name, value)
            return shlex.join(words)
    return ""


def _write(action: str, name: str, value: object) -> Sequence[str]:
    """Return the words of a value in the body of a request."""
    if name == "program" and action in _OF_PROGRAM:
        return [str(value)]
    option = _OPTIONS.get((action, name), f"--{name.replace('_', '-')}")
    match value:
        case bool():
            return [option] if value else []
        case dict() if name == "arguments":
            return [word for one in value.items() for word in ("--arg", write_argument(*one))]
        case dict():
            return [
                word for dataset, things in value.items() for one in things for word in (option, f"{dataset}:{one}")
            ]
        case list():
            return [word for one in value for word in (option, _text(one))]
        case _:
            return [option, _text(value)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@cache
def _routes() -> Sequence[tuple[str, re.Pattern[str], str, str]]:
    return [
        (one.method, re.compile(re.sub(r"{\w+}", "([^/:]+)", one.path)), one.operation.action, one.operation.command)
        for one in list_routes()
        if one.operation.command
    ]
