"""The kinds of changes by which statements wake other processes, on both databases."""

from __future__ import annotations

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.named import WakeKind


def wakes_of(catalog: Catalog, effect: Effect) -> frozenset[WakeKind]:
    """Do the writes of an effect, without its guards, and return the kinds of changes for which processes wake."""

    def block(db: Db) -> frozenset[WakeKind]:
        db.tick()
        for call in effect.writes():
            db.call(call)
        return db.wakes

    return catalog.write(block)
