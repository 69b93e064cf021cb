"""Deployed apps, as `Mill` offers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.app.deployments import Deployment, find_target, list_deployments
from tidemill.catalog.db import Db
from tidemill.catalog.named import GREATEST, LAST_TEXT, load_sql
from tidemill.errors import NotFound, check_generation
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, cut, one_more, read_key, write_key
from tidemill.mill.project import Noun, Project
from tidemill.names import Namespace, check_name, nearest, qualified
from tidemill.run.records.programs import AppSpec

if TYPE_CHECKING:
    from tidemill.app.deploy import Deleted, Deployed
    from tidemill.mill.apps_sql import Sql
    from tidemill.mill.deployment import AppPlan

SQL: Sql = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class AppView:
    """An app as it was last deployed, and what belongs to it, by name."""

    name: str
    version: int
    deployed_at: datetime
    file: str
    datasets: tuple[str, ...]
    programs: tuple[str, ...]
    schedules: tuple[str, ...]
    spark_profiles: Mapping[str, str]
    """The named Spark profiles of programs, by program. The Spark of other programs has the settings of `[spark]`."""


class Apps(Noun):
    """Operations on apps."""

    noun = "app"

    @operation(Right.READ)
    def list(self, *, namespace: str | None = None, limit: int = PAGE, after: str = "") -> Page[AppView]:
        """List deployed apps by name: all, or those of a namespace. `BadName`."""
        place = read_key(after, ("", ""))
        until = LAST_TEXT
        if namespace is not None:
            until = Namespace(check_name("namespace", namespace))
            if not self._project.access.sees(until):
                return Page(())
            place = place if place[0] == namespace else (namespace, "")

        def block(db: Db) -> Page[AppView]:
            found = self._rows(
                lambda behind, most: db.records(
                    SQL.list_apps, DeployedApp, after_namespace=behind[0], after_name=behind[1], until=until, limit=most
                ),
                place,
                limit,
                lambda one: (str(one.namespace), str(one.name)),
                lambda rows: [one.namespace for one in rows],
                by_namespace=True,
            )
            return cut(found, limit, lambda app: write_key(app.namespace, app.name), lambda app: _view(db, app))

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, name: str) -> AppView:
        """Return an app; `NotFound` with the nearest name."""
        namespace, (local,) = self._project.split("app", name, 1)
        return self._catalog.read(
            lambda db: _view(db, find_deployed(db, namespace, local, everywhere=self._project.everywhere))
        )

    @operation(Right.READ)
    def history(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[Deployment]:
        """List the deployments of an app that changed something, newest first; `NotFound` with the nearest name."""
        namespace, (local,) = self._project.split("app", name, 1)
        (before,) = read_key(after, (GREATEST,))

        def block(db: Db) -> Page[Deployment]:
            check_app(db, namespace, local, everywhere=self._project.everywhere)
            found = list_deployments(db, namespace, local, before=before, limit=one_more(limit))
            return cut(found, limit, lambda one: write_key(one.version), lambda one: one)

        return self._catalog.read(block)

    @operation(Right.DEPLOY, command="deploy", whole=True, in_block=True)
    def deploy(
        self,
        name: str,
        declaration: Mapping[str, object],
        bundle: str,
        *,
        file: str = "app.py",
        declared: Sequence[str] | None = None,
        update_schedules: bool | None = None,
        if_generation: int | None = None,
    ) -> Deployed:
        """Deploy an app from its declaration as JSON and its code, in one transaction. No code is imported here.

        `bundle` is a zip of the app file with the modules and data files that it needs, as base64. `file` is the app
        file, relative to the folder of the project. With `declared`, the names of all apps of the app file, the result
        names apps that the file no longer declares. `update_schedules` is that of `Mill.deploy`. With `if_generation`
        the app must have this version, and none for 0. A code of 64 MB at most is taken, and a request of 8 MiB.

        `BadApp`, `BadBundle`, `BadJson`, `ChangedMeanwhile`, and what a deployment raises.
        """
        from tidemill.mill.deployment import Received, deploy_received

        namespace, (local,) = self._project.split("app", name, 1)
        received = Received(declaration, bundle, file, declared)
        return deploy_received(
            self._project,
            namespace,
            local,
            received,
            update_schedules=update_schedules,
            if_generation=if_generation,
        )

    @operation(Right.DEPLOY, command="plan", no_audit="changes nothing", no_key="changes nothing", whole=True)
    def plan(
        self,
        declarations: Sequence[Mapping[str, object]],
        sums: Mapping[str, str],
        *,
        file: str = "app.py",
        update_schedules: bool | None = None,
    ) -> Sequence[AppPlan]:
        """Show what deployments of apps, by their declarations as JSON, would change, one after the other.

        `sums` are the SHA-256 hashes of the files of the code, by name. `file` and `update_schedules` are those of
        `deploy`. Nothing is changed. Raises what `deploy` would raise.
        """
        from tidemill.mill.deployment import plan_received

        return plan_received(self._project, declarations, sums, file, update_schedules=update_schedules)

    @operation(Right.DEPLOY, in_block=True)
    def rollback(
        self,
        name: str,
        *,
        to: int | None = None,
        update_schedules: bool | None = None,
        if_generation: int | None = None,
    ) -> Deployed:
        """Deploy an earlier deployment of an app again, as a new deployment.

        The app gets the code of that deployment and all that it declared, in one transaction. `to` is its
        number; None means the newest deployment of other code. `update_schedules` is that of `Mill.deploy`. An attempt
        under way keeps its code. With `if_generation` the app must have this version, else `ChangedMeanwhile`. Raises
        `NotFound`, and `CannotRollBack` when the code is no longer kept.
        """
        from tidemill.mill.deployment import deploy_again

        namespace, (local,) = self._project.split("app", name, 1)

        def look(db: Db) -> Deployment:
            app = find_deployed(db, namespace, local, everywhere=self._project.everywhere)
            return find_target(db, namespace, local, app.version, to)

        target = self._catalog.read(look)
        return deploy_again(
            self._project,
            namespace,
            local,
            target,
            update_schedules=update_schedules,
            if_generation=if_generation,
        )

    @operation(Right.DEPLOY, in_block=True)
    def delete(self, name: str, *, if_generation: int | None = None) -> Deleted:
        """Undo the deployment of an app; `NotFound` with the nearest name.

        With `if_generation` the app must have this version, else `ChangedMeanwhile`.

        Its schedules go, with their pending jobs; its programs and their consumers are kept as retired. Data sets stay.
        Runs under way go on. A deployment of the app brings all back but the schedules that it does not declare.
        """
        # Two thirds of what this module would load, and no list needs it.
        from tidemill.app.deploy import delete_app

        namespace, (local,) = self._project.split("app", name, 1)

        def block(db: Db) -> Deleted:
            seq = db.tick()
            app = find_deployed(db, namespace, local, everywhere=self._project.everywhere)
            check_generation("app", qualified(namespace, local), app.version, if_generation)
            deleted = delete_app(db, self._world, seq, namespace, local)
            before = {
                "version": app.version,
                "schedules": len(deleted.schedules),
                "programs": len(deleted.programs),
                "jobs": deleted.dropped_jobs,
            }
            self._note("delete", qualified(namespace, local)).between(before, None).write(db)
            return deleted

        return self._catalog.write(block)


def find_app_named(project: Project, db: Db, app: str | None) -> tuple[Namespace, str] | None:
    """Return namespace and name of the app that a filter names, None without a filter; `NotFound`."""
    if app is None:
        return None
    namespace, (name,) = project.split("app", app, 1)
    check_app(db, namespace, name, everywhere=project.everywhere)
    return namespace, name


def check_app(db: Db, namespace: Namespace, name: str, *, everywhere: bool = False) -> None:
    """Raise `NotFound` unless the app is deployed, with the nearest name of its namespace, or with `everywhere` of all.

    `everywhere` is for a caller that may read all namespaces.
    """
    find_deployed(db, namespace, name, everywhere=everywhere)


@dataclass(frozen=True, slots=True)
class DeployedApp:
    """A row of a deployed app."""

    namespace: Namespace
    name: str
    version: int
    spec: AppSpec
    deployed_at: datetime


def find_deployed(db: Db, namespace: Namespace, name: str, *, everywhere: bool = False) -> DeployedApp:
    """Return a deployed app; `NotFound` as `check_app` raises it."""
    found = db.record(SQL.find_app, DeployedApp, namespace=namespace, name=name)
    if found is None:
        wanted = qualified(namespace, name)
        names = db.records(SQL.list_names, tuple[Namespace, str])
        known = (qualified(*one) for one in names if everywhere or one[0] == namespace)
        raise NotFound("app", wanted, nearest(wanted, known))
    return found


def _view(db: Db, app: DeployedApp) -> AppView:
    owned: dict[str, list[str]] = {}
    profiles: dict[str, str] = {}
    for kind, name, profile in db.records(SQL.list_owned, tuple[str, str, str], namespace=app.namespace, app=app.name):
        owned.setdefault(kind, []).append(name)
        if profile:
            profiles[name] = profile
    return AppView(
        name=qualified(app.namespace, app.name),
        version=app.version,
        deployed_at=app.deployed_at,
        file=app.spec.file,
        datasets=tuple(owned.get("dataset", ())),
        programs=tuple(owned.get("program", ())),
        schedules=tuple(owned.get("schedule", ())),
        spark_profiles=profiles,
    )
