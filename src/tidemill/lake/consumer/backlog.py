"""Work that is left: what is said of it, so that it never sticks, and when, so that nothing spins (protocol).

After every end of a run, for the consumers of its program, one message if they have anything that could be claimed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.durations import to_milliseconds
from tidemill.names import ConsumerId

if TYPE_CHECKING:
    from tidemill.lake.consumer.backlog_sql import Sql

SQL: Sql = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class PublishBacklog(Effect):
    """Say which of these consumers have work left that could be claimed now: so that work never sticks.

    The last effect of every end of a run, for the consumers of its program. `schedules` are those that hear it, all
    that listen when left out.
    """

    phase = Phase.CLAIMS

    consumers: Sequence[ConsumerId]
    schedules: Sequence[str] = ()

    def writes(self) -> Sequence[Call]:
        """Lock the consumers, so that takes under way have ended; then one message for each with work left."""
        if not self.consumers:
            return ()
        params = {**_named(self.consumers), "heard_by": heard_by(self.schedules)}
        return lock_consumers(self.consumers), SQL.publish_backlog(**params)


@dataclass(frozen=True, slots=True)
class NoteUnread(Effect):
    """Have changes that no take has seen count as work left, at the end of a run that was launched for them.

    A run that took anything has moved the changes into the working set. A run that ended before its take has used up
    the messages of the changes, so no later message would start a run for them. Stands before `PublishBacklog` or
    `PostponeBacklog`.
    """

    phase = Phase.CLAIMS

    consumers: Sequence[ConsumerId]

    def writes(self) -> Sequence[Call]:
        """Lock the consumers, so that takes under way have ended; then a row or two for each."""
        if not self.consumers:
            return ()
        return lock_consumers(self.consumers), *(
            SQL.note_unread(consumer_id=consumer_id) for consumer_id in self.consumers
        )


@dataclass(frozen=True, slots=True)
class PostponeBacklog(Effect):
    """Say later which of these consumers have work left: at the end of a run that could not even take it.

    In place of `PublishBacklog`, which would start the next such run at once, and so on. After `wait` at the soonest;
    the longer the work has waited the later, up to an hour.
    """

    phase = Phase.CLAIMS

    consumers: Sequence[ConsumerId]
    wait: timedelta

    def writes(self) -> Sequence[Call]:
        """Lock the consumers; then give one row of each a time, which the keeper sees to."""
        if not self.consumers:
            return ()
        wait = max(1, to_milliseconds(self.wait))
        return lock_consumers(self.consumers), *(SQL.postpone(consumer_id=one, wait=wait) for one in self.consumers)


@dataclass(frozen=True, slots=True)
class _PublishDue(Effect):
    phase = Phase.CLAIMS

    consumers: Sequence[ConsumerId]

    def writes(self) -> Sequence[Call]:
        cleared = SQL.clear_due(**_named(self.consumers))
        return *PublishBacklog(self.consumers).writes(), cleared


def heard_by(schedules: Sequence[str]) -> str:
    """Return the end of a payload that names the schedules for which a message about work is; empty for all."""
    return f',"schedules":{json.dumps(sorted(schedules))}' if schedules else ""


def next_due(db: Db) -> int | None:
    """When the next row of a working set may be claimed again, epoch milliseconds, maybe past; None for never."""
    return db.value(SQL.find_next_due, int)


def publish_due(catalog: Catalog) -> int:
    """Announce the work whose time to wait is over; give the number of consumers that had some. A role calls it."""
    due = [ConsumerId(str(row[0])) for row in catalog.read(lambda db: db.all(SQL.find_due))]
    if due:
        catalog.world.mark("backlog.before_publish")
        catalog.apply([_PublishDue(due)])
    return len(due)


def lock_consumers(consumers: Sequence[ConsumerId]) -> Call:
    """What locks these consumers, in the order in which all do: a write that stands before those to their work."""
    return SQL.lock_consumers(**_named(consumers))


def _named(consumers: Sequence[ConsumerId]) -> dict[str, Param]:
    return {"consumers": json.dumps(sorted(consumers))}
