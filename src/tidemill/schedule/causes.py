"""Causes of runs: the feed of each leaf of a schedule's trigger, as the run's record keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.catalog.db import Db
from tidemill.catalog.records import to_json
from tidemill.json_specs import read_plain, write_plain
from tidemill.names import JobId
from tidemill.run.records.triggers import LeafRecord, Place, leaves_of
from tidemill.schedule.jobs import EndedJob, Job, MessageRef, Progress, alike, read_job_messages
from tidemill.schedule.specs import Schedule
from tidemill.schedule.triggers import Fed


def describe_cause(
    schedule: Schedule, fed: Mapping[int, Fed], messages: Sequence[MessageRef], now: datetime
) -> dict[str, object]:
    """Return the cause for a run's record: the feed of each leaf, with the positions of its messages."""
    return _caused(schedule, _describe_feeds(schedule, fed, messages, now))


def describe_causes(
    jobs: Sequence[tuple[Job, Schedule]], messages: Mapping[JobId, Sequence[MessageRef]], now: datetime
) -> list[dict[str, object]]:
    """Return the cause of each of `jobs`. Jobs that no message has fed share the feeds of their leaves, if alike."""
    shared: dict[tuple[int, int], dict[str, object]] = {}
    causes: list[dict[str, object]] = []
    for job, schedule in jobs:
        if own := messages.get(job.job_id):
            feeds = _describe_feeds(schedule, job.fed, own, now)
        elif (found := shared.get(key := alike(job, schedule))) is not None:
            feeds = found
        else:
            feeds = shared[key] = _describe_feeds(schedule, job.fed, (), now)
        causes.append(_caused(schedule, feeds))
    return causes


def _caused(schedule: Schedule, feeds: Mapping[str, object]) -> dict[str, object]:
    return {"schedule": schedule.qualified_name, "generation": schedule.generation, **feeds}


def _describe_feeds(
    schedule: Schedule, fed: Mapping[int, Fed], messages: Sequence[MessageRef], now: datetime
) -> dict[str, object]:
    leaves = schedule.spec.trigger.leaves
    fires = sorted({at for one in fed.values() for at in one.fires})
    return {
        "logical_time": fires[-1] if fires else None,
        "logical_times": fires,
        "triggers": [
            {
                "trigger_no": trigger_no,
                "trigger": str(leaves[trigger_no]),
                **write_plain(leaves[trigger_no]),
                "why": leaves[trigger_no].check([one], now).why,
                "count": one.count,
                "backlog": one.backlog,
                "fires": one.fires,
                "messages": [(m.topic, m.seq, m.n) for m in messages if m.trigger_no == trigger_no],
            }
            for trigger_no, one in sorted(fed.items())
        ],
    }


def leaves_of_job(db: Db, job: Job, schedule: Schedule) -> list[LeafRecord]:
    """Return the feed of each leaf of an open job."""
    messages = read_job_messages(db, [job.job_id]).get(job.job_id, [])
    return _leaves(schedule, job.fed, messages, db.now())


def leaves_of_dropped(db: Db, job: EndedJob, schedule: Schedule | None) -> list[LeafRecord]:
    """Return the feed of each leaf of a job that ended without a run.

    `schedule` is the job's, as it is now. After a change of the schedule, the leaves have numbers in place of texts.
    """
    detail: Mapping[str, Any] = job.detail
    messages = [MessageRef(*ref) for ref in detail["messages"]]
    fed = read_plain(Progress, detail["fed"]).fed
    if schedule is not None and schedule.generation == job.generation:
        return _leaves(schedule, fed, messages, db.now())
    return [
        LeafRecord(
            f"trigger {trigger_no} of generation {job.generation}",
            "the schedule was changed or deleted since",
            one.count,
            one.backlog,
            one.fires,
            [Place(m.topic, m.seq, m.n) for m in messages if m.trigger_no == trigger_no],
        )
        for trigger_no, one in sorted(fed.items())
    ]


def _leaves(
    schedule: Schedule, fed: Mapping[int, Fed], messages: Sequence[MessageRef], now: datetime
) -> list[LeafRecord]:
    return leaves_of(json.loads(to_json(describe_cause(schedule, fed, messages, now))))
