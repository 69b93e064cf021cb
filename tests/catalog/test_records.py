from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import Call, load_sql
from tidemill.catalog.records import UnfitColumn, decoder_of
from tidemill.catalog.transactions import TxState
from tidemill.epoch import from_ms
from tidemill.errors import Internal
from tidemill.names import RunId, WritePointer

SQL = load_sql(__file__)

NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, tzinfo=UTC)
ROW = {
    "write_pointer": 7,
    "run_id": "run_1",
    "state": "committed",
    "at": NOON,
    "lease": timedelta(seconds=2),
    "own": 1,
    "late": "[3, 5]",
    "facts": '{"rows": 2}',
    "manifest": b"bytes",
    "ended_at": None,
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A class that reads itself."""

    text: str

    @classmethod
    def decode(cls, stored: bytes) -> Manifest:
        """Make one of a stored value."""
        return cls(stored.decode())


@dataclass(frozen=True, slots=True)
class Position:
    """Made of two columns."""

    write_pointer: WritePointer
    late: tuple[WritePointer, ...]
    run_id: RunId | None = None  # the record around this one takes the column


@dataclass(frozen=True, slots=True)
class Whole:
    """All that a field may be."""

    position: Position
    run_id: RunId
    state: TxState
    at: datetime
    lease: timedelta
    own: bool
    facts: Mapping[str, int]
    manifest: Manifest
    ended_at: datetime | None
    more: int = 3


class Pair(NamedTuple):
    """Row of `give_pairs`."""

    name: str
    number: int | None


@dataclass(frozen=True, slots=True)
class Less:
    """Too few fields."""

    name: str


@dataclass(frozen=True, slots=True)
class More:
    """Too many fields."""

    name: str
    number: int | None
    third: int


@dataclass(frozen=True, slots=True)
class Flag:
    """A number that is no flag."""

    name: str
    number: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A number that is no text."""

    name: str
    number: str


def _pairs(*values: int | None) -> str:
    return json.dumps([{"name": f"n{place}", "number": value} for place, value in enumerate(values)])


def test_a_record_has_the_types_of_its_fields(catalog: Catalog) -> None:
    """Each type of a field is read in one place, and times go in and come out as aware moments."""
    found = catalog.read(lambda db: db.record(SQL.give_all, Whole, **ROW))

    assert found == Whole(
        Position(WritePointer(7), (WritePointer(3), WritePointer(5))),
        RunId("run_1"),
        TxState.COMMITTED,
        NOON,
        timedelta(seconds=2),
        own=True,
        facts={"rows": 2},
        manifest=Manifest("bytes"),
        ended_at=None,
    )


@pytest.mark.parametrize("missing", [{}, {"late": None, "facts": None, "ended_at": NOON}])
def test_a_record_is_the_same_alone_and_among_others(catalog: Catalog, missing: dict[str, object]) -> None:
    """A single row is decoded by itself, several rows are decoded column by column."""
    row = catalog.read(lambda db: db.one(SQL.give_all, **{**ROW, **missing}))
    decode = decoder_of(SQL.give_all, Whole)

    (alone,) = decode([row])

    assert decode([row, row]) == [alone, alone]


def test_rows_come_as_records_pairs_and_values(catalog: Catalog) -> None:
    """The order of the statement stays."""
    rows = _pairs(2, None, 1)

    found = catalog.read(
        lambda db: (
            db.records(SQL.give_pairs, Pair, rows=rows),
            db.records(SQL.give_pairs, tuple[str, int | None], rows=rows),
            db.records(SQL.give_names, str, rows=rows),
            db.records(SQL.give_pairs, Pair, rows="[]"),
        )
    )

    pairs = [("n0", 2), ("n1", None), ("n2", 1)]
    assert found == (pairs, pairs, ["n0", "n1", "n2"], [])
    assert isinstance(found[0][0], Pair)


def test_one_value_may_be_none(catalog: Catalog) -> None:
    """`min(...)` of no rows is NULL, which is no value either."""
    found = catalog.read(
        lambda db: [db.value(SQL.give_least, int, rows=_pairs(*numbers)) for numbers in ((4, 3), (None,), ())]
    )

    assert found == [3, None, None]


def test_a_sum_is_a_whole_number(catalog: Catalog) -> None:
    """PostgreSQL sums bigints as numeric."""
    found = catalog.read(lambda db: db.value(SQL.give_sum, int, rows=_pairs(2**40, 1)))

    assert (found, type(found)) == (2**40 + 1, int)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Flag, "statement test_records.give_pairs gives number = 7, which is no bool"),
        (Text, "statement test_records.give_pairs gives number = 7, which is no str"),
        (tuple[str, TxState], "statement test_records.give_pairs gives number = 7, which is no TxState"),
    ],
)
@pytest.mark.parametrize("rows", [_pairs(7), _pairs(7, 7)])
def test_a_value_that_does_not_fit_is_named(catalog: Catalog, kind: type, complaint: str, rows: str) -> None:
    """The statement, the column and the value lead to the row that a person has changed."""
    with pytest.raises(UnfitColumn, match=complaint):
        catalog.read(lambda db: db.records(SQL.give_pairs, kind, rows=rows))


@pytest.mark.parametrize("numbers", [(253_402_300_800_000,), (0, 253_402_300_800_000)])
def test_a_time_outside_the_calendar_is_named(catalog: Catalog, numbers: tuple[int, ...]) -> None:
    """Python's datetimes end with the year 9999, and the milliseconds of a column do not."""
    with pytest.raises(UnfitColumn, match="give_pairs gives number = 253402300800000, which is no datetime"):
        catalog.read(lambda db: db.records(SQL.give_pairs, tuple[str, datetime], rows=_pairs(*numbers)))


@pytest.mark.parametrize(
    ("damaged", "complaint"),
    [
        (SQL.give_least(rows=_pairs(253_402_300_800_000)), "give_least gives number = 253402300800000"),
        (SQL.give_least(rows=_pairs(-(2**62))), "give_least gives number = -4611686018427387904"),
        (SQL.give_names(rows=_pairs(0)), "give_names gives name = 'n0'"),  # columns of SQLite take texts too
    ],
)
def test_a_time_of_a_look_that_cannot_be_read_is_named(catalog: Catalog, damaged: Call, complaint: str) -> None:
    """A loop that looks for the next time ended with an `OverflowError`, which names no thing and no way out."""
    look = catalog.read(lambda db: db.look(SQL.give_least(rows=_pairs(4)), damaged))

    assert look.time(0) == from_ms(4)
    with pytest.raises(UnfitColumn, match=f"statement test_records.{complaint}, which is no datetime"):
        look.times()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Less, r"Less has no field for \['number'\] of statement test_records.give_pairs"),
        (More, "statement test_records.give_pairs gives no third, which More needs"),
        (tuple[str], "gives .*, not 1 columns"),
        (str, "gives .*, not one column"),
    ],
)
def test_fields_and_columns_are_the_same(catalog: Catalog, kind: type, complaint: str) -> None:
    """A column that no field takes is read for nothing, and a field without a column has no value."""
    with pytest.raises(Internal, match=complaint):
        catalog.read(lambda db: db.records(SQL.give_pairs, kind, rows=_pairs(1)))


def test_a_time_without_zone_is_no_parameter(catalog: Catalog) -> None:
    """A naive time names no moment."""
    with pytest.raises(TypeError):
        catalog.read(lambda db: db.record(SQL.give_all, Whole, **ROW | {"at": NOON.replace(tzinfo=None)}))
