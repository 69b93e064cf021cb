"""Window programs of statements: `INSERT INTO … SELECT …` declares a program, and `DROP PROGRAM` drops it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tidemill.app import statements
from tidemill.app.app import App
from tidemill.app.declaration import restore_declaration
from tidemill.app.declared import BadDeclaration
from tidemill.app.deploy import Deployed, DeployedCode, delete_app, deploy
from tidemill.app.deployments import find_declaration
from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Db
from tidemill.errors import NotFound, UserError, check_generation
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.on_demand import is_on_demand, source_of
from tidemill.lake.window.reopening import reset_program
from tidemill.lake.window.windows import find_state
from tidemill.mill.apps import find_deployed
from tidemill.mill.project import Project
from tidemill.names import Namespace, nearest, qualified
from tidemill.run.records.bundles import delete_unused, put_bundle, store_bundle
from tidemill.run.records.programs import find_program
from tidemill.sql.ddl import Insert
from tidemill.sql.window_calls import example
from tidemill.sql.window_program import WindowProgram, make_grid

_QUARTER: Final = 900_000_000


class BadInsert(UserError):
    """An INSERT that cannot be declared as a window program."""

    code = "bad_insert"
    hint = "correct the statement as the reason says"

    def __init__(self, program: str, why: str) -> None:
        self.program = program
        self.why = why
        super().__init__(f"INSERT INTO {program}: {why}; nothing was changed")


Keep = Callable[[Db, str], None]
"""Notes the line for people in the transaction of a statement, for a repeated request."""


def declare_insert(project: Project, statement: Insert, keep: Keep) -> str:
    """Declare the window program of an INSERT, or change its query; return a line for people.

    The program has the name of its output, and is of the app `sql` of the configured namespace.
    """
    namespace = Namespace(project.config.namespace)
    code = WindowProgram(statement.name, statement.text, namespace)
    code.statement = statement.text.strip()  # wherever in a file it stands
    space, _ = project.split("data set", code.sink, 1)
    if space != namespace:
        why = f"write into a table of the configured namespace, {namespace}"
        raise code.query.locate(BadInsert(code.sink, why), code.query.sink)
    program = qualified(namespace, statements.NAME, statement.name)

    def look(db: Db) -> tuple[App, int, list[Fileset]]:
        sources = [source_of(project.dataset(db, source)) for source in code.sources]
        for table, name in zip(code.query.look_ups, code.look_ups, strict=True):
            if project.dataset(db, name).kind is not DatasetKind.SNAPSHOT:
                why = f"{name} is no snapshot, and is joined without windows: write TABLE({example('TUMBLE')})"
                raise code.query.locate(BadInsert(code.sink, why), table)
        try:
            project.dataset(db, code.sink)
        except NotFound:
            why = "there is no such table: CREATE it first, PARTITIONED BY columns of the query"
            raise code.query.locate(BadInsert(code.sink, why), code.query.sink) from None
        return *_find_app(db, namespace), sources

    app, version, sources = project.catalog.read(look)
    said = f"program {program} computes the windows of {', '.join(code.sources)} into {code.sink}"
    moving = [source.qualified_name for source in sources if not is_on_demand(source)]
    statements.put_program(app, code, moving, _period_of(code, sources))
    note = project.note("sql", code.sink, statement="INSERT")
    try:
        deployed = _deploy(project, app, version, note, lambda db: keep(db, said))
    except BadDeclaration as error:
        raise _refuse(code, error) from error
    if not deployed.changed:
        return f"program {program} has this query already"
    return said if moving else f"{said} when `tidemill run start {program}` starts it: no watermark of them moves"


def _refuse(code: WindowProgram, error: BadDeclaration) -> UserError:
    """Return the refusal of an INSERT for that of its program, at the same place of the text."""
    place = error.__cause__.in_statement if isinstance(error.__cause__, UserError) else None
    refused = BadInsert(code.sink, error.why.removeprefix("is refused: ").removeprefix(f"{place}: "))
    return code.query.locate(refused) if place is None else refused.put_at(place)


def _period_of(code: WindowProgram, sources: Sequence[Fileset]) -> timedelta:
    """Return a period, counted on the wall clock of the windows, one end of which is where each window closes."""
    grid, lags = make_grid(code.query, sources), [reach.lag for reach in code.query.reaches]
    # Clocks of all zones are set by whole quarters of an hour, since 1972. A wait is counted by no clock.
    quarter = _QUARTER if any(lags) and grid.zone.name != "UTC" else 0
    return timedelta(microseconds=math.gcd(grid.shape.slide, grid.shape.offset, quarter, *lags))


def drop_program(project: Project, name: str, keep: Keep, *, if_exists: bool) -> str:
    """Drop a program that an INSERT has declared; return a line for people.

    The rows in its tables stay. The program forgets what it has published: the same INSERT computes all windows again.
    """
    namespace = Namespace(project.config.namespace)

    app, version = project.catalog.read(lambda db: _find_app(db, namespace))
    program = qualified(namespace, statements.NAME, name)
    if name not in app.programs:
        if if_exists:
            return f"there is no program {program}"
        raise NotFound("program", program, nearest(name, app.programs), hint="DROP PROGRAM is for programs of INSERT")
    statements.drop_program(app, name)
    said = f"program {program} is dropped"

    def forget(db: Db) -> None:
        program_id = find_program(db, namespace, statements.NAME, name).program_id
        if state := find_state(db, program_id):
            reset_program(db, state, None, None, "DROP PROGRAM")
        keep(db, said)

    note = project.note("sql", program, statement="DROP PROGRAM")
    if app.programs:
        _deploy(project, app, version, note, forget)
        return said

    def block(db: Db) -> None:
        seq = db.tick()
        found = find_deployed(db, namespace, statements.NAME).version
        check_generation("app", qualified(namespace, statements.NAME), found, version)
        forget(db)
        deleted = delete_app(db, project.world, seq, namespace, statements.NAME)
        note.between({"version": version, "programs": list(deleted.programs)}, None).write(db)

    project.catalog.write(block)
    return said


def _find_app(db: Db, namespace: Namespace) -> tuple[App, int]:
    """Return the app of statements of a namespace, and its version; 0 without a program."""
    try:
        deployed = find_deployed(db, namespace, statements.NAME)
    except NotFound:
        return statements.make_app(namespace), 0
    if not statements.is_of_statements(deployed.spec.file):
        why = f"the app {statements.NAME}, which has the programs of statements, is that of {deployed.spec.file}"
        raise BadInsert(qualified(namespace, statements.NAME), f"{why}: give that app another name")
    return restore_declaration(find_declaration(db, namespace, statements.NAME, deployed.version)), deployed.version


def _deploy(
    project: Project, app: App, version: int, note: NoteChange, beside: Callable[[Db], None] = lambda _: None
) -> Deployed:
    """Deploy the app, which must have `version` still, with what `beside` does in the same transaction."""
    catalog, config = project.catalog, project.config
    bundle = statements.write_bundle(app)
    stored = store_bundle(project.aside, config.data, bundle)

    def put(db: Db) -> None:
        put_bundle(db, stored)
        beside(db)

    try:
        return deploy(
            catalog,
            project.world,
            replace(config, app=config.folder / statements.FILE),
            app,
            update_schedules=True,
            code=DeployedCode(bundle.digest, bundle.sums, put),
            note=note,
            if_generation=version,
        )
    finally:
        delete_unused(project.aside, stored)
