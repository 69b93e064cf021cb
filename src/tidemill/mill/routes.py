"""Routes of operations: the method and path of each, by its noun, verb and parameters.

`mill.schedules.suspend("shop.on_orders")` is `tidemill schedule suspend shop.on_orders` is
`POST /v1/schedules/shop.on_orders:suspend`. No route is written by hand, so that the words cannot differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import Parameter
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from tidemill.mill.operation import Right
from tidemill.mill.operations import OPERATIONS, Operation

PREFIX: Final = "/v1"
CONDITION: Final = "if_generation"
"""The parameter of a change that is refused if another caller changed the thing."""

_IDENTITIES: Final = frozenset(
    {
        "alert_id",
        "backfill_id",
        "delivery_id",
        "name",
        "job_id",
        "node_id",
        "run_id",
        "write_pointer",
        "topic",
        "dataset",
        "program",
        "claim",
    }
)
"""Parameters that say which thing is meant: they stand in the path."""
_TEXTS: Final = (str, int, bool)
_CREATES: Final = frozenset({"begin", "create", "start"})
_METHODS: Final = {"update": "PATCH", "delete": "DELETE", "deploy": "PUT"}


@dataclass(frozen=True, slots=True)
class Route:
    """The route of an operation. `in_path` are the parameters in its path, `inputs` those in its query or body."""

    operation: Operation
    method: str
    path: str
    in_path: Mapping[str, object]
    inputs: Mapping[str, Parameter]
    document: Parameter | None = None
    """The parameter that is the whole body."""
    conditional: bool = False
    """True if the wanted generation of the thing stands in the header `If-Match`."""

    @property
    def has_body(self) -> bool:
        """True if the inputs stand in a body; else they stand in the query."""
        return self.method != "GET"


def list_routes() -> Iterator[Route]:
    """Yield the route of each operation that the server offers."""
    for one in OPERATIONS:
        if not one.mark.no_route:
            yield route_of(one)


@cache
def route_of(operation: Operation) -> Route:
    """Return the route of an operation."""
    parameters = dict(operation.parameters)
    in_path: dict[str, object] = {}
    creates = operation.verb in _CREATES
    for name, one in operation.parameters.items():
        if creates or name not in _IDENTITIES or one.kind is Parameter.KEYWORD_ONLY:
            break
        if one.default is not Parameter.empty:
            break
        in_path[name] = wire_type(one.annotation)
        del parameters[name]
    document = parameters.pop(operation.mark.document, None)
    conditional = parameters.pop(CONDITION, None) is not None
    method, path = _place(operation, in_path)
    return Route(operation, method, path, in_path, parameters, document, conditional)


def _place(operation: Operation, in_path: Collection[str]) -> tuple[str, str]:
    """Return method and path of the route of an operation, with these parameters in the path."""
    verb = operation.verb.replace("_", "-")
    reads = operation.right is Right.READ
    things = f"{PREFIX}/{operation.attribute}"
    thing = "/".join((things, *(f"{{{name}}}" for name in in_path)))
    match verb:
        case _ if not operation.noun:
            method, path = ("GET" if reads else "POST"), f"{PREFIX}/{verb}"
        case "list" | "show" | "log":
            method, path = "GET", thing
        case _ if verb in _CREATES:
            method, path = "POST", things
        case "update" | "delete" | "deploy":
            method, path = _METHODS[verb], thing
        case _ if operation.mark.parts:
            method, path = ("GET" if reads else "POST"), f"{thing}/{operation.mark.parts}"
        case _ if operation.mark.document:
            method, path = "POST", f"{thing}/{verb}"
        case _ if reads:
            method, path = "GET", f"{thing}/{verb}" if in_path else f"{things}:{verb}"
        case _:
            method, path = "POST", f"{thing}:{verb}"
    return method, path


def wire_type(kind: Any) -> Any:  # noqa: ANN401  # a type
    """Return the type of a parameter as JSON and queries know it: of a union, the parts that JSON has.

    Where Python takes text or a value (`str | datetime`), the server takes the text.
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        parts = [wire_type(one) for one in get_args(kind) if _is_plain(one)]
        return Union[tuple(parts)]  # noqa: UP007  # the parts are known at run time only
    if origin in (Sequence, Collection, list):
        return list[wire_type(get_args(kind)[0])]  # type: ignore[misc]  # known at run time only
    if origin is Mapping:
        return dict[str, wire_type(get_args(kind)[1])]  # type: ignore[misc]
    return Any if kind is object else kind


def _is_plain(kind: Any) -> bool:  # noqa: ANN401  # a type
    if get_origin(kind) in (Sequence, Collection):
        (each,) = get_args(kind)
        parts = get_args(each) if get_origin(each) in (Union, UnionType) else (each,)
        return object in parts or any(map(_is_plain, parts))
    if get_origin(kind) is Mapping:
        value = get_args(kind)[1]
        return value is object or _is_plain(value)
    return kind is NoneType or kind in _TEXTS
