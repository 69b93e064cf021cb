"""Promises about backfills after the storm."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tests.chaos.breadth import rows_by_key

if TYPE_CHECKING:
    from tests.chaos.verdict import Judge

_STATES: Final = ("WAITING", "RUNNING", "DONE", "FAILED", "DROPPED")


def judge_backfills(judge: Judge) -> None:
    """Each item is done once or says why not; counters agree, and no more runs were under way than were allowed."""
    runs: dict[str, list[tuple[int, int, str, str]]] = {}
    for backfill_id, began, ended, run_id, state in judge.sql(
        "SELECT backfill_id, created_at, ended_at, run_id, state FROM run WHERE backfill_id IS NOT NULL"
    ):
        runs.setdefault(backfill_id, []).append((began, ended, run_id, state))
    finished: set[str] = set()
    totals: Counter[str] = Counter()
    states: Counter[str] = Counter()
    for backfill_id, state, concurrency, *counters in judge.sql(
        "SELECT backfill_id, state, concurrency, waiting, running, done, failed, dropped FROM backfill"
    ):
        states[state] += 1
        items = judge.sql(f"SELECT state, run_id FROM backfill_item WHERE backfill_id = '{backfill_id}'")
        counts = Counter(found for found, _ in items)
        totals += counts
        finished |= {run_id for found, run_id in items if found == "DONE"}
        if counters != [counts[name] for name in _STATES]:
            judge.verdict.differing.append(f"{backfill_id} counts {counters}, its items are {counts}")
        if counts["WAITING"] or counts["RUNNING"]:
            judge.verdict.stuck.append(f"{backfill_id} is {state}: {counts}")
        # A run that is made in the same millisecond as another one ends was made after that end.
        moves = sorted(move for began, ended, *_ in runs.get(backfill_id, ()) for move in ((began, 1), (ended, -1)))
        most = under_way = 0
        for _, move in moves:
            under_way += move
            most = max(most, under_way)
        if most > concurrency:
            judge.verdict.differing.append(f"{backfill_id} had {most} runs under way, not {concurrency}")
    completed = {run_id for made in runs.values() for _, _, run_id, state in made if state == "COMPLETED"}
    judge.verdict.dirty += [f"an item is done by {run_id}, which is not completed" for run_id in finished - completed]
    judge.verdict.doubled += [f"{run_id} is completed and of no done item" for run_id in completed - finished]
    _judge_minutes(judge)
    judge.verdict.counts["backfills completed"] = states["COMPLETED"]
    judge.verdict.counts["backfills cancelled"] = states["CANCELLED"]
    for name in ("DONE", "FAILED", "DROPPED"):
        judge.verdict.counts[f"items {name.lower()}"] = totals[name]


def _judge_minutes(judge: Judge) -> None:
    """Each completed run of the program has published its minute once."""
    rows = Counter(row for _, files in rows_by_key(judge, "hours") for texts in files for row in texts)
    wanted = Counter(
        f"{datetime.fromtimestamp(json.loads(text)['logical_time'] / 1000, tz=UTC):%Y-%m-%dT%H:%M}"
        for (text,) in judge.sql(
            "SELECT r.triggered_by FROM run AS r JOIN program AS p USING (program_id)"
            " WHERE p.name = 'remember' AND r.state = 'COMPLETED'"
        )
    )
    judge.verdict.doubled += [f"minute {row} was remembered {n} times" for row, n in rows.items() if n > 1]
    judge.verdict.lost += [f"minute {row} is not in hours" for row in (wanted - rows).elements()]
    judge.verdict.dirty += [f"minute {row} came from nowhere" for row in (rows - wanted).elements()]
