"""Texts from outside, as the catalog can keep them, and counts in words."""

from __future__ import annotations

import re
from typing import Final

_UNPRINTABLE: Final = re.compile("[\0\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with U+FFFD for what no catalog stores: NUL (PostgreSQL) and halves of surrogate pairs (neither).

    For what users and their files say: an exception's text, the first line of a file that is no text at all.
    """
    if text.isascii() and "\0" not in text:
        return text  # thirty times faster, and most texts are: JSON with thousands of rows is
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def count_of(number: int, one: str) -> str:
    """Return a number of things in words: `1 row`, `2 rows`."""
    return f"{number} {one}{'' if number == 1 else 's'}"
