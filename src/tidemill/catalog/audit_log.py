"""The audit log: a row for each change that a caller asked for, written by the transaction of the change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import LAST_TEXT, Call, load_sql

if TYPE_CHECKING:
    from tidemill.catalog.audit_log_sql import Sql

SQL: Sql = load_sql(__file__)

KEEP_AUDIT: Final = timedelta(days=400)
"""The time that entries stay unless the project says otherwise (`retention.audit`)."""

_PART: Final = 1000


@dataclass(frozen=True, slots=True)
class NoteChange(Effect):
    """Effect: the audit row of a change. Repeated, it stays one row.

    A transaction that makes a change takes it along, as an effect or by `write`: no change without its row, and no row
    without its change.
    """

    phase = Phase.ANNOUNCE

    audit_id: str
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]

    def writes(self) -> Sequence[Call]:
        detail = json.dumps(self.detail, separators=(",", ":"), default=str)
        params = {"audit_id": self.audit_id, "actor": self.actor, "action": self.action, "subject": self.subject}
        return (SQL.add_entry(**params, detail=detail),)

    def between(self, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> NoteChange:
        """Return the row with the state of its subject before and after the change; None: there was, or is, no such.

        The transaction of the change knows both. A secret, and the value of an argument, is in neither.
        """
        return replace(self, detail={**self.detail, "before": before, "after": after})

    def write(self, db: Db) -> None:
        """Write the row within a block."""
        for call in self.writes():
            db.call(call)


def write_note(db: Db, note: NoteChange | None) -> None:
    """Write the audit row of a change within the block that makes the change; nothing for an unasked change."""
    if note is not None:
        note.write(db)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change: its actor, its action (noun and verb of the operation), its subject, and details."""

    audit_id: str
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]


def delete_old_entries(catalog: Catalog, keep: timedelta) -> int:
    """Delete entries that are older than `keep`, a thousand at most, and return their number. The janitor's work."""
    old = catalog.read(lambda db: db.records(SQL.list_old_entries, str, most=_PART, keep=keep))
    if old:
        catalog.write(lambda db: db.run(SQL.delete_entries, audit_ids=json.dumps(old)))
    return len(old)


def has_entry(db: Db, audit_id: str) -> bool:
    """Return whether the log has an entry of that id."""
    return bool(db.all(SQL.find_entry, audit_id=audit_id))


def list_entries(db: Db, *, subject: str | None, actor: str | None = None, after: str, limit: int) -> list[AuditEntry]:
    """List changes (of a subject, by an actor), newest first, older than the entry `after`.

    Cost: the number of listed entries; with both filters perhaps all entries of the subject.
    """
    before = after or LAST_TEXT
    match subject, actor:
        case None, None:
            return db.records(SQL.list_entries, AuditEntry, before=before, limit=limit)
        case None, str(by):
            return db.records(SQL.list_entries_by, AuditEntry, actor=by, before=before, limit=limit)
        case str(of), None:
            return db.records(SQL.list_entries_of, AuditEntry, subject=of, before=before, limit=limit)
        case str(of), str(by):
            return db.records(SQL.list_entries_of_by, AuditEntry, subject=of, actor=by, before=before, limit=limit)
    raise AssertionError
