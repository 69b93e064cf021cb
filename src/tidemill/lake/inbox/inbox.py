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
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import Param, Row, load_sql
from tidemill.durations import to_milliseconds
from tidemill.epoch import from_ms, to_ms
from tidemill.errors import UserError
from tidemill.json_specs import read_plain
from tidemill.lake.datasets import Dataset, DatasetKind, find_by_id
from tidemill.lake.formats import RawFormat
from tidemill.names import DatasetId, RunId
from tidemill.storage.files import Files, FileStatus, open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.lake.inbox.inbox_sql import Sql

SQL: Sql = load_sql(__file__)

ALWAYS_IGNORED: Final = ("*_current", "*.tmp", "*._COPYING_", "_*", ".*")
"""Names of files that are still being written, or are none of the data."""


class FileState(StrEnum):
    """Where a file stands. IN_PROGRESS, SUCCESS and ERROR are seed 004's."""

    NEW = "NEW"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    """Failed, and will be tried again."""
    QUARANTINED = "QUARANTINED"
    """Failed too often, or refused by rule: a person has to look."""
    SKIPPED = "SKIPPED"
    """Never delivered: another content took its place, or it was gone. New again should it come back."""


class After(StrEnum):
    """What becomes of a file when it was processed, once that has committed."""

    KEEP = "keep"
    ARCHIVE = "archive"
    DELETE = "delete"


class Afterwards(StrEnum):
    """What is to become of a processed file, and what became of it."""

    ARCHIVE = "archive"
    """To be moved to the archive."""
    DELETE = "delete"
    """To be deleted."""
    ARCHIVED = "archived"
    DELETED = "deleted"
    REPLACED = "replaced"
    """Left alone: it was written again."""
    GONE = "gone"
    """Somebody else took it away before."""


class OnRewrite(StrEnum):
    """What a file that was processed and then written again under its name is."""

    REPROCESS = "reprocess"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class InboxSpec:
    """How an inbox is watched and read.

    `ignore` adds to what is always ignored: shell patterns, compared with each part of a name. A file that fails is
    tried `attempts` times, first after `retry_after`, then twice that, and then quarantined. One run takes at most
    `max_files` and `max_bytes`, but at least one file.

    A file is left to its writer until it is `min_age` old, has not changed for `settle` under our eyes, and the file
    named by `done_flag` (`{name}.done`) is there. A store that lists from a name is listed from where its listings had
    come `lookback` ago, and as a whole every `reconcile_every` (None: never). A closed file whose name is not there any
    more is forgotten when that has been so for `forget_after`.

    `archive` is the location to which processed files are moved, if that is what becomes of them.
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
    settle: timedelta = timedelta(0)
    done_flag: str | None = None
    lookback: timedelta = timedelta(hours=1)
    reconcile_every: timedelta | None = timedelta(hours=6)
    after: After = After.KEEP
    archive: str | None = None
    forget_after: timedelta = timedelta(days=90)

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
        """Whether a file may have to wait for its writer though its name says nothing."""
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
        """What `dataset` is as an inbox; an error if it is of another kind."""
        if dataset.kind is not DatasetKind.INBOX:
            raise UserError(
                f"{dataset.qualified_name} is a data set of kind {dataset.kind}: no files arrive there; "
                f"`tidemill dataset show {dataset.qualified_name}` shows it"
            )
        return cls(dataset, read_plain(InboxSpec, dataset.spec))

    @property
    def dataset_id(self) -> DatasetId:
        """Its id."""
        return self.dataset.dataset_id

    @property
    def qualified_name(self) -> str:
        """Its name as people and messages use it."""
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
    """What the catalog keeps of one content of a file."""

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
    """What is to become of it, or became of it, after it was processed; None when it stays."""
    archive: str | None
    """Where it is to go; once it is archived, its URL."""


def content_version(file: FileStatus) -> str:
    """Hash what tells one content of a name from another and survives a copy: size and time."""
    return _hash(f"{file.bytes}|{to_ms(file.modified_at)}")


def exact_version(file: FileStatus) -> str:
    """Hash the etag too: the version of a content that has size and time of an earlier one, and another checksum.

    Catalogs of earlier versions have it for each content.
    """
    return _hash(f"{file.etag}|{file.bytes}|{to_ms(file.modified_at)}")


def latest_time(modified_at: datetime) -> int:
    """Return up to when a content of this time may have been written, epoch milliseconds.

    A copy that keeps whole seconds only cuts the time: a time without milliseconds stands for all of its second.
    """
    milliseconds = to_ms(modified_at)
    return milliseconds if milliseconds % 1000 else milliseconds + 999


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def ensure_inbox(db: Db, dataset_id: DatasetId) -> None:
    """Have the inbox listed, at once, and its files treated as its row now says. Part of its deployment."""
    spec = Inbox.of(find_by_id(db, dataset_id)).spec
    db.run(
        SQL.insert_marker,
        dataset_id=dataset_id,
        attempts=spec.attempts,
        retry_after=to_milliseconds(spec.retry_after),
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
    rows = db.all(SQL.list_files, after=after or "", limit=limit, **only)
    if len(rows) == limit:
        name, version = rows[-1][:2]
        rows += db.all(SQL.list_versions, name=name, content_version=version, **only)
    return [_inbox_file(row) for row in rows]


def count_files(db: Db, dataset_id: DatasetId) -> dict[FileState, tuple[int, int]]:
    """Files and bytes by state; reads all rows of the inbox."""
    rows = db.all(SQL.count_files, dataset_id=dataset_id)
    return {FileState(str(status)): (int(str(files)), int(str(size))) for status, files, size in rows}


def _inbox_file(row: Row) -> InboxFile:
    (name, version, size, modified_at, first_seen, status, failures, not_before, error, run_id, row_count) = cast(
        "tuple[str, str, int, int, int, str, int, int, str | None, str | None, int | None]", row[:-2]
    )
    afterwards, archive = cast("tuple[str | None, str | None]", row[-2:])
    return InboxFile(
        name,
        version,
        size,
        from_ms(modified_at),
        from_ms(first_seen),
        FileState(status),
        failures,
        from_ms(not_before) if not_before else None,
        error,
        RunId(run_id) if run_id else None,
        row_count,
        Afterwards(afterwards) if afterwards else None,
        archive,
    )
