"""Deployed apps, as `Mill` offers them.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.errors import NotFound
from tidemill.lake.datasets import list_datasets
from tidemill.mill.project import Project
from tidemill.names import Namespace, nearest, qualified
from tidemill.run.programs import list_programs
from tidemill.schedule.schedules import list_schedules

SQL: Final = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class AppView:
    """An app as it was last deployed, and what belongs to it, by name."""

    name: str
    version: int
    deployed_at: int
    file: str
    datasets: tuple[str, ...]
    programs: tuple[str, ...]
    schedules: tuple[str, ...]


class Apps(Project):
    """Operations on apps."""

    def list_apps(self) -> list[AppView]:
        """All deployed apps by name."""
        return self.catalog.read(_views)

    def show_app(self, name: str) -> AppView:
        """One app; `NotFound` with the nearest name."""
        namespace, (local,) = self._split("app", name, 1)
        wanted = qualified(namespace, local)
        views = {view.name: view for view in self.list_apps()}
        if wanted not in views:
            raise NotFound("app", wanted, nearest(wanted, views))
        return views[wanted]


def _views(db: Db) -> list[AppView]:
    datasets, programs, schedules = list_datasets(db), list_programs(db), list_schedules(db)
    views = []
    for namespace, name, version, spec, deployed_at in db.all(SQL.list_apps):
        own = (Namespace(str(namespace)), str(name))
        views.append(
            AppView(
                name=qualified(*own),
                version=cast("int", version),
                deployed_at=cast("int", deployed_at),
                file=json.loads(str(spec))["file"],
                datasets=tuple(d.name for d in datasets if (d.namespace, d.app) == own),
                programs=tuple(p.name for p in programs if (p.namespace, p.app) == own),
                schedules=tuple(s.name for s in schedules if (s.namespace, s.app) == own),
            )
        )
    return views
