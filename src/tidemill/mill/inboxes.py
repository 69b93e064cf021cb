"""Inboxes, as `Mill` offers them."""

from __future__ import annotations

from tidemill.catalog.db import Db
from tidemill.lake import inbox
from tidemill.mill.project import Project


class Inboxes(Project):
    """Operations on inboxes."""

    def list_inbox_files(
        self, name: str, *, state: str | None = None, after: str = "", limit: int = 100
    ) -> list[inbox.InboxFile]:
        """The files of an inbox by name, from behind the name `after` on, in one state or all."""

        def block(db: Db) -> list[inbox.InboxFile]:
            found = inbox.Inbox.of(self._dataset(db, name))
            wanted = None if state is None else inbox.FileState(state)
            return inbox.list_files(db, found.dataset_id, state=wanted, after=after, limit=limit)

        return self.catalog.read(block)
