"""Deployment: bring what an app declares into the catalog, all of it in one transaction (seed 001, app deployment).

What is declared: data sets (kept and brought up to date), their inboxes' listings, programs, the consumers by which
programs read, and schedules. With `update_schedules` the schedules follow the app: those it no longer has go, new ones
come, changed ones are deleted and recreated, equal ones stay untouched with their pending jobs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from tidemill.alerts.alerts import declare_rules
from tidemill.app.app import App
from tidemill.app.declaration import write_stored
from tidemill.app.declared import (
    BadDeclaration,
    DeclaredFileset,
    DeclaredInbox,
    DeclaredProgram,
    DeclaredSnapshot,
    WindowCode,
)
from tidemill.app.deployments import NewDeployment, forget_code, put_deployment
from tidemill.app.difference import PartChange, compare, read_parts
from tidemill.app.reads import Changes, Reads
from tidemill.app.statements import is_of_statements
from tidemill.catalog.audit_log import NoteChange, write_note
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import GREATEST, load_sql
from tidemill.config import Config
from tidemill.errors import UserError, check_generation
from tidemill.json_specs import write_checked, write_plain, write_text
from tidemill.lake.consumer.managed import Consumer, list_consumers
from tidemill.lake.consumer.starts import find_position
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare, find_present
from tidemill.lake.expectations import declare_expectations
from tidemill.lake.fileset.columns import column_schema, to_fields
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, find_schema
from tidemill.lake.fileset.monitor import declare_monitoring
from tidemill.lake.fileset.publish import declare_columns
from tidemill.lake.inbox.inbox import ensure_inbox
from tidemill.lake.places import prepare_locations
from tidemill.lake.snapshot.changes import forget_feeds
from tidemill.lake.snapshot.guards import ALLOW
from tidemill.lake.window.cascade import forget_outputs, list_followed, put_output
from tidemill.lake.window.on_demand import source_of
from tidemill.lake.window.watermark import Reread, declare_watermark, follow_windows
from tidemill.lake.window.windows import find_state, put_state, read_reaches, redefine
from tidemill.names import CommitSeq, ConsumerId, DatasetId, Namespace, ProgramId, ScheduleId, qualified
from tidemill.run.records.bundles import find_sums
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import AppSpec, Argument, ArgumentType, Program, put_program, retire_programs
from tidemill.run.records.workers import put_worker, retire_others
from tidemill.run.step.change_input import ChangeInputs
from tidemill.run.step.input_kind import InputKind
from tidemill.run.step.inputs import announce_waiting, kind_of
from tidemill.run.step.partition_input import PartitionInputs
from tidemill.run.step.spans import bind_spans
from tidemill.schedule.arguments import check_arguments
from tidemill.schedule.changes import Add, Change, Delete, Update, announce_work, change_schedules, check_trigger
from tidemill.schedule.schedules import list_schedules
from tidemill.schedule.specs import Owner, Schedule
from tidemill.shapes.custom_time import run_beside
from tidemill.shapes.filters import make_filter
from tidemill.shapes.watermark_spec import UTC, ZONE, has_no_zone
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files, resolved
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.app.deploy_sql import Sql

SQL: Sql = load_sql(__file__)

_KIND_OF_TERMS: Final[Mapping[type[Reads | Changes], type[InputKind]]] = {
    Reads: PartitionInputs,
    Changes: ChangeInputs,
}


class OtherProject(UserError):
    """A data set lies in the folder of another project, which deployed it to the same catalog."""

    code = "other_project"

    def __init__(self, dataset: str, location: str, wanted: str, project: str, folder: str) -> None:
        self.dataset = dataset
        self.location = location
        self.wanted = wanted
        self.project = project
        self.folder = folder
        super().__init__(
            f"data set {dataset} lies at {location}, in the project {project}; this project would move it to {wanted}",
            f"Deploy from {project}, or give the data set an absolute location. If {project} was moved to {folder}, "
            "run `tidemill catalog move` here. For a checkout of its own, set another catalog",
            before=". ",
        )


class UnknownSparkProfile(UserError):
    """A program names a Spark profile that the configuration of the deploying project does not have."""

    code = "unknown_spark_profile"

    def __init__(self, program: str, profile: str, known: Iterable[str]) -> None:
        self.program = program
        self.profile = profile
        self.known = tuple(sorted(known))
        there = f"the project has {', '.join(self.known)}" if self.known else "the project has no [spark.profiles.NAME]"
        super().__init__(
            f"program {program} names the Spark profile {profile!r}, which is not configured: {there}",
            f"add [spark.profiles.{profile}] to tidemill.toml, or correct the name, and deploy again",
        )


@dataclass(frozen=True, slots=True)
class DeployedCode:
    """The code of a deployment: its digest, and the hash of each file by name.

    `put` keeps the code in the catalog, in the transaction of the deployment.
    """

    digest: str
    sums: Mapping[str, str]
    put: Callable[[Db], object]


_MOST_NAMES: Final = 20

IN_PLACE: Final = DeployedCode("", {}, lambda _: None)
"""The code that lies at the app file when a program runs."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """Result of a deployment, by names."""

    app: str
    version: int
    """Number of the deployment of the app. A deployment that changes nothing keeps the number."""
    changes: tuple[PartChange, ...]
    """Parts of the app that the deployment has added, changed and removed."""
    inboxes: tuple[str, ...]
    filesets: tuple[str, ...]
    snapshots: tuple[str, ...]
    programs: tuple[str, ...]
    schedules_added: tuple[str, ...]
    schedules_changed: tuple[str, ...]
    schedules_removed: tuple[str, ...]
    schedules_kept: tuple[str, ...]
    dropped_jobs: int
    watermarks: tuple[str, ...]
    """Watermarks whose times are read in another way than before: where each moved, in words."""
    programs_retired: tuple[str, ...]
    """Programs that the app declared before and declares no more. Nothing starts retired programs."""
    apps_left: tuple[str, ...] = ()
    """Apps that the app file no longer declares, and that go on; with the last app of the file."""
    changed: bool = True
    """False if the catalog was as the app file says already."""

    def sentence(self) -> str:
        """Return a line for people: the declared things, and the changes of schedules."""
        schedules = len(self.schedules_added) + len(self.schedules_changed) + len(self.schedules_kept)
        parts = [
            _count(len(self.inboxes), "inbox", "inboxes"),
            _count(len(self.filesets), "file set"),
            *([_count(len(self.snapshots), "snapshot")] if self.snapshots else []),
            _count(len(self.programs), "program"),
            _count(schedules, "schedule"),
        ]
        line = f"{self.app}: {', '.join(parts)}"
        changes = {
            "added": self.schedules_added,
            "changed": self.schedules_changed,
            "removed": self.schedules_removed,
        }
        told = [f"{what} {_name(names)}" for what, names in changes.items() if names]
        if self.dropped_jobs:
            told.append(f"dropped {_count(self.dropped_jobs, 'pending job')}")
        if told:
            line += f"   schedules: {'; '.join(told)}"
        if self.programs_retired:
            line += f"   retired programs: {_name(self.programs_retired)}"
        left = [
            f"the app file no longer declares app {name}, which goes on: `tidemill app delete {name}` ends it"
            for name in self.apps_left
        ]
        return "\n  ".join([line, *self.watermarks, *left])


@dataclass(frozen=True, slots=True)
class _Present:
    """An app as it is before its deployment; `spec` is also that of a deleted app."""

    version: int
    spec: AppSpec
    deleted: bool


def deploy(  # noqa: PLR0913  # options by keyword, each with a default
    catalog: Catalog,
    world: World,
    config: Config,
    app: App,
    *,
    update_schedules: bool,
    code: DeployedCode = IN_PLACE,
    note: NoteChange | None = None,
    rolled_back_to: int | None = None,
    if_generation: int | None = None,
    declared: Iterable[tuple[Namespace, str]] | None = None,
) -> Deployed:
    """Deploy `app` and give what changed; nothing of it when anything is refused.

    Its programs run `code`. A deployment that returns to an earlier one names it as `rolled_back_to`. With
    `if_generation` the app must still have that version (0: no version), else `ChangedMeanwhile`. With `declared`, the
    names of all apps in the app file, the result has the `apps_left`.

    Locations that are new are made, and all must be writable, before the transaction begins. Raises what the
    declarations' rooms refuse (`DatasetClash`, `BadLocation`, `BadArgument`), and `StorageUnavailable` for a location
    that was made before and is away.
    """
    datasets = [_dataset(world, config, app, declared) for declared in app.datasets.values()]
    places = [place for dataset in datasets for place in (dataset.location, dataset.archive) if place is not None]
    prepare_locations(catalog, world, places)
    world.mark("deploy.prepared")
    block = _Deploying(world, config, app, datasets, code, update_schedules=update_schedules)

    def write(db: Db) -> Deployed:
        deployed = block.deploy(
            db,
            actor="" if note is None else note.actor,
            rolled_back_to=rolled_back_to,
            if_generation=if_generation,
        )
        if declared is not None:
            deployed = replace(deployed, apps_left=find_left(db, world, config, declared))
        write_note(db, None if note is None else _noted(note, block.version, deployed))
        world.mark("deploy.noted")
        return deployed

    deployed = run_beside(catalog.write, write)
    world.mark("deploy.committed")
    return deployed


class _RolledBack(Exception):
    """The end of a plan's transaction, which changes nothing. It never leaves this module."""

    def __init__(self, planned: list[Deployed]) -> None:
        super().__init__("a plan changes nothing")
        self.planned = planned


def plan(
    catalog: Catalog, world: World, config: Config, apps: Iterable[App], *, update_schedules: bool, code: DeployedCode
) -> list[Deployed]:
    """Return the results that deployments of `apps` would have, one after the other. Nothing is changed.

    They are those deployments, in one transaction that is rolled back. Meanwhile nothing commits to the catalog, as
    during a deployment. No location is made, so that a location which cannot be made is not noticed. Raises what the
    deployments would raise.
    """
    blocks = [
        _Deploying(
            world,
            config,
            app,
            [_dataset(world, config, app, declared) for declared in app.datasets.values()],
            code,
            update_schedules=update_schedules,
        )
        for app in apps
    ]

    def try_out(db: Db) -> list[Deployed]:
        planned = []
        for block in blocks:
            db.forget_order()
            planned.append(block.deploy(db, actor="", rolled_back_to=None))
        raise _RolledBack(planned)

    try:
        return run_beside(catalog.write, try_out)
    except _RolledBack as end:
        return end.planned


class _Deploying:
    """The deployment of one app, as a block of a transaction."""

    def __init__(
        self,
        world: World,
        config: Config,
        app: App,
        datasets: Sequence[Dataset],
        code: DeployedCode,
        *,
        update_schedules: bool,
    ) -> None:
        self.world, self.config, self.app, self.datasets, self.code = world, config, app, datasets, code
        self.update_schedules = update_schedules
        self.resolve = functools.cache(resolved)
        self.declaration = write_stored(app)
        self.version = 0
        """The version of the app before the deployment; 0 for no app."""

    def deploy(self, db: Db, *, actor: str, rolled_back_to: int | None, if_generation: int | None = None) -> Deployed:
        """Deploy the app within the caller's transaction."""
        world, config, app, datasets = self.world, self.config, self.app, self.datasets
        seq = db.tick()
        present = db.record(SQL.find_app, _Present, namespace=app.namespace, name=app.name)
        was = None if present is None or present.deleted else present.spec
        self.version = 0 if present is None or present.deleted else present.version
        check_generation("app", qualified(app.namespace, app.name), self.version, if_generation)
        _refuse_app(config, app, was)
        self.code.put(db)
        digest = self.code.digest
        old_sums = {} if was is None else find_sums(db, was.bundle)
        parts = read_parts(db, app.namespace, app.name, was, old_sums)
        for dataset in datasets:
            _refuse_other_project(db, config, None if present is None else present.spec, dataset)
        known = {one.qualified_name: declare(db, _with_zone(db, config, one), self.resolve) for one in datasets}
        for dataset in known.values():
            _prepare(db, dataset)
        changes: list[Change] = []
        named: dict[str, list[str]] = {"added": [], "changed": [], "removed": [], "kept": []}
        before = {consumer.consumer_id: _choice(consumer) for consumer in list_consumers(db)}
        programs = {
            name: _put(db, world, (config.app, digest), app, declared, known, seq)
            for name, declared in app.programs.items()
        }
        workers = [programs[name] for name, declared in app.programs.items() if declared.kind.is_worker]
        for worker in workers:
            put_worker(db, worker.program_id, app.programs[worker.name].instances)
        retire_others(db, app.namespace, app.name, [worker.program_id for worker in workers])
        retired = _retire(db, app.namespace, app.name, [one.program_id for one in programs.values()])
        world.mark("deploy.programs")
        if self.update_schedules:
            changes, named = _schedule_changes(db, app, programs, suspend_new=config.suspend_new)
        # Nothing may start these, also where the other schedules are kept, and whichever app a schedule is of.
        orphans = _schedules_of(db, [*retired, *(worker.program_id for worker in workers)], changes)
        changes += [Delete(schedule.schedule_id) for schedule in orphans]
        named["removed"] += [schedule.name for schedule in orphans]
        changed = change_schedules(db, world, seq, changes)
        world.mark("deploy.schedules")
        _forget_feeds(db, app, programs)  # after the schedules, whose rows are locked before those of consumers
        announce_work(db, changed)
        _announce_choices(db, programs.values(), before)
        filesets = [Fileset.of(dataset) for dataset in known.values() if dataset.kind is DatasetKind.FILESET]
        for fileset in filesets:
            schema = find_schema(db, fileset.dataset_id)
            if fileset.watermark is not None and schema is not None:
                fileset.watermark.refuse_types(fileset.qualified_name, schema.types)
        declare_expectations(db, app.namespace, app.name, known.values())
        declare_rules(db, world, seq, app.namespace, app.name, app.alerts)
        reread = _declare_watermarks(db, app, filesets, programs)
        spec = AppSpec(str(config.app), str(config.folder), digest)
        difference = compare(parts, read_parts(db, app.namespace, app.name, spec, self.code.sums))
        version = (0 if present is None else present.version) + bool(difference)
        db.run(SQL.put_app, namespace=app.namespace, name=app.name, version=version, spec=write_text(spec))
        if difference:
            db.run(SQL.number_programs, namespace=app.namespace, app=app.name, version=version)
            file = _within(config.app, config.folder)
            new = NewDeployment(
                app.namespace, app.name, version, digest, file, actor, difference, rolled_back_to, self.declaration
            )
            put_deployment(db, new)
        return Deployed(
            app=app.name,
            version=version,
            changes=difference,
            inboxes=tuple(d.name for d in datasets if d.kind is DatasetKind.INBOX),
            filesets=tuple(d.name for d in datasets if d.kind is DatasetKind.FILESET),
            snapshots=tuple(d.name for d in datasets if d.kind is DatasetKind.SNAPSHOT),
            programs=tuple(programs),
            schedules_added=tuple(named["added"]),
            schedules_changed=tuple(named["changed"]),
            schedules_removed=tuple(named["removed"]),
            schedules_kept=tuple(named["kept"]),
            dropped_jobs=sum(change.dropped_jobs for change in changed),
            watermarks=tuple(str(one) for one in reread if one is not None),
            programs_retired=tuple(retired.values()),
            changed=bool(difference),
        )


def _noted(note: NoteChange, before: int, deployed: Deployed) -> NoteChange:
    """Return the audit row of a deployment: the versions, and how many parts of each kind it has changed.

    `mill.apps.history` has each part with its fields.
    """
    counts: dict[str, dict[str, int]] = {}
    for one in deployed.changes:
        of_act = counts.setdefault(one.act, {})
        of_act[one.part] = of_act.get(one.part, 0) + 1
    detail = {**note.detail, "changes": counts, "dropped_jobs": deployed.dropped_jobs}
    return replace(note, detail=detail).between({"version": before} if before else None, {"version": deployed.version})


def _within(file: Path, folder: Path) -> str:
    """Return the path of a file relative to the folder in which it lies; the whole path of another file."""
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def find_left(db: Db, world: World, config: Config, declared: Iterable[tuple[Namespace, str]]) -> tuple[str, ...]:
    """Return the deployed apps of a project that its app file no longer declares, by qualified name.

    Apps of another app file of the project count when that file is missing.
    """
    present = set(declared)
    left = []
    for namespace, name, spec in db.records(SQL.list_apps, tuple[Namespace, str, AppSpec]):
        file = Path(spec.file)
        is_of_file = file == config.app or not (is_of_statements(spec.file) or world.disk.exists(file))
        if is_of_file and Path(spec.project) == config.folder and (namespace, name) not in present:
            left.append(qualified(namespace, name))
    return tuple(left)


@dataclass(frozen=True, slots=True)
class Deleted:
    """Result of the deletion of an app, by names."""

    app: str
    schedules: tuple[str, ...]
    programs: tuple[str, ...]
    dropped_jobs: int

    def sentence(self) -> str:
        """Return a line for people."""
        schedules = f"{_count(len(self.schedules), 'schedule')} and {_count(self.dropped_jobs, 'pending job')}"
        return f"deleted app {self.app} with {schedules}; retired {_count(len(self.programs), 'program')}"


def delete_app(db: Db, world: World, seq: CommitSeq, namespace: Namespace, name: str) -> Deleted:
    """Delete an app and all its schedules, and retire its programs; `seq` is the tick that the caller took first."""
    retired = _retire(db, namespace, name, [])
    retire_others(db, namespace, name, [])
    own = list_schedules(db, app=(namespace, name))
    changes: list[Change] = [Delete(schedule.schedule_id) for schedule in own]
    orphans = _schedules_of(db, retired, changes)
    changes += [Delete(schedule.schedule_id) for schedule in orphans]
    dropped = change_schedules(db, world, seq, changes)
    forget_feeds(db, namespace, name, set())
    forget_code(db, namespace, name, GREATEST)
    declare_expectations(db, namespace, name, ())
    declare_rules(db, world, seq, namespace, name, {})
    db.run(SQL.delete_app, namespace=namespace, name=name)
    return Deleted(
        qualified(namespace, name),
        tuple(schedule.qualified_name for schedule in (*own, *orphans)),
        tuple(retired.values()),
        sum(change.dropped_jobs for change in dropped),
    )


def _retire(db: Db, namespace: Namespace, app: str, kept: Iterable[ProgramId]) -> dict[ProgramId, str]:
    """Retire the programs of an app but for `kept`; give their names. No watermark follows them any more."""
    retired = retire_programs(db, namespace, app, kept)
    forget_outputs(db, retired)
    return retired


def _schedules_of(db: Db, programs: Iterable[ProgramId], changes: Sequence[Change]) -> list[Schedule]:
    """The schedules that start one of `programs` and that `changes` do not delete already."""
    deleted = {change.schedule_id for change in changes if isinstance(change, Delete)}
    found = [schedule for program_id in programs for schedule in list_schedules(db, program_id=program_id)]
    return [schedule for schedule in found if schedule.schedule_id not in deleted]


def _dataset(
    world: World, config: Config, app: App, declared: DeclaredInbox | DeclaredFileset | DeclaredSnapshot
) -> Dataset:
    def refuse(why: str) -> BadDeclaration:
        return BadDeclaration(f"data set {declared.name!r}", f"is refused: {why}")

    match declared:
        case DeclaredInbox():
            kind, spec = DatasetKind.INBOX, write_checked(declared.spec, refuse)
            if declared.spec.archive is not None:
                spec["archive"] = _locate(world, config, declared.spec.archive).url
        case DeclaredFileset():
            kind, spec = DatasetKind.FILESET, write_checked(declared.storing, refuse)
            if declared.watermark is not None:
                spec["watermark"] = write_checked(declared.watermark.stored, refuse)
        case DeclaredSnapshot():
            kind, spec = DatasetKind.SNAPSHOT, write_checked(declared.spec, refuse)
        case _:
            assert_never(declared)
    usual = f"{config.data.rstrip('/')}/{app.namespace}/{declared.name}"
    return Dataset(
        DatasetId(world.new_id("ds")),
        app.namespace,
        declared.name,
        kind,
        _locate(world, config, declared.location or usual).url,
        spec,
        app.name,
    )


def _refuse_app(config: Config, app: App, present: AppSpec | None) -> None:
    """Refuse the name of the app of statements, and Spark profiles that are not configured."""
    if present is not None and is_of_statements(present.file) and not is_of_statements(str(config.app)):
        raise BadDeclaration(f"app {app.name!r}", "has the name of the app of statements: give it another name")
    for declared in app.programs.values():
        if declared.spark_profile and declared.spark_profile not in config.spark_profiles:
            program = qualified(app.namespace, app.name, declared.name)
            raise UnknownSparkProfile(program, declared.spark_profile, config.spark_profiles)


def _with_zone(db: Db, config: Config, dataset: Dataset) -> Dataset:
    """Return a data set whose watermark has the time zone of the project, if its declaration names none.

    A watermark that is there keeps its zone, also a declared one. A later change of the project's zone changes nothing.
    A time column without a zone has none to keep.
    """
    fileset = Fileset.of(dataset) if "watermark" in dataset.spec else None
    if fileset is None or fileset.watermark is None or ZONE in fileset.watermark.options:
        return dataset
    present = find_present(db, dataset.namespace, dataset.name)
    before = None if present is None or present.altered else present.spec.get("watermark")
    zone = config.time_zone
    if isinstance(before, Mapping):
        zone = before.get("options", {}).get(ZONE, before.get("default_zone", UTC))
    columns = _columns_of(fileset) or (None if present is None else find_schema(db, present.dataset_id))
    if zone == UTC or (columns is not None and has_no_zone(fileset.watermark.column, columns.types)):
        return dataset
    stored = replace(fileset.watermark.stored, default_zone=zone)
    return replace(dataset, spec={**dataset.spec, "watermark": write_plain(stored)})


def _columns_of(fileset: Fileset) -> ColumnSchema | None:
    """Return the columns that a file set declares, if any."""
    from tidemill.sql.ddl import read_types

    columns = fileset.storing.columns
    return column_schema(to_fields(read_types(columns))) if columns else None


def _prepare(db: Db, dataset: Dataset) -> None:
    """Have a data set listed, and give it its declared columns, with which the programs of the app are compared."""
    if dataset.kind is DatasetKind.INBOX:
        ensure_inbox(db, dataset.dataset_id)
    elif dataset.kind is DatasetKind.FILESET:
        fileset = Fileset.of(dataset)
        declare_monitoring(db, fileset)
        if (columns := _columns_of(fileset)) is not None:
            declare_columns(db, fileset, columns, "deployment")


def _refuse_other_project(db: Db, config: Config, deployed: AppSpec | None, dataset: Dataset) -> None:
    """Refuse a location relative to this project where another project has the data set in a folder of its own."""
    if deployed is None:
        return
    project = Path(deployed.project)
    present = find_present(db, dataset.namespace, dataset.name)
    if project == config.folder or present is None:
        return
    for was, wanted in ((present.location, dataset.location), (present.archive, dataset.archive)):
        # What both name by the same absolute path belongs to no project, and neither does what was elsewhere before.
        if was and wanted and _moved(was, project, config.folder) == wanted != was:
            raise OtherProject(dataset.qualified_name, was, wanted, str(project), str(config.folder))


def _moved(url: str, project: Path, folder: Path) -> str | None:
    """Return a location of `project` as it is when the project lies in `folder`; None for a location outside it."""
    within = f"{project.as_uri()}/"
    return f"{folder.as_uri()}/{url.removeprefix(within)}" if url.startswith(within) else None


def _locate(world: World, config: Config, location: str) -> Files:
    """A location that is a URL, a path, or one relative to the project."""
    return open_files(location if "://" in location else str(config.folder / location), world)


def _put(
    db: Db,
    world: World,
    code: tuple[Path, str],
    app: App,
    declared: DeclaredProgram,
    known: Mapping[str, Dataset],
    tick: CommitSeq,
) -> Program:
    program = Program(
        program_id=ProgramId(world.new_id("prog")),
        namespace=app.namespace,
        app=app.name,
        name=declared.name,
        kind=declared.kind,
        app_file=str(code[0]),
        bundle=code[1],
        reads=declared.reads,
        writes=declared.writes,
        retries=declared.retries,
        backoff=declared.backoff,
        run_on_empty=declared.run_on_empty,
        deliver_own=declared.deliver_own,
        arguments=declared.arguments,
        spans=declared.spans,
        spark_profile=declared.spark_profile,
        held=declared.held,
        workflow=declared.workflow,
    )
    written = [known.get(name) or find_dataset(db, name) for name in program.writes]
    if any(Fileset.of(dataset).dataset.kind is DatasetKind.SNAPSHOT for dataset in written):
        if ALLOW in {argument.name for argument in program.arguments}:
            why = f"declares the argument {ALLOW!r}, by which programs that refresh a snapshot let its guards pass once"
            raise BadDeclaration(f"program {program.name!r}", why)
        program = replace(program, arguments=(*program.arguments, Argument(ALLOW, ArgumentType.STRING, "")))
    fixed = [one for one in program.spans if "$" not in f"{one.start}{one.end}"]
    filesets = {dataset.qualified_name: Fileset.of(dataset) for dataset in written}
    bind_spans(filesets, fixed, {})
    program = replace(program, program_id=put_program(db, program))
    for name in program.reads:
        if name in program.held:
            continue  # the workflow has the consumer
        dataset = known.get(name) or find_dataset(db, name)
        if program.workflow is not None and dataset.kind is DatasetKind.SNAPSHOT:
            why = f"holds the snapshot {name}, which has no claims: nodes read the same version of it anyway"
            raise BadDeclaration(f"workflow {program.name!r}", why)
        if declared.windows is not None and dataset.kind is not DatasetKind.SNAPSHOT:
            why = f"{name} is no snapshot: only a snapshot is joined without windows, at the version that a run pins"
            raise BadDeclaration(f"window program {program.name!r}", f"is refused: {why}")
        _put_input(db, program, dataset, declared.terms.get(name), tick)
    if declared.windows is not None:
        sources = [source_of(known.get(name) or find_dataset(db, name)) for name in declared.windows.sources]
        _put_windows(db, program, declared.windows, sources, Fileset.of(written[0]))
    return program


def _put_input(db: Db, program: Program, dataset: Dataset, terms: Reads | Changes | None, tick: CommitSeq) -> None:
    kind = kind_of(dataset) if terms is None else _KIND_OF_TERMS[type(terms)]
    if fault := kind.find_fault(dataset, program):
        raise BadDeclaration(f"{'worker' if program.kind.is_worker else 'program'} {program.name!r}", fault)
    position = None if terms is None else find_position(db, dataset.dataset_id, terms.starts_at, tick)
    kind.register(db, dataset, program, _find_terms(dataset, terms), position)


def _find_terms(dataset: Dataset, reads: Reads | Changes | None) -> Terms | None:
    if not isinstance(reads, Reads):
        return None
    where = make_filter(Fileset.of(dataset).keys, reads.where).to_json() if reads.where else None
    return replace(reads.terms, where=where)


def _choice(consumer: Consumer) -> object:
    """The terms that say which partitions a consumer is given."""
    return consumer.terms.where, consumer.terms.on_change


def _announce_choices(db: Db, programs: Iterable[Program], before: Mapping[ConsumerId, object]) -> None:
    """Announce what waits for programs that are given other partitions than `before`: it did not count when it came."""
    names = {
        consumer.name
        for consumer in list_consumers(db)
        if before.get(consumer.consumer_id, _choice(consumer)) != _choice(consumer)
    }
    chosen = [program for program in programs if program.qualified_name in names]
    schedules = [one.schedule_id for program in chosen for one in list_schedules(db, program_id=program.program_id)]
    if schedules:
        announce_waiting(db, chosen, schedules)


def _forget_feeds(db: Db, app: App, programs: Mapping[str, Program]) -> None:
    followed = {
        (find_dataset(db, dataset).dataset_id, programs[name].qualified_name)
        for name, declared in app.programs.items()
        for dataset, terms in declared.terms.items()
        if isinstance(terms, Changes)
    }
    forget_feeds(db, app.namespace, app.name, followed)


def _declare_watermarks(
    db: Db, app: App, filesets: Iterable[Fileset], programs: Mapping[str, Program]
) -> list[Reread | None]:
    """Declare the watermarks of the app, and have those of outputs follow its window programs."""
    cause = f"deployment of {app.name}"
    reread = [declare_watermark(db, fileset, cause) for fileset in filesets]
    for sink in sorted({programs[name].writes[0] for name, one in app.programs.items() if one.windows is not None}):
        fileset = Fileset.of(find_dataset(db, sink))
        follow_windows(db, fileset, cause)
        if len(followed := list_followed(db, fileset)) > 1:
            why = f"is written by {' and '.join(followed)}, but its watermark follows one window program"
            raise BadDeclaration(f"file set {sink}", why)
    return reread


def _put_windows(db: Db, program: Program, code: WindowCode, sources: Sequence[Fileset], sink: Fileset) -> None:
    """Register a window program; refuse another query than that of the windows which it has published.

    When only the times of its tables are read in another way, `declare_watermark` has the windows computed again.
    """
    try:
        code.check(sources, sink, [find_schema(db, source.dataset_id) for source in sources])
    except UserError as error:
        raise BadDeclaration(f"window program {program.name!r}", f"is refused: {error}") from error
    definition = code.definition(sources)
    state = find_state(db, program.program_id)
    published = state is not None and state.computed is not None and redefine(state.definition, sources)
    if published and published != definition:
        why = (
            "would give other windows than those that it has published (its query, or the column or outside policy of "
            f"{' and '.join(code.sources)}): `tidemill watermark reset {program.app}.{program.name}` first has all of "
            "them computed again, or keeps them with --keep-state"
        )
        raise BadDeclaration(f"window program {program.name!r}", why)
    lags = {table: reach.lag for table, reach in read_reaches(definition).items()}
    inputs = {
        source.dataset_id: (source.watermark.late, lags.get(source.qualified_name, 0))
        for source in sources
        if source.watermark is not None
    }
    put_state(db, program.program_id, program.qualified_name, definition, inputs)
    computed = None if state is None else state.computed
    put_output(db, program.program_id, sink.dataset_id, code.find_reach(sources, computed))


def _schedule_changes(
    db: Db, app: App, programs: Mapping[str, Program], *, suspend_new: bool
) -> tuple[list[Change], dict[str, list[str]]]:
    changes: list[Change] = []
    named: dict[str, list[str]] = {"added": [], "changed": [], "removed": [], "kept": []}
    present = {s.name: s for s in list_schedules(db, app=(app.namespace, app.name))}
    for name, declared in app.schedules.items():
        program = programs[declared.program]
        check_trigger(db, name, program, declared.spec.trigger)
        check_arguments(db, program, declared.spec.trigger.leaves, declared.spec.arguments)
        spec = declared.spec
        existing = present.pop(name, None)
        if existing is None:
            suspended = suspend_new if declared.suspended is None else declared.suspended
            add = Add(app.namespace, app.name, name, program.program_id, spec, Owner.APP, suspended)
            changes.append(add)
            named["added"].append(name)
        elif (existing.spec, existing.program_id) == (spec, program.program_id):
            named["kept"].append(name)
        else:
            changes.append(Update(existing.schedule_id, spec, program.program_id))
            named["changed"].append(name)
    for gone in present.values():
        changes.append(Delete(ScheduleId(gone.schedule_id)))
        named["removed"].append(gone.name)
    return changes, named


def _name(names: Sequence[str]) -> str:
    """Return the names for people: the first ones, and the number of the others."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
