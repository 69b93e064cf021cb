"""Windows: the input of a window program, which itself plans what it computes, and moves its state with its commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Never

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.lake.backlog import Rearm
from tidemill.lake.consumer.managed import Consumer
from tidemill.lake.datasets import Dataset
from tidemill.lake.window.retries import WINDOWS
from tidemill.lake.window.windows import find_state
from tidemill.names import ScheduleId
from tidemill.run.records.programs import Program
from tidemill.run.step.input_kind import InputKind, Leaving


def computes_windows(db: Db, program: Program) -> bool:
    """Return whether `program` is a window program."""
    return find_state(db, program.program_id) is not None


@dataclass(eq=False)
class WindowInputs(InputKind):
    """The closed windows of a program; none of a program that is no window program."""

    backlog = WINDOWS

    program: Program
    taken: Mapping[str, Never] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, db: Db, program: Program, datasets: Mapping[str, Dataset], consumers: Mapping[str, Consumer]
    ) -> WindowInputs:
        """Find nothing: the state of a window program is looked up by the program's id."""
        del db, datasets, consumers
        return cls(program)

    def list_waiting(self, db: Db) -> Collection[str]:
        """Return what a window program reads."""
        return self.program.reads if computes_windows(db, self.program) else ()

    @property
    def ids(self) -> Sequence[str]:
        """The program."""
        return (self.program.program_id,)

    @classmethod
    def publish(cls, ids: Sequence[str], schedules: Sequence[ScheduleId] = ()) -> Sequence[Effect]:
        """Announce what is left now, and have it announced again when an input becomes idle."""
        return *super().publish(ids, schedules), Rearm(WINDOWS, ids)

    def announce(self) -> Sequence[Effect]:
        """Announce nothing: the program's own effect, which moves its state, announces what is left."""
        return ()

    def leave(self, leaving: Leaving) -> Sequence[Effect]:
        """Announce the windows later: no other run knows of them."""
        return self.postpone(self.ids, leaving.wait)
