"""Deployments as the catalog keeps them: the history of an app, and the code to which a rollback returns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidemill.app.difference import PartChange
from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.errors import NotFound, UserError
from tidemill.names import Namespace, qualified

if TYPE_CHECKING:
    from tidemill.app.deployments_sql import Sql

SQL: Sql = load_sql(__file__)

KEPT: Final = 10
"""The number of deployments of an app, the newest, whose code is kept for a rollback."""
_MOST_CHANGES: Final = 100


class CannotRollBack(UserError):
    """An app has no earlier deployment whose code is still kept."""

    code = "cannot_roll_back"

    def __init__(self, app: str, why: str) -> None:
        self.app = app
        self.why = why
        super().__init__(
            f"app {app} is not rolled back: {why}",
            f"`tidemill app history {app}` lists its deployments, and `tidemill deploy` deploys the app file as it is",
        )


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment that changed something of its app.

    `changes` are lines for people, at most a hundred. `kept` is true while the code is kept, so that a rollback can
    return to it. `rolled_back_to` is the deployment that a rollback deployed again, and None for other deployments.
    """

    version: int
    deployed_at: datetime
    actor: str
    code: str
    kept: bool
    changes: tuple[str, ...]
    rolled_back_to: int | None
    file: str


@dataclass(frozen=True, slots=True)
class NewDeployment:
    """A deployment to be added to the history of its app.

    `file` is its app file, relative to the project, and `declaration` the JSON text of the app.
    """

    namespace: Namespace
    app: str
    version: int
    bundle: str
    file: str
    actor: str
    changes: tuple[PartChange, ...]
    rolled_back_to: int | None
    declaration: str


def put_deployment(db: Db, new: NewDeployment) -> None:
    """Add a deployment to the history of its app, and keep the code of its newest deployments only."""
    lines = [change.title for change in new.changes[:_MOST_CHANGES]]
    if len(new.changes) > _MOST_CHANGES:
        lines.append(f"and {len(new.changes) - _MOST_CHANGES} more")
    db.run(
        SQL.put_deployment,
        namespace=new.namespace,
        app=new.app,
        version=new.version,
        bundle=new.bundle,
        file=new.file,
        actor=new.actor,
        changes=json.dumps(lines),
        rolled_back_to=new.rolled_back_to,
        declaration=new.declaration,
    )
    forget_code(db, new.namespace, new.app, new.version - KEPT)


def forget_code(db: Db, namespace: Namespace, app: str, version: int) -> None:
    """Keep the code of an app's deployments up to `version` no longer; the janitor deletes what nothing else names."""
    db.run(SQL.forget_code, namespace=namespace, app=app, version=version)


def find_target(db: Db, namespace: Namespace, app: str, version: int, to: int | None) -> Deployment:
    """Return the deployment to which a rollback of the app returns from `version`: `to`, or the newest of other code.

    Raises `NotFound`, and `CannotRollBack` without such a deployment or without its code.
    """
    place = {"namespace": namespace, "app": app}
    name = qualified(namespace, app)
    current = db.record(SQL.find_deployment, Deployment, **place, version=version)
    if to is None and current is not None:
        to = db.value(SQL.find_previous, int, **place, version=version, bundle=current.code)
    if to is None:
        raise CannotRollBack(name, "it has no earlier deployment of other code")
    if to == version:
        raise CannotRollBack(name, f"deployment {version} is the current one")
    found = db.record(SQL.find_deployment, Deployment, **place, version=to)
    if found is None:
        raise NotFound("deployment", f"{to} of {name}", hint=f"`tidemill app history {name}` lists them")
    if not found.kept:
        raise CannotRollBack(name, f"the code of deployment {to} is deleted; that of the newest {KEPT} is kept")
    return found


def find_declaration(db: Db, namespace: Namespace, app: str, version: int) -> str:
    """Return the JSON text of an app as a deployment declared it; `CannotRollBack` if it is kept no longer."""
    row = db.one(SQL.find_declaration, namespace=namespace, app=app, version=version)
    if row is None or row[0] is None:
        raise CannotRollBack(qualified(namespace, app), f"the declaration of deployment {version} is deleted")
    return str(row[0])


def list_deployments(db: Db, namespace: Namespace, app: str, *, before: int, limit: int) -> list[Deployment]:
    """List the deployments of an app, newest first, from the version below `before` on."""
    return db.records(SQL.list_deployments, Deployment, namespace=namespace, app=app, before=before, limit=limit)
