"""Counts of `/metrics` that grow: of what happened since the first scrape of a server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.errors import NotFound
from tidemill.histograms import Histogram, Shown
from tidemill.mill.metrics import find_fenced, find_spans
from tidemill.run.records.runs import RunState

if TYPE_CHECKING:
    from tidemill.mill.mill import Mill

_TOPIC: Final = "program"
_PART: Final = 1000
_PARTS: Final = 10
_ENDS: Final = tuple(state for state in RunState if state.ended)
_BOUNDS: Final = (0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0)
"""Seconds of runs: few, since each program has each of them."""
_COMMIT_BOUNDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
"""Seconds of commits."""


@dataclass(frozen=True, slots=True)
class ProgramEnds:
    """The runs of a program that ended: their number by state, their core-seconds, and histograms."""

    numbers: Mapping[str, int]
    core_seconds: float
    wait: Shown
    duration: Shown
    commit: Shown


class _Counted:
    """All counts of one program."""

    def __init__(self) -> None:
        self.numbers = Counter(dict.fromkeys(map(str, _ENDS), 0))
        self.core_time = timedelta(0)
        self.wait, self.duration = Histogram(_BOUNDS), Histogram(_BOUNDS)
        self.commit = Histogram(_COMMIT_BOUNDS)

    def shown(self, program: str) -> ProgramEnds:
        """Return the counts as they are now."""
        found = (Shown((program,), one.buckets(), one.sum) for one in (self.wait, self.duration, self.commit))
        return ProgramEnds(dict(self.numbers), self.core_time.total_seconds(), *found)


class EndedRuns:
    """Counts the ends of runs by their messages, from its first count on. A count costs what is new.

    The first answer with a program says zero, also of a program that was deployed and has ended since the answer
    before: Prometheus sees no increase in a series that begins at one.
    """

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._position: str | None = None
        self._counted: dict[str, _Counted] = {}
        self._changed: set[str] = set()
        """Programs of which the next answer differs from the last one."""
        self._answers: dict[str, ProgramEnds] = {}
        self._lock = threading.Lock()

    def count(self, programs: Iterable[str]) -> Mapping[str, ProgramEnds]:
        """Return the ends of `programs`, and of those that ended a run. What is beyond 10,000 waits for the next call.

        A program of which nothing is new has the very object of the answer before. A failure counts nothing: the next
        call reads the same messages.
        """
        with self._lock:
            for program in programs:
                self._find(program)
            for _ in range(_PARTS):
                if not self._read_on():
                    break
            new = self._changed - self._answers.keys()
            for program in self._changed:
                counted = _Counted() if program in new else self._counted[program]
                self._answers[program] = counted.shown(program)
            self._changed = {one for one in new if any(self._counted[one].numbers.values())}
            return dict(self._answers)

    def _find(self, program: str) -> _Counted:
        if program not in self._counted:
            self._counted[program] = _Counted()
            self._changed.add(program)
        return self._counted[program]

    def _read_on(self) -> bool:
        """Count a part of the new messages; return whether there are more."""
        topics = self._mill.topics
        if self._position is None:
            try:
                newest = topics.read(_TOPIC, limit=1)
            except NotFound:
                newest = None
            self._position = newest[0].position if newest else "0"
            return False
        page = topics.read(_TOPIC, after=self._position, limit=_PART)
        ends = [(message.published_at, message.payload) for message in page if message.event_type == "run_ended"]
        spans = find_spans(self._mill.project, [str(end["run_id"]) for _, end in ends])
        for announced_at, end in ends:
            program = str(end["program"])
            counted = self._find(program)
            self._changed.add(program)
            counted.numbers[str(end["state"])] += 1
            span = spans.get(str(end["run_id"]))
            if span is not None and span.started_at is not None:
                wait, duration = span.started_at - span.created_at, span.ended_at - span.started_at
                counted.wait.note(wait.total_seconds())
                counted.duration.note(duration.total_seconds())
            if span is not None and span.core_time is not None:
                counted.core_time += span.core_time
            if span is not None and span.commit_began_at is not None:
                # The message of the end is written by the last statements of the commit.
                counted.commit.note((announced_at - span.commit_began_at).total_seconds())
        if page:
            self._position = page[-1].position
        return page.next is not None


class FencedLeases:
    """Counts the transactions that were fenced, from its first count on. A count costs what is new.

    A transaction that began long ago may be fenced now, so that a position would miss it: all that were open at the
    last count are looked at.
    """

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._after: int | None = None
        self._known: set[int] = set()
        self._number = 0
        self._lock = threading.Lock()

    def count(self) -> int:
        """Return the number of transactions that were fenced since the first call."""
        with self._lock:
            after, found = find_fenced(self._mill.project, self._after)
            if self._after is not None:
                self._number += len(found - self._known)
            self._known = {one for one in found if one > after}
            self._after = after
            return self._number
