"""The statements about tables and watermarks: `CREATE`, `ALTER`, `DROP`, `SHOW TABLES`, `DESCRIBE`, `SELECT`, `SET`.

The parser reads word by word, so that an error names its place and what was expected there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlglot.tokenizer_core import Token, TokenType

from tidemill.lake.fileset.columns import to_fields
from tidemill.names import nearest
from tidemill.shapes.partition_time import Zone
from tidemill.shapes.time_formats import BadPartitionTime
from tidemill.sql.bare_select import TableQuery, read_select
from tidemill.sql.dialect import BadStatement, tokenize
from tidemill.sql.windows import WindowQuery, read_query

_TYPES: Final[Mapping[str, str]] = {
    "STRING": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "BYTE": "byte",
    "SMALLINT": "short",
    "SHORT": "short",
    "INT": "integer",
    "INTEGER": "integer",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "BYTES": "binary",
    "DECIMAL": "decimal",
    "DEC": "decimal",
    "NUMERIC": "decimal",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
}
"""Spark's names of column types, by the names of Hive, Flink and Spark."""
_NESTED: Final = ("ARRAY", "MAP", "STRUCT", "ROW")
_KEYS: Final[Mapping[str, str]] = {
    "string": "string",
    "integer": "int",
    "short": "int",
    "byte": "int",
    "long": "long",
    "date": "date",
    "timestamp": "timestamp",
}
"""Types of columns that may be keys of partitions."""
_ZONES: Final = ("table.local-time-zone", "spark.sql.session.timeZone")
"""The settings of Flink and of Spark for the time zone of the session."""


ColumnType: TypeAlias = str | Mapping[str, object]
"""The type of a column in Spark's JSON: a name, or an object for arrays, maps and structs."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A file set with columns; `keys` have types that keys can have. `watermark` is its column of time."""

    name: str
    columns: Mapping[str, ColumnType]
    keys: Mapping[str, str]
    options: Mapping[str, str]
    watermark: str | None
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class SetWatermark:
    """`ADD` (there must be none) or `MODIFY` (there must be one) the watermark of a table."""

    name: str
    column: str
    modify: bool
    if_exists: bool


@dataclass(frozen=True, slots=True)
class DropWatermark:
    """Take the watermark of a table away."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetOptions:
    """Give options of a table; the others stay."""

    name: str
    options: Mapping[str, str]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Take options of a table away."""

    name: str
    options: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Describe:
    """Show the columns of a table."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowTables:
    """List the tables of a namespace, None for that of plain names."""

    namespace: str | None


@dataclass(frozen=True, slots=True)
class DropTable:
    """Drop a table that nothing uses."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Select:
    """Compute rows once, and show them."""

    query: WindowQuery | TableQuery


@dataclass(frozen=True, slots=True)
class Insert:
    """Declare the window program that `text` says. `name` is that of its output without the namespace.

    Blanks before the statement say its place in a file.
    """

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Show what a statement would compute and read next."""

    statement: Insert | Select


@dataclass(frozen=True, slots=True)
class DropProgram:
    """Drop a program that an INSERT has declared."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetZone:
    """Set the time zone of the session, which has the statements that follow in the same text."""

    zone: str


Alteration: TypeAlias = SetWatermark | DropWatermark | SetOptions | ResetOptions
Query: TypeAlias = Select | Insert
Statement: TypeAlias = (
    CreateTable | DropTable | Alteration | Describe | ShowTables | Query | Explain | DropProgram | SetZone
)


def read_statement(text: str) -> Statement:
    """Parse `text`; `BadStatement` names line and column of an error."""
    words = _Words(text)
    match words.one_of(
        "SELECT", "WITH", "INSERT", "EXPLAIN", "CREATE", "ALTER", "DROP", "SHOW", "DESCRIBE", "DESC", "SET"
    ):
        case "SELECT" | "WITH" | "INSERT" as verb:
            return _read_query(verb, text)
        case "EXPLAIN":
            first = tokenize(text)[0]
            blanked = f"{text[: first.start]}{' ' * len(first.text)}{text[first.end + 1 :]}"
            return Explain(_read_query(words.one_of("SELECT", "WITH", "INSERT"), blanked))
        case verb:
            statement = _read(words, verb)
            words.end()
            return statement


def read_types(columns: Mapping[str, str]) -> dict[str, ColumnType]:
    """Return the types of columns that texts say, by the names of the columns; `BadStatement` for an unknown type."""
    return {name: _type(_Words(kind)) for name, kind in columns.items()}


def read_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the types of partition keys that Hive names, by the names of the keys; `BadStatement` for other types."""
    return {name: _key(words := _Words(kind), name, _name_of(_type(words))) for name, kind in keys.items()}


def _read_query(verb: str, text: str) -> Query:
    if verb != "INSERT":
        return Select(read_select(text))
    return Insert(text, read_query(text).sink.rpartition(".")[2])


def _read(words: _Words, verb: str) -> Statement:
    match verb:
        case "CREATE":
            words.expect("TABLE")
            return _create(words)
        case "ALTER":
            words.expect("TABLE")
            return _alter(words)
        case "DROP":
            kind = DropTable if words.one_of("TABLE", "PROGRAM") == "TABLE" else DropProgram
            if_exists = _if_exists(words)
            return kind(words.table(), if_exists)
        case "SHOW":
            words.expect("TABLES")
            named = words.skip("IN") or words.skip("FROM")
            return ShowTables(words.name("a namespace") if named else None)
        case "SET":
            return _set(words)
        case _:
            words.skip("TABLE")
            return Describe(words.table())


def _set(words: _Words) -> SetZone:
    if words.skip("TIME"):
        words.expect("ZONE")
    else:
        name = words.setting()
        if name not in _ZONES:
            known = f"'{_ZONES[0]}' = '…' or {_ZONES[1]} = '…'"
            raise words.wrong(f"there is no setting {name}: write SET TIME ZONE '…', or the same as {known}", name)
        words.expect("=")
    name = words.text("a time zone")
    try:
        return SetZone(Zone(name).name)
    except BadPartitionTime as error:
        raise words.wrong(str(error), name) from None


def _if_exists(words: _Words) -> bool:
    if not words.skip("IF"):
        return False
    words.expect("EXISTS")
    return True


def _create(words: _Words) -> CreateTable:
    if_not_exists = words.skip("IF")
    if if_not_exists:
        words.expect("NOT")
        words.expect("EXISTS")
    name = words.table()
    columns, watermark = _columns(words)
    keys: dict[str, str] = {}
    options: dict[str, str] = {}
    while not words.done:
        match words.one_of("PARTITIONED", "WITH", "TBLPROPERTIES", "COMMENT", "STORED"):
            case "PARTITIONED":
                words.expect("BY")
                keys = _keys(words, columns)
            case "COMMENT":
                words.text("a comment")
            case "STORED":
                words.expect("AS")
                options["format"] = words.name("a format").lower()
            case _:
                options |= _options(words)
    if not keys:
        raise words.wrong("the table needs PARTITIONED BY (…): a watermark follows from the times of partitions")
    return CreateTable(
        name, {k: v for k, v in columns.items() if k not in keys}, keys, options, watermark, if_not_exists
    )


def _columns(words: _Words) -> tuple[dict[str, ColumnType], str | None]:
    columns: dict[str, ColumnType] = {}
    watermark: str | None = None
    words.expect("(")
    while True:
        if words.peek("WATERMARK"):
            if watermark is not None:
                raise words.wrong("a table has one watermark")
            watermark = _watermark(words)
        else:
            name = words.name("a column")
            if name.lower() in {known.lower() for known in columns}:
                raise words.wrong(f"the column {name} stands there twice")
            columns[name] = _type(words)
        if not words.skip(","):
            break
    words.expect(")")
    if watermark is not None:
        watermark = _check_time(words, watermark, columns)
    return columns, watermark


def _check_time(words: _Words, column: str, columns: Mapping[str, ColumnType]) -> str:
    found = next((name for name in columns if name.lower() == column.lower()), None)
    if found is None:
        meant = nearest(column, columns)
        advice = f"did you mean {meant}?" if meant else f"there are {', '.join(columns)}"
        raise words.wrong(f"the watermark is for {column}, which is no column: {advice}", column)
    kind = _name_of(columns[found])
    if not kind.startswith("timestamp"):
        why = f"the watermark is for {found}, of type {kind}: it must be TIMESTAMP or TIMESTAMP_NTZ"
        raise words.wrong(why, column)
    return found


def _watermark(words: _Words) -> str:
    words.expect("WATERMARK")
    words.expect("FOR")
    column = words.name("the column of time")
    words.expect("AS")
    if not words.skip("SOURCE_WATERMARK"):
        raise words.wrong("SOURCE_WATERMARK is wanted: watermarks by an expression over rows are not there")
    if words.skip("("):
        words.expect(")")
    return column


def _type(words: _Words) -> ColumnType:
    given = words.name("a type").upper()
    kind = _nested(words, given) if given in _NESTED else _simple(words, given)
    if words.skip("NOT"):
        words.expect("NULL")
    if words.skip("COMMENT"):
        words.text("a comment")
    return kind


def _nested(words: _Words, given: str) -> ColumnType:
    """Read what is between the brackets of an array, a map or a struct, which Flink calls a row."""
    words.expect("<")
    kind: dict[str, object]
    match given:
        case "ARRAY":
            kind = {"type": "array", "elementType": _type(words), "containsNull": True}
        case "MAP":
            key = _type(words)
            words.expect(",")
            kind = {"type": "map", "keyType": key, "valueType": _type(words), "valueContainsNull": True}
        case _:
            fields: dict[str, ColumnType] = {}
            while not fields or words.skip(","):
                name = words.name("a field")
                if name.lower() in {known.lower() for known in fields}:
                    raise words.wrong(f"the field {name} stands there twice")
                words.skip(":")
                fields[name] = _type(words)
            kind = {"type": "struct", "fields": to_fields(fields)}
    words.expect(">")
    return kind


def _name_of(kind: ColumnType) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _simple(words: _Words, given: str) -> str:
    known = _TYPES.get(given)
    if known is None:
        meant = nearest(given, [*_TYPES, *_NESTED])
        raise words.wrong(f"the type {given} is not known" + (f": did you mean {meant}?" if meant else ""))
    numbers: list[int] = []
    if given == "DOUBLE":
        words.skip("PRECISION")
    if words.skip("("):
        while True:
            numbers.append(words.number())
            if not words.skip(","):
                break
        words.expect(")")
    if known == "decimal":
        precision, scale = (*numbers, 10, 0)[:2] if numbers else (10, 0)
        known = f"decimal({precision},{scale if len(numbers) > 1 else 0})"
    elif known.startswith("timestamp") and numbers and numbers[0] > 6:
        raise words.wrong(f"{given}({numbers[0]}) is finer than a microsecond: use 6 at most")
    if given == "TIMESTAMP":
        # Flink's TIMESTAMP(3) has no time zone; Hive's timestamp has one.
        known = _zone_of(words) or ("timestamp_ntz" if numbers else known)
    return known


def _zone_of(words: _Words) -> str | None:
    """The type that `WITH LOCAL TIME ZONE` and its like make of a timestamp; None: the statement does not say."""
    match words.one_of("WITHOUT", "WITH") if words.peek("WITHOUT") or words.peek("WITH") else "":
        case "WITHOUT":
            kind = "timestamp_ntz"
        case "WITH":
            words.expect("LOCAL")
            kind = "timestamp"
        case _:
            return None
    words.expect("TIME")
    words.expect("ZONE")
    return kind


def _keys(words: _Words, columns: Mapping[str, ColumnType]) -> dict[str, str]:
    keys: dict[str, str] = {}
    words.expect("(")
    while True:
        name = words.name("a key")
        if name.lower() in {known.lower() for known in keys}:
            raise words.wrong(f"the key {name} stands there twice")
        column = next((one for one in columns if one.lower() == name.lower()), None)
        if words.peek(",") or words.peek(")"):
            if column is None:
                meant = nearest(name, columns)
                advice = f"did you mean {meant}?" if meant else "give its type: PARTITIONED BY (day string)"
                raise words.wrong(f"the key {name} is no column: {advice}")
            name, kind = column, _name_of(columns[column])
        else:
            if column is not None:
                raise words.wrong(f"the key {name} is a column already: leave out its type here, or the column")
            kind = _name_of(_type(words))
        keys[name] = _key(words, name, kind)
        if not words.skip(","):
            break
    words.expect(")")
    return keys


def _key(words: _Words, name: str, kind: str) -> str:
    if kind not in _KEYS:
        raise words.wrong(f"the key {name} has the type {kind}: use {', '.join(sorted(set(_KEYS.values())))}")
    return _KEYS[kind]


def _alter(words: _Words) -> Alteration:
    if_exists = _if_exists(words)
    name = words.table()
    match words.one_of("ADD", "MODIFY", "DROP", "SET", "RESET"):
        case "DROP":
            words.expect("WATERMARK")
            return DropWatermark(name, if_exists)
        case "SET":
            words.skip("TBLPROPERTIES")
            return SetOptions(name, _options(words), if_exists)
        case "RESET":
            words.expect("(")
            names = [words.text("an option")]
            while words.skip(","):
                names.append(words.text("an option"))
            words.expect(")")
            return ResetOptions(name, tuple(names), if_exists)
        case verb:
            grouped = words.skip("(")
            column = _watermark(words)
            if grouped:
                words.expect(")")
            return SetWatermark(name, column, verb == "MODIFY", if_exists)


def _options(words: _Words) -> dict[str, str]:
    options: dict[str, str] = {}
    words.expect("(")
    while True:
        name = words.text("an option")
        words.expect("=")
        if name in options:
            raise words.wrong(f"the option '{name}' stands there twice")
        options[name] = words.text(f"the value of '{name}'")
        if not words.skip(","):
            break
    words.expect(")")
    return options


class _Words:
    """The words of a statement, read from the left."""

    def __init__(self, text: str) -> None:
        found = [token for token in tokenize(text) if token.token_type != TokenType.SEMICOLON]
        self._tokens = [word for token in found for word in _split(token)]
        self._place = 0
        if not self._tokens:
            raise BadStatement("there is no statement", 1, 1)

    @property
    def done(self) -> bool:
        return self._place >= len(self._tokens)

    def wrong(self, why: str, about: str = "") -> BadStatement:
        """An error at the word `about`, where it was read last, else at the word that was read last."""
        read = self._tokens[: max(1, self._place)]
        token = next((one for one in reversed(read) if one.text == about), read[-1])
        return BadStatement(why, token.line, token.col)

    def peek(self, word: str) -> bool:
        return not self.done and self._tokens[self._place].text.upper() == word

    def skip(self, word: str) -> bool:
        """Return whether `word` is next; it is read then."""
        found = self.peek(word)
        self._place += found
        return found

    def expect(self, word: str) -> None:
        if not self.skip(word):
            raise self._unexpected(word)

    def one_of(self, *words: str) -> str:
        for word in words:
            if self.skip(word):
                return word
        raise self._unexpected(" or ".join(words))

    def table(self) -> str:
        name = self.name("a table")
        if self.skip("."):
            name = f"{name}.{self.name('a table')}"
        if self.peek("."):
            raise self.wrong(f"a table has a name, or a namespace and a name as in {name!r}: no third part")
        return name

    def name(self, what: str) -> str:
        token = self._next(what)
        if token.token_type == TokenType.STRING or not re.fullmatch(r"[A-Za-z_][\w-]*", token.text):
            raise self._unexpected(what, back=True)
        return token.text

    def text(self, what: str) -> str:
        token = self._next(f"{what} in quotes")
        if token.token_type != TokenType.STRING:
            raise self._unexpected(f"{what} in quotes", back=True)
        return token.text

    def setting(self) -> str:
        """Read the name of a setting, in quotes or without."""
        token = self._next("TIME ZONE or a setting")
        parts = [token.text]
        while token.token_type != TokenType.STRING and self.skip("."):
            parts.append(self.name("a setting"))
        return ".".join(parts)

    def number(self) -> int:
        token = self._next("a number")
        if token.token_type != TokenType.NUMBER or not token.text.isdigit():
            raise self._unexpected("a number", back=True)
        return int(token.text)

    def end(self) -> None:
        if not self.done:
            raise self._unexpected("the end of the statement")

    def _next(self, what: str) -> _Word:
        if self.done:
            raise self._unexpected(what)
        self._place += 1
        return self._tokens[self._place - 1]

    def _unexpected(self, wanted: str, *, back: bool = False) -> BadStatement:
        if self.done and not back:
            last = self._tokens[-1]
            return BadStatement(
                f"{wanted} is wanted after {last.text!r}, where the statement ends", last.line, last.col
            )
        token = self._tokens[self._place - back]
        meant = nearest(token.text.upper(), wanted.split(" or "))
        advice = f": did you mean {meant}?" if meant else ""
        return BadStatement(f"{wanted} is wanted, not {token.text!r}{advice}", token.line, token.col)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    line: int
    col: int
    token_type: TokenType


def _split(token: Token) -> list[_Word]:
    """The words of a token: `PARTITIONED BY` is one to sqlglot."""
    whole = token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}
    texts = [token.text] if whole else token.text.split()
    return [_Word(text, token.line, token.col, token.token_type) for text in texts]
