"""Once: a change that a caller asked for with a key is made once, and each repetition gets the same answer.

The answer is kept by the transaction of the change: there is no moment at which one of them is there alone. A crash
before that transaction leaves a row without an answer; the next try takes it over, which fences the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.errors import Fenced, TidemillError, UserError
from tidemill.mill.mill import Mill
from tidemill.mill.plain import to_answer

if TYPE_CHECKING:
    from tidemill.mill.once_sql import Sql

SQL: Sql = load_sql(__file__)

T = TypeVar("T")

_KEEP: Final = timedelta(hours=24)
_MOST_LETTERS: Final = 200


class BadRequestKey(UserError):
    """A key of a request that is empty, too long, or not printable."""

    code = "bad_request_key"

    def __init__(self, key: str) -> None:
        self.key = key[:_MOST_LETTERS]
        super().__init__(
            f"idempotency key {self.key!r} is refused: use 1 to {_MOST_LETTERS} printable ASCII characters"
        )


class KeyReused(UserError):
    """A key that the caller gave to another request within a day."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the key {key!r} was used for another request: take a new key for each change")


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


class _KnownRequest(NamedTuple):
    digest: str
    attempt: int
    answer: str | None


class _KeepingCatalog:
    """A catalog whose first write keeps its result as the answer of a request, in the same transaction."""

    def __init__(self, catalog: Catalog, request: KeyedRequest, attempt: int) -> None:
        self._catalog = catalog
        self._request = request
        self._attempt = attempt

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of the catalog
        return getattr(self._catalog, name)

    def write(self, block: Callable[[Db], T], *, urgent: bool = False) -> T:
        """Write as the catalog does, and keep the result."""

        def kept(db: Db) -> T:
            result = block(db)
            _keep(db, self._request, self._attempt, json.dumps(to_answer(result)))
            return result

        return self._catalog.write(kept, urgent=urgent)


def carry_out(mill: Mill, request: KeyedRequest, change: Callable[[Mill], object], *, in_block: bool) -> object:
    """Make a change once, and return its answer as JSON knows it; the answer of the first time if it was made.

    `in_block` says that the change is one transaction whose result is the answer. The repetition of any other change
    after a crash does no harm. `KeyReused`, `BadRequestKey`; `Fenced` if a later try of the same request took over.
    """
    catalog = mill.project.catalog
    begun = catalog.write(lambda db: _begin(db, request))
    if isinstance(begun, str):
        return json.loads(begun)
    world = mill.project.world
    world.mark("once.begun")
    acting = mill
    if in_block:
        keeping = cast("Catalog", _KeepingCatalog(catalog, request, begun))
        acting = Mill(replace(mill.project, catalog=keeping, beside=catalog))
    try:
        answer = to_answer(change(acting))
    except TidemillError:
        # Nothing was changed: the same request may be asked again, when its cause is mended.
        catalog.write(lambda db: db.run(SQL.forget_request, **request.place, attempt=begun))
        raise
    world.mark("once.changed")
    if not in_block:
        catalog.write(lambda db: _keep(db, request, begun, json.dumps(answer)))
    return answer


def _begin(db: Db, request: KeyedRequest) -> int | str:
    """Return the number of this try, or the answer that is there."""
    db.tick()  # tries of one request come one after the other
    db.run(SQL.forget_old_requests, keep=_KEEP)
    while (known := db.record(SQL.find_request, _KnownRequest, **request.place)) is not None:
        if known.digest != request.digest:
            raise KeyReused(request.key)
        if known.answer is not None:
            return known.answer
        # On PostgreSQL the try before may commit its answer between the look and this statement.
        if db.run(SQL.take_over, **request.place, attempt=known.attempt):
            return known.attempt + 1
    db.run(SQL.insert_request, **request.place, digest=request.digest)
    return 1


def _keep(db: Db, request: KeyedRequest, attempt: int, answer: str) -> None:
    if db.run(SQL.keep_answer, **request.place, attempt=attempt, answer=answer) == 0:
        raise Fenced(f"request {request.key}", "a later try of the same request took over")
