"""The page of a run."""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.lineage import EdgeKind, Lineage, LineageEdge, LineageNode, NodeKind
from tidemill.mill.mill import Mill
from tidemill.mill.project import MOST_SHOWN
from tidemill.mill.run_course import MOST_PUBLISHED, AttemptView
from tidemill.mill.runs import RunDetail, read_log
from tidemill.mill.workflow_view import WorkflowView
from tidemill.mill.written import write_argument
from tidemill.run.records.logs import LogElsewhere, LogLine
from tidemill.run.records.workflows import Holding
from tidemill.server.pages.columns import BYTES, DATASET, ROWS, Column
from tidemill.server.pages.data_view import count_of, number_of, query
from tidemill.server.pages.flow import draw
from tidemill.server.pages.render import link, may_visit, plain, show, span
from tidemill.server.pages.start_page import START
from tidemill.server.pages.thing import Action, show_page
from tidemill.sizes import format_bytes

_LINES: Final = 400
"""The last lines of a log that a page shows."""
_BYTES: Final = 256 * 1024
"""The last bytes of a log that a page reads: a log may be longer than memory."""
_BAD: Final = re.compile(r"error|exception|traceback|fatal", re.IGNORECASE)
_BAD_LINES: Final = 5
_SHOWN: Final = 200
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "KILLED", "REJECTED"})
_BAND: Final = 1000
"""The length of the time line."""
_THINNEST: Final = 4
_WORDS: Final = {"done": "COMPLETED", "running": "RUNNING", "failed": "FAILED", "waiting": "PENDING"}
"""The states of nodes that look like states of runs."""
_SHAPES: Final = {"committed": "ok", "in_progress": "run", "aborted": "fail", "invalid": "fail"}
_LEGEND: Final = {
    "wait": "waited",
    "start": "process started",
    "run": "at work",
    "ok": "ended with a commit",
    "fail": "ended without a commit",
}
_INPUT: Final = (
    DATASET,
    Column("item", "Partition, file or version"),
    Column("write_pointer", "Written by", "text", "/transactions/{write_pointer}"),
)
_OUTPUT: Final = (
    DATASET,
    Column("partitions", "Partitions", "long"),
    ROWS,
    BYTES,
)


_NODES: Final = (
    Column("node", "Node", "name", "/runs/{run_id}"),
    Column("state", "State", "state"),
    Column("values", "Values"),
    Column("why", "Why", "long"),
)


def show_run(request: Request, run_id: str, attempt: int | None = None) -> HTMLResponse:
    """Return the page of a run: what happened when, input, output, cause, log."""
    mill: Mill = request.state.mill
    run = mill.runs.show(run_id)
    now = mill.project.world.clock.now()
    facts: Mapping[str, Any] = run.facts
    outputs = [{**one, "partitions": one.get("partitions", [])} for one in facts.get("outputs", ())]
    found, where = _read_log(mill, run, attempt)
    lines = found or ()
    bad = [line.text for line in lines if _BAD.search(line.text)]
    waits = run.state == "PENDING"
    bands = list(_bands(run, now))
    drawn = {bar["shape"] for band in bands for bar in band["bars"]}
    return show_page(
        request,
        "run.html",
        actions=_actions(run),
        choose=_choose(request, run),
        title=run.program or run.run_id,
        state=run.state,
        run=run,
        took=_took(run, now),
        cores="" if run.core_seconds is None else f"{run.core_seconds:,.1f} core-seconds",
        attempts_said="1 attempt" if run.epoch == 1 else f"{run.epoch} attempts" if run.epoch else "no attempt yet",
        app=(run.program or "").rpartition(".")[0] if run.app_version else "",
        error=_error(run),
        waits_for=run.why if waits else "",
        facts=_numbers(run, outputs),
        bands=bands,
        legend=[(shape, words) for shape, words in _LEGEND.items() if shape in drawn],
        inputs=[{**plain(one), "write_pointer": one.write_pointer or None} for one in run.inputs[:_SHOWN]],
        input_columns=_INPUT,
        input_said=_describe_input(run),
        outputs=outputs,
        output_columns=_OUTPUT,
        output_said=_describe_output(run),
        output_empty="the run published nothing" if run.state in _ENDED else "nothing is published yet",
        log=[{"text": line.text, "bad": bool(_BAD.search(line.text))} for line in lines],
        log_sub=where,
        log_empty="ask a server on that machine" if found is None else "the program wrote nothing",
        bad=bad[:_BAD_LINES],
        bad_said=_say_bad(len(bad)),
        attempt_links=[(one, one == (attempt or run.epoch)) for one in _logged(run)] if run.epoch > 1 else (),
        follow="" if run.state in _ENDED or waits or attempt else link("/v1/runs", run_id) + "/logs?follow=true",
        asked=show(f"{run.triggered_by.get('asked') or 'by hand'}{_by(run)}"),
        triggers=run.triggers,
        spark_ui=_spark_ui(run),
        next_runs=_next_runs(mill, run),
        published=run.published,
        parent=run.triggered_by.get("workflow"),
        fate=run.workflow.fate if run.workflow else "",
        **_draw_nodes(run.workflow, mill),
        details=_details(run),
        command=f"run show {run_id}",
    )


def _choose(request: Request, run: RunDetail) -> str:
    """Return the page that starts another run of the program, with its arguments; empty for a node."""
    if run.program is None or "workflow" in run.triggered_by or not may_visit(request, START):
        return ""
    arguments = shlex.join(write_argument(*one) for one in run.arguments.items())
    return f"{START}{query(program=run.program, args=arguments)}"


def _actions(run: RunDetail) -> list[Action]:
    path = link("/v1/runs", run.run_id)
    if run.state not in _ENDED:
        ask = f"This ends {run.run_id}. What it has written stays invisible. {_say_claimed(run)}"
        return [Action("Kill", f"{path}:kill", ask, "the run is asked to end", danger=True)]
    if run.state == "FAILED" and run.workflow is not None and run.workflow.claims != Holding.RETURNED:
        return _actions_of_failed(path, run.workflow)
    is_chosen = "chosen" in run.triggered_by
    if run.state != "COMPLETED" and "workflow" in run.triggered_by:
        return []  # its workflow is retried: the page links to that
    if run.state != "COMPLETED":
        taken = "It works on the same chosen input." if is_chosen else "It takes what waits now."
        ask = f"This starts a new run of {run.program} with the same arguments. {taken}"
        return [Action("Retry", f"{path}:retry", ask, "a new run is pending")]
    replays = list(_replays(run, path))
    if run.program is None or is_chosen:  # another one would take what waits
        return replays
    quiet = {"quiet": True} if run.triggered_by.get("quiet") else {}
    taken = "It publishes quietly." if quiet else "It takes what waits now."
    ask = f"This starts a new run of {run.program} with the same arguments. {taken}"
    body = json.dumps({"program": run.program, "arguments": dict(run.arguments), **quiet})
    return [Action("Start another", "/v1/runs", ask, "a new run is pending", body=body), *replays]


def _replays(run: RunDetail, path: str) -> Iterator[Action]:
    """Yield the replay of a committed run that publishes nothing. Workflows, their nodes and sandboxes have none."""
    of_workflow = run.workflow is not None or "workflow" in run.triggered_by
    if run.program is None or of_workflow or run.exit_reason == "sandbox":
        return
    ask = "This repeats the run on its exact input, publishes nothing, and compares the rows with those of the run."
    body = json.dumps({"sandbox": True, "diff": True})
    yield Action("Compare a replay", f"{path}:replay", ask, "a replay is pending", body=body)


def _actions_of_failed(path: str, workflow: WorkflowView) -> list[Action]:
    """Return the actions on a failed workflow that has not returned its claims."""
    if workflow.resumed_by is not None:
        return []
    ask = "This starts the nodes that have not completed, with the same claims and arguments."
    actions = [Action("Resume", f"{path}:retry", ask, "a new run goes on")]
    if workflow.holds_until is not None:
        ask = "This returns the claims of the workflow: another run takes them, and begins with the first node."
        actions.append(Action("Return claims", f"{path}:kill", ask, "the claims are returned", danger=True))
    return actions


def _draw_nodes(workflow: WorkflowView | None, mill: Mill) -> Mapping[str, Any]:
    """Return the nodes of a workflow as a graph and as rows; nothing for other runs."""
    if workflow is None:
        return {"graph_of": None, "node_rows": (), "node_columns": _NODES}
    boxes = tuple(
        LineageNode(one.node, NodeKind.RUN, one.node, _WORDS.get(one.state, one.state), None, 0)
        for one in workflow.nodes
    )
    edges = tuple(
        LineageEdge(before, one.node, EdgeKind.STARTS, None) for one in workflow.nodes for before in one.after
    )
    pages = {one.node: link("/runs", one.run_id) for one in workflow.nodes if one.run_id is not None}
    rows = [
        {
            **plain(one),
            "values": ", ".join(f"{name}={value}" for name, value in one.values.items()),
            "run_id": one.run_id or "",
        }
        for one in workflow.nodes
    ]
    drawn = draw(Lineage("", boxes, edges, cut=False), mill, link_of=lambda one: pages.get(one.id, ""))
    return {"graph_of": drawn, "node_rows": rows, "node_columns": _NODES}


def _say_claimed(run: RunDetail) -> str:
    """Return a sentence about the input that the end of a run offers again."""
    kinds = ((run.claimed_partitions, "partition"), (run.claimed_files, "file"))
    claimed = " and ".join(number_of(number, one) for number, one in kinds if number)
    again = "is" if run.claimed_partitions + run.claimed_files == 1 else "are"
    return f"The {claimed} that it has claimed {again} offered again." if claimed else "It has claimed no input."


def _spark_ui(run: RunDetail) -> str:
    """Return the address of Spark's own pages while a run is at work; empty where its driver has none."""
    address = run.facts.get("spark_ui")
    if run.state in _ENDED or not isinstance(address, str) or not address.startswith(("http://", "https://")):
        return ""
    return address


def _say_bad(number: int) -> str:
    words = "1 line speaks of an error" if number == 1 else f"{number} lines speak of an error"
    return f"{words}; the first {_BAD_LINES}:" if number > _BAD_LINES else f"{words}:"


def _took(run: RunDetail, now: datetime) -> str:
    if run.started_at is None:
        return ""
    return span(max((run.ended_at or now) - run.started_at, timedelta(0)))


def _error(run: RunDetail) -> Mapping[str, str] | None:
    """Return the end of a run that went wrong, or of its last attempt while the next one waits."""
    reason = run.exit_reason or next((one.reason for one in reversed(run.attempts) if one.reason), None)
    if not reason or run.state == "COMPLETED":
        return None
    first, _, rest = reason.strip().partition("\n")
    return {"first": first, "rest": rest.strip("\n")}


def _numbers(run: RunDetail, outputs: Sequence[Mapping[str, Any]]) -> list[tuple[str, object]]:
    noted = run.facts.get("read")
    read = [one for one in noted if isinstance(one, dict)] if isinstance(noted, list) else []
    rows = [one["rows"] for one in read if isinstance(one.get("rows"), int)]
    rejected = [one["rejected"] for one in read if isinstance(one.get("rejected"), int)]
    return [
        *_stages(run.facts.get("stages")),
        ("inputs", count_of(len(run.inputs), MOST_SHOWN)),
        *([("rows in", sum(rows))] if rows else []),
        ("rows out", sum(one.get("rows") or 0 for one in outputs)),
        *([("rows rejected", sum(rejected))] if rejected else []),
        ("written", format_bytes(sum(one.get("bytes") or 0 for one in outputs))),
        ("partitions published", sum(one.get("count") or 0 for one in outputs)),
        ("messages", count_of(len(run.published), MOST_PUBLISHED)),
    ]


def _by(run: RunDetail) -> str:
    by = run.triggered_by.get("by")
    return f" of {by}" if by else ""


def _stages(noted: object) -> list[tuple[str, object]]:
    """Return how far the Spark jobs are of a run that is under way."""
    if not isinstance(noted, dict):
        return []
    return [(name, f"{noted.get(f'{name}_done')} of {noted.get(name)}") for name in ("stages", "tasks")]


def _describe_input(run: RunDetail) -> str:
    number = len(run.inputs)
    return (
        f"the first {_SHOWN} of {count_of(number, MOST_SHOWN)}, claimed for this run alone"
        if number > _SHOWN
        else "claimed for this run alone"
    )


def _describe_output(run: RunDetail) -> str:
    commits = [one.commit_seq for one in run.attempts if one.commit_seq is not None]
    return f"visible since commit {commits[-1]:,}" if commits else ""


def _logged(run: RunDetail) -> Iterable[int]:
    return range(max(1, run.epoch - 9), run.epoch + 1)


def _read_log(mill: Mill, run: RunDetail, attempt: int | None) -> tuple[Sequence[LogLine] | None, str]:
    """Return the last lines of an attempt, the newest unless another is given, and a description of these lines.

    None for a log that cannot be read on this machine.
    """
    if not run.log_location:
        return (), "no attempt yet"
    reader = read_log(mill.project, run.run_id, attempt=attempt, whole=False, most=_BYTES)
    try:
        lines = deque(reader.read_on(last=True), maxlen=_LINES)
    except (OSError, LogElsewhere):
        return None, f"on the machine of its runner, in {run.log_location}"
    cut = reader.cut or len(lines) == _LINES
    number = f"the last {len(lines)} lines" if cut else "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    return tuple(lines), f"attempt {attempt or run.epoch} · {number}"


def _next_runs(mill: Mill, run: RunDetail) -> list[LineageNode]:
    """Return the runs that took what this run has written."""
    if not run.attempts:
        return []
    found = mill.runs.lineage(run.run_id, direction="downstream", depth=2, limit=50)
    return [one for one in found.nodes if one.kind is NodeKind.RUN and one.depth > 0][:8]


def _details(run: RunDetail) -> Mapping[str, object]:
    facts = run.facts
    shown: dict[str, object] = {
        "arguments": run.arguments,
        "code": run.bundle[:12],
        "priority": run.priority or "",
        "failures": run.failures or "",
        "losses": run.losses or "",
        "spark": facts.get("spark", ""),
        "driver": facts.get("driver", ""),
        "log folder": run.log_location or "",
    }
    known = {"stages", "inputs", "outputs", "seconds", "spark", "spark_conf", "spark_ui", "driver", "code", "read"}
    return {**shown, **{name: value for name, value in facts.items() if name not in known}}


def _bands(run: RunDetail, now: datetime) -> Iterable[Mapping[str, Any]]:
    """Yield the bands of the time line: the wait, each attempt, and each pause between two attempts."""
    end = run.ended_at or now
    whole = max((end - run.created_at).total_seconds(), 0.001)

    def bar(shape: str, begin: datetime, until: datetime) -> Mapping[str, Any]:
        start = max(0, round(_BAND * (begin - run.created_at).total_seconds() / whole))
        length = max(round(_BAND * (until - begin).total_seconds() / whole), _THINNEST)
        start = min(start, _BAND - _THINNEST)
        return {"shape": shape, "start": start, "length": min(length, _BAND - start)}

    began = run.started_at or (run.attempts[0].began_at if run.attempts else end)
    yield _band("waited", began - run.created_at, [bar("wait", run.created_at, began)])
    if not run.attempts and run.started_at is not None:
        shape = {"COMPLETED": "ok"}.get(run.state, "fail" if run.state in _ENDED else "run")
        yield _band(f"attempt {run.epoch}", end - began, [bar(shape, began, end)])
    for number, (attempt, following) in enumerate(pairwise([*run.attempts, None])):
        assert attempt is not None  # noqa: S101  # only the last of the pairs is None
        until = attempt.ended_at or end
        bars = [bar("run", attempt.began_at, until)]
        if number == 0 and attempt.began_at > began:
            bars.insert(0, bar("start", began, attempt.began_at))
        if attempt.ended_at is not None:
            bars.append(_last(bars[-1], _SHAPES[attempt.state]))
        first = began if number == 0 else attempt.began_at
        yield _band(_named(run, number, attempt), until - first, bars, _end(attempt))
        if following is not None and following.began_at > until:
            yield _band("pause", following.began_at - until, [bar("off", until, following.began_at)])


def _last(bar: Mapping[str, Any], shape: str) -> Mapping[str, Any]:
    """Return the end of a bar, which says how the attempt ended."""
    length = min(12, bar["length"])
    return {"shape": shape, "start": bar["start"] + bar["length"] - length, "length": length}


def _named(run: RunDetail, number: int, attempt: AttemptView) -> str:
    epochs = [one.epoch for one in run.attempts]
    return f"attempt {attempt.epoch}" if epochs.count(attempt.epoch) == 1 else f"commit {number + 1}"


def _end(attempt: AttemptView) -> str:
    if attempt.commit_seq is not None:
        return f"committed as {attempt.commit_seq:,}"
    return (attempt.reason or "").strip().partition("\n")[0]


def _band(label: str, took: timedelta, bars: Sequence[Mapping[str, Any]], end: str = "") -> Mapping[str, Any]:
    return {"label": label, "took": max(took, timedelta(0)), "bars": bars, "end": end}
