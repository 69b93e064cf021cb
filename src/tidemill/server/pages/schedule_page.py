"""The pages of a schedule and of its jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import (
    ENDED_COLUMNS,
    Column,
    section,
)
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, show_thing

_JOBS: Final = 50


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
    return show_thing(
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
    return show_thing(
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
