"""Deliver processed files of an inbox again: the old record is closed, and the file is new."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.errors import Conflict, UserError
from tidemill.lake.inbox.file_checks import is_same
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.names import DatasetId, file_event
from tidemill.storage.files import FileUnreadable, find_files

if TYPE_CHECKING:
    from tidemill.lake.inbox.reprocess_sql import Sql

SQL: Sql = load_sql(__file__)


class NotReprocessed(UserError):
    """A file that cannot be delivered again as it stands."""

    code = "not_reprocessed"
    hint = "look at the state of the file: `tidemill inbox files` lists all files"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"file {name!r} cannot be processed again: {why}")


@refusal
class FilesChanged(Conflict):
    """Some of the files to deliver again were closed, claimed or moved meanwhile."""

    code = "files_changed"

    def __init__(self, wanted: str, found: str) -> None:
        self.wanted = int(wanted)
        self.found = int(found)
        super().__init__(
            f"of {wanted} files to process again {found} are still processed: nothing is changed",
            "look at `tidemill inbox files` and ask again",
        )


def reprocess(
    catalog: Catalog,
    inbox: Inbox,
    names: Sequence[str],
    by: str,
    note: NoteChange | None = None,
    also: Sequence[Effect] = (),
) -> int:
    """Deliver processed files again, all of them or none. Return their number.

    One transaction closes the old records with the actor `by`, announces the files as new ones, and takes along the
    `note` and `also`. `NotReprocessed` for a file that was not processed, is not in the inbox any more, or was written
    again. Errors: also `FilesChanged`.
    Cost: a look at each file, and one commit.
    """
    wanted = list(dict.fromkeys(names))
    found = catalog.read(lambda db: _find_processed(db, inbox, wanted))
    files = inbox.files(catalog.world)
    chosen = []
    for name, status in zip(wanted, find_files(files, wanted), strict=True):
        if isinstance(status, FileUnreadable):
            raise status
        if name not in found:
            raise NotReprocessed(name, "no run has processed it; `tidemill inbox files` says how it stands")
        if status is None:
            raise NotReprocessed(name, "it is not in the inbox any more: move it back from the archive first")
        same = [one for one in found[name] if is_same(one, status)]
        if not same:
            raise NotReprocessed(name, "it was written again, and its new content comes by itself")
        exact = [one for one in same if one.etag == status.etag]
        chosen.append({"name": name, "content_version": (exact or same)[-1].content_version})
    if chosen:
        catalog.world.mark("reprocess.before_commit")
        states = ({"state": state, "files": len(chosen)} for state in (FileState.SUCCESS, FileState.NEW))
        told = [] if note is None else [note.between(*states)]
        again = _Reprocess(inbox.dataset_id, file_event(inbox.dataset.namespace, inbox.dataset.name), chosen, by)
        catalog.apply([again, *told, *also])
    return len(chosen)


@dataclass(frozen=True, slots=True)
class _Reprocess(Effect):
    phase = Phase.FILES

    dataset_id: DatasetId
    event_key: str
    files: Sequence[dict[str, str]]
    by: str

    def guards(self) -> Sequence[Call]:
        return (SQL.guard_processed(**self._params, wanted=len(self.files)),)

    def writes(self) -> Sequence[Call]:
        return (
            SQL.keep_record(**self._params, by_whom=self.by),
            SQL.deliver_again(**self._params),
            SQL.publish_again(**self._params, event_key=self.event_key),
        )

    @property
    def _params(self) -> dict[str, Param]:
        # Each row names its data set: else SQLite reads all files of the inbox, once for each row.
        return {"files": json.dumps([{"dataset_id": self.dataset_id, **file} for file in self.files])}


def _find_processed(db: Db, inbox: Inbox, names: Sequence[str]) -> dict[str, list[ClaimedFile]]:
    """The contents of each name that were processed, as they were claimed."""
    found: dict[str, list[ClaimedFile]] = {}
    rows = db.records(
        SQL.find_processed,
        tuple[str, str, str, int, datetime],
        dataset_id=inbox.dataset_id,
        names=json.dumps(names),
    )
    for name, version, etag, size, modified_at in rows:
        file = ClaimedFile(inbox.dataset_id, name, version, etag, size, modified_at, 0)
        found.setdefault(name, []).append(file)
    return found
