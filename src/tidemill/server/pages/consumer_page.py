"""The page of a consumer: its state, what is left, what runs have taken, what was discarded; reset and requeue."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.durations import format_duration
from tidemill.errors import TidemillError
from tidemill.mill.consumers import ConsumerDetail, OfferedView
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.server.pages.columns import BY_RUN, BYTES, ERROR, FILES, PARTITION, PARTITION_PAGE, ROWS, Column
from tidemill.server.pages.data_view import (
    Preview,
    body_of,
    command_of,
    number_of,
    offered,
    query,
    show_data,
)
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, Field, Form
from tidemill.sizes import format_bytes

_TAKEN: Final = (
    PARTITION_PAGE,
    BY_RUN,
    Column("failures", "Failures", "number"),
    Column("write_pointer", "Transaction", "text", "/transactions/{write_pointer}"),
)
_OFFERED: Final = (
    PARTITION_PAGE,
    Column("kind", "Change"),
    ROWS,
    FILES,
    BYTES,
)
_RESETS: Final = (
    Column("reset_at", "Reset", "time"),
    Column("by", "By", "name"),
    Column("to", "To", "long"),
    Column("start_version", "Left at", "number"),
)
_PEEKED: Final = 20
_SECOND: Final = timedelta(seconds=1)
_SHOWN: Final = 50


def show_consumer(request: Request, dataset: str, name: str) -> HTMLResponse:
    """Return the page of a consumer."""
    mill: Mill = request.state.mill
    one = mill.consumers.show(dataset, name)
    offers, unknown = _peek(mill, one)
    taken = [_work(one, plain(work)) for work in one.work if work.state == "in_progress"]
    given_up = [_work(one, plain(work)) for work in one.work if work.state == "discarded"]
    now = mill.project.world.clock.now()
    behind = None if one.oldest_at is None else max(now - one.oldest_at, timedelta(0))
    program = one.name.count(".") == 2  # namespace, app, program
    return show_data(
        request,
        "consumer.html",
        title=one.name,
        state="off" if one.retired else "",
        sub=f"consumer of {one.dataset}" + (", by which no program reads any more" if one.retired else ""),
        links=[
            ("Data set", link("/datasets", one.dataset)),
            *([("Its runs", f"/runs{query(program=one.name)}")] if program and not one.retired else []),
            ("Why", link("/why", one.dataset)),
        ],
        preview=_preview(request, one),
        facts=[
            ("left", one.waiting, format_bytes(one.bytes)),
            ("behind", "–" if behind is None else format_duration(behind - behind % _SECOND), ""),
            ("taken", one.in_progress, ""),
            ("discarded", one.discarded, ""),
            ("dropped before", one.dropped, ""),
        ],
        notes=_notes(one),
        offers=[{**plain(offer), "page": link("/datasets", one.dataset, offer.partition)} for offer in offers],
        offer_columns=_OFFERED,
        offers_sub=f"what the next run takes, the first {_PEEKED}",
        offers_empty=unknown or "nothing is left: a commit to the data set brings the next",
        offers_command=command_of("consumer", "peek", one.dataset, one.name),
        taken=taken[:_SHOWN],
        taken_columns=_TAKEN,
        given_up=given_up[:_SHOWN],
        resets=[plain(reset) for reset in one.resets],
        reset_columns=_RESETS,
        forms=[
            Form(
                "What would come again?",
                (
                    Field("to", "Reset to", "beginning, now, 2026-01-31T12:00Z", request.query_params.get("to", "")),
                    Field("where", "Only partitions", "day>=2026-01-01", request.query_params.get("where", "")),
                ),
                ask="reset",
            )
        ],
        record=plain(one),
        left_out=("work", "name", "dataset", "waiting", "bytes", "in_progress", "discarded", "resets"),
        command=command_of("consumer", "show", one.dataset, one.name),
    )


def _peek(mill: Mill, one: ConsumerDetail) -> tuple[Sequence[OfferedView], str]:
    try:
        return mill.consumers.peek(one.dataset, one.name, limit=_PEEKED), ""
    except TidemillError as error:
        return (), error.sentence


def _work(one: ConsumerDetail, row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        **row,
        "page": link("/datasets", one.dataset, row["partition"]),
        "run": link("/runs", row["run_id"]) if row["run_id"] else None,
        "again": query(ask="requeue", partition=row["partition"]),
    }


def _notes(one: ConsumerDetail) -> Sequence[tuple[str, str, str, str]]:
    notes = []
    if one.discarded:
        text = f"{number_of(one.discarded, 'partition')} failed too often, and no run gets them"
        notes.append(("fail", text, query(ask="requeue"), "Requeue"))
    if one.in_progress:
        notes.append(("run", f"{number_of(one.in_progress, 'partition')} in the hands of runs", "", ""))
    if one.retired:
        notes.append(("wait", "no program reads by it: drop it, and nothing is kept for it", query(ask="drop"), "Drop"))
    return notes


def _preview(request: Request, one: ConsumerDetail) -> Preview | None:
    asked = request.query_params
    match asked.get("ask"):
        case "requeue":
            return offered(request, _ask_requeue(one, asked.get("partition", "")))
        case "reset" if asked.get("to"):
            try:
                where = shlex.split(asked.get("where", ""))
            except ValueError as error:
                return Preview("This cannot be done", str(error), command_of("consumer", "show", one.dataset, one.name))
            return offered(request, _ask_reset(one, asked["to"], where))
        case "drop" if one.retired:
            return offered(request, _ask_drop(one))
    return None


def _ask_requeue(one: ConsumerDetail, partition: str) -> Preview:
    found = [work for work in one.work if work.state == "discarded" and partition in ("", work.partition)]
    words = [partition] if partition else []
    command = command_of("consumer", "requeue", one.dataset, one.name, *words)
    number = len(found) if partition else one.discarded
    if not number:
        return Preview("Nothing to requeue", "No partition was discarded.", command)
    which = partition or number_of(number, "partition")
    says = f"This offers {which} of {one.dataset} to {one.name} again. Failures are counted from none."
    action = Action(
        f"Requeue {number_of(number, 'partition')}",
        f"{_path(one)}:requeue",
        says,
        f"{number_of(number, 'partition')} offered again",
        body=body_of(partitions=words) if words else "{}",
    )
    columns = (
        PARTITION,
        Column("failures", "Failures", "number"),
        ERROR,
    )
    return Preview("Requeue", says, command, action, [plain(work) for work in found[:10]], columns)


def _ask_reset(one: ConsumerDetail, to: str, where: Sequence[str]) -> Preview:
    words = [word for text in where for word in ("--where", text)]
    command = command_of("consumer", "reset", one.dataset, one.name, "--to", to, *words)
    if one.in_progress:
        says = f"Runs hold {number_of(one.in_progress, 'partition')}: a reset waits for their end, or kill them."
        return Preview("Reset", says, command)
    left = number_of(one.waiting, "partition")
    begins = {
        "now": f"This forgets the {left} that are left: the program gets only what commits from now on.",
        "beginning": f"This delivers all partitions of {one.dataset} again, beside the {left} that are left.",
    }.get(to, f"This delivers what was committed since {to} again; {left} are left now.")
    only = f" Of those, only partitions with {' and '.join(where)}." if where else ""
    twice = "" if to == "now" else " A program that appends publishes their rows a second time."
    says = f"{begins}{only}{twice}"
    action = Action(
        "Reset",
        f"{_path(one)}:reset",
        says,
        f"the consumer was reset to {to}",
        body=body_of(to=to, where=where) if where else body_of(to=to),
        danger=True,
    )
    return Preview("Reset the consumer", says, command, action)


def _ask_drop(one: ConsumerDetail) -> Preview:
    says = f"This drops {one.name}: {number_of(one.waiting, 'partition')} that are left for it are forgotten."
    action = Action(
        "Drop", f"{_path(one)}:drop", says, "the consumer was dropped", Right.DEPLOY, danger=True, then="/consumers"
    )
    return Preview("Drop the consumer", says, command_of("consumer", "drop", one.dataset, one.name), action)


def _path(one: ConsumerDetail) -> str:
    return link("/v1/consumers", one.dataset, one.name)
