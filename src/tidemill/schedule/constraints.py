"""Constraints: what must hold, beside the trigger, at the instant of a launch (seed 001). Frozen, pure.

A constraint says which facts it needs and answers from them alone; the checker reads the facts under the locks that
keep them true until the run exists, so that two schedules can never launch past a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidemill.errors import UserError
from tidemill.json_specs import union
from tidemill.names import ProgramId
from tidemill.schedule.answers import Answer, Satisfied, Waiting


class BadConstraint(UserError):
    """A constraint that cannot be."""

    code = "bad_constraint"

    def __init__(self, constraint: str, why: str) -> None:
        self.constraint = constraint
        self.why = why
        super().__init__(f"constraint {constraint} is refused: {why}")


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Limit of `n` runs of the program at one time, however the runs were started.

    A job over the limit waits for a slot.
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise BadConstraint("Concurrency", f"n must be a whole number of at least 1, not {self.n!r}")

    def __str__(self) -> str:
        return f"Concurrency({self.n})"

    def limit_key(self, program_id: ProgramId) -> str:
        """The `slot_limit` row under which the program's slots are counted."""
        return f"program:{program_id}"

    def check(self, limit_key: str, held: int, ahead: int) -> Answer:
        """Say whether a run may start while `held` slots of `limit_key` are taken.

        `ahead` other jobs wait for a slot of the key and have the better turn: what is free is theirs first.
        """
        counted = f"concurrency {held}/{self.n}"
        if held >= self.n:
            return Waiting(counted, (slots_key(limit_key),))
        if held + ahead >= self.n:
            return Waiting(f"{counted}, {ahead} with the better turn", (slots_key(limit_key),))
        return Satisfied(counted)


Constraint: TypeAlias = Concurrency


def slots_key(limit_key: str) -> str:
    """The wake key of jobs that wait until a slot of `limit_key` is free."""
    return f"slots:{limit_key}"


union(Constraint, {"concurrency": Concurrency})
