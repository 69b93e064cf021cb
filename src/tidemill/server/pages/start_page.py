"""Pages that start work: a run of a program, and a backfill. Each is shown before a button starts it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.errors import TidemillError
from tidemill.mill.backfill_plan import Selection
from tidemill.mill.backfills import PRIORITY, BackfillPlan
from tidemill.mill.written import BadOption, read_argument, read_chosen
from tidemill.schedule.backfill_records import By
from tidemill.server.pages.columns import BYTES, ROWS, Column
from tidemill.server.pages.data_view import Preview, body_of, command_of, number_of, offered, query
from tidemill.server.pages.render import plain
from tidemill.server.pages.thing import Action, Field, Form, show_page
from tidemill.sizes import format_bytes

START: Final = "/start-run"
PLAN: Final = "/plan-backfill"
_PROGRAM: Final = Field("program", "Program", "shop.load", required=True)
_ARGUMENTS: Final = Field("args", "Arguments", "level=2 day=2026-01-31")
_QUIET: Final = Field("quiet", "Quiet", value="no", choices=("no", "yes"))
_QUIETLY: Final = " Quiet: no consumer gets what is published, and no schedule starts because of that."
_RUN: Final = (
    _PROGRAM,
    _ARGUMENTS,
    Field("partitions", "Only these partitions", "clicks:day=2026-01-31/hour=4"),
    Field("files", "Only these files", "raw:a.csv"),
    Field("logical_time", "Logical time", "2026-01-31T06:00Z"),
    _QUIET,
)
_OF_PARTITIONS: Final = (
    Field("dataset", "Input, if it has several", "clicks"),
    Field("where", "Only partitions", "day>=2026-01-01 day<2026-02-01"),
)
_PERIOD: Final = (Field("since", "From", "2026-01-01"), Field("until", "Before", "2026-02-01"))
_KINDS: Final[Mapping[By, tuple[str, tuple[Field, ...]]]] = {
    By.PARTITIONS: ("partitions", _OF_PARTITIONS),
    By.TIMES: ("times of a schedule", (Field("schedule", "Schedule", "shop.nightly"), *_PERIOD)),
    By.RUNS: ("runs", (Field("runs", "These runs, or", "run_01J…"), *_PERIOD)),
    By.VERSIONS: (
        "what transactions changed",
        (
            Field("from_version", "From write pointer", "1000"),
            Field("to_version", "Up to write pointer", "2000"),
            *_OF_PARTITIONS,
        ),
    ),
}
"""Kinds of items, each with its words and the fields of its form, in the order of the page."""
_LISTS: Final = frozenset({"where", "runs"})
_NUMBERS: Final = frozenset({"from_version", "to_version", "concurrency", "priority"})
_ITEM: Final = (Column("item", "Item", "name"), Column("need", "Is"), ROWS, BYTES)
_SHOWN: Final = 10


def show_start(request: Request) -> HTMLResponse:
    """Return the page that starts a run, with a preview if the URL asks for one."""
    return _show(
        request,
        _form(request, "What would it do?", _RUN, ask="start"),
        _ask_start,
        title="Start a run",
        sub="of a program, on what waits for it or on the input that you choose",
        links=[("Runs", "/runs")],
        command="run start --help",
    )


def show_plan(request: Request) -> HTMLResponse:
    """Return the page that plans a backfill, with the plan if the URL asks for it."""
    asked = request.query_params
    by = By(asked["by"]) if asked.get("by") in set(By) else By.PARTITIONS
    default = Selection.ALL if by is By.RUNS else Selection.UNFINISHED
    common = (
        Field("select", "Of these, the", value=default, choices=tuple(Selection)),
        _ARGUMENTS,
        Field("concurrency", "At a time", value="1"),
        Field("priority", "Priority", value=str(PRIORITY)),
        _QUIET,
    )
    return _show(
        request,
        _form(request, "Plan", (_PROGRAM, *_KINDS[by][1], *common), ask="plan", kept=(("by", by.value),)),
        partial(_ask_backfill, by=by),
        title="Plan a backfill",
        sub="runs of a program over the past; nothing starts before you have seen the plan",
        links=[("Backfills", "/backfills")],
        command="backfill plan --help",
        kinds=[
            (words, query(by=kind, program=asked.get("program")), kind is by) for kind, (words, _) in _KINDS.items()
        ],
    )


def _show(
    request: Request,
    form: Form,
    ask: Callable[[Request], Preview],
    *,
    command: str,
    kinds: Sequence[tuple[str, str, bool]] = (),
    **of_page: Any,  # noqa: ANN401  # title, sub-title and links
) -> HTMLResponse:
    """Return a page with a form, and with the preview of what the form asks for if the URL comes from the form."""
    asks = request.query_params.get("ask") == form.ask
    preview = _preview(request, ask, command) if asks else None
    return show_page(request, "start.html", preview=preview, kinds=kinds, form=form, command=command, **of_page)


def _form(
    request: Request, label: str, fields: tuple[Field, ...], *, ask: str, kept: tuple[tuple[str, str], ...] = ()
) -> Form:
    asked = request.query_params
    filled = (
        Field(one.name, one.label, one.hint, asked.get(one.name, one.value), one.choices, one.required)
        for one in fields
    )
    return Form(label, tuple(filled), ask=ask, kept=kept)


def _preview(request: Request, ask: Callable[[Request], Preview], command: str) -> Preview:
    """Return what a form asks for; for what cannot be meant, the reason."""
    try:
        return offered(request, ask(request))
    except TidemillError as error:
        return Preview("This cannot be done", error.sentence, command)


def _words(name: str, text: str) -> list[str]:
    """Return the words of a field, as a shell reads them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadOption(name, text, f"{error}; close the quotes") from None


def _ask_start(request: Request) -> Preview:
    asked = request.query_params
    program = asked.get("program", "").strip()
    partitions = read_chosen("partitions", "clicks:day=2026-01-31", _words("partitions", asked.get("partitions", "")))
    files = read_chosen("files", "raw:a.csv", _words("files", asked.get("files", "")))
    given: dict[str, Any] = {
        "arguments": dict(map(read_argument, _words("arguments", asked.get("args", "")))),
        "partitions": partitions,
        "files": files,
        "logical_time": asked.get("logical_time", "").strip(),
        "quiet": asked.get("quiet") == "yes",
    }
    body = {"program": program, **{name: value for name, value in given.items() if value}}
    chosen = [
        f"{number_of(len(things), kind)} of {dataset}"
        for kind, group in (("partition", partitions), ("file", files))
        for dataset, things in group.items()
    ]
    takes = f"It works on {' and '.join(chosen)}, and takes nothing else." if chosen else "It takes what waits for it."
    says = f"This starts a run of {program}. {takes}{_QUIETLY if given['quiet'] else ''}"
    action = Action("Start", "/v1/runs", says, "a new run is pending", body=body_of(**body), then="/runs")
    return Preview(f"Run of {program}", says, action.command, action)


def _ask_backfill(request: Request, by: By) -> Preview:
    asked = request.query_params
    program = asked.get("program", "").strip()
    named = [one.name for one in _KINDS[by][1]]
    choice = {"by": by.value} | {
        name: _read(name, text) for name in (*named, "select") if (text := asked.get(name, "").strip())
    }
    arguments = dict(map(read_argument, _words("arguments", asked.get("args", ""))))
    concurrency = _read("concurrency", asked.get("concurrency") or "1")
    quiet = asked.get("quiet") == "yes"
    settings = {
        **({"arguments": arguments} if arguments else {}),
        "concurrency": concurrency,
        "priority": _read("priority", asked.get("priority") or str(PRIORITY)),
        **({"quiet": True} if quiet else {}),
    }
    plan: BackfillPlan = request.state.mill.backfills.plan(program, **choice)
    found = ", ".join(f"{number:,} {need}" for need, number in plan.named.items()) or "nothing"
    if not plan.items:
        says = f"No item needs a run. The choice names {found}; the selection `all` takes all that it names."
        return Preview("Nothing to do", says, command_of("backfill", "plan", program, by=by))
    input_of = "" if plan.bytes is None else f" over {format_bytes(plan.bytes)} in {plan.rows:,} rows"
    says = (
        f"This makes {number_of(plan.items, 'run')} of {plan.program}{input_of}, {concurrency} at a time. "
        f"The choice names {found}.{_QUIETLY if quiet else ''}"
    )
    label = f"Start {number_of(plan.items, 'run')}"
    action = Action(
        label,
        "/v1/backfills",
        says,
        "the backfill runs",
        body=body_of(program=program, **choice, **settings),
        then="/backfills",
    )
    title = f"Plan for {plan.program}" + (f": the first {_SHOWN} items" if plan.items > _SHOWN else "")
    return Preview(title, says, action.command, action, [plain(one) for one in plan.first[:_SHOWN]], _ITEM)


def _read(name: str, text: str) -> Any:  # noqa: ANN401  # as the parameter wants it
    if name in _LISTS:
        return _words(name, text)
    if name in _NUMBERS:
        try:
            return int(text)
        except ValueError:
            raise BadOption(name.replace("_", " "), text, "write a whole number") from None
    return text
