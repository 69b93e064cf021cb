"""Hooks, as `Mill` offers them: signals from outside, each delivery of which counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.messages import HOOK_EVENT, Publish, Topic, check_payload
from tidemill.catalog.named import load_sql
from tidemill.errors import UserError
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun
from tidemill.names import EventKey, check_name, hook_event, qualified
from tidemill.schedule import schedules
from tidemill.schedule.specs import Schedule
from tidemill.texts import printable

if TYPE_CHECKING:
    from tidemill.mill.hooks_sql import Sql

SQL: Sql = load_sql(__file__)

REMEMBER: Final = timedelta(hours=24)
"""The time for which a delivery id is known."""

_MOST_LETTERS: Final = 200


class BadDelivery(UserError):
    """An id of a delivery that cannot be one."""

    code = "bad_delivery"

    def __init__(self, delivery: str) -> None:
        self.delivery = delivery
        super().__init__(
            f"delivery id {delivery[:_MOST_LETTERS]!r} is refused",
            f"give 1 to {_MOST_LETTERS} characters without NUL, such as the sender's own id of the delivery",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class FiredHook:
    """A hook that was fired: the position of its message on the topic `hook`, and the schedules that listen to it.

    `again` is true for a delivery that had come before: the message is that of its first time.
    """

    hook: str
    position: str
    schedules: tuple[str, ...]
    again: bool


class _Delivery(NamedTuple):
    seq: int
    n: int


class Hooks(Noun):
    """Operations on hooks."""

    noun = "hook"

    @operation(Right.OPERATE, in_block=True)
    def fire(self, name: str, payload: Mapping[str, object] | None = None, *, delivery: str | None = None) -> FiredHook:
        """Fire a hook: feed the schedules whose trigger is `Hook(name)`. No declaration makes a hook.

        A `delivery` id counts once in 24 hours, so a sender that is not sure may send again. `payload` has JSON values.
        `BadName`, `BadPayload`, `BadDelivery`, `MessageTooLarge`.
        """
        namespace, (local,) = self._project.split("hook", name, 1)
        check_name("hook", local)
        if delivery is not None and not (0 < len(delivery) <= _MOST_LETTERS and printable(delivery) == delivery):
            raise BadDelivery(delivery)
        key = hook_event(namespace, local)
        message = Publish(Topic.HOOK, HOOK_EVENT, key, check_payload(Topic.HOOK, payload))

        def block(db: Db) -> FiredHook:
            seq = db.tick()
            heard_by = tuple(one.qualified_name for one in self._listening(db, key))
            hook = qualified(namespace, local)
            if delivery is not None:
                db.run(SQL.forget_deliveries, known=REMEMBER)
                known = db.record(SQL.find_delivery, _Delivery, hook=hook, delivery=delivery)
                if known is not None:
                    return FiredHook(hook, f"{known.seq}.{known.n}", heard_by, again=True)
                db.run(SQL.insert_delivery, hook=hook, delivery=delivery, seq=seq, n=0)
            for call in message.writes():
                db.call(call)
            self._note("fire", hook, delivery=delivery).write(db)
            return FiredHook(hook, f"{seq}.0", heard_by, again=False)

        return self._catalog.write(block)

    def _listening(self, db: Db, key: EventKey) -> Sequence[Schedule]:
        return [one for one in schedules.list_schedules(db, event_key=key) if self._project.access.sees(one.namespace)]
