"""Rendering: templates, and the words, signs and units in which pages show values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from tidemill.config import without_password
from tidemill.epoch import show_time
from tidemill.mill.access import ALL_NAMESPACES
from tidemill.mill.plain import to_readable
from tidemill.mill.tokens import TokenKind
from tidemill.sizes import format_bytes

if TYPE_CHECKING:
    from jinja2 import Template

    from tidemill.mill.mill import Mill
    from tidemill.mill.operation import Right
    from tidemill.mill.tokens import Principal

PLACES: Final = (
    ("/", "Overview"),
    ("/flow", "Flow"),
    ("/datasets", "Data sets"),
    ("/inboxes", "Inboxes"),
    ("/consumers", "Consumers"),
    ("/watermarks", "Watermarks"),
    ("/schedules", "Schedules"),
    ("/jobs", "Jobs"),
    ("/runs", "Runs"),
    ("/backfills", "Backfills"),
    ("/alerts", "Alerts"),
    ("", ""),
    ("/apps", "Apps"),
    ("/topics", "Topics"),
    ("/subscribers", "Subscribers"),
    ("/transactions", "Transactions"),
    ("/nodes", "Nodes"),
    ("/audit", "Audit"),
    ("/tokens", "Tokens"),
)
_NAV_OF: Final = {"/alert-rules": "/alerts", "/start-run": "/runs", "/plan-backfill": "/backfills"}
"""Pages below a place of another name."""
_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "ok": (
        "✓",
        "RESOLVED SENT COMPLETED DONE SCHEDULED SUCCESS COMMITTED fresh filled launched present kept active current",
    ),
    "run": ("●", "RUNNING STARTING IN_PROGRESS WORKING filling open met"),
    "wait": (
        "◷",
        (
            "PENDING STOPPING NEW PENDING_TRIGGER PENDING_CONSTRAINT DRAINING quarantine misdated waits behind "
            "ACKNOWLEDGED WAITING"
        ),
    ),
    "late": ("!", "ERROR late BROKEN due rewritten incomplete"),
    "fail": ("✕", "FAILED REJECTED expired QUARANTINED INVALID failing failed alert DEAD LOST missing"),
    "off": ("–", "revoked KILLED SUSPENDED PAUSED CANCELLED SKIPPED IGNORED ABORTED quiet dropped"),
}
_SHAPES: Final = {
    word.upper(): (shape, "‖" if word in {"SUSPENDED", "PAUSED"} else sign)
    for shape, (sign, words) in _STATES.items()
    for word in words.split()
}
_MOST_SHOWN: Final = 200
_EXACT: Final = 10
"""Shorter durations, in seconds, have a fraction."""
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return a page. Every template has the caller's session, the places of the navigation, and the time."""
    mill: Mill | None = getattr(request.state, "mill", None)
    caller: Principal | None = getattr(request.state, "principal", None)
    prefix = request.scope.get("root_path", "")
    now = None if mill is None else mill.project.world.clock.now()
    project = "" if mill is None else mill.project.config.folder.name
    catalog = "" if mill is None else _short_catalog(mill)
    text = _template(template).render(
        {
            "prefix": prefix,
            "csrf": getattr(request.state, "csrf", ""),
            "bare": False,
            "caller": "" if caller is None else caller.name,
            "may_open": partial(_may_open, request, caller),
            "can_leave": caller is not None and caller.kind is TokenKind.SESSION,
            "live": mill is not None,
            "again": status == HTTPStatus.SERVICE_UNAVAILABLE,
            "places": _places(request, caller),
            "nav": _NAV_OF.get(place := "/" + request.url.path.removeprefix(prefix).split("/")[1], place),
            "project": project,
            "namespace": "" if mill is None else mill.project.config.namespace,
            "catalog": catalog,
            "version": version("tidemill"),
            "searched": "",
            "command": "",
            "now": now,
            **values,
        }
    )
    return HTMLResponse(text, status)


def _may_open(request: Request, caller: Principal | None, path: str) -> bool:
    """Return whether a caller may open the page of a thing that another page names.

    A caller of one namespace has no link to a transaction: it may be of another namespace, or of all.
    """
    if caller is None or caller.namespace == ALL_NAMESPACES:
        return True
    needs: Mapping[str, tuple[Right, bool]] = request.app.state.page_needs
    place = path.partition("?")[0]
    fitting = (need for pattern, need in needs.items() if _pattern_of(pattern).fullmatch(place))
    return not place.startswith("/transactions/") and all(caller.may(*need) for need in fitting)


@cache
def _pattern_of(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"{\w+(:path)?}", lambda found: ".+" if found[1] else "[^/]+", path))


def _places(request: Request, caller: Principal | None) -> list[tuple[str, str]]:
    """Return the places of the navigation that the caller may open."""
    if caller is None:
        return list(PLACES)
    return [(path, name) for path, name in PLACES if not path or may_visit(request, path)]


def may_visit(request: Request, path: str) -> bool:
    """Return whether the caller may open a page that is of no single thing."""
    needs: Mapping[str, tuple[Right, bool]] = request.app.state.page_needs
    return bool(request.state.principal.may(*needs[path.partition("?")[0]]))


def plain(record: object) -> dict[str, Any]:
    """Return a record with its fields by name; times stay times."""
    fields: dict[str, Any] = to_readable(record)
    return fields | {name: value for name in fields if isinstance(value := getattr(record, name, None), datetime)}


def state_of(word: object) -> tuple[str, str, str]:
    """Return the shape, the sign and the words of a state."""
    text = str(word or "unknown")
    shape, sign = _SHAPES.get(text.upper(), ("off", "–"))
    return shape, sign, text.lower().replace("_", " ")


def link(path: str, *parts: object) -> str:
    """Return a path whose last parts are names, however they are spelled."""
    return "/".join([path, *(quote(str(part), safe="") for part in parts)])


def fill(pattern: str, row: Mapping[str, object]) -> str:
    """Return a link whose `{field}`s are those of a row."""
    return pattern.format_map({name: quote(str(value), safe="") for name, value in row.items()})


def ago(at: datetime | str, now: datetime) -> str:
    """Return a time relative to now: `3 min ago`, `in 2 h`."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    seconds = (now - moment).total_seconds()
    size, unit = next((one for one in _UNITS if abs(seconds) >= one[0]), _UNITS[-1])
    number = f"{int(abs(seconds) // size)} {unit}"
    return f"{number} ago" if seconds >= 0 else f"in {number}"


def _utc(at: datetime | str) -> str:
    return at if isinstance(at, str) else show_time(at.astimezone(UTC))


def show(value: object) -> str:
    """Return a value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value)) or "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={show(inner)}" for name, inner in value.items()) or "–"
    return "–" if value is None or value == "" else str(value)


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _short(name: str | None) -> str:
    """Return the last part of a qualified name."""
    return (name or "–").rpartition(".")[2]


def _near(text: str, namespace: str) -> str:
    """Return a name as people of its namespace say it: without the namespace."""
    return text.removeprefix(f"{namespace}.")


def _local(text: object, namespace: str) -> str:
    """Return a sentence in which the names of the namespace stand without the namespace."""
    return re.sub(rf"(?<![\w.-]){re.escape(namespace)}\.(?=\w)", "", str(text))


def span(duration: timedelta | None) -> str:
    """Return a duration as people say it, with two units at most: `1.2 s`, `14 s`, `2 h 10 min`."""
    if duration is None:
        return "–"
    seconds = duration.total_seconds()
    if seconds < _EXACT:
        return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    left = int(seconds)
    shown: list[str] = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or shown:
            shown.append(f"{number} {unit}" if number else "")
        if len(shown) == 2:  # two units are exact enough
            break
    return " ".join(one for one in shown if one)


def _words(name: object) -> str:
    return str(name).replace("_", " ").lower()


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else show(value)


def _short_catalog(mill: Mill) -> str:
    url = without_password(mill.project.config.catalog)
    return url.partition(":")[0]


@cache
def _template(name: str) -> Template:
    env = Environment(
        loader=PackageLoader("tidemill.server.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
    )
    env.globals["state_of"] = state_of
    env.filters |= {
        "ago": ago,
        "utc": _utc,
        "plain": show,
        "count": show,
        "brief": _brief,
        "short": _short,
        "near": _near,
        "words": _words,
        "size": _size,
        "fill": fill,
        "span": span,
        "local": _local,
    }
    return env.get_template(name)
