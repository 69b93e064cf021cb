"""Deployed apps, as `Mill` offers them.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.errors import NotFound
from tidemill.json_specs import read_text
from tidemill.lake.datasets import list_datasets
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun
from tidemill.names import Namespace, nearest, qualified
from tidemill.run.programs import AppSpec, list_programs
from tidemill.schedule.schedules import list_schedules

if TYPE_CHECKING:
    from tidemill.app.deploy import Deleted
    from tidemill.mill.apps_sql import Sql

SQL: Sql = load_sql(__file__)


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


class Apps(Noun):
    """Operations on apps."""

    noun = "app"

    @operation(Right.READ)
    def list(self) -> Sequence[AppView]:
        """List all deployed apps by name."""
        return self._catalog.read(_views)

    @operation(Right.READ)
    def show(self, name: str) -> AppView:
        """Return an app; `NotFound` with the nearest name."""
        namespace, (local,) = self._project.split("app", name, 1)
        wanted = qualified(namespace, local)
        views = {view.name: view for view in self.list()}
        if wanted not in views:
            raise NotFound("app", wanted, nearest(wanted, views))
        return views[wanted]

    @operation(Right.DEPLOY)
    def delete(self, name: str) -> Deleted:
        """Undo the deployment of an app; `NotFound` with the nearest name.

        Its schedules go, with their pending jobs; its programs and their consumers are kept as retired. Data sets stay.
        Runs under way go on. A deployment of the app brings all back but the schedules that it does not declare.
        """
        # Two thirds of what this module would load, and no list needs it.
        from tidemill.app.deploy import delete_app

        namespace, (local,) = self._project.split("app", name, 1)

        def block(db: Db) -> Deleted:
            seq = db.tick()
            check_app(db, namespace, local)
            deleted = delete_app(db, self._world, seq, namespace, local)
            self._note("delete", qualified(namespace, local)).write(db)
            return deleted

        return self._catalog.write(block)


def check_app(db: Db, namespace: Namespace, name: str) -> None:
    """Raise `NotFound`, with the nearest name, unless the app is deployed."""
    if db.one(SQL.find_app, namespace=namespace, name=name) is None:
        wanted = qualified(namespace, name)
        known = [qualified(Namespace(str(row[0])), str(row[1])) for row in db.all(SQL.list_apps)]
        raise NotFound("app", wanted, nearest(wanted, known))


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
                file=read_text(AppSpec, str(spec)).file,
                datasets=tuple(d.name for d in datasets if (d.namespace, d.app) == own),
                programs=tuple(p.name for p in programs if (p.namespace, p.app) == own and not p.retired),
                schedules=tuple(s.name for s in schedules if (s.namespace, s.app) == own),
            )
        )
    return views
