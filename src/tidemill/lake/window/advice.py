"""Advice about a watermark: declarations that fit badly to the partitions that come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.named import Param, load_sql
from tidemill.lake.fileset.fileset import Fileset
from tidemill.shapes.partition_time import WallTime, from_wall
from tidemill.shapes.watermark_spec import COMPLETENESS, INTERVAL

if TYPE_CHECKING:
    from tidemill.lake.window.advice_sql import Sql

SQL: Sql = load_sql(__file__)

_LATEST: Final = 24
"""The number of latest slots whose commits are counted."""
_OFTEN: Final = 3
"""The number of slots from which on commits after the completion of a slot are a habit of the writer."""


def advise(db: Db, fileset: Fileset) -> Iterator[str]:
    """Yield advice about the watermark of a file set, each in a sentence. Cost: the latest hundred slots."""
    spec, one = fileset.watermark, {"dataset_id": fileset.dataset_id}
    if spec is None or spec.follows_windows:
        return
    length: dict[str, Param] = {"length": spec.partition_time.interval.micros}
    for uneven in db.records(SQL.find_uneven, tuple[WallTime | None, WallTime | None], **one, **length):
        if uneven[0] is None or uneven[1] is None:
            continue
        yield (
            f"the partitions of {from_wall(uneven[0])} and {from_wall(uneven[1])} overlap, or do not lie on the grid "
            f"of '{INTERVAL}'='{spec.options[INTERVAL]}': correct the interval, or the pattern"
        )
    often = db.value(SQL.count_appended, int, **one, latest=_LATEST) or 0
    if often >= _OFTEN and not spec.completeness.waits:
        marker = "" if fileset.storing.monitor_every is None else ", or to 'success-file' if the writer leaves a marker"
        yield (
            f"{often} of the latest {_LATEST} times got rows by two commits or more after they were complete, which "
            f"computes windows again: set '{COMPLETENESS}' to 'delay(10 min)'{marker}"
        )
