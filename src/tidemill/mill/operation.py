"""Operations as data: each method of a noun declares the right that it needs, and its command if that is another name.

`tidemill.mill.operations` lists all operations. Command line, server and pages read them there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

Method = TypeVar("Method", bound=Callable[..., object])

_MARK: Final = "__operation__"


class Right(StrEnum):
    """Rights of a caller. Each right includes those above it."""

    READ = "read"
    OPERATE = "operate"
    """Start, kill, retry, suspend, resume, reset."""
    DEPLOY = "deploy"
    """Change apps, schedules and data sets, publish, consume."""
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Mark:
    """The declaration of an operation beside its method."""

    right: Right
    command: str | None
    no_command: str
    no_audit: str
    no_route: str
    no_key: str
    whole: bool
    in_block: bool
    repeats: str
    document: str
    own: bool
    parts: str


def operation(  # noqa: PLR0913  # options by keyword, each with a default
    right: Right,
    *,
    command: str | None = None,
    no_command: str = "",
    no_audit: str = "",
    no_route: str = "",
    no_key: str = "",
    whole: bool = False,
    in_block: bool = False,
    repeats: str = "",
    document: str = "",
    own: bool = False,
    parts: str = "",
) -> Callable[[Method], Method]:
    """Declare a method of a noun as an operation that needs `right`.

    `command` is its command where the words differ from noun and verb (`"inbox claim"`), and `no_command` the reason
    why it has none. An operation that needs more than `READ` writes an audit row, or `no_audit` is the reason why not.
    `no_route` is the reason why the server does not offer it, `no_key` the reason why it keeps no answer for a repeated
    request. A `whole` operation is about all namespaces at once: a
    caller needs the right in all of them. `in_block` says that it is one transaction whose result is its own result, so
    that a request with a key is answered by that transaction (`tidemill.mill.once`). `repeats` is the reason why a
    repetition after a crash does no harm, for an operation whose transaction keeps no answer. `document` is the
    parameter that is the body of a request as a whole, for a document of another system. `own` lets a run's own token
    call it, for the things of the run alone: its path names them. `parts` are what a thing consists of, such as
    `messages`: the operation reads or adds these, and its route names them in the place of its verb.
    """

    def mark(method: Method) -> Method:
        vars(method)[_MARK] = Mark(
            right, command, no_command, no_audit, no_route, no_key, whole, in_block, repeats, document, own, parts
        )
        return method

    return mark


def mark_of(method: object) -> Mark | None:
    """Return what `operation` declared for a method; None for any other attribute."""
    found = getattr(method, _MARK, None)
    return found if isinstance(found, Mark) else None
