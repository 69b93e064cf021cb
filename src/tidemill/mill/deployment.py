"""The deployment of a project's app file, as `Mill` offers it."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from tidemill.app.app import App
from tidemill.app.declaration import read_declaration, restore_declaration
from tidemill.app.deploy import Deployed, DeployedCode, deploy, find_left, plan
from tidemill.app.deployments import Deployment, find_declaration
from tidemill.app.difference import Act, Part, PartChange, describe
from tidemill.app.loading import forget_brought, load_with_code
from tidemill.catalog.db import Db
from tidemill.config import Config
from tidemill.errors import TidemillError, UserError
from tidemill.lake.datasets import find_by_id
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.parked import release_parked
from tidemill.lake.window.watermark import list_parking
from tidemill.mill.project import Project
from tidemill.names import Namespace, qualified
from tidemill.run.records.bundles import (
    BadBundle,
    Bundle,
    delete_unused,
    digest_of,
    find_sums,
    keep_bundle,
    put_bundle,
    store_bundle,
)
from tidemill.schedule.specs import Owner

_log: Final = logging.getLogger(__name__)


class BadApp(UserError):
    """A declaration of an app that came from outside, and does not fit its request."""

    code = "bad_app"

    def __init__(self, app: str, why: str) -> None:
        self.app = app
        self.why = why
        super().__init__(
            f"app {app} is refused: {why}", "`tidemill --server URL deploy` sends what its app file declares"
        )


@dataclass(frozen=True, slots=True)
class AppPlan:
    """Changes that a deployment of an app would make.

    `version` is the number that the deployment would have. `ops_schedules` are the schedules of ops that it would
    delete. `watermarks` says where watermarks would move, whose times are read in another way.
    """

    app: str
    version: int
    changes: tuple[PartChange, ...]
    dropped_jobs: int
    ops_schedules: tuple[str, ...]
    watermarks: tuple[str, ...]
    apps_left: tuple[str, ...]

    def sentence(self) -> str:
        """Return lines for people."""
        lines = describe(self.app, self.version, self.changes)
        if self.dropped_jobs:
            lines.append(f"  would drop {self.dropped_jobs} pending job{'' if self.dropped_jobs == 1 else 's'}")
        lines += [f"  {line}" for line in self.watermarks]
        lines += [f"  the app file no longer declares app {name}, which goes on" for name in self.apps_left]
        return "\n".join(lines)


def deploy_apps(project: Project, *, update_schedules: bool | None, if_generation: int | None) -> list[Deployed]:
    """Deploy the apps of the configured app file; see `Mill.deploy`."""
    catalog, config = project.catalog, project.config
    update = config.update_schedules if update_schedules is None else update_schedules
    apps, bundle = load_with_code(project.world.disk, config)
    check_single(apps, if_generation)
    stored = store_bundle(catalog, config.data, bundle)
    try:
        deployed = [
            deploy(
                catalog,
                project.world,
                config,
                app,
                update_schedules=update,
                code=DeployedCode(bundle.digest, bundle.sums, lambda db: put_bundle(db, stored)),
                note=project.note("deploy", qualified(app.namespace, app.name), update_schedules=update),
                if_generation=if_generation,
                declared=_names_of(apps) if app is apps[-1] else None,
            )
            for app in apps
        ]
    finally:
        delete_unused(catalog, stored)
    for namespace, name in {app.namespace: app.name for app in apps}.items():
        _release_parked(project, namespace, f"deployment of {name}")
    return deployed


def _release_parked(project: Project, namespace: Namespace, cause: str) -> None:
    """Release partitions for which the code that was just imported reads times, also those of tables made by SQL.

    A file set whose partitions cannot be released is logged: the deployment has committed, and the next commit to the
    file set, or deployment, releases them.
    """
    for dataset_id in project.aside.read(lambda db: list_parking(db, namespace)):
        try:
            fileset = Fileset.of(project.aside.read(lambda db: find_by_id(db, dataset_id)))  # noqa: B023  # at once
            release_parked(project.aside, fileset, cause)
        except TidemillError as error:
            _log.warning("partitions of %s stay parked after the %s: %s", dataset_id, cause, error)


def check_single(apps: Sequence[App], if_generation: int | None) -> None:
    """Raise `BadApp` for a wanted generation of several apps."""
    if if_generation is not None and len(apps) > 1:
        raise BadApp(apps[0].name, f"its app file declares {len(apps)} apps, and a generation is that of one app")


def plan_apps(project: Project, *, update_schedules: bool | None) -> list[AppPlan]:
    """Plan the deployment of the configured app file; see `Mill.plan`."""
    apps, bundle = load_with_code(project.world.disk, project.config)
    return _plan_all(project, project.config, apps, bundle.sums, update_schedules=update_schedules)


@dataclass(frozen=True, slots=True)
class Received:
    """An app that a client declares, with its packed code.

    `file` is its app file, relative to the project, and `declared` are the names of all apps of that file, if known.
    """

    declaration: Mapping[str, object]
    bundle: str
    file: str
    declared: Sequence[str] | None


def deploy_received(
    project: Project,
    namespace: Namespace,
    name: str,
    received: Received,
    *,
    update_schedules: bool | None,
    if_generation: int | None,
) -> Deployed:
    """Deploy an app that a client declares, without importing its code; see `Apps.deploy`."""
    update = project.config.update_schedules if update_schedules is None else update_schedules
    app = _read_app(project, received.declaration)
    if (app.namespace, app.name) != (namespace, name):
        why = f"the declaration is that of app {qualified(app.namespace, app.name)}"
        raise BadApp(qualified(namespace, name), why)
    config = _with_file(project.config, received.file)
    try:
        packed = base64.b64decode(received.bundle, validate=True)
    except (binascii.Error, ValueError):
        raise BadBundle("it is no base64") from None
    bundle = Bundle.receive(packed)
    if config.app.name not in bundle.files:
        raise BadBundle(f"it has no app file {config.app.name}")
    declared = None if received.declared is None else [project.split("app", one, 1) for one in received.declared]
    stored = store_bundle(project.aside, config.data, bundle)
    try:
        return deploy(
            project.catalog,
            project.world,
            config,
            app,
            update_schedules=update,
            code=DeployedCode(bundle.digest, bundle.sums, lambda db: put_bundle(db, stored)),
            note=project.note("app.deploy", qualified(namespace, name), update_schedules=update),
            if_generation=if_generation,
            declared=None if declared is None else [(one, local) for one, (local,) in declared],
        )
    finally:
        delete_unused(project.aside, stored)


def plan_received(
    project: Project,
    declarations: Sequence[Mapping[str, object]],
    sums: Mapping[str, str],
    file: str,
    *,
    update_schedules: bool | None,
) -> list[AppPlan]:
    """Plan the deployment of apps that a client declares; see `Apps.plan`."""
    apps = [_read_app(project, one) for one in declarations]
    if not apps:
        raise BadApp("", "there is no declaration in the list")
    config = _with_file(project.config, file)
    return _plan_all(project, config, apps, dict(sorted(sums.items())), update_schedules=update_schedules)


def _plan_all(
    project: Project, config: Config, apps: Sequence[App], sums: Mapping[str, str], *, update_schedules: bool | None
) -> list[AppPlan]:
    catalog, world = project.catalog, project.world
    update = config.update_schedules if update_schedules is None else update_schedules
    code = DeployedCode(digest_of(sums), sums, lambda _: None)
    planned = plan(catalog, world, config, apps, update_schedules=update, code=code)
    left = catalog.read(lambda db: find_left(db, world, config, _names_of(apps)))
    plans = [_plan(one) for one in planned]
    return [*plans[:-1], replace(plans[-1], apps_left=left)]


def _read_app(project: Project, declaration: Mapping[str, object]) -> App:
    """Return the app that JSON declares, of a namespace that the caller may use."""
    app = read_declaration(dict(declaration))
    project.check(app.namespace, "app", qualified(app.namespace, app.name))
    return app


def _with_file(config: Config, file: str) -> Config:
    """Return the settings with another app file, which need not be on this machine; `BadApp`."""
    parts = file.split("/")
    if {"", ".", ".."} & set(parts) or not file.isprintable() or "\\" in file or not file.endswith(".py"):
        raise BadApp(file, "its app file is no path of a Python file, relative to the folder of the project")
    return replace(config, app=config.folder / PurePosixPath(file))


def _names_of(apps: Sequence[App]) -> list[tuple[Namespace, str]]:
    return [(app.namespace, app.name) for app in apps]


def _plan(planned: Deployed) -> AppPlan:
    removed = (one for one in planned.changes if (one.act, one.part) == (Act.REMOVE, Part.SCHEDULE))
    return AppPlan(
        app=planned.app,
        version=planned.version,
        changes=planned.changes,
        dropped_jobs=planned.dropped_jobs,
        ops_schedules=tuple(one.name for one in removed if one.owner == Owner.OPS),
        watermarks=planned.watermarks,
        apps_left=planned.apps_left,
    )


def deploy_again(
    project: Project,
    namespace: Namespace,
    name: str,
    target: Deployment,
    *,
    update_schedules: bool | None,
    if_generation: int | None,
) -> Deployed:
    """Deploy the code of an earlier deployment of an app, and what it declared, as a new deployment.

    No code is imported. Raises `BundleDeleted`, `CannotRollBack`, and what a deployment raises.
    """
    catalog, world, config = project.catalog, project.world, project.config
    update = config.update_schedules if update_schedules is None else update_schedules

    def look(db: Db) -> tuple[str, Mapping[str, str]]:
        return find_declaration(db, namespace, name, target.version), find_sums(db, target.code)

    declaration, sums = catalog.read(look)
    forget_brought()
    return deploy(
        catalog,
        world,
        replace(config, app=config.folder / target.file),
        restore_declaration(declaration),
        update_schedules=update,
        code=DeployedCode(target.code, sums, lambda db: keep_bundle(db, target.code)),
        note=project.note("app.rollback", qualified(namespace, name), to=target.version, update_schedules=update),
        rolled_back_to=target.version,
        if_generation=if_generation,
    )
