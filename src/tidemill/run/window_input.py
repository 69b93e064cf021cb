"""Windows: the input of a window program, which itself plans what it computes, and moves its state with its commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Never

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.lake.datasets import Dataset
from tidemill.lake.window.retries import PostponeWindows, announce_due, next_due
from tidemill.lake.window.windows import PublishClosed
from tidemill.names import ProgramId, ScheduleId
from tidemill.run.input_kind import InputKind, Leaving
from tidemill.run.programs import Program


@dataclass(eq=False)
class Windows(InputKind):
    """The closed windows of a program; none of a program that is no window program."""

    program: Program
    taken: Mapping[str, Never] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, db: Db, program: Program, datasets: Mapping[str, Dataset]) -> Windows:
        """Find nothing: the state of a window program is looked up by the program's id."""
        del db, datasets
        return cls(program)

    @property
    def ids(self) -> Sequence[str]:
        """The program."""
        return (self.program.program_id,)

    @staticmethod
    def publish(ids: Sequence[str], schedules: Sequence[ScheduleId] = ()) -> Sequence[Effect]:
        """Announce windows that are closed and not published, or out of date."""
        return (PublishClosed([ProgramId(one) for one in ids], schedules),)

    @staticmethod
    def postpone(ids: Sequence[str], wait: timedelta) -> Sequence[Effect]:
        """Give the state of each window program a time."""
        return [PostponeWindows(ProgramId(one), wait) for one in ids]

    def announce(self) -> Sequence[Effect]:
        """Announce nothing: the program's own effect, which moves its state, announces what is left."""
        return ()

    def leave(self, leaving: Leaving) -> Sequence[Effect]:
        """Announce the windows later: no other run has been told of them."""
        return self.postpone(self.ids, leaving.wait)

    @staticmethod
    def next_due(db: Db) -> int | None:
        """Return when the next window program is told of its work again."""
        return next_due(db)

    @staticmethod
    def announce_due(catalog: Catalog) -> None:
        """Tell window programs of their work again."""
        announce_due(catalog)
