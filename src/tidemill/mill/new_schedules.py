"""Schedules to create: an entry of a list, as JSON and as a value, and the error that names the entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidemill.errors import TidemillError, UserError
from tidemill.json_specs import read_plain, write_plain
from tidemill.schedule.specs import ScheduleSpec

_NAMES: Final = ("name", "program", "suspended")
"""The fields of an entry that are no fields of the spec."""


class BadEntry(UserError):
    """An entry of a list of schedules that is refused; nothing was created."""

    code = "bad_entry"

    def __init__(self, place: int, name: str, because: TidemillError) -> None:
        self.place = place
        self.name = name
        self.why = str(because)
        self.because = because.code
        named = f" ({name})" if name else ""
        super().__init__(f"no schedule is created: entry {place}{named} is refused: {because}")
        self.hint = because.hint


@dataclass(frozen=True, slots=True)
class _EntryNames:
    name: str
    program: str
    suspended: bool | None = None


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to create. `place` is its place in the caller's list, from 1 on, or None without a list.

    `suspended` is None for a schedule that begins as the setting `schedules.suspended` says.
    """

    name: str
    program: str
    spec: ScheduleSpec
    suspended: bool | None
    place: int | None = None


def read_entries(entries: Sequence[Mapping[str, object]]) -> list[NewSchedule]:
    """Read a list of entries; `BadEntry`."""
    plain = write_plain(entries)
    if not isinstance(plain, list):
        raise BadEntry(1, "", UserError("the schedules are no list; write them as [{...}, {...}]"))
    return [_read_entry(place, entry) for place, entry in enumerate(plain, 1)]


@contextmanager
def naming(entry: NewSchedule) -> Iterator[None]:
    """Let an error of an entry of a list name the entry."""
    try:
        yield
    except TidemillError as error:
        if entry.place is None:
            raise
        raise BadEntry(entry.place, entry.name, error) from error


def _read_entry(place: int, entry: object) -> NewSchedule:
    fields = entry if isinstance(entry, dict) else {}
    try:
        names = read_plain(_EntryNames, {name: fields[name] for name in _NAMES if name in fields} if fields else entry)
        spec = read_plain(ScheduleSpec, {name: fields[name] for name in fields if name not in _NAMES})
    except UserError as error:
        raise BadEntry(place, str(fields.get("name", "")), error) from error
    return NewSchedule(names.name, names.program, spec, names.suspended, place)
