"""The discoverer: lists inboxes when a listing is due, or when the file system reports a change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.errors import Unavailable
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset
from tidemill.lake.inbox import discovery
from tidemill.lake.inbox.inbox import Inbox
from tidemill.names import DatasetId
from tidemill.narration import Narrator
from tidemill.storage.files import StorageUnavailable
from tidemill.storage.hints import FolderHints

_LIST_WATCHED_EVERY: Final = timedelta(minutes=1)
_LEAVE_FOR: Final = timedelta(seconds=5)
"""The time for which a process leaves an inbox to others that the process could not list."""
_LONGEST_LEAD: Final = timedelta(milliseconds=200)
"""The longest time for which a process leaves an inbox that is due to other processes."""
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Charge:
    """An inbox that this process lists: the end of the charge in the catalog, and its renewal by the own clock."""

    until: datetime
    renew_at: timedelta


class Discoverer:
    """Lists the inboxes that are due.

    One process has charge of an inbox for a while. The process renews the charge in the catalog once a minute. Listings
    in between follow the clock of the process: every `list_every`, or after a hint while the folder is watched.

    A process that cannot reach the location of an inbox gives the charge up, and leaves the inbox to other processes
    for some seconds: the location may be away on one node alone.

    The inboxes of a process that died become due for all other processes at once. Each process waits for a random time
    more, and then takes these inboxes in a random order. Otherwise all processes would queue for the same rows.
    """

    def __init__(self, catalog: Catalog, narrator: Narrator, hints: FolderHints[DatasetId] | None = None) -> None:
        self._catalog = catalog
        self._world = catalog.world
        self._clock = catalog.world.clock
        self._narrator = narrator
        self._hints = hints
        self._memories: defaultdict[DatasetId, discovery.Memory] = defaultdict(discovery.Memory)
        self._charges: dict[DatasetId, _Charge] = {}
        self._looks: dict[DatasetId, timedelta] = {}
        """The next listing of an inbox, by the clock of this process."""
        self._left: dict[DatasetId, timedelta] = {}
        """The times until which this process leaves inboxes to others, by its own clock."""
        self._settling: set[DatasetId] = set()
        self._lead = timedelta(0)
        """The time by which the next look leaves inboxes to other processes."""
        self._started = False

    @property
    def looked(self) -> bool:
        """Tell whether all inboxes are listed, and no file waits to be seen unchanged a second time."""
        return self._started and not self._settling

    def list_due(self) -> None:
        """List what is due now."""
        hinted = self._hints.take() if self._hints else set()
        # The process that had charge before this process began may be dead.
        due = dict(self._catalog.read(self._find_due if self._started else discovery.all_listings))
        now = self._clock.monotonic()
        self._left = {one: until for one, until in self._left.items() if until > now}
        own = {one: charge.until for one, charge in self._charges.items() if charge.renew_at <= now and one not in due}
        order = [one for one in due if one not in self._left]
        self._world.random.shuffle(order)
        for dataset_id in order:
            self._take({dataset_id: due[dataset_id]}, now)
        # In one commit: a hundred idle inboxes were a hundred commits a minute. No other process wants them yet.
        self._take({one: own[one] for one in sorted(own) if one not in self._left}, now)
        self._lead = self._world.between(timedelta(0), _LONGEST_LEAD)
        for dataset_id in sorted(hinted | {one for one, at in self._looks.items() if at <= now}):
            self._list(dataset_id)
        self._started = True

    def find_next(self, db: Db) -> datetime | None:
        """Return the time of the next listing or renewal, maybe past; None without an inbox."""
        times = [*self._looks.values(), *(charge.renew_at for charge in self._charges.values()), *self._left.values()]
        listing = discovery.next_listing(db, self._left)
        if listing is not None:
            listing += self._lead
        if not times:
            return listing
        # Rounded up: a step that comes early finds nothing due.
        own = db.now() - (self._clock.monotonic() - min(times)) // _MILLISECOND * _MILLISECOND
        return own if listing is None else min(own, listing)

    def _find_due(self, db: Db) -> list[tuple[DatasetId, datetime]]:
        return discovery.due_listings(db, lead=self._lead, held=self._charges)

    def _take(self, due: Mapping[DatasetId, datetime], now: timedelta) -> None:
        """Take or renew the charge of inboxes, and have them listed now. Another process may be faster."""
        found = self._catalog.read(lambda db: [_find_if_due(db, *one) for one in due.items()]) if due else []
        # Of the others another process has charge, and a write would wait for that process.
        still = [Inbox.of(dataset) for dataset in found if dataset is not None]
        every = {one.dataset_id: max(one.spec.list_every, _LIST_WATCHED_EVERY) for one in still}

        def block(db: Db) -> dict[DatasetId, datetime | None]:
            # Half as long again, so that no other process sees an inbox due before the renewal.
            return {
                one.dataset_id: discovery.take_listing(db, one, due[one.dataset_id], every[one.dataset_id] * 1.5)
                for one in still
            }

        taken = self._catalog.write(block) if still else {}
        for dataset_id in due:
            until = taken.get(dataset_id)
            if until is None:
                self._lose(dataset_id)
            else:
                self._charges[dataset_id] = _Charge(until, now + every[dataset_id])
                self._looks[dataset_id] = now

    def _lose(self, dataset_id: DatasetId) -> None:
        self._charges.pop(dataset_id, None)
        self._looks.pop(dataset_id, None)

    def _list(self, dataset_id: DatasetId) -> None:
        now = self._clock.monotonic()
        self._looks.pop(dataset_id, None)
        if not self._catalog.read(lambda db: discovery.find_listing(db, dataset_id)):
            self._charges.pop(dataset_id, None)  # the inbox was dropped
            self._settling.discard(dataset_id)
            return
        watched = Inbox.of(self._catalog.read(lambda db: datasets.find_by_id(db, dataset_id)))
        waits = [watched.spec.list_every] if dataset_id in self._charges else []
        try:
            if self._hints and self._hints.watch(dataset_id, watched.files(self._catalog.world)):
                waits = []  # the renewal of the charge lists the inbox
            found = discovery.discover(self._catalog, watched, self._memories[dataset_id])
            if found.look_again is not None:
                waits.append(found.look_again)
            # Not before: another thread reads `looked`, and then looks in the catalog for what was found.
            if found.settling:
                self._settling.add(dataset_id)
            else:
                self._settling.discard(dataset_id)
            self._narrator.discovered(watched, found)
        except Unavailable as error:
            # A folder that is away must not hold up other inboxes.
            self._settling.discard(dataset_id)
            self._narrator.tell("inbox", watched.dataset.name, str(error), error=error.code)
            if isinstance(error, StorageUnavailable) and self._charges.pop(dataset_id, None) is not None:
                self._left[dataset_id] = now + max(_LEAVE_FOR, watched.spec.list_every)
                self._catalog.write(lambda db: discovery.have_listed(db, watched))
                return
            waits.append(watched.spec.list_every)
        if waits:
            self._looks[dataset_id] = now + min(waits)


def _find_if_due(db: Db, dataset_id: DatasetId, due_at: datetime) -> Dataset | None:
    """Return the data set of an inbox whose listing is still due at `due_at`; None if a process has moved the time."""
    if discovery.find_listing(db, dataset_id).get(dataset_id) != due_at:
        return None
    return datasets.find_by_id(db, dataset_id)
