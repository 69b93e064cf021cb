"""Every error that Tidemill raises: one root, one class for each thing a caller can do about it.

The five bases say what to do: `UserError` (correct your input), `Denied` (ask for the right), `Conflict` (another
transaction committed first; run again), `Fenced` (you are no longer the owner; stop), `Unavailable` (try later). Each
error has a stable `code` for CLI, REST, logs and documentation, and keeps its data as attributes. An error class stands
here if several rooms raise or catch it. A class of one room stands in that room, below one of these bases.
"""

from __future__ import annotations

from typing import ClassVar, Final


class TidemillError(Exception):
    """Root of all errors of Tidemill.

    `code` never changes for one kind of error. `exit_code` is what the command line ends with: 1 failed, 2 wrong
    input, 3 conflict, 4 not found, 5 unavailable.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def fields(self) -> dict[str, object]:
        """Return the data of the error, for JSON; the message is built from the same data."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class UserError(TidemillError):
    """The input is wrong: mend it and call again."""

    code = "wrong_input"
    exit_code = 2


_LISTED_BY: Final = {
    "app": "app list",
    "consumer": "consumer list",
    "job": "job list",
    "program": "app show APP",
    "schedule": "schedule list",
    "topic": "topic list",
}
"""The command that lists all things of a kind: the next step where no name is near."""


class NotFound(UserError):
    """No such thing; `nearest` is the closest existing name, where one is close."""

    code = "not_found"
    exit_code = 4

    def __init__(self, kind: str, name: str, nearest: str | None = None, *, hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest
        if not (hint or nearest) and kind in _LISTED_BY:
            hint = f"`tidemill {_LISTED_BY[kind]}` lists them all"
        meant = f"; did you mean {nearest!r}?" if nearest else ""
        advice = f"{'' if nearest else ';'} {hint}" if hint else ""
        super().__init__(f"no {kind} named {name!r}{meant}{advice}")


class Denied(TidemillError):
    """The caller is unknown, or may not do this: come with another token, or ask for the right."""

    code = "denied"


class Conflict(TidemillError):
    """Another transaction committed first. Nothing was changed; run again to work on the new state."""

    code = "conflict"
    exit_code = 3


class ChangedMeanwhile(Conflict):
    """A thing has another generation than the caller has seen. Nothing was changed."""

    code = "changed_meanwhile"

    def __init__(self, kind: str, name: str, generation: int, wanted: int) -> None:
        self.kind = kind
        self.name = name
        self.generation = generation
        self.wanted = wanted
        super().__init__(
            f"{kind} {name} has generation {generation}, not {wanted}: another caller changed it; look at it, and "
            "repeat the change with its generation"
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
        super().__init__(f"{subject} is fenced: {why}; stop the work: later writes of {subject} never become visible")


class Unavailable(TidemillError):
    """Something outside is away or in the way (catalog, storage, Java): try later, or follow the cure named."""

    code = "unavailable"
    exit_code = 5


class Internal(TidemillError):
    """A promise of Tidemill's own code is broken: please report it with the message."""

    code = "internal"
