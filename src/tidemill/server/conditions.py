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
_FIELDS: Final[Mapping[type, str]] = {
    ScheduleView: "generation",
    DatasetView: "generation",
    AppView: "version",
    Deployed: "version",
}
"""The field of a record that is the generation of a thing."""
_TAG: Final = re.compile(r'"(\d{1,18})"')


class BadCondition(UserError):
    """A header with a condition that is no tag of a generation, or with which the route compares nothing."""

    code = "bad_condition"
    hint = "correct the header as the reason says, or leave it out"

    def __init__(self, header: str, given: str, why: str = "") -> None:
        self.header = header
        self.given = given[:100]
        forms = 'If-Match takes the ETag of one answer, such as "7", and If-None-Match takes *'
        super().__init__(f"the header {header} {self.given!r} is refused: {why or forms}")


def tag_of(kind: object, answer: Mapping[str, object]) -> str | None:
    """Return the tag of the thing in an answer, which was made from a record of `kind`; None for a thing without one.

    An answer that was kept for a repeated request has the tag of the first time.
    """
    field = next((field for one, field in _FIELDS.items() if isinstance(kind, type) and issubclass(kind, one)), None)
    return None if field is None else f'"{answer[field]}"'


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
