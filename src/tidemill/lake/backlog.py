"""Backlogs: the work that waits in inputs, announced so that no work sticks, and postponed so that nothing spins.

After every end of a run each input of its program is announced by one message, if a take could claim anything of it.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from tidemill.catalog.db import Catalog
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, Statement

Act: TypeAlias = Callable[..., Call]
"""A statement that changes something: called with its parameters it gives a `Call`."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Backlog:
    """The statements of one table in which work waits. An id names the consumer, inbox or program that has the work."""

    phase: Phase
    publish: Act
    """With `ids` and `heard_by`: one message for each id that has work to claim now."""
    postpone: Act
    """With `id` and `wait`: give its work a time, after `wait` at the soonest, the longer it has waited the later."""
    find_next_due: Statement[...]
    find_due: Statement[...]
    clear_due: Act
    """With `ids`: work whose time has come needs no time any more, so that it is announced once."""
    rearm: Act | None = None
    """With `ids`: give the work that comes by itself, without a commit, the time at which it comes."""
    lock: Act | None = None
    """With `ids`: wait until takes under way have ended. The first statement of each effect."""
    note_unseen: Act | None = None
    """With `id`: count as work the first changes that no take has seen."""


def heard_by(schedules: Sequence[str]) -> str:
    """Return the end of a payload that names the schedules for which a message about work is; empty for all."""
    return f',"schedules":{json.dumps(sorted(schedules))}' if schedules else ""


@dataclass(frozen=True, slots=True)
class _BacklogEffect(Effect):
    backlog: Backlog
    ids: Sequence[str]

    @property
    def phase(self) -> Phase:
        """The phase of the table."""
        return self.backlog.phase

    def writes(self) -> Sequence[Call]:
        """Lock the ids, so that takes under way have ended; then the statements of the effect."""
        if not self.ids:
            return ()
        lock = () if self.backlog.lock is None else (self.backlog.lock(**self._which),)
        return (*lock, *self._changes())

    @property
    def _which(self) -> dict[str, Param]:
        return {"ids": json.dumps(sorted(self.ids))}

    @abstractmethod
    def _changes(self) -> Sequence[Call]: ...


@dataclass(frozen=True, slots=True)
class Announce(_BacklogEffect):
    """Announce each id that has work to claim now, so that no work sticks.

    The last effect of every end of a run. `schedules` are those that hear the message; all that listen when left out.
    """

    schedules: Sequence[str] = ()

    def _changes(self) -> Sequence[Call]:
        return (self.backlog.publish(heard_by=heard_by(self.schedules), **self._which),)


@dataclass(frozen=True, slots=True)
class Rearm(_BacklogEffect):
    """Give the work that comes by itself the time at which it comes. Stands after what moves the state of the work."""

    def _changes(self) -> Sequence[Call]:
        return () if self.backlog.rearm is None else (self.backlog.rearm(**self._which),)


@dataclass(frozen=True, slots=True)
class NoteUnseen(_BacklogEffect):
    """Count changes that no take has seen as work that waits, at the end of a run that was launched for them.

    A take moves the changes into the working set. A run that ended before its take has used up the messages of the
    changes, so no later message would start a run for them. Stands before `Announce` or `Postpone`.
    """

    def _changes(self) -> Sequence[Call]:
        note = self.backlog.note_unseen
        return () if note is None else [note(id=one) for one in self.ids]


@dataclass(frozen=True, slots=True)
class Postpone(_BacklogEffect):
    """Announce the work later, at the end of a run that could not even take it.

    In place of `Announce`, which would start the next such run at once, and so on. After `wait` at the soonest; the
    longer the work has waited the later, up to an hour.
    """

    wait: timedelta

    def _changes(self) -> Sequence[Call]:
        wait = max(timedelta(milliseconds=1), self.wait)
        return [self.backlog.postpone(id=one, wait=wait) for one in self.ids]


@dataclass(frozen=True, slots=True)
class _PublishDue(_BacklogEffect):
    def _changes(self) -> Sequence[Call]:
        cleared, rearm = self.backlog.clear_due(**self._which), Rearm(self.backlog, self.ids)
        return cleared, self.backlog.publish(heard_by="", **self._which), *rearm.writes()


def publish_due(catalog: Catalog, backlog: Backlog) -> list[str]:
    """Announce the postponed work whose time has come, once; return the ids that had such work. Cost: what is due."""
    due = [str(row[0]) for row in catalog.read(lambda db: db.all(backlog.find_due))]
    if due:
        catalog.world.mark("backlog.before_announce")
        catalog.apply([_PublishDue(backlog, due)])
    return due
