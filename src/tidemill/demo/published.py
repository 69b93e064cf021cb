"""Reads what the demo's app has published, from the committed files alone, as any other engine would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from tidemill.demo.balance import PublishedKeys, RowKey
from tidemill.demo.flights import KEYS, Feed
from tidemill.demo.windows import WindowBounds
from tidemill.mill.datasets import FileView
from tidemill.mill.mill import Mill
from tidemill.storage.locations import file_at
from tidemill.storage.seekable import open_seekable

_JOINED: Final = "flights_weather"


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one hour or day, `when` (`2013-01-01T10:00:00Z` or `2013-01-01`); None where unknown.

    `flights` is the number of planned flights. `dep_delay` is the mean of the `departed` ones, in minutes; temperature
    is in °F, wind in mph.
    """

    when: str
    flights: int
    departed: int
    dep_delay: float | None
    temp: float | None
    wind_speed: float | None

    def sentence(self) -> str:
        """Return the report as one line for people."""
        cancelled = self.flights - self.departed
        parts = ["1 flight" if self.flights == 1 else f"{self.flights} flights"]
        if self.dep_delay is not None:
            parts.append(f"{abs(self.dep_delay):.0f} min {'late' if self.dep_delay >= 0 else 'early'} on average")
        if cancelled:
            parts.append(f"{cancelled} cancelled")
        if self.temp is not None:
            parts.append(f"{self.temp:.0f} °F")
        if self.wind_speed is not None:
            parts.append(f"wind {self.wind_speed:.0f} mph")
        return ", ".join(parts)


class Reader:
    """Reads the published files of a project; each file once, since a committed file never changes."""

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._rows: dict[str, list[dict[str, object]]] = {}

    def read(self) -> PublishedKeys:
        """All that is published as of now, data set by data set."""
        return PublishedKeys(
            loaded={feed: self._keys(feed.value, feed) for feed in Feed},
            joined=self._keys(_JOINED, Feed.FLIGHTS),
            hourly=_counted(self.hours()),
            daily=_counted(self.days()),
        )

    def hours(self) -> list[Report]:
        """The reports of all hours, in their order."""
        return self._reports("hourly")

    def days(self) -> list[Report]:
        """The reports of all days, in their order."""
        return self._reports("daily")

    def loaded_hours(self) -> list[datetime]:
        """The hours of all flights that are loaded."""
        files = self._mill.datasets.files(Feed.FLIGHTS.value)
        rows = (row for file in files for row in self._read(file, KEYS[Feed.FLIGHTS]))
        return [_utc(row["time_hour"]) for row in rows]

    def windows(self, name: str) -> Counter[WindowBounds]:
        """Return the number of flights in each window of a file set, over all airports."""
        counted: Counter[WindowBounds] = Counter()
        for file in self._mill.datasets.files(name):
            for row in self._read(file, ("window_start", "window_end", "flights")):
                counted[_utc(row["window_start"]), _utc(row["window_end"])] += cast("int", row["flights"])
        return counted

    def mirror(self, name: str) -> list[tuple[str | None, ...]]:
        """The rows of a snapshot's current version by its first column, as texts; none before the first version."""
        rows = [
            tuple(None if value is None else str(value) for value in row.values())
            for file in self._mill.datasets.files(name)
            for row in self._read(file, None)
        ]
        return sorted(rows, key=lambda row: str(row[0]))

    def _keys(self, dataset: str, feed: Feed) -> Counter[RowKey]:
        return Counter(
            tuple(_text(row[column]) for column in KEYS[feed])
            for file in self._mill.datasets.files(dataset)
            for row in self._read(file, KEYS[feed])
        )

    def _reports(self, dataset: str) -> list[Report]:
        columns = ("flights", "departed", "dep_delay", "temp", "wind_speed")
        files = self._mill.datasets.files(dataset)
        return [
            Report(_when(file.key), **{column: cast("int", row[column]) for column in columns})
            for file in files
            for row in self._read(file, columns)
        ]

    def _read(self, file: FileView, columns: tuple[str, ...] | None) -> list[dict[str, object]]:
        if file.path not in self._rows:
            from pyarrow import parquet  # type: ignore[import-untyped]

            wanted = None if columns is None else list(columns)
            content = open_seekable(*file_at(file.path, self._mill.project.world))
            self._rows[file.path] = parquet.read_table(content, columns=wanted, partitioning=None).to_pylist()
        return self._rows[file.path]


def _counted(reports: list[Report]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for report in reports:
        counted[report.when] += report.flights
    return counted


def _utc(value: object) -> datetime:
    """A time of a file, which is in UTC whether it says so (an instant) or not (the wall clock of a window)."""
    return cast("datetime", value).replace(tzinfo=UTC)


def _text(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else str(value)


def _when(key: Mapping[str, object]) -> str:
    return f"{key['day']}T{key['hour']:02}:00:00Z" if "hour" in key else str(key["day"])
