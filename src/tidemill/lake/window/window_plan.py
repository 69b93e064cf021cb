"""Plan of a run's windows: pure, from the run's snapshot, the value of W, and the windows that are already computed.

Windows lie on the wall clock of a zone: `[start, end)` in steps of `slide`. A window is closed when `W >= closes(end)`.
A window needs the partitions whose rows may lie in it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from tidemill.shapes.partition_time import Instant, PartitionTime, WallTime, Zone, from_wall, to_wall

_EVER: Final = 1 << 60
_HALF_DAY: Final = 12 * 3_600_000_000
_DAY: Final = 2 * _HALF_DAY
_MOST_SLOTS: Final = 96
"""In the longest session there are so many slots at most."""
MARGIN: Final = 26 * 3_600_000_000
"""No two clocks are further apart, so far may an instant's wall-clock time be from what it is in UTC."""


class Window(NamedTuple):
    """`[start, end)` on the wall clock."""

    start: WallTime
    end: WallTime


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of rows that are at most `gap` apart, in microseconds of physical time.

    A session that goes on for `longest` is cut there. If its rows still follow each other, they are cut again at each
    multiple of `longest` since 1970 in UTC. So a row decides about cuts for a limited time only.
    """

    gap: int
    longest: int = 0

    @property
    def reach(self) -> int:
        """The time after a row in which sessions may end that depend on the row.

        The last row of such a session lies at most `gap` before its end. Its cuts depend on the rows of the `longest`
        before the last multiple of `longest`, which is less than `longest` ago, and on one `gap` before these rows.
        """
        return 2 * (self.gap + self.longest)


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Shape of windows: `size` long, one each `slide`, moved by `offset`; all in microseconds of the wall clock.

    With `cumulative`, several windows share a begin. The first of them is one `slide` long, each further one is a
    `slide` longer, and the last one is `size` long. The next begin is `size` later.

    With `sessions`, the windows are slots, one after the other. A slot gives out the sessions that end in it.
    """

    size: int
    slide: int
    offset: int
    cumulative: bool = False
    sessions: Sessions | None = None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of which each tells the window of a row."""
        return ("window_end",) if self.cumulative or self.sessions else ("window_start", "window_end")

    @property
    def reach(self) -> int:
        """The time after a row up to which windows may depend on the row, beside the windows that the row lies in."""
        return self.sessions.reach if self.sessions else 0

    @property
    def step(self) -> int:
        """The time from one start of windows to the next."""
        return self.size if self.cumulative else self.slide

    def fit(self, interval: int, longest: int) -> WindowShape:
        """Return the shape over a table with partitions of `interval` and sessions of up to `longest`, in microseconds.

        Slots of sessions are as long as a partition, a day at most. They are no shorter than a 96th of `longest`: else
        very many slots would depend on one row.
        """
        if self.sessions is None:
            return self
        slot = min(_DAY, max(interval, longest // _MOST_SLOTS))
        return WindowShape(slot, slot, 0, sessions=Sessions(self.sessions.gap, longest))

    def has(self, window: Window) -> bool:
        """Return whether `window` is one of the windows of this shape."""
        return window in self.list_between(window.start, window.start)

    def list_between(self, low: int, high: int) -> Iterator[Window]:
        """Yield the windows in which wall-clock times from `low` to `high` may lie, by their start."""
        for number in range((low - self.size - self.offset) // self.step + 1, (high - self.offset) // self.step + 1):
            start = number * self.step + self.offset
            last = start + self.size
            for end in range(start + self.slide, last + 1, self.slide) if self.cumulative else (last,):
                if end > low:
                    yield Window(WallTime(start), WallTime(end))


@dataclass(frozen=True, slots=True)
class Grid:
    """The windows of a shape in a zone."""

    shape: WindowShape
    zone: Zone

    @property
    def slots(self) -> Grid:
        """The same windows by their own rows alone: of sessions, the slots without the time before them."""
        return Grid(replace(self.shape, sessions=None), self.zone)

    def closes(self, window: Window) -> Instant:
        """The instant from which on no row can lie in `window`."""
        return _closes(self.zone, window.end)

    def touched(self, begins: int, ends: int) -> list[Window]:
        """The windows in which rows of the instants `[begins, ends)` may lie, by their start.

        Of sessions: the slots whose sessions may depend on such rows.
        """
        if ends <= begins:
            return []
        ends += self.shape.reach
        try:
            low, high = self._walls(begins, ends)
        except OverflowError:
            return []  # at the ends of the calendar there are no windows
        return [one for one in self.shape.list_between(low, high) if self._touches(one, begins, ends)]

    def first_open(self, instant: Instant) -> WallTime:
        """The start of the first window that is not closed at `instant`: earlier rows lie in closed windows alone."""
        slide, size, offset = self.shape.step, self.shape.size, self.shape.offset
        local = to_wall(self.zone.local(instant)) - offset
        low, high = (local - size - MARGIN) // slide, (local + MARGIN) // slide + 1
        while high - low > 1:
            middle = (low + high) // 2
            start = middle * slide + offset
            closed = self.closes(Window(WallTime(start), WallTime(start + size))) <= instant
            low, high = (middle, high) if closed else (low, middle)
        return WallTime(high * slide + offset)

    def _touches(self, window: Window, begins: int, ends: int) -> bool:
        try:
            return _opens(self.zone, window.start) < ends and self.closes(window) > begins
        except OverflowError:
            return False

    def spans(self, window: Window) -> tuple[Instant, Instant]:
        """The instants `[first, last)` of the rows that may lie in `window`, or that its sessions may depend on."""
        return Instant(_opens(self.zone, window.start) - self.shape.reach), self.closes(window)

    def _walls(self, begins: int, ends: int) -> tuple[int, int]:
        """The earliest and the latest wall-clock time within: clocks may be changed there."""
        instants = [*range(begins, ends, _HALF_DAY), ends - 1]
        offsets = [to_wall(self.zone.local(instant)) - instant for instant in instants]
        return begins + min(offsets), ends - 1 + max(offsets)


@lru_cache(maxsize=100_000)
def _opens(zone: Zone, wall: int) -> Instant:
    return zone.opens(from_wall(wall))


@lru_cache(maxsize=100_000)
def _closes(zone: Zone, wall: int) -> Instant:
    return zone.closes(from_wall(wall))


class Stored(NamedTuple):
    """A partition as the planner sees it; `begins` and `ends` are the instants of its rows, with their lag."""

    key: str
    begins: int
    ends: int
    bytes: int
    dataset_id: str = ""


class Dirty(NamedTuple):
    """A change that the program has not seen, and the instants of its partition's rows."""

    commit_seq: int
    begins: int
    ends: int
    final: Instant | None = None
    """The change changes no window that closes up to this time; None for no such time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run. A run always computes at least one window: of late windows, and of new windows."""

    windows: int
    partitions: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run: `new` windows in the order of their ends, and `late` windows to compute again, newest first.

    `computed` and `seen` are the state of the program once all windows of the plan are published. `more` is true if
    work is left. `left` are the late windows of that work, and `beyond` the new ones up to `Reached.passed`.
    """

    new: tuple[Window, ...]
    late: tuple[Window, ...]
    computed: Instant | None
    seen: int
    more: bool
    left: tuple[Window, ...] = ()
    beyond: tuple[Window, ...] = ()

    def without(self, windows: AbstractSet[Window]) -> Plan:
        """Return the plan without new windows of `windows`, which the caller handles in another way."""
        return replace(
            self,
            new=tuple(window for window in self.new if window not in windows),
            beyond=tuple(window for window in self.beyond if window not in windows),
        )


def times_within(partition_time: PartitionTime, row_lag: int, begins: int, ends: int) -> tuple[int, int]:
    """Bounds `[low, high)` of the times of all partitions whose rows may lie in the instants `[begins, ends)`.

    Some outside are among them, near by.
    """
    longest = partition_time.interval.longest // timedelta(microseconds=1)
    return begins - longest - MARGIN, ends + row_lag + MARGIN


@dataclass(frozen=True, slots=True)
class Reached:
    """State of a window program, and the snapshot of its run: `passed` is W before the tick `pointer`.

    `passed` is earlier where later windows may need partitions that were not read.
    """

    computed: Instant | None
    seen: int
    passed: Instant | None
    pointer: int
    first: Instant | None = None
    """Windows that begin before this time are left out; None for no such time."""

    def upto(self, horizon: Instant | None) -> Reached:
        """Return the same as if W had come to `horizon` at most; None for no such limit."""
        if horizon is None or self.passed is None:
            return self
        return replace(self, passed=min(self.passed, horizon))

    def leaves_out(self, grid: Grid, window: Window) -> bool:
        """Return whether `window` begins before the first time."""
        return self.first is not None and grid.spans(window)[0] < self.first


def plan(
    grid: Grid,
    at: Reached,
    waiting: Iterable[Stored],
    late: AbstractSet[Window],
    around: Iterable[Stored],
    limits: Limits,
) -> Plan:
    """Plan a run.

    `waiting` are the visible partitions whose rows may lie in windows that close after `computed` and up to `passed`.
    `late` are all computed windows to compute again, and `around` the visible partitions whose rows may lie in the
    newest of them. Late windows take half the room at most, while others are due.
    """
    if at.passed is None:
        return Plan((), (), at.computed, at.seen, more=False)
    passed, computed = at.passed, -_EVER if at.computed is None else at.computed
    holders = _find_holders(
        grid, waiting, lambda one: computed < grid.closes(one) <= passed and not at.leaves_out(grid, one)
    )
    due = sorted(holders, key=lambda window: (grid.closes(window), window))
    half = 2 if due else 1
    room = Limits(limits.windows // half, limits.partitions // half, limits.bytes // half)
    late_holders = _find_holders(grid, around, late.__contains__)
    again, read = _fitting(_group_late(grid, late), late_holders, room)
    size = sum(partition.bytes for partition in read)
    rest = Limits(limits.windows - len(again), limits.partitions - len(read), limits.bytes - size)
    new, _ = _fitting((list(group) for _, group in groupby(due, key=grid.closes)), holders, rest)
    left, beyond = late - {*again}, due[len(new) :]
    reached = grid.closes(new[-1]) if beyond else Instant(max(passed, computed))
    # The caller remembers the late windows that are left. So all changes of this snapshot are seen.
    more = bool(left or beyond)
    return Plan(tuple(new), tuple(again), reached, at.pointer, more, tuple(sorted(left)), tuple(beyond))


def find_late(grid: Grid, at: Reached, dirty: Iterable[Dirty]) -> set[Window]:
    """Return the computed windows that the changes `dirty` touch."""
    found: set[Window] = set()
    if at.computed is None:
        return found
    for change in dirty:
        near = [one for one in grid.touched(change.begins, change.ends) if not at.leaves_out(grid, one)]
        final = -_EVER if change.final is None else change.final
        found |= {one for one in near if final < grid.closes(one) <= at.computed}
    return found


def _find_holders(
    grid: Grid, partitions: Iterable[Stored], wanted: Callable[[Window], bool]
) -> dict[Window, set[Stored]]:
    """The `wanted` windows in which rows of the partitions may lie, each with its partitions."""
    holders: dict[Window, set[Stored]] = {}
    slots = grid.slots
    for partition in partitions:
        for window in filter(wanted, grid.touched(partition.begins, partition.ends)):
            members = holders.setdefault(window, set())
            if partition.ends > slots.spans(window)[0]:
                members.add(partition)  # sessions of before are read from a carry
    return holders


def _group_late(grid: Grid, late: Iterable[Window]) -> list[list[Window]]:
    """The windows, newest first. Slots that follow each other are one group.

    A late row may join sessions of several slots. A reader would see some of these sessions twice, if one run replaced
    some of the slots.
    """
    groups: list[list[Window]] = []
    for window in sorted(late, reverse=True):
        if grid.shape.sessions and groups and groups[-1][-1].start == window.end:
            groups[-1].append(window)
        else:
            groups.append([window])
    return groups


def _fitting(
    groups: Iterable[Sequence[Window]], holders: Mapping[Window, AbstractSet[Stored]], limits: Limits
) -> tuple[list[Window], set[Stored]]:
    """The windows of the first of `groups`, as far as the limits allow, and their partitions."""
    taken: list[Window] = []
    partitions: set[Stored] = set()
    size = 0
    for windows in groups:
        more = set[Stored]().union(*(holders.get(window, ()) for window in windows)) - partitions
        size += sum(partition.bytes for partition in more)
        number = len(partitions) + len(more)
        full = len(taken) + len(windows) > limits.windows or number > limits.partitions or size > limits.bytes
        if taken and full:
            break
        taken += windows
        partitions |= more
    return taken, partitions
