"""Reasons of files in inboxes: by their row, or by the inbox and the store if no listing has recorded the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from shlex import quote
from typing import Final

from tidemill.catalog.db import Db
from tidemill.errors import NotFound
from tidemill.lake.inbox.discovery import find_listing, read_listed
from tidemill.lake.inbox.in_flight import held_back
from tidemill.lake.inbox.inbox import FileState, Inbox, InboxFile
from tidemill.mill.access import Access
from tidemill.mill.why_data import SQL
from tidemill.mill.why_work import Explained, explain_readers, find_end_of_claims
from tidemill.names import DatasetId, RunId, nearest
from tidemill.reasons import Because, Reason
from tidemill.storage.file_names import check_file_name
from tidemill.storage.files import FileStatus, StorageUnavailable, find_file
from tidemill.world import World

_NEAR: Final = 50


@dataclass(frozen=True, slots=True)
class KnownContent:
    """A content of a file, with its inbox."""

    dataset_id: DatasetId
    file: InboxFile


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A name in an inbox that no listing has recorded, and what the catalog knows of the inbox."""

    inbox: Inbox
    name: str
    now: datetime
    next_listing_at: datetime | None
    unusable: tuple[tuple[str, int, str], ...]
    near: str | None


def find_contents(db: Db, inboxes: Mapping[DatasetId, Inbox], name: str) -> list[KnownContent]:
    """Return the recorded contents of one name, by inbox, oldest first. Cost: a look-up for each inbox."""
    return db.records(SQL.find_contents, KnownContent, dataset_ids=json.dumps(sorted(inboxes)), name=name)


def find_unlisted(db: Db, inbox: Inbox, name: str) -> Unlisted:
    """Return what the catalog knows of an inbox in which a name is not recorded."""
    of = inbox.dataset_id
    names = db.records(SQL.list_names_near, str, dataset_id=of, name=name, limit=_NEAR)
    listing = find_listing(db, of)
    at = listing.next_listing_at if listing else None
    return Unlisted(inbox, name, db.now(), at, read_listed(db, of)[1], nearest(name, names))


def explain_file(db: Db, inbox: Inbox, contents: Sequence[InboxFile], access: Access) -> Explained:
    """Explain a file by its newest content."""
    file = contents[-1]
    thing = f"{inbox.qualified_name}/{file.name}"
    return Explained(thing, file.status, tuple(_of_content(db, inbox, file, thing, access)))


def explain_unlisted(world: World, unlisted: Unlisted, *, named: bool) -> Explained:
    """Explain a file that no listing has recorded, by its name and by a look at the store; `NotFound`.

    `named` says that the user has named the inbox. Else an ignored name counts only if there is such a file.
    """
    inbox, name = unlisted.inbox, unlisted.name
    thing = f"{inbox.qualified_name}/{name}"
    evidence: dict[str, object] = {"inbox": inbox.qualified_name, "location": inbox.dataset.location}
    status = _look(world, unlisted)
    pattern = inbox.spec.ignored_by(name)
    if pattern is not None and (named or status is not None):
        why = f"{thing} is ignored by the pattern {pattern}"
        cure = "the writer renames the file, or the inbox is declared with another `ignore`"
        return Explained(thing, "-", (Because(Reason.FILE_IGNORED, why, {**evidence, "pattern": pattern}, cure),))
    if unusable := next((why for why, _, example in unlisted.unusable if example == name), None):
        why = f"{thing} can never be processed: {unusable}"
        return Explained(thing, "-", (Because(Reason.FILE_UNUSABLE, why, evidence, "the writer renames the file"),))
    if status is None:
        hint = f"`tidemill inbox files {inbox.qualified_name}` lists the known files"
        raise NotFound("file", thing, unlisted.near, hint=hint)
    evidence |= {"bytes": status.bytes, "modified_at": status.modified_at}
    held = held_back(
        inbox.spec,
        status,
        now=unlisted.now,
        unchanged_for=timedelta.max,
        exists=lambda flag: inbox.files(world).stat(flag) is not None,
    )
    if held is not None:
        again = None if held.look_again is None else unlisted.now + held.look_again
        why = f"{thing} is left to its writer: {held.why}"
        cure = "the writer makes the done-flag" if again is None else "the time comes"
        return Explained(thing, "-", (Because(Reason.FILE_HELD_BACK, why, evidence, cure, again),))
    why = f"{thing} is there, and no listing has recorded the file yet"
    cure = f"a listing, as `tidemill up` does, or `tidemill inbox scan {inbox.qualified_name}`"
    evidence |= {"settle": str(inbox.spec.settle)}
    return Explained(thing, "-", (Because(Reason.FILE_NOT_LISTED, why, evidence, cure, unlisted.next_listing_at),))


def _look(world: World, unlisted: Unlisted) -> FileStatus | None:
    try:
        return find_file(unlisted.inbox.files(world), check_file_name(unlisted.name))
    except StorageUnavailable:
        return None


def _of_content(db: Db, inbox: Inbox, file: InboxFile, thing: str, access: Access) -> Iterator[Because]:
    evidence: dict[str, object] = {
        "inbox": inbox.qualified_name,
        "name": file.name,
        "bytes": file.bytes,
        "modified_at": file.modified_at,
        "first_seen": file.first_seen,
    }
    name, attempts = inbox.qualified_name, inbox.spec.attempts
    failed = {"failures": file.failures, "attempts": attempts, "error": file.error}
    match file.status:
        case FileState.NEW:
            readers = explain_readers(db, inbox.dataset, access)
            if readers:
                cure = "a run of a program that reads the inbox"
                yield Because(Reason.FILE_WAITS_FOR_RUN, f"{thing} waits for a run", evidence, cure)
                yield from readers
            else:
                cure = "declare a program with `reads=[…]`, and `tidemill deploy`"
                yield Because(Reason.FILE_UNREAD, f"{thing} waits: no program reads the inbox", evidence, cure)
        case FileState.IN_PROGRESS:
            why = f"{thing} is in {file.run_id}: `tidemill why {file.run_id}`"
            cure, until = find_end_of_claims(db, RunId(str(file.run_id)))
            yield Because(Reason.FILE_IN_RUN, why, {**evidence, "run_id": file.run_id}, cure, until)
        case FileState.ERROR:
            why = f"{thing} has failed in {file.failures} of {attempts} attempts: {file.error}"
            cure = f"the time of the next attempt comes, or `tidemill inbox retry {name} {quote(file.name)}`"
            yield Because(Reason.FILE_WAITS_FOR_RETRY, why, {**evidence, **failed}, cure, file.retry_at)
            if file.retry_at is None or file.retry_at <= db.now():
                yield from explain_readers(db, inbox.dataset, access)
        case FileState.QUARANTINED:
            why = f"{thing} is in quarantine after {file.failures} of {attempts} attempts: {file.error}"
            cure = f"correct the file under its name, or `tidemill inbox release {name} {quote(file.name)}`"
            yield Because(Reason.FILE_QUARANTINED, why, {**evidence, **failed}, cure)
        case FileState.IGNORED:
            why = f"{thing} is ignored: a person has decided that no run gets it; it had failed: {file.error}"
            cure = f"`tidemill inbox retry {name} {quote(file.name)}`"
            yield Because(Reason.FILE_IGNORED_BY_HAND, why, {**evidence, **failed}, cure)
        case FileState.SKIPPED:
            why = f"{thing} was not processed: {file.error or 'the file was rewritten or deleted'}"
            yield Because(Reason.FILE_SKIPPED, why, evidence, "the writer puts the file there again")
        case FileState.SUCCESS:
            evidence |= {"run_id": file.run_id, "rows": file.row_count, "afterwards": file.afterwards}
            yield Because(Reason.FILE_PROCESSED, f"{thing} was processed by {file.run_id}", evidence)
