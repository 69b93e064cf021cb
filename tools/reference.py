"""Write `docs/reference.md` and the pages of `docs/reference/`, from the operations and routes.

`make reference` writes them; tests/test_operations.py and tests in tests/server/ refuse what is not current.
"""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import is_dataclass
from pathlib import Path
from typing import Final

from fastapi.routing import APIRoute

from tidemill.mill.access import Role
from tidemill.mill.metrics import HELP
from tidemill.mill.mill import open_mill
from tidemill.mill.operation import Right
from tidemill.mill.operations import NOUNS, OPERATIONS, Operation
from tidemill.mill.routes import list_routes
from tidemill.server.access import Door
from tidemill.server.application import make_application
from tidemill.server.guard import OPEN, is_for_runs, needs_of
from tidemill.server.metrics import COUNTED, OF_PROCESS
from tidemill.server.openapi import write_document

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
METRICS: Final = PAGE.parent / "reference" / "metrics.md"
OPENAPI: Final = PAGE.parent / "reference" / "openapi.json"
RIGHTS: Final = PAGE.parent / "reference" / "rights.md"

_HEAD: Final = """# Reference of operations

An operation is a method of `Mill`: `mill.schedules.suspend("shop.on_orders")`. Most operations have a command:
`tidemill schedule suspend shop.on_orders`. `tidemill schedule suspend --help` shows the options of the command.

A right is the least that a caller of an operation needs: read, operate, deploy or admin. Each right includes the rights
before it. The server checks the right of each request; a process that can open the catalog can use all operations. An
operation *of all namespaces* needs the right in all of them. A route is below `/v1`; its other arguments are the query
of a GET, and the JSON body of any other method.
[The records](#records) are the results. `tidemill.iterate` yields the items of all pages of a list.

`make reference` writes this page.
"""

_METRICS: Final = """# Metrics

`/metrics` of [the server](../server.md) has these metrics for Prometheus. `tidemill metrics` prints the gauges of the
catalog. Labels are names of what is declared, states, kinds or reasons. A count of what waits ends at 10,001. For
Grafana there is a dashboard, `examples/grafana/tidemill.json`. `make reference` writes this page.

Each server shows the whole catalog: take the maximum over servers. The metrics `tidemill_catalog_…` are those of one
process: take the sum.

| Metric | Type | Meaning |
|---|---|---|"""


_RIGHTS: Final = """# Rights

Each route of [the server](../server.md) needs one right, and each role has the rights of the roles before it. A route
*of all namespaces* needs a token without a namespace. On any other route, a caller of one namespace sees and changes
the things of its namespace alone. A route that stands in no table is refused. The token of a run has no role: the last
table lists all that it reaches. `make reference` writes this page.

| Role | Right |
|---|---|"""


_RUNS: Final = """## The token of a run

The token of a run reaches the run alone, its transaction, the inputs and outputs of its program, and the consumers of
its program there. Each name in the path must be of such a thing. Any other route, and any other name, is refused with
403. `GET /v1/runs/{run_id}` has the messages that the run got.

| Route |
|---|"""


def write_reference() -> str:
    """Return the page."""
    parts = [_HEAD]
    records: dict[str, type] = {}
    for noun in ("", *(one.noun for one in NOUNS)):
        parts.append(f"## {noun or 'project'}\n")
        for operation in OPERATIONS:
            if operation.noun == noun:
                parts.append(_write_operation(operation))
                records |= {one.__name__: one for one in _records_in(operation.returns)}
    parts.append("## Records\n")
    parts += [_write_record(record) for _, record in sorted(records.items())]
    return "\n".join(parts)


def _write_operation(operation: Operation) -> str:
    arguments = list(map(_show_argument, list(inspect.signature(operation.method).parameters.values())[1:]))
    command = f"`tidemill {operation.command}`" if operation.command else f"no command: {operation.mark.no_command}"
    lines = [
        f"### {operation.action}\n",
        f"{operation.summary}\n",
        f"- command: {command}",
        f"- right: {operation.right}{', of all namespaces' if operation.mark.whole else ''}",
        f"- route: {_show_route(operation)}",
        f"- returns: `{_show(operation.returns)}`",
        *(f"- argument: `{one}`" for one in arguments),
    ]
    return "\n".join([*lines, ""])


def _show_route(operation: Operation) -> str:
    return next(
        (f"`{one.method} {one.path}`" for one in list_routes() if one.operation == operation),
        f"none: {operation.mark.no_route}",
    )


def _show_argument(argument: inspect.Parameter) -> str:
    stars = "**" if argument.kind is inspect.Parameter.VAR_KEYWORD else ""
    default = "" if argument.default is inspect.Parameter.empty else f" = {_show_default(argument.default)}"
    return f"{stars}{argument.name}: {argument.annotation}{default}"


def _show_default(default: object) -> str:
    return f"{type(default).__name__}()" if is_dataclass(default) else repr(default)


def _write_record(record: type) -> str:
    hints = typing.get_type_hints(record)
    summary = (inspect.getdoc(record) or "").partition("\n")[0]
    shown = [f"- `{name}: {_show(hints[name])}`" for name in record.__dataclass_fields__]
    return "\n".join([f"### {record.__name__}\n", f"{summary}\n", *shown, ""])


def _records_in(hint: object) -> list[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        inner = [one for inside in typing.get_type_hints(hint).values() for one in _records_in(inside)]
        return [hint, *inner] if hint.__module__.startswith("tidemill.") and hint.__name__ != "Page" else inner
    return [one for inside in typing.get_args(hint) for one in _records_in(inside)]


def _show(hint: object) -> str:
    """Return a type as annotations write it, without modules."""
    if hint is types.NoneType:
        return "None"
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in {types.UnionType, typing.Union}:
        return " | ".join(map(_show, arguments))
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{', '.join(map(_show, arguments))}]" if arguments else "..." if hint is ... else name


def write_openapi() -> str:
    """Return the description of the REST routes: it is the same for each project."""
    with open_mill("sqlite:///reference?vfs=memdb") as mill:
        door = Door(mill, hosts=frozenset(), secure=False)
        return write_document(make_application(door, documented=True)) + "\n"


def write_rights() -> str:
    """Return the page of rights: each route of the application with the right that its endpoint declares."""
    with open_mill("sqlite:///reference?vfs=memdb") as mill:
        app = make_application(Door(mill, hosts=frozenset(), secure=False))
    lines = [_RIGHTS, *(f"| `{role}` | {role.right} |" for role in Role), ""]
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    for needed in (OPEN, *Right):
        title = "Without a right" if needed == OPEN else f"Right {needed}"
        lines += [f"## {title}\n", "| Route | Of all namespaces |", "|---|---|"]
        for route in routes:
            right, whole = needs_of(route.endpoint)
            if right == needed:
                lines.append(f"| `{_method_of(route)} {route.path}` | {'yes' if whole else ''} |")
        lines.append("")
    lines += [_RUNS, *(f"| `{_method_of(one)} {one.path}` |" for one in routes if is_for_runs(one.endpoint)), ""]
    return "\n".join(lines)


def _method_of(route: APIRoute) -> str:
    return next(iter(sorted(route.methods or ())))


def write_metrics() -> str:
    """Return the page of metrics."""
    rows = [f"| `{metric}` | gauge | {text} |" for metric, text in HELP.items()]
    for metric, (kind, text) in (COUNTED | OF_PROCESS).items():
        rows.append(f"| `{metric}{'_total' if kind == 'counter' else ''}` | {kind} | {text} |")
    return "\n".join([_METRICS, *rows, ""])


if __name__ == "__main__":
    METRICS.write_text(write_metrics(), encoding="utf-8")
    PAGE.write_text(write_reference(), encoding="utf-8")
    OPENAPI.parent.mkdir(exist_ok=True)
    OPENAPI.write_text(write_openapi(), encoding="utf-8")
    RIGHTS.write_text(write_rights(), encoding="utf-8")
