"""Claims: the work that runs hold, each table of claims with one set of effects.

A claim belongs to its run through all attempts. The commit completes the claim, so that what was consumed and what was
published are one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, Statement
from tidemill.errors import Conflict
from tidemill.lake.backlog import Act
from tidemill.names import RunId
from tidemill.texts import printable


@refusal
class ClaimsMoved(Conflict):
    """The claims of the run changed after they were counted: count them again."""

    code = "claims_moved"
    hint = "count the claims again"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"the claims of run {run_id} changed meanwhile")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClaimTable:
    """The statements of one table of claims. All take `run_id`, and those that change claims take `epoch`."""

    phase: Phase
    find_held: Statement[...]
    """Gives the columns of `Held`."""
    refuse_if_moved: Act
    """With `claims`: refuse (`ClaimsMoved`) if the run holds another number."""
    restamp: Act
    complete: Sequence[Act]
    """Guard first: refuse claims of another attempt. Then record the claims as input of the run, and complete them."""
    count_failure: Act
    """With `error`: count a failure against all that the run holds."""
    fail_blamed: Act | None = None
    """With `blamed`, rows of `Blamed`: count a failure against these claims, which leave the run."""
    give_up: Act
    """After the failure was counted: quarantine, or discard, a claim that has failed as often as allowed."""
    gives_up_early: bool
    """Give up at each failure; else at the end of the run."""
    return_claims: Act
    """With `failed` and `backoff`: return what the run holds, after a failure with a wait that doubles, to an hour."""


@dataclass(frozen=True, slots=True)
class Held:
    """Claims of one table that a run holds: their number, and the most failures of one of them."""

    claims: int
    failures: int


@dataclass(frozen=True, slots=True)
class Blamed:
    """A claim that fails an attempt, with its own reason; `alone` has it tried by itself the next time."""

    table: ClaimTable
    key: Mapping[str, Param]
    error: str
    alone: bool = True

    def __post_init__(self) -> None:
        """Keep of the error what the catalog can: it may quote a file."""
        object.__setattr__(self, "error", printable(self.error))


@dataclass(frozen=True, slots=True)
class Blame:
    """Failure of an attempt, as claims count it. `claims` are those that are known to be at fault, of any table."""

    error: str
    claims: Sequence[Blamed] = ()

    def __post_init__(self) -> None:
        """Keep of the error what the catalog can: it comes from user code."""
        object.__setattr__(self, "error", printable(self.error))


def find_held(db: Db, table: ClaimTable, run_id: RunId) -> Held:
    """Find what the run holds. Cost: what it holds."""
    return db.records(table.find_held, Held, run_id=run_id)[0]


@dataclass(frozen=True, slots=True)
class _ClaimEffect(Effect):
    table: ClaimTable
    run_id: RunId
    epoch: int

    @property
    def phase(self) -> Phase:
        """The phase of the table."""
        return self.table.phase

    @property
    def _run(self) -> dict[str, Param]:
        return {"run_id": self.run_id, "epoch": self.epoch}

    def _count(self, blame: Blame, *, gives_up: bool) -> Sequence[Call]:
        """Count a failure against the blamed claims of the table, else against all that the run holds of it."""
        table = self.table
        blamed = [one for one in blame.claims if one.table is table]
        if blamed and table.fail_blamed is not None:
            rows = [{**one.key, "error": one.error, "alone": int(one.alone)} for one in blamed]
            return (table.fail_blamed(**self._run, blamed=json.dumps(rows)),)
        counted = table.count_failure(**self._run, error=blame.error)
        return (counted, table.give_up(**self._run)) if gives_up else (counted,)


@dataclass(frozen=True, slots=True)
class Restamp(_ClaimEffect):
    """Hand the claims of a run to its new attempt `epoch`; belongs to the attempt's begin."""

    def writes(self) -> Sequence[Call]:
        """Set the epoch."""
        return (self.table.restamp(**self._run),)


@dataclass(frozen=True, slots=True)
class Complete(_ClaimEffect):
    """Complete what the run holds, and record it as the run's input; belongs to the run's commit."""

    def guards(self) -> Sequence[Call]:
        """Refuse when the claims belong to another attempt."""
        return (self.table.complete[0](**self._run),)

    def writes(self) -> Sequence[Call]:
        """Record, complete."""
        return [act(**self._run) for act in self.table.complete[1:]]


@dataclass(frozen=True, slots=True)
class RefuseMoved(_ClaimEffect):
    """Refuse (`ClaimsMoved`) if the run does not hold `claims` any more. Stands behind the end of its transaction.

    After that end no take of the run is under way: each locks the transaction.
    """

    claims: int

    def writes(self) -> Sequence[Call]:
        """Refuse, or change nothing."""
        return (self.table.refuse_if_moved(run_id=self.run_id, claims=self.claims),)


@dataclass(frozen=True, slots=True)
class Fail(_ClaimEffect):
    """Count a failure of the program, or of a check, against claims that the run keeps for its next attempt.

    Blamed claims leave the run; beside them the others are innocent. Never for an attempt that was lost. `alone` says
    that the run holds this claim and no other of any table: nothing else can have been the cause.
    """

    blame: Blame
    alone: bool = False

    def writes(self) -> Sequence[Call]:
        """Count, give up."""
        return self._count(self.blame, gives_up=self.alone and self.table.gives_up_early)


@dataclass(frozen=True, slots=True)
class Return(_ClaimEffect):
    """Return the claims of a run at its end without success.

    `blame` is the failure of the last attempt, which is counted first (no `Fail` beside it). Then the claims wait for
    `backoff`, doubled with each failure, up to an hour. Without `blame`, and beside blamed claims, they return as new.
    """

    blame: Blame | None = None
    backoff: timedelta = timedelta(0)
    alone: bool = False

    def writes(self) -> Sequence[Call]:
        """Count, give up, return."""
        counted = () if self.blame is None else self._count(self.blame, gives_up=self.alone)
        failed = self.blame is not None and all(one.table is not self.table for one in self.blame.claims)
        back = self.table.return_claims(**self._run, failed=int(failed), backoff=self.backoff)
        return (*counted, back)
