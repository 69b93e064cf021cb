"""R14: files that are named in order and arrive late, by laws of delay; what each way to list them misses.

`python -m tests.lake.arrivals` plays a day of a file a second under each law, with a clock of its own: minutes.
"""

from __future__ import annotations

import bisect
import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tests.manual_clock import ManualClock
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.inbox.discovery import Memory, discover
from tidemill.lake.inbox.inbox import Inbox, InboxSpec, ensure_inbox
from tidemill.names import DEFAULT_NAMESPACE, DatasetId
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage.files import Capabilities, FileStatus, Seen, Unusable, second_of
from tidemill.testing.clock import NOON
from tidemill.world import World

POLL = timedelta(minutes=1)
LAWS: dict[str, Callable[[random.Random], float]] = {
    "5 s": lambda chance: chance.expovariate(1 / 5),
    "30 s": lambda chance: chance.expovariate(1 / 30),
    "120 s": lambda chance: chance.expovariate(1 / 120),
}
"""Seconds from a file's name to its arrival."""


@dataclass
class Store:
    """A store that lists from a name, as S3 does; counts what its listings gave."""

    there: list[FileStatus] = field(default_factory=list)
    given: int = 0
    capabilities = Capabilities(lists_from_name=True)

    def put(self, name: str, clock: ManualClock) -> None:
        """A file arrives."""
        bisect.insort(self.there, FileStatus(name, 1, clock.at, f"{name} {clock.at}"), key=lambda file: file.name)

    def list_after(
        self, _prefix: str, after: str | None, seen: Seen | None = None, _unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        for file in self.there[bisect.bisect_right(self.there, after or "", key=lambda one: one.name) :]:
            self.given += 1
            if seen is None or not seen.meets(file.name, file.etag, second_of(file.modified_at)):
                yield file

    def check_location(self) -> None:
        """The location is always there."""

    def stat(self, name: str) -> FileStatus | None:
        """Find a file."""
        return next((file for file in self.there if file.name == name), None)

    def stat_many(self, names: Sequence[str]) -> list[FileStatus | None]:
        """Find each file."""
        return list(map(self.stat, names))


@dataclass(frozen=True)
class StoredInbox(Inbox):
    """An inbox in a `Store`."""

    store: Store = field(default_factory=Store)

    def files(self, _world: World) -> Store:  # type: ignore[override]
        return self.store


def make_stored_inbox(catalog: Catalog, **spec: object) -> StoredInbox:
    """Declare it in the catalog."""
    declared = InboxSpec(RawFormat(FileFormat.TEXT), **{"settle": timedelta(0), **spec})  # type: ignore[arg-type]
    stored = write_plain(declared)
    dataset = Dataset(DatasetId("raw"), DEFAULT_NAMESPACE, "raw", DatasetKind.INBOX, "s3://bucket", stored)
    catalog.write(lambda db: (declare(db, dataset), ensure_inbox(db, dataset.dataset_id)))
    return StoredInbox(dataset, declared, Store())


@dataclass(frozen=True)
class Outcome:
    """Outcome for the files of one law of arrival."""

    files: int
    missed_by_marker: int
    """By the seed's way: behind the last name that is known."""
    missed: int
    late: int
    only_reconciled: int
    warnings: Sequence[str]
    given: int
    """Files that the store listed, all in all."""


def play(law: Callable[[random.Random], float], *, seconds: int, seed: int = 0, **spec: object) -> Outcome:
    """A file a second, a listing a minute, until all have arrived and a reconciliation has passed."""
    chance = random.Random(seed)
    arrivals = sorted((named + law(chance), f"hourly_feed.{named:010}") for named in range(seconds))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        clock = ManualClock()
        catalog = open_catalog(f"sqlite:///{folder}/catalog.db", World(clock=clock))
        stack.callback(catalog.close)
        inbox = make_stored_inbox(catalog, **spec)
        memory = Memory()
        found: set[str] = set()
        plain: set[str] = set()
        marker, late, only_reconciled, warnings = "", 0, 0, []
        end = timedelta(seconds=arrivals[-1][0]) + (inbox.spec.reconcile_every or timedelta(0)) + 2 * POLL
        come = 0
        while clock.at - NOON < end:
            clock.at += POLL
            while come < len(arrivals) and arrivals[come][0] <= (clock.at - NOON).total_seconds():
                inbox.store.put(arrivals[come][1], clock)
                come += 1
            listed = [file.name for file in inbox.store.list_after("", marker)]
            plain |= set(listed)
            marker = max([marker, *listed])
            inbox.store.given -= len(listed)
            seen = discover(catalog, inbox, memory)
            found |= {file.name for file in seen.new}
            late, only_reconciled = late + seen.late, only_reconciled + seen.missed
            warnings += [warning] if (warning := seen.warning(inbox)) else []
        return Outcome(
            seconds, seconds - len(plain), seconds - len(found), late, only_reconciled, warnings, inbox.store.given
        )


def main() -> None:
    """Print what a day of each law comes to."""
    for name, law in LAWS.items():
        for lookback in (timedelta(hours=1), timedelta(minutes=1)):
            outcome = play(law, seconds=86_400, lookback=lookback, reconcile_every=timedelta(hours=6))
            share = outcome.missed_by_marker / outcome.files
            print(f"delay {name}, lookback {lookback}: plain marker misses {share:.1%}")
            print(replace(outcome, warnings=outcome.warnings[:1]))


if __name__ == "__main__":
    main()
