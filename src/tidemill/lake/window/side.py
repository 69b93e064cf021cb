"""Side table of a window program: the file set of the rows that count in no window, with the reason for each row.

A program over several tables has a side table for each of them.

The rows outside the time of a partition are one partition of the side table, replaced whenever a run reads them again.
The late rows of a partition are another one, to which each run appends.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tidemill.shapes.keys import BadKey, KeySchema, KeyText

SIDE_KEYS: Final[Mapping[str, str]] = {"side_reason": "string", "side_partition": "string"}
SIDE_OFFSET: Final = "side_offset_us"
"""Column of a side table: the time of the row less the begin of its partition, in microseconds."""
_SCHEMA: Final = KeySchema.of(SIDE_KEYS)


class SideReason(StrEnum):
    """Reason for a row in a side table."""

    OUTSIDE = "outside"
    LATE = "late"


def side_of(program: str, table: str = "") -> str:
    """Return the name of the side table of a window program, qualified or not as the name of the program is.

    `table` is the table whose rows it keeps, as the query names it, for a program over several tables.
    """
    return f"{program}_side_{table.replace('.', '_')}" if table else f"{program}_side"


def name_partition(keys: KeySchema, key: KeyText) -> str:
    """Return the name of a partition in the column `side_partition`: its directories (`day=2021-03-19/hour=10`)."""
    return keys.to_path(keys.decode(key))


def name_to_key(keys: KeySchema, name: str) -> KeyText | None:
    """Return the partition of a name that `name_partition` has given; None if its table has other keys now."""
    try:
        return keys.encode(keys.from_path(name))
    except BadKey:
        return None


def to_side_key(keys: KeySchema, reason: SideReason, key: KeyText) -> KeyText:
    """Return the partition of the side table that holds the rows of a partition."""
    return _SCHEMA.encode((reason.value, name_partition(keys, key)))
