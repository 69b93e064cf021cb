"""Inboxes: each file that others write into a folder is processed exactly once (seed 004).

A file is known by its name and content version (a hash of etag, size and time): written again under its name, it is
another file. `discover` records what is new, in one commit with the message that triggers; a run claims files for
itself through all its attempts, and its commit closes them. What was not processed can always be claimed again, until
it has failed too often by itself.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, cast

from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.named import Call, Param, Row, Statement, load_sql
from tidemill.catalog.transactions import Transaction, TransactionEnded, find_transaction
from tidemill.durations import to_milliseconds
from tidemill.errors import Conflict, Fenced, UserError
from tidemill.lake.claims import HALVE_AFTER
from tidemill.lake.datasets import Dataset, DatasetKind, find_by_id
from tidemill.lake.formats import FileFormat, RawFormat, blame, check_file
from tidemill.names import DatasetId, RunId, file_event
from tidemill.storage.files import Files, FileStatus, open_files
from tidemill.texts import printable
from tidemill.world import World

SQL = load_sql(__file__)

ALWAYS_IGNORED: Final = ("*_current", "*.tmp", "*._COPYING_", "_*", ".*")
"""Names of files that are still being written, or are none of the data."""

_CHUNK: Final = 10_000  # rows in one statement
_MOST_FILES: Final = 10_000  # in one claim


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
    """

    format: RawFormat
    ignore: tuple[str, ...] = ()
    on_rewrite: OnRewrite = OnRewrite.REPROCESS
    attempts: int = 3
    retry_after: timedelta = timedelta(minutes=1)
    max_files: int | None = None
    max_bytes: int | None = None
    list_every: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        bounds = {"attempts": self.attempts, "max_files": self.max_files, "max_bytes": self.max_bytes}
        for name, bound in bounds.items():
            if bound is not None and bound < 1:
                raise UserError(f"{name} of an inbox is at least 1, not {bound}")

    def to_spec(self) -> dict[str, object]:
        """What the data set's row keeps of it, as JSON."""
        return {
            "format": self.format.format,
            "schema": self.format.schema,
            "options": dict(self.format.options),
            "line_end": self.format.line_end,
            "ignore": list(self.ignore),
            "on_rewrite": self.on_rewrite,
            "attempts": self.attempts,
            "retry_after_ms": to_milliseconds(self.retry_after),
            "max_files": self.max_files,
            "max_bytes": self.max_bytes,
            "list_every_ms": to_milliseconds(self.list_every),
        }

    @classmethod
    def of_spec(cls, spec: Mapping[str, object]) -> InboxSpec:
        """Read back what `to_spec` gave."""
        return cls(
            RawFormat(
                FileFormat(cast(str, spec["format"])),
                cast("str | None", spec["schema"]),
                cast("dict[str, str]", spec["options"]),
                bool(spec["line_end"]),
            ),
            tuple(cast("list[str]", spec["ignore"])),
            OnRewrite(cast(str, spec["on_rewrite"])),
            cast(int, spec["attempts"]),
            timedelta(milliseconds=cast(int, spec["retry_after_ms"])),
            cast("int | None", spec["max_files"]),
            cast("int | None", spec["max_bytes"]),
            timedelta(milliseconds=cast(int, spec["list_every_ms"])),
        )

    def ignored_by(self, name: str) -> str | None:
        """The pattern that a file of this name is ignored by; a folder that matches hides all in it."""
        for part in name.split("/"):
            for pattern in (*ALWAYS_IGNORED, *self.ignore):
                if fnmatch.fnmatchcase(part, pattern):
                    return pattern
        return None


@dataclass(frozen=True, slots=True)
class Inbox:
    """A data set that is a watched location."""

    dataset: Dataset
    spec: InboxSpec

    @classmethod
    def of(cls, dataset: Dataset) -> Inbox:
        """What `dataset` is as an inbox; an error if it is of another kind."""
        if dataset.kind is not DatasetKind.INBOX:
            raise UserError(f"{dataset.qualified_name} is a data set of kind {dataset.kind}: no files arrive there")
        return cls(dataset, InboxSpec.of_spec(dataset.spec))

    @property
    def dataset_id(self) -> DatasetId:
        """Its id."""
        return self.dataset.dataset_id

    @property
    def qualified_name(self) -> str:
        """Its name as people and messages use it."""
        return self.dataset.qualified_name

    def read_as(self, schema: str) -> Inbox:
        """The same files with other columns: a DDL text, as in `RawFormat`."""
        return replace(self, spec=replace(self.spec, format=replace(self.spec.format, schema=schema)))

    def files(self, world: World) -> Files:
        """The files at its location."""
        return open_files(self.dataset.location, world)


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file that a run has claimed: what was claimed, so that the commit can tell whether that is what was read."""

    dataset_id: DatasetId
    name: str
    content_version: str
    etag: str
    bytes: int
    modified_at: datetime
    failures: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """How a claimed file ends with its run's commit; made by `succeeded`, `went_wrong` and `is_gone`."""

    dataset_id: DatasetId
    name: str
    content_version: str
    status: FileState
    failures: int
    row_count: int | None = None
    error: str | None = None
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """What a listing found: `new` were recorded by it, `ignored` are names with the pattern that hides them."""

    new: tuple[FileStatus, ...]
    ignored: tuple[tuple[str, str], ...]


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


@refusal
class ClaimsLost(Fenced):
    """What a commit closes is not what the run holds: somebody took its claims, or some were forgotten."""

    code = "claims_lost"

    def __init__(self, run_id: str, closing: str, held: str) -> None:
        self.run_id = run_id
        self.closing = int(closing)
        self.held = int(held)
        super().__init__(f"run {run_id}", f"it closes {closing} files of inboxes and holds {held} claims")


class FileRewritten(Conflict):
    """A file changed between its claim and the commit: what was read is not what would be recorded."""

    code = "file_rewritten"

    def __init__(self, name: str, found: str) -> None:
        self.name = name
        self.found = found
        super().__init__(f"file {name!r} {found} while it was being processed; run again without it")


def content_version(file: FileStatus) -> str:
    """A hash of what tells one content of a file from another: etag, size, time."""
    text = f"{file.etag}|{file.bytes}|{_milliseconds(file.modified_at)}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def discover(catalog: Catalog, inbox: Inbox) -> Discovered:
    """List the inbox and record what is new in it, with one message, in one commit; nothing when nothing is new.

    Any number of processes may do it at once: each content is recorded and announced once. A file that waits still
    and was written again is superseded; one that is being processed is left to its run, and its new content waits.
    Cost: all files of the location, a look-up each (10,000 a statement); a commit only for what is new.
    """
    catalog.world.mark("discover.before_listing")
    listed: list[FileStatus] = []
    ignored: list[tuple[str, str]] = []
    for file in inbox.files(catalog.world).list_after("", None):
        if (pattern := inbox.spec.ignored_by(file.name)) is not None:
            ignored.append((file.name, pattern))
        else:
            listed.append(file)
    new: list[FileStatus] = []
    for chunk in _chunks(listed):
        found = _find_unknown(catalog, inbox, chunk)
        catalog.world.mark("discover.before_commit")
        if found:
            catalog.apply([_RecordFound(inbox, tuple(found))])
            new += [file for file, status in found if status is FileState.NEW]
        catalog.world.mark("discover.after_commit")
    return Discovered(tuple(new), tuple(ignored))


def _find_unknown(catalog: Catalog, inbox: Inbox, files: Sequence[FileStatus]) -> list[tuple[FileStatus, FileState]]:
    rows = [{"place": i, "name": f.name, "content_version": content_version(f)} for i, f in enumerate(files)]
    unknown = catalog.read(lambda db: db.all(SQL.select_unknown, dataset_id=inbox.dataset_id, listed=json.dumps(rows)))
    decided: list[tuple[FileStatus, FileState]] = []
    for place, sibling, recorded in cast("list[tuple[int, int, int]]", unknown):
        status = _status_of_unknown(inbox.spec.on_rewrite, sibling)
        # Skipped by rule, and recorded as such already: nothing to do.
        if status is not None and not (recorded and status is not FileState.NEW):
            decided.append((files[place], status))
    return decided


def _status_of_unknown(on_rewrite: OnRewrite, sibling: int) -> FileState | None:
    """What an unrecorded content is; None: not to be decided before the claim of another content has ended.

    `sibling` is 2 while another content of its name is claimed, 1 when one was processed, 0 otherwise.
    """
    if sibling == 0 or on_rewrite is OnRewrite.REPROCESS:
        return FileState.NEW
    if sibling == 2:
        return None
    return FileState.SKIPPED if on_rewrite is OnRewrite.IGNORE else FileState.QUARANTINED


@dataclass(frozen=True, slots=True)
class _RecordFound:
    """Record files that were found, with their message."""

    inbox: Inbox
    found: tuple[tuple[FileStatus, FileState], ...]

    def guards(self) -> Sequence[Call]:
        return ()

    def writes(self) -> Sequence[Call]:
        rows = [
            {
                "dataset_id": self.inbox.dataset_id,
                "name": file.name,
                "content_version": content_version(file),
                "etag": file.etag,
                "bytes": file.bytes,
                "modified_at": _milliseconds(file.modified_at),
                "status": status,
                "error": None
                if status is FileState.NEW
                else f"written again after it was processed (on_rewrite={self.inbox.spec.on_rewrite})",
            }
            for file, status in self.found
        ]
        params: dict[str, Param] = {"dataset_id": self.inbox.dataset_id, "found": json.dumps(rows)}
        event_key = file_event(self.inbox.dataset.namespace, self.inbox.dataset.name)
        return (
            Call(SQL.publish_found, params | {"event_key": event_key}),
            Call(SQL.insert_found, params),
            Call(SQL.supersede_found, {"found": params["found"]}),
        )


def ensure_inbox(db: Db, dataset_id: DatasetId) -> None:
    """Have the inbox listed, at once, and tried again as its row now says. Part of its deployment."""
    spec = Inbox.of(find_by_id(db, dataset_id)).spec
    db.run(
        SQL.insert_marker,
        dataset_id=dataset_id,
        attempts=spec.attempts,
        retry_after=to_milliseconds(spec.retry_after),
    )


def due_listings(db: Db, limit: int = 100) -> list[tuple[DatasetId, int]]:
    """Inboxes whose time to be listed has come, longest due first, each with that time (epoch milliseconds)."""
    return [(DatasetId(str(row[0])), cast(int, row[1])) for row in db.all(SQL.select_due_listings, limit=limit)]


def take_listing(db: Db, inbox: Inbox, due_at: int) -> bool:
    """Whether the caller is to list the inbox now: one of those who saw it due at `due_at`. Sets its next time."""
    interval = to_milliseconds(inbox.spec.list_every)
    return db.run(SQL.take_listing, dataset_id=inbox.dataset_id, next_listing_at=due_at, interval=interval) == 1


def claim_files(catalog: Catalog, tx: Transaction, inboxes: Iterable[Inbox]) -> list[ClaimedFile]:
    """The files that this attempt of the run works on, oldest first: to be called once, after its begin.

    `inboxes` are all that the run reads. The first attempt claims what waits there; a later one has the run's claims.
    If one of them failed twice or more, only the first half is kept and the rest put back, until the one that makes
    the program fail is alone. A file that an error has named is alone at once. No two runs ever hold the same file,
    nor two contents of one name. Raises `TransactionEnded` when the attempt is fenced. Cost: what is claimed.

    Call it after `take_claims`: beside the run's partitions no file that failed twice or more is claimed or kept, and
    none at all when that is so of a partition, else neither kind would ever fail alone. Such files wait for a run that
    finds no partitions.
    """
    ordered = sorted(inboxes, key=lambda inbox: inbox.dataset_id)

    def block(db: Db) -> list[ClaimedFile]:
        owner = db.one(SQL.lock_owner, write_pointer=tx.write_pointer, run_id=tx.run_id, epoch=tx.epoch)
        if owner is None:
            row = find_transaction(db, tx.write_pointer)
            raise TransactionEnded(str(tx.write_pointer), row.state, row.reason or "")
        beside = cast("int | None", db.all(SQL.find_worst_partition, run_id=tx.run_id)[0][0])
        held = [_claimed(row) for row in db.all(SQL.select_claims, run_id=tx.run_id)]
        if held:
            kept = _isolate(_fit_beside(beside, held))
            if len(kept) < len(held):
                _move(db, SQL.put_back, kept, run_id=tx.run_id)
            return kept
        waiting = [file for inbox in ordered for file in _select_claimable(db, inbox)]
        ordered_files = sorted(waiting, key=lambda file: (file.modified_at, file.dataset_id, file.name))
        kept = _isolate(_fit_beside(beside, ordered_files))
        if kept:
            _move(db, SQL.claim, kept, run_id=tx.run_id, epoch=tx.epoch)
        return kept

    claimed = catalog.write(block)
    catalog.world.mark("claim_files.after_commit")
    return claimed


def _select_claimable(db: Db, inbox: Inbox) -> list[ClaimedFile]:
    """What of the inbox one run may take, locked."""
    most = min(inbox.spec.max_files or _MOST_FILES, _MOST_FILES)
    waiting = [_claimed(row) for row in db.all(SQL.select_claimable, dataset_id=inbox.dataset_id, limit=most)]
    # Two contents of a name can wait: one put back while the other was being recorded. The later one is there.
    files = list({file.name: file for file in waiting}.values())
    if inbox.spec.max_bytes is None:
        return files
    sizes = itertools.accumulate(file.bytes for file in files)
    return [file for file, size in zip(files, sizes, strict=True) if size <= inbox.spec.max_bytes] or files[:1]


def _move(db: Db, statement: Statement, files: Iterable[ClaimedFile], **owner: Param) -> None:
    rows = [
        {"dataset_id": file.dataset_id, "name": file.name, "content_version": file.content_version} for file in files
    ]
    db.run(statement, files=json.dumps(rows), **owner)


def _fit_beside(worst_partition: int | None, files: list[ClaimedFile]) -> list[ClaimedFile]:
    """What of `files` may go with the run's partitions, of which the worst has so many failures; None: it has none."""
    if worst_partition is None:
        return files
    if worst_partition >= HALVE_AFTER:
        return []
    return [file for file in files if file.failures < HALVE_AFTER]


def _isolate(files: list[ClaimedFile]) -> list[ClaimedFile]:
    """What of `files` one attempt may work on together, so that a file that always fails ends up alone."""
    if files and files[0].alone:
        return files[:1]
    together = [file for file in files if not file.alone]
    if any(file.failures >= HALVE_AFTER for file in together):
        return together[: (len(together) + 1) // 2]
    return together


def sort_out(
    world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]
) -> tuple[list[ClaimedFile], list[FileOutcome]]:
    """Look at each claimed file before the program does: those to hand over, and the outcomes of the others.

    A file that is bad by itself fails only itself; one that was written again or has gone since it was found is
    skipped (its new content comes by itself). The outcomes belong in the run's `CloseFiles`. Cost: reads text once.
    """
    at = {inbox.dataset_id: (inbox, inbox.files(world)) for inbox in inboxes}
    good: list[ClaimedFile] = []
    others: list[FileOutcome] = []
    for file in claimed:
        inbox, files = at[file.dataset_id]
        status = files.stat(file.name)
        try:
            why = check_file(files, status, inbox.spec.format) if status and _is_same(file, status) else None
        except FileNotFoundError:
            status, why = None, None
        if status is None or not _is_same(file, status):
            others.append(is_gone(file))
        elif why is not None:
            others.append(went_wrong(inbox, file, why))
        else:
            good.append(file)
    return good, others


def verify_claims(world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]) -> None:
    """Refuse with `FileRewritten` if a file is no longer what was claimed: just before the commit, after reading."""
    at = {inbox.dataset_id: inbox.files(world) for inbox in inboxes}
    for file in claimed:
        status = at[file.dataset_id].stat(file.name)
        if status is None:
            raise FileRewritten(file.name, "was taken away")
        if not _is_same(file, status):
            raise FileRewritten(file.name, "was written again")


def _is_same(file: ClaimedFile, status: FileStatus) -> bool:
    return content_version(status) == file.content_version


def succeeded(file: ClaimedFile, row_count: int | None = None) -> FileOutcome:
    """The file was processed; `row_count` where it is known."""
    return FileOutcome(
        file.dataset_id, file.name, file.content_version, FileState.SUCCESS, file.failures, row_count=row_count
    )


def went_wrong(inbox: Inbox, file: ClaimedFile, why: str) -> FileOutcome:
    """The file itself is bad: to be tried again, and quarantined after the inbox's `attempts`."""
    failures = file.failures + 1
    ends = failures >= inbox.spec.attempts
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.QUARANTINED if ends else FileState.ERROR,
        failures,
        error=printable(why),
        retry_after=None if ends else inbox.spec.retry_after * 2 ** (failures - 1),
    )


def is_gone(file: ClaimedFile) -> FileOutcome:
    """What was claimed is not there any more."""
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.SKIPPED,
        file.failures,
        error="taken away or written again before it was processed",
    )


@dataclass(frozen=True, slots=True)
class CloseFiles:
    """End all of a run's claims with its commit, each with its own outcome; `ClaimsLost` if they are not its own."""

    run_id: RunId
    epoch: int
    outcomes: tuple[FileOutcome, ...]

    def guards(self) -> Sequence[Call]:
        """Exactly the run's claims are closed, by the attempt that holds them."""
        return (Call(SQL.guard_claims, self._params() | {"files": len(self.outcomes)}),)

    def writes(self) -> Sequence[Call]:
        """Close the files; what succeeded becomes input of the run."""
        params = self._params()
        return (
            Call(SQL.insert_inputs, {"run_id": self.run_id, "outcomes": params["outcomes"]}),
            Call(SQL.close_files, params),
        )

    def _params(self) -> dict[str, Param]:
        rows = [
            asdict(outcome)
            | {"retry_after": None if outcome.retry_after is None else outcome.retry_after // timedelta(milliseconds=1)}
            for outcome in self.outcomes
        ]
        return {"run_id": self.run_id, "epoch": self.epoch, "outcomes": json.dumps(rows)}


@dataclass(frozen=True, slots=True)
class RestampFiles:
    """Hand the run's claims to its new attempt `epoch`; an effect of that attempt's begin."""

    run_id: RunId
    epoch: int

    def guards(self) -> Sequence[Call]:
        """None: who begins is guarded by the run's own effect."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Raise the epoch of the claims."""
        return (Call(SQL.restamp, {"run_id": self.run_id, "epoch": self.epoch}),)


@dataclass(frozen=True, slots=True)
class FailFiles:
    """An attempt failed by its program (never for a lost lease) and the run goes on to another.

    With `blamed`, the file that the error names leaves the run and waits for a try by itself; the others are
    innocent. Without, all are suspects; one that was alone, and has failed too often, is quarantined.
    """

    run_id: RunId
    epoch: int
    error: str
    blamed: ClaimedFile | None = None

    def guards(self) -> Sequence[Call]:
        """None: the end of an attempt is guarded by the run's own effect."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Count the failure."""
        params: dict[str, Param] = {
            "run_id": self.run_id,
            "epoch": self.epoch,
            "error": self.error,
        }
        if self.blamed is None:
            return Call(SQL.quarantine_alone, params), Call(SQL.count_failure, params)
        place: dict[str, Param] = {"dataset_id": self.blamed.dataset_id, "name": self.blamed.name}
        return (Call(SQL.set_aside, params | place),)


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """Give back what the run still holds when it ends FAILED (`error` given) or KILLED (None, which counts nothing).

    After FAILED its files are in ERROR, to be claimed again after `backoff` (the program's), doubled with each failure,
    up to an hour; with `blamed`, only that one, and the others are as new. One that was alone, and has failed too
    often, is quarantined. Stands before `ReleaseClaims` in the same commit: beside a partition no file is alone.
    """

    run_id: RunId
    epoch: int
    error: str | None
    backoff: timedelta = timedelta(0)
    blamed: ClaimedFile | None = None

    def guards(self) -> Sequence[Call]:
        """None: the end of a run is guarded by the run's own effect."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Release the files."""
        innocent = self.error is None or self.blamed is not None
        params: dict[str, Param] = {
            "run_id": self.run_id,
            "epoch": self.epoch,
            "failed": 0 if innocent else 1,
            "error": self.error,
            "backoff": to_milliseconds(self.backoff),
        }
        first: Sequence[Call] = ()
        if self.error is not None and self.blamed is not None:
            first = FailFiles(self.run_id, self.epoch, self.error, self.blamed).writes()
        elif self.error is not None:
            counted: dict[str, Param] = {"run_id": self.run_id, "epoch": self.epoch, "error": self.error}
            first = (Call(SQL.quarantine_alone, counted),)
        return (*first, Call(SQL.release, params))


@dataclass(frozen=True, slots=True)
class PublishInboxBacklog:
    """Say for each of these inboxes that files are left, if any can be claimed now (protocol: work never sticks).

    Goes last in every commit that closes or releases files, so that it sees what they left.
    """

    dataset_ids: tuple[DatasetId, ...]

    def guards(self) -> Sequence[Call]:
        """None."""
        return ()

    def writes(self) -> Sequence[Call]:
        """One message an inbox, or none."""
        return (Call(SQL.publish_backlog, {"dataset_ids": json.dumps(self.dataset_ids)}),)


@dataclass(frozen=True, slots=True)
class PutOffInboxBacklog:
    """Say later that files are left, if any can be claimed now: at the end of a run that could not even claim them.

    In place of `PublishInboxBacklog`, which would start the next such run at once, and so on. After `wait` at the
    soonest; the longer the oldest file has waited the later, up to an hour.
    """

    dataset_ids: tuple[DatasetId, ...]
    wait: timedelta

    def guards(self) -> Sequence[Call]:
        """None."""
        return ()

    def writes(self) -> Sequence[Call]:
        """Give one file of each inbox a time, which the keeper sees to."""
        wait = max(1, to_milliseconds(self.wait))
        return [Call(SQL.put_off, {"dataset_id": dataset_id, "wait": wait}) for dataset_id in self.dataset_ids]


@dataclass(frozen=True, slots=True)
class _MarkRetries:
    dataset_ids: tuple[DatasetId, ...]

    def guards(self) -> Sequence[Call]:
        return ()

    def writes(self) -> Sequence[Call]:
        return (Call(SQL.mark_retries, {"dataset_ids": json.dumps(self.dataset_ids)}),)


def next_due(db: Db) -> int | None:
    """When the next listing or retry time comes, epoch milliseconds, maybe past; None when none is set."""
    moments = [row[0] for row in db.all(SQL.select_next_due)]
    return min((cast(int, moment) for moment in moments if moment is not None), default=None)


def publish_due_backlog(catalog: Catalog) -> list[DatasetId]:
    """Announce files whose retry time has come, once; give the inboxes. A step of the keeper; cost: what is due."""
    due = tuple(DatasetId(str(row[0])) for row in catalog.read(lambda db: db.all(SQL.select_due_retries)))
    if due:
        catalog.world.mark("backlog.before_retries")
        catalog.apply([_MarkRetries(due), PublishInboxBacklog(due)])
    return list(due)


def read_claims(db: Db, run_id: RunId) -> list[ClaimedFile]:
    """What the run holds, of all inboxes, oldest first: empty when none or when it has ended."""
    return [_claimed(row) for row in db.all(SQL.select_claims, run_id=run_id)]


def find_blamed(db: Db, world: World, run_id: RunId, error: str) -> ClaimedFile | None:
    """Which of the run's files its `error` (the whole text, with causes) says it could not read; None for none."""
    held = [(str(row[0]), _claimed(row[1:])) for row in db.all(SQL.select_claimed_names, run_id=run_id)]
    found = blame(error, held, lambda one: str(open_files(one[0], world).local_path(one[1].name) or ""))
    return None if found is None else found[1]


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


def _claimed(row: Row) -> ClaimedFile:
    dataset_id, name, version, etag, size, modified_at, failures, alone = cast(
        "tuple[str, str, str, str, int, int, int, int]", row
    )
    return ClaimedFile(DatasetId(dataset_id), name, version, etag, size, _datetime(modified_at), failures, bool(alone))


def _inbox_file(row: Row) -> InboxFile:
    name, version, size, modified_at, first_seen, status, failures, not_before, error, run_id, row_count = cast(
        "tuple[str, str, int, int, int, str, int, int, str | None, str | None, int | None]", row
    )
    return InboxFile(
        name,
        version,
        size,
        _datetime(modified_at),
        _datetime(first_seen),
        FileState(status),
        failures,
        _datetime(not_before) if not_before else None,
        error,
        RunId(run_id) if run_id else None,
        row_count,
    )


def _chunks(files: Sequence[FileStatus]) -> Iterable[Sequence[FileStatus]]:
    return (files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK))


def _datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _milliseconds(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
