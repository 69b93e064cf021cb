"""What is new in an inbox: listings, compared with what is known, and recorded with the message that triggers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.durations import to_milliseconds
from tidemill.lake.inbox import FileState, Inbox, OnRewrite, content_version, to_ms
from tidemill.names import DatasetId, file_event
from tidemill.storage.files import FileStatus

SQL: Final = load_sql(__file__)

_CHUNK: Final = 10_000  # rows in one statement


@dataclass(frozen=True, slots=True)
class Discovered:
    """What a listing found: `new` were recorded by it, `ignored` are names with the pattern that hides them."""

    new: tuple[FileStatus, ...]
    ignored: tuple[tuple[str, str], ...]


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
                "modified_at": to_ms(file.modified_at),
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


def due_listings(db: Db, limit: int = 100) -> list[tuple[DatasetId, int]]:
    """Inboxes whose time to be listed has come, longest due first, each with that time (epoch milliseconds)."""
    return [(DatasetId(str(row[0])), cast(int, row[1])) for row in db.all(SQL.select_due_listings, limit=limit)]


def take_listing(db: Db, inbox: Inbox, due_at: int) -> bool:
    """Whether the caller is to list the inbox now: one of those who saw it due at `due_at`. Sets its next time."""
    interval = to_milliseconds(inbox.spec.list_every)
    return db.run(SQL.take_listing, dataset_id=inbox.dataset_id, next_listing_at=due_at, interval=interval) == 1


def next_listing(db: Db) -> int | None:
    """When the next listing is due, epoch milliseconds, maybe past; None when there is no inbox."""
    return cast("int | None", db.all(SQL.select_next_listing)[0][0])


def _chunks(files: Sequence[FileStatus]) -> Iterable[Sequence[FileStatus]]:
    return (files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK))
