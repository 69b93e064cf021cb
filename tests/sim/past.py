"""A backfill in simulated projects: a person has days of the past done again, while the days go on."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.sim.bucket import location_in
from tests.sim.committed import Committed, plain, refuse
from tests.sim.people import Act, start_person
from tidemill import App, Concurrency, NewPartitions
from tidemill.mill.mill import Mill

if TYPE_CHECKING:
    from tests.sim.projects import Shape
    from tests.sim.simulation import Simulation

STILL_TO_DO: Final = {
    "backfills": "SELECT backfill_id, state FROM main.backfill WHERE state = 'RUNNING' OR running > 0",
}
WATCH: Final = (
    "CREATE TABLE made_by_backfill AS SELECT run_id, backfill_id, '' AS state, 0 AS under_way FROM run WHERE 0",
    (
        "CREATE TRIGGER watch_backfills AFTER INSERT ON run WHEN new.backfill_id IS NOT NULL BEGIN"
        " INSERT INTO made_by_backfill SELECT new.run_id, new.backfill_id, state,"
        " (SELECT count(*) FROM run WHERE backfill_id = new.backfill_id AND ended_at IS NULL)"
        " FROM backfill WHERE backfill_id = new.backfill_id; END"
    ),
)
"""Statements that have each run of a backfill noted, with the runs that were under way then."""


def declare(app: App, shape: Shape, folder: Path, lines: Any, python: Callable[..., Any]) -> None:
    """A program over partitions of `lines`, and one that works on what it publishes."""
    if not shape.refilled:
        return
    days, weeks = (
        app.fileset(name, keys={"name": "string"}, location=location_in(shape.stored, folder, name))
        for name in ("days", "weeks")
    )
    limit = [Concurrency(1)] if shape.one_at_a_time else []
    daily = python("daily", reads=[lines], writes=[days])
    below = python("below", reads=[days], writes=[weeks], retries=1)
    app.schedule("daily", daily, trigger=NewPartitions(lines), constraints=limit)
    app.schedule("below", below, trigger=NewPartitions(days), constraints=limit)


def make_story(simulation: Simulation) -> Iterator[tuple[int, Callable[[], object]]]:
    """Draw data, and a person that starts backfills and changes them, by chance of its own."""
    if not simulation.shape.refilled:
        return
    draw = random.Random(f"past {simulation.seed}")
    for number, key in enumerate(draw.sample("abcn", draw.randint(2, 4))):
        yield (
            draw.randrange(simulation.active // 3),
            lambda n=number, key=key: simulation.publish_by_hand(40 + n, [("append", key)]),
        )
    acts: list[Act] = []
    for _ in range(draw.randint(1, 2)):
        acts.append((draw.randint(2, 15), _draw_start(draw)))
        acts += [
            (draw.randint(0, 6), partial(_change, simulation, draw.choice(_CHANGES))) for _ in range(draw.randint(0, 4))
        ]
    yield draw.randrange(simulation.active), lambda: start_person(simulation, "archivist", acts)


_CHANGES: Final = ("pause", "resume", "retry", "retry", "cancel", "kill")


def _draw_start(draw: random.Random) -> Callable[[Mill], object]:
    select, concurrency, quiet = draw.choice(["all", "all", "unfinished"]), draw.randint(1, 2), draw.random() < 0.5
    return lambda mill: mill.backfills.start("shop.daily", select=select, concurrency=concurrency, quiet=quiet)


def _change(simulation: Simulation, name: str, mill: Mill) -> None:
    """Change the newest backfill."""
    found = simulation.ground.sql("SELECT backfill_id FROM main.backfill ORDER BY created_at DESC, backfill_id DESC")
    if not found:
        return
    (backfill_id,) = found[0]
    match name:
        case "pause":
            mill.backfills.pause(backfill_id)
        case "resume":
            mill.backfills.resume(backfill_id)
        case "retry":
            mill.backfills.retry(backfill_id)
        case _:
            mill.backfills.cancel(backfill_id, kill=name == "kill")


def resume_paused(simulation: Simulation) -> bool:
    """Have people go on with the backfills that are paused; return whether there are any."""
    paused = [one for (one,) in simulation.ground.sql("SELECT backfill_id FROM main.backfill WHERE state = 'PAUSED'")]
    for backfill_id in paused:
        start_person(simulation, "resumer", [(0, lambda mill, one=backfill_id: mill.backfills.resume(one))])
    return bool(paused)


def check(simulation: Simulation, committed: Committed) -> None:
    """Check the items of backfills against their runs, the runs under way, and what comes downstream."""
    if not simulation.shape.refilled:
        return
    sql = simulation.ground.sql
    runs: dict[str, dict[int, list[tuple[str, str, str]]]] = {}
    for run_id, backfill_id, state, reason, cause in sql(
        "SELECT run_id, backfill_id, state, exit_reason, triggered_by FROM run WHERE backfill_id IS NOT NULL"
        " ORDER BY made"
    ):
        items = runs.setdefault(backfill_id, {})
        items.setdefault(json.loads(cause)["item"], []).append((run_id, state, reason or ""))
    limits = {}
    for backfill_id, state, concurrency, *counts in sql(
        "SELECT backfill_id, state, concurrency, waiting, running, done, failed, dropped FROM backfill"
    ):
        limits[backfill_id] = concurrency
        rows = sql(f"SELECT no, item, state, run_id FROM backfill_item WHERE backfill_id = '{backfill_id}'")
        states = Counter(state for _, _, state, _ in rows)
        found = [states[name] for name in ("WAITING", "RUNNING", "DONE", "FAILED", "DROPPED")]
        refuse(counts == found, "dirty", f"{backfill_id} has {counts}, its items are {found}")
        refuse(
            state in {"COMPLETED", "CANCELLED"} and not any(found[:2]), "stuck", f"{backfill_id} is {state}: {found}"
        )
        for no, item, stands, run_id in rows:
            _check_item(
                committed, f"item {no} of {backfill_id}", item, stands, run_id, runs.get(backfill_id, {}).get(no, [])
            )
    for run_id, backfill_id, state, under_way in sql(
        "SELECT run_id, backfill_id, state, under_way FROM made_by_backfill"
    ):
        refuse(under_way <= limits[backfill_id], "limit", f"{run_id} of {backfill_id} is one of {under_way} under way")
        refuse(state != "CANCELLED", "dirty", f"{run_id} was made of {backfill_id}, which had been cancelled")
    _check_downstream(simulation, committed)


def _check_item(
    committed: Committed, what: str, item: str, state: str, run_id: str | None, runs: list[tuple[str, str, str]]
) -> None:
    """Check that an item is done by one run that took it alone, or by none."""
    done = [one for one, ended, reason in runs if ended == "COMPLETED" and reason != "no_input"]
    told = f"{what} is {state} by {run_id}: {runs}"
    refuse(len(done) <= 1, "doubled", told)
    refuse(done == ([run_id] if state == "DONE" else []), "lost", told)
    for one in done:
        taken = {key for _, key, _ in committed.inputs_of(one, "lines")}
        refuse(taken == {item}, "dirty", f"{told} took {taken}")


def _check_downstream(simulation: Simulation, committed: Committed) -> None:
    """Check that each change of `days` came to the program below once, and none of a quiet run."""
    quiet = {
        pointer
        for (pointer,) in simulation.ground.sql(
            "SELECT t.write_pointer FROM tx AS t JOIN run AS r USING (run_id) JOIN backfill AS b USING (backfill_id)"
            " WHERE b.quiet = 1"
        )
    }
    given = Counter(
        (pointer, plain(key))
        for _, _, run_id, name in committed.rows
        if name == "below"
        for pointer, key, _ in committed.inputs_of(run_id, "days")
    )
    heard = {pointer for pointer, _ in given} & quiet
    refuse(not heard, "quiet", f"the program below got {heard} of quiet runs")
    refuse(all(times == 1 for times in given.values()), "doubled", f"the program below got {given}")
    for pointer, key, superseded in simulation.ground.sql(
        "SELECT write_pointer, partition_key, superseded_seq FROM partition_change"
        f" WHERE dataset_id = '{committed.datasets['days']}'"
    ):
        wanted = pointer not in quiet and superseded is None
        refuse(given[pointer, plain(key)] or not wanted, "lost", f"the program below never got {key} of {pointer}")
