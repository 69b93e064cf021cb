"""The alerter: looks at rules when their time has come or a run has ended, and sends what targets are to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from tidemill.alerts.alerts import Watch
from tidemill.alerts.outbox import Sender
from tidemill.alerts.sending import send
from tidemill.catalog.db import Catalog
from tidemill.roles.loops import LONGEST_NAP, SHORTEST_NAP
from tidemill.world import World

LOOK_AGAIN: Final = timedelta(seconds=1)
"""The delay of the next look after a commit."""


class Alerter:
    """The two steps of alerts, each for a loop of its own: a receiver that hangs delays no look."""

    def __init__(self, catalog: Catalog, world: World) -> None:
        self._catalog = catalog
        self._watch = Watch(catalog, world)
        self._sender = Sender(catalog, world, lambda target, body: send(target, world, body))

    @property
    def steps(self) -> Mapping[str, Callable[[], timedelta]]:
        """The steps by the names of their threads."""
        return {"alerts": self.look, "deliveries": self.send}

    def look(self) -> timedelta:
        """Look at what is due, and return the time until the next look."""
        return self._nap(self._watch.look)

    def send(self) -> timedelta:
        """Send what is due, and return the time until the next try."""
        return self._nap(self._sender.send_due)

    def _nap(self, step: Callable[[], datetime | None]) -> timedelta:
        next_at = step()
        if next_at is None:
            return LONGEST_NAP
        now = self._catalog.read(lambda db: db.now())
        return min(max(next_at - now, SHORTEST_NAP), LONGEST_NAP)
