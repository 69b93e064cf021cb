"""Named SQL: statements live in `x.sql` beside `x.py`, one text for SQLite and PostgreSQL.

`make stubs` writes the names and parameters of the statements to `x_sql.pyi`. Type checkers refuse a wrong name.

A file holds statements headed by `-- name: verb_object`; comment lines below the head say why the statement is so. A
handful of tokens covers what differs between the two databases (see `_render`); a statement that cannot be shared
stands there twice, with `-- only: sqlite` and `-- only: postgres`.

A statement wakes the processes that wait for the kind of change it makes: its table has one (`_KINDS`), or the header
says which (`-- wakes: run, job`). `-- quiet` marks a statement that wakes no process (a renewal). A statement that
`-- gives: wakes` says in its rows which of these kinds it has made.

`-- gives: a, b` names the columns of the rows, by which records are read. `-- locks: run` names the tables of the lock
order whose rows the statement locks; the last of them is its place in that order. `-- locks: job, at slot_limit` gives
a statement the place of another table: its transaction has locked the rows before, or never waits for them.
`-- locks: nothing, at consumer` is for a statement that runs after others. A test compares both headers with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeAlias, cast

from tidemill.errors import Internal

P = ParamSpec("P")

Stored: TypeAlias = str | int | bytes | None
"""A value as both databases keep it: times are epoch milliseconds, JSON is text."""
Row: TypeAlias = tuple[Stored, ...]


@dataclass(frozen=True, eq=False)
class RowSet:
    """Rows for the row sets of several statements. Each statement takes some of the columns.

    SQLite reads JSON once for each statement, and each value by the name of its column. So SQLite holds these rows in a
    temporary table, which it fills once. PostgreSQL gets JSON.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Stored | datetime, ...]]


Param: TypeAlias = Stored | datetime | timedelta | RowSet
"""A value of a parameter; the engines send times as `Stored`."""

LOCK_ORDER: Final = (
    "clock",
    "tx",
    "backfill",
    "dataset",
    "subscriber",
    "timer",
    "schedule",
    "boundary",
    "job",
    "slot_limit",
    "run",
    "consumer",
    "inbox_file",
    "expectation",
    "watermark",
)
"""Rows are locked in this order of tables, so that no two transactions wait for each other (tried: the wrong order
deadlocked within 1.3 s)."""

RANKS: Final = {table: rank for rank, table in enumerate(LOCK_ORDER)} | {
    "consumer_work": LOCK_ORDER.index("consumer"),
    "fire": LOCK_ORDER.index("timer"),
    "backfill_item": LOCK_ORDER.index("backfill"),
}


class WakeKind(StrEnum):
    """The kinds of changes that processes wait for."""

    MESSAGE = "message"
    """A message that a schedule may hear."""
    UNHEARD = "unheard"
    """A message that no schedule hears. Alerts, workers, outside subscribers and people may wait for the message."""
    STREAMED = "streamed"
    """A message that no schedule hears, while there are workers, or outside subscribers of its topic.

    Other nodes hear of that at once."""
    JOB = "job"
    """A job, timer, boundary or schedule may have something to do for a scheduler."""
    RUN = "run"
    """A run waits for a runner, is to be killed, or has ended without a commit."""
    COMPLETED = "completed"
    """A run has ended with a commit."""
    FREED = "freed"
    """A driver has ended its run. Only the runner of the same node has something to do."""
    PROGRESS = "progress"
    """A run goes on. Only people wait for that, so the notification may come a second or two later."""
    TIME = "time"
    """A keeper may have something to do earlier than before."""
    ALERT_RULE = "alert_rule"
    DELIVERY = "delivery"
    TOKEN = "token"  # noqa: S105  # a kind, no secret
    NODE = "node"
    """A node is to drain."""


ALL_CHANGES: Final = frozenset(WakeKind)
OF_ONE_NODE: Final = frozenset({WakeKind.FREED})
"""The kinds of changes that wake no process of another node."""
LATER_ELSEWHERE: Final = frozenset({WakeKind.UNHEARD, WakeKind.COMPLETED, WakeKind.PROGRESS})
"""The kinds of changes by drivers of which processes of other nodes may hear a second later.

The node of the driver does what they ask for, or what they ask for is done once a second at most."""

_KINDS: Final = {
    "message": WakeKind.MESSAGE,
    "run": WakeKind.RUN,
    "job": WakeKind.JOB,
    "timer": WakeKind.JOB,
    "boundary": WakeKind.JOB,
    "schedule": WakeKind.JOB,
    "backfill": WakeKind.JOB,
    "inbox_marker": WakeKind.TIME,
    "expectation": WakeKind.TIME,
    "time_slot": WakeKind.TIME,
    "slot_wait": WakeKind.TIME,
    "parked_partition": WakeKind.TIME,
    "alert_rule": WakeKind.ALERT_RULE,
    "delivery": WakeKind.DELIVERY,
    "outside_subscriber": WakeKind.DELIVERY,
    "token": WakeKind.TOKEN,
    "node": WakeKind.NODE,
}
"""The kind of change of a table, for statements that name no other."""

_HEAD = re.compile(r"^-- name: (?P<name>[a-z0-9_]+)\s*$", re.MULTILINE)
_ONLY = re.compile(r"^-- only: (?P<only>sqlite|postgres)\s*$", re.MULTILINE)
_GIVES = re.compile(r"^-- gives: (?P<columns>(?:[^\n]*,\n--   )*[^\n]*)$", re.MULTILINE)
_LOCKS = re.compile(r"^-- locks: (?P<tables>[a-z_, ]+?)(?:, at (?P<place>[a-z_]+))?$", re.MULTILINE)
_WAKES = re.compile(r"^-- wakes: (?P<kinds>[a-z_, ]+)$", re.MULTILINE)
_QUIET = re.compile(r"^-- quiet\s*$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_LIST = re.compile(r"\{(?P<type>ints|texts):(?P<name>[\w.]+)\}")
_AMONG = re.compile(r"\b(?P<absent>NOT )?IN \((?P<values>\{(?:ints|texts):[\w.]+\})\)")
_INDEXED_BY = re.compile(r" ?\{indexed_by:(?P<index>\w+)\}")
_ROWS = re.compile(r"\{rows:(?P<name>\w+)\((?P<columns>[^)]*)\)\}")
_PARAM = re.compile(r"(?<![:\w]):(?P<name>[a-z_]\w*)")
_CHANGED = re.compile(r"\b(?:UPDATE|INSERT INTO|DELETE FROM)\s+(?P<table>\w+)", re.IGNORECASE)
_WORD = re.compile(r"[a-z_]\w*")
_SAYS_WAKES: Final = ("wakes",)
"""The columns of a statement that says which kinds of changes it has made."""


GREATEST: Final = 2**63 - 1
"""The greatest number that both databases keep."""
_look_numbers: Final = count(1)
ALL_ROWS: Final = GREATEST
"""The limit of a list that has no limit."""
LAST_TEXT: Final = "\U0010ffff"
"""Sorts behind every name, id and key, and so ends the range of what begins with a text."""
FROM_NEWEST: Final = (GREATEST, LAST_TEXT)
"""Above every number and id: the place where a list begins that has its newest rows first."""
FROM_LATEST: Final = (datetime.max.replace(tzinfo=UTC), LAST_TEXT)
"""Above every time and id: the place where a list begins that has its latest rows first."""


def range_of(begin: str) -> dict[str, Param]:
    """Return the parameters `text` and `upto` of a statement that reads the texts with this begin."""
    return {"text": begin, "upto": f"{begin}{LAST_TEXT}"}


class Dialect(StrEnum):
    """The two databases a catalog lives in."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


_TOKENS: Final = {
    Dialect.SQLITE: {
        "for_update": "",
        "for_share": "",
        "skip_locked": "",
        "blob": "BLOB",
        "text": "TEXT",
        "clustered": "WITHOUT ROWID",
        "hot": "",
        "commit_seq": "(SELECT value FROM clock WHERE id = 1)",
    },
    Dialect.POSTGRES: {
        "for_update": "FOR UPDATE",
        "for_share": "FOR SHARE",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "blob": "BYTEA",
        "text": 'TEXT COLLATE "C"',
        "clustered": "",
        "hot": "WITH (fillfactor = 50)",
        # A sub-select is asked once: a volatile function by itself is asked for each row, and finds no index.
        "commit_seq": "(SELECT currval('tidemill_clock'))",
    },
}


@dataclass(frozen=True, slots=True, eq=False)
class Statement(Generic[P]):
    """Named statement. `name` is unique in the process (`publish.insert_changes`).

    `P` is the statement's parameters by name, as the stub beside the `.sql` file declares them. Calling a statement
    with values for all parameters returns a `Call`.
    """

    name: str
    texts: Mapping[Dialect, str]
    parameters: tuple[str, ...]
    gives: tuple[str, ...]
    """The columns of its rows; none for a guard."""
    locks: tuple[str, ...]
    """The tables of `LOCK_ORDER` whose rows it locks."""
    rank: int | None
    """The place in `LOCK_ORDER` of the rows that the statement locks. None if the lock order has none of its tables."""
    wakes: frozenset[WakeKind]
    """The kinds of the statement's change, for which processes may wait."""
    positional: str = field(repr=False, default="")
    """The text for PostgreSQL with `$1`, `$2` … for `parameters` in their order."""
    dated: bool = False
    """True if the statement uses `{commit_seq}`: its block then takes a tick first."""
    held: str = field(repr=False, default="")
    """The text for SQLite whose row sets are the tables of `held_table`. Empty without a row set."""
    names: frozenset[str] = field(repr=False, init=False)
    """The parameters in no order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(self.parameters))

    def text(self, dialect: Dialect) -> str:
        """The statement for `dialect`; an error when it exists for the other only."""
        try:
            return self.texts[dialect]
        except KeyError:
            raise Internal(f"statement {self.name} has no text for {dialect}") from None

    def __call__(self, *_: P.args, **params: P.kwargs) -> Call:
        """Return this statement with a value for each parameter; nothing runs yet."""
        if params.keys() != self.names:
            raise Internal(f"statement {self.name} takes {sorted(self.names)}, not {sorted(params)}")
        return Call(self, cast("dict[str, Param]", params))

    def changes(self, rows: Sequence[Row], changed: int) -> frozenset[WakeKind]:
        """Return the kinds of changes that an execution has made which gave `rows` and changed so many rows."""
        if changed <= 0:
            return frozenset()  # a runner that looks for work in vain would wake itself, to look again
        if self.gives != _SAYS_WAKES:
            return self.wakes
        return frozenset(WakeKind(kind) for row in rows for kind in _WORD.findall(str(row[0])))


class Call(NamedTuple):
    """A statement with its parameters: what effects are made of. Made by calling the statement."""

    statement: Statement[...]
    params: Mapping[str, Param]


def look_of(calls: Sequence[Call]) -> Call:
    """Return one statement that asks the time, and then several reads at once.

    Its only row has `tidemill_now()`, and then the first column of the first row of each read, or NULL. The time comes
    first: nothing that becomes due after it is missing in the reads and yet past for the caller.
    """
    params = {f"c{number}_{name}": value for number, call in enumerate(calls) for name, value in call.params.items()}
    return Call(_look_of(tuple(call.statement for call in calls)), params)


@cache
def _look_of(statements: tuple[Statement[...], ...]) -> Statement[...]:
    def column(number: int, statement: Statement[...], dialect: Dialect) -> str:
        text = _PARAM.sub(rf":c{number}_\g<name>", statement.text(dialect))
        return f"(SELECT {statement.gives[0]} FROM ({text}) AS found LIMIT 1)"

    texts = {
        dialect: f"SELECT {', '.join(['tidemill_now()', *(column(*one, dialect) for one in enumerate(statements))])}"
        for dialect in Dialect
    }
    name = f"look_{next(_look_numbers)}"
    return _made(name, texts, gives=("now", *(f"c{number}" for number in range(len(statements)))))


class Statements:
    """The statements of one file, each an attribute by its name."""

    def __init__(self, by_name: Mapping[str, Statement[...]]) -> None:
        vars(self).update(by_name)

    def __iter__(self) -> Iterator[Statement[...]]:
        return iter(vars(self).values())


@cache
def load_sql(python_file: str) -> Any:  # noqa: ANN401  # the stub says what it is
    """Read the statements of `x.sql` beside the module `python_file` (its `__file__`), as `Statements`.

    Type checkers know the result by the class `Sql` in the stub `x_sql.pyi`, which `make stubs` writes.
    """
    path = Path(python_file).with_suffix(".sql")
    heads = list(_HEAD.finditer(source := path.read_text(encoding="utf-8")))
    if not heads:
        raise Internal(f"{path} holds no statement")
    bodies: dict[str, dict[Dialect, str]] = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = source[head.end() : following.start() if following else len(source)]
        only = _ONLY.search(body)
        dialects = [Dialect(only["only"])] if only else list(Dialect)
        texts = bodies.setdefault(head["name"], {})
        for dialect in dialects:
            if dialect in texts:
                raise Internal(f"{path} defines {head['name']} twice for {dialect}")
            texts[dialect] = body
    return Statements({name: _statement(f"{path.stem}.{name}", texts) for name, texts in bodies.items()})


def held_table(name: str) -> str:
    """Return the temporary table of SQLite that holds the rows of a parameter."""
    return f'temp."rows_{name}"'


def render(text: str, dialect: Dialect, *, held: bool = False) -> str:
    """Replace the tokens of `text` by what `dialect` calls them; with `held`, row sets by the tables that hold them.

    `{ints:xs}` and `{texts:xs}` are the values of a JSON list, a parameter's or (`{ints:t.xs}`) a column's;
    `{rows:rs(a bigint, b text, c blob)}` is a row set from a JSON list of objects (a blob as base64). `{indexed_by:i}`
    after a table has SQLite use the index i, or refuse: it knows no sizes, so that the primary key often looks as good
    as the small index of what is open. The rest stand in `_TOKENS`.
    """
    sqlite = dialect is Dialect.SQLITE

    def values(match: re.Match[str]) -> str:
        listed = match["name"] if "." in match["name"] else f":{match['name']}"
        if sqlite:
            return f"SELECT value FROM json_each({listed})"
        cast = "::bigint" if match["type"] == "ints" else ""
        return f"SELECT value{cast} FROM jsonb_array_elements_text(CAST({listed} AS jsonb)) AS listed(value)"

    def row_set(match: re.Match[str]) -> str:
        name = match["name"]
        columns = [column.split() for column in match["columns"].split(",")]
        if held:
            return f"(SELECT {', '.join(column for column, _ in columns)} FROM {held_table(name)})"
        if sqlite:
            picked = ", ".join(
                f"tidemill_unbase64(value ->> '{c}') AS {c}" if t == "blob" else f"value ->> '{c}' AS {c}"
                for c, t in columns
            )
            # As JSONB each object is parsed once, and not for each column: 10,000 rows of nine take 22 ms, not 47.
            return f"(SELECT {picked} FROM jsonb_each(:{name}))"
        picked = ", ".join(f"decode({c}, 'base64') AS {c}" if t == "blob" else c for c, t in columns)
        typed = ", ".join(f"{c} {'text' if t == 'blob' else t}" for c, t in columns)
        return f"(SELECT {picked} FROM jsonb_to_recordset(CAST(:{name} AS jsonb)) AS listed({typed}))"

    if sqlite:
        text = _INDEXED_BY.sub(r" INDEXED BY \g<index>", text)
    else:
        # As an array, the values are looked up in an index; as a sub-select they are guessed to be a hundred rows, for
        # which PostgreSQL rather reads a table of 20,000 as a whole.
        text = _AMONG.sub(
            lambda match: f"{'<> ALL' if match['absent'] else '= ANY'} (ARRAY({match['values']}))",
            _INDEXED_BY.sub("", text),
        )
    text = _ROWS.sub(row_set, _LIST.sub(values, text))
    for token, meaning in _TOKENS[dialect].items():
        text = text.replace(f"{{{token}}}", meaning)
    return text


def _statement(name: str, bodies: Mapping[Dialect, str]) -> Statement[...]:
    source = next(iter(bodies.values()))
    gives, locks = _GIVES.search(source), _LOCKS.search(source)
    tables = tuple(table for table in _WORD.findall(locks["tables"]) if table != "nothing") if locks else ()
    bare = _COMMENT.sub("", source)
    texts = {
        dialect: render(_COMMENT.sub("", body), dialect).strip().rstrip(";").strip() for dialect, body in bodies.items()
    }
    for text in texts.values():
        if left := re.search(r"\{\w+[:}]", text):
            raise Internal(f"statement {name} has an unknown token at {text[left.start() :][:30]!r}")
    # As with {commit_seq}: asked once, and not for each row. Of 10,000 rows PostgreSQL takes 2 ms instead of 12.
    texts = {dialect: _asking_once(text) for dialect, text in texts.items()}
    rows = Dialect.SQLITE in bodies and _ROWS.search(bodies[Dialect.SQLITE])
    held = render(_COMMENT.sub("", bodies[Dialect.SQLITE]), Dialect.SQLITE, held=True).strip() if rows else ""
    return _made(
        name,
        texts,
        held=_asking_once(held),
        gives=tuple(_WORD.findall(gives["columns"])) if gives else (),
        locks=tables,
        rank=_place_of(locks, tables),
        wakes=_kinds_of(name, source, bare),
        dated="{commit_seq}" in bare,
    )


def _asking_once(text: str) -> str:
    return text.replace("tidemill_now()", "(SELECT tidemill_now())")


def _made(  # the columns of a statement, by keyword
    name: str,
    texts: Mapping[Dialect, str],
    *,
    gives: tuple[str, ...],
    locks: tuple[str, ...] = (),
    rank: int | None = None,
    wakes: frozenset[WakeKind] = frozenset(),
    dated: bool = False,
    held: str = "",
) -> Statement[...]:
    """Make a statement of its texts, whose parameters it finds."""
    parameters = tuple(dict.fromkeys(m["name"] for text in texts.values() for m in _PARAM.finditer(text)))
    places = {parameter: f"${place}" for place, parameter in enumerate(parameters, start=1)}
    positional = _PARAM.sub(lambda m: places[m["name"]], texts.get(Dialect.POSTGRES, ""))
    return Statement(name, texts, parameters, gives, locks, rank, wakes, positional, dated, held)


def _kinds_of(name: str, source: str, bare: str) -> frozenset[WakeKind]:
    if _QUIET.search(source):
        return frozenset()
    if (declared := _WAKES.search(source)) is None:
        return frozenset(_KINDS[m["table"]] for m in _CHANGED.finditer(bare) if m["table"] in _KINDS)
    try:
        return frozenset(map(WakeKind, _WORD.findall(declared["kinds"])))
    except ValueError as error:
        raise Internal(f"statement {name}: {error}") from None


def _place_of(locks: re.Match[str] | None, tables: tuple[str, ...]) -> int | None:
    if locks is None:
        return None
    try:
        return RANKS[locks["place"]] if locks["place"] else max(RANKS[table] for table in tables)
    except (KeyError, ValueError):
        raise Internal(f"{locks[0]!r}: name tables of LOCK_ORDER, or the place where the statement stands") from None
