"""What must hold of watermarks and windows at the end of a simulated schedule, by their definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.sim.committed import Committed, fold, plain, publish, refuse
from tests.sim.windows import HOUR, PARTS, Kind, name_of
from tests.sql.plain import starts_of
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import read_partitions
from tidemill.lake.window.partition_time import from_wall, to_wall
from tidemill.names import WritePointer

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Published = Mapping[str, list[str]]
STILL_TO_DO: Final = {
    "watermarks": "SELECT dataset_id, target FROM watermark WHERE target > coalesce(value, -4611686018427387904)",
    "windows": "SELECT p.name FROM window_program AS p JOIN watermark AS w ON w.dataset_id = p.dataset_id"
    " WHERE w.value > coalesce(p.computed, -4611686018427387904)",
    "late": "SELECT p.name, c.partition_key FROM window_program AS p JOIN partition_change AS c"
    " ON c.dataset_id = p.dataset_id AND c.commit_seq >= p.seen AND c.partition_time < p.computed"
    " WHERE p.late = 'recompute'",
    "set aside": "SELECT program_id, window_start, reason FROM window_failure",
    "boundaries": "SELECT schedule_id, next_at, last_at FROM boundary",
    "put off": "SELECT program_id, retry_at FROM window_program WHERE retry_at IS NOT NULL",
}


def check(simulation: Simulation, committed: Committed) -> None:
    """Raise `Broken` for the first promise that does not hold."""
    if simulation.shape.windowed:
        moves = _check_watermark(simulation, committed)
        _check_windows(simulation, committed, moves)
        _check_boundaries(simulation, committed, moves)


def _check_watermark(simulation: Simulation, committed: Committed) -> list[tuple[int, int]]:
    """Each move is told once and goes on from the last, none passes what is complete or held; gives commit and W."""
    sql = simulation.ground.sql
    rows = sql("SELECT commit_seq, previous, value FROM watermark_move ORDER BY commit_seq")
    before = None
    for seq, previous, value in rows:
        refuse(previous == before and (before is None or value > before), "dirty", f"W moves {rows} at {seq}")
        before = value
    messages = sql("SELECT seq, payload FROM message WHERE event_type = 'watermark' ORDER BY seq, n")
    told = [(seq, json.loads(text)["from"], json.loads(text)["to"]) for seq, text in messages]
    first = [n for n, (_, text) in enumerate(messages) if "since" in json.loads(text)]
    refuse(first == [0][: len(messages)], "dirty", f"{messages}")
    refuse(told == rows, "lost", f"W moved {rows}, told was {told}")
    moves = [(seq, value) for seq, _, value in rows]
    targets = list(_find_targets(simulation, committed))
    for seq, value in moves:
        reached = _last(targets, seq + 1)
        refuse(reached is not None and value <= reached, "dirty", f"W is {value} at {seq}, complete is {reached}")
    refuse(_last(moves, 2**62) == _last(targets, 2**62), "lost", f"W moved {moves}, complete became {targets}")
    ends = {pointer: seq for pointer, seq, *_ in committed.rows}
    for pointer, (begins, until) in simulation.ticks.spans.items():
        for seq, previous, value in rows:
            held = pointer < seq < ends.get(pointer, 0) and (previous is None or previous < until)
            refuse(not held or value <= begins, "dirty", f"W passed {begins} at {seq}, which {pointer} held")
    # Who died in his begin has not told what he declared.
    died = "SELECT tx.write_pointer FROM tx JOIN run USING (run_id) WHERE kind = 'external' AND tx.state <> 'committed'"
    holders = {*simulation.ticks.spans, *(pointer for (pointer,) in sql(died))}
    for seq, target in targets:
        held = any(pointer < seq < ends.get(pointer, 2**62) for pointer in holders)
        refuse(held or _last(moves, seq + 1) == target, "lost", f"W did not become {target} with {seq}: {moves}")
    return moves


def _find_targets(simulation: Simulation, committed: Committed) -> Iterator[tuple[int, int | None]]:
    """With each commit of ticks, up to when they are complete."""
    kind = simulation.shape.windows
    parts: dict[int, set[str]] = {}
    target: int | None = None
    waits_for: int | None = None
    hour = HOUR // timedelta(microseconds=1)
    for pointer, seq, *_ in committed.rows:
        keys = fold(simulation.intents.get(pointer, ()), "ticks")
        for key in keys:
            time, _, part = key.partition("!")
            parts.setdefault(to_wall(datetime.strptime(time, "%Y%m%d%H")), set()).add(part)  # noqa: DTZ007
        complete = {time for time, found in parts.items() if not kind.pairs or len(found) == len(PARTS)}
        if kind.gap == "skip":
            target = max((time + hour for time in complete), default=None)
        elif parts:
            at = min(parts) if waits_for is None else waits_for
            while at in complete:
                at += hour
                waits_for, target = at, at if target is None else max(target, at)
        if keys:
            yield seq, target


def _check_boundaries(simulation: Simulation, committed: Committed, moves: list[tuple[int, int]]) -> None:
    """Each hour that was passed is a logical time of one run, from the first slot on; and of a run of its own."""
    hour = HOUR // timedelta(microseconds=1)
    # A transaction may hold the first move at an hour before all that are there.
    first = min([moves[0][1], *_find_hours(simulation, committed, moves[0][0])]) if moves else 0
    wanted = [number * 3_600_000 for number in range(first // hour + 1, moves[-1][1] // hour + 1)] if moves else []
    # In the order in which the runs were made, which no clock says that is set back.
    causes = simulation.ground.sql(
        "SELECT r.rowid, r.triggered_by FROM run AS r JOIN program AS p USING (program_id)"
        " WHERE p.name = 'gather' AND r.schedule_id IS NOT NULL"
    )
    times = [(made, json.loads(text)["logical_times"]) for made, text in causes]
    told = [at for _, at in sorted((made, at) for made, several in times for at in several)]
    if simulation.suspended:  # hours that passed meanwhile were announced at the resumption, as work
        wanted = sorted(set(told) & set(wanted))
    refuse(told == wanted, "lost", f"runs were told {told}, passed was {wanted}")
    alone = simulation.shape.windows.mode != "each" or all(len(several) < 2 for _, several in times)
    refuse(alone, "dirty", f"a run was told several of {times}")
    if simulation.shape.windows.mode == "each" and not simulation.suspended:
        _check_turns(simulation)


def _check_turns(simulation: Simulation) -> None:
    """The run of an hour begins when the run of the hour before has ended: by their ticks, which no clock sets back."""
    attempts = simulation.ground.sql(
        "SELECT r.rowid, min(tx.write_pointer), max(max(tx.write_pointer, coalesce(tx.commit_seq, 0)))"
        "  FROM run AS r JOIN program AS p USING (program_id) JOIN tx ON tx.run_id = r.run_id"
        " WHERE p.name = 'gather' AND json_array_length(r.triggered_by, '$.logical_times') > 0 GROUP BY r.rowid"
    )
    for (one, _, ends), (other, begins, _) in pairwise(sorted(attempts)):
        refuse(begins > ends, "dirty", f"run {other} of an hour began at {begins}, run {one} before it ended at {ends}")


def _find_hours(simulation: Simulation, committed: Committed, until: int) -> Iterator[int]:
    """The hours of which ticks were committed by the commit `until`."""
    for pointer, seq, *_ in committed.rows:
        if seq <= until:
            for key in fold(simulation.intents.get(pointer, ()), "ticks"):
                yield to_wall(datetime.strptime(key.partition("!")[0], "%Y%m%d%H"))  # noqa: DTZ007  # of UTC


def _last(moves: list[tuple[int, Any]], before: int) -> Any:
    """What the last of `moves` before a commit came to."""
    return next((value for seq, value in reversed(moves) if seq < before), None)


def _check_windows(simulation: Simulation, committed: Committed, moves: list[tuple[int, int]]) -> None:
    """Each window is there once, as it follows from what its run saw, or from all that is published; none too early."""
    sql, kind = simulation.ground.sql, simulation.shape.windows
    pointers = {seq: pointer for pointer, seq, *_ in committed.rows}
    computed, results = None, dict[str, list[str]]()
    for seq, text in sql("SELECT seq, payload FROM message WHERE event_type = 'windows' ORDER BY seq"):
        said, pointer = json.loads(text), pointers[seq]
        refuse(said["from"] == computed, "dirty", f"{pointer} went on from {said['from']}, computed was {computed}")
        reached, passed = said["to"], _last(moves, pointer)
        what = f"{pointer} computed to {reached} from {computed}, W was {passed}"
        refuse(computed is None or reached >= computed, "dirty", what)
        refuse(reached is None or (passed is not None and reached <= max(passed, computed or passed)), "dirty", what)
        shown = gather(kind, publish(simulation, committed, "ticks", before=pointer), reached)
        new = {start: ticks for start, ticks in shown.items() if computed is None or _closes(kind, start) > computed}
        failed = {name_of(from_wall(start)) for start, _ in said["failed"]}
        new = {start: ticks for start, ticks in new.items() if start not in failed}
        refuse(said["closed"] == len(new), "lost", f"{what}: {said['closed']} windows, not {sorted(new)}")
        mended = {name_of(from_wall(start)) for start, _ in said["mended"]}
        results |= new | {start: shown[start] for start in mended & shown.keys()}
        computed = reached
    if kind.late == "recompute":
        results = gather(kind, publish(simulation, committed, "ticks"), computed)
    dataset_id: Any = committed.datasets["hourly"]
    everything = Snapshot(WritePointer(2**62), simulation.ground.catalog.incarnation)
    partitions = simulation.ground.catalog.read(lambda db: read_partitions(db, dataset_id, everything))
    found: dict[str, list[str]] = {}
    for partition in partitions:
        files = [simulation.folder / "hourly" / name for name, _ in partition.files]
        found[plain(partition.partition_key)] = sorted(line for file in files for line in file.read_text().splitlines())
    refuse(found == results, "dirty", f"the windows are {found}, not {results} ({kind})")


def gather(kind: Kind, ticks: Published, until: int | None) -> dict[str, list[str]]:
    """One plain computation: what lies in each window that closes at `until` or before, by its start."""
    found: dict[str, list[str]] = {}
    for key, tokens in ticks.items():
        time = datetime.strptime(key.partition("!")[0], "%Y%m%d%H")  # noqa: DTZ007  # a wall-clock time of UTC
        for start in starts_of(time, HOUR * kind.slide, HOUR * kind.size):
            if until is not None and _closes(kind, name_of(start)) <= until:
                found.setdefault(name_of(start), []).extend(tokens)
    return {start: sorted(tokens) for start, tokens in found.items()}


def _closes(kind: Kind, start: str) -> int:
    return to_wall(datetime.strptime(start, "%Y%m%d%H") + HOUR * kind.size)  # noqa: DTZ007  # of UTC
