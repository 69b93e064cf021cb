"""Declarations: what an app declares, as JSON. The code of its programs is no part of it.

A client declares by importing the app file, and sends the JSON with the packed code. So a server deploys without
importing code of users. A deployment keeps the JSON, and a rollback reads it again. Reading makes an `App`, by the
checks that the app file had to pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final, NoReturn, assert_never

from tidemill.alerts.specs import AlertSpec
from tidemill.app.app import App
from tidemill.app.declared import (
    BadDeclaration,
    DeclaredFileset,
    DeclaredInbox,
    DeclaredProgram,
    DeclaredSchedule,
    DeclaredSnapshot,
)
from tidemill.app.reads import Changes, Reads
from tidemill.errors import UserError
from tidemill.json_specs import read_plain, read_stored, sparse, union, write_plain, write_text
from tidemill.lake.consumer.consumer import ConsumedPartition
from tidemill.lake.fileset.stored import Storing
from tidemill.lake.inbox.inbox import InboxSpec, rejects_of
from tidemill.lake.snapshot.snapshot import SnapshotSpec
from tidemill.names import DEFAULT_NAMESPACE, check_name, qualified
from tidemill.run.records.programs import Argument, ArgumentType, ProgramKind, Value, WrittenSpan
from tidemill.run.records.workflow_spec import WorkflowSpec
from tidemill.run.step.acceptors import Accept
from tidemill.run.step.spans import DeclaredSpan
from tidemill.schedule.specs import ScheduleSpec
from tidemill.secret_places import Secret
from tidemill.shapes.column_types import check_types
from tidemill.shapes.filters import Range, Where
from tidemill.shapes.formats import BadRows
from tidemill.shapes.watermark_spec import StoredWatermark, WatermarkSpec

_TYPES: Final[Mapping[ArgumentType, type]] = {
    ArgumentType.STRING: str,
    ArgumentType.INT: int,
    ArgumentType.FLOAT: float,
    ArgumentType.BOOL: bool,
    ArgumentType.SECRET: Secret,
}


class _SentDataset:
    """A data set of a declaration."""


@sparse
@dataclass(frozen=True, slots=True)
class _SentInbox(_SentDataset):
    name: str
    location: str
    spec: InboxSpec


@sparse
@dataclass(frozen=True, slots=True)
class _SentFileset(_SentDataset):
    name: str
    storing: Storing
    location: str | None = None
    watermark: StoredWatermark | None = None


@sparse
@dataclass(frozen=True, slots=True)
class _SentSnapshot(_SentDataset):
    name: str
    spec: SnapshotSpec
    location: str | None = None


union(_SentDataset, {"inbox": _SentInbox, "fileset": _SentFileset, "snapshot": _SentSnapshot})


class _SentTerms:
    """Terms on which a program reads a data set."""


@sparse
@dataclass(frozen=True, slots=True)
class _SentReads(_SentTerms):
    start: str = "beginning"
    max_partitions: int | None = None
    max_bytes: str | None = None
    order: str = "oldest"
    old_share: float = 0
    on_change: str = "again"
    where: Mapping[str, object] | None = None
    accepts: bool = False
    attempts: int | None = None


@sparse
@dataclass(frozen=True, slots=True)
class _SentChanges(_SentTerms):
    start: str = "beginning"


union(_SentTerms, {"partitions": _SentReads, "changes": _SentChanges})


@sparse
@dataclass(frozen=True, slots=True)
class _SentProgram:
    name: str
    kind: ProgramKind
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    retries: int = 0
    backoff: timedelta = timedelta(seconds=10)
    run_on_empty: bool | None = None
    deliver_own: bool = True
    arguments: tuple[Argument, ...] = ()
    terms: Mapping[str, _SentTerms] = field(default_factory=dict)
    instances: int = 0
    spans: tuple[WrittenSpan, ...] = ()
    windows: str | None = None
    """The statement of a window program, whose input and output stand in it."""
    spark_profile: str = ""
    workflow: WorkflowSpec | None = None
    """The nodes of a workflow, which holds what it reads."""


@sparse
@dataclass(frozen=True, slots=True)
class _SentSchedule:
    name: str
    program: str
    spec: ScheduleSpec
    suspended: bool | None = None


@sparse
@dataclass(frozen=True, slots=True)
class Declaration:
    """All declarations of an app, as JSON has them. Names of data sets that a program reads or writes are qualified."""

    name: str
    namespace: str = DEFAULT_NAMESPACE
    datasets: tuple[_SentDataset, ...] = ()
    programs: tuple[_SentProgram, ...] = ()
    schedules: tuple[_SentSchedule, ...] = ()
    alerts: Mapping[str, AlertSpec] = field(default_factory=dict)


class _RemoteCode:
    """Stands for the code of a program, which is in the bundle."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: object) -> NoReturn:
        """The code is not here."""
        raise NotImplementedError(f"the code of {self.__name__} is in the bundle of its app")


def write_declaration(app: App) -> Any:  # noqa: ANN401  # JSON
    """Return what an app declares, as JSON; `BadDeclaration` for a value of a type that JSON has not."""
    plain = write_plain(_declare(app))
    try:
        read_plain(Declaration, plain)
    except UserError as error:
        raise BadDeclaration(f"app {app.name!r}", f"cannot be written as JSON: {error}") from error
    return plain


def write_stored(app: App) -> str:
    """Return what an app declares, as JSON text for the catalog."""
    return write_text(_declare(app))


def read_declaration(plain: object) -> App:
    """Return the app that JSON declares.

    Raises `BadJson` for another form, `BadDeclaration` and other errors of the user for what an app cannot declare.
    """
    return _make(read_plain(Declaration, plain))


def restore_declaration(text: str) -> App:
    """Return the app that JSON text from the catalog declares."""
    return _make(read_stored(Declaration, text))


def _declare(app: App) -> Declaration:
    return Declaration(
        app.name,
        app.namespace,
        tuple(map(_write_dataset, app.datasets.values())),
        tuple(map(_write_program, app.programs.values())),
        tuple(_SentSchedule(one.name, one.program, one.spec, one.suspended) for one in app.schedules.values()),
        app.alerts,
    )


def _make(declared: Declaration) -> App:
    app = App(declared.name, namespace=declared.namespace)
    for place in declared.datasets:
        _add_dataset(app, place)
    for dataset in app.datasets.values():
        rejects = rejects_of(dataset.name)
        rejecting = isinstance(dataset, DeclaredInbox) and dataset.spec.format.bad_rows is BadRows.REJECT
        if rejecting and not isinstance(app.datasets.get(rejects), DeclaredFileset):
            raise BadDeclaration(f"inbox {dataset.name!r}", f"needs the file set {rejects!r} for its bad rows")
    for program in declared.programs:
        _add_program(app, program)
    for schedule in declared.schedules:
        app.add_schedule(DeclaredSchedule(schedule.name, schedule.program, schedule.spec, schedule.suspended))
    for name, alert in declared.alerts.items():
        app.add_alert(name, alert)
    return app


def _write_dataset(dataset: DeclaredInbox | DeclaredFileset | DeclaredSnapshot) -> _SentDataset:
    match dataset:
        case DeclaredInbox():
            return _SentInbox(dataset.name, dataset.location, dataset.spec)
        case DeclaredFileset(watermark=watermark):
            stored = None if watermark is None else watermark.stored
            return _SentFileset(dataset.name, dataset.storing, dataset.location, stored)
        case DeclaredSnapshot():
            return _SentSnapshot(dataset.name, dataset.spec, dataset.location)
        case _:
            assert_never(dataset)


def _add_dataset(app: App, place: _SentDataset) -> None:
    name = qualified(app.namespace, check_name("data set", str(getattr(place, "name", ""))))
    match place:
        case _SentInbox():
            place.spec.format.check_values()
            check_types(place.spec.format)
            app.add_dataset(DeclaredInbox(name, place.name, place.location, place.spec))
        case _SentFileset(watermark=stored):
            watermark = None if stored is None else WatermarkSpec.restore(stored, place.storing.keys)
            app.add_dataset(DeclaredFileset(name, place.name, place.location, place.storing, watermark))
        case _SentSnapshot():
            app.add_dataset(DeclaredSnapshot(name, place.name, place.location, place.spec))


def _write_program(program: DeclaredProgram) -> _SentProgram:
    return _SentProgram(
        program.name,
        program.kind,
        program.reads,
        program.writes,
        program.retries,
        program.backoff,
        program.run_on_empty,
        program.deliver_own,
        program.arguments,
        {name: _write_terms(terms) for name, terms in program.terms.items()},
        program.instances,
        program.spans,
        None if program.windows is None else program.windows.statement,
        program.spark_profile,
        program.workflow,
    )


def _add_program(app: App, program: _SentProgram) -> None:
    check_name("program", program.name)
    if program.windows is not None:
        _add_windows(app, program, program.windows)
        return
    stray = program.terms.keys() - set(program.reads)
    if stray:
        raise BadDeclaration(f"program {program.name!r}", f"has terms for {min(stray)}, which it does not read")
    reads = [_read_terms(name, program.terms.get(name)) for name in program.reads]
    # Without a default, a run must give the argument: the app file says its type then.
    arguments = {one.name: _read_given(one) for one in program.arguments}
    if [(name, _TYPES[one.type]) for name, one in zip(arguments, program.arguments, strict=False)] != [
        (name, value if isinstance(value, type) else type(value)) for name, value in arguments.items()
    ] or len(arguments) != len(program.arguments):
        why = "has two arguments of one name, or a default of another type than its argument"
        raise BadDeclaration(f"program {program.name!r}", why)
    if (program.workflow is None) == (program.kind is ProgramKind.WORKFLOW):
        raise BadDeclaration(f"program {program.name!r}", "has nodes and is no workflow, or has none and is a workflow")
    if program.workflow is not None:
        app.add_workflow(program.name, program.workflow, reads, arguments)
        return
    if program.kind.is_worker:
        add = app.add_worker(
            program.kind,
            reads,
            program.writes,
            program.instances,
            program.retries,
            program.backoff,
            program.deliver_own,
            arguments,
            spark_profile=program.spark_profile,
        )
    else:
        spans = {one.dataset: DeclaredSpan(one.dataset, one.start, one.end) for one in program.spans}
        add = app.add_program(
            program.kind,
            reads,
            [spans.get(name, name) for name in program.writes],
            program.retries,
            program.backoff,
            program.run_on_empty,
            program.deliver_own,
            arguments,
            spark_profile=program.spark_profile,
        )
    add(_RemoteCode(program.name))


def _read_given(one: Argument) -> type | Value | Secret:
    if one.default is None:
        return _TYPES[one.type]
    return Secret(str(one.default)) if one.type is ArgumentType.SECRET else one.default


def _add_windows(app: App, program: _SentProgram, statement: str) -> None:
    # sqlglot takes long to import, and few apps have windows.
    from tidemill.sql.window_program import WindowProgram

    code = WindowProgram(program.name, statement, app.namespace)
    if program.writes != code.writes or program.reads != code.look_ups:
        raise BadDeclaration(f"window program {program.name!r}", "reads and writes what its statement says")
    app.add_windows(code, program.kind, program.retries, program.backoff, program.spark_profile)


def _write_terms(terms: Reads | Changes) -> _SentTerms:
    start = terms.start.isoformat() if isinstance(terms.start, datetime) else terms.start
    if isinstance(terms, Changes):
        return _SentChanges(start)
    return _SentReads(
        start,
        terms.max_partitions,
        terms.max_bytes,
        terms.order,
        terms.old_share,
        terms.on_change,
        None if terms.where is None else {name: _write_value(one) for name, one in terms.where.items()},
        terms.accept is not None,
        terms.attempts,
    )


def _read_terms(name: str, terms: _SentTerms | None) -> Reads | Changes:
    match terms:
        case None:
            return Reads(name)
        case _SentChanges(start):
            return Changes(name, start)
        case _SentReads():
            return Reads(
                name,
                terms.start,
                terms.max_partitions,
                terms.max_bytes,
                terms.order,
                terms.old_share,
                terms.on_change,
                None if terms.where is None else _read_where(name, terms.where),
                _accept if terms.accepts else None,
                *(() if terms.attempts is None else (terms.attempts,)),
            )
        case _:
            raise TypeError(terms)


def _accept(_: ConsumedPartition) -> Accept:
    raise NotImplementedError("the acceptor is in the bundle of its app")


def _write_value(value: object) -> object:
    """Return a condition of a filter, or a value of it, as JSON. A time keeps its type."""
    match value:
        case datetime():
            return {"timestamp": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case Range(lower, upper):
            return {"lower": _write_value(lower), "upper": _write_value(upper)}
        case set() | frozenset():
            return sorted(map(_write_value, value), key=repr)
        case list() | tuple():
            return [_write_value(one) for one in value]
        case _:
            return value


def _read_where(name: str, plain: Mapping[str, object]) -> Where:
    try:
        return {key: _read_value(value) for key, value in plain.items()}
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadDeclaration(f"the filter of {name}", f"cannot be read: {error}") from None


def _read_value(value: Any) -> Any:  # noqa: ANN401  # JSON
    match value:
        case {"timestamp": str(text), **rest} if not rest:
            return datetime.fromisoformat(text)
        case {"date": str(text), **rest} if not rest:
            return date.fromisoformat(text)
        case {"lower": lower, "upper": upper, **rest} if not rest:
            return Range(_read_value(lower), _read_value(upper))
        case list():
            return [_read_value(one) for one in value]
        case None | str() | int():
            return value
        case _:
            raise TypeError(f"{value!r} is no condition")
