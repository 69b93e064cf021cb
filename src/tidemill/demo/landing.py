"""The files that land in the two inboxes, hour by hour, and the ledger of their rows.

Each hour of data is a step. On 1 January five faults happen (times in UTC):

- 12Z is sent a second time, and that upload never ends: the file keeps its suffix `_current` and counts nowhere.
- 15Z comes five hours late, at 20Z.
- 18Z is cut 30 bytes into its 32nd row: 32 of its 54 lines are left, and the file is refused as a whole.
- 14Z (56 rows) is written again under its name at 20Z, in another order: one file on disk, but landed twice.
- 13Z (58 rows) is sent again under another name at 21Z.

The ledger of the first three days, New York's 1 to 3 January 2013:

    71 files of weather                211 rows
    57 files of flights              2,699
    less what was cut off 18Z          -22
    14Z again                          +56
    13Z again                          +58
    landed (in)                      3,002
    rejected: what is left of 18Z      -32
    duplicates: 14Z and 13Z           -114
    published (out)                  2,856 = 211 + 2,645
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from tidemill.demo.flights import Archive, Feed, Hour, Row
from tidemill.storage.files import Files


def _at(hour: int) -> datetime:
    return datetime(2013, 1, 1, hour, tzinfo=UTC)


_NEW_YORK: Final = ZoneInfo("America/New_York")
_NEVER_FINISHED: Final = _at(12)
_LATE: Final = _at(15)
_LATE_AT: Final = _at(20)
_CUT: Final = _at(18)
_CUT_ROWS: Final = 32
_CUT_BYTES: Final = 30
_REWRITTEN: Final = _at(14)
_REWRITTEN_AT: Final = _at(20)
_SENT_AGAIN: Final = _at(13)
_SENT_AGAIN_AT: Final = _at(21)


@dataclass(frozen=True, slots=True)
class Landing:
    """A landing file: `rows` are the rows that a reader finds, whole or cut; none if the file does not count."""

    feed: Feed
    name: str
    content: bytes
    rows: tuple[Row, ...]
    note: str = ""
    whole: bool = True


@dataclass(frozen=True, slots=True)
class LandingStep:
    """The files that land together in the hour that begins at `time`; `day` is the number of the day that begins.

    A step that `waits` lands after all earlier files are processed. Otherwise its late files would not be late.
    """

    time: datetime
    landings: tuple[Landing, ...]
    day: int | None = None
    waits: bool = False


@dataclass(slots=True)
class Lander:
    """Puts files into the inboxes below a location, and keeps the ledger of the files, in their order."""

    files: Files
    ledger: list[Landing] = field(default_factory=list)

    def land(self, landing: Landing) -> None:
        """Put the file into its inbox, whole at once, over what has its name."""
        self.files.put(f"{landing.feed}/{landing.name}", landing.content)
        self.ledger.append(landing)


def plan(archive: Archive) -> list[LandingStep]:
    """All that lands, hour by hour, with what goes wrong on 1 January; before it the first day, with no file yet."""
    by_time = {hour.time: hour for hour in archive.hours}
    days = [hour.time.astimezone(_NEW_YORK).date() for hour in archive.hours]
    steps = [LandingStep(archive.hours[0].time, (), day=0)]
    for hour, day, before in zip(archive.hours, days, [days[0], *days], strict=False):
        begins = None if day == before else (day - days[0]).days
        steps.append(LandingStep(hour.time, tuple(_landings(archive, by_time, hour)), begins, hour.time == _LATE_AT))
    return steps


def _landings(archive: Archive, by_time: dict[datetime, Hour], hour: Hour) -> list[Landing]:
    flights, weather = archive.headers[Feed.FLIGHTS], archive.headers[Feed.WEATHER]
    landings = []
    if hour.time == _NEVER_FINISHED:
        half = _text(flights, hour.flights)[: len(_text(flights, hour.flights)) // 2]
        name = f"{_name(hour, '_again')}_current"
        landings.append(Landing(Feed.FLIGHTS, name, half, (), "an upload that never ends", whole=False))
    if hour.time == _CUT:
        landings.append(_cut(_name(hour), flights, hour.flights))
    elif hour.flights and hour.time != _LATE:
        landings.append(_file(Feed.FLIGHTS, _name(hour), flights, hour.flights))
    if hour.time == _LATE_AT:
        late = by_time[_LATE]
        landings.append(_file(Feed.FLIGHTS, _name(late), flights, late.flights, "five hours late"))
    if hour.time == _REWRITTEN_AT:
        again = by_time[_REWRITTEN]
        note = "written again under its name"
        landings.append(_file(Feed.FLIGHTS, _name(again), flights, again.flights[::-1], note))
    if hour.time == _SENT_AGAIN_AT:
        again = by_time[_SENT_AGAIN]
        note = "sent again under another name"
        landings.append(_file(Feed.FLIGHTS, _name(again, "_again"), flights, again.flights, note))
    if hour.weather:
        landings.append(_file(Feed.WEATHER, _name(hour), weather, hour.weather))
    return landings


def _cut(name: str, header: str, rows: Sequence[Row]) -> Landing:
    left = tuple(rows[:_CUT_ROWS])
    content = _text(header, left[:-1]) + left[-1].line.encode()[:_CUT_BYTES]
    return Landing(Feed.FLIGHTS, name, content, left, "cut in the middle of a row", whole=False)


def _file(feed: Feed, name: str, header: str, rows: Sequence[Row], note: str = "") -> Landing:
    return Landing(feed, name, _text(header, rows), tuple(rows), note)


def _text(header: str, rows: Sequence[Row]) -> bytes:
    return "".join(f"{line}\n" for line in (header, *(row.line for row in rows))).encode()


def _name(hour: Hour, suffix: str = "") -> str:
    return f"{hour.time:%Y-%m-%dT%H}{suffix}.csv"
