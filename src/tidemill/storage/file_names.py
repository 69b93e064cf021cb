"""Names of files below a location: the rules for names that any store can keep."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tidemill.errors import UserError

LONGEST_NAME: Final = 255
"""Bytes in the last part of a name, in folders."""
COPIES: Final = ".tidemill-copies"
"""A folder with copies of files of buckets: below it lies `s3/BUCKET/NAME`."""
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
MOST_NAME_BYTES: Final = 1024
"""The most bytes of a file's name below its location, as of a key of S3. Names are entries of indexes."""
TOO_LONG: Final = f"it is longer than {MOST_NAME_BYTES} bytes, the most for a key of S3; use a shorter name"
_SHOWN: Final = 200


class BadFileName(UserError):
    """A name that could lead out of its location, or that no store can keep."""

    code = "bad_file_name"
    hint = "give the file another name, below its folder"

    def __init__(self, name: str, why: str) -> None:
        self.name = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        self.why = why
        super().__init__(f"file name {self.name!r} is refused: {why}")


def check_file_name(name: str) -> str:
    """Return `name` if a store may keep a file under it; raise `BadFileName` otherwise."""
    why = refusal_of(name)
    if why:
        raise BadFileName(name, why)
    return name


def check_file_names(names: Iterable[str]) -> None:
    """Raise `BadFileName` for the first of `names` that is too long for a file. Nothing else of a name is looked at."""
    for name in names:
        if is_too_long(name):
            raise BadFileName(name, TOO_LONG)


def is_too_long(name: str) -> bool:
    """Return whether a name has more than `MOST_NAME_BYTES`."""
    # A character has four bytes at most: names of listings are seldom encoded.
    return len(name) * 4 > MOST_NAME_BYTES and len(name.encode(errors="surrogatepass")) > MOST_NAME_BYTES


def refusal_of(name: str) -> str | None:
    """Return why no store may keep a file under this name; None if one may."""
    if is_too_long(name):
        return TOO_LONG
    if not name or name.startswith("/"):
        return "it is empty or absolute; names are relative to their location"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return "it has an empty, '.' or '..' part"
    if CONTROL.search(name):
        return "it has control characters"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return None


def shown_name(name: str) -> str:
    """The name as a line of text that any terminal and database can keep."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
