"""Filters of partitions: conditions on the fields of a key. A value is equal, one of a set, or in a range.

`{"day": Range(date(2026, 1, 1)), "hour": {1, 2}}` matches the partitions that meet all conditions. A field that is not
named may have any value. A filter is checked against the keys of its file set when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidemill.names import advise
from tidemill.shapes.keys import BadKey, Key, KeyField, KeySchema, KeyText, KeyValue

_SIGNS: Final = (">=", "<", "=")
# In a KeyText `!` follows a field and `"` is the next sign: between them lies all that begins with the field.
_BEHIND: Final = '"'
ALL_KEYS: Final = KeyText("\U0010ffff")
"""Above every stored key."""


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `lower` on and below `upper`; a side that is None is open."""

    lower: KeyValue | None = None
    upper: KeyValue | None = None


Condition: TypeAlias = KeyValue | Range | frozenset[Any] | set[Any] | list[Any] | tuple[Any, ...]
"""The condition on a field: a value, a range, or a set of values."""
Where: TypeAlias = Mapping[str, Condition]


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Checked conditions on the keys of one file set; made by `make_filter` and `parse_filter`."""

    keys: KeySchema
    conditions: Mapping[str, Range | frozenset[KeyValue]]

    def accepts(self, text: KeyText) -> bool:
        """Return whether the stored key fulfils all conditions."""
        if not self.conditions:
            return True
        values = dict(zip(self.keys.names, self.keys.decode(text), strict=True))
        return all(_holds(condition, values[name]) for name, condition in self.conditions.items())

    @property
    def bounds(self) -> tuple[KeyText, KeyText]:
        """Stored keys that are accepted lie from the first on and below the second: as far as the first fields say."""
        known: Key = ()
        for field in self.keys.fields:
            match self.conditions.get(field.name):
                case frozenset() as values if len(values) == 1:
                    known = (*known, *values)
                case frozenset() as values:
                    ordered = sorted(values)
                    return self._text(*known, ordered[0]), KeyText(self._text(*known, ordered[-1]) + _BEHIND)
                case Range(lower, upper):
                    low = self._text(*known) if lower is None else self._text(*known, lower)
                    return low, self._behind(known) if upper is None else self._text(*known, upper)
                case _:
                    break
        return self._text(*known), self._behind(known)

    def to_json(self) -> dict[str, object]:
        """Return the form that `from_json` reads: values or range of each field, as stored keys of that field."""
        found: dict[str, object] = {}
        for field in self.keys.fields:
            alone = KeySchema((field,))

            def text(value: KeyValue | None, alone: KeySchema = alone) -> str | None:
                return None if value is None else alone.encode((value,))

            match self.conditions.get(field.name):
                case frozenset() as values:
                    found[field.name] = sorted(str(text(value)) for value in values)
                case Range(lower, upper):
                    found[field.name] = {"lower": text(lower), "upper": text(upper)}
        return found

    @classmethod
    def from_json(cls, keys: KeySchema, json: Mapping[str, Any]) -> KeyFilter:
        """The inverse of `to_json`; raises `BadKey` when the keys have changed since."""
        fields = {field.name: field for field in keys.fields}
        where: dict[str, Condition] = {}
        for name, given in json.items():
            alone = KeySchema((_find(fields, name),))

            def value(text: str | None, alone: KeySchema = alone) -> KeyValue | None:
                return None if text is None else alone.decode(KeyText(text))[0]

            if isinstance(given, list):
                where[name] = [value(text) for text in given]
            else:
                where[name] = Range(value(given["lower"]), value(given["upper"]))
        return make_filter(keys, where)

    def _behind(self, known: Key) -> KeyText:
        return KeyText(self._text(*known) + _BEHIND) if known else ALL_KEYS

    def _text(self, *values: KeyValue) -> KeyText:
        return self.keys.encode(values)


def choose(keys: KeySchema, where: Where | Sequence[str] | None) -> KeyFilter:
    """The filter that is meant: in values (`make_filter`), or as people write it (`parse_filter`)."""
    return make_filter(keys, where) if where is None or isinstance(where, Mapping) else parse_filter(keys, where)


def make_filter(keys: KeySchema, where: Where | None) -> KeyFilter:
    """The filter that `where` says; raises `BadKey` for an unknown field or a value of the wrong type."""
    fields = {field.name: field for field in keys.fields}
    return KeyFilter(keys, {name: _check(_find(fields, name), given) for name, given in (where or {}).items()})


def parse_filter(keys: KeySchema, texts: Sequence[str]) -> KeyFilter:
    """Read `day=2026-01-01`, `day>=2026-01-01`, `day<2026-02-01`; the same field again with `=` means one of them.

    Raises `BadKey`.
    """
    fields = {field.name: field for field in keys.fields}
    where: dict[str, Condition] = {}
    for text in texts:
        name, sign, value = _split(text)
        parsed = _find(fields, name).parse(value)
        before = where.get(name)
        match sign, before:
            case "=", None | set():
                where[name] = {parsed, *(before or ())}
            case ">=", None | Range(lower=None):
                where[name] = Range(parsed, before.upper if isinstance(before, Range) else None)
            case "<", None | Range(upper=None):
                where[name] = Range(before.lower if isinstance(before, Range) else None, parsed)
            case _:
                raise BadKey(name, f"has conditions that do not go together: {', '.join(texts)}")
    return make_filter(keys, where)


def _split(text: str) -> tuple[str, str, str]:
    found = [(text.find(sign), sign) for sign in _SIGNS if sign in text]
    if not found:
        raise BadKey(None, f"{text!r} is no condition: write name=value, name>=value or name<value")
    _, sign = min(found, key=lambda one: (one[0], _SIGNS.index(one[1])))
    name, _, value = text.partition(sign)
    return name.strip(), sign, value.strip()


def _find(fields: Mapping[str, KeyField], name: str) -> KeyField:
    if name not in fields:
        raise BadKey(name, f"is not a field of this key; {advise(name, fields, _known(fields))}")
    return fields[name]


def _known(fields: Mapping[str, KeyField]) -> str:
    return f"there are {', '.join(fields)}"


def _check(field: KeyField, given: Condition) -> Range | frozenset[KeyValue]:
    match given:
        case Range(None, None):
            raise BadKey(field.name, "has a range without bounds: leave the field out")
        case Range(lower, upper):
            low = None if lower is None else field.check(lower)
            high = None if upper is None else field.check(upper)
            if low is not None and high is not None and not low < high:  # type: ignore[operator]  # of one type
                raise BadKey(field.name, f"has a range in which nothing lies: from {low} on, below {high}")
            return Range(low, high)
        case set() | frozenset() | list() | tuple():
            if not given:
                raise BadKey(field.name, "has a set without values, which nothing is one of")
            return frozenset(field.check(value) for value in given)
        case _:
            return frozenset({field.check(given)})


def _holds(condition: Range | frozenset[KeyValue], value: KeyValue) -> bool:
    if isinstance(condition, frozenset):
        return value in condition
    lower, upper = condition.lower, condition.upper
    return (lower is None or value >= lower) and (upper is None or value < upper)  # type: ignore[operator]  # of one type
