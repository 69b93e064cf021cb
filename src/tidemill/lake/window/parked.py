"""Parked partitions: partitions without a time that can be read, and their release once a custom extractor reads it.

A commit parks a partition if the extractor cannot be loaded in its process, or raises. A process that can load the
extractor releases such partitions when it commits to the file set, or deploys its app.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.outside_times import release_outside
from tidemill.lake.window.reopening import reopen_windows
from tidemill.lake.window.watermark import (
    SQL,
    MoveWatermark,
    fill_slots,
    find_parked,
    find_times,
    forget_parked,
    guard_declaration,
    list_parked,
)
from tidemill.lake.window.windows import announce_late
from tidemill.shapes.keys import Key, KeyText
from tidemill.shapes.partition_time import Instant, Span, to_wall

_MOST: Final = 10_000
"""The most partitions that are looked at together."""


def explain_parked(fileset: Fileset, keys: Iterable[KeyText]) -> dict[str, str]:
    """Return why each of these partitions has no time, by its shown key, as this process finds it."""
    spec = fileset.watermark
    if spec is None:
        return {}
    found = {}
    for key in keys:
        why = spec.partition_time.explain(fileset.keys.decode(key))
        found[fileset.show(key)] = why or "its time was not read when it was committed"
    return found


def release_parked(catalog: Catalog, fileset: Fileset, cause: str) -> int:
    """Give parked partitions of a file set with a custom extractor their times; return their number.

    A window program over the file set computes the windows from the time of the earliest one on again. No function of
    the project runs in the transaction. Cost: the parked partitions. Call it outside a transaction.
    """
    spec = fileset.watermark
    if spec is None or not spec.enabled or spec.partition_time.extractor.custom is None:
        return 0
    released, after = 0, ""
    while parked := catalog.read(lambda db: list_parked(db, fileset, _MOST, after)):  # noqa: B023  # at once
        times = find_times(fileset, map(fileset.keys.decode, parked))
        spans = {key: span for key, span in times.items() if span is not None}
        if spans:
            released += catalog.write(lambda db: _release(db, fileset, spans, cause))  # noqa: B023  # at once
        after = parked[-1]
    return released


def _release(db: Db, fileset: Fileset, found: dict[Key, Span], cause: str) -> int:
    db.tick()
    db.call(guard_declaration(fileset))
    # Another process may have released partitions since they were listed, or dropped them.
    parked = find_parked(db, fileset, found)
    spans = {key: span for key, span in found.items() if key in parked}
    if not spans:
        return 0
    times = [{"partition_key": fileset.keys.encode(key), "slot_time": span.time} for key, span in spans.items()]
    db.run(SQL.set_times, dataset_id=fileset.dataset_id, times=json.dumps(times))
    begins = Instant(min(span.begins for span in spans.values()))
    # The next listing looks for the markers.
    for call in (
        *forget_parked(fileset, spans),
        *release_outside(fileset, map(fileset.keys.encode, spans)),
        *fill_slots(fileset, dict(spans), unmarked=spans.keys()),
        *MoveWatermark(fileset, cause).writes(),
        announce_late(fileset, begins),
    ):
        db.call(call)
    spec = fileset.watermark
    assert spec is not None, "the caller has looked"  # noqa: S101
    first = Instant(begins - spec.row_lag)
    # Also of programs that have not come so far: a run that is computing now has not seen the partitions.
    reopen_windows(db, fileset, first, to_wall(spec.window_zone.local(first)), cause)
    return len(spans)
