"""Keeping: the transaction of a change keeps the answer of its request, when the request has a key.

A change whose answer needs more than its transaction keeps a part, such as the id of a run that it made. A repetition
of the request goes on from the part.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemill.catalog.db import refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, load_sql
from tidemill.errors import Fenced, UserError
from tidemill.mill.plain import to_answer

if TYPE_CHECKING:
    from tidemill.mill.keeping_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST_LETTERS: Final = 200


class BadRequestKey(UserError):
    """A key of a request that is empty, too long, or not printable."""

    code = "bad_request_key"

    def __init__(self, key: str) -> None:
        self.key = key[:_MOST_LETTERS]
        super().__init__(
            f"idempotency key {self.key!r} is refused",
            f"use 1 to {_MOST_LETTERS} printable ASCII characters",
            before=": ",
        )


@refusal
class RequestTakenOver(Fenced):
    """A try of a request with a key, after which a later try of the same request has begun."""

    code = "request_taken_over"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"request {key}", "a later try of the same request took over")


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with a key of its caller; `digest` tells it from any other request."""

    caller: str
    key: str
    digest: str

    def __post_init__(self) -> None:
        """Refuse a key that is no name."""
        if not 0 < len(self.key) <= _MOST_LETTERS or not (self.key.isascii() and self.key.isprintable()):
            raise BadRequestKey(self.key)

    @property
    def place(self) -> dict[str, Any]:
        """The parameters that find its row."""
        return {"caller": self.caller, "request_key": self.key}


@dataclass(frozen=True, slots=True)
class RequestTry:
    """A try of a request with a key. `part` is what an earlier try has kept, as JSON knows it; None for nothing."""

    request: KeyedRequest
    number: int
    part: Any = None

    def keep_answer(self, result: object) -> Effect:
        """Return the effect that keeps the result of the operation as the answer."""
        return _Keep(self, "answer", json.dumps(to_answer(result)))

    def keep_part(self, part: object) -> Effect:
        """Return the effect that keeps a part."""
        return _Keep(self, "part", json.dumps(part))

    @property
    def place(self) -> dict[str, Any]:
        """The parameters that find its row, unless a later try has taken over."""
        return {**self.request.place, "attempt": self.number}


@dataclass(frozen=True, slots=True)
class _Keep(Effect):
    """A column of the row of a request. `RequestTakenOver`, and no change, if a later try of the request has begun."""

    phase = Phase.ANNOUNCE

    of: RequestTry
    column: str
    text: str

    def guards(self) -> Sequence[Call]:
        return (SQL.refuse_if_taken_over(**self.of.place),)

    def writes(self) -> Sequence[Call]:
        if self.column == "answer":
            return (SQL.keep_answer(**self.of.place, answer=self.text),)
        return (SQL.keep_part(**self.of.place, part=self.text),)
