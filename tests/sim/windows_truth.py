"""Promises about watermarks and windows at the end of a simulated schedule, by their definitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.sim.committed import Committed, fold, plain, publish, refuse
from tests.sim.windows import EVER, HOUR, PARTS, SIDE, Kind, name_of
from tests.sql.plain import starts_of
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import read_partitions
from tidemill.names import WritePointer
from tidemill.shapes.partition_time import from_wall, to_wall

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Published = Mapping[str, list[str]]
_HOUR: Final = HOUR // timedelta(microseconds=1)
STILL_TO_DO: Final = {
    "watermarks": "SELECT dataset_id, target FROM watermark WHERE target > coalesce(value, -4611686018427387904)",
    "windows": "SELECT p.name FROM window_program AS p JOIN window_input AS i ON i.program_id = p.program_id"
    " JOIN watermark AS w ON w.dataset_id = i.dataset_id"
    # A person may advance it within an hour, or before there are any ticks: no window closes then.
    " WHERE w.value / 3600000000 > p.computed / 3600000000 OR p.computed IS NULL AND EXISTS"
    " (SELECT 1 FROM partition_change AS c WHERE c.dataset_id = i.dataset_id"
    " AND c.partition_time / 3600000000 < w.value / 3600000000)",
    "late": "SELECT p.name, c.partition_key FROM window_program AS p JOIN window_input AS i"
    " ON i.program_id = p.program_id JOIN partition_change AS c"
    " ON c.dataset_id = i.dataset_id AND c.commit_seq >= p.seen AND c.partition_time < p.computed"
    " WHERE i.late <> 'drop'",
    "set aside": "SELECT program_id, window_start, reason FROM window_failure",
    "boundaries": "SELECT schedule_id, next_at, last_at FROM boundary",
    "put off": "SELECT program_id, retry_at FROM window_program WHERE retry_at IS NOT NULL",
}


class Move(NamedTuple):
    """A move of the watermark, and what person has asked for it, if any."""

    seq: int
    previous: int | None
    value: int
    by: str


def check(simulation: Simulation, committed: Committed) -> None:
    """Raise `Broken` for the first promise that does not hold."""
    if simulation.shape.windowed:
        moves = _read_moves(simulation)
        _check_watermark(simulation, committed, moves)
        _check_windows(simulation, committed, moves)
        _check_boundaries(simulation, committed, moves)


def _read_moves(simulation: Simulation) -> list[Move]:
    """Read the moves. Each continues from the last, forward unless a person moves back, and names its cause."""
    rows = simulation.ground.sql("SELECT commit_seq, previous, value, cause FROM watermark_move ORDER BY commit_seq")
    moves = [Move(seq, previous, value, cause.partition("by hand: ")[2]) for seq, previous, value, cause in rows]
    before = None
    for move in moves:
        act, to = simulation.ticks.asked[move.by] if move.by else ("", move.value)
        goes_on = before is None or (move.value < before if act == "rewind" else move.value > before)
        refuse(move.previous == before and goes_on and move.value == to, "dirty", f"W moves {rows} at {move}")
        before = move.value
    by_hand = Counter(move.by for move in moves if move.by)
    refuse(all(by_hand[name] == 1 for name in simulation.ticks.moved), "lost", f"W moves {rows} by {by_hand}")
    refuse(max(by_hand.values(), default=1) == 1, "doubled", f"W moves {rows} by {by_hand}")
    return moves


def _check_watermark(simulation: Simulation, committed: Committed, moves: list[Move]) -> None:
    """Check that each move is announced once, and passes nothing complete or held unless a person asks for that."""
    sql = simulation.ground.sql
    messages = sql("SELECT seq, payload FROM message WHERE event_type = 'watermark' ORDER BY seq, n")
    told = [(seq, json.loads(text)["from"], json.loads(text)["to"]) for seq, text in messages]
    first = [n for n, (_, text) in enumerate(messages) if "since" in json.loads(text)]
    begun = bool(moves) and any(True for _ in _find_hours(simulation, committed, moves[0].seq))
    refuse(first == [0] * begun, "dirty", f"{messages}")
    rows = [(move.seq, move.previous, move.value) for move in moves]
    refuse(told == rows, "lost", f"W moved {rows}, told was {told}")
    values = [(move.seq, move.value) for move in moves]
    targets = list(_find_targets(simulation, committed, moves))
    for seq, value in values:
        reached = _last(targets, seq + 1)
        refuse(reached is not None and value <= reached, "dirty", f"W is {value} at {seq}, complete is {targets}")
    refuse(_last(values, 2**62) == _last(targets, 2**62), "lost", f"W moved {moves}, complete became {targets}")
    ends = {pointer: seq for pointer, seq, *_ in committed.rows}
    for pointer, (begins, until) in simulation.ticks.spans.items():
        for seq, previous, value, by in moves:
            held = pointer < seq < ends.get(pointer, 0) and (previous is None or previous < until) and not by
            refuse(not held or value <= begins, "dirty", f"W passed {begins} at {seq}, which {pointer} held")
    # A notebook that died in its begin has not declared its span.
    died = "SELECT tx.write_pointer FROM tx JOIN run USING (run_id) WHERE kind = 'external' AND tx.state <> 'committed'"
    holders = {*simulation.ticks.spans, *(pointer for (pointer,) in sql(died))}
    advances = {move.seq for move in moves if move.by and simulation.ticks.asked[move.by][0] == "advance"}
    for seq, target in targets:
        # What lies beyond an advance, and is complete, is passed a moment later.
        held = seq in advances or any(pointer < seq < ends.get(pointer, 2**62) for pointer in holders)
        refuse(held or _last(values, seq + 1) == target, "lost", f"W did not become {target} with {seq}: {moves}")


class _Slots:
    """The hours that are there or complete, as commits come and people move the watermark."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._enough = len(PARTS) if kind.pairs else 1
        self._parts: dict[int, set[str]] = {}
        self._declared: set[int] = set()
        """Time slots that a declared span has completed."""
        self._waits_for: int | None = None
        self._floor: int | None = None
        """Time to which a person has moved the watermark."""
        self._passed: int | None = None
        """The end of the unbroken run of hours."""

    def drop(self, keys: Iterable[str]) -> None:
        """Partitions are gone: they do not complete their hour, unless it is complete already."""
        for key in keys:
            time, _, part = key.partition("!")
            parts = self._parts.get(_hour_of(time), set())
            if len(parts) < self._enough:
                parts.discard(part)

    def add(self, keys: Iterable[str], span: tuple[int, int] | None) -> None:
        """Take in the partitions of a commit, and what it has declared."""
        for key in keys:
            time, _, part = key.partition("!")
            self._parts.setdefault(_hour_of(time), set()).add(part)
        self._declared.update(_whole_hours(self._kind, span))

    def advance(self, to: int) -> None:
        """Stop waiting for earlier time slots."""
        self._floor = to
        if any(time <= to for time in self._known):
            self._waits_for = max(to // _HOUR * _HOUR, -EVER if self._waits_for is None else self._waits_for)

    def rewind(self, to: int) -> None:
        """Wait again for time slots that end later."""
        beyond = {time for time in self._known if time + _HOUR > to}
        if self._waits_for is not None and (beyond or self._known):
            goes_on = to // _HOUR * _HOUR if self._known - beyond or to in beyond else min(beyond)
            self._waits_for = min(self._waits_for, goes_on)
        self._floor = to
        self._passed = None if self._passed is None else min(self._passed, to)
        self._declared -= beyond
        self._parts = {time: parts for time, parts in self._parts.items() if time not in beyond}

    @property
    def _known(self) -> set[int]:
        return {*self._parts} | self._declared

    def reach(self) -> int | None:
        """Up to when all is complete, or counts as complete."""
        complete = {time for time, parts in self._parts.items() if len(parts) >= self._enough} | self._declared
        if self._kind.gap == "skip":
            self._passed = max((time + _HOUR for time in complete), default=None)
        elif self._known:
            at = min(self._known) if self._waits_for is None else self._waits_for
            while at in complete:
                at += _HOUR
                self._waits_for = at
                self._passed = at if self._passed is None else max(self._passed, at)
        return max((value for value in (self._floor, self._passed) if value is not None), default=None)


def _find_targets(simulation: Simulation, committed: Committed, moves: list[Move]) -> Iterator[tuple[int, int | None]]:
    """With each commit that brings or completes hours, and each move by hand, up to when ticks are complete.

    A commit that does neither, such as a drop of nothing, moves no watermark: what its declared span held, the keeper
    or the next of these commits releases, at the latest when all is quiet.
    """
    slots = _Slots(simulation.shape.windows)
    by_hand = {move.seq: move for move in moves if move.by}
    pointers = {seq: pointer for pointer, seq, *_ in committed.rows}
    for seq in sorted({*pointers, *by_hand}):
        if seq in by_hand:
            act, to = simulation.ticks.asked[by_hand[seq].by]
            if act == "advance":
                slots.advance(to)
            else:
                slots.rewind(to)
        else:
            slots.drop(_find_dropped(simulation, pointers[seq]))
            keys, span = _find_written(simulation, pointers[seq])
            if not keys and not any(True for _ in _whole_hours(simulation.shape.windows, span)):
                continue
            slots.add(keys, span)
        yield seq, slots.reach()


def _find_written(simulation: Simulation, pointer: int) -> tuple[list[str], tuple[int, int] | None]:
    """The partitions of ticks that a transaction brings, and the span that it has declared."""
    writes = fold(simulation.intents.get(pointer, ()), "ticks")
    return [key for key, write in writes.items() if not write.drops], simulation.ticks.spans.get(pointer)


def _find_dropped(simulation: Simulation, pointer: int) -> list[str]:
    """The partitions of ticks that a transaction drops."""
    return [key for key, write in fold(simulation.intents.get(pointer, ()), "ticks").items() if write.drops]


def _whole_hours(kind: Kind, span: tuple[int, int] | None) -> Iterator[int]:
    """The hours that the commit of a declared span completes, whatever is in them."""
    if span is not None and span[0] > -EVER and span[1] < EVER and not kind.pairs:
        first = -(-span[0] // _HOUR) * _HOUR
        yield from range(first, span[1] - _HOUR + 1, _HOUR)


def _hour_of(time: str) -> int:
    return to_wall(datetime.strptime(time, "%Y%m%d%H"))  # noqa: DTZ007  # of UTC


def _check_boundaries(simulation: Simulation, committed: Committed, moves: list[Move]) -> None:
    """Check that each passed hour, from the first slot on, is a logical time of one run, and of a run of its own.

    An hour that a person's rewind has reopened is a logical time again when the watermark passes the hour again. An
    hour whose message was unread at the rewind waits until then.
    """
    # In the order in which the runs were made, which no clock says that is set back.
    causes = simulation.ground.sql(
        "SELECT r.made, r.triggered_by FROM run AS r JOIN program AS p USING (program_id)"
        " WHERE p.name = 'gather' AND r.schedule_id IS NOT NULL"
    )
    times = [(made, json.loads(text)["logical_times"]) for made, text in causes]
    told = [at for _, at in sorted((made, at) for made, several in times for at in several)]
    alone = simulation.shape.windows.mode != "each" or all(len(several) < 2 for _, several in times)
    refuse(alone, "dirty", f"a run was told several of {times}")
    if simulation.shape.windows.mode == "each" and not simulation.suspended:
        _check_turns(simulation)
    stretches = list(_find_stretches(simulation, committed, moves))
    if simulation.suspended:  # hours that passed meanwhile were announced at the resumption, as work
        passed = {at for stretch, _ in stretches for at in stretch}
        once = len(stretches) > 1 or told == sorted({*told})
        refuse(once and {*told} <= passed, "dirty", f"runs were told {told}, passed was {stretches}")
        return
    # How much of `told` the stretches so far can have been.
    ends = {0}
    for place, (stretch, _) in enumerate(stretches):
        # An hour may wait through several rewinds, the last of which cuts it.
        least = sum(at <= min(kept for _, kept in stretches[place:]) for at in stretch)
        ends = {
            end + number
            for end in ends
            for number in range(least, len(stretch) + 1)
            if told[end : end + number] == stretch[:number]
        }
    refuse(len(told) in ends, "lost", f"runs were told {told}, passed was {stretches}")


def _check_turns(simulation: Simulation) -> None:
    """The run of an hour begins when the run of the hour before has ended: by their ticks, which no clock sets back."""
    attempts = simulation.ground.sql(
        "SELECT r.made, min(tx.write_pointer), max(max(tx.write_pointer, coalesce(tx.commit_seq, 0)))"
        "  FROM run AS r JOIN program AS p USING (program_id) JOIN tx ON tx.run_id = r.run_id"
        " WHERE p.name = 'gather' AND json_array_length(r.triggered_by, '$.logical_times') > 0 GROUP BY r.made"
    )
    for (one, _, ends), (other, begins, _) in pairwise(sorted(attempts)):
        refuse(begins > ends, "dirty", f"run {other} of an hour began at {begins}, run {one} before it ended at {ends}")


def _find_stretches(simulation: Simulation, committed: Committed, moves: list[Move]) -> Iterator[tuple[list[int], int]]:
    """Yield the hours that were passed between two rewinds. Hours up to the second value are announced in any case."""
    if not moves:
        return
    # A transaction may hold the first move at an hour before all that are there.
    begins = min(_find_hours(simulation, committed, moves[0].seq), default=moves[0].value - _HOUR)
    first = min(moves[0].value, begins) // _HOUR
    stretch: list[int] = []
    for move in moves:
        if move.previous is not None and move.value < move.previous:
            yield stretch, move.value // 1000
            stretch, first = [], move.value // _HOUR
        stretch += [number * 3_600_000 for number in range(first + 1, move.value // _HOUR + 1)]
        first = max(first, move.value // _HOUR)
    yield stretch, EVER


def _find_hours(simulation: Simulation, committed: Committed, until: int) -> Iterator[int]:
    """The hours that the commits up to `until` have brought or completed."""
    for pointer, seq, *_ in committed.rows:
        if seq <= until:
            keys, span = _find_written(simulation, pointer)
            yield from (_hour_of(key.partition("!")[0]) for key in keys)
            yield from _whole_hours(simulation.shape.windows, span)


def _last(moves: list[tuple[int, Any]], before: int) -> Any:
    """Return the value of the last of `moves` before a commit."""
    return next((value for seq, value in reversed(moves) if seq < before), None)


def _check_windows(simulation: Simulation, committed: Committed, moves: list[Move]) -> None:
    """Each window is there once, as it follows from what its run saw, or from all that is published; none too early.

    A rewind reopens the windows that end after it: each stays as it is until it is computed again.
    """
    kind = simulation.shape.windows
    computed, results = _replay(simulation, committed, moves)
    dataset_id: Any = committed.datasets["hourly"]
    everything = Snapshot(WritePointer(2**62), simulation.ground.catalog.incarnation)
    partitions = simulation.ground.catalog.read(lambda db: read_partitions(db, dataset_id, everything))
    if kind.late == "side":
        _check_side(simulation, committed, moves, computed, results)
    found: dict[str, list[str]] = {}
    for partition in partitions:
        files = [simulation.folder / "hourly" / name for name, _ in partition.files]
        start = plain(partition.partition_key)
        found[start] = sorted(line for file in files for line in file.read_text().splitlines())
        if kind.late == "recompute" and computed is not None and _closes(kind, start) > computed:
            # Open again: as the run saw it that has computed it last.
            pointer = max(change.write_pointer for change in partition.changes)
            results[start] = gather(kind, publish(simulation, committed, "ticks", before=pointer), EVER).get(start, [])
    if kind.late == "recompute":
        open_again = {start for start in results if computed is None or _closes(kind, start) > computed}
        results = {start: results[start] for start in open_again & found.keys()}
        results |= gather(kind, publish(simulation, committed, "ticks"), computed)
    results = {start: ticks for start, ticks in results.items() if ticks}
    refuse(found == results, "dirty", f"the windows are {found}, not {results} ({kind})")


def _check_side(
    simulation: Simulation,
    committed: Committed,
    moves: list[Move],
    computed: int | None,
    results: Mapping[str, list[str]],
) -> None:
    """Each published tick of which all windows are computed is in one of them or in the side table.

    In both only after a rewind, and where a window was postponed: its ticks may have been late meanwhile.
    """
    kind = simulation.shape.windows
    dataset_id: Any = committed.datasets[SIDE]
    everything = Snapshot(WritePointer(2**62), simulation.ground.catalog.incarnation)
    partitions = simulation.ground.catalog.read(lambda db: read_partitions(db, dataset_id, everything))
    files = [simulation.folder / SIDE / name for partition in partitions for name, _ in partition.files]
    side = Counter(line for file in files for line in file.read_text().splitlines())
    counted = {tick for ticks in results.values() for tick in ticks}
    for key, ticks in publish(simulation, committed, "ticks").items():
        last = datetime.strptime(key.partition("!")[0], "%Y%m%d%H")  # noqa: DTZ007  # a wall-clock time of UTC
        start = max(starts_of(last, HOUR * kind.slide, HOUR * kind.size))
        if computed is not None and _closes(kind, name_of(start)) <= computed:
            lost = {*ticks} - counted - {*side}
            refuse(not lost, "lost", f"{sorted(lost)} of {key} are in no window, nor in the side table ({kind})")
    rewound = any(move.previous is not None and move.value < move.previous for move in moves)
    if not rewound and not simulation.ticks.unreadable:
        doubled = counted & {*side} | {tick for tick, number in side.items() if number > 1}
        refuse(
            not doubled, "doubled", f"{sorted(doubled)} are in windows and in the side table, or there twice ({kind})"
        )


def _replay(simulation: Simulation, committed: Committed, moves: list[Move]) -> tuple[int | None, dict[str, list[str]]]:
    """Up to when windows are computed, and what they were when their runs computed them; checks each run's word."""
    kind = simulation.shape.windows
    pointers = {seq: pointer for pointer, seq, *_ in committed.rows}
    values = [(move.seq, move.value) for move in moves]
    computed: int | None = None
    results: dict[str, list[str]] = {}
    said = simulation.ground.sql("SELECT seq, payload FROM message WHERE event_type = 'windows'")
    back = [(move.seq, "") for move in moves if move.previous is not None and move.value < move.previous]
    for seq, text in sorted([*said, *back]):
        if not text:
            computed = None if computed is None else min(computed, _last(values, seq + 1))
            continue
        told, pointer = json.loads(text), pointers[seq]
        refuse(told["from"] == computed, "dirty", f"{pointer} went on from {told['from']}, computed was {computed}")
        reached, passed = told["to"], _last(values, pointer)
        what = f"{pointer} computed to {reached} from {computed}, W was {passed}"
        refuse(computed is None or reached >= computed, "dirty", what)
        refuse(reached is None or (passed is not None and reached <= max(passed, computed or passed)), "dirty", what)
        shown = gather(kind, publish(simulation, committed, "ticks", before=pointer), reached)
        new = {start: ticks for start, ticks in shown.items() if computed is None or _closes(kind, start) > computed}
        failed = {name_of(from_wall(start)) for start, _ in told["failed"]}
        new = {start: ticks for start, ticks in new.items() if start not in failed}
        refuse(told["closed"] == len(new), "lost", f"{what}: {told['closed']} windows, not {sorted(new)}")
        mended = {name_of(from_wall(start)) for start, _ in told["mended"]}
        # What was published before a rewind, and has nothing any more, is deleted.
        results = {
            start: ticks
            for start, ticks in results.items()
            if start in failed or not _is_between(computed, _closes(kind, start), reached)
        }
        results |= new | {start: shown[start] for start in mended & shown.keys()}
        computed = reached
    return computed, results


def _is_between(computed: int | None, closes: int, reached: int | None) -> bool:
    return reached is not None and closes <= reached and (computed is None or closes > computed)


def gather(kind: Kind, ticks: Published, until: int | None) -> dict[str, list[str]]:
    """Compute plainly the rows of each window that closes at `until` or before, by the window's start.

    Empty for a window over partitions without ticks.
    """
    found: dict[str, list[str]] = {}
    for key, tokens in ticks.items():
        time = datetime.strptime(key.partition("!")[0], "%Y%m%d%H")  # noqa: DTZ007  # a wall-clock time of UTC
        for start in starts_of(time, HOUR * kind.slide, HOUR * kind.size):
            if until is not None and _closes(kind, name_of(start)) <= until:
                found.setdefault(name_of(start), []).extend(tokens)
    return {start: sorted(tokens) for start, tokens in found.items()}


def _closes(kind: Kind, start: str) -> int:
    return to_wall(datetime.strptime(start, "%Y%m%d%H") + HOUR * kind.size)  # noqa: DTZ007  # of UTC
