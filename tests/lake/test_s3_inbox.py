"""Inboxes in buckets: what arrives, is read and leaves there is processed once, as in a folder."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.test_inbox import Mill
from tests.s3_server import S3Server
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import load_sql
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare, find_by_id
from tidemill.lake.inbox.discovery import Memory, discover
from tidemill.lake.inbox.file_checks import FileRewritten, find_changed, sort_out, verify_claims
from tidemill.lake.inbox.inbox import After, Afterwards, FileState, Inbox, InboxSpec, ensure_inbox, list_files
from tidemill.lake.inbox.leaving import empty_inboxes
from tidemill.names import DEFAULT_NAMESPACE, DatasetId
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage.files import Files, StorageUnavailable
from tidemill.storage.locations import open_files

LEAVING = load_sql(str(Path(__file__).with_name("test_leaving.py")))
MARKS = ("storage.before_put", "leaving.copied", "storage.before_delete", "leaving.before_note")


class Crash(BaseException):
    """The end of a process."""


@dataclass
class Bucket(Mill):
    """An inbox `default.raw` in a bucket, with an archive beside it."""

    @property
    def files(self) -> Files:
        """The objects that arrive."""
        return self.inbox.files(self.catalog.world)

    @property
    def archive(self) -> Files:
        """The objects of the archive."""
        return open_files(str(self.inbox.spec.archive), self.catalog.world)

    def take(self) -> None:
        """Have a run process all that waits."""
        self.discover()
        tx = self.begin()
        good, _ = sort_out(self.catalog.world, [self.inbox], self.claim(tx))
        self.succeed(tx, good)

    def fates(self) -> list[Afterwards | None]:
        """Return the result for each content, by name."""
        return [row.afterwards for row in self.catalog.read(lambda db: list_files(db, self.inbox.dataset_id))]

    def come_due(self) -> None:
        """Let each wait be over."""
        self.catalog.write(lambda db: db.run(LEAVING.come_due))


@pytest.fixture(params=["s3_server", "s3_stub"])
def mill(request: pytest.FixtureRequest, sqlite_catalog_url: str) -> Iterator[Bucket]:
    """An empty inbox with an archive, on a store that keeps no conditions of copies and on one that does."""
    server: S3Server = request.getfixturevalue(request.param)
    bucket = server.make_bucket()
    catalog = open_catalog(sqlite_catalog_url, server.world)
    archive = f"s3://{bucket}/the%20archive"
    spec = InboxSpec(RawFormat(FileFormat.TEXT), settle=timedelta(0), after=After.ARCHIVE, archive=archive)
    dataset_id = DatasetId("ds_raw")
    location = f"s3://{bucket}/in"
    dataset = Dataset(dataset_id, DEFAULT_NAMESPACE, "raw", DatasetKind.INBOX, location, write_plain(spec))
    catalog.write(lambda db: (declare(db, dataset), ensure_inbox(db, dataset_id)))
    yield Bucket(catalog, Path(), Inbox.of(catalog.read(lambda db: find_by_id(db, dataset_id))))
    catalog.close()


def put_later(files: Files, name: str, content: bytes) -> None:
    """Write an object until its time, in whole seconds, is another one than before."""
    before = files.stat(name)
    assert before is not None
    while (now := files.stat(name)) is None or now.modified_at == before.modified_at:
        files.put(name, content)


def contents(files: Files) -> dict[str, bytes]:
    """Return each file with its content."""
    return {file.name: files.read(file.name) for file in files.list_after("", None)}


def test_each_object_is_judged_by_what_it_is_when_its_run_begins(mill):
    """Objects may be replaced, deleted or cut between the listing and the run: only that one ends otherwise."""
    for name in ("cut", "deleted", "empty", "good", "replaced"):
        mill.files.put(name, b"" if name == "empty" else b"line\n")
    mill.files.put("cut", b"line\nli")
    mill.discover()
    mill.files.delete("deleted")
    mill.files.put("replaced", b"another line\n")
    tx = mill.begin()
    claimed = mill.claim(tx)

    good, others = sort_out(mill.catalog.world, [mill.inbox], claimed)

    assert sorted(file.name for file in good) == ["empty", "good"]
    assert {one.name: one.status for one in others} == {
        "cut": FileState.ERROR,
        "deleted": FileState.SKIPPED,
        "replaced": FileState.SKIPPED,
    }
    assert {one.name for one in find_changed(mill.catalog.world, mill.inbox, claimed)} == {"deleted", "replaced"}


@pytest.mark.parametrize("mill", ["s3_stub"], indirect=True)
@pytest.mark.parametrize("file_format", [FileFormat.TEXT, FileFormat.PARQUET])
def test_an_object_that_cannot_be_read_fails_alone(mill, s3_stub, file_format):
    """An object in Glacier blocked its inbox: each attempt was postponed, without a failure, and good files waited."""
    mill.inbox = replace(mill.inbox, spec=replace(mill.inbox.spec, format=RawFormat(file_format)))
    for name in ("archived", "good"):
        mill.files.put(name, b"" if name == "good" else b"line\n" * 10)
    mill.discover()
    claimed = mill.claim(mill.begin())
    s3_stub.refuse(mill.files.url.split("/")[2], "in/archived", "InvalidObjectState")

    good, others = sort_out(mill.catalog.world, [mill.inbox], claimed)
    changed = find_changed(mill.catalog.world, mill.inbox, claimed)

    assert [file.name for file in good] == ["good"]
    assert [(one.name, one.status) for one in others] == [("archived", FileState.ERROR)]
    assert "it cannot be read: InvalidObjectState" in others[0].error
    assert [(one.name, one.status) for one in changed] == [("archived", FileState.ERROR)]


@pytest.mark.parametrize("count", [1, 40])
def test_no_run_commits_objects_that_changed_while_it_read(mill, count):
    """A single object is looked at by itself, many by a page of a listing."""
    for number in range(count):
        mill.files.put(f"file {number:02}", b"line\n")
    mill.discover()
    good, _ = sort_out(mill.catalog.world, [mill.inbox], mill.claim(mill.begin()))
    verify_claims(mill.catalog.world, [mill.inbox], good)

    mill.files.put("file 00", b"another line\n")
    with pytest.raises(FileRewritten, match="written again"):
        verify_claims(mill.catalog.world, [mill.inbox], good)
    mill.files.delete("file 00")
    with pytest.raises(FileRewritten, match="deleted"):
        verify_claims(mill.catalog.world, [mill.inbox], good)

    assert len(good) == count


def test_objects_of_a_bucket_that_is_away_are_not_closed(mill):
    """A missing bucket answers to each object that there is none."""
    mill.files.put("file", b"line\n")
    mill.discover()
    claimed = mill.claim(mill.begin())
    away = replace(mill.inbox, dataset=replace(mill.inbox.dataset, location="s3://no-such-bucket/in"))

    for attempt in (
        lambda: sort_out(mill.catalog.world, [away], claimed),
        lambda: verify_claims(mill.catalog.world, [away], claimed),
        lambda: find_changed(mill.catalog.world, away, claimed),
    ):
        with pytest.raises(StorageUnavailable):
            attempt()


@pytest.mark.parametrize("mark", MARKS)
def test_a_janitor_that_dies_anywhere_leaves_the_rest_to_the_next(mill, mark):
    """An object is archived once, and none is lost or left twice."""

    def strike(here: str) -> None:
        if here == mark:
            raise Crash

    mill.files.put("day=1/a file", b"line\n")
    mill.take()
    mill.archive.stat("nothing")
    other = copy.copy(mill.catalog)
    other.world = replace(mill.catalog.world, marked=strike)
    with suppress(Crash):
        empty_inboxes(other)

    empty_inboxes(mill.catalog)

    assert (contents(mill.files), contents(mill.archive)) == ({}, {"day=1/a file": b"line\n"})
    assert mill.fates() == [Afterwards.ARCHIVED]
    assert empty_inboxes(mill.catalog) == 0


def test_an_object_of_another_content_stays_in_the_archive(mill):
    """A name may come again: the archive has both contents, the later one with a mark in its name."""
    mill.archive.put("file.txt", b"earlier\n")
    mill.files.put("file.txt", b"line\n")
    mill.take()

    empty_inboxes(mill.catalog)

    assert contents(mill.files) == {}
    assert sorted(contents(mill.archive).values()) == [b"earlier\n", b"line\n"]
    assert contents(mill.archive)["file.txt"] == b"earlier\n"


def test_an_object_that_was_written_again_stays_for_its_own_run(mill):
    """Its new content has not been processed."""
    mill.files.put("file", b"line\n")
    mill.take()
    mill.files.put("file", b"another line\n")

    empty_inboxes(mill.catalog)

    assert (contents(mill.files), contents(mill.archive)) == ({"file": b"another line\n"}, {})
    assert mill.fates() == [Afterwards.REPLACED]
    assert [file.name for file in discover(mill.catalog, mill.inbox).new] == ["file"]


@pytest.mark.parametrize("count", [1, 40])
def test_an_object_that_was_sent_again_with_its_content_stays_for_its_own_run(mill, count):
    """The object has the etag of before. Janitors deleted such objects unread, and listings left them out."""
    memory, names = Memory(), [f"file {number:02}" for number in range(count)]
    for name in names:
        mill.files.put(name, b"line\n")
    discover(mill.catalog, mill.inbox, memory)
    mill.take()
    discover(mill.catalog, mill.inbox, memory)
    put_later(mill.files, "file 00", b"line\n")

    empty_inboxes(mill.catalog)
    empty_inboxes(mill.catalog)

    assert contents(mill.files) == {"file 00": b"line\n"}
    assert mill.fates() == [Afterwards.REPLACED, *[Afterwards.ARCHIVED] * (count - 1)]
    assert [file.name for file in discover(mill.catalog, mill.inbox, memory).new] == ["file 00"]


def test_an_object_that_was_deleted_is_noted_as_gone(mill):
    """There is nothing to archive, and no janitor looks for it again."""
    mill.files.put("file", b"line\n")
    mill.take()
    mill.files.delete("file")

    empty_inboxes(mill.catalog)

    assert mill.fates() == [Afterwards.GONE]
