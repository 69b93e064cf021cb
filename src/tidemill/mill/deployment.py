"""The deployment of a project's app file, as `Mill` offers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.app.deploy import Deployed, DeployedCode, deploy, find_left, plan
from tidemill.app.deployments import Deployment
from tidemill.app.difference import Act, Part, PartChange, describe
from tidemill.app.loading import load_bundle, load_with_code
from tidemill.errors import NotFound
from tidemill.mill.project import Project
from tidemill.names import Namespace, nearest, qualified
from tidemill.run.records.bundles import delete_unused, find_sums, keep_bundle, put_bundle, store_bundle, unpack
from tidemill.schedule.specs import Owner


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


def deploy_apps(project: Project, *, update_schedules: bool | None) -> list[Deployed]:
    """Deploy the apps of the configured app file; see `Mill.deploy`."""
    catalog, world, config = project.catalog, project.world, project.config
    update = config.update_schedules if update_schedules is None else update_schedules
    apps, bundle = load_with_code(world.disk, config)
    stored = store_bundle(catalog, config.data, bundle)
    try:
        deployed = [
            deploy(
                catalog,
                world,
                config,
                app,
                update_schedules=update,
                code=DeployedCode(bundle.digest, bundle.sums, lambda db: put_bundle(db, stored)),
                note=project.note("deploy", qualified(app.namespace, app.name), update_schedules=update),
            )
            for app in apps
        ]
        left = catalog.read(lambda db: find_left(db, world, config, apps))
        return [*deployed[:-1], replace(deployed[-1], apps_left=left)]
    finally:
        delete_unused(catalog, stored)


def plan_apps(project: Project, *, update_schedules: bool | None) -> list[AppPlan]:
    """Plan the deployment of the configured app file; see `Mill.plan`."""
    catalog, world, config = project.catalog, project.world, project.config
    update = config.update_schedules if update_schedules is None else update_schedules
    apps, bundle = load_with_code(world.disk, config)
    code = DeployedCode(bundle.digest, bundle.sums, lambda _: None)
    planned = plan(catalog, world, config, apps, update_schedules=update, code=code)
    left = catalog.read(lambda db: find_left(db, world, config, apps))
    plans = [_plan(one) for one in planned]
    return [*plans[:-1], replace(plans[-1], apps_left=left)]


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
    project: Project, namespace: Namespace, name: str, target: Deployment, *, update_schedules: bool | None
) -> Deployed:
    """Deploy the code of an earlier deployment of an app, and what it declares, as a new deployment.

    Raises `CodeUnavailable`, `BrokenApp`, `BundleDeleted`, and what a deployment raises.
    """
    catalog, world, config = project.catalog, project.world, project.config
    update = config.update_schedules if update_schedules is None else update_schedules
    folder = unpack(catalog, config.state, target.code)
    app_file = config.folder / target.file
    apps = {(app.namespace, app.name): app for app in load_bundle(app_file, folder)}
    app = apps.get((namespace, name))
    if app is None:
        known = (qualified(*key) for key in apps)
        raise NotFound("app", qualified(namespace, name), nearest(qualified(namespace, name), known))
    sums: Mapping[str, str] = catalog.read(lambda db: find_sums(db, target.code))
    return deploy(
        catalog,
        world,
        replace(config, app=Path(app_file)),
        app,
        update_schedules=update,
        code=DeployedCode(target.code, sums, lambda db: keep_bundle(db, target.code)),
        note=project.note("app.rollback", qualified(namespace, name), to=target.version, update_schedules=update),
        rolled_back_to=target.version,
    )
