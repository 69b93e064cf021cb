"""The schedule that a name means, for operations on schedules and on their jobs."""

from __future__ import annotations

from tidemill.catalog.db import Db
from tidemill.mill.project import Project, complete
from tidemill.schedule import schedules
from tidemill.schedule.specs import Schedule


def find_named(project: Project, db: Db, name: str) -> Schedule:
    """Return the schedule of that name, which may be short; `NotFound`, `AmbiguousName`."""
    if "." not in name:
        sees = project.access.sees
        seen = [one.qualified_name for one in schedules.list_by_name(db, name) if sees(one.namespace)]
        # All are read for the nearest name alone.
        known = seen or [one.qualified_name for one in schedules.list_schedules(db) if sees(one.namespace)]
        name = complete("schedule", name, known)
    namespace, (app, schedule) = project.split("schedule", name, 2)
    return schedules.find_schedule(db, namespace, app, schedule, everywhere=project.everywhere)
