"""Strikes processes of a site at random, twenty times a second and more, and puts others in the place of the dead."""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import apsw

from tests.chaos.minutes import WINDOWS
from tests.chaos.site import MARK, STARTS, WAITS, Kind, Site
from tests.chaos.stands import Stands
from tests.yardstick import patience

ROOT: Final = Path(__file__).resolve().parents[2]
RATE: Final = 26
"""Faults tried a second. Some find no process to strike."""
POPULATION: Final[Mapping[Kind, int]] = {
    Kind.WRITER: 7,
    Kind.TICKER: 2,
    Kind.LANDER: 1,
    Kind.PERSON: 1,
    Kind.FOLLOWER: 2,
    Kind.WORKER: 10,
    Kind.SCHEDULER: 2,
    Kind.DISCOVERER: 2,
    # Only a reaper that lives for more than a lease fences runs, and each runner has one reaper.
    Kind.REAPER: 2,
    Kind.JANITOR: 1,
    Kind.RUNNER: 2,
}
DRIVER: Final = "driver"
BOTH: Final = "runner and driver"
OF_WINDOWS: Final = "worker in a window program"
KILLS: Final[Mapping[str, float]] = {
    Kind.WRITER: 30,
    Kind.TICKER: 1.5,
    Kind.LANDER: 4,
    Kind.PERSON: 4,
    Kind.FOLLOWER: 6,
    Kind.WORKER: 30,
    Kind.SCHEDULER: 10,
    Kind.DISCOVERER: 7,
    Kind.REAPER: 0.6,
    Kind.JANITOR: 5,
    Kind.RUNNER: 0.7,
    DRIVER: 1.4,
    BOTH: 0.7,
    OF_WINDOWS: 5,
}
STOPS: Final[Mapping[str, float]] = {
    Kind.WRITER: 1.4,
    Kind.TICKER: 0.1,
    Kind.LANDER: 0.1,
    Kind.PERSON: 0.2,
    Kind.FOLLOWER: 0.3,
    Kind.WORKER: 1.6,
    Kind.SCHEDULER: 0.4,
    Kind.DISCOVERER: 0.3,
    Kind.REAPER: 0.2,
    Kind.JANITOR: 0.3,
    Kind.RUNNER: 0.3,
    DRIVER: 0.4,
    BOTH: 0.3,
    OF_WINDOWS: 0.4,
}
LONG: Final = 0.6
"""Share of stops that outlast the lease and each reaper that watches the lease."""
AT_WORK: Final = 0.25
"""Share of faults for processes that neither start nor wait: on a busy machine a process starts slowly."""
_STOPPED_WITHIN: Final = 0.3
_SPARED: Final = 1.0
"""Seconds that a continued process has for its work."""
_BORN_WITHIN: Final = patience(60)
_REPORT_EVERY: Final = 5.0


class Deed(StrEnum):
    """Deed of a fault to a process."""

    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault: a deed to one process of a kind. `pick` chooses the process, and a stop lasts for `seconds`.

    With `at_work` the fault strikes a process in the middle of its work, if there is one.
    """

    deed: Deed
    victim: str
    pick: float
    seconds: float
    at_work: bool


class Faults:
    """The sequence of faults of a seed: the same each time, whenever they strike."""

    def __init__(self, seed: int, lease: float, at_work: float = AT_WORK) -> None:
        self._random = random.Random(seed)
        self._lease = lease
        self._at_work = at_work
        self._all = [(Deed.KILL, victim, weight) for victim, weight in KILLS.items()]
        self._all += [(Deed.STOP, victim, weight) for victim, weight in STOPS.items()]
        self._weights = [weight for _, _, weight in self._all]

    def next(self) -> Fault:
        """The next one."""
        deed, victim, _ = self._random.choices(self._all, self._weights)[0]
        long = self._random.random() < LONG
        seconds = self._random.uniform(1.4, 2.0) * self._lease if long else self._random.uniform(0.05, 1)
        # Only a process that was stopped in the middle of its work comes back as a zombie.
        at_work = self._random.random() < self._at_work or deed is Deed.STOP
        return Fault(deed, victim, self._random.random(), seconds, at_work)


@dataclass(slots=True)
class Place:
    """Place in the population, and its process."""

    slot: int
    kind: Kind
    incarnation: int = 0
    pid: int = 0
    struck: bool = False
    stopped: bool = False
    spared_until: float = 0.0
    """A process that was stopped is not killed before it has continued for a while: else no zombie would come back."""


@dataclass
class Figures:
    """Counts of deeds, by kind of process."""

    kills: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    long_stops: int = 0
    stood: Counter[str] = field(default_factory=Counter)
    """The marks at which the killed stood."""
    missed: int = 0
    """Faults that found no process."""
    let_go: int = 0
    """Stops inside a transaction of SQLite, which were ended at once: all others would have had to wait."""
    broke: list[str] = field(default_factory=list)
    """Processes that ended by themselves."""
    seconds: float = 0.0

    def add(self, other: Figures) -> None:
        """Count what another storm did as well."""
        self.kills += other.kills
        self.stops += other.stops
        self.stood += other.stood
        self.long_stops += other.long_stops
        self.missed += other.missed
        self.let_go += other.let_go
        self.broke += other.broke
        self.seconds += other.seconds


class Storm:
    """The processes of one site, and what happens to them."""

    def __init__(self, site: Site, population: Mapping[Kind, int] = POPULATION) -> None:
        self.site = site
        self.figures = Figures()
        self.places = [
            Place(slot, kind) for slot, kind in enumerate(kind for kind, n in population.items() for _ in range(n))
        ]
        self._by_pid: dict[int, Place] = {}
        self._closed: set[Kind] = set()
        self._sleepers: list[tuple[float, int, tuple[int, ...]]] = []
        self._order = 0
        self._pending = b""
        self._stands = Stands(site.folder / "stands")
        self._zygote: subprocess.Popen[bytes] | None = None
        self._lock_probe: apsw.Connection | None = None

    def __enter__(self) -> Self:
        """Start everybody."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.zygote", self.site.to_json()],
            env={**os.environ, "PYTHONPATH": path, MARK: str(self.site.folder)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self.site.catalog_url.startswith("sqlite"):
            self._lock_probe = apsw.Connection(self.site.catalog_url.removeprefix("sqlite:///"))
        for place in self.places:
            self._fill(place)
        if not self.wait_until(lambda: all(place.pid for place in self.places), _BORN_WITHIN):
            msg = f"not all processes were started within {_BORN_WITHIN:.0f} s"
            raise RuntimeError(msg)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def rage(
        self,
        seconds: float,
        seed: int,
        report: Callable[[str], None],
        *,
        over: Callable[[], bool] = lambda: True,
        at_work: float = AT_WORK,
    ) -> None:
        """Strike for so long, and on until it is `over`; that share of faults is for those in the middle of work."""
        faults = Faults(seed, self.site.lease.total_seconds(), at_work)
        began = time.monotonic()
        due, reported = began, began
        while (now := time.monotonic()) < began + seconds or not over():
            if now >= due:
                self._strike(faults.next())
                due = max(due + 1 / RATE, time.monotonic() - 1)
            self._wake(now)
            if now - reported >= _REPORT_EVERY:
                reported = now
                report(self.tell(now - began))
            self._listen(max(0.0, due - time.monotonic()))
        self.figures.seconds += time.monotonic() - began

    def tell(self, seconds: float) -> str:
        """Print the progress."""
        kills, stops = self.figures.kills.total(), self.figures.stops.total()
        return f"{seconds:5.0f} s  {kills} kills, {stops} stops ({len(self._sleepers)} now)"

    def close(self, *kinds: Kind) -> None:
        """Kill all processes of these kinds, without replacement."""
        self._closed.update(kinds)
        for place in self.places:
            if place.kind in kinds and place.pid:
                self._kill(place)

    def calm(self) -> None:
        """Let all that are stopped go on."""
        self._wake(float("inf"))

    def wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Let them work until it holds, at most so long; whether it did."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._listen(0.3)
            if holds():
                return True
        return False

    def end(self) -> None:
        """Kill everybody, and wait until they are gone."""
        self.calm()
        self.close(*Kind)
        deadline = time.monotonic() + 20
        while self._by_pid and time.monotonic() < deadline:
            self._listen(0.1)
        if self._zygote is not None:
            self._zygote.stdin.close()
            self._zygote.wait(20)
            self._zygote.stdout.close()
            self._zygote = None
        if self._lock_probe is not None:
            self._lock_probe.close()
            self._lock_probe = None

    # Faults

    def _strike(self, fault: Fault) -> None:
        if fault.victim in {DRIVER, BOTH}:
            found = [(place, pid) for place in self._alive(Kind.RUNNER) for pid in children(place.pid)]
            if not found:
                self.figures.missed += 1
                return
            place, driver = found[int(fault.pick * len(found))]
            pids = (driver,) if fault.victim == DRIVER else (driver, place.pid)
        else:
            places = self._find_places(fault)
            if not places:
                self.figures.missed += 1
                return
            place = places[int(fault.pick * len(places))]
            pids = (place.pid,)
        if fault.deed is Deed.KILL:
            if place.pid in pids:
                place.struck = True
            for pid in pids:
                _send(pid, signal.SIGKILL)
            self.figures.kills[place.kind if len(pids) == 1 and pids[0] == place.pid else fault.victim] += 1
        elif self._stop(pids):
            if place.pid in pids:
                place.stopped = True
                place.spared_until = time.monotonic() + fault.seconds + _SPARED
            self.figures.stops[fault.victim] += 1
            self.figures.long_stops += fault.seconds > self.site.lease.total_seconds()
            self._order += 1
            heapq.heappush(self._sleepers, (time.monotonic() + fault.seconds, self._order, pids))

    def _find_places(self, fault: Fault) -> list[Place]:
        """Find the places that the fault may strike: of its kind, or for a kill at work of another kind if needed."""
        if fault.victim == OF_WINDOWS:
            workers = self._unstopped(self._alive(Kind.WORKER))
            return [place for place in workers if self._stands.read(place.slot).partition(" ")[2] in WINDOWS]
        places = self._unstopped(self._alive(Kind(fault.victim)))
        if not fault.at_work:
            return places
        busy = self._at_work(places)
        if not busy and fault.deed is Deed.KILL:
            busy = self._at_work(
                self._unstopped([place for place in self.places if KILLS[place.kind] >= 1 and place.pid])
            )
        return busy or [place for place in places if self._stands.read(place.slot) != STARTS] or places

    def _unstopped(self, places: Sequence[Place]) -> list[Place]:
        now = time.monotonic()
        return [place for place in places if not place.stopped and place.spared_until < now]

    def _at_work(self, places: Sequence[Place]) -> list[Place]:
        return [p for p in places if not p.struck and self._stands.read(p.slot) not in {STARTS, WAITS}]

    def _stop(self, pids: Sequence[int]) -> bool:
        """Stop them, but on SQLite none that holds the catalog's lock for longer than a moment."""
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        if self._lock_probe is None:
            return True
        deadline = time.monotonic() + _STOPPED_WITHIN
        while time.monotonic() < deadline:
            with suppress(apsw.BusyError):
                self._lock_probe.execute("BEGIN IMMEDIATE; ROLLBACK")
                return True
            time.sleep(0.001)
        for pid in pids:
            _send(pid, signal.SIGCONT)
        self.figures.let_go += 1
        return False

    def _wake(self, now: float) -> None:
        while self._sleepers and self._sleepers[0][0] <= now:
            for pid in heapq.heappop(self._sleepers)[2]:
                _send(pid, signal.SIGCONT)
                if pid in self._by_pid:
                    self._by_pid[pid].stopped = False

    def _alive(self, kind: Kind) -> list[Place]:
        return [place for place in self.places if place.kind is kind and place.pid and not place.struck]

    def _kill(self, place: Place) -> None:
        place.struck = True
        _send(place.pid, signal.SIGKILL)

    # Births and deaths

    def _fill(self, place: Place) -> None:
        place.incarnation += 1
        place.struck = place.stopped = False
        place.spared_until = 0.0
        order = {"slot": place.slot, "kind": place.kind, "incarnation": place.incarnation}
        assert self._zygote is not None
        self._zygote.stdin.write(json.dumps(order).encode() + b"\n")
        self._zygote.stdin.flush()

    def _listen(self, seconds: float) -> None:
        """Collect births and deaths of processes, for at most so long."""
        assert self._zygote is not None
        out = self._zygote.stdout.fileno()
        readable, _, _ = select.select([out], [], [], seconds)
        if not readable:
            return
        received = os.read(out, 65536)
        if not received:
            msg = f"the parent of all workers has ended: see {self.site.complaints}"
            raise RuntimeError(msg)
        *lines, self._pending = (self._pending + received).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, event: Mapping[str, object]) -> None:
        place = self.places[int(str(event["slot"]))]
        pid = int(str(event["pid"]))
        if event["event"] == "forked":
            place.pid = pid
            self._by_pid[pid] = place
            if place.kind in self._closed:
                self._kill(place)
            return
        del self._by_pid[pid]
        place.pid = 0
        if place.struck and event["code"] == -signal.SIGKILL:
            if place.kind not in self._closed:
                self.figures.stood[str(event["stood"])] += 1
        else:
            how = f"{place.kind} {place.slot} ({place.incarnation}) ended with {event['code']} at {event['stood']}"
            self.figures.broke.append(how)
        if place.kind not in self._closed:
            self._fill(place)


def children(pid: int) -> list[int]:
    """The processes that it has started, whichever thread did."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return sorted(found)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
