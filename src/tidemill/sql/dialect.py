"""Spark's SQL with window functions of tables, as Flink writes them: `TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL …)`.

The only room that knows sqlglot. Statements of users are taken apart to be checked, and put together again from their
own text, so that Spark gets what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import StatementPlace, UserError

WINDOW_FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")

_UNITS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_OPEN_QUOTE: Final = re.compile(r"Missing (\S+) from \d+:(\d+)")
_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_FIELD: Final = re.compile(r"\d+(\.\d{1,6})?")


class BadStatement(UserError):
    """A statement that cannot be carried out; `line` and `column` (from 1) say where, if that is known."""

    code = "bad_statement"
    hint = "correct the statement at the place that the reason names"

    def __init__(self, why: str, line: int | None = None, column: int | None = None) -> None:
        self.why = why
        self.line = line
        self.column = column
        super().__init__(why)
        if line is not None and column is not None:
            self.put_at(StatementPlace(line, column))


class _Parser(SparkParser):
    """Spark's, with tables as arguments of functions."""

    FUNCTION_PARSERS = {  # noqa: RUF012  # a table of sqlglot's
        **SparkParser.FUNCTION_PARSERS,
        **{name: lambda parser, name=name: parser.parse_window(name) for name in WINDOW_FUNCTIONS},
    }

    def parse_window(self, name: str) -> exp.Expr:
        """Parse the arguments of a window function, whose opening parenthesis was read last."""
        first = self._tokens[self._index - 2]
        call = exp.Anonymous(this=name, expressions=self._parse_csv(self._parse_window_argument))
        return _placed(call, first, self._curr)

    def _parse_window_argument(self) -> exp.Expr | None:
        name = None
        if self._next and self._next.token_type == TokenType.FARROW:
            name = exp.var(self._curr.text.upper())
            self._advance(2)
        is_table, first = self._match(TokenType.TABLE), self._curr
        is_query = first.token_type == TokenType.L_PAREN
        value: exp.Expr | None = self._parse_table_parts() if is_table and not is_query else self._parse_bitwise()
        if value is not None:
            _placed(value, first, self._prev)
            if self._match(TokenType.PARTITION_BY):
                value.meta["partition_by"] = self._parse_partition_columns()
        return value if name is None else exp.Kwarg(this=name, expression=value)

    def _parse_partition_columns(self) -> list[exp.Expr]:
        """Parse the columns of PARTITION BY, up to the next argument of the window function."""
        found: list[exp.Expr | None]
        if self._curr.token_type == TokenType.L_PAREN:
            found = [*self._parse_wrapped_csv(self._parse_column)]
        else:
            found = [self._parse_column()]
            while self._curr.token_type == TokenType.COMMA and not self._begins_argument():
                self._advance()
                found.append(self._parse_column())
        return [one for one in found if one is not None]

    def _begins_argument(self) -> bool:
        """Return whether an argument of a window function follows the present comma, and no column."""
        after = [one.token_type for one in self._tokens[self._index + 1 : self._index + 3]]
        return after[1:] in ([TokenType.L_PAREN], [TokenType.FARROW])


def _placed(node: exp.Expr, first: Token, last: Token) -> exp.Expr:
    """Note from where to where `node` stands in the text, as sqlglot does for names."""
    node.meta.update(line=first.line, col=first.col, start=first.start, end=last.end)
    return node


class WindowSql(Spark):
    """Spark's SQL with window functions of tables."""

    Parser = _Parser

    class Tokenizer(Spark.Tokenizer):
        """Spark's words. What follows SHOW and EXPLAIN is read word by word too. SESSION names a function."""

        KEYWORDS = {  # noqa: RUF012  # a table of sqlglot's
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word not in {"SHOW", "EXPLAIN", "SESSION"}
        }


def tokenize(text: str) -> list[Token]:
    """The words of `text`; `BadStatement` for a quote without an end."""
    try:
        return list(WindowSql().tokenize(text))
    except TokenError as error:
        if found := _OPEN_QUOTE.fullmatch(str(error.__cause__)):
            before = text[: int(found[2])]
            column = len(before) - before.rfind("\n")
            raise BadStatement(f"the quote {found[1]} has no end", before.count("\n") + 1, column) from None
        lines = text.splitlines()
        raise BadStatement(f"the statement cannot be read: {error}", len(lines), len(lines[-1])) from None


def parse_one(text: str) -> exp.Expr:
    """The only statement in `text`; `BadStatement` says where it cannot be read."""
    tokens = tokenize(text)
    try:
        found = [one for one in WindowSql().parser().parse(tokens, text) if one is not None]
    except ParseError as error:
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        why = str(first.get("description", error)).rstrip(".")
        raise BadStatement(f"{why}{near}", first.get("line"), first.get("col")) from None
    if len(found) != 1:
        raise BadStatement(f"one statement is wanted, not {len(found)}", tokens[-1].line, tokens[-1].col)
    return found[0]


def split_statements(text: str) -> list[str]:
    """The statements of a file, divided by semicolons. Each keeps its place: blanks stand for what is before it."""
    statements, begin = [], 0
    ends = [(one.start, one.end + 1) for one in tokenize(text) if one.token_type == TokenType.SEMICOLON]
    for end, after in (*ends, (len(text), 0)):
        blanks = re.sub(r"[^\n]+(?=\n)", "", text[:begin])
        statements.append(re.sub(r"[^\n]", " ", blanks) + text[begin:end].rstrip())
        begin = after
    return [one for one in statements if tokenize(one)]


def find_word(text: str, wanted: Iterable[str], to_name: Callable[[str], str] = str) -> StatementPlace:
    """Return the place of the first of `wanted` that is a word, or a text in quotes, of a statement; else its begin.

    `to_name` gives the name that is wanted for a word. Capital letters do not count.
    """
    words = tokenize(text)
    places = {to_name(one.text).lower(): one for one in reversed(words)}
    found = next((places[one.lower()] for one in wanted if one.lower() in places), words[0])
    return StatementPlace(found.line, found.col)


def find_option(text: str, wanted: str, to_name: Callable[[str], str]) -> StatementPlace | None:
    """Return the place of an option in quotes; None if the statement does not name the option."""
    for before, token in pairwise(tokenize(text)):
        is_option = token.token_type == TokenType.STRING and before.token_type != TokenType.EQ
        if is_option and to_name(token.text) == wanted:
            return StatementPlace(token.line, token.col)
    return None


def find_after(text: str, before: str, wanted: str) -> StatementPlace | None:
    """Return the place of a word that follows the word `before`, if any. Capital letters do not count."""
    for token, after in pairwise(tokenize(text)):
        if (token.text.upper(), after.text.lower()) == (before, wanted.lower()):
            return StatementPlace(after.line, after.col)
    return None


def to_micros(interval: exp.Expr, what: str) -> int:
    """The microseconds of a day-time interval; `BadStatement` for calendar units and for what is no interval.

    Forms are `INTERVAL '1' HOUR`, `-INTERVAL '1' HOUR`, `INTERVAL '1.5' SECOND` and `INTERVAL '1 12:30' DAY TO MINUTE`.
    """
    if isinstance(interval, exp.Neg) and isinstance(interval.this, exp.Interval):
        return -to_micros(interval.this, what)
    if not isinstance(interval, exp.Interval) or not isinstance(interval.this, exp.Literal | exp.Neg):
        shown = interval.sql(dialect=WindowSql)
        raise bad(f"{what} must be an interval, as INTERVAL '1' HOUR, not {shown}", interval)
    unit = " ".join(part.rstrip("S") for part in str(interval.args.get("unit") or "").upper().split())
    text = interval.this.name.strip()
    sign = -1 if isinstance(interval.this, exp.Neg) or text.startswith("-") else 1
    try:
        return sign * _read_fields(text.removeprefix("-"), unit)
    except (ValueError, KeyError):
        advice = f"use a whole number of {', '.join(_UNITS)}, or fields as INTERVAL '1 12:30' DAY TO MINUTE"
        shown = interval.sql(dialect=WindowSql)
        raise bad(f"{what} {shown} is refused: {advice} (windows of months are not there)", interval) from None


def _read_fields(text: str, unit: str) -> int:
    """Return the microseconds of fields in a unit, `HOUR` or `DAY TO SECOND`. Errors: `ValueError`, `KeyError`."""
    first, _, last = unit.partition(" TO ")
    units = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1] if last else (first,)
    micros = 0
    for name, field in zip(units, re.split("[ :]", text), strict=True):
        fits = _FIELD.fullmatch(field)
        if fits is None or (fits[1] and name != "SECOND"):
            raise ValueError(field)
        micros += int(Decimal(field) * _UNITS[name])
    return micros


def bad(why: str, node: exp.Expr) -> BadStatement:
    """The refusal of a statement for a part of it, at the place of the part."""
    place = find_place(node)
    return BadStatement(why, place.line, place.column)


def find_place(node: exp.Expr) -> StatementPlace:
    """Return the first place in a part of a statement that is known, else that of the part around it."""
    places = [(one.meta["start"], one.meta["line"], one.meta["col"]) for one in node.walk() if "start" in one.meta]
    if not places:
        return StatementPlace(1, 1) if node.parent is None else find_place(node.parent)
    _, line, column = min(places)
    return StatementPlace(line, column)
