"""Nodes, as `Mill` offers them: list the processes that share the work, and drain one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.catalog.db import Db
from tidemill.errors import NotFound
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, cut, one_more, read_name
from tidemill.mill.project import Noun
from tidemill.names import NodeId
from tidemill.run.records import nodes
from tidemill.run.records.nodes import NodeRecord, NodeState


@dataclass(frozen=True, slots=True)
class NodeView:
    """A process with roles: `tidemill up` has all of them. `slots` is the number of runs at a time; 0 without a runner.

    `seen_at` is renewed every five minutes. A node that is `LOST` has not renewed it for twelve, or has ended on this
    machine without a word.
    """

    node_id: NodeId
    host: str
    roles: tuple[str, ...]
    slots: int
    state: NodeState
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class DrainedNode:
    """A node that is to end when its runs have ended. `changed` is false if it was asked to before.

    `state` is `DRAINING`, or `LOST`: a lost node does not answer, and drains only if the node works again.
    """

    node_id: NodeId
    changed: bool
    state: NodeState


class Nodes(Noun):
    """Operations on nodes."""

    noun = "node"

    @operation(Right.READ, whole=True)
    def list(self, *, limit: int = PAGE, after: str = "") -> Page[NodeView]:
        """List nodes in the order of their starts. A lost node is listed for a day."""
        place = read_name(after) if after else ""

        def block(db: Db) -> Page[NodeView]:
            now = db.now()
            found = nodes.list_nodes(db, after=place, most=one_more(limit))
            return cut(found, limit, lambda one: one.node_id, lambda one: self._view(one, now))

        return self._catalog.read(block)

    @operation(Right.OPERATE, command="drain", whole=True, in_block=True)
    def drain(self, node_id: str) -> DrainedNode:
        """Have a node take no more runs, and end when its runs have ended. Other nodes go on. `NotFound`."""

        def block(db: Db) -> DrainedNode:
            found = nodes.find_node(db, NodeId(node_id))
            if found is None:
                raise NotFound("node", node_id)
            changed = nodes.drain_node(db, NodeId(node_id))
            if changed:
                self._note("drain", node_id).between({"drains": False}, {"drains": True}).write(db)
            state = self._state(replace(found, drains=True), db.now())
            return DrainedNode(NodeId(node_id), changed, state)

        return self._catalog.write(block)

    def _view(self, one: NodeRecord, now: datetime) -> NodeView:
        state = self._state(one, now)
        return NodeView(one.node_id, one.host, one.roles, one.slots, state, one.started_at, one.seen_at)

    def _state(self, one: NodeRecord, now: datetime) -> NodeState:
        dead = self._world.spawner.has_ended(one.process)
        return NodeState.LOST if dead else one.state(now)
