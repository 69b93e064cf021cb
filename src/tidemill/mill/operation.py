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


def operation(
    right: Right, *, command: str | None = None, no_command: str = "", no_audit: str = ""
) -> Callable[[Method], Method]:
    """Declare a method of a noun as an operation that needs `right`.

    `command` is its command where the words differ from noun and verb (`"inbox claim"`), and `no_command` the reason
    why it has none. An operation that needs more than `READ` writes an audit row, or `no_audit` is the reason why not.
    """

    def mark(method: Method) -> Method:
        vars(method)[_MARK] = Mark(right, command, no_command, no_audit)
        return method

    return mark


def mark_of(method: object) -> Mark | None:
    """Return what `operation` declared for a method; None for any other attribute."""
    found = getattr(method, _MARK, None)
    return found if isinstance(found, Mark) else None
