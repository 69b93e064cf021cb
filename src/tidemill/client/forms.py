"""Forms: arguments of operations as JSON, and answers of the server as the records that the operations return."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from tidemill.durations import format_duration
from tidemill.errors import UserError
from tidemill.json_specs import has_tag, write_plain
from tidemill.mill.page import Page
from tidemill.secret_places import Secret
from tidemill.shapes.filters import Range

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_MOST_LEVELS: Final = 100


class TooDeep(UserError):
    """An argument with too many levels."""

    code = "too_deep"

    def __init__(self) -> None:
        super().__init__("the values of an argument are nested too deep", "use fewer levels")


def write_where(where: Any) -> list[str]:  # noqa: ANN401  # the forms of `tidemill.shapes.filters`
    """Return a filter of partitions as people write it: `["day>=2026-01-01", "hour=5"]`."""
    if not isinstance(where, Mapping):
        return list(where)
    texts = []
    for name, condition in where.items():
        match condition:
            case Range(lower, upper):
                texts += [f"{name}>={_text(lower)}"] * (lower is not None) + [f"{name}<{_text(upper)}"] * (
                    upper is not None
                )
            case list() | tuple() | AbstractSet():
                texts += sorted(f"{name}={_text(value)}" for value in condition)
            case _:
                texts.append(f"{name}={_text(condition)}")
    return texts


def write_key(key: object) -> object:
    """Return the key of a partition as people write it: `day=2026-01-01 name="a b"`."""
    if not isinstance(key, Mapping):
        return key
    return " ".join(f"{name}={json.dumps(value) if _is_quoted(value) else _text(value)}" for name, value in key.items())


def write_argument(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return an argument of an operation as JSON has it: durations, times and paths as text. `TooDeep`."""
    return _plain(value, _MOST_LEVELS)


def _plain(value: Any, levels: int) -> Any:  # noqa: ANN401  # JSON
    if not levels:
        raise TooDeep
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Secret):
        return value.place
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, levels - 1) for name, inner in value.items()}
    if isinstance(value, Collection):
        return [_plain(inner, levels - 1) for inner in value]
    if has_tag(type(value)) or is_dataclass(value):
        return write_plain(value)
    return format_duration(value) if isinstance(value, timedelta) else _text(value)


def read_answer(kind: object, document: Any) -> object:  # noqa: ANN401  # JSON
    """Return the result of an operation that returns a `kind`, from the JSON of its answer."""
    origin = get_origin(kind)
    if origin is Page:
        return Page(
            tuple(_adapter(get_args(kind)[0]).validate_python(one) for one in document["items"]), document["next"]
        )
    if origin in (list, Sequence):
        return [_adapter(get_args(kind)[0]).validate_python(one) for one in document["items"]]
    return _adapter(kind).validate_python(document)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401  # a type
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _is_quoted(value: object) -> bool:
    return isinstance(value, str) and (not value or any(one.isspace() or one == '"' for one in value))


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
