"""`Mill`: every operation of a project behind one object, so that Python, command line and pages cannot differ.

One object for a process; threads may share it. Operations are read by nouns, as on the command line:
`mill.schedules.suspend("shop.on_orders")`. Each noun has a file of its own here, with the records that it returns.
A noun is imported at its first use: a command starts in a third of the time that all nouns take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidemill.catalog.db import NO_CATALOG_YET, CatalogUnavailable
from tidemill.catalog.engine import connect, open_catalog
from tidemill.catalog.migrate import migrate, read_version
from tidemill.config import Config, load_config, without_password
from tidemill.errors import UserError
from tidemill.mill.access import EVERYTHING, Access
from tidemill.mill.lineage import MOST_DEPTH, MOST_NODES, Bounds, Lineage
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Project, find_project, user_of
from tidemill.mill.search_result import HITS, SearchResult
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.app.deploy import Deployed
    from tidemill.catalog.meter import Meter
    from tidemill.mill.alerts import Alerts
    from tidemill.mill.apps import Apps
    from tidemill.mill.audit import AuditLog
    from tidemill.mill.backfills import Backfills
    from tidemill.mill.catalog import CatalogUpkeep
    from tidemill.mill.consumers import Consumers
    from tidemill.mill.datasets import Datasets
    from tidemill.mill.deployment import AppPlan
    from tidemill.mill.hooks import Hooks
    from tidemill.mill.inboxes import Inboxes
    from tidemill.mill.jobs import Jobs
    from tidemill.mill.metrics import Metrics
    from tidemill.mill.nodes import Nodes
    from tidemill.mill.overview import Overview
    from tidemill.mill.runs import Runs
    from tidemill.mill.schedules import Schedules
    from tidemill.mill.snapshots import Snapshots
    from tidemill.mill.statements import Done
    from tidemill.mill.subscribers import Subscribers
    from tidemill.mill.tokens import Tokens
    from tidemill.mill.topics import Topics
    from tidemill.mill.transactions import Transactions
    from tidemill.mill.watermarks import Watermarks
    from tidemill.mill.why import Explanation
    from tidemill.run.processes.external import ExternalTransaction
    from tidemill.run.records.declared import Declared


class NoProject(UserError):
    """A command that deploys was called in a folder that holds no project."""

    code = "no_project"

    def __init__(self, folder: Path, app: Path) -> None:
        self.folder = str(folder)
        self.app = str(app)
        super().__init__(
            f"there is no project in {folder}: it has no app file {app}",
            "`tidemill init NAME` writes a project; `tidemill --project DIR …` names the folder of one",
            before=". ",
        )


class OldData(UserError):
    """A new catalog would be made beside the data of an earlier one, which it would not know."""

    code = "old_data"

    def __init__(self, catalog: str, data: str) -> None:
        self.catalog = catalog
        self.data = data
        super().__init__(
            f"there is no catalog {catalog}, but {data} holds the data of an earlier one",
            "put a backup in its place by `tidemill catalog restore BACKUP --adopt`, or begin with an empty catalog, "
            "which knows nothing of these data, by --new",
            before=": ",
        )


def open_project(
    folder: Path,
    *,
    options: Mapping[str, str] | None = None,
    create: bool = False,
    world: World | None = None,
    meter: Meter | None = None,
) -> Mill:
    """Open the project in `folder`; `options` override its settings. `create` makes the catalog if there is none."""
    return Mill(find_project(folder, options=options, create=create, world=world, meter=meter))


def begin_project(
    folder: Path,
    *,
    options: Mapping[str, str] | None = None,
    new: bool = False,
    world: World | None = None,
    meter: Meter | None = None,
) -> Mill:
    """Open the project in `folder` to deploy its app file; the first time, that makes its catalog.

    Raises `NoProject` in a folder without an app file; `OldData` where a catalog would be made beside the data of an
    earlier one, unless `new`.
    """
    world = world or World()
    config = load_begun(world, folder, options)
    world = replace(world, stores=config.stores)
    if not new and not _has_catalog(config.catalog, world):
        _refuse_old_data(world, config)
    return Mill(Project(open_catalog(config.catalog, world, meter=meter), world, config))


def open_planned(folder: Path, *, options: Mapping[str, str] | None = None, world: World | None = None) -> Mill:
    """Open the project in `folder` to plan a deployment; before the first one, on an empty catalog in memory.

    Raises `NoProject` and `OldData`, as `begin_project` does.
    """
    world = world or World()
    config = load_begun(world, folder, options)
    world = replace(world, stores=config.stores)
    if _has_catalog(config.catalog, world):
        return Mill(Project(open_catalog(config.catalog, world, create=False), world, config))
    _refuse_old_data(world, config)
    return Mill(Project(open_catalog(f"sqlite:///{world.new_id('plan')}?vfs=memdb", world), world, config))


def load_begun(world: World, folder: Path, options: Mapping[str, str] | None = None) -> Config:
    """Return the settings of the project in `folder`; `NoProject` without an app file."""
    config = load_config(world, folder, options)
    if not world.disk.exists(config.app):
        raise NoProject(config.folder, config.app)
    return config


def _refuse_old_data(world: World, config: Config) -> None:
    if open_files(config.data, world).list_folders():
        raise OldData(without_password(config.catalog), config.data)


def _has_catalog(url: str, world: World) -> bool:
    """Return whether there is a catalog. True also for one that cannot be reached at this moment."""
    try:
        catalog = connect(url, world, create=False)
    except CatalogUnavailable as error:
        return error.why != NO_CATALOG_YET
    try:
        return read_version(catalog) > 0
    finally:
        catalog.close()


def open_mill(where: str | Path) -> Mill:
    """Open a project by its folder, or a catalog by its URL, with the settings of the current folder."""
    text = str(where)
    if "://" in text:
        return open_project(Path(), options={"catalog": text}, create=True)
    return open_project(Path(where), create=True)


def migrate_project(folder: Path, *, options: Mapping[str, str] | None = None) -> list[int]:
    """Bring the schema of the project's catalog up to date; the versions applied."""
    world = World()
    catalog = connect(load_config(world, folder, options).catalog, world, create=False)
    try:
        return migrate(catalog, by=user_of(world))
    finally:
        catalog.close()


class Mill:
    """A project: its nouns, each with its operations, and what concerns the project as a whole."""

    def __init__(self, project: Project) -> None:
        self.project = project
        """Project that the operations work on. For Tidemill's own rooms, not for users."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the catalog."""
        self.project.catalog.close()

    def acting_as(self, actor: str, access: Access = EVERYTHING) -> Mill:
        """Return the same project for another caller, which the records of changes name."""
        return Mill(replace(self.project, caller=actor, access=access))

    @operation(Right.DEPLOY, no_route="the client sends what it reads: PUT /v1/apps/{name}", whole=True)
    def deploy(self, *, update_schedules: bool | None = None, if_generation: int | None = None) -> list[Deployed]:
        """Deploy the apps of the configured app file, each in one transaction, in their order in the file.

        With `update_schedules` the schedules follow the app file; with False they stay as they are. None: as the
        setting `deploy.update_schedules` says. The schedules of a removed program are deleted in any case.

        Their programs run the code that lies there at this moment, until the next deployment. The last result names
        apps of this project that the app file no longer declares: they go on until `mill.apps.delete`.

        With `if_generation` the one app of the app file must have this version (0: none), else `ChangedMeanwhile`.
        """
        from tidemill.mill.deployment import deploy_apps

        return deploy_apps(self.project, update_schedules=update_schedules, if_generation=if_generation)

    @operation(
        Right.DEPLOY,
        no_audit="changes nothing",
        no_route="the client sends what it reads: POST /v1/apps:plan",
        whole=True,
    )
    def plan(self, *, update_schedules: bool | None = None) -> list[AppPlan]:
        """Show what a deployment would change, without changing anything.

        One plan for each app of the app file, in order. A plan is a deployment that is rolled back: both name the same
        changes. Raises what `deploy` would raise.
        """
        from tidemill.mill.deployment import plan_apps

        return plan_apps(self.project, update_schedules=update_schedules)

    @operation(Right.DEPLOY)
    def sql(self, text: str) -> list[Done]:
        """Carry out the SQL statements in `text`, divided by semicolons, one after the other.

        `CREATE TABLE`, `ALTER TABLE … ADD|MODIFY|DROP WATERMARK`, `SET`, `RESET`, `DROP TABLE [IF EXISTS]`,
        `SHOW TABLES [IN namespace]`, `DESCRIBE`, `SELECT`, `INSERT INTO … SELECT`, `EXPLAIN`, `DROP PROGRAM [IF
        EXISTS]`, `SET TIME ZONE`. All are read before the first is carried out. `BadStatement` says where one cannot be
        read. `BadTable`, `BadInsert` and others say what does not fit.

        `SET TIME ZONE '…'` is for the statements that follow in `text`. A watermark that they declare records the zone
        if its options name none, and a `SELECT` without a window function computes in the zone.

        An `INSERT` declares a window program of the app `sql`, with the name of its output, and a schedule.

        A `SELECT` uses the Spark of this process, which is started if there is none, and has up to 1,000 rows. With a
        window function it computes all closed windows. It reads one snapshot, and writes nothing.
        """
        from tidemill.mill.statements import carry_out

        return carry_out(self.project, text)

    @operation(Right.READ)
    def why(self, thing: str, *, kind: str | None = None) -> Explanation:
        """Explain the state of a thing: a file, partition, message, window, job, run, data set or schedule.

        `kind` chooses where a name fits several kinds (`Explanation.also`). Each reason has a code of a closed list,
        the evidence, what would end the wait, and the time of the next look. Cost: look-ups, never the history.
        `NotFound` with the nearest name.
        """
        from tidemill.mill.why import explain

        return explain(self.project, thing, kind)

    @operation(Right.READ)
    def flow(self, around: str | None = None, *, limit: int = MOST_NODES) -> Lineage:
        """Show all that is declared as one graph: inboxes, data sets, programs, schedules, topics and hooks.

        With `around` only what lies upstream and downstream of one node: a data set, program or schedule, by its name
        or by the id of its node (`program:default.shop.load`). Edges have the times of the last moves. `Lineage.cut` is
        true if there are more than `limit` nodes. Cost: all programs, and look-ups for the nodes of the answer.
        `NotFound`.
        """
        from tidemill.mill.lineage_declared import trace_all, trace_around

        bounds = Bounds(depth=MOST_DEPTH, nodes=limit)
        if around is None:
            return self.project.catalog.read(lambda db: trace_all(self.project, db, limit))
        return self.project.catalog.read(lambda db: trace_around(self.project, db, around, bounds))

    @operation(Right.READ, whole=True)
    def metrics(self) -> Metrics:
        """Measure what waits, runs and is late: the numbers that `/metrics` of the server has for Prometheus.

        Cost: the data sets, and look-ups; never the history.
        """
        from tidemill.mill.metrics import measure

        return measure(self.project)

    @operation(Right.READ)
    def overview(self, *, limit: int = 50, after: str = "") -> Overview:
        """Return the things that need a person, the feeds with their freshness, and the runs and jobs of the moment.

        A feed is a data set; `limit` and `after` choose a page of them. Cost: the page, the programs, what runs; for a
        caller of one namespace also what waits and fails in others, up to 10,000 rows.
        """
        from tidemill.mill.overview import look_over

        return look_over(self.project, limit=limit, after=after)

    @operation(Right.READ)
    def search(self, text: str, *, limit: int = HITS) -> SearchResult:
        """Find things whose names begin with a text: data sets, apps, programs, schedules, topics, files, partitions.

        Also runs and jobs by id. A name may be local, or qualified (`shop.load`). A file or partition may stand after
        its data set (`orders/2026-01`). Upper and lower case differ. `limit` is the most hits of each kind, up to 100.
        Cost: look-ups, never the history. `BadSearch`, `BadPage`.
        """
        from tidemill.mill.search import search

        return search(self.project, text, limit)

    def transaction(
        self, writes: Sequence[Declared | str] | None = None
    ) -> AbstractContextManager[ExternalTransaction]:
        """Open a transaction for a `with` block, in this process: it commits at the end, and is aborted by an error.

        `writes` are the file sets that it may publish to, all when None: `with mill.transaction() as tx:
        tx.fileset("clicks").append(frame)`. A thread renews its lease meanwhile.
        """
        from tidemill.run.processes.external import open_transaction

        project = self.project
        return open_transaction(project.catalog, project.world, project.qualified(writes), lease=project.config.lease)

    @cached_property
    def alerts(self) -> Alerts:
        """Alerts: what is wrong for too long."""
        from tidemill.mill.alerts import Alerts

        return Alerts(self.project)

    @cached_property
    def apps(self) -> Apps:
        """Deployed apps."""
        from tidemill.mill.apps import Apps

        return Apps(self.project)

    @cached_property
    def audit(self) -> AuditLog:
        """The audit log: the changes that callers asked for."""
        from tidemill.mill.audit import AuditLog

        return AuditLog(self.project)

    @cached_property
    def catalog(self) -> CatalogUpkeep:
        """The catalog as a whole: audit, backup, restore."""
        from tidemill.mill.catalog import CatalogUpkeep

        return CatalogUpkeep(self.project)

    @cached_property
    def consumers(self) -> Consumers:
        """Consumers of file sets, and the work that waits for them."""
        from tidemill.mill.consumers import Consumers

        return Consumers(self.project)

    @cached_property
    def datasets(self) -> Datasets:
        """Data sets, and the partitions of file sets."""
        from tidemill.mill.datasets import Datasets

        return Datasets(self.project)

    @cached_property
    def hooks(self) -> Hooks:
        """Hooks: signals from outside."""
        from tidemill.mill.hooks import Hooks

        return Hooks(self.project)

    @cached_property
    def inboxes(self) -> Inboxes:
        """Inboxes and their files."""
        from tidemill.mill.inboxes import Inboxes

        return Inboxes(self.project)

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs: triggered, and waiting to become runs."""
        from tidemill.mill.jobs import Jobs

        return Jobs(self.project)

    @cached_property
    def backfills(self) -> Backfills:
        """Backfills: runs of a program over parts of the past."""
        from tidemill.mill.backfills import Backfills

        return Backfills(self.project)

    @cached_property
    def nodes(self) -> Nodes:
        """Nodes: the processes that share the work."""
        from tidemill.mill.nodes import Nodes

        return Nodes(self.project)

    @cached_property
    def runs(self) -> Runs:
        """Runs of programs."""
        from tidemill.mill.runs import Runs

        return Runs(self.project)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules: what starts a program, and when."""
        from tidemill.mill.schedules import Schedules

        return Schedules(self.project)

    @cached_property
    def snapshots(self) -> Snapshots:
        """Snapshots and their versions."""
        from tidemill.mill.snapshots import Snapshots

        return Snapshots(self.project)

    @cached_property
    def subscribers(self) -> Subscribers:
        """Subscribers outside of Tidemill: named positions in topics."""
        from tidemill.mill.subscribers import Subscribers

        return Subscribers(self.project)

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens of the server's callers."""
        from tidemill.mill.tokens import Tokens

        return Tokens(self.project)

    @cached_property
    def topics(self) -> Topics:
        """Topics and their messages."""
        from tidemill.mill.topics import Topics

        return Topics(self.project)

    @cached_property
    def transactions(self) -> Transactions:
        """Transactions, by write pointer."""
        from tidemill.mill.transactions import Transactions

        return Transactions(self.project)

    @cached_property
    def watermarks(self) -> Watermarks:
        """Watermarks of file sets, and the windows computed by them."""
        from tidemill.mill.watermarks import Watermarks

        return Watermarks(self.project)
