"""The course of new objects through an inbox of S3, timed and counted: discovered, claimed, closed, archived.

`make s3-course` plays 10,000 objects on a stub that answers each request after 20 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.s3_stub import S3Stub, running_s3_stub
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import begin, commit
from tidemill.json_specs import write_plain
from tidemill.lake.claims import Restamp
from tidemill.lake.datasets import Dataset, DatasetKind, declare, find_by_id
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.file_checks import sort_out, succeeded, verify_claims
from tidemill.lake.inbox.file_claims import claim_files
from tidemill.lake.inbox.file_endings import FILES, CloseFiles
from tidemill.lake.inbox.inbox import After, Inbox, InboxSpec, ensure_inbox
from tidemill.lake.inbox.leaving import empty_inboxes
from tidemill.names import DEFAULT_NAMESPACE, DatasetId, RunId
from tidemill.shapes.formats import FileFormat, RawFormat

MOST_SECONDS = {"discovered": 2, "claimed and closed": 30, "archived": 60}
"""Bounds of issue 15, for 10,000 objects at 20 ms a request."""


@dataclass
class Course:
    """Seconds and requests of each step."""

    stub: S3Stub
    seconds: dict[str, float] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time and count a step."""
        begun = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - begun
        self.requests[name] = self.stub.read_counts()

    @property
    def total(self) -> int:
        """The number of all requests."""
        return sum(sum(counts.values()) for counts in self.requests.values())


def play(stub: S3Stub, catalog_url: str, count: int) -> Course:
    """Have `count` objects of a new bucket discovered, claimed and closed by one run, and archived."""
    catalog = open_catalog(catalog_url, stub.world)
    try:
        return _play(stub, catalog, count)
    finally:
        catalog.close()


def _play(stub: S3Stub, catalog: Catalog, count: int) -> Course:
    inbox = add_inbox(stub, catalog, count)
    course = Course(stub)
    stub.read_counts()
    with course.step("discovered"):
        assert len(discover(catalog, inbox).new) == count
    with course.step("claimed and closed"):
        run_id = RunId("run_1")
        tx = begin(catalog, run_id=run_id, epoch=1, effects=[Restamp(FILES, run_id, 1)])
        good, others = sort_out(catalog.world, [inbox], claim_files(catalog, tx, [inbox]))
        assert (len(good), others) == (count, [])
        verify_claims(catalog.world, [inbox], good)
        commit(catalog, tx, [CloseFiles(run_id, 1, tuple(map(succeeded, good)))])
    with course.step("archived"):
        done = 0
        while taken := empty_inboxes(catalog):
            done += taken
        assert done == count
    return course


def add_inbox(stub: S3Stub, catalog: Catalog, count: int) -> Inbox:
    """Declare an inbox in a new bucket with so many objects."""
    bucket = stub.make_bucket()
    stub.fill(bucket, "in/2026-11-26/file-{:08}.csv", count)
    archive = f"s3://{bucket}/archive"
    spec = InboxSpec(RawFormat(FileFormat.TEXT), settle=timedelta(0), after=After.ARCHIVE, archive=archive)
    dataset_id = DatasetId("ds_raw")
    location = f"s3://{bucket}/in"
    dataset = Dataset(dataset_id, DEFAULT_NAMESPACE, "raw", DatasetKind.INBOX, location, write_plain(spec))
    catalog.write(lambda db: (declare(db, dataset), ensure_inbox(db, dataset_id)))
    return Inbox.of(catalog.read(lambda db: find_by_id(db, dataset_id)))


def main() -> int:
    """Play the whole, print the figures, and fail if a step takes too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--late", type=float, default=0.02, help="seconds of each answer")
    options = parser.parse_args()
    with running_s3_stub() as stub, tempfile.TemporaryDirectory() as folder:
        stub.answer_after(options.late)
        course = play(stub, f"sqlite:///{Path(folder) / 'catalog.db'}", options.count)
    for name, seconds in course.seconds.items():
        print(f"{name}: {seconds:.1f} s (at most {MOST_SECONDS[name]}), {course.requests[name]}")
    print(f"{course.total / options.count:.3f} requests a file")
    return int(any(seconds > MOST_SECONDS[name] for name, seconds in course.seconds.items()))


if __name__ == "__main__":
    sys.exit(main())
