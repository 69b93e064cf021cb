"""Schedules, as `Mill` shows them; `schedule_changes` changes them.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice

from tidemill.catalog.db import Db
from tidemill.durations import format_duration
from tidemill.epoch import to_ms
from tidemill.errors import NotFound
from tidemill.lake.datasets import Dataset
from tidemill.mill.project import program_names
from tidemill.mill.scheduled import Scheduled
from tidemill.names import ProgramId, dataset_events
from tidemill.schedule import schedules
from tidemill.schedule.specs import Schedule
from tidemill.schedule.time_triggers import TimeTrigger


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule; trigger and constraints as people write them."""

    name: str
    program: str
    status: str
    owner: str
    generation: int
    trigger: str
    constraints: str
    arguments: Mapping[str, object]
    description: str
    priority: int
    timeout: str
    misfire: str
    next_fire_at: int | None
    waiting_periods: int
    """Ends of periods that wait for runs of their own (`WatermarkPassed` with `mode="each"`)."""


@dataclass(frozen=True, slots=True)
class FireView:
    """A time at which a schedule's time trigger fires: its logical time."""

    fire_at: int
    trigger: str


class Schedules(Scheduled):
    """Lists of schedules, and what starts them when."""

    def list_schedules(self) -> list[ScheduleView]:
        """All schedules by name."""

        def block(db: Db) -> list[ScheduleView]:
            names = program_names(db)
            return [_schedule_view(db, schedule, names) for schedule in schedules.list_schedules(db)]

        return self.catalog.read(block)

    def show_schedule(self, name: str) -> ScheduleView:
        """One schedule; `NotFound` with the nearest name."""
        return self.catalog.read(lambda db: _schedule_view(db, self._schedule(db, name), program_names(db)))

    def next_fires(self, name: str, *, limit: int = 5) -> list[FireView]:
        """The next times at which a schedule's time triggers fire, soonest first; none while it is suspended.

        Those of `Every` hold if nothing starts the program before.
        """

        def block(db: Db) -> list[FireView]:
            schedule = self._schedule(db, name)
            timers = schedules.read_timers(db, schedule.schedule_id)
            leaves = schedule.spec.trigger.leaves
            fires = [
                FireView(to_ms(at), str(leaf))
                for trigger_no, first in timers.items()
                if isinstance(leaf := leaves[trigger_no], TimeTrigger)
                for at in islice(chain([first], leaf.fires_after(first)), limit)
            ]
            return sorted(fires, key=lambda fire: fire.fire_at)[:limit]

        return self.catalog.read(block)

    def find_triggered(self, name: str) -> list[ScheduleView]:
        """The schedules that listen to a data set, or to what a program (`app.program`) writes; by name. `NotFound`."""

        def block(db: Db) -> list[ScheduleView]:
            datasets = self._written_or_named(db, name)
            listening = {
                schedule.qualified_name: schedule
                for dataset in datasets
                for key in dataset_events(dataset.namespace, dataset.name)
                for schedule in schedules.list_schedules(db, event_key=key)
            }
            names = program_names(db)
            return [_schedule_view(db, schedule, names) for _, schedule in sorted(listening.items())]

        return self.catalog.read(block)

    def _written_or_named(self, db: Db, name: str) -> list[Dataset]:
        if "." in name:
            try:
                return [self._dataset(db, written) for written in self._program(db, name).writes]
            except NotFound:
                if name.count(".") > 1:
                    raise
        return [self._dataset(db, name)]


def _schedule_view(db: Db, schedule: Schedule, names: Mapping[ProgramId, str]) -> ScheduleView:
    fires_at = next(iter(schedules.read_timers(db, schedule.schedule_id).values()), None)
    return ScheduleView(
        name=schedule.qualified_name,
        program=names.get(schedule.program_id, schedule.program_id),
        status=schedule.status,
        owner=schedule.owner,
        generation=schedule.generation,
        trigger=str(schedule.spec.trigger),
        constraints=", ".join(str(constraint) for constraint in schedule.spec.constraints),
        arguments=schedule.spec.arguments,
        description=schedule.spec.description,
        priority=schedule.spec.priority,
        timeout=format_duration(schedule.spec.timeout),
        misfire=schedule.spec.misfire.value,
        next_fire_at=None if fires_at is None else to_ms(fires_at),
        waiting_periods=schedules.count_waiting(db, schedule),
    )
