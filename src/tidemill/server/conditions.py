"""Conditions of requests: the tag of a thing in an answer, and the tag that a change wants.

The tag is the generation of the thing, as `if_generation` of the facade takes it. The transaction of the change checks
the condition, not the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidemill.app.deploy import Deployed
from tidemill.errors import UserError
from tidemill.mill.apps import AppView
from tidemill.mill.datasets import DatasetView
from tidemill.mill.schedule_views import ScheduleView

IF_MATCH: Final = "if-match"
IF_NONE_MATCH: Final = "if-none-match"
_ANY: Final = "*"
_TAG: Final = re.compile(r'"(\d{1,18})"')


class BadCondition(UserError):
    """A header with a condition that is no tag of a generation, or with which the route compares nothing."""

    code = "bad_condition"

    def __init__(self, header: str, given: str, why: str = "") -> None:
        self.header = header
        self.given = given[:100]
        forms = 'If-Match takes the ETag of one answer, such as "7", and If-None-Match takes *'
        super().__init__(f"the header {header} {self.given!r} is refused: {why or forms}")


def tag_of(result: object) -> str | None:
    """Return the tag of a thing that has a generation; None for other results."""
    match result:
        case ScheduleView(generation=generation) | DatasetView(generation=generation):
            return f'"{generation}"'
        case AppView(version=version) | Deployed(version=version):
            return f'"{version}"'
        case _:
            return None


def refuse_conditions(headers: Mapping[str, str], action: str) -> None:
    """Raise `BadCondition` for a condition of a change that checks none: its caller believes in a guard."""
    for header in ("If-Match", "If-None-Match"):
        if (given := headers.get(header.lower())) is not None:
            why = f"{action} checks no condition; leave the header out"
            raise BadCondition(header, given, why)


def read_condition(headers: Mapping[str, str]) -> int | None:
    """Return the generation that a change wants, 0 for a thing that must not exist; None for any. `BadCondition`."""
    match, none_match = headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)
    if none_match is not None:
        if none_match.strip() != _ANY or match is not None:
            raise BadCondition("If-None-Match", none_match)
        return 0
    if match is None or match.strip() == _ANY:
        return None
    found = _TAG.fullmatch(match.strip())
    if found is None:
        raise BadCondition("If-Match", match)
    return int(found[1])
