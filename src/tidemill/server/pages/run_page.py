"""The page of a run."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.durations import format_duration
from tidemill.mill.mill import Mill
from tidemill.run.records.logs import LogLine
from tidemill.server.pages.lists import Column, section
from tidemill.server.pages.render import link, plain, show
from tidemill.server.pages.thing import Action, show_thing
from tidemill.sizes import format_bytes

_LINES: Final = 400
"""The last lines of a log that a page shows."""

_BAD: Final = re.compile(r"error|exception|traceback|fatal", re.IGNORECASE)


def show_run(request: Request, run_id: str) -> HTMLResponse:
    """Return the page of a run: what happened when, input, output, cause, log."""
    mill: Mill = request.state.mill
    run = mill.runs.show(run_id)
    facts: Mapping[str, Any] = run.facts
    ended = run.state in {"COMPLETED", "FAILED", "KILLED", "REJECTED"}
    actions = []
    if not ended:
        ask = f"This ends {run.run_id}. What it has written stays invisible, and its input is offered again."
        actions.append(Action("Kill", link("/v1/runs", run_id) + ":kill", ask, "the run is asked to end", danger=True))
    elif run.state != "COMPLETED":
        ask = f"This starts a new run of {run.program} with the same arguments."
        actions.append(Action("Retry", link("/v1/runs", run_id) + ":retry", ask, "a new run is pending"))
    outputs = [
        {**one, "link": one["dataset"], "partitions": one.get("partitions", [])} for one in facts.get("outputs", ())
    ]
    lines, where = _read_log(mill, run)
    took = f"{facts['seconds']} s" if "seconds" in facts else "–"
    return show_thing(
        request,
        title=run.program or run.run_id,
        state=run.state,
        sub=" · ".join((run.run_id, f"attempt {run.epoch}", f"app version {run.app_version}")),
        actions=actions,
        links=[("Why", link("/why", run_id))],
        facts=[
            ("inputs", len(run.inputs)),
            ("rows in", sum(one.get("rows") or 0 for one in facts.get("inputs", ()))),
            ("rows out", sum(one.get("rows") or 0 for one in outputs)),
            ("written", format_bytes(sum(one.get("bytes") or 0 for one in outputs))),
            ("partitions", sum(one.get("count") or 0 for one in outputs)),
            ("took", took),
        ],
        timeline=_timeline(run, mill.project.world.clock.now()),
        timeline_words=f"created, started and ended; took {took}",
        triggers=run.triggers,
        trigger=show(run.triggered_by.get("schedule") or run.triggered_by.get("asked") or ""),
        sections=[
            section("Input", _inputs(run.inputs), _INPUT, "it took nothing", "claimed for this run alone"),
            section("Output", outputs, _OUTPUT, "nothing was published"),
        ],
        log=[{"text": line.text, "bad": bool(_BAD.search(line.text))} for line in lines],
        log_sub=where,
        record=plain(run),
        left_out=("facts", "inputs", "triggers", "triggered_by", "why"),
        command=f"run show {run_id}",
    )


_INPUT: Final = (
    Column("dataset", "Data set", "name", "/datasets/{dataset}"),
    Column("item", "Partition, file or version"),
    Column("write_pointer", "Written by", "text", "/transactions/{write_pointer}"),
)

_OUTPUT: Final = (
    Column("dataset", "Data set", "name", "/datasets/{dataset}"),
    Column("partitions", "Partitions", "long"),
    Column("rows", "Rows", "number"),
    Column("bytes", "Bytes", "bytes"),
)


def _inputs(inputs: Iterable[Any]) -> list[Any]:
    return list(islice(inputs, 200))


def _read_log(mill: Mill, run: Any) -> tuple[Sequence[LogLine], str]:  # noqa: ANN401  # a RunDetail
    """Return the last lines of the newest attempt, and which lines they are."""
    if not run.log_location:
        return (), "no attempt yet"
    try:
        lines = deque(mill.runs.logs(run.run_id), maxlen=_LINES)
    except OSError:
        return (), f"on the machine of its runner, in {run.log_location}"
    return tuple(lines), f"attempt {run.epoch}, the last {len(lines)} lines"


def _timeline(run: Any, now: datetime) -> list[Mapping[str, Any]]:  # noqa: ANN401  # a RunDetail
    """Return the bars of a run: its wait, and its newest attempt. Lengths are of a hundred."""
    end = run.ended_at or now
    whole = max((end - run.created_at).total_seconds(), 0.001)
    started = run.started_at or end
    shape = {"COMPLETED": "ok", "FAILED": "fail", "KILLED": "fail", "REJECTED": "fail"}.get(run.state, "run")
    parts = [("waited", run.created_at, started, "wait")]
    if run.started_at is not None:
        parts.append((f"attempt {run.epoch}", started, end, shape))
    return [
        {
            "label": label,
            "start": 100 * (begin - run.created_at).total_seconds() / whole,
            "length": 100 * (until - begin).total_seconds() / whole,
            "shape": kind,
            "shown": format_duration(_rounded(until - begin)),
        }
        for label, begin, until, kind in parts
    ]


def _rounded(span: timedelta) -> timedelta:
    """Return a duration in whole milliseconds, from 10 s on in whole seconds."""
    unit = timedelta(seconds=1) if span >= timedelta(seconds=10) else timedelta(milliseconds=1)
    return max(span // unit, 0) * unit
