"""The keeper: does what becomes due by time alone, without a commit or a message that announces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import WakeKind
from tidemill.errors import Unavailable
from tidemill.lake import expectations
from tidemill.lake.window import watermark
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.loops import LONGEST_NAP, SHORTEST_NAP
from tidemill.run.step import inputs, resumption

LOOK_AGAIN: Final = timedelta(milliseconds=200)
"""The delay of the next look after a commit. A commit may have set a time that comes before the end of the nap."""


@dataclass(frozen=True, slots=True)
class DueThing:
    """A thing that becomes due by time alone. Another kind of such things is one more entry in a tuple of these."""

    find_next: Callable[[Db], datetime | None]
    """Return the next time, maybe past, at which a thing is due; None for never."""
    do_due: Callable[[Catalog], object]
    """Do all that is due. Several keepers may do so at once."""


DUE_THINGS: Final = (
    DueThing(inputs.find_next_due, inputs.announce_due),
    DueThing(watermark.next_release, watermark.release_due),
    DueThing(expectations.find_next_check, expectations.check_due),
    DueThing(resumption.find_next_end_of_hold, resumption.end_holds),
)
"""Due things that only the catalog knows about: postponed work of inputs, watermarks, arrival expectations, and claims
of failed workflows."""


class Keeper:
    """Does due things one after the other, and sleeps until the next thing is due."""

    AWAITED: ClassVar = frozenset({WakeKind.TIME})
    """The changes by which a keeper gets something to do earlier."""

    def __init__(self, catalog: Catalog, discoverer: Discoverer) -> None:
        self._catalog = catalog
        self._due: Sequence[DueThing] = (DueThing(discoverer.find_next, lambda _: discoverer.list_due()), *DUE_THINGS)

    def step(self) -> timedelta:
        """Do what is due now, and return the time until the next thing is due.

        A due thing that raises `Unavailable` stops no other one. The first such error is raised after all are done.
        """
        failed: list[Unavailable] = []
        for thing in self._due:
            try:
                thing.do_due(self._catalog)
            except Unavailable as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return self._catalog.read(self._find_nap)

    def _find_nap(self, db: Db) -> timedelta:
        times = [time for thing in self._due if (time := thing.find_next(db)) is not None]
        if not times:
            return LONGEST_NAP
        return min(max(min(times) - db.now(), SHORTEST_NAP), LONGEST_NAP)
