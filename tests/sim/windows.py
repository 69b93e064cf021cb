"""Windows in simulated projects: ticks in parts of hours that come in any order, and what a program makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.sql.plain import SIDE_SCHEMA, replace_whole, write_windows
from tidemill import App, Watermark, WatermarkPassed
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.side import SIDE_KEYS, SideReason, side_of, to_side_key
from tidemill.lake.window.window_plan import Window
from tidemill.mill.project import Project
from tidemill.mill.watermarks import MovedWatermark, Watermarks
from tidemill.run.processes.external import open_transaction
from tidemill.run.records.programs import ProgramKind
from tidemill.run.step.spans import DeclaredSpan
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import from_wall, to_wall
from tidemill.sql.batches import Batch
from tidemill.sql.window_program import WindowProgram
from tidemill.testing.clock import NOON

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation
    from tidemill.testing.machine import Process

FIRST: Final = NOON.replace(tzinfo=None) - timedelta(hours=6)
HOUR: Final = timedelta(hours=1)
PARTS: Final = ("x", "y")
EVER: Final = 2**62
SIDE: Final = side_of("gather")
Reader = Callable[[Any, Partition], list[str]]


@dataclass(frozen=True)
class Kind:
    """Kind of a project's windows, with the rules for gaps and for late partitions."""

    size: int
    slide: int
    gap: str
    late: str
    pairs: bool
    """True if an hour is complete when both of its parts are there."""
    mode: str
    """True if each hour that is passed has a run of its own."""

    @classmethod
    def of(cls, chance: random.Random) -> Kind:
        """Draw a kind."""
        size, slide = chance.choice([(1, 1), (2, 2), (2, 1), (3, 1)])
        kind = cls(
            size,
            slide,
            gap=chance.choice(["skip", "skip", "wait"]),
            late=chance.choice(["recompute", "recompute", "drop"]),
            pairs=chance.random() < 0.3,
            mode=chance.choice(["coalesce", "each"]),
        )
        # Drawn from the kind itself, so that the rest of the story is as it was.
        return replace(kind, late="side") if kind.late == "drop" and kind.mode == "coalesce" else kind


@dataclass
class Ticks:
    """Ticks of a schedule, as the simulation knows them."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The instants that a transaction has declared to write, by write pointer; an open side is `EVER` away."""
    asked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Moves of the watermark that people asked for, and to where, by the names of the people."""
    moved: list[str] = field(default_factory=list)
    """People whose operation was confirmed."""
    unreadable: dict[str, int] = field(default_factory=dict)
    """Number of failing reads that each partition still has."""

    def are_unreadable(self, key: str, whims: random.Random) -> bool:
        """Return whether the program fails at these: one partition may have rows that it cannot read a few times."""
        if not self.unreadable and whims.random() < 0.05:
            self.unreadable[key] = whims.randint(2, 4)  # by each the waits double, up to an hour
        left = self.unreadable.get(key, 0)
        if left:
            self.unreadable[key] -= 1
        return bool(left)


def declare(app: App, kind: Kind, folder: Path, read: Reader) -> None:
    """Ticks with a watermark, and a program that keeps a partition for each window of them."""
    ticks = app.fileset(
        "ticks",
        keys={"hour": "string", "part": "string"},
        location=str(folder / "ticks"),
        watermark=Watermark(
            "ts",
            interval="1h",
            pattern="$hour",
            formatter="yyyyMMddHH",
            gap=kind.gap,
            late=kind.late,
            expected={"part": PARTS} if kind.pairs else {},
        ),
    )
    app.fileset("hourly", keys={"start": "string"}, location=str(folder / "hourly"))
    app.fileset(SIDE, keys=SIDE_KEYS, schema="evolve", location=str(folder / SIDE))
    shape = write_windows("ticks", kind.slide, kind.size, "HOUR")
    program = WindowProgram(
        "gather",
        "INSERT INTO hourly SELECT window_start, CAST(window_start AS STRING) AS start, count(*) AS n"
        f" FROM TABLE({shape}) GROUP BY window_start",
        calculator=lambda _: Hours(read),
    )
    app.add_windows(program, ProgramKind.PYTHON, retries=3, backoff=timedelta(seconds=1))
    app.schedule("gather", "gather", trigger=WatermarkPassed(ticks, every="1h", mode=kind.mode), constraints=[])


class Hours:
    """Gathers what lies in each window; a result is a partition of its own, named by the window's start."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def compute(self, run: Any, batches: Sequence[Batch]) -> dict[str, list[str]]:
        """The windows that have ticks."""
        (batch,) = batches
        found: dict[str, list[str]] = {}
        for partition in batch.partitions:
            begins, _ = batch.instants[partition.partition_key]
            if not partition.files:
                continue
            ticks = self._read(run, partition)
            for window in batch.windows:
                if window.start <= begins < window.end:
                    found.setdefault(name_of(from_wall(window.start)), []).extend(ticks)
        return found

    def count_outside(self, run: Any, batch: Batch) -> dict[KeyText, int]:
        """Ticks have no time of their own."""
        del run, batch
        return {}

    def pick_late(self, run: Any, batch: Batch, before: int, waiting: Sequence[Window]) -> dict[str, list[str]]:
        """The ticks of the hours that begin before `before`, and in no window of `waiting`."""
        found: dict[str, list[str]] = {}
        for partition in batch.partitions:
            begins, _ = batch.instants[partition.partition_key]
            if begins < before and not any(window.start <= begins < window.end for window in waiting):
                side_key = to_side_key(batch.source.keys, SideReason.LATE, partition.partition_key)
                path = SIDE_SCHEMA.to_path(SIDE_SCHEMA.decode(side_key))
                found["!".join(part.partition("=")[2] for part in path.split("/"))] = self._read(run, partition)
        return found

    def replace(self, run: Any, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]) -> Any:
        """Overwrite the present partitions."""
        (batch,) = batches
        new = self.compute(run, batches) if batch.windows else {}
        return replace_whole(batch, gone, old, new, lambda window: name_of(from_wall(window.start)))


def name_of(time: datetime) -> str:
    """An hour, as its partitions are named."""
    return f"{time:%Y%m%d%H}"


def make_story(simulation: Simulation, draw: random.Random) -> Iterator[tuple[int, Callable[[], object]]]:
    """Draw the times at which ticks are published in a schedule, or their watermark is moved."""
    for number in range(draw.randint(3, 6) if simulation.shape.windowed else 0):
        yield int(draw.random() ** 2 * simulation.active), partial(start_station, simulation, number)
    # By chance of its own, so that the rest of the story is as it was.
    draw = random.Random(f"watermark {simulation.seed}")
    if simulation.shape.windowed and draw.random() < 0.6:
        for number in range(draw.randint(1, 3)):
            act = draw.choice(["advance", "rewind", "rewind"])
            to = FIRST + HOUR * draw.choice([0, 1, 1.5, 2, 3, 4])
            wait = timedelta(seconds=draw.choice([0, 5, 10, 20, 30]))
            name = f"{act} {number}"
            yield draw.randrange(simulation.active), partial(move_by_hand, simulation, name, act, to, wait)


def _draw_span(draw: random.Random, hours: Sequence[datetime]) -> tuple[datetime | None, datetime | None]:
    """Draw the declared span of these hours: the hours, more, parts of them, or everything before or after."""
    half = HOUR / 2
    start = hours[0] - draw.choice([0 * HOUR, 0 * HOUR, half, HOUR])
    end = hours[-1] + draw.choice([HOUR, HOUR, HOUR, HOUR + half, 2 * HOUR])
    if draw.random() < 0.15:
        return (None, end) if draw.random() < 0.5 else (start, None)
    return start, min(end, FIRST + 6 * HOUR)  # what lies ahead of the clock is another matter


def move_by_hand(simulation: Simulation, name: str, act: str, to: datetime, wait: timedelta) -> None:
    """A person moves the watermark, as `tidemill watermark` does it; a rewind is for ticks that come again."""

    def body(process: Process) -> None:
        process.world.clock.sleep(wait)
        simulation.ticks.asked[name] = act, to_wall(to)
        desk = Watermarks(Project(process.catalog, process.world, simulation.ground.config, caller=name))
        move = desk.advance if act == "advance" else desk.rewind
        moved = move("ticks", str(to))
        if isinstance(moved, MovedWatermark) and not moved.changed:
            return  # it stood there
        simulation.ticks.moved.append(name)
        if act == "rewind":
            start_station(simulation, 6 + len(simulation.ticks.moved))

    simulation.machine.start(name, body, simulation.machine.group(name, "desk"))


def start_station(simulation: Simulation, number: int) -> None:
    """Publish ticks of an hour or two: late, ahead of others, again, with the times declared or not."""
    draw = simulation.whims
    hour = min(max(number // 2 + draw.choice([-1, 0, 0, 0, 1]), 0), 4)
    hours = [FIRST + HOUR * (hour + after) for after in range(draw.choice([1, 1, 2]))]
    declares = draw.random() < 0.4
    op = draw.choice(["append", "append", "append", "overwrite"])
    texts: Mapping[str, list[str]] = {
        f"{name_of(time)}!{part}": [f"{number}{part}@{name_of(time)}"]
        for time in hours
        for part in draw.choice([PARTS, PARTS[:1], PARTS[1:]])
    }
    slow = draw.random() < 0.3
    own = random.Random(f"station {simulation.seed} {number}")
    start, end = _draw_span(own, hours)
    span = DeclaredSpan("default.ticks", start, end)
    declared = -EVER if start is None else to_wall(start), EVER if end is None else to_wall(end)
    empty = (name_of(FIRST + HOUR * own.randint(0, 5)), own.choice(PARTS)) if own.random() < 0.15 else None
    dropped = (name_of(FIRST + HOUR * own.randint(0, 3)), own.choice(PARTS)) if own.random() < 0.2 else None

    def body(process: Process) -> None:
        writes = [span if declares else "default.ticks"]
        with open_transaction(process.catalog, process.world, writes, writer=simulation.write) as tx:
            if declares:
                simulation.ticks.spans[tx.write_pointer] = declared
            simulation.reach("ticks")
            if slow:
                process.world.clock.sleep(timedelta(seconds=8))
            ticks = tx.fileset("default.ticks")
            if dropped is not None:
                simulation.drop(tx.write_pointer, ticks, "ticks", dict(zip(("hour", "part"), dropped, strict=True)))
            if dropped is None or own.random() < 0.5:
                simulation.put(tx.write_pointer, ticks, "ticks", op, texts)
            if empty is not None:
                ticks.create_empty(dict(zip(("hour", "part"), empty, strict=True)))
                simulation.intend(tx.write_pointer, "ticks", "create", {"!".join(empty): []})

    simulation.machine.start(f"station {number}", body, simulation.machine.group(f"station {number}", "desk"))
