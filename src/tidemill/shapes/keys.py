"""Partition keys: typed values, their text in the catalog, the path that Spark gives them, and how people write them.

A key has four forms, each a one-to-one image of the typed values:

- values, a tuple in the order of the schema: `(date(2013, 1, 1), 5)`;
- `KeyText`, what the catalog stores: sorts (bytewise, as both databases do it) like the values, field by field;
- the Hive path below a write's directory: `day=2013-01-01/hour=5`, escaped exactly as Spark 4.3 does it, with
  timestamps in UTC, so that what Spark wrote can be read back;
- what people read and type in messages and on the command line: `day=2013-01-01 hour=5`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Final, NewType, TypeAlias, assert_never

from tidemill.errors import UserError
from tidemill.json_specs import shaped
from tidemill.names import advise

KeyValue: TypeAlias = str | int | date | datetime
Key: TypeAlias = tuple[KeyValue, ...]
KeyText = NewType("KeyText", str)
"""A partition key as the catalog stores it; made and read only by `KeySchema`."""

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory to which Spark maps both NULL and the empty string: never a key."""

_MAX_NAME_BYTES: Final = 255  # of one directory, on every file system in use
_MAX_FIELDS: Final = 16
_WHOLE: Final = "(whole)"  # what has no fields has one partition
_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INTEGER: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_NINES: Final = str.maketrans("0123456789", "9876543210")
# ExternalCatalogUtils.escapePathName of Spark 4.3, compared with it in tests/frames/test_spark.py.
_ESCAPED: Final = {chr(c): f"%{c:02X}" for c in (*range(1, 32), *map(ord, "\"#%'*/:=?\\\x7f{[]^"))}
_ESCAPE: Final = re.compile("[" + re.escape("".join(_ESCAPED)) + "]")
_UNESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})", re.ASCII)
# In a KeyText `!` stands between fields and `"` begins an escape: both sort below every character that is left as it
# is, so that a shorter text sorts before a longer one that begins with it, whatever field follows.
_BETWEEN: Final = "!"
_TEXT_ESCAPE: Final = re.compile('[\x01-"]')
_TEXT_UNESCAPE: Final = re.compile('"([0-9a-f]{2})', re.ASCII)
_LIKE_ESCAPES: Final = str.maketrans({character: rf"\{character}" for character in "\\%_"})
_WORD: Final = re.compile(r'([^\s=]+)=("(?:[^"\\]|\\.)*"(?=\s|$)|[^\s"]+(?=\s|$))')
_PLAIN: Final = re.compile(r'[^\s"]+')


class KeyType(StrEnum):
    """The type of a key field: text, 32-bit or 64-bit integer, day, instant in microseconds."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    DATE = "date"
    TIMESTAMP = "timestamp"


_BITS: Final = {KeyType.INT: 31, KeyType.LONG: 63}
_EXPECTS: Final = {
    KeyType.STRING: "a text",
    KeyType.INT: "an integer of 32 bits",
    KeyType.LONG: "an integer of 64 bits",
    KeyType.DATE: "a date",
    KeyType.TIMESTAMP: "a datetime with a time zone",
}


class BadKey(UserError):
    """A partition key that its file set does not take; `field` names the culprit, where there is one."""

    code = "bad_key"
    hint = "correct the key: `tidemill dataset show NAME` lists its fields and their types"

    def __init__(self, key_field: str | None, why: str) -> None:
        self.key_field = key_field
        self.why = why
        super().__init__(f"partition key: field {key_field!r} {why}" if key_field else f"partition key: {why}")


@dataclass(frozen=True, slots=True)
class KeyField:
    """A field of a partition key."""

    name: str
    type: KeyType

    def __post_init__(self) -> None:
        """Refuse a name that could not be a column and a directory at once."""
        if not _FIELD_NAME.fullmatch(self.name):
            raise BadKey(self.name, "has a bad name: use a letter or '_', then up to 63 letters, digits or '_'")

    def check(self, value: object) -> KeyValue:
        """Give `value` in the form that keys carry (instants in UTC); raise `BadKey` if it has another type."""
        match self.type, value:
            case KeyType.STRING, str():
                return self._check_text(value)
            case KeyType.INT | KeyType.LONG, int() if not isinstance(value, bool):
                bound = 1 << _BITS[self.type]
                if -bound <= value < bound:
                    return value
                raise BadKey(self.name, f"is {value}, which does not fit into {self.type}")
            case KeyType.DATE, date() if not isinstance(value, datetime):
                return value
            case KeyType.TIMESTAMP, datetime() if value.tzinfo is not None:
                return self._check_instant(value)
            case _, None:
                raise BadKey(self.name, "is null: a partition key has a value in every field")
            case _:
                raise BadKey(self.name, f"wants {_EXPECTS[self.type]}, not {value!r} ({type(value).__name__})")

    def _check_text(self, value: str) -> str:
        if not value:
            raise BadKey(self.name, "is empty: Spark writes the empty text and null to one place")
        if value == HIVE_NULL:
            raise BadKey(self.name, f"is {HIVE_NULL}, which is what Spark writes for null")
        if "\0" in value:
            raise BadKey(self.name, "has a NUL character in it")
        try:
            length = len(f"{self.name}={_escape(value)}".encode())
        except UnicodeEncodeError:
            raise BadKey(self.name, "has half a surrogate pair in it, which no file name can hold") from None
        if length > _MAX_NAME_BYTES:
            raise BadKey(
                self.name, f"is too long: it makes a directory name of {length} bytes; {_MAX_NAME_BYTES} are allowed"
            )
        return value

    def _check_instant(self, value: datetime) -> datetime:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise BadKey(self.name, f"is {value}, which lies outside the years 1 to 9999 in UTC") from None

    def parse(self, text: str) -> KeyValue:
        """Read what a person typed: a number, `2013-01-01`, `2013-01-01T05:00Z`; raise `BadKey`."""
        try:
            match self.type:
                case KeyType.STRING:
                    return self.check(text)
                case KeyType.INT | KeyType.LONG if _INTEGER.fullmatch(text):
                    return self.check(int(text))
                case KeyType.DATE if _DATE.fullmatch(text):
                    return date.fromisoformat(text)
                case KeyType.TIMESTAMP if not _DATE.fullmatch(text):
                    return self.check(datetime.fromisoformat(text))
        except ValueError as error:
            raise BadKey(self.name, f"wants {_EXPECTS[self.type]}, not {text!r}: {error}") from None
        raise BadKey(self.name, f"wants {_EXPECTS[self.type]}, not {text!r}")


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The fields of a file set's partition keys, in the order of its directories."""

    fields: tuple[KeyField, ...]

    def __post_init__(self) -> None:
        """Refuse too many fields, and names that Spark, which ignores case, would mix up."""
        if len(self.fields) > _MAX_FIELDS:
            raise BadKey(None, f"a file set has 1 to {_MAX_FIELDS} key fields, not {len(self.fields)}")
        seen: set[str] = set()
        for field in self.fields:
            if field.name.lower() in seen:
                raise BadKey(field.name, "stands there twice (upper and lower case are one to Spark)")
            seen.add(field.name.lower())

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> KeySchema:
        """Make a schema from names and types (`{"day": "date", "hour": "int"}`), in their order; raise `BadKey`."""
        if not fields:
            raise BadKey(None, f"a file set has 1 to {_MAX_FIELDS} key fields, not 0")
        return cls(tuple(KeyField(name, _key_type(name, text)) for name, text in fields.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def types(self) -> dict[str, str]:
        """Return the types by name, which `of` reads back; the order counts."""
        return {field.name: field.type.value for field in self.fields}

    def check(self, values: Mapping[str, object]) -> Key:
        """Give the key with these values by field name; a missing, extra or wrongly typed field raises `BadKey`."""
        for name in values:
            if name not in self.names:
                advice = advise(name, self.names, f"there are {', '.join(self.names)}")
                raise BadKey(name, f"is not a field of this key; {advice}")
        for name in self.names:
            if name not in values:
                raise BadKey(name, "is missing")
        return tuple(field.check(values[field.name]) for field in self.fields)

    def encode(self, key: Key) -> KeyText:
        """Give the text of `key` that sorts, bytewise, as the keys do."""
        return KeyText(_BETWEEN.join(_to_text(value) for value in key))

    def make_pattern(self, key: Key, names: Collection[str]) -> str:
        """Give the pattern for LIKE of the texts of all keys that have the values of `key` in the fields `names`."""
        named = zip(self.names, key, strict=True)
        return _BETWEEN.join(
            _to_text(value).translate(_LIKE_ESCAPES) if name in names else "%" for name, value in named
        )

    def decode(self, text: KeyText) -> Key:
        """Give the key whose `encode` is `text`; raise `BadKey` if there is none."""
        parts = text.split(_BETWEEN) if self.fields else []
        try:
            key = tuple(_from_text(field, part) for field, part in zip(self.fields, parts, strict=True))
            if self.encode(self.check(dict(zip(self.names, key, strict=True)))) == text:
                return key
        except ValueError:  # of zip, int and fromisoformat
            pass
        raise BadKey(None, f"{text!r} is not the stored form of a key of {', '.join(self.names)}")

    def to_path(self, key: Key) -> str:
        """Give the directories of `key` as Spark 4.3 writes them with time zone UTC: `day=2013-01-01/hour=5`."""
        named = zip(self.names, key, strict=True)
        return "/".join(f"{name}={_escape(_to_spark(value))}" for name, value in named)

    def from_path(self, path: str) -> Key:
        """Give the key of directories that Spark wrote; raise `BadKey` for others, null among them."""
        directories = path.split("/") if path else []
        if len(directories) != len(self.fields):
            raise BadKey(None, f"{path!r} has {len(directories)} directories for {len(self.fields)} fields")
        key = tuple(
            _from_directory(field, directory) for field, directory in zip(self.fields, directories, strict=True)
        )
        # Anything else than what Spark itself writes (hour=05; a `?` for a letter that the JVM's locale lacks) would
        # give the partition a second name.
        if self.to_path(key) != path:
            raise BadKey(None, f"{path!r} is not how Spark writes a key; it would be {self.to_path(key)!r}")
        return key

    def read(self, text: str) -> Key:
        """Read a key as `to_path` writes the key, else as people write it (`parse`); `BadKey`."""
        try:
            return self.from_path(text)
        except BadKey:
            return self.parse(text)

    def show(self, key: Key) -> str:
        """Give `key` as people read it and `parse` takes it: `day=2013-01-01 hour=5`."""
        return " ".join(f"{name}={_show(value)}" for name, value in zip(self.names, key, strict=True)) or _WHOLE

    def begin(self, text: str) -> str | None:
        """Return the text with which `encode` of each key begins that people write as beginning with `text`.

        `text` has the first fields, in order: `day=2013-01` or `day=2013-01-01/hour=5`. The last value may be the
        beginning of a text, date or time; a number is whole. None for a text that no key begins with.
        """
        words = [word.partition("=") for word in text.replace("/", " ").split()]
        if not words or [name for name, _, _ in words] != [*self.names[: len(words)]]:
            return None
        *whole, (_, _, last) = words
        field = self.fields[len(whole)]
        try:
            parts = [_to_text(one.parse(value)) for one, (_, _, value) in zip(self.fields, whole, strict=False)]
            if field.type in _BITS:
                parts.append(_to_text(field.parse(last)) + _BETWEEN * (len(words) < len(self.fields)))
            else:
                parts.append(_to_text(_unescape(last)))
        except BadKey:
            return None
        return _BETWEEN.join(parts)

    def parse(self, text: str) -> Key:
        """Read `day=2013-01-01 hour=5`, fields in any order.

        A text with spaces or quotes in it stands in double quotes, as in JSON. Raise `BadKey` for what is missing,
        extra, doubled or of the wrong type.
        """
        fields = {field.name: field for field in self.fields}
        values: dict[str, object] = {}
        for name, value in split_shown(text):
            if name in values:
                raise BadKey(name, "is given twice")
            values[name] = fields[name].parse(value) if name in fields else value
        return self.check(values)


shaped(KeySchema, dict[str, str], KeySchema.of, attrgetter("types"))

NO_KEYS: Final = KeySchema(())
"""The key of a snapshot, which has one partition: the key is `()`, and its text is empty."""


def split_shown(text: str) -> list[tuple[str, str]]:
    """Return the names and texts of a key that `show` gave, `name=value name="value in JSON"`, in order."""
    found: list[tuple[str, str]] = []
    rest = text.strip()
    while rest:
        match = _WORD.match(rest)
        if match is None:
            raise BadKey(None, f"{text!r} is no key: write name=value, several with spaces between")
        value = match[2]
        if value.startswith('"'):
            try:
                value = json.loads(value)
            except ValueError:
                raise BadKey(match[1], f"has a quoted text that cannot be read: {value}") from None
        found.append((match[1], value))
        rest = rest[match.end() :].lstrip()
    return found


def _key_type(name: str, text: str) -> KeyType:
    try:
        return KeyType(text)
    except ValueError:
        advice = advise(str(text), list(KeyType), before="; ")
        raise BadKey(name, f"has no type {text!r}: there are {', '.join(KeyType)}{advice}") from None


def _escape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED[match[0]], text)


def _unescape(text: str) -> str:
    return _UNESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _to_text(value: KeyValue) -> str:
    match value:
        case str():
            return _TEXT_ESCAPE.sub(lambda match: f'"{ord(match[0]):02x}', value)
        case int():
            # The number of digits as a letter goes first: `a5` < `b12`; below zero `Z` is one digit, and each digit
            # is turned round, so that -12 (`Y87`) sorts before -5 (`Z4`).
            digits = str(abs(value))
            if value >= 0:
                return chr(ord("a") + len(digits) - 1) + digits
            return chr(ord("Z") - len(digits) + 1) + digits.translate(_NINES)
        case datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case _:
            assert_never(value)


def _from_text(field: KeyField, text: str) -> KeyValue:
    match field.type:
        case KeyType.STRING:
            return _TEXT_UNESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
        case KeyType.INT | KeyType.LONG:
            return -int(text[1:].translate(_NINES)) if text[:1] <= "Z" else int(text[1:])
        case KeyType.DATE:
            return date.fromisoformat(text)
        case KeyType.TIMESTAMP:
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        case _:
            assert_never(field.type)


def _to_spark(value: KeyValue) -> str:
    if isinstance(value, datetime):
        whole, _, fraction = value.replace(tzinfo=None).isoformat(" ", timespec="microseconds").partition(".")
        fraction = fraction.rstrip("0")  # as Spark does
        return f"{whole}.{fraction}" if fraction else whole
    return str(value)


def _from_directory(field: KeyField, directory: str) -> KeyValue:
    name, _, escaped = directory.partition("=")
    if name != field.name:
        raise BadKey(field.name, f"is looked for in directory {directory!r}")
    text = _unescape(escaped)
    if text in ("", HIVE_NULL):
        raise BadKey(field.name, "is null or empty in some row: a partition key has a value in every field")
    # In UTC, where Spark writes none: the write sets its time zone.
    return field.parse(f"{text}Z" if field.type is KeyType.TIMESTAMP else text)


def _show(value: KeyValue) -> str:
    match value:
        case str():
            # What a terminal would obey, or show as nothing, is written as \uXXXX.
            plain = value.isprintable()
            return value if plain and _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=not plain)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return str(value)
