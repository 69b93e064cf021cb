"""Filters of partitions as a spec writes them: the fields of keys and the kinds of changes, in plain JSON. Pure.

The fields of a key are known to its file set alone. So a spec keeps values without types: a date as text.
`read_filter` adds the types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Final, TypeAlias

from tidemill.errors import UserError
from tidemill.names import one_of
from tidemill.shapes.change_kind import ChangeKind
from tidemill.shapes.filters import Condition, KeyFilter, Range, make_filter
from tidemill.shapes.keys import KeySchema, KeyType, KeyValue

WrittenWhere: TypeAlias = Mapping[str, object]
"""Conditions by field: a value, a list of values, or an object with `lower`, `upper` or both."""

_BOUNDS: Final = ("lower", "upper")


def write_where(where: WrittenWhere, refuse: Callable[[str], UserError]) -> dict[str, object]:
    """Return the conditions in JSON, for the same conditions always the same JSON; raise `refuse(why)`."""
    if not isinstance(where, Mapping):
        raise refuse(f"where must be a dictionary of conditions by key field, not {where!r}")
    return {str(name): _write(str(name), condition, refuse) for name, condition in where.items()}


def read_filter(keys: KeySchema, where: WrittenWhere) -> KeyFilter:
    """Return the filter of these keys; `BadKey` for an unknown field or a value of a wrong type."""
    types = {field.name: field for field in keys.fields}

    def value(name: str, plain: object) -> KeyValue:
        field = types.get(name)
        if field is not None and field.type in {KeyType.DATE, KeyType.TIMESTAMP} and isinstance(plain, str):
            return field.parse(plain)
        return plain  # type: ignore[return-value]  # `make_filter` refuses another type

    def condition(name: str, plain: object) -> Condition:
        match plain:
            case Mapping():
                return Range(*(None if (bound := plain.get(side)) is None else value(name, bound) for side in _BOUNDS))
            case list():
                return [value(name, one) for one in plain]
            case _:
                return value(name, plain)

    return make_filter(keys, {name: condition(name, plain) for name, plain in where.items()})


def write_kinds(kinds: Iterable[str], refuse: Callable[[str], UserError]) -> tuple[str, ...]:
    """Return the names of these kinds, in the order of the kinds; raise `refuse(why)`."""
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise refuse(f"kinds must be a list, such as ['new'], not {kinds!r}")
    named = {one_of(ChangeKind, str(one), lambda why: refuse(f"kinds: {why}")) for one in kinds}
    if not named:
        raise refuse(f"kinds names no kind: name some of {', '.join(ChangeKind)}, or leave it out")
    return tuple(kind.value for kind in ChangeKind if kind in named)


def _write(name: str, condition: object, refuse: Callable[[str], UserError]) -> object:
    match condition:
        case Range(lower, upper):
            return _write_range(name, {"lower": lower, "upper": upper}, refuse)
        case Mapping():
            return _write_range(name, condition, refuse)
        case set() | frozenset() | list() | tuple():
            values = {_write_value(name, one, refuse) for one in condition}
            if not values:
                raise refuse(f"where has an empty list for {name!r}; name a value, or leave the field out")
            ordered = sorted(values, key=lambda one: (isinstance(one, str), one))
            return ordered if len(ordered) > 1 else ordered[0]
        case _:
            return _write_value(name, condition, refuse)


def _write_range(name: str, bounds: Mapping[str, object], refuse: Callable[[str], UserError]) -> dict[str, object]:
    given = {side: bounds[side] for side in _BOUNDS if bounds.get(side) is not None}
    if not given or not set(bounds) <= set(_BOUNDS):
        raise refuse(f"where has {dict(bounds)!r} for {name!r}; give lower, upper or both")
    return {side: _write_value(name, bound, refuse) for side, bound in given.items()}


def _write_value(name: str, value: object, refuse: Callable[[str], UserError]) -> str | int:
    match value:
        case str() | int() if not isinstance(value, bool):
            return value
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date() if not isinstance(value, datetime):
            return value.isoformat()
        case _:
            raise refuse(f"where has {value!r} for {name!r}; give a text, a whole number, a date, or a list of these")
