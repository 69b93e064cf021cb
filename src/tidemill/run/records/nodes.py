"""Nodes: processes with roles, each with a row that the node renews every five minutes while the node works.

No promise rests on these rows: leases and fences keep runs safe. The rows tell people and probes which nodes there are,
and carry the request to drain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import ALL_ROWS, load_sql
from tidemill.names import NodeId

if TYPE_CHECKING:
    from tidemill.run.records.nodes_sql import Sql

SQL: Sql = load_sql(__file__)

RENEW_EVERY: Final = timedelta(minutes=5)
LOST_AFTER: Final = timedelta(minutes=12)
"""The time without a renewal after which a node counts as lost."""
KEEP_LOST: Final = timedelta(days=1)
"""The time for which the row of a lost node is kept for people."""


class NodeRole(StrEnum):
    """The roles of a node. `tidemill up` has all of them."""

    SCHEDULER = "scheduler"
    """Makes jobs and runs, lists inboxes, does what time makes due, and sends alerts."""
    RUNNER = "runner"
    """Works on runs, and fences runs of runners that died."""
    JANITOR = "janitor"
    """Deletes what is old or unused, and has processed files leave their inbox."""


class NodeState(StrEnum):
    """The states of a node."""

    WORKING = "WORKING"
    DRAINING = "DRAINING"
    """The node takes no more runs, and ends when its runs have ended."""
    LOST = "LOST"
    """The node has not renewed its row for twelve minutes: it was killed, or stands still, or has no catalog."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as the catalog knows it. `process` is its process, as `Spawner.identity` names it."""

    node_id: NodeId
    host: str
    process: str
    roles: tuple[str, ...]
    slots: int
    started_at: datetime
    seen_at: datetime
    drains: bool

    def state(self, now: datetime) -> NodeState:
        """Return the state of the node at `now`, the catalog's time."""
        if now - self.seen_at > LOST_AFTER:
            return NodeState.LOST
        return NodeState.DRAINING if self.drains else NodeState.WORKING


def put_node(
    db: Db,
    node_id: NodeId,
    host: str,
    process: str,
    roles: Iterable[NodeRole],
    slots: int,
    *,
    drains: bool = False,
) -> None:
    """Record that a node works; a node that is known is seen again. `drains` if the node knows that it is to drain."""
    db.run(
        SQL.put_node,
        node_id=node_id,
        host=host,
        process=process,
        roles=json.dumps([*roles]),
        slots=slots,
        drains=int(drains),
    )


def find_node(db: Db, node_id: NodeId) -> NodeRecord | None:
    """Return a node, or None."""
    return db.record(SQL.find_node, NodeRecord, node_id=node_id)


def list_nodes(db: Db, *, after: str = "", most: int = ALL_ROWS) -> list[NodeRecord]:
    """Return nodes in the order of their ids, which is about that of their starts."""
    return db.records(SQL.list_nodes, NodeRecord, after=after, limit=most)


def drain_node(db: Db, node_id: NodeId) -> bool:
    """Have a node drain, and return whether it was not asked to before."""
    return bool(db.run(SQL.drain_node, node_id=node_id))


def delete_node(db: Db, node_id: NodeId) -> None:
    """Delete the row of a node that has ended."""
    db.run(SQL.delete_node, node_id=node_id)


def delete_old_nodes(catalog: Catalog) -> int:
    """Delete the rows of nodes that were lost long ago, and return their number. A look if there are none."""
    if catalog.read(lambda db: db.one(SQL.find_old_node, keep=KEEP_LOST)) is None:
        return 0
    return catalog.write(lambda db: db.run(SQL.delete_old_nodes, keep=KEEP_LOST))


def count_free_slots(db: Db) -> int:
    """Return the number of free slots of all runners together. Cost: the nodes, and the runs under way."""
    now = db.now()
    slots = sum(node.slots for node in list_nodes(db) if node.state(now) is NodeState.WORKING)
    return max(slots - (db.value(SQL.count_taken_slots, int) or 0), 0)
