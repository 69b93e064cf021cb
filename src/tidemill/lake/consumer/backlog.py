"""The backlog of consumers: partitions, and versions of followed snapshots, that wait in working sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemill.catalog.effects import Phase
from tidemill.catalog.named import load_sql
from tidemill.lake.backlog import Backlog

if TYPE_CHECKING:
    from tidemill.lake.consumer.backlog_sql import Sql

SQL: Sql = load_sql(__file__)

CONSUMERS: Final = Backlog(
    phase=Phase.CLAIMS,
    publish=SQL.publish_backlog,
    postpone=SQL.postpone,
    find_next_due=SQL.find_next_due,
    find_due=SQL.find_due,
    clear_due=SQL.clear_due,
    lock=SQL.lock_consumers,
    note_unseen=SQL.note_unseen,
)
"""By the ids of consumers."""
