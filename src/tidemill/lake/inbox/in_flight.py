"""Files that their writers may not have finished: what is left alone for now, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.durations import format_duration
from tidemill.lake.inbox.inbox import InboxSpec
from tidemill.storage.file_names import LONGEST_NAME
from tidemill.storage.files import FileStatus


class Watched:
    """Times for which files have been unchanged, as one process sees them by its own monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, timedelta]] = {}

    def unchanged_for(self, file: FileStatus, here: timedelta) -> timedelta:
        """Return the time since this content was first seen."""
        etag, since = self._since.get(file.name, ("", here))
        if etag != file.etag:
            since = here
        self._since[file.name] = (file.etag, since)
        return here - since

    def forget(self, name: str) -> None:
        """Forget a file that is recorded."""
        self._since.pop(name, None)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Reason for which a file is left to its writer, and the time of the next look. None if only an event can tell."""

    why: str
    look_again: timedelta | None = None
    settling: bool = False
    """Only a second look is missing, which the process that lists takes soon."""


def held_back(
    spec: InboxSpec, file: FileStatus, *, now: datetime, unchanged_for: timedelta, exists: Callable[[str], bool]
) -> HeldBack | None:
    """Return why a file is left to its writer for now. None if the file may be taken.

    `now` is of the catalog. `exists` looks for the done-flag.
    """
    if spec.min_age and (age := now - file.modified_at) < spec.min_age:
        return HeldBack(f"younger than {format_duration(spec.min_age)}", spec.min_age - age)
    if unchanged_for < spec.settle:
        why = f"changed within {format_duration(spec.settle)}"
        return HeldBack(why, spec.settle - unchanged_for, settling=True)
    flag = spec.flag_of(file.name)
    if flag is None or exists(flag):
        return None
    if (length := len(flag.rpartition("/")[2].encode())) > LONGEST_NAME:
        why = f"its done-flag would have a name of {length} bytes, and no folder keeps more than {LONGEST_NAME}"
        return HeldBack(why)
    return HeldBack(f"{flag} is not there yet")
