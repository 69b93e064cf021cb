"""Records: rows of the catalog as the classes that the rooms declare.

A record is a frozen dataclass or a `NamedTuple` with a field for each column of its statement, by name. The type hint
of a field says how its column is read: a `NewType`, a `StrEnum`, `bool`, an aware `datetime` from epoch milliseconds,
a `timedelta` from milliseconds, JSON text as a tuple, a mapping or a spec, a class with its own `decode`. A field
without a column, whose type is a dataclass, is made of columns of the same row. The decoder of a class is made once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemill.catalog.named import Call, Row, Statement
from tidemill.epoch import from_ms, to_ms
from tidemill.errors import Internal
from tidemill.json_specs import read_text

R = TypeVar("R")

_SHOWN: Final = 60
_UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError)
"""Errors of reading a value. A time outside the years 1 to 9999 is an `OverflowError`."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class Look(NamedTuple):
    """Answers of several reads in their order, each None if it found nothing, and the time of the catalog."""

    now: datetime
    found: Row
    statements: Sequence[Statement[...]]
    """The statements of the reads. They name an answer that cannot be read."""

    @classmethod
    def of(cls, row: Row, calls: Sequence[Call]) -> Look:
        """Return the look at `calls` whose statement gave `row`: the time, and then the answers."""
        return cls(from_ms(int(str(row[0]))), row[1:], [call.statement for call in calls])

    def time(self, number: int) -> datetime | None:
        """Return the answer with this number as a time. Raises `UnfitColumn`."""
        answer = self.found[number]
        try:
            return None if answer is None else from_ms(int(str(answer)))
        except _UNREADABLE:
            statement = self.statements[number]
            raise _unfit(statement, statement.gives[0], answer, datetime) from None

    def times(self) -> list[datetime]:
        """Return all answers, each of them a time, without those that are None. Raises `UnfitColumn`."""
        return [at for number in range(len(self.found)) if (at := self.time(number)) is not None]


def to_stored(value: object) -> int:
    """Return a time as the catalog keeps it, in milliseconds; the other types of a parameter need no change."""
    match value:
        case datetime():
            return to_ms(value)
        case timedelta():
            return value // _MILLISECOND
        case _:
            raise Internal(f"a parameter cannot be {value!r}")


def stored_times() -> Callable[[datetime | None], int | None]:
    """Return a function that gives a time as the catalog keeps it, and converts each time once.

    For the rows of a batch, which have few times: to convert the times of each row takes as long as to send the row.
    """
    return cache(lambda at: None if at is None else to_ms(at))


# `json.dumps` makes an encoder at each call that names a default.
_ENCODER: Final = json.JSONEncoder(default=to_stored)


def to_json(value: object) -> str:
    """Return the JSON text of a parameter: the rows of a row set, or an object; times as the catalog keeps them."""
    return _ENCODER.encode(value)


class UnfitColumn(Internal):
    """A column holds a value that the type of its field does not have."""

    code = "unfit_column"

    def __init__(self, statement: str, column: str, value: str, wanted: str) -> None:
        self.statement = statement
        self.column = column
        self.value = value
        self.wanted = wanted
        super().__init__(
            f"statement {statement} gives {column} = {value}, which is no {wanted}: a newer Tidemill, or a person, "
            "has changed the catalog",
            "upgrade this Tidemill, or run `tidemill catalog fsck`",
        )


def _unfit(statement: Statement[...], column: str, value: object, wanted: Any) -> UnfitColumn:  # noqa: ANN401
    name = getattr(wanted, "__name__", str(wanted))
    return UnfitColumn(statement.name, column, repr(value)[:_SHOWN], name)


class Decoder(Generic[R]):
    """Decoder from the rows of one statement to records of one class."""

    def __init__(self, statement: Statement[...], kind: type[R]) -> None:
        self._make = _part(statement, kind)

    def __call__(self, rows: Sequence[Row]) -> list[R]:
        """Return a record for each row.

        Thousands of rows are decoded column by column, since C then does most of the work. One row, which most
        statements give, is decoded by itself: a record of 13 columns takes half of the time.
        """
        if len(rows) == 1:
            return [self._make.one(rows[0])]
        return list(self._make.all(list(zip(*rows, strict=True)))) if rows else []


_decoders: Final[dict[tuple[Statement[...], object], Decoder[Any]]] = {}


def decoder_of(statement: Statement[...], kind: type[R]) -> Decoder[R]:
    """Return the decoder of `kind` for `statement`; an error when columns and fields differ."""
    decoder = _decoders.get((statement, kind))
    if decoder is None:
        decoder = _decoders[statement, kind] = Decoder(statement, kind)
    return decoder


_Columns = Sequence[Sequence[Any]]


class _Part(Protocol):
    """Decoder of one column of a statement, or of several."""

    def one(self, row: Row) -> Any:  # noqa: ANN401
        """Return the value of one row."""

    def all(self, columns: _Columns) -> Iterable[Any]:
        """Return the values of all rows, which are at least one."""


# Type hints are of no class of their own: `tuple[int, str]`, `str | None`.
def _part(statement: Statement[...], kind: Any) -> _Part:  # noqa: ANN401
    if get_origin(kind) is tuple and Ellipsis not in get_args(kind):
        if len(hints := get_args(kind)) != len(statement.gives):
            raise Internal(f"statement {statement.name} gives {statement.gives}, not {len(hints)} columns")
        return _Zipped([_Column(statement, place, hint) for place, hint in enumerate(hints)])
    if not _is_record(kind):
        if len(statement.gives) != 1:
            raise Internal(f"statement {statement.name} gives {statement.gives}, not one column")
        return _Column(statement, 0, kind)
    unread = set(statement.gives)
    part = _record(statement, kind, unread)
    if unread:
        raise Internal(f"{kind.__name__} has no field for {sorted(unread)} of statement {statement.name}")
    return part


def _record(statement: Statement[...], kind: Any, unread: set[str]) -> _Part:  # noqa: ANN401
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else list(kind._fields)
    parts: dict[str, _Part] = {}
    own = unread.intersection(names)
    unread -= own  # a record within this one is made of what is left
    for name in names:
        if name in own:
            parts[name] = _Column(statement, statement.gives.index(name), hints[name])
        elif is_dataclass(hints[name]):
            parts[name] = _record(statement, hints[name], unread)
        elif not _has_default(kind, name):
            raise Internal(f"statement {statement.name} gives no {name}, which {kind.__name__} needs")
    if list(parts) == names[: len(parts)]:
        return _Mapped(kind, list(parts.values()))
    return _Mapped(lambda *values: kind(**dict(zip(parts, values, strict=True))), list(parts.values()))


class _Zipped:
    """Decoder to tuples."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts

    def one(self, row: Row) -> tuple[Any, ...]:
        return tuple([part.one(row) for part in self._parts])

    def all(self, columns: _Columns) -> Iterable[tuple[Any, ...]]:
        return zip(*[part.all(columns) for part in self._parts], strict=True)


class _Mapped:
    """Decoder to records, which `make` makes of the values of `parts`."""

    def __init__(self, make: Callable[..., Any], parts: Sequence[_Part]) -> None:
        self._make = make
        self._parts = parts

    def one(self, row: Row) -> Any:  # noqa: ANN401
        return self._make(*[part.one(row) for part in self._parts])

    def all(self, columns: _Columns) -> Iterable[Any]:
        return map(self._make, *[part.all(columns) for part in self._parts])


def _is_record(kind: Any) -> bool:  # noqa: ANN401
    return (is_dataclass(kind) and not hasattr(kind, "decode")) or hasattr(kind, "_fields")


def _has_default(kind: Any, name: str) -> bool:  # noqa: ANN401
    if not is_dataclass(kind):
        return name in kind._field_defaults
    field = next(field for field in fields(kind) if field.name == name)
    return field.default is not MISSING or field.default_factory is not MISSING


class _Column:
    """Column of a result, decoded to the type of a record's field."""

    def __init__(self, statement: Statement[...], place: int, hint: Any) -> None:  # noqa: ANN401
        self._statement = statement
        self._place = place
        self._hint = hint
        optional = get_origin(hint) in {Union, UnionType} and NoneType in get_args(hint)
        if optional:
            (hint,) = (one for one in get_args(hint) if one is not NoneType)
        stored, self._read = _reading(hint)
        self._stored = stored | {NoneType} if optional else stored
        # NULL where JSON is expected is an empty list or object.
        self._null = None if optional or self._read is None or NoneType not in stored else self._read("null")

    def one(self, row: Row) -> Any:  # noqa: ANN401
        value = row[self._place]
        if type(value) not in self._stored:
            (value,) = self._stored_values([value])
        if (read := self._read) is None:
            return value
        if value is None:
            return self._null
        try:
            return read(value)
        except _UNREADABLE:
            raise self._unfit(value) from None

    def all(self, columns: _Columns) -> Iterable[Any]:
        column = columns[self._place]
        kinds = set(map(type, column))
        if not kinds <= self._stored:
            column = self._stored_values(column)
        if (read := self._read) is None:
            return column
        try:
            if read is from_ms:  # rows that are due at one time, or were made at one, share that time
                known = {value: self._null if value is None else read(value) for value in set(column)}
                return map(known.__getitem__, column)
            if NoneType in kinds:
                return [self._null if value is None else read(value) for value in column]
            return [read(value) for value in column]
        except _UNREADABLE:
            raise self._find_unfit(column) from None

    def _stored_values(self, column: Sequence[Any]) -> Sequence[Any]:
        column = [int(value) if isinstance(value, Decimal) else value for value in column]  # a sum of PostgreSQL
        if not self._stored.issuperset(map(type, column)):
            raise self._unfit(next(value for value in column if type(value) not in self._stored))
        return column

    def _find_unfit(self, column: Sequence[Any]) -> UnfitColumn:
        for value in column:
            try:
                self._read is None or value is None or self._read(value)
            except _UNREADABLE:
                return self._unfit(value)
        raise Internal(f"{self._statement.name}: no value of {self._statement.gives[self._place]} is unfit")

    def _unfit(self, value: object) -> UnfitColumn:
        return _unfit(self._statement, self._statement.gives[self._place], value, self._hint)


def _reading(hint: Any) -> tuple[frozenset[type], Callable[[Any], object] | None]:  # noqa: ANN401
    """Return the types that a column of `hint` is stored as, and what reads one value; None for the value itself."""
    while (below := getattr(hint, "__supertype__", None)) is not None:
        hint = below
    if hint in _READINGS:
        stored, read = _READINGS[hint]
        return frozenset(stored), read
    if hasattr(hint, "decode"):
        return frozenset({bytes, str}), hint.decode
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        # A look-up: a call of the class takes eight times as long.
        return frozenset({str}), {option.value: option for option in hint}.__getitem__
    if (origin := get_origin(hint) or hint) in _CONTAINERS:
        return frozenset({str, NoneType}), _CONTAINERS[origin]
    return frozenset({str}), partial(read_text, hint)


# Most lists and objects are empty: to parse them takes a third of the time of a list of runs (measured).
def _read_list(text: str) -> tuple[object, ...]:
    return () if text == "[]" else tuple(json.loads(text) or ())


def _read_object(text: str) -> Mapping[str, object]:
    return {} if text == "{}" else dict(json.loads(text) or {})


_FLAGS: Final = {0: False, 1: True}
_READINGS: Final[Mapping[object, tuple[tuple[type, ...], Callable[[Any], object] | None]]] = {
    int: ((int,), None),
    str: ((str,), None),
    bytes: ((bytes,), None),
    bool: ((int, bool), _FLAGS.__getitem__),
    datetime: ((int,), from_ms),
    timedelta: ((int,), _MILLISECOND.__mul__),
}
_CONTAINERS: Final[Mapping[object, Callable[[str], object]]] = {
    tuple: _read_list,
    Mapping: _read_object,
}
