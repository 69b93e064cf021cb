"""Every error that Tidemill raises: one root, one class for each thing a caller can do about it.

The five bases say what to do: `UserError` (correct your input), `Denied` (ask for the right), `Conflict` (another
transaction committed first; run again), `Fenced` (you are no longer the owner; stop), `Unavailable` (try later). Each
error has a stable `code` for CLI, REST, logs and documentation, a `hint` with the next step, and keeps its data as
attributes. An error class stands here if several rooms raise or catch it. A class of one room stands in that room,
below one of these bases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self


@dataclass(frozen=True, slots=True)
class StatementPlace:
    """The place of a word in a statement, both from 1. `column` is that of the last letter."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class TidemillError(Exception):
    """Root of all errors of Tidemill.

    `code` never changes for one kind of error. `exit_code` is what the command line ends with: 1 failed, 2 wrong
    input, 3 conflict, 4 not found, 5 unavailable.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retry_after: ClassVar[int] = 0
    """Seconds after which the same call may succeed; 0 if the passing of time does not help."""

    hint: str = ""
    """The next step of the caller. A class has one if its errors have none of their own: their reasons say the rest."""
    in_statement: StatementPlace | None = None
    """The place in a statement of what is wrong, None if the input is no statement."""

    def __init__(self, wrong: str = "", hint: str = "", *, before: str = "; ") -> None:
        """Make the message of `wrong`, a sentence about what is wrong, and of the next step, with `before` between."""
        super().__init__(f"{wrong}{before}{hint}" if hint else wrong)
        self._wrong = wrong
        if hint:
            self.hint = hint

    @property
    def wrong(self) -> str:
        """The message without the next step."""
        return self._wrong

    @property
    def sentence(self) -> str:
        """The message with the next step. A message that has no next step gets the one of its class."""
        message = str(self)
        return message if self.hint in message else f"{message}; {self.hint}"

    def put_at(self, place: StatementPlace) -> Self:
        """Say where in a statement the mistake stands. Of several calls the first one counts."""
        if self.in_statement is None:
            self.in_statement = place
            self._wrong = f"{self.in_statement}: {self._wrong}"
            self.args = (f"{self.in_statement}: {self}",)
        return self

    def fields(self) -> dict[str, object]:
        """Return the data of the error, for JSON; the message is built from the same data."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "hint"}


class UserError(TidemillError):
    """The input is wrong: mend it and call again."""

    code = "wrong_input"
    exit_code = 2
    hint = "correct the input, and call again"


_LISTED_BY: Final = {
    "alert": "`tidemill alert list --resolved` lists them all",
    "alert rule": "`tidemill alert rules` lists them all",
    "app": "`tidemill app list` lists them all",
    "backfill": "`tidemill backfill list` lists them all",
    "consumer": "`tidemill consumer list` lists them all",
    "delivery": "`tidemill alert deliveries` lists them for 30 days",
    "job": "`tidemill job list` lists them all",
    "node": "`tidemill node list` lists them all",
    "program": "`tidemill app show APP` lists them all",
    "run": "`tidemill run list` shows the newest",
    "schedule": "`tidemill schedule list` lists them all",
    "topic": "`tidemill topic list` lists them all",
    "transaction": "`tidemill tx list` lists them all",
}
"""The next step where no name is near: it is the same for a thing that is not there and for one that is hidden."""


class NotFound(UserError):
    """No such thing; `nearest` is the closest existing name, where one is close."""

    code = "not_found"
    exit_code = 4
    hint = "check the name, and the namespace before it"

    def __init__(self, kind: str, name: str, nearest: str | None = None, *, hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest
        if not (hint or nearest) and kind in _LISTED_BY:
            hint = _LISTED_BY[kind]
        meant = f"did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"no {kind} named {name!r}", " ".join(filter(None, (meant, hint))))


class Denied(TidemillError):
    """The caller is unknown, or may not do this: come with another token, or ask for the right."""

    code = "denied"
    hint = "use another token, or ask for the right"


class Conflict(TidemillError):
    """Another transaction committed first. Nothing was changed; run again to work on the new state."""

    code = "conflict"
    exit_code = 3
    hint = "run again to work on the new state"


class ChangedMeanwhile(Conflict):
    """A thing has another generation than the caller has seen. Nothing was changed."""

    code = "changed_meanwhile"

    def __init__(self, kind: str, name: str, generation: int, wanted: int) -> None:
        self.kind = kind
        self.name = name
        self.generation = generation
        self.wanted = wanted
        super().__init__(
            f"{kind} {name} has generation {generation}, not {wanted}: another caller changed it",
            "look at it, and repeat the change with its generation",
        )


def check_generation(kind: str, name: str, generation: int, wanted: int | None) -> None:
    """Raise `ChangedMeanwhile` unless a thing has the wanted generation; None means any.

    To be called in the transaction of the change, behind its tick.
    """
    if wanted is not None and wanted != generation:
        raise ChangedMeanwhile(kind, name, generation, wanted)


class Fenced(TidemillError):
    """The caller no longer owns what it works on: its run was ended or taken over. Stop; nothing was changed."""

    code = "fenced"
    exit_code = 3

    def __init__(self, subject: str, why: str) -> None:
        self.subject = subject
        self.why = why
        super().__init__(
            f"{subject} is fenced: {why}", f"stop the work: later writes of {subject} never become visible"
        )


class Unavailable(TidemillError):
    """Something outside is away or in the way (catalog, storage, Java): try later, or follow the cure named."""

    code = "unavailable"
    exit_code = 5
    retry_after = 1
    hint = "bring back what is away, and try again"


class NotOnThisNode(Unavailable):
    """This node lacks something that a run needs, and other nodes may have: no fault of the program or its input."""

    code = "not_on_this_node"
    hint = "give this node what it lacks, or leave such runs to other nodes"


class Internal(TidemillError):
    """A promise of Tidemill's own code is broken: please report it with the message."""

    code = "internal"
    hint = "report the message to the authors of Tidemill, with the log"
