"""Pages: a list operation returns a part of its list, and the key behind which the next part begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar, overload
from urllib.parse import quote, unquote

from tidemill.catalog.named import ALL_ROWS, GREATEST
from tidemill.epoch import from_ms, to_ms
from tidemill.errors import UserError
from tidemill.names import nearest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
S = TypeVar("S", bound=str)
K = TypeVar("K", bound=tuple[int | str | datetime, ...])

PAGE: Final = 100
"""The number of items of a page, unless the caller gives another."""
MOST: Final = 1000
"""The most items of a page that a server gives at once."""

_PLAIN: Final = " =:@+,"
"""Characters of a key that are no letters and stand for themselves."""


class BadPage(UserError):
    """A page that cannot be given."""

    code = "bad_page"

    def __init__(self, what: str, given: str, most: int | None = None) -> None:
        self.what = what
        self.given = given
        self.most = most
        numbers = "from 1 on" if most is None else f"from 1 to {most:,}"
        super().__init__(
            f"{what} {given!r} is refused",
            f"`limit` is a number {numbers}, and `after` the `next` of a page of the same list; leave `after` out for "
            "the first page",
            before=": ",
        )


class BadFilter(UserError):
    """A filter of a list with a value that there is not."""

    code = "bad_filter"

    def __init__(self, what: str, given: str, known: Sequence[str]) -> None:
        self.what = what
        self.given = given
        self.known = tuple(known)
        meant = nearest(given.lower(), by_lower := {one.lower(): one for one in known})
        advice = f"; did you mean {by_lower[meant]!r}?" if meant else ""
        super().__init__(f"{what} {given!r} is refused", f"there are {', '.join(known)}{advice}", before=": ")


@dataclass(frozen=True, slots=True)
class Page(Sequence[T_co]):
    """A part of a list, in the order of the list. `iterate` reads all pages of a list."""

    items: tuple[T_co, ...]
    next: str | None = None
    """The key of the next page, for `after`; None on the last page. Callers do not take it apart."""

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, place: int | slice) -> T_co | tuple[T_co, ...]:
        return self.items[place]


def iterate(operation: Callable[..., Page[T]], *arguments: object, **options: object) -> Iterator[T]:
    """Yield the items of all pages of a list operation: `iterate(mill.runs.list, program="shop.load")`.

    Each page is a read of its own, as the catalog is at that moment.
    """
    page = operation(*arguments, **options)
    yield from page
    while page.next is not None:
        page = operation(*arguments, **{**options, "after": page.next})
        yield from page


def check_filter(what: str, given: str, known: Iterable[S]) -> S:
    """Return the value of a filter, in capitals or not, as it is `known`; raise `BadFilter` for any other value."""
    by_lower = {one.lower(): one for one in known}
    if given.lower() not in by_lower:
        raise BadFilter(what, given, [str(one) for one in by_lower.values()])
    return by_lower[given.lower()]


def one_more(limit: int) -> int:
    """Return the number of rows to read for a page of `limit`: one more tells whether a page follows. `BadPage`."""
    if limit < 1:
        raise BadPage("limit", str(limit))
    return min(limit + 1, ALL_ROWS)


def cut(rows: Sequence[R], limit: int, key: Callable[[R], str], view: Callable[[R], T]) -> Page[T]:
    """Return the page that shows the first `limit` of `rows`; `key` makes the key of its last row."""
    shown = rows[:limit]
    return Page(tuple(view(row) for row in shown), key(shown[-1]) if len(rows) > limit else None)


def write_key(*parts: str | int | datetime) -> str:
    """Return the key of a row, by the values that order its list."""
    plain = (to_ms(part) if isinstance(part, datetime) else part for part in parts)
    return "/".join(quote(str(part), safe=_PLAIN) for part in plain)


def read_key(after: str, start: K) -> K:
    """Return the values in the key `after`, of the types of `start`; `start` where `after` is empty. `BadPage`."""
    if not after:
        return start
    parts = after.split("/")
    try:
        return type(start)(_read(part, first) for part, first in zip(parts, start, strict=True))
    except (ValueError, OverflowError):
        raise BadPage("after", after) from None


def read_name(after: str) -> str:
    """Return the key `after` of a list whose keys are plain names or ids. `BadPage` for text that no catalog holds."""
    try:
        return _text(after)
    except ValueError:
        raise BadPage("after", after) from None


def _read(part: str, like: str | int | datetime) -> str | int | datetime:
    match like:
        case int():
            number = int(part)
            if abs(number) > GREATEST:
                raise ValueError(part)
            return number
        case datetime():
            return from_ms(int(part))
        case str():
            return _text(unquote(part))


def _text(text: str) -> str:
    """Return `text`; raise `ValueError` unless both databases can compare with it."""
    text.encode()
    if "\0" in text:
        raise ValueError(text)
    return text
