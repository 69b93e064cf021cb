"""The keeper: does what becomes due by time alone, without a commit or a message that announces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ClassVar, Final

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import Call, WakeKind
from tidemill.errors import Unavailable
from tidemill.lake import expectations
from tidemill.lake.window import watermark
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.loops import nap_for
from tidemill.run.step import inputs, resumption

LOOK_AGAIN: Final = timedelta(milliseconds=200)
"""The delay of the next look after a commit. A commit may have set a time that comes before the end of the nap."""


@dataclass(frozen=True, slots=True)
class DueThing:
    """A thing that becomes due by time alone. Another kind of such things is one more entry in a tuple of these."""

    next_times: Callable[[], Sequence[Call]]
    """Return the reads of the next times, maybe past, at which a thing is due. A read finds NULL for never."""
    do_due: Callable[[Catalog], object]
    """Do all that is due. Several keepers may do so at once."""
    only_by_time: bool = True
    """False if a thing may be due before any of these times, since a commit has made it due."""


DUE_THINGS: Final = (
    DueThing(inputs.next_due_times, inputs.announce_due),
    DueThing(lambda: [watermark.NEXT_RELEASE], watermark.release_due, only_by_time=False),
    DueThing(lambda: [expectations.NEXT_CHECK], expectations.check_due),
    DueThing(lambda: [resumption.NEXT_END_OF_HOLD], resumption.end_holds),
)
"""Due things that only the catalog knows about: postponed work of inputs, watermarks, arrival expectations, and claims
of failed workflows."""


class Keeper:
    """Does due things one after the other, and sleeps until the next thing is due.

    One statement asks for all times. A thing that becomes due by time alone costs nothing more before its time.
    """

    AWAITED: ClassVar = frozenset({WakeKind.TIME})
    """The changes by which a keeper gets something to do earlier."""

    def __init__(self, catalog: Catalog, discoverer: Discoverer) -> None:
        self._catalog = catalog
        self._discoverer = discoverer
        self._things: Sequence[DueThing] = DUE_THINGS

    def step(self) -> timedelta:
        """Do what is due now, and return the time until the next thing is due.

        A due thing that raises `Unavailable` stops no other one. The first such error is raised after all are done, and
        that of the catalog at once.
        """
        failed: list[Unavailable] = []
        works = [partial(thing.do_due, self._catalog) for thing in self._things if not thing.only_by_time]
        self._do([self._discoverer.list_due, *works], failed)
        due, nap = self._look()
        if due:
            self._do([partial(thing.do_due, self._catalog) for thing in due], failed)
            _, nap = self._look()
        if failed:
            raise failed[0]
        return nap

    def _do(self, works: Sequence[Callable[[], object]], failed: list[Unavailable]) -> None:
        for work in works:
            try:
                work()
            except Unavailable as error:
                failed.append(error)

    def _look(self) -> tuple[list[DueThing], timedelta]:
        """Return what is due by time, and the time until the next thing is due."""
        reads = [(thing, call) for thing in self._things for call in thing.next_times()]
        look = self._catalog.read(lambda db: db.look(self._discoverer.next_listing(), *(call for _, call in reads)))
        times = [(thing, at) for number, (thing, _) in enumerate(reads, 1) if (at := look.time(number)) is not None]
        listing = self._discoverer.find_next(look.time(0), look.now)
        past = {thing for thing, at in times if at <= look.now and thing.only_by_time}
        due = [thing for thing in self._things if thing in past]
        return due, nap_for(at - look.now for at in (listing, *(at for _, at in times)) if at is not None)
