"""What operations on schedules and on their jobs start from: the schedule that a name means."""

from __future__ import annotations

from tidemill.catalog.db import Db
from tidemill.mill.project import Project, complete
from tidemill.schedule import schedules
from tidemill.schedule.specs import Schedule


class Scheduled(Project):
    """A project whose schedules can be found by name."""

    def _schedule(self, db: Db, name: str) -> Schedule:
        if "." not in name:
            name = complete("schedule", name, [one.qualified_name for one in schedules.list_schedules(db)])
        namespace, (app, schedule) = self._split("schedule", name, 2)
        return schedules.find_schedule(db, namespace, app, schedule)
