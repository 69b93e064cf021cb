"""The discoverer: lists inboxes and monitored tables when a listing is due, or the file system reports a change."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Call
from tidemill.errors import Conflict, Fenced, Unavailable, UserError
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.monitor import TreeMemory
from tidemill.lake.inbox import discovery
from tidemill.lake.inbox.inbox import Inbox
from tidemill.names import DatasetId
from tidemill.narration import Narrator
from tidemill.run.processes.monitoring import follow_table
from tidemill.storage.files import StorageUnavailable
from tidemill.storage.hints import FolderHints
from tidemill.storage.metastore import MetastoreUnavailable

_LIST_WATCHED_EVERY: Final = timedelta(minutes=1)
_RENEW_EVERY: Final = timedelta(seconds=90)
"""A renewal has SQLite write 16 to 20 kB (measured): each minute, that was 23 to 28 MB a day."""
_HOLD: Final = timedelta(minutes=2)
"""Longer than the time between renewals: no other process sees an inbox due before the renewal."""
_LEAVE_FOR: Final = timedelta(seconds=5)
"""The time for which a process leaves an inbox to others that the process could not list."""
_LONGEST_LEAD: Final = timedelta(milliseconds=200)
"""The longest time for which a process leaves an inbox that is due to other processes."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class Discoverer:
    """Lists the inboxes and the monitored tables that are due. The rules for inboxes hold for tables too.

    One process has charge of an inbox for a while. The process renews the charge of all its inboxes in the catalog
    every 90 s, by one row. Listings follow the clock of the process: every `list_every`; while the folder is watched,
    after a hint, or once a minute.

    A process that cannot reach the location of an inbox gives the charge up, and leaves the inbox to other processes
    for some seconds: the location may be away on one node alone.

    A process without charge of an inbox neither lists nor watches its folder. A process that ends in order leaves its
    inboxes to the others at once.

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
        self._tables: defaultdict[DatasetId, TreeMemory] = defaultdict(TreeMemory)
        self._process = catalog.world.new_id("discoverer")
        self._charges: set[DatasetId] = set()
        """The inboxes that this process has charge of."""
        self._renew_at = timedelta(0)
        """The renewal of the charge, by the clock of this process."""
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
        """Tell whether all inboxes are listed, and no file waits to be seen unchanged a second time.

        Inboxes that another process has charge of do not count.
        """
        return self._started and not self._settling

    def list_due(self) -> None:
        """List what is due now."""
        now = self._clock.monotonic()
        # A read that fails below loses no hint.
        self._looks |= dict.fromkeys(self._charges.intersection(self._hints.take() if self._hints else ()), now)
        # The process that had charge before this process began may be dead.
        due = dict(self._catalog.read(self._find_due if self._started else discovery.all_listings))
        self._left = {one: until for one, until in self._left.items() if until > now}
        # A first step that has failed has left charges, and by their ends all listings are due.
        own = set() if self._started else self._charges
        order = [one for one in due if one not in self._left and one not in own]
        self._world.random.shuffle(order)
        for dataset_id in order:
            self._take(dataset_id, due[dataset_id], now)
        if self._charges and self._renew_at <= now:
            self._renew(now)
        self._lead = self._world.between(timedelta(0), _LONGEST_LEAD)
        for dataset_id in sorted(one for one, at in self._looks.items() if at <= now):
            self._list(dataset_id)
        self._started = True

    def next_listing(self) -> Call:
        """Return the read of the time of the next listing that the catalog knows of."""
        return discovery.next_listing(self._process, self._left)

    def find_next(self, listing: datetime | None, now: datetime) -> datetime | None:
        """Return the time of the next listing or renewal, maybe past; None without an inbox.

        `listing` is the answer to `next_listing`, and `now` the catalog's time of it.
        """
        times = [*self._looks.values(), *([self._renew_at] if self._charges else []), *self._left.values()]
        if listing is not None:
            listing += self._lead
        if not times:
            return listing
        # Rounded up: a step that comes early finds nothing due.
        own = now - (self._clock.monotonic() - min(times)) // _MILLISECOND * _MILLISECOND
        return own if listing is None else min(own, listing)

    def leave(self) -> None:
        """Leave all inboxes to other processes now, after the last step. Without a catalog, the charge ends later."""
        if self._charges:
            with suppress(Unavailable):
                self._catalog.write(lambda db: discovery.end_charge(db, self._process))

    def _find_due(self, db: Db) -> list[tuple[DatasetId, datetime]]:
        return discovery.due_listings(db, process=self._process, lead=self._lead, held=self._charges)

    def _take(self, dataset_id: DatasetId, due_at: datetime, now: timedelta) -> None:
        """Take charge of an inbox, and have it listed now. Another process may be faster."""
        # Of another process's inbox nothing is written: a write would wait for that process.
        listing = self._catalog.read(lambda db: discovery.find_listing(db, dataset_id))
        if listing is not None and listing.next_listing_at == due_at:
            renew_at = self._renew_at if self._charges else now + _RENEW_EVERY
            # A reply may be lost. Then the charge may be ours, and the renewal of the next step says so.
            self._charges.add(dataset_id)
            self._renew_at = now
            taken = self._catalog.write(lambda db: discovery.take_listing(db, dataset_id, due_at, self._process, _HOLD))
            self._renew_at = renew_at
            if taken:
                self._looks[dataset_id] = now
                return
        self._lose(dataset_id)

    def _renew(self, now: timedelta) -> None:
        """Renew the charge of all inboxes, apart from those that other processes have taken."""
        held = self._catalog.write(lambda db: discovery.renew_charge(db, self._process, _HOLD))
        for dataset_id in self._charges.difference(held):
            self._lose(dataset_id)
        for dataset_id in self._charges:
            self._looks.setdefault(dataset_id, now)
        self._renew_at = now + _RENEW_EVERY

    def _lose(self, dataset_id: DatasetId) -> None:
        self._charges.discard(dataset_id)
        if dataset_id not in self._settling:  # else the next look asks for the process in charge
            self._looks.pop(dataset_id, None)
        if self._hints:
            self._hints.unwatch(dataset_id)

    def _list(self, dataset_id: DatasetId) -> None:
        now = self._clock.monotonic()
        listing = self._catalog.read(lambda db: discovery.find_listing(db, dataset_id))
        # The inbox was dropped, or a process that began later has taken it.
        if listing is None or (self._started and listing.in_charge not in {None, self._process}):
            self._settling.discard(dataset_id)
            self._lose(dataset_id)
            return
        watched = _listed(self._catalog.read(lambda db: datasets.find_by_id(db, dataset_id)))
        self._looks.pop(dataset_id, None)
        if isinstance(watched, Fileset):
            self._follow(watched, now)
        else:
            self._discover(watched, now)

    def _discover(self, watched: Inbox, now: timedelta) -> None:
        """Record what is new in an inbox, and note when to look again."""
        dataset_id = watched.dataset_id
        every = watched.spec.list_every
        waits: list[timedelta] = []
        try:
            if self._hints and self._hints.watch(dataset_id, watched.files(self._catalog.world)):
                every = max(every, _LIST_WATCHED_EVERY)
            if dataset_id in self._charges:
                waits.append(every)
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
            # First: a commit that fails below must not take the look along.
            self._looks[dataset_id] = now + watched.spec.list_every
            if isinstance(error, StorageUnavailable):
                self._leave(watched, now)
            return
        if waits:
            self._looks[dataset_id] = now + min(waits)

    def _follow(self, table: Fileset, now: timedelta) -> None:
        """Bring a monitored table up to its directories, if this process has charge of the table."""
        if table.dataset_id not in self._charges:
            return  # the next look takes the charge, or leaves the table to another process
        self._looks[table.dataset_id] = now + _interval(table)
        memory = self._tables[table.dataset_id]
        try:
            found = follow_table(self._catalog, table, memory, self._process)
            self._narrator.followed(table, found)
        except (Conflict, Fenced, Unavailable, UserError) as error:
            memory.forget()
            self._narrator.tell("table", table.dataset.name, str(error), error=error.code)
            if isinstance(error, StorageUnavailable | MetastoreUnavailable):
                self._leave(table, now)

    def _leave(self, watched: Inbox | Fileset, now: timedelta) -> None:
        """Leave what cannot be reached to other processes for a while, if this process has charge of it."""
        if watched.dataset_id in self._charges:
            self._catalog.write(lambda db: discovery.have_listed(db, watched))
            self._lose(watched.dataset_id)
            self._left[watched.dataset_id] = now + max(_LEAVE_FOR, _interval(watched))


def _listed(dataset: Dataset) -> Inbox | Fileset:
    return Inbox.of(dataset) if dataset.kind is DatasetKind.INBOX else Fileset.of(dataset)


def _interval(listed: Inbox | Fileset) -> timedelta:
    if isinstance(listed, Inbox):
        return listed.spec.list_every
    return listed.storing.monitor_every or _LIST_WATCHED_EVERY
