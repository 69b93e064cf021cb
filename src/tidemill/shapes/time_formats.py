"""Times as texts, by Java's letters for them: read strictly, one text one time, or none. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Final, TypeAlias

from tidemill.errors import UserError

DEFAULT_FORMATTER: Final = "y-M-d[ H:m:s[.S]]"

_LETTERS: Final[Mapping[str, str]] = {
    "y": "year",
    "u": "year",
    "M": "month",
    "d": "day",
    "D": "day_of_year",
    "H": "hour",
    "m": "minute",
    "s": "second",
    "S": "fraction",
}
_WIDEST: Final = {"year": 4, "month": 2, "day": 2, "day_of_year": 3, "hour": 2, "minute": 2, "second": 2, "fraction": 9}
_MEANT: Final = {
    "h": "H (hours from 0 to 23): a 12-hour clock makes midnight of noon",
    "K": "H (hours from 0 to 23)",
    "k": "H (hours from 0 to 23)",
    "Y": "y: the year of the week is another one around New Year",
    "w": "M and d",
    "a": "H (hours from 0 to 23)",
    "E": "M and d",
    "L": "M",
    "n": "S",
}
_COARSER: Final = {"month": "year", "hour": "day", "minute": "hour", "second": "minute", "fraction": "second"}

_PIECE: Final = re.compile(r"'(?:[^']|'')*'|[A-Za-z]+|[^A-Za-z]")


class BadPartitionTime(UserError):
    """A zone, an interval, a pattern or a formatter that cannot be."""

    code = "bad_partition_time"
    hint = "correct the declaration of the partition time, and deploy again"

    def __init__(self, what: str, given: str, why: str) -> None:
        self.what = what
        self.given = given
        self.why = why
        super().__init__(f"{what} {given!r} is refused: {why}")


_Refusal: TypeAlias = Callable[[str], BadPartitionTime]


def check_formatter(formatter: str) -> None:
    """Raise `BadPartitionTime` for letters that do not name one time."""
    _compile(formatter)


def read_time(formatter: str, text: str) -> datetime | None:
    """The naive time that `text` says; None when it is not of this form, or no time (a month 13)."""
    match = _compile(formatter).fullmatch(text)
    if match is None:
        return None
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    year = int(found["year"]) if "year" in found else 2000 + int(found["short_year"])
    fraction = found.get("fraction", "").ljust(6, "0")
    if fraction[6:].strip("0"):
        return None  # finer than a microsecond
    hour, minute, second = (int(found.get(part, 0)) for part in ("hour", "minute", "second"))
    month, day = int(found.get("month", 1)), int(found.get("day", 1))
    try:
        time = datetime(year, month, day, hour, minute, second, int(fraction[:6]))  # noqa: DTZ001  # a wall-clock time
        if "day_of_year" in found:
            time += timedelta(days=int(found["day_of_year"]) - 1)
    except (ValueError, OverflowError):
        return None
    return time if time.year == year else None


@lru_cache(maxsize=1000)
def _compile(formatter: str) -> re.Pattern[str]:
    """A pattern with a group for each field; `BadPartitionTime` for letters that do not name one time."""

    def refuse(why: str) -> BadPartitionTime:
        return BadPartitionTime("timestamp formatter", formatter, why)

    fields: set[str] = set()
    pattern, depth = "", 0
    for piece in _PIECE.findall(formatter):
        if piece in "[]":
            depth += 1 if piece == "[" else -1
            pattern += "(?:" if piece == "[" else ")?"
            if depth < 0:
                raise refuse("a ']' stands there without '['")
        elif piece == "'":
            raise refuse("a quote has no end")
        elif piece.startswith("'"):
            pattern += re.escape("'" if piece == "''" else piece[1:-1].replace("''", "'"))
        elif piece.isalpha():
            pattern += "".join(_group(letter, len(list(run)), fields, refuse) for letter, run in groupby(piece))
        else:
            pattern += re.escape(piece)
    if depth:
        raise refuse("a '[' has no end")
    _check_fields(fields, refuse)
    return re.compile(pattern)


def _group(letter: str, count: int, fields: set[str], refuse: _Refusal) -> str:
    """The digits of one field, which is added to `fields`."""
    field = _LETTERS.get(letter)
    if field is None:
        meant = _MEANT.get(letter)
        advice = f"use {meant}" if meant else f"there are {', '.join(_LETTERS)}; quote other text: 'T'"
        raise refuse(f"the letter {letter!r} is not for times of partitions: {advice}")
    if field in fields:
        raise refuse(f"it has the {field} twice")
    fields.add(field)
    # Of two digits it is a year of this century.
    name = "short_year" if (field, count) == ("year", 2) else field
    return f"(?P<{name}>[0-9]{_width(field, letter, count, refuse)})"


def _width(field: str, letter: str, count: int, refuse: _Refusal) -> str:
    if count == 1:
        return f"{{1,{_WIDEST[field]}}}"
    allowed = {2, 4} if field == "year" else set(range(2, _WIDEST[field] + 1))
    if count not in allowed:
        raise refuse(f"{letter * count!r} is not known: use {letter * max(allowed)!r}")
    return f"{{{count}}}"


def _check_fields(fields: set[str], refuse: _Refusal) -> None:
    """Each field needs the coarser one: minutes without hours, or a day without its month, name no time."""
    days = {"day", "day_of_year"} & fields
    for field in fields:
        coarser = _COARSER.get(field)
        if (coarser == "day" and not days) or (coarser not in {None, "day"} and coarser not in fields):
            raise refuse(f"it has the {field} without the {coarser}")
    if "year" not in fields:
        raise refuse("it has no year")
    if "day" in fields and "month" not in fields:
        raise refuse("it has the day without the month")
    if "day_of_year" in fields and fields & {"day", "month"}:
        raise refuse("D, the day of the year, goes without M and d")
