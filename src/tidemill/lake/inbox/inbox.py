"""Inboxes: each file that others write into a folder is processed exactly once (seed 004).

A content is known by its name, size and time, which a copy of the folder keeps; `checksum` decides where those are
equal and the etag is not. Written again under its name, a file is another content. `discovery` records what is new, in
one commit with the message that triggers; a run claims files for itself through all its attempts (`file_claims`), and
its commit closes them (`file_endings`). What was not processed can always be claimed again, until it has failed too
often by itself.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.named import Param, load_sql
from tidemill.epoch import floor_ms, to_ms
from tidemill.errors import UserError
from tidemill.json_specs import read_plain
from tidemill.lake.datasets import Dataset, DatasetKind, find_by_id
from tidemill.names import DatasetId, RunId
from tidemill.shapes.expectation import Arrivals
from tidemill.shapes.formats import RawFormat
from tidemill.storage.files import Files, FileStatus
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.lake.inbox.inbox_sql import Sql

SQL: Sql = load_sql(__file__)

ALWAYS_IGNORED: Final = ("*_current", "*.tmp", "*._COPYING_", "_*", ".*")
"""Names of files that are still being written, or are none of the data."""


class FileState(StrEnum):
    """State of a file. IN_PROGRESS, SUCCESS and ERROR are seed 004's."""

    NEW = "NEW"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    """Failed, and will be tried again."""
    QUARANTINED = "QUARANTINED"
    """Failed too often, or refused by rule: a person has to look."""
    IGNORED = "IGNORED"
    """Never delivered: a person has looked, and decided so. A retry by name takes that back."""
    SKIPPED = "SKIPPED"
    """Never delivered: another content took its place, or it was gone. New again should it come back."""


class After(StrEnum):
    """Rule for a processed file, after the commit."""

    KEEP = "keep"
    ARCHIVE = "archive"
    DELETE = "delete"


class Afterwards(StrEnum):
    """Intent for a processed file, and later the result."""

    ARCHIVE = "archive"
    """To be moved to the archive."""
    DELETE = "delete"
    """To be deleted."""
    ARCHIVED = "archived"
    DELETED = "deleted"
    REPLACED = "replaced"
    """Left alone: it was written again."""
    GONE = "gone"
    """Another process has deleted or moved the file before."""


class OnRewrite(StrEnum):
    """Rule for a file that is written again under its name after it was processed."""

    REPROCESS = "reprocess"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class InboxSpec:
    """Declaration of an inbox: watching and reading.

    `ignore` adds shell patterns to the ones that always apply. They are compared with each part of a name. A file that
    fails has `attempts` attempts, the second after `retry_after`, the next after twice that time. Then the file is
    quarantined. One run takes at most `max_files` and `max_bytes`, but at least one file.

    A file is left to its writer until three conditions hold: it is `min_age` old, it has not changed for `settle` while
    this process watched, and the file named by `done_flag` (`{name}.done`) exists. A store that can list from a name is
    listed from the marker of one `lookback` ago, and as a whole every `reconcile_every` (None: never). A closed file is
    forgotten after its name has been missing for `forget_after`.

    `archive` is the location to which processed files are moved, if the inbox archives them.
    """

    format: RawFormat
    ignore: tuple[str, ...] = ()
    on_rewrite: OnRewrite = OnRewrite.REPROCESS
    attempts: int = 3
    retry_after: timedelta = timedelta(minutes=1)
    max_files: int | None = None
    max_bytes: int | None = None
    list_every: timedelta = timedelta(seconds=1)
    min_age: timedelta = timedelta(0)
    settle: timedelta = timedelta(seconds=1)
    done_flag: str | None = None
    lookback: timedelta = timedelta(hours=1)
    reconcile_every: timedelta | None = timedelta(hours=6)
    after: After = After.KEEP
    archive: str | None = None
    forget_after: timedelta = timedelta(days=90)
    expect: Arrivals | None = None

    def __post_init__(self) -> None:
        bounds = {"attempts": self.attempts, "max_files": self.max_files, "max_bytes": self.max_bytes}
        for name, bound in bounds.items():
            if bound is not None and bound < 1:
                raise UserError(f"{name} of an inbox is at least 1, not {bound}")
        if self.done_flag is not None and (self.flag_of("a.b") == "a.b" or "/" in self.done_flag or not self.done_flag):
            raise UserError(
                f"done_flag of an inbox names a file beside each, as '{{name}}.done', not {self.done_flag!r}"
            )
        if self.reconcile_every == timedelta(0):
            raise UserError("reconcile_every of an inbox is a duration, as '6h', or None for never")
        if (self.after is After.ARCHIVE) != bool(self.archive):
            raise UserError(
                f"an inbox with after={self.after.value!r} and archive={self.archive!r}: say both "
                'after="archive" and archive="where/to", or neither'
            )

    def ignored_by(self, name: str) -> str | None:
        """The pattern that a file of this name is ignored by; a folder that matches hides all in it."""
        patterns = _patterns_of(self.ignore, self.done_flag)
        for part in name.split("/"):
            if patterns.any.match(part):
                return next(pattern for pattern in patterns.each if fnmatch.fnmatchcase(part, pattern))
        return None

    @property
    def holds_back(self) -> bool:
        """True if a file may have to wait for its writer whatever its name is."""
        return bool(self.min_age or self.settle or self.done_flag)

    def flag_of(self, name: str) -> str | None:
        """The name of the file that says that this one is whole; None when none has to."""
        if self.done_flag is None:
            return None
        folder, slash, last = name.rpartition("/")
        return (
            folder + slash + self.done_flag.replace("{name}", last).replace("{stem}", last.rpartition(".")[0] or last)
        )


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Patterns of ignored names; `any` matches what one of them does, at a tenth of the time."""

    each: tuple[str, ...]
    any: re.Pattern[str]


@lru_cache(maxsize=64)
def _patterns_of(ignore: tuple[str, ...], done_flag: str | None) -> _Patterns:
    # A flag is none of the data.
    flags = () if done_flag is None else (done_flag.replace("{name}", "*").replace("{stem}", "*"),)
    each = (*ALWAYS_IGNORED, *ignore, *flags)
    return _Patterns(each, re.compile("|".join(map(fnmatch.translate, each))))


@dataclass(frozen=True, slots=True)
class Inbox:
    """A data set that is a watched location."""

    dataset: Dataset
    spec: InboxSpec

    @classmethod
    def of(cls, dataset: Dataset) -> Inbox:
        """Return `dataset` as an inbox. An error for another kind."""
        if dataset.kind is not DatasetKind.INBOX:
            raise UserError(
                f"{dataset.qualified_name} is a data set of kind {dataset.kind}: no files arrive there; "
                f"`tidemill dataset show {dataset.qualified_name}` shows it"
            )
        return cls(dataset, read_plain(InboxSpec, dataset.spec))

    @property
    def dataset_id(self) -> DatasetId:
        """Id of the data set."""
        return self.dataset.dataset_id

    @property
    def qualified_name(self) -> str:
        """Name of the inbox, as people and messages use it."""
        return self.dataset.qualified_name

    @property
    def rejects(self) -> str:
        """The qualified name of the file set that gets its bad rows."""
        return rejects_of(self.qualified_name)

    def read_as(self, schema: str) -> Inbox:
        """The same files with other columns: a DDL text, as in `RawFormat`."""
        raw = replace(self.spec.format, schema=schema)
        raw.check_values()
        return replace(self, spec=replace(self.spec, format=raw))

    def files(self, world: World) -> Files:
        """The files at its location."""
        return open_files(self.dataset.location, world, self.dataset.root)


def rejects_of(inbox: str) -> str:
    """The name of the file set that gets the bad rows of an inbox, qualified or not as the inbox's is."""
    return f"{inbox}_rejects"


@dataclass(frozen=True, slots=True)
class InboxFile:
    """Row of one content of a file."""

    name: str
    content_version: str
    bytes: int
    modified_at: datetime
    first_seen: datetime
    status: FileState
    failures: int
    retry_at: datetime | None
    error: str | None
    run_id: RunId | None
    row_count: int | None
    afterwards: Afterwards | None
    """Intent for the processed file, and later the result. None when the file stays."""
    archive: str | None
    """Location to which the file is to be moved. For an archived file its URL."""


def content_version(file: FileStatus) -> str:
    """Hash what tells one content of a name from another and survives a copy: size and time."""
    return _hash(f"{file.bytes}|{to_ms(file.modified_at)}")


def exact_version(file: FileStatus) -> str:
    """Hash the etag too: the version of a content that has size and time of an earlier one, and another checksum.

    Catalogs of earlier versions have it for each content.
    """
    return _hash(f"{file.etag}|{file.bytes}|{to_ms(file.modified_at)}")


def latest_time(modified_at: datetime) -> datetime:
    """Return the latest time at which a content of this time may have been written.

    A copy that keeps whole seconds only cuts the time: a time without milliseconds stands for all of its second.
    """
    known = floor_ms(modified_at)
    return known if known.microsecond else known + timedelta(milliseconds=999)


def is_of_time(copy: datetime, original: datetime) -> bool:
    """Return whether a file of the time `copy` may be a copy of a content of the time `original`."""
    return floor_ms(copy) <= floor_ms(original) <= latest_time(copy)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def ensure_inbox(db: Db, dataset_id: DatasetId) -> None:
    """Have the inbox listed, at once, and its files treated as its row now says. Part of its deployment."""
    spec = Inbox.of(find_by_id(db, dataset_id)).spec
    db.run(
        SQL.insert_marker,
        dataset_id=dataset_id,
        attempts=spec.attempts,
        retry_after=spec.retry_after,
        afterwards=None if spec.after is After.KEEP else spec.after,
        archive=spec.archive,
    )


def list_files(
    db: Db, dataset_id: DatasetId, *, state: FileState | None = None, after: str | None = None, limit: int = 100
) -> list[InboxFile]:
    """About `limit` files of an inbox by name and content version, whose names sort behind `after`.

    All contents of one name are on one page. Cost: the page; with `state` also what lies between.
    """
    only: dict[str, Param] = {"dataset_id": dataset_id, "state": state or ""}
    files = db.records(SQL.list_files, InboxFile, after=after or "", limit=limit, **only)
    if len(files) == limit:
        name, version = files[-1].name, files[-1].content_version
        files += db.records(SQL.list_versions, InboxFile, name=name, content_version=version, **only)
    return files


def count_files(db: Db, dataset_id: DatasetId) -> dict[FileState, tuple[int, int]]:
    """Files and bytes by state; reads all rows of the inbox."""
    rows = db.records(SQL.count_files, tuple[FileState, int, int], dataset_id=dataset_id)
    return {status: (files, size) for status, files, size in rows}
