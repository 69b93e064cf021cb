"""`connect`: the operations of `Mill` on a server. They are made from the list of operations, none by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast, get_origin
from urllib.parse import quote

from tidemill.client.deploying import Deploying
from tidemill.client.forms import read_answer, write_argument, write_key, write_where
from tidemill.client.line import Line, parse_line
from tidemill.errors import UserError
from tidemill.mill.mill import Mill
from tidemill.mill.operations import NOUNS, OPERATIONS, Operation
from tidemill.mill.page import MOST, Page
from tidemill.mill.routes import CONDITION, route_of
from tidemill.run.records.logs import LogLine
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.mill.project import Project

_WRITERS: Mapping[str, Callable[[Any], object]] = {
    "claim": lambda claim: getattr(claim, "claim_id", claim),
    "key": write_key,
    "where": write_where,
}
"""Arguments whose text depends on their meaning."""


class NotOverHttp(UserError):
    """An operation that a server does not offer."""

    code = "not_over_http"

    def __init__(self, operation: str, why: str) -> None:
        self.operation = operation
        self.why = why
        super().__init__(f"{operation} is not offered by a server: it {why}", "call it beside the catalog")


def connect(url: str, *, token: str = "", project: Path | str = ".", world: World | None = None) -> Mill:
    """Return the operations of a project, carried out by the server at `url` for the caller whose secret `token` is.

    The nouns, methods, records and errors are those of `tm.open`. Reads are repeated when the server is away for a
    moment; changes too, as each has a key by which the server makes it once. `deploy` and `plan` read the app file in
    the folder `project` of this machine. Operations that work on the catalog itself raise `NotOverHttp`. `BadServer`,
    `ServerUnavailable`, `Unauthorized`.
    """
    world = world or World()
    return _RemoteMill(Line(url, token, world), world, Path(project))


class _RemoteMill(Mill):
    """A `Mill` whose methods, and those of its nouns, are requests."""

    def __init__(self, line: Line, world: World, folder: Path) -> None:
        self._line = line
        by_noun: dict[str, list[Operation]] = {}
        for one in OPERATIONS:
            by_noun.setdefault(one.noun, []).append(one)
        vars(self).update(_methods(line, by_noun.pop("")))
        for noun in NOUNS:
            remote = noun.__new__(noun)
            vars(remote).update(_methods(line, by_noun[noun.noun]))
            vars(self)[by_noun[noun.noun][0].attribute] = remote
        vars(self.runs)["logs"] = partial(_logs, line)
        deploying = Deploying(self.apps, world, folder)
        vars(self).update(deploy=deploying.deploy, plan=deploying.plan)

    @property
    def project(self) -> Project:  # type: ignore[override]  # an attribute of a Mill beside its catalog
        """The project itself is beside the server."""
        raise NotOverHttp("the project", "is a catalog with a folder")

    def close(self) -> None:
        """Close the connections to the server."""
        self._line.close()

    def acting_as(self, actor: str, access: object = None) -> NoReturn:
        """The token says on whose behalf a client acts."""
        del actor, access
        raise NotOverHttp("acting_as", "names another caller than the token does")

    def transaction(self, writes: object = None) -> NoReturn:
        """A transaction of this process writes beside the catalog."""
        del writes
        raise NotOverHttp("transaction", "writes beside the catalog")


def _methods(line: Line, operations: list[Operation]) -> dict[str, Callable[..., object]]:
    return {one.verb: partial(_call, line, one) for one in operations}


def _call(line: Line, operation: Operation, *given: object, **named: object) -> object:
    if operation.mark.no_route:
        raise NotOverHttp(operation.action, operation.mark.no_route)
    route = route_of(operation)
    arguments = signature(operation.method).bind(None, *given, **named).arguments
    wanted: dict[str, object] = {}
    for name, one in operation.parameters.items():
        if name not in arguments:
            continue
        if one.kind is Parameter.VAR_KEYWORD:
            wanted |= {key: write_argument(value) for key, value in arguments[name].items()}
        elif arguments[name] != one.default:
            wanted[name] = write_argument(_WRITERS.get(name, _same)(arguments[name]))
    path = route.path
    for name in route.in_path:
        path = path.replace(f"{{{name}}}", _quote(wanted.pop(name)))
    if not route.has_body:
        if get_origin(operation.returns) is Page and "after" in route.inputs:
            return _read_pages(line, operation, path, wanted)
        return read_answer(operation.returns, line.ask(path, wanted))
    keyed = not operation.mark.no_key
    generation = wanted.pop(CONDITION, None) if route.conditional else None
    body = wanted if route.document is None else wanted[route.document.name]
    return read_answer(operation.returns, line.change(route.method, path, body, keyed=keyed, generation=generation))


def _read_pages(line: Line, operation: Operation, path: str, wanted: dict[str, object]) -> object:
    """Return a page of any size, which the server gives in parts.

    The newest messages of a topic are the last page of its list: they have no parts, and the server refuses too many.
    """
    limit, items = wanted.get("limit"), list[object]()
    newest = operation.action == "topic.read" and "after" not in wanted
    while isinstance(limit, int) and limit > MOST and not newest:
        part = cast("Page[object]", read_answer(operation.returns, line.ask(path, {**wanted, "limit": MOST})))
        items += part.items
        if part.next is None:
            return Page(tuple(items))
        limit -= len(part)
        wanted |= {"limit": limit, "after": part.next}
    last = cast("Page[object]", read_answer(operation.returns, line.ask(path, wanted)))
    return Page((*items, *last.items), last.next)


def _quote(value: object) -> str:
    # No name has a slash. Were it quoted once, the server would see a longer path, and no name to refuse.
    return quote(str(value).replace("/", "%2F"), safe="")


def _same(value: object) -> object:
    return value


def _logs(
    line: Line, run_id: str, *, attempt: int | None = None, follow_every: timedelta | None = None, whole: bool = False
) -> Iterator[LogLine]:
    """Yield the lines of a log as the server reads them: whole, or until the run has ended."""
    query = {"whole": whole, "follow": follow_every is not None} | ({} if attempt is None else {"attempt": attempt})
    with line.stream(f"/v1/runs/{_quote(run_id)}/logs", query, "application/x-ndjson") as lines:
        for text in lines:
            found = parse_line(text)
            yield LogLine(found["file"], found["line"])
