"""Kills of a project's own programs at every step, and the proof that none of them loses or doubles anything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from tidemill.testing.machine import Crash, InTurn, Machine, PointKind, Process

_STEPS: Final = {PointKind.MARK, PointKind.BEFORE_WRITE, PointKind.AFTER_WRITE, PointKind.DISK}
"""Kinds of points at which a death of a driver can matter: between two reads nothing has changed."""
_OPEN: Final = {"NEW", "IN_PROGRESS", "ERROR"}
_SECOND_DEATH: Final = 1 / 3


@dataclass(frozen=True, slots=True)
class StoryStep:
    """A step of a driver in a story: its name, and how often drivers have come to a step of that name before."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} ({self.number + 1})"


@dataclass
class Killer(InTurn):
    """Kills the driver that comes to the step `first`, and perhaps one that comes so many steps later."""

    first: StoryStep | None = None
    second_after: int | None = None
    steps: list[StoryStep] = field(default_factory=list)
    """The steps that drivers came to, in order."""
    killed: list[StoryStep] = field(default_factory=list)

    def befall(self, machine: Machine, process: Process) -> BaseException | None:
        """Strike at the steps that were drawn."""
        del machine
        if process.group.parent is None or process.point.kind not in _STEPS:
            return None
        name = str(process.point)
        step = StoryStep(name, sum(one.name == name for one in self.steps))
        self.steps.append(step)
        if not self._strikes(step):
            return None
        self.killed.append(step)
        return Crash(str(step))

    def _strikes(self, step: StoryStep) -> bool:
        if not self.killed:
            return step == self.first
        if len(self.killed) > 1 or self.second_after is None:
            return False
        self.second_after -= 1
        return self.second_after == 0


@dataclass(frozen=True)
class StoryOutcome:
    """The outcome of a story: the state of each file of each inbox, and the rows of each file set and snapshot."""

    files: Counter[str]
    rows: Counter[str]

    def waiting(self) -> list[str]:
        """The files that are neither processed nor quarantined."""
        return sorted(file for file in self.files if file.rpartition(" ")[2] in _OPEN)

    def differences(self, other: StoryOutcome) -> Iterator[str]:
        """Name all that this outcome has more often than `other`, or less often."""
        ours, theirs = self.files + self.rows, other.files + other.rows
        yield from (f"+{count} {what}" for what, count in sorted((ours - theirs).items()))
        yield from (f"-{count} {what}" for what, count in sorted((theirs - ours).items()))


def draw_deaths(steps: Collection[StoryStep], seed: int, most: int) -> list[Killer]:
    """Draw the deaths of each playing: one death at each named step first, and then at its other occurrences."""
    draw = random.Random(seed)
    order = sorted(steps, key=lambda step: (step.number > 0, draw.random()))[:most]
    return [
        Killer(first=step, second_after=draw.randint(1, len(steps)) if draw.random() < _SECOND_DEATH else None)
        for step in order
    ]
