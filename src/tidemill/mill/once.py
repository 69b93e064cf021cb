"""Once: a change that a caller asked for with a key is made once, and each repetition gets the same answer.

The answer is kept by the transaction of the change (`tidemill.mill.keeping`): there is no moment at which one of them
is there alone. A crash before that transaction leaves a row without an answer; the next try takes it over, which fences
the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from tidemill.catalog.db import Catalog, Db, write_effects
from tidemill.catalog.named import load_sql
from tidemill.errors import TidemillError, UserError
from tidemill.mill.keeping import SQL as KEEPING
from tidemill.mill.keeping import KeyedRequest, RequestTakenOver, RequestTry
from tidemill.mill.mill import Mill
from tidemill.mill.plain import to_answer

if TYPE_CHECKING:
    from tidemill.mill.once_sql import Sql

SQL: Sql = load_sql(__file__)

T = TypeVar("T")

_KEEP: Final = timedelta(hours=24)


class KeyReused(UserError):
    """A key that the caller gave to another request within a day."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the key {key!r} was used for another request", "take a new key for each change", before=": ")


class _KnownRequest(NamedTuple):
    digest: str
    attempt: int
    part: str | None
    answer: str | None


class _KeepingCatalog:
    """A catalog whose first write keeps its result as the answer of a request, in the same transaction."""

    def __init__(self, catalog: Catalog, attempt: RequestTry) -> None:
        self._catalog = catalog
        self._attempt = attempt

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of the catalog
        return getattr(self._catalog, name)

    def write(self, block: Callable[[Db], T], *, urgent: bool = False) -> T:
        """Write as the catalog does, and keep the result."""

        def kept(db: Db) -> T:
            result = block(db)
            write_effects(db, [self._attempt.keep_answer(result)])
            return result

        return self._catalog.write(kept, urgent=urgent)


def carry_out(
    mill: Mill, request: KeyedRequest, change: Callable[[Mill], object], *, in_block: bool
) -> dict[str, object]:
    """Make a change once, and return its answer as JSON knows it; the answer of the first time if it was made.

    `in_block` says that the change is one transaction whose result is the answer. Any other change keeps its answer
    itself, or its repetition does no harm. `KeyReused`, `BadRequestKey`; `RequestTakenOver` if a later try of the same
    request took over.
    """
    catalog = mill.project.catalog
    begun = catalog.write(lambda db: _begin(db, request))
    if isinstance(begun, str):
        return _read(begun)
    world = mill.project.world
    world.mark("once.begun")
    acting = Mill(replace(mill.project, attempt=begun))
    if in_block:
        keeping = cast("Catalog", _KeepingCatalog(catalog, begun))
        acting = Mill(replace(mill.project, catalog=keeping, beside=catalog))
    try:
        answer = to_answer(change(acting))
    except TidemillError:
        # Nothing was changed: the same request may be asked again, when its cause is mended.
        catalog.write(lambda db: db.run(SQL.forget_request, **begun.place))
        raise
    world.mark("once.changed")
    return answer if in_block else _read(catalog.write(lambda db: _keep(db, begun, json.dumps(answer))))


def _read(answer: str) -> dict[str, object]:
    kept: dict[str, object] = json.loads(answer)
    return kept


def _begin(db: Db, request: KeyedRequest) -> RequestTry | str:
    """Return this try, or the answer that is there."""
    db.tick()  # tries of one request come one after the other
    db.run(SQL.forget_old_requests, keep=_KEEP)
    while (known := db.record(SQL.find_request, _KnownRequest, **request.place)) is not None:
        if known.digest != request.digest:
            raise KeyReused(request.key)
        if known.answer is not None:
            return known.answer
        # On PostgreSQL the try before may commit its answer between the look and this statement.
        if db.run(SQL.take_over, **request.place, attempt=known.attempt):
            return RequestTry(request, known.attempt + 1, None if known.part is None else json.loads(known.part))
    db.run(SQL.insert_request, **request.place, digest=request.digest)
    return RequestTry(request, 1)


def _keep(db: Db, attempt: RequestTry, answer: str) -> str:
    """Keep an answer, unless the transaction of the change has done so; return the answer that is kept."""
    if db.run(KEEPING.keep_answer, **attempt.place, answer=answer):
        return answer
    known = db.record(SQL.find_request, _KnownRequest, **attempt.request.place)
    if known is None or known.attempt != attempt.number or known.answer is None:
        raise RequestTakenOver(attempt.request.key)
    return known.answer
