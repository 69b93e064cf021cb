"""Pages of one thing: a run, job, schedule, data set, inbox, consumer, watermark, app, topic or transaction."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from shlex import quote
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.durations import format_duration
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.run.records.logs import LogLine
from tidemill.server.pages.lists import (
    CONSUMER_COLUMNS,
    ENDED_COLUMNS,
    FILE_COLUMNS,
    MESSAGE_COLUMNS,
    PARTITION_COLUMNS,
    VERSION_COLUMNS,
    Column,
    section,
)
from tidemill.server.pages.render import link, plain, render, show, state_of
from tidemill.sizes import format_bytes

_LINES: Final = 400
"""The last lines of a log that a page shows."""
_JOBS: Final = 50
_BAD: Final = re.compile(r"error|exception|traceback|fatal", re.IGNORECASE)


_DELIVERIES: Final = (
    Column("target", "Target", "name"),
    Column("event", "Event"),
    Column("state", "State", "state"),
    Column("attempt", "Tries", "number"),
    Column("made_at", "Written", "time"),
    Column("ended_at", "Ended", "time"),
    Column("error", "Error", "long"),
)


@dataclass(frozen=True, slots=True)
class Action:
    """A button: its route, the question before it, and the answer after it. It appears for callers with `right`."""

    label: str
    path: str
    ask: str
    done: str
    right: Right = Right.OPERATE
    method: str = "POST"
    body: str = "{}"
    danger: bool = False


def _page(request: Request, *, actions: Iterable[Action] = (), **values: Any) -> HTMLResponse:  # noqa: ANN401
    access = request.state.principal
    blank: dict[str, Any] = {
        "sub": "",
        "state": "",
        "facts": (),
        "links": (),
        "timeline": (),
        "strip": (),
        "cells": (),
        "triggers": (),
        "because": (),
        "sections": (),
        "record": None,
        "left_out": (),
    }
    allowed = [one for one in actions if access.role.grants(one.right)]
    return render(request, "show.html", actions=allowed, **{**blank, **values})


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
    return _page(
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


def show_job(request: Request, job_id: str) -> HTMLResponse:
    """Return the page of a job: what it waits for, with the evidence."""
    mill: Mill = request.state.mill
    job = mill.jobs.show(job_id)
    waits = hasattr(job, "why")
    path = link("/v1/jobs", job_id)
    actions = [
        Action("Start now", f"{path}:force", "This starts a run now, whatever the job waits for.", "the job is a run"),
        Action(
            "Drop", f"{path}:drop", "This drops the job. What fed it starts no run.", "the job is dropped", danger=True
        ),
    ]
    links = [("Schedule", link("/schedules", job.schedule))]
    run_id = getattr(job, "run_id", None)
    if run_id:
        links.append(("Run", link("/runs", run_id)))
    return _page(
        request,
        title=job.schedule,
        state=getattr(job, "state", None) or getattr(job, "outcome", ""),
        sub=f"{job.job_id} · {getattr(job, 'why', '')}",
        actions=actions if waits else (),
        links=links,
        triggers=job.triggers,
        trigger="",
        because=job.because,
        record=plain(job),
        left_out=("triggers", "because", "verdict", "why", "detail"),
        command=f"job show {job_id}",
    )


def show_alert(request: Request, alert_id: str) -> HTMLResponse:
    """Return the page of an alert: what is wrong, since when, and the notices about it."""
    mill: Mill = request.state.mill
    alert = mill.alerts.show(alert_id)
    path, rule = link("/v1/alerts", alert_id), link("/v1/alerts", alert.rule)
    actions = []
    if alert.state == "OPEN":
        ask = "This says that you work on it. Targets are notified of that, and not again before the end."
        actions.append(Action("Acknowledge", f"{path}:acknowledge", ask, "the alert is acknowledged"))
    if alert.state != "RESOLVED":
        ask = f"This sends nothing about {alert.rule} for an hour. Its alerts open and end as before."
        body = json.dumps({"duration": "1h"})
        actions.append(Action("Silence for 1 h", f"{rule}:silence", ask, "the rule is silent", body=body))
    return _page(
        request,
        title=alert.rule,
        state=alert.state,
        sub=f"{alert.subject} · {alert.why}",
        actions=actions,
        links=[("Why", link("/why", alert.subject)), ("Rules", "/alert-rules")],
        sections=[section("Notices", mill.alerts.deliveries(alert=alert_id), _DELIVERIES, "nothing was sent")],
        record=plain(alert),
        left_out=("why",),
        command=f"alert show {alert_id}",
    )


def show_schedule(request: Request, name: str) -> HTMLResponse:
    """Return the page of a schedule: its trigger with live counts, constraints, next times, last jobs."""
    mill: Mill = request.state.mill
    schedule = mill.schedules.show(name)
    waiting = mill.jobs.list(schedule=schedule.name, limit=1)
    job = mill.jobs.show(waiting[0].job_id) if waiting else None
    ended = mill.jobs.history(schedule.name, limit=_JOBS)
    path = link("/v1/schedules", schedule.name)
    suspended = schedule.status == "SUSPENDED"
    drops = "drops 1 job" if waiting else "drops no job"
    if suspended:
        change = Action("Resume", f"{path}:resume", f"{schedule.name} listens again.", "the schedule listens")
    else:
        ask = f"{schedule.name} starts no run until it is resumed. This {drops}, and what comes meanwhile feeds no job."
        change = Action(f"Suspend · {drops}", f"{path}:suspend", ask, "the schedule is suspended", danger=True)
    body = json.dumps({"program": schedule.program, "arguments": _given(schedule.arguments)})
    start = Action("Start now", "/v1/runs", f"This starts a run of {schedule.program}.", "a run is pending", body=body)
    strip = [
        {
            "shape": {"launched": "ok"}.get(one.outcome, "off"),
            "link": link("/jobs", one.job_id),
            "title": f"{one.outcome} {one.job_id}",
        }
        for one in reversed(ended.items)
    ]
    fires = mill.schedules.next(schedule.name, limit=5)
    return _page(
        request,
        title=schedule.name,
        state=schedule.status if suspended or not waiting else "waits",
        sub=f"starts {schedule.program} · generation {schedule.generation} · by {schedule.owner}",
        actions=[start, change],
        links=[("Why", link("/why", schedule.name)), ("Runs", f"/runs?program={schedule.program}")],
        facts=[("trigger", schedule.trigger), ("constraints", schedule.constraints or "none")],
        triggers=job.triggers if job else (),
        trigger=f"job {job.job_id}" if job else "",
        because=job.because if job else (),
        strip=strip,
        strip_title=f"Last {len(strip)} jobs",
        sections=[
            section("Next times", fires, _FIRES, "no time trigger fires"),
            section("Ended jobs", ended[:20], ENDED_COLUMNS, "no job has ended yet"),
        ],
        record=plain(schedule),
        left_out=("name", "trigger", "constraints", "program"),
        command=f"schedule show {schedule.name}",
    )


_FIRES: Final = (Column("fire_at", "Fires", "time"), Column("trigger", "Trigger"))


def _given(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Return the arguments whose values are plain: those that a schedule computes are the program's defaults here."""
    return {name: value for name, value in arguments.items() if not isinstance(value, Mapping | list)}


def show_dataset(request: Request, name: str) -> HTMLResponse:
    """Return the page of a data set: partitions or versions, consumers, columns."""
    mill: Mill = request.state.mill
    dataset = mill.datasets.show(name)
    if dataset.kind == "inbox":
        return show_inbox(request, name)
    sections, cells = [], []
    if dataset.kind == "snapshot":
        versions = mill.snapshots.versions(name, limit=50)
        sections.append(section("Versions", versions, VERSION_COLUMNS, "no version yet"))
    else:
        page = mill.datasets.partitions(name, limit=200, after=request.query_params.get("after", ""))
        most = max((one.rows for one in page), default=1) or 1
        cells = [
            {
                "shape": f"s{min(4 * one.rows // most + 1, 4)}",
                "link": link("/runs", one.run_id),
                "title": f"{one.partition}: {one.rows:,} rows, {format_bytes(one.bytes)}",
            }
            for one in page
        ]
        shown = dict(section("Partitions", page[:50], PARTITION_COLUMNS, "no partition yet"))
        shown["next"] = f"?after={page.next}" if page.next else None
        sections.append(shown)
        consumers = mill.consumers.list(dataset=name, limit=50)
        sections.append(section("Consumers", consumers, CONSUMER_COLUMNS, "no program consumes it"))
    sections.append(
        section("Schedules that listen", mill.schedules.triggered_by(name, limit=50), _LISTENERS, "no schedule listens")
    )
    links = [("Why", link("/why", dataset.name)), ("Lineage", f"/flow?around={dataset.name}")]
    if dataset.spec.get("watermark"):
        links.append(("Watermark", link("/watermarks", dataset.name)))
    return _page(
        request,
        title=dataset.name,
        state=dataset.expectation.state if dataset.expectation else "",
        sub=f"{dataset.kind} · {dataset.location}",
        links=links,
        facts=[
            ("partitions", dataset.partitions if dataset.partitions is not None else "–"),
            ("files", dataset.files),
            ("rows", dataset.rows),
            ("bytes", format_bytes(dataset.bytes)),
            ("expected", dataset.expectation.expect if dataset.expectation else "–"),
        ],
        cells=cells,
        cells_title="Partitions by key",
        cells_sub="darker means more rows",
        sections=sections,
        record=plain(dataset),
        left_out=("name", "partitions", "files", "rows", "bytes", "expectation"),
        command=f"dataset show {dataset.name}",
    )


_LISTENERS: Final = (
    Column("name", "Schedule", "name", "/schedules/{name}"),
    Column("status", "State", "state"),
    Column("trigger", "Trigger", "long"),
)


def show_inbox(request: Request, name: str) -> HTMLResponse:
    """Return the page of an inbox: files by state, quarantine with its ways out."""
    mill: Mill = request.state.mill
    inbox = mill.inboxes.show(name)
    state = request.query_params.get("state", "")
    files = mill.inboxes.files(
        name, limit=50, after=request.query_params.get("after", ""), **({"state": state} if state else {})
    )
    bad = inbox.files.get("QUARANTINED", 0)
    path = link("/v1/inboxes", inbox.inbox)
    actions = [Action("Look now", f"{path}:scan", f"This lists the folder of {inbox.inbox}.", "the folder was listed")]
    if failing := inbox.files.get("ERROR", 0):
        ask = f"This tries {failing} files again at once, without their back-off."
        actions.append(Action("Retry", f"{path}:retry", ask, "the files are offered again"))
    shown = dict(section("Files", files, FILE_COLUMNS, "no file yet"))
    following = f"?after={files.next}" + (f"&state={state}" if state else "")
    shown["next"] = following if files.next else None
    links = [(f"Only {one.lower().replace('_', ' ')}", f"/inboxes/{inbox.inbox}?state={one}") for one in inbox.files]
    return _page(
        request,
        title=inbox.inbox,
        state=inbox.expectation.state if inbox.expectation else "",
        sub=f"inbox · {inbox.location}" + (f" · {bad} in quarantine" if bad else ""),
        actions=actions,
        links=links,
        facts=[(state_of(one)[2], number) for one, number in inbox.files.items()],
        sections=[shown],
        record=plain(inbox),
        left_out=("inbox", "files", "expectation"),
        command=f"inbox show {inbox.inbox}",
    )


def show_consumer(request: Request, dataset: str, name: str) -> HTMLResponse:
    """Return the page of a consumer: its state, what is left, and what was given up."""
    mill: Mill = request.state.mill
    consumer = mill.consumers.show(dataset, name)
    path = link("/v1/consumers", dataset, name)
    actions = []
    if consumer.discarded:
        ask = f"This offers {consumer.discarded} discarded partitions again."
        actions.append(Action("Requeue", f"{path}:requeue", ask, "the partitions are offered again"))
    work = (
        Column("partition", "Partition", "name"),
        Column("state", "State", "state"),
        Column("failures", "Failures", "number"),
        Column("run_id", "Run", "text", "/runs/{run_id}"),
        Column("error", "Error", "long"),
    )
    return _page(
        request,
        title=consumer.name,
        sub=f"consumer of {consumer.dataset}",
        actions=actions,
        links=[("File set", link("/datasets", consumer.dataset))],
        facts=[
            ("waiting", consumer.waiting),
            ("bytes", format_bytes(consumer.bytes)),
            ("in progress", consumer.in_progress),
            ("discarded", consumer.discarded),
        ],
        sections=[section("Held and discarded", consumer.work[:100], work, "nothing is held or discarded")],
        record=plain(consumer),
        left_out=("work", "name", "dataset", "waiting", "bytes", "in_progress", "discarded"),
        command=f"consumer show {consumer.dataset} {consumer.name}",
    )


def show_watermark(request: Request, name: str) -> HTMLResponse:
    """Return the page of a watermark: where it stands, what holds it, and the windows computed by it."""
    mill: Mill = request.state.mill
    watermark = mill.watermarks.show(name)
    slots = (Column("slot", "Slot", "name"), Column("have", "Has", "number"), Column("of", "Of", "number"))
    moves = (
        Column("moved_at", "Moved", "time"),
        Column("before", "From"),
        Column("after", "To", "name"),
        Column("cause", "By", "long"),
    )
    holders = (
        Column("write_pointer", "Transaction", "name", "/transactions/{write_pointer}"),
        Column("began_at", "Began", "time"),
    )
    programs = [plain(one) for one in watermark.programs]
    fields = [name for name in (programs[0] if programs else ()) if not isinstance(programs[0][name], list | dict)]
    return _page(
        request,
        title=watermark.dataset,
        sub=f"watermark of {watermark.column} · zone {watermark.zone}",
        links=[("File set", link("/datasets", watermark.dataset))],
        facts=[
            ("complete up to", watermark.watermark),
            ("would reach", watermark.reaches),
            ("holes", list(watermark.holes)),
        ],
        sections=[
            section("Held by", list(watermark.held_by), holders, "no open transaction holds it"),
            section("Incomplete slots", list(watermark.incomplete), slots, "no slot waits for partitions"),
            {
                **section("Window programs", [], tuple(Column(one, one.replace("_", " ")) for one in fields), "none"),
                "rows": programs,
            },
            section("Moves", list(watermark.moves), moves, "it has not moved yet"),
        ],
        record=plain(watermark),
        left_out=("moves", "held_by", "incomplete", "programs", "dataset"),
        command=f"watermark show {watermark.dataset}",
    )


def show_app(request: Request, name: str) -> HTMLResponse:
    """Return the page of an app: what belongs to it, and its deployments."""
    mill: Mill = request.state.mill
    app = mill.apps.show(name)
    columns = (
        Column("version", "Version", "number"),
        Column("deployed_at", "Deployed", "time"),
        Column("actor", "By"),
        Column("changes", "Changes", "long"),
    )
    history = mill.apps.history(name, limit=20)
    return _page(
        request,
        title=app.name,
        sub=f"app · version {app.version} · {app.file}",
        sections=[section("Deployments", history, columns, "none")],
        record=plain(app),
        left_out=("name", "version"),
        command=f"app show {app.name}",
    )


def show_topic(request: Request, topic: str) -> HTMLResponse:
    """Return the page of a topic: its messages, and the positions of its subscribers."""
    mill: Mill = request.state.mill
    page = mill.topics.read(topic, limit=50, after=request.query_params.get("after", ""))
    shown = dict(section("Messages", page, MESSAGE_COLUMNS, "no message behind this position"))
    shown["next"] = f"?after={page.next}" if page.next else None
    return _page(request, title=topic, sub="topic", sections=[shown], command=f"topic read {quote(topic)}")


def show_transaction(request: Request, write_pointer: int) -> HTMLResponse:
    """Return the page of a transaction: its state, and the changes that it published."""
    mill: Mill = request.state.mill
    found = mill.transactions.show(write_pointer)
    columns = (
        Column("dataset", "Data set", "name", "/datasets/{dataset}"),
        Column("partition", "Partition"),
        Column("op", "Change"),
        Column("rows", "Rows", "number"),
        Column("bytes", "Bytes", "bytes"),
    )
    ask = f"This aborts transaction {write_pointer}, and ends its run."
    abort = Action(
        "Abort", link("/v1/transactions", write_pointer) + ":abort", ask, "the transaction is aborted", danger=True
    )
    return _page(
        request,
        title=f"Transaction {write_pointer:,}",
        state=found.state,
        actions=[abort] if found.state == "in_progress" else (),
        links=[("Run", link("/runs", found.run_id))],
        sections=[section("Published", list(found.published), columns, "it published nothing")],
        record=plain(found),
        left_out=("published",),
        command=f"tx show {write_pointer}",
    )


def show_why(request: Request, thing: str) -> HTMLResponse:
    """Return the page of an explanation: one sentence, then the reasons with their evidence."""
    mill: Mill = request.state.mill
    found = mill.why(thing)
    first = found.because[0].why if found.because else ""
    return _page(
        request,
        title=found.thing,
        state=found.state,
        sub=f"{found.kind} · {first}",
        because=found.because,
        command=f"why {quote(thing)}",
    )
