"""Effects: what one commit does, as data, in named phases.

An effect belongs to one phase, and phases follow the lock order. `Commit` sorts the effects by phase and keeps the
order in which effects of one phase were given. `Commit` refuses a lock out of order before the database sees anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final

from tidemill.catalog.named import LOCK_ORDER, Call
from tidemill.errors import Internal


class Phase(IntEnum):
    """Phases of a commit in the order in which they run, after all guards."""

    TRANSACTION = 1
    """The transaction's own row and the outputs that it declared."""
    PUBLISH = 2
    """Change rows, versions and compactions, with the messages about them."""
    RUN = 3
    """Slots, the run's row and the program's back-off."""
    CLAIMS = 4
    """Partitions, changes and windows that the run has consumed, its pins, and what is left of them."""
    FILES = 5
    """Files of inboxes, what is left of them, and their arrivals."""
    WATERMARK = 6
    """Period slots, watermarks and late data."""
    ANNOUNCE = 7
    """Messages that depend on no lock."""

    @property
    def shown(self) -> str:
        """The name in words for people."""
        return self.name.lower()


_LAST_TABLE: Final = {
    Phase.TRANSACTION: "tx",
    Phase.PUBLISH: "dataset",
    Phase.RUN: "run",
    Phase.CLAIMS: "consumer",
    Phase.FILES: "expectation",
    Phase.WATERMARK: "watermark",
}
_PHASE_OF_RANK: Final = {
    rank: min(phase for phase, table in _LAST_TABLE.items() if rank <= LOCK_ORDER.index(table))
    for rank in range(len(LOCK_ORDER))
}


class Effect(ABC):
    """Effect of a commit, as data: guards, which raise in SQL, then writes. No Python runs between them."""

    __slots__ = ()

    @property
    @abstractmethod
    def phase(self) -> Phase:
        """The phase in which the writes run: mostly an attribute of the class."""

    def guards(self) -> Sequence[Call]:
        """Statements that refuse by `tidemill_refuse` when the effect must not happen; most effects have none."""
        return ()

    @abstractmethod
    def writes(self) -> Sequence[Call]:
        """Statements that make the effect happen; `{commit_seq}` is the tick of this commit."""


class Commit:
    """The effects of one commit, sorted by phase. `Internal` when a statement locks rows out of order."""

    def __init__(self, effects: Iterable[Effect]) -> None:
        self.effects = sorted(effects, key=lambda effect: effect.phase)
        self._written = [list(effect.writes()) for effect in self.effects]
        self.guards = [call for effect in self.effects for call in effect.guards()]
        self.writes = [call for calls in self._written for call in calls]
        self._check_phases()
        self._check_order(self.guards)
        self._check_order(self.writes)

    def __str__(self) -> str:
        """List the effects: one line each, with its phase and its statements."""
        return "\n".join(
            f"{effect.phase.shown}: {type(effect).__name__.lstrip('_')} "
            f"({', '.join(call.statement.name for call in calls) or 'nothing'})"
            for effect, calls in zip(self.effects, self._written, strict=True)
        )

    def _check_phases(self) -> None:
        for effect, calls in zip(self.effects, self._written, strict=True):
            for call in calls:
                rank = call.statement.rank
                if rank is not None and _PHASE_OF_RANK[rank] is not effect.phase:
                    raise Internal(
                        f"{call.statement.name} locks {LOCK_ORDER[rank]} in the phase {effect.phase.shown}: give the "
                        f"effect the phase {_PHASE_OF_RANK[rank].shown}, or split it. The commit:\n{self}"
                    )

    def _check_order(self, calls: Sequence[Call]) -> None:
        ranked = [(call.statement.rank, call.statement.name) for call in calls if call.statement.rank is not None]
        for (before, first), (rank, name) in pairwise(ranked):
            if rank < before:
                raise Internal(
                    f"{name} locks {LOCK_ORDER[rank]} after {first} has locked {LOCK_ORDER[before]}: give the effects "
                    f"in the order of LOCK_ORDER. The commit:\n{self}"
                )
