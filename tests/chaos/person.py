"""Person of the chaos: resumes and kills workflows, and starts, pauses, resumes, cancels and retries backfills."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from tidemill.errors import Conflict, NotFound
from tidemill.mill.mill import Mill

WORKFLOW: Final = "chaos.unpack"
BACKFILLED: Final = "chaos.remember"
_FIRST: Final = datetime(1975, 1, 1, tzinfo=UTC)
_DAYS: Final = 18_000
"""Number of days after the first one: each second has another one of them, for five hours."""
LAST_YEAR: Final = 2024
"""Year of the last of these days."""
_MOST_ITEMS: Final = 60
_MOST_AT_ONCE: Final = 4
_SEEN: Final = 20
"""Runs and backfills that a person looks at, newest first."""


def act(mill: Mill, chance: random.Random) -> None:
    """Take one step: resume what has failed, or change the newest backfill, or start the next one."""
    # Another process may have been faster, or retention may have deleted what the person looked at.
    with suppress(Conflict, NotFound):
        _act(mill, chance)


def _act(mill: Mill, chance: random.Random) -> None:
    if chance.random() < 0.4:
        _resume_workflows(mill)
        if chance.random() < 0.1:
            _kill_a_workflow(mill, chance)
        return
    found = mill.backfills.list(limit=1)
    if not found or found[0].ended_at is not None:
        if found and found[0].state == "COMPLETED" and found[0].failed and chance.random() < 0.7:
            mill.backfills.retry(found[0].backfill_id)
        else:
            _start_a_backfill(mill, chance)
        return
    backfill_id, draw = found[0].backfill_id, chance.random()
    if found[0].state == "PAUSED" and draw < 0.7:
        mill.backfills.resume(backfill_id)
    elif draw < 0.04:
        mill.backfills.cancel(backfill_id, kill=chance.random() < 0.5)
    elif draw < 0.2:
        mill.backfills.pause(backfill_id)
    elif draw < 0.5:
        mill.backfills.retry(backfill_id)


def tidy_up(mill: Mill) -> None:
    """Let all that people have begun come to its end: no workflow holds files, no backfill is paused."""
    _resume_workflows(mill)
    for one in mill.backfills.list(state="paused"):
        with suppress(Conflict, NotFound):
            mill.backfills.resume(one.backfill_id)


def _resume_workflows(mill: Mill) -> None:
    for run in mill.runs.list(program=WORKFLOW, state="failed", limit=_SEEN):
        # As in `act`, and the claims may be returned. The other workflows are resumed all the same.
        with suppress(Conflict, NotFound):
            workflow = mill.runs.show(run.run_id).workflow
            if workflow is not None and workflow.claims == "held":
                mill.runs.retry(run.run_id)


def _kill_a_workflow(mill: Mill, chance: random.Random) -> None:
    if found := mill.runs.list(program=WORKFLOW, state="running", limit=_SEEN):
        mill.runs.kill(chance.choice(list(found)).run_id)


def _start_a_backfill(mill: Mill, chance: random.Random) -> None:
    """Start a backfill of minutes of a day that no other backfill has, nor one that retention has deleted."""
    begins = _FIRST + timedelta(days=int(time.time()) % _DAYS)
    mill.backfills.start(
        BACKFILLED,
        by="times",
        schedule="chaos.every_minute",
        since=begins,
        until=begins + timedelta(minutes=chance.randint(10, _MOST_ITEMS)),
        concurrency=chance.randint(1, _MOST_AT_ONCE),
        priority=chance.choice([-1, 1]),
        quiet=chance.random() < 0.3,
    )
