"""Values: what programs get as arguments, and what the nodes of a workflow pass on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from tidemill.errors import UserError
from tidemill.names import check_name
from tidemill.texts import printable

Value: TypeAlias = str | int | float | bool

MOST_VALUES: Final = 100
MOST_VALUE_CHARACTERS: Final = 3_900
"""The most characters of all values of a run as JSON.

The message about the end of a workflow has the values of at most 100 nodes, by their full names, and its arguments.
"""


class BadValue(UserError):
    """A value that a run cannot put on record."""

    code = "bad_value"

    hint = "put a short text or a number, and write larger data to a data set"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"value {name!r} is refused: {why}")


def put_value(values: dict[str, Value], name: str, value: Value, node: str = "") -> None:
    """Add a value to those of a run, or replace it. `BadName`; `BadValue` for another type, or for too much.

    `node` is the node of a workflow that puts the value.
    """
    check_name("value", name)
    if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise BadValue(name, f"{value!r} is no text, number, true or false")
    if isinstance(value, str) and printable(value) != value:
        raise BadValue(name, "it is not UTF-8, or has a NUL")
    changed = {**values, name: value}
    if len(changed) > MOST_VALUES:
        raise BadValue(name, f"a run has at most {MOST_VALUES} values")
    if len(json.dumps(name_values({node: changed}) if node else changed)) > MOST_VALUE_CHARACTERS:
        raise BadValue(name, f"all values of a run together have at most {MOST_VALUE_CHARACTERS} characters")
    values[name] = value


def name_values(nodes: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    """Return the values of the nodes of a workflow by their full names, such as `fetch.rows`."""
    return {f"{node}.{name}": value for node, values in nodes.items() for name, value in values.items()}
