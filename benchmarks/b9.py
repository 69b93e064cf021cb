"""B9: discovering 1 new file among 1,000,000 known ones, and 100,000 at once, beyond the plain listing of the folder.

The files are empty and in memory, so that what is measured is ours; the listing is `Files.list_after`, to its end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from benchmarks.table import Figure
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Dialect
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.inbox.discovery import Memory, discover
from tidemill.lake.inbox.inbox import Inbox, InboxSpec, ensure_inbox
from tidemill.names import DEFAULT_NAMESPACE, DatasetId
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.world import World

KNOWN = 1_000_000
AT_ONCE = 100_000
ROUNDS = 5

_T = TypeVar("_T")


def run(url: str) -> Iterator[Figure]:
    """Milliseconds beyond the listing for one new file, and files a second when many come at once."""
    catalog = open_catalog(url, World())
    database, target = ("SQLite", "≥ 50,000") if catalog.dialect is Dialect.SQLITE else ("PostgreSQL", "≥ 20,000")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        spec = InboxSpec(RawFormat(FileFormat.TEXT), settle=timedelta(0))
        location = Path(folder).as_uri()
        dataset = Dataset(DatasetId("b9"), DEFAULT_NAMESPACE, "b9", DatasetKind.INBOX, location, write_plain(spec))
        catalog.write(lambda db: (declare(db, dataset), ensure_inbox(db, dataset.dataset_id)))
        inbox = Inbox(dataset, spec)
        files = inbox.files(catalog.world)
        memory = Memory()
        rates, beyond, listings = [], [], []
        for start in range(0, KNOWN, AT_ONCE):
            for number in range(start, start + AT_ONCE):
                (Path(folder) / f"f{number:07}").touch()
            listing, _ = _measure(lambda: sum(1 for _ in files.list_after("", None, memory.seen)))
            memory.seen.drop()
            seconds, found = _measure(lambda: discover(catalog, inbox, memory))
            assert len(found.new) == AT_ONCE
            rates.append(AT_ONCE / (seconds - listing))
        for number in range(ROUNDS):
            (Path(folder) / f"g{number}").touch()
            plain, _ = _measure(lambda: sum(1 for _ in files.list_after("", None)))
            seconds, found = _measure(lambda: discover(catalog, inbox, memory))
            assert len(found.new) == 1
            listings.append(plain * 1000)
            beyond.append((seconds - plain) * 1000)
    catalog.close()
    yield Figure("B9", "listing of 1,000,000 files", database, listings, "ms")
    yield Figure("B9", "1 new among 1,000,000, beyond the listing", database, beyond, "ms", "≤ 20 ms")
    yield Figure("B9", "100,000 new at once, beyond the listing", database, rates, "files/s", target)


def _measure(work: Callable[[], _T]) -> tuple[float, _T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
