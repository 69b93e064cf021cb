"""The deployment of a project's app file, as `Mill` offers it."""

from __future__ import annotations

from dataclasses import replace

from tidemill.app.deploy import Deployed, deploy, find_left
from tidemill.app.loading import load_with_code
from tidemill.mill.project import Project
from tidemill.names import qualified
from tidemill.run.records.bundles import delete_unused, store_bundle


def deploy_apps(project: Project, *, update_schedules: bool) -> list[Deployed]:
    """Deploy the apps of the configured app file; see `Mill.deploy`."""
    catalog, world, config = project.catalog, project.world, project.config
    apps, bundle = load_with_code(world.disk, config)
    stored = store_bundle(catalog, config.data, bundle)
    try:
        deployed = [
            deploy(
                catalog,
                world,
                config,
                app,
                update_schedules=update_schedules,
                bundle=stored,
                note=project.note("deploy", qualified(app.namespace, app.name), update_schedules=update_schedules),
            )
            for app in apps
        ]
        left = catalog.read(lambda db: find_left(db, world, config, apps))
        return [*deployed[:-1], replace(deployed[-1], apps_left=left)]
    finally:
        delete_unused(catalog, stored)
