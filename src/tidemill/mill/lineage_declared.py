"""Declared lineage: data sets, programs, schedules, topics and hooks, as apps and people declare them.

Programs say what they read and write, and the reverse index of the schedule store says which schedules listen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Topic
from tidemill.catalog.named import LAST_TEXT, load_sql
from tidemill.catalog.records import to_json
from tidemill.errors import NotFound, UserError
from tidemill.lake.datasets import Dataset, DatasetKind, list_datasets
from tidemill.mill.lineage import Bounds, DescribedPlace, Direction, EdgeKind, Lineage, LineageStep, NodeKind, walk
from tidemill.mill.project import AmbiguousName, Project
from tidemill.mill.scheduled import find_named
from tidemill.names import (
    BadName,
    EventKey,
    Namespace,
    ProgramId,
    ScheduleId,
    backlog_event,
    dataset_events,
    hook_event,
    program_event,
    qualified,
    split_qualified,
    topic_event,
    window_event,
)
from tidemill.run.records.programs import Uses, list_uses
from tidemill.schedule.program_triggers import STATES
from tidemill.schedule.specs import Status

if TYPE_CHECKING:
    from tidemill.mill.lineage_declared_sql import Sql

SQL: Sql = load_sql(__file__)

_OF_DATASETS: Final = frozenset(("partition", "file", "snapshot", "watermark", "missing"))
"""Kinds of event keys of data sets. A backlog key is no trigger of its own."""


class _Place(NamedTuple):
    """A place: a data set, topic or hook by its name, a program or schedule by its id."""

    kind: NodeKind
    key: str


class _DatasetRow(NamedTuple):
    """Row of a data set with its last arrival."""

    namespace: Namespace
    name: str
    kind: DatasetKind
    published_at: datetime | None
    program_id: ProgramId | None
    found_at: datetime | None
    broken_since: datetime | None


class _ProgramRow(NamedTuple):
    """Row of a program with its newest run, and with the end of its last run that committed."""

    program_id: ProgramId
    state: str | None
    at: datetime | None


class _ScheduleRow(NamedTuple):
    """Row of a schedule with the time of its last run."""

    schedule_id: ScheduleId
    namespace: Namespace
    app: str
    name: str
    program_id: ProgramId
    status: Status
    at: datetime | None


def trace_dataset(project: Project, db: Db, dataset: Dataset, bounds: Bounds) -> Lineage:
    """Walk from a data set. Cost: all declared programs, and look-ups for the nodes of the answer."""
    return walk(_Declared(project, db), dataset.qualified_name, [_place(dataset.qualified_name)], bounds)


def trace_around(project: Project, db: Db, name: str, bounds: Bounds) -> Lineage:
    """Walk from a data set, program or schedule, by its name or by the id of its node; `NotFound`, `AmbiguousName`."""
    kind, colon, rest = name.partition(":")
    graph = _Declared(project, db)
    finders: dict[str, Callable[[str], _Place]] = {
        **dict.fromkeys(DatasetKind, lambda given: _place(project.dataset(db, given).qualified_name)),
        NodeKind.PROGRAM: lambda given: _program(project.program(db, given).program_id),
        NodeKind.SCHEDULE: lambda given: _Place(NodeKind.SCHEDULE, find_named(project, db, given).schedule_id),
    }
    given, wanted = (rest, [finders[kind]]) if colon and kind in finders else (name, [*finders.values()])
    hint = "name a data set, a program (`APP.PROGRAM`) or a schedule (`APP.SCHEDULE`)"
    missing: UserError = NotFound("data set, program or schedule", name, hint=hint)
    for find in wanted:
        try:
            found = walk(graph, given, [find(given)], bounds)
        except AmbiguousName as error:
            missing = error
        except (NotFound, BadName):
            continue
        else:
            if found.nodes:  # an app may have ceased to declare a program
                return found
    raise missing


def trace_all(project: Project, db: Db, limit: int) -> Lineage:
    """Return all that is declared in the namespaces of the caller, at most `limit` nodes. Each has the depth 0."""
    graph = _Declared(project, db)
    only = project.access.only
    found = list_datasets(db, after=(only or "", ""), limit=limit + 1)
    roots = [_place(one.qualified_name) for one in found if project.access.sees(one.namespace)]
    roots += [_Place(NodeKind.PROGRAM, one.program_id) for one in graph.uses.values()]
    until = {"until_namespace": only or LAST_TEXT, "until_app": LAST_TEXT, "until_name": LAST_TEXT}
    ids = db.records(SQL.list_ids, ScheduleId, after_namespace=only or "", **until, limit=limit + 1)
    roots += [_Place(NodeKind.SCHEDULE, schedule_id) for schedule_id in ids]
    return walk(graph, only or "", roots, Bounds((Direction.UPSTREAM,), 1, limit))


class _Declared:
    """The declared graph in one read of the catalog, as far as the caller may read."""

    def __init__(self, project: Project, db: Db) -> None:
        self._project = project
        self._db = db
        self._started: dict[str, ProgramId] = {}

    @cached_property
    def uses(self) -> Mapping[str, Uses]:
        """The declared programs of the caller's namespaces, by id and in order of their names."""
        sees = self._project.access.sees
        return {one.program_id: one for one in list_uses(self._db) if sees(one.namespace)}

    @cached_property
    def _by_name(self) -> Mapping[str, ProgramId]:
        return {one.program: one.program_id for one in self.uses.values()}

    def steps(self, places: Sequence[_Place], direction: Direction, most: int) -> Iterator[LineageStep[_Place]]:
        """Yield edges, kind by kind: a statement for the schedules, and one for the keys of triggers."""
        of_kind: dict[NodeKind, list[_Place]] = {}
        for place in places:
            of_kind.setdefault(place.kind, []).append(place)
        programs = of_kind.pop(NodeKind.PROGRAM, [])
        schedules = of_kind.pop(NodeKind.SCHEDULE, [])
        others = [place for some in of_kind.values() for place in some]
        if direction is Direction.UPSTREAM:
            yield from self._writers(others)
            yield from self._sources(programs, most)
            yield from self._triggers(schedules)
        else:
            yield from self._readers(others)
            yield from self._results(programs)
            yield from self._listeners([*others, *programs], most)
            yield from (LineageStep(one, _program(self._started[one.key]), EdgeKind.STARTS) for one in schedules)

    def _writers(self, places: Sequence[_Place]) -> Iterator[LineageStep[_Place]]:
        wanted = {place.key: place for place in places}
        for one in self.uses.values():
            for name in one.writes:
                if name in wanted:
                    yield LineageStep(_program(one.program_id), wanted[name], EdgeKind.WRITES)

    def _readers(self, places: Sequence[_Place]) -> Iterator[LineageStep[_Place]]:
        wanted = {place.key: place for place in places}
        for one in self.uses.values():
            for name in one.reads:
                if name in wanted:
                    yield LineageStep(wanted[name], _program(one.program_id), EdgeKind.READS)

    def _sources(self, programs: Sequence[_Place], most: int) -> Iterator[LineageStep[_Place]]:
        for program in programs:
            yield from (LineageStep(_place(name), program, EdgeKind.READS) for name in self.uses[program.key].reads)
        if programs:
            ids = json.dumps([program.key for program in programs])
            rows = self._db.records(SQL.list_starters, tuple[ScheduleId, ProgramId], program_ids=ids, limit=most)
            for schedule_id, program_id in rows:
                yield LineageStep(_Place(NodeKind.SCHEDULE, schedule_id), _program(program_id), EdgeKind.STARTS)

    def _results(self, programs: Sequence[_Place]) -> Iterator[LineageStep[_Place]]:
        for program in programs:
            yield from (LineageStep(program, _place(name), EdgeKind.WRITES) for name in self.uses[program.key].writes)

    def _triggers(self, schedules: Sequence[_Place]) -> Iterator[LineageStep[_Place]]:
        ids = json.dumps([schedule.key for schedule in schedules])
        rows = self._db.records(SQL.list_keys, tuple[EventKey, ScheduleId], schedule_ids=ids) if schedules else []
        for event_key, schedule_id in rows:
            if (source := self._source_of(event_key)) is not None:
                yield LineageStep(source, _Place(NodeKind.SCHEDULE, schedule_id), EdgeKind.TRIGGERS)

    def _listeners(self, places: Sequence[_Place], most: int) -> Iterator[LineageStep[_Place]]:
        by_key = {key: place for place in places for key in self._keys_of(place)}
        keys = json.dumps(sorted(by_key))
        rows = self._db.records(SQL.list_listeners, tuple[EventKey, ScheduleId], event_keys=keys, limit=most)
        for event_key, schedule_id in rows:
            yield LineageStep(by_key[event_key], _Place(NodeKind.SCHEDULE, schedule_id), EdgeKind.TRIGGERS)

    def _source_of(self, key: EventKey) -> _Place | None:
        """Return the place whose events have a key; None for a key that is no source of its own."""
        kind, _, rest = key.partition(":")
        match kind:
            case "program" | "window":
                program_id = self._by_name.get(rest.partition(":")[0])
                return None if program_id is None else _program(program_id)
            case "hook":
                return _Place(NodeKind.HOOK, rest)
            case "topic":
                return None if rest in list(Topic) else _Place(NodeKind.TOPIC, rest)
            case _:
                return _place(rest) if kind in _OF_DATASETS else None

    def _keys_of(self, place: _Place) -> Iterable[EventKey]:
        match place.kind:
            case NodeKind.PROGRAM:
                name = self.uses[place.key].program
                namespace, (app, program) = split_qualified("program", name, 2)
                return (*(program_event(namespace, app, program, state) for state in STATES), window_event(name))
            case NodeKind.TOPIC:
                return (topic_event(place.key),)
            case NodeKind.HOOK:
                namespace, (name,) = split_qualified("hook", place.key, 1)
                return (hook_event(namespace, name),)
            case _:
                namespace, (name,) = split_qualified("data set", place.key, 1)
                return {*dataset_events(namespace, name)} - {backlog_event(namespace, name)}

    def describe(self, places: Sequence[_Place]) -> Mapping[_Place, DescribedPlace]:
        """Describe the places that are declared, each kind in one statement."""
        of_kind: dict[NodeKind, list[str]] = {}
        for place in places:
            of_kind.setdefault(place.kind, []).append(place.key)
        found: dict[_Place, DescribedPlace] = {}
        found.update(self._describe_datasets(of_kind.get(NodeKind.FILESET, ())))
        found.update(self._describe_programs(of_kind.get(NodeKind.PROGRAM, ())))
        found.update(self._describe_schedules(of_kind.get(NodeKind.SCHEDULE, ())))
        for kind in (NodeKind.TOPIC, NodeKind.HOOK):
            for name in of_kind.get(kind, ()):
                # All namespaces share the topics. A hook belongs to one.
                if kind is NodeKind.TOPIC or self._project.access.sees(split_qualified("hook", name, 1)[0]):
                    found[_Place(kind, name)] = DescribedPlace(f"{kind}:{name}", kind, name, "", None)
        return found

    def _describe_datasets(self, names: Sequence[str]) -> Iterator[tuple[_Place, DescribedPlace]]:
        split = [split_qualified("data set", name, 1) for name in names]
        wanted = [{"namespace": of, "name": name} for of, (name,) in split if self._project.access.sees(of)]
        rows = self._db.records(SQL.describe_datasets, _DatasetRow, wanted=to_json(wanted)) if wanted else []
        for row in rows:
            name, kind = qualified(row.namespace, row.name), NodeKind(row.kind)
            at = row.found_at if kind is NodeKind.INBOX else row.published_at
            state = "late" if row.broken_since else "empty" if at is None else "filled"
            maker = self.uses.get(row.program_id) if row.program_id else None
            made_by = None if maker is None else maker.program
            yield _place(name), DescribedPlace(f"{kind}:{name}", kind, name, state, at, made_by=made_by)

    def _describe_programs(self, ids: Sequence[str]) -> Iterator[tuple[_Place, DescribedPlace]]:
        known = json.dumps([one for one in ids if one in self.uses])
        for row in self._db.records(SQL.describe_programs, _ProgramRow, program_ids=known) if ids else []:
            name = self.uses[row.program_id].program
            shown = f"{NodeKind.PROGRAM}:{name}"
            yield (
                _program(row.program_id),
                DescribedPlace(shown, NodeKind.PROGRAM, name, row.state or "not started", row.at),
            )

    def _describe_schedules(self, ids: Sequence[str]) -> Iterator[tuple[_Place, DescribedPlace]]:
        rows = self._db.records(SQL.describe_schedules, _ScheduleRow, schedule_ids=json.dumps(ids)) if ids else []
        for row in rows:
            if self._project.access.sees(row.namespace):
                self._started[row.schedule_id] = row.program_id
                name = qualified(row.namespace, row.app, row.name)
                shown = DescribedPlace(f"{NodeKind.SCHEDULE}:{name}", NodeKind.SCHEDULE, name, row.status, row.at)
                yield _Place(NodeKind.SCHEDULE, row.schedule_id), shown


def _place(dataset: str) -> _Place:
    """Return the place of a data set, whichever its kind is."""
    return _Place(NodeKind.FILESET, dataset)


def _program(program_id: str) -> _Place:
    return _Place(NodeKind.PROGRAM, program_id)
