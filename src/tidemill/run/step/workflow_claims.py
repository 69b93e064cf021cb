"""Claims of a workflow at the end of a node: what becomes of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, TypeAlias

from tidemill.run.records.runs import RunState
from tidemill.run.records.workflows import Holding


@dataclass(frozen=True, slots=True)
class Close:
    """No node reads the claims any more: the commit completes those that the workflow holds."""

    taken: bool
    """False if no node has taken any."""
    holding: ClassVar = Holding.CLOSED


@dataclass(frozen=True, slots=True)
class ReturnAll:
    """The workflow has ended without success: its claims return, and other runs take them."""

    holding: Holding


@dataclass(frozen=True, slots=True)
class Hold:
    """The workflow has failed, and keeps its claims for a retry, for the time `within`."""

    within: timedelta
    holding: ClassVar = Holding.HELD


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing becomes of the claims: the workflow goes on, or has none."""

    holding: Holding


Claims: TypeAlias = Close | ReturnAll | Hold | Keep


def decide_claims(holding: Holding, end: RunState | None, *, holds: bool, read: bool, within: timedelta) -> Claims:
    """Decide what becomes of the claims of a workflow when a node of it ends.

    `end` is the end of the workflow, or None if the workflow goes on. `holds` says that the workflow holds data sets
    for its nodes. `read` says that all nodes which read these data sets have ended well. `within` is the time for which
    a failed workflow keeps its claims.
    """
    is_open = holds and holding in {Holding.NOTHING, Holding.HELD}
    if is_open and read:
        return Close(taken=holding is Holding.HELD)
    if end is RunState.KILLED:
        # Without claims too: a workflow that was killed is not resumed.
        return ReturnAll(Holding.RETURNED) if is_open else Keep(Holding.RETURNED)
    if end is RunState.FAILED and is_open:
        if holding is Holding.NOTHING:
            return ReturnAll(holding)
        return Hold(within) if within else ReturnAll(Holding.RETURNED)
    return Keep(holding)
