"""Examples of requests and answers: the values of the description of routes, and of its page.

An example of an answer is made from the type of the result, field by field. So no example goes out of date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from inspect import Parameter
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from tidemill.mill.page import Page
from tidemill.mill.routes import Route

TIME: Final = "2026-01-31T06:00:00.000Z"
_RUN: Final = "run_01KXAMPLE0000000000000000"
_JOB: Final = "job_01KXAMPLE0000000000000000"
_DECLARATION: Final = {
    "name": "shop",
    "datasets": [{"type": "fileset", "name": "orders", "storing": {"keys": {"day": "date"}}}],
    "programs": [{"name": "load", "kind": "python", "writes": ["default.orders"]}],
}
_NAMES: Final[Mapping[str, str]] = {
    "alert": "orders_late",
    "app": "shop",
    "consumer": "default.shop.sift",
    "dataset": "orders",
    "hook": "door",
    "inbox": "raw",
    "schedule": "shop.on_orders",
    "snapshot": "users",
    "subscriber": "pager",
    "token": "ci",
    "watermark": "clicks",
}
"""The names of things, by noun."""
_BY_OPERATION: Final[Mapping[tuple[str, str], object]] = {
    ("app.rollback", "to"): 3,
    ("alert.create", "to"): [],
    ("alert.create", "name"): "load_failed",
    ("consumer.requeue", "partitions"): ["day=2026-01-31"],
    ("consumer.reset", "to"): "beginning",
    ("consumer.reset", "where"): ["day>=2026-01-31"],
    ("watermark.reset", "to"): "2026-01-31 00:00",
    ("watermark.rewind", "to"): "2026-01-31 00:00",
    ("watermark.advance", "to"): "2026-01-31 00:00",
    ("catalog.audit", "names"): ["orders"],
    ("catalog.fsck", "names"): ["orders"],
    ("schedule.create", "options"): {"priority": 3},
    ("schedule.update", "options"): {"priority": 3},
    ("schedule.list", "trigger"): "cron",
    ("schedule.list", "status"): "suspended",
    ("schedule.next", "name"): "shop.nightly",
    ("inbox.update_file_status", "status"): "SUCCESS",
    ("run.start", "partitions"): {"orders": [{"day": "2026-01-31"}]},
    ("run.start", "files"): {"raw": ["a.csv"]},
    ("run.list", "state"): "FAILED",
    ("job.list", "state"): "pending_constraint",
    ("inbox.files", "state"): "ERROR",
    ("search", "text"): "ord",
    ("sql", "text"): "DESCRIBE orders",
    ("watermark.show", "name"): "clicks",
}
_VALUES: Final[Mapping[str, object]] = {
    "accept_empty": False,
    "actor": "ann@desk",
    "add": {"source": "till"},
    "after": "",
    "alert": "alert_01KXAMPLE0000000000000000",
    "alert_id": "alert_01KXAMPLE0000000000000000",
    "app": "shop",
    "arguments": {"level": 2},
    "around": "orders",
    "as_of": "2026-01-31T06:00:00Z",
    "below": "",
    "bundle": "UEsDBBQAAAAIAAAAIQAAAAAA",
    "claim": _RUN,
    "dataset": "orders",
    "declaration": _DECLARATION,
    "declarations": [_DECLARATION],
    "declared": ["default.shop"],
    "delivery": "delivery-7",
    "delivery_id": "delivery_01KXAMPLE0000000000000000",
    "depth": 3,
    "description": "call the till",
    "diff": True,
    "direction": "both",
    "dry_run": True,
    "duration": "2h",
    "entries": [
        {"name": "shop.often", "program": "shop.load", "trigger": {"type": "every", "duration": "5m"}},
    ],
    "event_type": "partitions",
    "expected": "41-0",
    "error": "line 17: 5 columns instead of 6",
    "expires": "90d",
    "file": "app.py",
    "hours": 24,
    "files": ["a.csv"],
    "job_id": _JOB,
    "backfill_id": "backfill_01KXAMPLE00000000000000000",
    "node_id": "node_01KXAMPLE00000000000000000",
    "keep": "30d",
    "key": "day=2026-01-31",
    "key_prefix": "partition:default.",
    "behind": "2h",
    "kind": "dataset",
    "lease": "5m",
    "limit": 20,
    "logical_time": "2026-01-31T06:00:00Z",
    "messages": [{"topic": "own", "payload": {"door": 1}, "key": "door"}],
    "mode": "hold",
    "names": ["shop.on_orders", "shop.nightly"],
    "namespace": "default",
    "prefix": "own",
    "new": 7,
    "old": 3,
    "older_than": "90d",
    "keep_state": False,
    "by": "partitions",
    "select": "unfinished",
    "runs": [_RUN],
    "from_version": 3,
    "to_version": 7,
    "concurrency": 2,
    "priority": -1,
    "quiet": False,
    "kill": False,
    "items": 31,
    "open_only": True,
    "owner": "airflow",
    "parent": _RUN,
    "partition": "day=2026-01-31",
    "partitions": [
        {
            "dataset": "orders",
            "key": "day=2026-01-31",
            "op": "append",
            "files": [{"name": "part-0.parquet", "bytes": 2048, "rows": 96}],
        }
    ],
    "payload": {"door": 1},
    "position": "42-0",
    "program": "shop.load",
    "reconcile": False,
    "remove": ["checked"],
    "repeat": "2h",
    "resolved": False,
    "role": "operator",
    "rule": {"type": "run_failed", "program": "default.shop.load"},
    "run_id": _RUN,
    "sandbox": True,
    "scan": True,
    "schedule": "shop.on_orders",
    "set": {"checked": "yes"},
    "since": "2026-01-31T00:00:00Z",
    "start": "2026-01-31T00:00:00Z",
    "state": "ERROR",
    "subject": "default.shop",
    "sums": {"app.py": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
    "suspended": False,
    "thing": "orders",
    "time_from": "2026-01-30T00:00:00Z",
    "time_until": "2026-01-31T00:00:00Z",
    "to": 3,
    "topic": "own",
    "trigger": {"type": "new_partitions", "fileset": "default.orders", "n": 2},
    "until": "2026-02-01T00:00:00Z",
    "update_schedules": True,
    "version": 3,
    "versions": [3],
    "where": ["day=2026-01-31"],
    "within": "2026-01",
    "write_pointer": 7,
    "writes": ["orders"],
    "reads": [{"dataset": "orders", "consumer": "flink", "limit": 100}],
}
"""Values of parameters, and of fields of records, by name."""
_SHOWN: Final = frozenset({"arguments", "duration", "error", "limit", "mode", "options", "update_schedules"})
"""Parameters that an example has though a caller may leave them out."""
_ENDLESS: Final = frozenset({"children", "inner"})
"""Fields whose values are records of the same kind."""


def example_of(route: Route, name: str) -> object:
    """Return the example value of a parameter; `KeyError` for one without."""
    operation = route.operation
    if (operation.action, name) in _BY_OPERATION:
        return _BY_OPERATION[operation.action, name]
    if name == "name" and operation.noun in _NAMES:
        return _NAMES[operation.noun]
    return _VALUES[name]


def example_path(route: Route) -> str:
    """Return the path of a route with the names of an example."""
    path = route.path
    for name in route.in_path:
        path = path.replace(f"{{{name}}}", str(example_of(route, name)))
    return path


def example_inputs(route: Route) -> dict[str, object]:
    """Return the inputs of an example, of the query or the body: the required ones, and some others."""
    found: dict[str, object] = {}
    for name, one in route.inputs.items():
        if one.kind is Parameter.VAR_KEYWORD:
            options = example_of(route, name)
            found |= options if isinstance(options, dict) else {}
        elif one.default is Parameter.empty or name in _SHOWN:
            found[name] = example_of(route, name)
    return found


def example_answer(route: Route) -> dict[str, Any]:
    """Return an example of the answer of a route, as JSON."""
    kind = route.operation.returns
    names = dict(_VALUES) | {"name": _NAMES.get(route.operation.noun, "orders")}
    if get_origin(kind) in (Page, list, Sequence):
        return {"items": [_value(get_args(kind)[0], "", names)], "next": None}
    found: dict[str, Any] = _value(kind, "", names)
    return found


def _value(kind: Any, name: str, names: Mapping[str, object]) -> Any:  # noqa: ANN401  # a type, JSON
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _value(next(one for one in arguments if one is not NoneType), name, names)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return {one.name: _value(hints[one.name], one.name, names) for one in fields(kind)}
    if origin in (Mapping, dict):
        return {}
    if origin is tuple and Ellipsis not in arguments:
        return [_value(one, name, names) for one in arguments]
    if origin in (tuple, list, Sequence, frozenset, AbstractSet):
        inner = arguments[0]
        return [] if name in _ENDLESS else [_value(inner, name, names)]
    return _scalar(kind, name, names.get(name))


def _scalar(kind: Any, name: str, known: object) -> Any:  # noqa: ANN401, PLR0911  # a type, JSON
    match kind:
        case type() if issubclass(kind, StrEnum):
            return next(iter(kind)).value
        case type() if issubclass(kind, bool):
            return known if isinstance(known, bool) else name == "changed"
        case type() if issubclass(kind, datetime):
            return TIME
        case type() if issubclass(kind, date):
            return TIME[:10]
        case type() if issubclass(kind, timedelta):
            return str(timedelta(hours=1))
        case type() if issubclass(kind, int | float):
            return known if isinstance(known, int | float) and not isinstance(known, bool) else 1
    text = getattr(kind, "__supertype__", kind)
    if text is int:
        return known if isinstance(known, int) else 7
    if text is str:
        return known if isinstance(known, str) else f"… {name.replace('_', ' ')}".strip()
    return known if known is not None and _is_json(known) else None


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return value is not MISSING
