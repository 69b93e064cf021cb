"""The node of a process: tells the catalog that the process works, and hears when it is to drain."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import ClassVar, Final

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import WakeKind
from tidemill.errors import Unavailable
from tidemill.names import NodeId
from tidemill.roles.loops import LONGEST_NAP, SHORTEST_NAP, Loops, loop
from tidemill.run.records.nodes import RENEW_EVERY, NodeRole, delete_node, find_node, list_nodes, put_node

_LOOK_AGAIN: Final = timedelta(milliseconds=200)
"""The delay of the look after a request to drain some node."""
_LOOK_WHILE_DRAINING: Final = timedelta(milliseconds=500)


class Node:
    """The row of a process in the catalog. A node that is to drain takes no more runs, and ends when none works.

    A node that has heard the request to drain keeps it. The row may be deleted, or come from a backup that is older
    than the request. `busy` counts the runs at work in this process.
    """

    AWAITED: ClassVar = frozenset({WakeKind.NODE})

    def __init__(
        self, catalog: Catalog, roles: Collection[NodeRole], slots: int, *, loops: Loops, busy: Callable[[], int]
    ) -> None:
        self._catalog = catalog
        self.roles = [role for role in NodeRole if role in roles]
        self._slots = slots
        self._loops = loops
        self._busy = busy
        self._drains = False
        self.node_id = NodeId(catalog.world.new_id("node"))

    def join(self) -> None:
        """Make the row of this node, and delete those of nodes that have certainly ended: they died on this machine."""
        spawner = self._catalog.world.spawner
        dead = [one.node_id for one in self._catalog.read(list_nodes) if spawner.has_ended(one.process)]
        for node_id in dead:
            self._catalog.write(partial(delete_node, node_id=node_id))
        self._put()
        self._loops.start("node", loop(self._catalog.world, self.step, look_again=_LOOK_AGAIN), self.AWAITED)

    def step(self) -> timedelta:
        """Renew the row when it is time to, and end the process if it is to drain and no run works."""
        found, now = self._catalog.read(lambda db: (find_node(db, self.node_id), db.now()))
        self._drains = self._drains or (found is not None and found.drains)
        if found is None or found.drains != self._drains or now - found.seen_at >= RENEW_EVERY:
            self._put()
        if self._drains:
            # A runner that was about to take runs when it heard of it has them by the next step.
            if self._loops.draining and not self._busy():
                self._loops.ending.ask()
            self._loops.draining = True
            return _LOOK_WHILE_DRAINING
        if found is None:
            return SHORTEST_NAP
        return min(max(found.seen_at + RENEW_EVERY - now, SHORTEST_NAP), LONGEST_NAP)

    def leave(self) -> None:
        """Delete the row. Without a catalog, the row stays until it is old."""
        with suppress(Unavailable):
            self._catalog.write(lambda db: delete_node(db, self.node_id))

    def _put(self) -> None:
        spawner = self._catalog.world.spawner
        host, process = spawner.host(), spawner.identity()
        self._catalog.write(
            lambda db: put_node(db, self.node_id, host, process, self.roles, self._slots, drains=self._drains)
        )
