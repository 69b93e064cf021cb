"""The pages of a schedule and of its jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.jobs import EndedJobView, JobDetail
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.mill.schedule_views import ScheduleDetail
from tidemill.server.pages.render import link, plain, state_of
from tidemill.server.pages.steps import strip_cell, view_constraints, view_reasons, view_trigger
from tidemill.server.pages.thing import Action, show_page

_JOBS: Final = 50
_LISTED: Final = 10
_FIRES: Final = 5
_OWNERS: Final = {"app": "declared by its app", "ops": "made by hand"}
_SETTINGS: Final = (
    "arguments",
    "constraints",
    "deadline",
    "timeout",
    "on_timeout",
    "trigger_timeout",
    "misfire",
    "grace",
    "waiting_periods",
)


def show_schedule(request: Request, name: str) -> HTMLResponse:
    """Return the page of a schedule: its trigger with live counts, constraints, next times, last jobs."""
    mill: Mill = request.state.mill
    schedule = mill.schedules.show(name)
    ended = mill.jobs.history(schedule.name, limit=_JOBS)
    suspended = schedule.status == "SUSPENDED"
    shown = plain(schedule)
    return show_page(
        request,
        "schedule.html",
        actions=_actions(schedule),
        title=schedule.name,
        schedule=schedule,
        state=schedule.status if suspended or not schedule.job_id else "waits",
        owner=_OWNERS.get(schedule.owner, schedule.owner),
        trigger=view_trigger(schedule.parts),
        constraints=view_constraints(schedule.constraint_parts),
        strip=[_cell(one) for one in reversed(ended.items)],
        strip_title=f"Last {len(ended)} jobs" if len(ended) > 1 else "Last jobs",
        strip_said=_count(ended.items),
        ended=[{**plain(one), "waited": one.ended_at - one.created_at} for one in ended[:_LISTED]],
        fires=mill.schedules.next(schedule.name, limit=_FIRES),
        settings={one: shown[one] for one in _SETTINGS if shown[one]},
        command=f"schedule show {schedule.name}",
    )


def _actions(schedule: ScheduleDetail) -> list[Action]:
    path = link("/v1/schedules", schedule.name)
    body = json.dumps({"program": schedule.program, "arguments": _given(schedule.arguments)})
    start = Action("Start now", "/v1/runs", f"This starts a run of {schedule.program}.", "a run is pending", body=body)
    drops = "drops 1 pending job" if schedule.job_id else "drops no job"
    if schedule.status == "SUSPENDED":
        change = Action("Resume", f"{path}:resume", f"{schedule.name} listens again.", "the schedule listens")
    else:
        ask = f"{schedule.name} starts no run until it is resumed. This {drops}, and what comes meanwhile feeds no job."
        label = "Suspend · drops 1 job" if schedule.job_id else "Suspend"
        change = Action(label, f"{path}:suspend", ask, "the schedule is suspended", danger=True)
    back = " The next deployment of its app brings it back." if schedule.owner == "app" else ""
    ask = f"This deletes {schedule.name}, and {drops}.{back}"
    done = "the schedule is deleted"
    delete = Action("Delete", path, ask, done, right=Right.DEPLOY, method="DELETE", danger=True, then="/schedules")
    return [start, change, delete]


def _cell(job: EndedJobView) -> Mapping[str, str]:
    shape, words = strip_cell(job.outcome, job.run_state)
    return {"shape": shape, "link": link("/jobs", job.job_id), "title": f"{words}: {job.job_id}"}


def _count(jobs: Iterable[EndedJobView]) -> str:
    """Say how the jobs have ended: `46 completed, 3 failed, 1 timed out`."""
    ends = Counter(state_of(one.run_state or one.outcome)[2] for one in jobs)
    return ", ".join(f"{number} {words}" for words, number in ends.most_common())


def _given(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Return the arguments whose values are plain: those that a schedule computes are the program's defaults here."""
    return {name: value for name, value in arguments.items() if not isinstance(value, Mapping | list)}


def show_job(request: Request, job_id: str) -> HTMLResponse:
    """Return the page of a job: what it waits for, with the evidence."""
    mill: Mill = request.state.mill
    job = mill.jobs.show(job_id)
    waiting: dict[str, Any] = {"trigger": (), "constraints": (), "looked_at": None, "ended_at": None, "run_id": None}
    actions: list[Action] = []
    if isinstance(job, JobDetail):
        path = link("/v1/jobs", job_id)
        ask = f"This drops {job_id}. What fed it starts no run. What the program has left to take stays."
        actions = [
            Action(
                "Start now", f"{path}:force", "This starts a run now, whatever the job waits for.", "the job is a run"
            ),
            Action("Drop", f"{path}:drop", ask, "the job is dropped", danger=True),
        ]
        waiting |= {"trigger": view_trigger(job.parts), "constraints": view_constraints(job.constraints)}
        waiting["looked_at"] = job.next_check_at
    else:
        waiting |= {"ended_at": job.ended_at, "run_id": job.run_id}
    return show_page(
        request,
        "job.html",
        actions=actions,
        title=job.schedule,
        job=job,
        state=job.state if isinstance(job, JobDetail) else job.outcome,
        sentence=f"waits: {job.why}" if isinstance(job, JobDetail) else job.because[0].why,
        reasons=view_reasons(job.because),
        triggers=job.triggers,
        command=f"job show {job_id}",
        **waiting,
    )
