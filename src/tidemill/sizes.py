"""Sizes as people write them: text with units (`"100 GB"`, `"64 KiB"`), never bare numbers."""

from __future__ import annotations

import re
from typing import Final

from tidemill.errors import UserError

_UNITS: Final = {"B": 1} | {
    f"{letter}{suffix}": int(base**power)
    for power, letter in enumerate("KMGTP", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,15}) ?(?P<unit>[A-Za-z]{1,3})")


class BadSize(UserError):
    """Something that is not a size with a unit."""

    code = "bad_size"

    def __init__(self, given: object, wanted: str = "a whole number with a unit, as '100 GB' or '64 KiB'") -> None:
        self.given = repr(given)
        self.why = f"use {wanted}"
        super().__init__(f"size {given!r} is refused", self.why, before=": ")


def parse_bytes(given: str) -> int:
    """Give the bytes that `given` says: units of 1000 (KB … PB) and of 1024 (KiB … PiB); raise `BadSize` otherwise."""
    match = _SIZE.fullmatch(given) if isinstance(given, str) else None
    if match is None or match["unit"] not in _UNITS:
        raise BadSize(given)
    return int(match["number"]) * _UNITS[match["unit"]]


def parse_share(given: str) -> float:
    """Return the share that a percentage says, from `0%` to `100%`; raise `BadSize` otherwise."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", given) if isinstance(given, str) else None
    if match is None or float(match[1]) > 100:
        raise BadSize(given, "a percentage, as '1%'")
    return float(match[1]) / 100


def exact_bytes(size: int) -> str:
    """Give `size` as `parse_bytes` reads it again, in the greatest unit that says it wholly: `10 GB`, `1234 B`."""
    unit = max((unit for unit in _UNITS if size % _UNITS[unit] == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]} {unit}"


def format_bytes(size: int) -> str:
    """Give `size` for people, in units of 1000, with three digits at most: `14.2 KB`."""
    number = float(size)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError
