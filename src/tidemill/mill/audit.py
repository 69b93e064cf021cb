"""The audit log, as `Mill` offers it: the changes that callers asked for."""

from __future__ import annotations

from tidemill.catalog.audit_log import AuditEntry, has_entry, list_entries
from tidemill.catalog.db import Db
from tidemill.errors import NotFound
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, cut, one_more, read_name
from tidemill.mill.project import Noun


class AuditLog(Noun):
    """Operations on the audit log."""

    noun = "audit"

    @operation(Right.READ, whole=True)
    def log(
        self, *, subject: str | None = None, actor: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[AuditEntry]:
        """List the changes that callers asked for (to a subject, by an actor), newest first.

        `after` is the id of an entry. `NotFound` for an entry that is not there, or that retention has deleted.
        """
        read_name(after)

        def block(db: Db) -> Page[AuditEntry]:
            if after and not has_entry(db, after):
                hint = "`tidemill audit log` without --after begins with the newest"
                raise NotFound("entry of the audit log", after, hint=hint)
            found = list_entries(db, subject=subject, actor=actor, after=after, limit=one_more(limit))
            return cut(found, limit, lambda entry: entry.audit_id, lambda entry: entry)

        return self._catalog.read(block)
