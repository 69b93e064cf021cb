"""Programs: what an app registers to be run, and the code that is found again by its name."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from importlib.abc import SourceLoader
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

from tidemill.catalog.db import Db
from tidemill.catalog.named import Row, Stored, load_sql
from tidemill.errors import NotFound, UserError
from tidemill.json_specs import copy_of, read_plain, write_checked
from tidemill.names import Namespace, ProgramId, advise, check_name, nearest, qualified, split_qualified
from tidemill.run.records.modules import find_app, find_module
from tidemill.run.records.values import Value as Value  # noqa: PLC0414  # programs and values go together
from tidemill.run.records.workflow_spec import WorkflowSpec
from tidemill.secret_places import Secret, check_place, read_secret
from tidemill.world import Disk, World

if TYPE_CHECKING:
    from tidemill.run.records.programs_sql import Sql

SQL: Sql = load_sql(__file__)

BACKOFF: Final = timedelta(seconds=10)
"""Wait after a failure, unless the program says another. Also for engines outside, which have no program."""
MOST_RETRIES: Final = 100
MOST_ARGUMENT_CHARACTERS: Final = 100_000
"""The most characters of the arguments of a run as JSON. The messages about the run have the arguments too."""

_JSON_OF_ONE: Final = 12
"""The most characters of JSON for one of a value: two escapes as `\\ud83d`. To write the JSON takes longer."""

_COLUMNS: Final = ("program_id", "namespace", "app", "name", "kind", "bundle", "retired", "spark_profile")
"""Fields of a program that the catalog keeps in columns; the other fields are one JSON."""

Code: TypeAlias = Callable[..., object]


class BadArgument(UserError):
    """An argument that the program does not declare, of another type, or missing."""

    code = "bad_argument"
    hint = "give the arguments that the program declares, each of its type"

    def __init__(self, program: str, argument: str, why: str) -> None:
        self.program = program
        self.argument = argument
        super().__init__(f"argument {argument!r} of program {program} is refused: {why}")


class BadProgram(UserError):
    """A declaration of a program that cannot be."""

    code = "bad_program"
    hint = "correct the declaration of the program, and deploy again"

    def __init__(self, program: str, why: str) -> None:
        self.program = program
        super().__init__(f"program {program} is refused: {why}")


class BrokenApp(UserError):
    """An app file that does not load, or declares no such app."""

    code = "broken_app"
    hint = "correct the app file, and deploy again"

    def __init__(self, path: Path, why: str) -> None:
        self.path = str(path)
        self.why = why
        super().__init__(f"app file {path} does not load: {why}")


class ProgramRetired(UserError):
    """A program was to be started that its app does not declare any more."""

    code = "program_retired"

    def __init__(self, program: str) -> None:
        self.program = program
        super().__init__(
            f"program {program} is retired: its app does not declare it any more",
            "declare it again and deploy, or name another program",
        )


class NodeOfWorkflow(UserError):
    """A program was to be started by itself that gets its input from a workflow."""

    code = "node_of_workflow"

    def __init__(self, program: str, datasets: Iterable[str]) -> None:
        self.program = program
        self.datasets = tuple(datasets)
        super().__init__(
            f"program {program} gets {', '.join(self.datasets)} from its workflow, which holds the claims",
            "start or schedule the workflow",
        )


class StartsByItself(UserError):
    """A worker was to be started by hand or by a schedule."""

    code = "starts_by_itself"

    def __init__(self, program: str) -> None:
        self.program = program
        super().__init__(
            f"{program} is a worker: runners keep as many of it alive as the app declares",
            "change `instances` and deploy, or `tidemill run kill` one to have it replaced",
        )


class ProgramKind(StrEnum):
    """Call of a program: with `(run, spark)`, or with `(run)` alone in a process without Spark."""

    SPARK = "spark"
    PYTHON = "python"
    WORKER = "worker"
    """Without Spark; it runs until it is stopped, and takes and commits again and again."""
    SPARK_WORKER = "spark_worker"
    WORKFLOW = "workflow"
    """A graph of programs. Its run has no process: runs of its nodes do the work."""

    @property
    def needs_spark(self) -> bool:
        """True if the program is called with a Spark session."""
        return self in {ProgramKind.SPARK, ProgramKind.SPARK_WORKER}

    @property
    def is_worker(self) -> bool:
        """True for a worker: it runs until it is stopped."""
        return self in {ProgramKind.WORKER, ProgramKind.SPARK_WORKER}


class ArgumentType(StrEnum):
    """Types of arguments, by their name in JSON schemas and on the command line."""

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    SECRET = "secret"  # noqa: S105  # a type, no secret
    """The place of a secret. The driver reads the secret."""


_PYTHON_TYPES: Final[Mapping[ArgumentType, type[Value]]] = {
    ArgumentType.STRING: str,
    ArgumentType.INT: int,
    ArgumentType.FLOAT: float,
    ArgumentType.BOOL: bool,
    ArgumentType.SECRET: str,
}


@dataclass(frozen=True, slots=True)
class AppSpec:
    """A deployed app, as the catalog keeps it: the app file, the folder of its project, and its bundle, if any."""

    file: str
    project: str
    bundle: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """Declared argument. Without a default, a run must give it."""

    name: str
    type: ArgumentType
    default: Value | None = None

    def __post_init__(self) -> None:
        check_name("argument", self.name)
        if self.default is not None:
            self.check("its declaration", self.default)

    def check(self, program: str, value: object) -> Value:
        """Give `value` back if it has the declared type (an int will do for a float); `BadArgument` otherwise.

        Of a secret, give the place; `BadSecretPlace`, whose message does not have the value: it may be the secret.
        """
        if self.type is ArgumentType.SECRET:
            place = value.place if isinstance(value, Secret) else value
            return check_place(f"argument {self.name} of {program}", place if isinstance(place, str) else "")
        wanted = _PYTHON_TYPES[self.type]
        if wanted is float and type(value) is int:
            return float(value)
        if type(value) is not wanted:
            raise BadArgument(program, self.name, f"it must be of type {self.type}, not {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class WrittenSpan:
    """Times, on the wall clock of a file set, of the partitions that each run of a program writes.

    `start` and `end` are texts with `$name` for arguments of the run; None for an open side.
    """

    dataset: str
    start: str | None = None
    end: str | None = None

    def bind(self, arguments: Mapping[str, Value]) -> WrittenSpan:
        """Return the times with the arguments of a run. `KeyError` with the name of an argument that is not there."""
        values = {name: str(value) for name, value in arguments.items()}
        start, end = (None if one is None else Template(one).substitute(values) for one in (self.start, self.end))
        return WrittenSpan(self.dataset, start, end)


@dataclass(frozen=True, slots=True)
class Program:
    """A registered program.

    `reads` and `writes` are qualified names of data sets. A failed attempt is repeated `retries` times, after
    `backoff`, then twice that, … up to an hour. `run_on_empty` says whether it is called when all its inputs are empty;
    None: when a time trigger fed its job.
    `deliver_own=False` keeps its runs from consuming what they themselves publish. `bundle` holds its code as deployed
    from `app_file`; it is empty for code that is read at `app_file` itself.
    """

    program_id: ProgramId
    namespace: Namespace
    app: str
    name: str
    kind: ProgramKind
    app_file: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    retries: int = 0
    backoff: timedelta = BACKOFF
    run_on_empty: bool | None = None
    deliver_own: bool = True
    arguments: tuple[Argument, ...] = ()
    spans: tuple[WrittenSpan, ...] = ()
    """Times of `writes` that a run holds open while its transaction is open."""
    bundle: str = ""
    retired: bool = False
    """True if the app does not declare the program any more: nothing starts it."""
    spark_profile: str = ""
    """The named Spark profile with which its Spark runs; empty for the settings of `[spark]`, and without Spark."""
    held: tuple[str, ...] = ()
    """Data sets of `reads` that a node gets from its workflow, which holds the claims."""
    workflow: WorkflowSpec | None = None
    """The nodes of a workflow; None for other programs."""

    def __post_init__(self) -> None:
        check_name("app", self.app)
        check_name("program", self.name)
        for dataset in (*self.reads, *self.writes):
            split_qualified("data set", dataset, 1)
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or not 0 <= self.retries <= MOST_RETRIES:
            raise BadProgram(self.qualified_name, f"retries must be a whole number from 0 to {MOST_RETRIES}")
        names = [argument.name for argument in self.arguments]
        if len(set(names)) < len(names):
            raise BadProgram(self.qualified_name, "an argument is declared twice")
        for span in self.spans:
            self._check_span(span, names)

    def _check_span(self, span: WrittenSpan, names: Iterable[str]) -> None:
        try:
            span.bind(dict.fromkeys(names, ""))
        except (KeyError, ValueError) as error:
            shown = f"the span of {span.dataset} ({span.start} to {span.end})"
            missing = isinstance(error, KeyError)
            why = f"names the argument {error}, which it does not declare" if missing else "has a single $"
            advice = "write $name for an argument, $$ for a dollar"
            raise BadProgram(self.qualified_name, f"{shown} {why}: {advice}") from None

    @property
    def qualified_name(self) -> str:
        """`<namespace>.<app>.<program>`: also the name of its consumers."""
        return qualified(self.namespace, self.app, self.name)

    def bind(self, given: Mapping[str, object], later: Iterable[str] = ()) -> dict[str, Value]:
        """Return the arguments of a run: `given`, checked, and the defaults of the others. Raises `BadArgument`.

        `later` names arguments that get their values at launch: they are left out. More than
        `MOST_ARGUMENT_CHARACTERS` are refused, because each message about the run has its arguments.
        """
        declared = {argument.name: argument for argument in self.arguments}
        known_later, own_name = set(later), self.qualified_name
        for name in (*given, *known_later):
            if name not in declared:
                there = f"; declared are {', '.join(declared)}" if declared else "; the program declares no arguments"
                advice = advise(name, declared, before="; ") or there
                raise BadArgument(own_name, name, f"it is not declared{advice}")
        bound: dict[str, Value] = {}
        for argument in self.arguments:
            if argument.name in given:
                bound[argument.name] = argument.check(own_name, given[argument.name])
            elif argument.name in known_later:
                continue
            elif argument.default is None:
                raise BadArgument(own_name, argument.name, f"it must be given ({argument.type})")
            else:
                bound[argument.name] = argument.default
        if _JSON_OF_ONE * len(repr(bound)) <= MOST_ARGUMENT_CHARACTERS:
            return bound
        sizes = {name: len(json.dumps({name: value})) for name, value in bound.items()}
        if sum(sizes.values()) > MOST_ARGUMENT_CHARACTERS:
            why = (
                f"all arguments together have more than {MOST_ARGUMENT_CHARACTERS} characters; give the path of a file"
            )
            raise BadArgument(own_name, max(sizes, key=lambda name: sizes[name]), why)
        return bound

    def reveal(self, world: World, arguments: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the arguments of a run as its program sees them: secrets in the place of their places. `NoSecret`."""
        secrets = [one.name for one in self.arguments if one.type is ArgumentType.SECRET and one.name in arguments]
        read = {name: read_secret(world, f"argument {name}", str(arguments[name])) for name in secrets}
        return {**arguments, **read}

    def spec(self) -> str:
        """The JSON of all fields but those that are columns; `BadProgram` for a value of a wrong type."""
        plain = write_checked(self, lambda why: BadProgram(self.qualified_name, why))
        return json.dumps({name: value for name, value in plain.items() if name not in _COLUMNS})


def put_program(db: Db, program: Program) -> ProgramId:
    """Register `program`, or change the one of its name, whose id stays; give the id."""
    rows = db.all(
        SQL.put_program,
        program_id=program.program_id,
        namespace=program.namespace,
        app=program.app,
        name=program.name,
        kind=program.kind,
        spec=program.spec(),
        bundle=program.bundle,
        spark_profile=program.spark_profile if program.kind.needs_spark else None,
    )
    return ProgramId(str(rows[0][0]))


def retire_programs(db: Db, namespace: Namespace, app: str, kept: Iterable[ProgramId]) -> dict[ProgramId, str]:
    """Retire the programs of an app but for `kept`: nothing starts them from now on. Give their names by id."""
    rows = db.all(SQL.retire_others, namespace=namespace, app=app, program_ids=json.dumps(sorted(kept)))
    return {ProgramId(str(program_id)): str(name) for program_id, name in rows}


def profile_key(profile: str) -> str:
    """Return the name of a Spark profile among the things that a node leaves to other nodes, beside bundles."""
    return f"profile:{profile}"


def find_program(db: Db, namespace: Namespace, app: str, name: str, *, everywhere: bool = False) -> Program:
    """The program of that name; `NotFound` with the nearest name of its namespace, or of all with `everywhere`."""
    row = db.one(SQL.find_program, namespace=namespace, app=app, name=name)
    if row is None:
        wanted = qualified(namespace, app, name)
        known = (one.qualified_name for one in list_programs(db) if everywhere or one.namespace == namespace)
        raise NotFound("program", wanted, nearest(wanted, known))
    return read_program(row)


def find_program_by_id(db: Db, program_id: ProgramId) -> Program:
    """The program with that id."""
    row = db.one(SQL.find_by_id, program_id=program_id)
    if row is None:
        raise NotFound("program", program_id)
    return read_program(row)


def find_programs(db: Db, program_ids: Iterable[ProgramId]) -> dict[ProgramId, Program]:
    """Return the programs of `program_ids` that are registered, by their id, in one statement."""
    rows = db.all(SQL.find_by_ids, program_ids=json.dumps(sorted(set(program_ids))))
    return {program.program_id: program for program in map(read_program, rows)}


@dataclass(frozen=True, slots=True)
class Uses:
    """Data sets that a declared program reads and writes, by qualified names."""

    program_id: ProgramId
    namespace: Namespace
    program: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    held: frozenset[str] = frozenset()
    """Data sets of `reads` that a workflow takes."""


def list_uses(db: Db) -> list[Uses]:
    """Return what each declared program reads and writes, by program name. Makes no `Program`. Cost: all programs."""
    declared = db.records(SQL.list_declared, tuple[ProgramId, Namespace, str, str, Mapping[str, tuple[str, ...]]])
    return [
        Uses(
            program_id,
            namespace,
            qualified(namespace, app, name),
            tuple(spec.get("reads", ())),
            tuple(spec.get("writes", ())),
            frozenset(spec.get("held", ())),
        )
        for program_id, namespace, app, name, spec in declared
    ]


def list_reads(db: Db) -> frozenset[tuple[str, str]]:
    """Return the declared programs, each with each data set that it takes, by qualified names. Makes no `Program`.

    A node takes nothing of what its workflow holds: the workflow does.
    """
    return frozenset(
        (one.program, dataset) for one in list_uses(db) for dataset in one.reads if dataset not in one.held
    )


def list_programs(db: Db) -> list[Program]:
    """All programs, in order of namespace, app, name."""
    return [read_program(row) for row in db.all(SQL.list_programs)]


@runtime_checkable
class ProgramSource(Protocol):
    """Contract of an app file's app: it finds its programs' code by name."""

    @property
    def name(self) -> str:
        """The app's name."""

    def find_program(self, name: str) -> Code:
        """The code of program `name`; `NotFound` when the app declares none."""


@runtime_checkable
class PlacedSource(Protocol):
    """Contract of an app with files beside its app file."""

    folder: Path
    """The folder of the app file, or of its unpacked bundle; set by `load_apps`."""


@runtime_checkable
class AcceptorSource(Protocol):
    """Contract of an app whose programs have acceptors."""

    def find_acceptors(self, program: str) -> Mapping[str, Code]:
        """The acceptors of a program, by the qualified name of the file set that they judge."""


def code_digest(disk: Disk, app_file: Path) -> str:
    """Names the code that loading `app_file` can import beside it: Python files of its folder and packages in it."""
    digest = hashlib.sha256()
    for path in _sources(disk, app_file.parent):
        try:
            content = disk.read_bytes(path)
        except FileNotFoundError:
            continue  # renamed by an editor at this moment
        digest.update(f"{path.relative_to(app_file.parent)}\0".encode())
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def load_apps(app_file: Path, bundle: Path | None = None) -> Sequence[ProgramSource]:
    """Import `app_file` and return the apps that it declares, in their order in the file; `BrokenApp` if it fails.

    With the folder of an unpacked `bundle`, the app file and its imports come from there.

    The app file becomes the module of its stem, with its folder on the path, so that Spark's workers find what Spark
    sends to them. Each call executes the app file again. Modules beside it stay as they were first imported, so a
    process whose code has changed has to be replaced.
    """
    spec = find_app(app_file) if bundle is None else find_module(bundle, app_file)
    if spec is None or spec.loader is None:
        raise BrokenApp(app_file, "it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[app_file.stem] = module
    try:
        if isinstance(spec.loader, SourceLoader):
            # The compiler lets some bytes of another encoding pass, and what follows them may be lost.
            importlib.util.decode_source(spec.loader.get_data(spec.loader.get_filename(app_file.stem)))
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        if error.filename == str(app_file):
            raise BrokenApp(app_file, "there is no such file") from error
        raise BrokenApp(app_file, _where(spec.origin or str(app_file), error)) from error
    except (Exception, SystemExit) as error:  # whatever a file of the user's raises
        raise BrokenApp(app_file, _where(spec.origin or str(app_file), error)) from error
    apps = [
        value for value in vars(module).values() if isinstance(value, ProgramSource) and not isinstance(value, type)
    ]
    for app in apps:
        if isinstance(app, PlacedSource):
            app.folder = Path(module.__file__ or app_file).parent
    return list({id(app): app for app in apps}.values())


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """The code of a program, and its acceptors by the qualified name of what they judge."""

    code: Code
    acceptors: Mapping[str, Code]


def choose_program(apps: Sequence[ProgramSource], app_file: Path, program: Program) -> LoadedProgram:
    """The code of `program` among the `apps` that `load_apps` has found in `app_file`; `BrokenApp` without its app."""
    for app in apps:
        if app.name == program.app:
            acceptors = app.find_acceptors(program.name) if isinstance(app, AcceptorSource) else {}
            return LoadedProgram(app.find_program(program.name), acceptors)
    raise BrokenApp(app_file, f"it declares no app {program.app!r}")


def _sources(disk: Disk, folder: Path) -> list[Path]:
    found = []
    for path in disk.list_folder(folder):
        if path.name.startswith("."):
            continue  # no module; an editor's lock may be a link to nowhere
        if path.suffix == ".py":
            found.append(path)
        elif disk.exists(path / "__init__.py"):
            found += _sources(disk, path)
    return found


def _where(app_file: str, error: BaseException) -> str:
    """Return one line: the error, and the last line of the app file that led there."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError | UnicodeDecodeError):
        # Python says no more of a file in another encoding than which byte it cannot read.
        return f"save it as UTF-8, or name its encoding in its first line ({what})" if "codec" in what else what
    if isinstance(error, SystemExit):
        what = f"it calls sys.exit({error.code!r}), which would end what loads it"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == app_file]
    return f"line {lines[-1]}: {what}" if lines else what


@lru_cache(maxsize=1024)
def read_program(row: Row) -> Program:
    """Return the program of a row of `find_program`."""
    # Cached by the whole row: each batch of messages, each check and each attempt asks for the same few programs.
    # Beside that, programs that differ by their names alone are read once.
    program_id, namespace, app, name, *rest = row
    program = copy_of(_read_program(str(namespace), str(app), *rest))
    object.__setattr__(program, "program_id", ProgramId(str(program_id)))
    object.__setattr__(program, "name", str(name))
    return program


@lru_cache(maxsize=1024)
def _read_program(namespace: str, app: str, kind: Stored, text: Stored, *rest: Stored) -> Program:
    bundle, retired, profile = rest
    named = dict(zip(_COLUMNS, ("", namespace, app, "program", kind, bundle, retired == 1, profile or ""), strict=True))
    return read_plain(Program, json.loads(str(text)) | named)
