"""Chooser of the simulation: chance, from one seed, chooses the next process and its faults.

Turns and faults are drawn from two sources. So a schedule whose faults stop at some step is the same up to there.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.sim.bucket import RequestRepeated, StoreFails
from tests.sim.projects import LEASE, Shape
from tidemill.catalog.db import CatalogUnavailable, LostReply
from tidemill.testing.machine import Crash, Machine, Point, PointKind, Process

_BEFORE_CALL = frozenset({PointKind.BEFORE_READ, PointKind.BEFORE_WRITE})
_BEFORE_EFFECT = frozenset({PointKind.BEFORE_WRITE, PointKind.DISK, PointKind.PROGRAM})
_URL = "played"
DEADLY = "use up the memory"
"""A point of a program at which its process always dies."""


class ProgramStumbled(Exception):
    """Error of a user's program."""


class Chance:
    """Decides by chance; `faults` are drawn in the first `last_fault` steps, and none later."""

    def __init__(self, seed: int, last_fault: int, *, gap: int, may_stumble: bool, shape: Shape) -> None:
        self._turns = random.Random(f"turns {seed}")
        self._faults = random.Random(f"faults {seed}")
        self._last_fault = last_fault
        self._gap = gap
        self._stumbles_left = 2 if may_stumble else 0
        # With a single node, no other process can have done the same work meanwhile.
        left_out = {"late"} if shape.nodes == 1 else set()
        left_out |= set() if shape.stored else _OF_STORES.keys()
        self._weights = {name: weight for name, weight in (_WEIGHTS | _OF_STORES).items() if name not in left_out}
        self._store_away = ("", None, timedelta(0))
        """The beginning of requests that the store does not answer, the node that sends them, and until when."""
        self._next_fault = self._draw_gap()
        self._waiting: str | None = None
        self._away_until = timedelta(0)
        self._full_until = timedelta(0)
        self.step = 0
        self.struck: Counter[str] = Counter()
        self.strikes = 0
        self.trace: list[str] | None = None

    def passes(self, machine: Machine, process: Process) -> bool:
        """Return whether it goes on at its point at once: the same as `stays` and a `befall` of nothing."""
        elapsed = machine.clock.elapsed
        strikes = self._next_fault <= self.step + 1 <= self._last_fault
        if strikes or elapsed < max(self._away_until, self._full_until, self._store_away[2]):
            return False
        if not process.point.inside and not self.stays(machine):
            return False
        self.step += 1
        if self.trace is not None:
            self.trace.append(f"{self.step} {process.name}: {process.point}")
        return True

    def stays(self, machine: Machine) -> bool:
        """Return whether the working process continues before any other.

        Sometimes time passes although a process could continue.
        """
        chance = self._turns.random()
        if chance < 0.03:
            machine.clock.pass_by(timedelta(milliseconds=int(chance * 20_000)))
        return chance < 0.75

    def choose(self, _machine: Machine, ready: Sequence[Process]) -> Process:
        """Choose mostly a working process. A process that a commit wakes may be slow, and miss the next commit."""
        if len(ready) == 1:
            return ready[0]
        working = [process for process in ready if process.wakes_at is None]
        among = working if working and self._turns.random() < 0.8 else ready
        return among[int(self._turns.random() * len(among))]

    def befall(self, machine: Machine, process: Process) -> BaseException | None:
        """A fault, when it is time for one and one fits here."""
        self.step += 1
        point = process.point
        fate: BaseException | None = Crash(DEADLY) if point.name == DEADLY else None
        what = ""
        if fate is not None:
            pass
        elif point.kind in _BEFORE_CALL and machine.clock.elapsed < self._away_until:
            fate = CatalogUnavailable(_URL, "away")
        elif point.kind is PointKind.REQUEST and self._is_store_away(machine, process):
            fate = StoreFails("away")
        elif (
            point.kind is PointKind.DISK
            and not point.name.startswith("write ")
            and machine.clock.elapsed < self._full_until
        ):
            fate = _full()
        if fate is None and self._next_fault <= self.step <= self._last_fault:
            what, fate = self._strike(machine, process, point)
            if what:
                self._waiting = None
                self.struck[what] += 1
                self.strikes += 1
                self._next_fault = self.step + self._draw_gap()
        if self.trace is not None:
            told = what or (type(fate).__name__ if fate is not None else "")
            self.trace.append(f"{self.step} {process.name}: {point}{'  <- ' + told if told else ''}")
        return fate

    def rest(self) -> None:
        """From now on nothing goes wrong."""
        self._last_fault = 0
        self._away_until = self._full_until = timedelta(0)
        self._store_away = ("", None, timedelta(0))

    def _is_store_away(self, machine: Machine, process: Process) -> bool:
        place, node, until = self._store_away
        named = place in process.point.name and node in {None, node_of(process)}
        return named and machine.clock.elapsed < until

    def _strike(self, machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        # One that does not fit here waits for the first point where it does.
        self._waiting = self._waiting or self._faults.choices(list(self._weights), list(self._weights.values()))[0]
        if self._waiting == "stumble" and not self._stumbles_left:
            self._waiting = "crash"
        if process.group.name == "outside":
            return "", None
        strike: Callable[[Machine, Process, Point], tuple[str, BaseException | None]]
        strike = getattr(self, f"_{self._waiting}")
        return strike(machine, process, point)

    def _crash(self, *_: object) -> tuple[str, BaseException | None]:
        return "crash of a group", Crash("struck")

    def _crash_of_node(self, machine: Machine, process: Process, _point: Point) -> tuple[str, BaseException | None]:
        group = process.group
        while group.parent is not None:
            group = group.parent
        machine.kill(group, orphans=self._faults.random() < 0.2)
        return "crash of a node", None

    def _lost_request(self, _machine: Machine, _process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.BEFORE_WRITE:
            return "", None
        return "lost reply, not committed", LostReply(_URL, "lost on its way there")

    def _lost_reply(self, _machine: Machine, _process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.AFTER_WRITE:
            return "", None
        return "lost reply, committed", LostReply(_URL, "lost on its way back")

    def _lost_commit(self, _machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        """The reply to what a driver or a notebook has committed."""
        if point.kind is not PointKind.AFTER_WRITE or point.name != "apply" or not _publishes(process):
            return "", None
        return "lost reply, committed", LostReply(_URL, "lost on its way back")

    def _away(self, machine: Machine, _process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.kind not in _BEFORE_CALL:
            return "", None
        if self._faults.random() < 0.3:
            self._away_until = machine.clock.elapsed + timedelta(seconds=self._faults.randint(1, 9))
        return "catalog away", CatalogUnavailable(_URL, "away")

    def _pause(self, machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.inside:
            return "", None
        self._hold(machine, process.group.members if self._faults.random() < 0.5 else [process], 0.5, 2.5)
        return "pause", None

    def _zombie(self, machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        """Pause a process until another fences it, just before an act that it must not do any more."""
        if point.inside or not _publishes(process) or point.kind not in _BEFORE_EFFECT:
            return "", None
        self._hold(machine, process.group.members, 2.2, 3.7)
        return "pause beyond the lease", None

    def _late(self, machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        """A role stops between its look and the deed, and another node does the same meanwhile."""
        if point.inside or point.kind is not PointKind.BEFORE_WRITE or _publishes(process):
            return "", None
        # Few have found a file, and say so; the others have their turns all the time.
        found = process.name.startswith("keeper") and point.name == "apply"
        if not found and self._faults.random() < 0.9:
            return "", None
        self._hold(machine, [process], 1.5, 3.7)
        return "pause before a deed", None

    def _hour(self, machine: Machine, *_: object) -> tuple[str, BaseException | None]:
        machine.clock.jump(timedelta(hours=1))
        return "clock + 1 h", None

    def _back(self, machine: Machine, *_: object) -> tuple[str, BaseException | None]:
        machine.clock.jump(-timedelta(seconds=20))
        return "clock - 20 s", None

    def _full_disk(self, machine: Machine, _process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.DISK:
            return "", None
        if point.name.startswith("write "):
            # In user's code it is an exception of the program, of which each counts against what it held.
            if not self._stumbles_left:
                return "", None
            self._stumbles_left -= 1
        elif self._faults.random() < 0.3:
            self._full_until = machine.clock.elapsed + timedelta(seconds=self._faults.randint(1, 5))
        return "disk full", _full()

    def _store_fails(self, _machine: Machine, _process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.REQUEST:
            return "", None
        return "store fails", StoreFails("did not do it")

    def _store_answer_lost(
        self, _machine: Machine, _process: Process, point: Point
    ) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.ANSWER or not _changes(point):
            return "", None
        return "store's answer lost", StoreFails("did not answer")

    def _store_asked_again(
        self, _machine: Machine, _process: Process, point: Point
    ) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.ANSWER or not _changes(point):
            return "", None
        return "request repeated", RequestRepeated()

    def _store_late(self, machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        """The store takes its time, before or after it has done the request."""
        if point.kind not in {PointKind.REQUEST, PointKind.ANSWER}:
            return "", None
        self._hold(machine, [process], 0.1, 2.5)
        return "store is late", None

    def _store_gone(self, machine: Machine, process: Process, point: Point) -> tuple[str, BaseException | None]:
        """A location does not answer for a while, or the whole store; all nodes, or one."""
        if point.kind is not PointKind.REQUEST:
            return "", None
        place = point.name.partition("/")[2].partition("/")[0] if self._faults.random() < 0.7 else ""
        node = node_of(process) if self._faults.random() < 0.5 else None
        self._store_away = (f"/{place}", node, machine.clock.elapsed + timedelta(seconds=self._faults.randint(1, 90)))
        return "store away" if node is None else "store away for a node", StoreFails("away")

    def _stumble(self, _machine: Machine, _process: Process, point: Point) -> tuple[str, BaseException | None]:
        if point.kind is not PointKind.PROGRAM:
            return "", None
        self._stumbles_left -= 1
        return "exception of a program", ProgramStumbled("stumbled")

    def _hold(self, machine: Machine, processes: Sequence[Process], least: float, most: float) -> None:
        duration = LEASE * (least + (most - least) * self._faults.random())
        for process in processes:
            if not process.finished:
                machine.hold(process, duration)

    def _draw_gap(self) -> int:
        return 1 + int(self._faults.expovariate(1 / self._gap))


_WEIGHTS = {
    "crash": 4,
    "crash_of_node": 1.5,
    "lost_request": 2,
    "lost_reply": 1.5,
    "lost_commit": 1.5,
    "away": 1.5,
    "pause": 1.5,
    "zombie": 3,
    "late": 2,
    "hour": 0.4,
    "back": 0.4,
    "full_disk": 2,
    "stumble": 2.5,
}
"""Weight of each kind of fault: the name of its method."""


_OF_STORES = {
    "store_fails": 3,
    "store_answer_lost": 3,
    "store_asked_again": 3,
    "store_late": 2,
    "store_gone": 2,
}
"""Weights of the faults of a store, for projects whose data is in one."""


def node_of(process: Process | None) -> str:
    """Return the name of the node on which a process works."""
    group = process.group if process is not None else None
    while group is not None and group.parent is not None:
        group = group.parent
    return group.name if group is not None else ""


def _changes(point: Point) -> bool:
    """Return whether a request changes something: of the others an answer that is lost is one that failed."""
    return point.name.split(" ")[0] in {"put", "copy", "delete"}


def _publishes(process: Process) -> bool:
    """Return whether it is a driver or a notebook."""
    return process.group.parent is not None or process.group.name.startswith("notebook")


def _full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")
