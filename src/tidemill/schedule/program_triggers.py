"""Triggers that messages about programs feed: runs that have started, or ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidemill.catalog.messages import Message, Topic
from tidemill.names import STARTED, EventKey, advise, program_event, qualified, split_qualified
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.data_triggers import MessageTrigger
from tidemill.schedule.triggers import BadTrigger, Fed

STATES: Final = ("COMPLETED", "FAILED", "KILLED", STARTED)
"""The states of runs that can be waited for."""


def program_name(trigger: str, program: object) -> str:
    """Return the qualified name of a program, of which a trigger has the name or the declaration; `BadTrigger`."""
    name = program if isinstance(program, str) else getattr(program, "qualified_name", None)
    if not isinstance(name, str):
        raise BadTrigger(trigger, f"a program of an app or its name (app.program) is wanted, not {program!r}")
    namespace, (app, local) = split_qualified("program", name, 2)
    return qualified(namespace, app, local)


@dataclass(frozen=True, slots=True, init=False)
class RunEnded(MessageTrigger):
    """`n` runs of a program have ended in one of `states` (seed 001, story 4): a program runs after another one.

    A run that is retried has not ended. A rejected run never began, and does not count. The state `STARTED` counts runs
    that have begun, each with its first attempt.
    """

    program: str
    states: tuple[str, ...] = ("COMPLETED",)
    n: int = 1

    def __init__(self, program: object, states: str | Iterable[str] = "COMPLETED", n: int = 1) -> None:
        name = program_name("RunEnded", program)
        if not isinstance(states, Iterable):
            raise BadTrigger("RunEnded", f"states must be a state or a list of states, not {states!r}")
        wanted = (states,) if isinstance(states, str) else tuple(states)
        for state in wanted:
            if state not in STATES:
                advice = advise(str(state), STATES, f"use {', '.join(STATES)}")
                raise BadTrigger("RunEnded", f"a run does not end as {state!r}; {advice}")
        if not wanted or len(set(wanted)) < len(wanted):
            raise BadTrigger("RunEnded", f"states must name at least one state, each once, not {wanted!r}")
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise BadTrigger("RunEnded", f"n must be a whole number of at least 1, not {n!r}")
        # A frozen class sets its fields this way: the arguments are wider than what is kept.
        object.__setattr__(self, "program", name)
        object.__setattr__(self, "states", wanted)
        object.__setattr__(self, "n", n)

    @property
    def heard_topic(self) -> str:
        """The topic of programs."""
        return Topic.PROGRAM

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """The runs of the program, by state."""
        namespace, (app, name) = split_qualified("program", self.program, 2)
        return tuple(program_event(namespace, app, name, state) for state in self.states)

    def __str__(self) -> str:
        states = "" if self.states == ("COMPLETED",) else f", {', '.join(self.states)}"
        return f"RunEnded({self.program}{states}{f', n={self.n}' if self.n > 1 else ''})"

    def feed(self, fed: Fed, message: Message) -> Fed:  # a message is a run
        """Return what the leaf was fed, with one run added."""
        return replace(fed, count=fed.count + 1)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by `n` runs."""
        counted = f"{fed[0].count}/{self.n} runs of {self.program} ended {' or '.join(self.states)}"
        return Satisfied(counted) if fed[0].count >= self.n else Waiting(counted)
