"""Arguments and chosen input as people write them, in a command or in a form: `level=2`, `clicks:day=2026-01-01`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidemill.errors import UserError


class BadOption(UserError):
    """An option that cannot be read."""

    code = "bad_option"

    def __init__(self, what: str, given: str, cure: str) -> None:
        self.what = what
        self.given = given
        self.cure = cure
        super().__init__(f"{what} {given!r} is refused", cure, before=": ")


def read_argument(text: str) -> tuple[str, object]:
    """Return name and value of `NAME=VALUE`, where VALUE may be JSON. `BadOption`."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadOption("argument", text, "write it as NAME=VALUE")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, or 3,000 brackets
        return name, value


def write_argument(name: str, value: object) -> str:
    """Return the text of which `read_argument` reads the name and the value."""
    plain = f"{name}={value}"
    return plain if isinstance(value, str) and read_argument(plain) == (name, value) else f"{name}={json.dumps(value)}"


def read_chosen(option: str, example: str, chosen: Iterable[str]) -> dict[str, list[str]]:
    """Return the things in texts `DATASET:THING`, by the data set. `BadOption`."""
    found: dict[str, list[str]] = {}
    for one in chosen:
        dataset, colon, thing = one.partition(":")
        if not (dataset and colon and thing):
            raise BadOption(option, one, f"it has no data set before a colon: write {example!r}")
        found.setdefault(dataset, []).append(thing)
    return found
