"""Project: the catalog, the world and the settings of all operations, and the meaning of names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import load_sql
from tidemill.config import Config, load_config
from tidemill.errors import NotFound, UserError
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset
from tidemill.mill.access import ALL_NAMESPACES, EVERYTHING, Access, Forbidden
from tidemill.mill.keeping import RequestTry
from tidemill.mill.page import one_more
from tidemill.names import NamedThing, Namespace, ProgramId, ScheduleId, nearest, qualified, split_qualified
from tidemill.run.records.declared import Declared
from tidemill.run.records.programs import (
    NodeOfWorkflow,
    Program,
    ProgramRetired,
    StartsByItself,
    find_program,
    list_programs,
)
from tidemill.shapes.custom_time import import_from
from tidemill.world import World

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from tidemill.catalog.meter import Meter
    from tidemill.mill.project_sql import Sql

SQL: Sql = load_sql(__file__)

K = TypeVar("K")
R = TypeVar("R")
_PART: Final = 1000
"""Rows that are read at once for a caller of one namespace."""

MOST_SHOWN: Final = 1000
"""Rows of what belongs to one object; more are not shown."""


class AmbiguousName(UserError):
    """A short name that several things have."""

    code = "ambiguous_name"

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"several {kind}s are named {name!r}", f"write one of {', '.join(self.known)}", before=": ")


@dataclass(frozen=True, slots=True)
class Project:
    """Catalog, outside and settings of a project, and the things that its names mean."""

    catalog: Catalog
    world: World
    config: Config
    caller: str = ""
    """The person or program that asks; the user of this process if empty."""
    access: Access = EVERYTHING
    """The namespaces in which the caller may do what it asks for."""
    attempt: RequestTry | None = None
    """The try of a request with a key, for a change that keeps its answer itself."""
    beside: Catalog | None = None
    """The same catalog for writes that are no part of the change, where `catalog` keeps the result of its write."""

    def __post_init__(self) -> None:
        """Have custom extractors found in the modules beside the app file."""
        import_from(self.config.app.parent)

    @property
    def aside(self) -> Catalog:
        """The catalog, for preparations of a change that are transactions of their own."""
        return self.beside or self.catalog

    @property
    def actor(self) -> str:
        """The caller as records of changes name it: `user@host` for the user of this process."""
        return self.caller or user_of(self.world)

    @property
    def everywhere(self) -> bool:
        """True if the caller may read all namespaces, so that an error may name things of any of them."""
        return self.access.only is None

    def note(self, action: str, subject: str, **detail: object) -> NoteChange:
        """Return the audit row of a change by the actor."""
        return NoteChange(self.world.new_id("audit"), self.actor, action, subject, detail)

    def dataset(self, db: Db, name: str) -> Dataset:
        """Return the data set of that name; `NotFound`."""
        namespace, (local,) = self.split("data set", name, 1)
        return datasets.find(db, namespace, local, everywhere=self.everywhere)

    def program(self, db: Db, name: str) -> Program:
        """Return the program of that name, which may be short; `NotFound`, `AmbiguousName`."""
        if "." not in name:
            seen = [one for one in list_programs(db) if self.access.sees(one.namespace)]
            name = complete("program", name, [program.qualified_name for program in seen])
        namespace, (app, program) = self.split("program", name, 2)
        return find_program(db, namespace, app, program, everywhere=self.everywhere)

    def startable(self, db: Db, name: str) -> Program:
        """Return the program of that name; `NotFound`, and the errors of `check_startable`."""
        return check_startable(self.program(db, name))

    def split(self, kind: str, name: str, parts: int) -> tuple[Namespace, tuple[str, ...]]:
        """Divide a name into its namespace, else the configured one, and its `parts`; `BadName`."""
        text = f"{self.config.namespace}.{name}" if name.count(".") == parts - 1 else name
        found = split_qualified(kind, text, parts)
        self.check(found[0], kind, name)
        return found

    def check(self, namespace: Namespace | None, kind: str, name: str) -> None:
        """Raise `NotFound` for a thing of a namespace that the caller may not read; of no namespace: of all."""
        if not self.access.sees(namespace):
            raise NotFound(kind, name)

    def check_references(self, named: Iterable[NamedThing]) -> None:
        """Raise `NotFound` for a thing that a spec names and the caller may not read.

        `Forbidden` for a thing of no namespace, unless the caller has the right in all of them.
        """
        if self.access.only is None:
            return
        for one in named:
            if one.namespace is None:
                raise Forbidden(self.access.right, ALL_NAMESPACES)
            self.check(one.namespace, one.kind, one.name)

    def check_run(self, db: Db, run_id: str) -> None:
        """Raise `NotFound` for a run of a program that the caller may not read. Cost: look-ups, for such a caller."""
        if self.access.only is not None:
            found = db.value(SQL.find_namespace_of_run, Namespace, run_id=run_id)
            self.check(found, "run", run_id)

    def check_job(self, db: Db, job_id: str) -> None:
        """Raise `NotFound` for a job of a schedule that the caller may not read, as `check_run` does."""
        if self.access.only is not None:
            found = db.value(SQL.find_namespace_of_job, Namespace, job_id=job_id)
            self.check(found, "job", job_id)

    def qualified(self, writes: Sequence[Declared | str] | None) -> list[Declared | str] | None:
        """Return declared outputs with the namespace before each name."""
        if writes is None:
            return None
        named = [(w, self.split("data set", w, 1)) if isinstance(w, str) else (w, None) for w in writes]
        return [w if parts is None else qualified(parts[0], *parts[1]) for w, parts in named]


class Noun:
    """Operations on one kind of thing. `Mill` makes each noun at its first use."""

    noun: ClassVar[str]
    """The word for the thing on the command line."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._catalog, self._world, self._config = project.catalog, project.world, project.config

    def _rows(
        self,
        read: Callable[[K, int], Sequence[R]],
        place: K,
        limit: int,
        place_of: Callable[[R], K],
        names_of: Callable[[Sequence[R]], Sequence[str | None]] | None = None,
        *,
        by_namespace: bool = False,
    ) -> Sequence[R]:
        """Read the rows of a page that the caller may see, from behind `place` on, and one more if there is one.

        `names_of` gives the qualified names, or namespaces, by which rows are seen; without it `read` gives no others.
        Cost: the page. For a caller of one namespace with `names_of`: the rows of others between them too, unless the
        list is in the order of namespaces (`by_namespace`).
        """
        most, only = one_more(limit), self._project.access.only
        if only is None or names_of is None:
            return read(place, most)
        if by_namespace and isinstance(place, tuple):
            begin = cast("K", (only, *("" for _ in place[1:])))
            rows = read(begin if place[0] != only else place, most)
            names = names_of(rows)
            return [row for row, name in zip(rows, names, strict=True) if name is not None and name == only]
        found: list[R] = []
        while len(found) < most:
            rows = read(place, _PART)
            seen = (name is not None and self._project.access.sees_name(name) for name in names_of(rows))
            found += [row for row, visible in zip(rows, seen, strict=True) if visible]
            if len(rows) < _PART:
                break
            place = place_of(rows[-1])
        return found[:most]

    def _note(self, verb: str, subject: str, **detail: object) -> NoteChange:
        """Return the audit row of a change by this caller, which the transaction of the change has to take along."""
        return self._project.note(f"{self.noun}.{verb}", subject, **detail)

    def _keep(self, answer: object) -> Sequence[Effect]:
        """Return what the transaction of a change takes along to keep its answer; nothing for a request without a key.

        Not for an operation with `in_block`, whose transaction does so by itself.
        """
        attempt = self._project.attempt
        return () if attempt is None else (attempt.keep_answer(answer),)

    def _keep_part(self, part: object) -> Sequence[Effect]:
        """Return what a transaction takes along that is a part of a change; see `_part`."""
        attempt = self._project.attempt
        return () if attempt is None else (attempt.keep_part(part),)

    @property
    def _part(self) -> Any:  # noqa: ANN401  # JSON of the operation's own
        """The part that an earlier try of the same request has kept by `_keep_part`; None without one."""
        attempt = self._project.attempt
        return None if attempt is None else attempt.part


def find_project(
    folder: Path,
    *,
    options: Mapping[str, str] | None = None,
    create: bool = False,
    world: World | None = None,
    meter: Meter | None = None,
) -> Project:
    """Return the project in `folder`, with its catalog open; `options` override settings."""
    world = world or World()
    config = load_config(world, folder, options)
    world = replace(world, stores=config.stores)
    return Project(open_catalog(config.catalog, world, create=create, meter=meter), world, config)


def user_of(world: World) -> str:
    """Return the user of this process as records of changes name the user: `user@host`."""
    return f"{world.environ.get('USER', 'unknown')}@{world.spawner.host()}"


def complete(kind: str, short: str, known: Sequence[str]) -> str:
    """Return the one of the qualified names `known` whose last part is `short`.

    `NotFound` with the nearest name, and `AmbiguousName` where several names end so.
    """
    ends = [name for name in known if name.rpartition(".")[2] == short]
    match ends:
        case [name]:
            return name
        case []:
            by_end = {name.rpartition(".")[2]: name for name in known}
            meant = nearest(short, by_end)
            raise NotFound(kind, short, by_end[meant] if meant else None)
        case _:
            raise AmbiguousName(kind, short, ends)


def check_startable(program: Program) -> Program:
    """Return `program`; raise `ProgramRetired` for one that its app does not declare any more.

    `NodeOfWorkflow` for a program that gets its input from a workflow, `StartsByItself` for a worker.
    """
    if program.retired:
        raise ProgramRetired(program.qualified_name)
    if program.held:
        raise NodeOfWorkflow(program.qualified_name, program.held)
    if program.kind.is_worker:
        raise StartsByItself(program.qualified_name)
    return program


def fields_of(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a record by name, to make a record of a wider class."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def program_names(db: Db, program_ids: Iterable[ProgramId | None]) -> dict[ProgramId, str]:
    """Return the qualified names of programs by id. Cost: look-ups."""
    ids = json.dumps(sorted({one for one in program_ids if one is not None}))
    found = db.records(SQL.name_programs, tuple[ProgramId, Namespace, str, str], ids=ids)
    return {program_id: qualified(namespace, app, name) for program_id, namespace, app, name in found}


def schedule_names(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, str]:
    """Return the qualified names of schedules by id. Cost: look-ups."""
    ids = json.dumps(sorted(set(schedule_ids)))
    found = db.records(SQL.name_schedules, tuple[ScheduleId, Namespace, str, str], ids=ids)
    return {schedule_id: qualified(namespace, app, name) for schedule_id, namespace, app, name in found}
