"""`App`: what users write. Declarations only; `deploy` brings them into the catalog.

An app file makes one or more `App` objects, declares data sets and programs on them, and says what starts each program.
Everything is checked where it is declared, so that a mistake is reported with the line of the app file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path, PurePosixPath
from types import FunctionType
from typing import TYPE_CHECKING, Final, TypeVar

from tidemill.alerts.rules import Rule
from tidemill.alerts.specs import AlertSpec
from tidemill.alerts.targets import Target
from tidemill.app.compaction import Compaction
from tidemill.app.declared import (
    BadDeclaration,
    DeclaredFileset,
    DeclaredInbox,
    DeclaredProgram,
    DeclaredSchedule,
    DeclaredSnapshot,
)
from tidemill.app.pipeline import Pipeline, Reading, Writing
from tidemill.app.reads import Changes, Reads
from tidemill.app.script import Script, check_argv
from tidemill.app.watermark import Watermark
from tidemill.app.workflow import DeclaredNode, Workflow, check_holds, check_node, check_nodes, make_node
from tidemill.durations import BadDuration, parse_duration
from tidemill.errors import NotFound, UserError
from tidemill.frames.jdbc import Jdbc
from tidemill.lake.fileset.stored import SchemaPolicy, Storing
from tidemill.lake.inbox.inbox import After, InboxSpec, OnRewrite, rejects_of
from tidemill.lake.snapshot.guards import ColumnPolicy, Guards
from tidemill.lake.snapshot.snapshot import SnapshotSpec
from tidemill.lake.snapshot.version_retention import Retention
from tidemill.lake.window.carry import CARRY_KEYS
from tidemill.lake.window.side import SIDE_KEYS
from tidemill.names import DEFAULT_NAMESPACE, Namespace, check_name, nearest, one_of, qualified
from tidemill.run.records.declared import Declared
from tidemill.run.records.programs import Argument, ArgumentType, Code, ProgramKind, Value
from tidemill.run.records.workflow_spec import WorkflowSpec, in_order
from tidemill.run.step.acceptors import Acceptor
from tidemill.run.step.spans import DeclaredSpan, write_span
from tidemill.schedule.argument_sources import From
from tidemill.schedule.constraints import Concurrency, Constraint
from tidemill.schedule.specs import DEFAULT_GRACE, DEFAULT_TIMEOUT, BadSchedule, Misfire, OnTimeout, ScheduleSpec
from tidemill.schedule.time_triggers import Every
from tidemill.schedule.triggers import Trigger
from tidemill.secret_places import Secret
from tidemill.shapes.column_types import check_types
from tidemill.shapes.expectation import Arrivals, BadExpectation
from tidemill.shapes.formats import BadRows, FileFormat, RawFormat, Unknown, columns_of
from tidemill.shapes.keys import KeySchema
from tidemill.sizes import parse_bytes, parse_share

if TYPE_CHECKING:
    from tidemill.sql.window_program import WindowProgram

_C = TypeVar("_C", bound=Code)
_TYPES: Final[Mapping[type, ArgumentType]] = {
    str: ArgumentType.STRING,
    int: ArgumentType.INT,
    float: ArgumentType.FLOAT,
    bool: ArgumentType.BOOL,
    Secret: ArgumentType.SECRET,
}


class App:
    """Data sets, programs and schedules that belong together and are deployed together.

    Names are unique within the app, those of data sets within its namespace.
    """

    def __init__(self, name: str, *, namespace: str = DEFAULT_NAMESPACE, files: Sequence[str] = ()) -> None:
        """Declare an app. `files` are patterns of data files (`sql/*.sql`), relative to the folder of the app file.

        A deployment packs these files with the code. Programs find them by `Path(__file__).parent / "sql/x.sql"`.
        """
        self.name = check_name("app", name)
        self.namespace = Namespace(check_name("namespace", namespace))
        self.files = _check_patterns(name, files)
        self.folder = Path()
        """The folder of the app file, or of its unpacked bundle. The loader of the app file sets it."""
        self.datasets: dict[str, DeclaredInbox | DeclaredFileset | DeclaredSnapshot] = {}
        self.programs: dict[str, DeclaredProgram] = {}
        self.schedules: dict[str, DeclaredSchedule] = {}
        self.alerts: dict[str, AlertSpec] = {}

    def inbox(  # noqa: PLR0913  # options by keyword, each with a default
        self,
        name: str,
        location: str,
        *,
        format: str = "csv",  # noqa: A002  # the word users know from Spark's readers
        schema: str | None = None,
        options: Mapping[str, str] | None = None,
        line_end: bool = True,
        unknown: str = "fail",
        bad_rows: str = "file",
        max_rejects: str = "1%",
        ignore: Sequence[str] = (),
        on_rewrite: str = "reprocess",
        attempts: int = 3,
        retry_after: str | timedelta = "1m",
        max_files: int | None = None,
        max_bytes: str | None = None,
        list_every: str | timedelta = "1s",
        min_age: str | timedelta = "0s",
        settle: str | timedelta = "1s",
        done_flag: str | None = None,
        lookback: str | timedelta = "1h",
        reconcile_every: str | timedelta | None = "6h",
        after: str = "keep",
        archive: str | None = None,
        forget_after: str | timedelta = "90d",
        expect: Arrivals | None = None,
    ) -> DeclaredInbox:
        """Watch the folder at `location` (relative to the project) and give each file to processing exactly once.

        `schema` is a DDL text (`"id INT, name STRING"`), `options` are Spark's for the format; `line_end` counts text
        without an end of line at its end as cut. A file with fields that the schema does not name is bad
        (`unknown="fail"`), or the fields are dropped (`"ignore"`), or kept as JSON in a column `_rescued` (`"rescue"`),
        or are columns of the run that reads them (`"evolve"`), which `run show` lists.
        A file with bad rows is bad (`bad_rows="file"`), or its bad rows go to the file set `<name>_rejects`
        (`"reject"`), unless more than `max_rejects` of its rows are bad.

        `ignore` adds patterns of names to those always ignored (`*_current`, `*.tmp`, `*._COPYING_`, `_*`, `.*`). A
        file written again under its name is processed again (`on_rewrite="reprocess"`), not at all (`ignore`), or
        quarantined (`error`). A file that fails is tried `attempts` times, first after `retry_after`, then twice that,
        and then quarantined. One run takes at most `max_files` and `max_bytes`. The folder is listed every
        `list_every`; while the file system tells of all new files, at each such event, and else once a minute.

        A file is left to its writer until it is `min_age` old, two looks `settle` apart have found it unchanged, and
        the file named by `done_flag` (`"{name}.done"`, `"{stem}.ok"`) lies beside it. Where a store lists from a name
        on, listings go back to where they had come `lookback` ago, and over all of it every `reconcile_every` (None:
        never).

        A file that was processed stays where it is, or (`after="delete"`) is deleted, or (`after="archive"`) moved to
        the same name below `archive`, a location outside of this one; unless it was written again meanwhile. What was
        processed stays known until its name has been missing for `forget_after`.

        `expect` is the arrival expectation: the times by which a new file is found.
        """
        raw = RawFormat(
            _one_of(FileFormat, format, f"format of inbox {name}"),
            schema,
            dict(options or {}),
            line_end,
            _one_of(Unknown, unknown, f"unknown of inbox {name}"),
            _one_of(BadRows, bad_rows, f"bad_rows of inbox {name}"),
            parse_share(max_rejects),
        )
        raw.check_values()
        check_types(raw)
        spec = InboxSpec(
            format=raw,
            ignore=tuple(ignore),
            on_rewrite=_one_of(OnRewrite, on_rewrite, f"on_rewrite of inbox {name}"),
            attempts=attempts,
            retry_after=parse_duration(retry_after),
            max_files=max_files,
            max_bytes=None if max_bytes is None else parse_bytes(max_bytes),
            list_every=parse_duration(list_every),
            min_age=parse_duration(min_age),
            settle=parse_duration(settle),
            done_flag=done_flag,
            lookback=parse_duration(lookback),
            reconcile_every=None if reconcile_every is None else parse_duration(reconcile_every),
            after=_one_of(After, after, f"after of inbox {name}"),
            archive=archive,
            forget_after=parse_duration(forget_after),
            expect=_check_expect(name, expect),
        )
        if raw.bad_rows is BadRows.REJECT:
            self.fileset(rejects_of(name), keys={"day": "date"})
        return self.add_dataset(DeclaredInbox(self._qualified(name), name, location, spec))

    def fileset(  # noqa: PLR0913  # options by keyword, each with a default
        self,
        name: str,
        *,
        keys: Mapping[str, str],
        location: str | None = None,
        format: str = "parquet",  # noqa: A002  # the word users know from Spark's readers
        checksum: bool = False,
        schema: str = "fail",
        keep_superseded: str | timedelta | None = None,
        retention: str | timedelta | None = None,
        compact_every: str | timedelta | None = None,
        watermark: Watermark | None = None,
        expect: Arrivals | None = None,
        columns: str | None = None,
        monitor_every: str | timedelta | None = None,
    ) -> DeclaredFileset:
        """Declare a file set whose partitions have the typed `keys` (`{"day": "date", "hour": "int"}`).

        Types: string, int, long, date, timestamp. Its files lie at `location`, or below the site's `data` folder, in
        `format`: parquet, orc, csv, json or text (one string column). With `checksum` each read compares the whole
        content of the files with what was written; Parquet's pages have checksums anyway. Rows with other columns than
        those of the first commit are refused (`schema="fail"`), or add columns and widen types (`"evolve"`).
        Replaced files are kept for `keep_superseded`, else as the site says (a week); partitions whose time (their
        first key of type date or timestamp) is older than `retention` are dropped. With a `watermark` it is known up to
        which time it is complete, for windows and triggers.

        `compact_every` declares a program and a schedule `compact_<name>`: each run puts the rows of partitions with
        many small files into fewer files.

        `expect` is the arrival expectation: the times by which a commit publishes partitions.

        `columns` declares the columns beside the keys (`"id bigint, ts timestamp"`). Without it the first commit
        brings the columns. Later declarations may add columns with `schema="evolve"`.

        `monitor_every` is for a `location` that other programs write, in Hive's layout: the location is listed that
        often, and what has appeared, changed or vanished there is published. Formats csv and json need `columns`.
        """
        key_schema, file_format = KeySchema.of(keys), _one_of(FileFormat, format, f"format of file set {name}")
        if monitor_every is not None and columns is None and file_format in {FileFormat.CSV, FileFormat.JSON}:
            why = f"needs columns='id bigint, …': files of {file_format} do not say the types of their columns"
            raise BadDeclaration(f"file set {name!r}", why)
        storing = Storing(
            key_schema,
            file_format,
            checksum,
            _one_of(SchemaPolicy, schema, f"schema of file set {name}"),
            None if keep_superseded is None else parse_duration(keep_superseded),
            None if retention is None else parse_duration(retention),
            _check_expect(name, expect),
            columns=None if columns is None else _read_columns(name, columns, key_schema, file_format),
            monitor_every=None if monitor_every is None else parse_duration(monitor_every),
        )
        monitored = monitor_every is not None
        declared = None if watermark is None else watermark.check(name, storing.keys, monitored=monitored)
        fileset = self.add_dataset(DeclaredFileset(self._qualified(name), name, location, storing, declared))
        if compact_every is not None:
            code = Compaction(f"compact_{name}", fileset.qualified_name)
            self.add_program(ProgramKind.SPARK, [], [fileset], 0, "10s", None, True, {})(code)
            self.schedule(code.name, code.name, trigger=Every(compact_every))
        return fileset

    def snapshot(  # noqa: PLR0913  # options by keyword, each with a default
        self,
        name: str,
        *,
        key: Sequence[str] = (),
        ttl: str | timedelta | None = "7d",
        min_versions: int = 1,
        max_versions: int | None = None,
        allow_empty: bool = False,
        max_drop: float | None = 0.5,
        max_growth: float | None = None,
        schema: str = "allow",
        check_key: bool = False,
        checks: Mapping[str, str] | None = None,
        location: str | None = None,
        expect: Arrivals | None = None,
    ) -> DeclaredSnapshot:
        """Declare a snapshot: a mirror of a source, replaced whole by each refresh, of which older versions are kept.

        `key` names the columns that tell its rows apart. A version older than `ttl` goes, but never the current one,
        and never below `min_versions`; above `max_versions` the oldest go before their time. A refresh is refused, and
        the old version stays, when it has no rows (unless `allow_empty`), lost more than the share `max_drop` of them,
        or grew by more than `max_growth`; when it has other columns (`schema` "fail"; "add" lets new ones come); when
        `check_key` is set and a key is null or doubled; when a row breaks one of `checks`, conditions in SQL by name.

        `expect` is the arrival expectation: the times by which a refresh publishes a version.
        """
        spec = SnapshotSpec(
            tuple(key),
            Retention(None if ttl is None else parse_duration(ttl), min_versions, max_versions),
            Guards(
                allow_empty,
                max_drop,
                max_growth,
                _one_of(ColumnPolicy, schema, f"schema of snapshot {name}"),
                check_key,
                dict(checks or {}),
            ),
            _check_expect(name, expect),
        )
        return self.add_dataset(DeclaredSnapshot(self._qualified(name), name, location, spec))

    def spark(
        self,
        *,
        reads: Iterable[DeclaredInbox | DeclaredFileset | DeclaredSnapshot | Reads | Changes | str] = (),
        writes: Iterable[DeclaredFileset | DeclaredSnapshot | DeclaredSpan | str] = (),
        retries: int = 0,
        backoff: str | timedelta = "10s",
        run_on_empty: bool | None = None,
        deliver_own: bool = True,
        arguments: Mapping[str, type | Value | Secret] | None = None,
        spark_profile: str = "",
    ) -> Callable[[_C], _C]:
        """Register the decorated function as a program that is called with `(run, spark)`.

        `reads` are the data sets it consumes (as `Reads` on terms of its own; of a snapshot as `Changes` only what has
        changed), `writes` those it may publish to (by name, if another app's). A watermark does not pass the times
        of `clicks.span(start, end)` among them while a run is open; they may be the `$name` of arguments.
        A failed attempt is repeated `retries` times, after `backoff`, then twice that.
        `arguments` are `{"name": default}` or `{"name": type}`. A `Secret` names the place of a secret.
        `run_on_empty` says whether it is called when nothing waits; left out, it is when a time trigger (`Every`) fed
        its job, so that an hour without data is reported too. `deliver_own=False` keeps it from consuming what it
        publishes. `spark_profile` names the settings `[spark.profiles.NAME]` of tidemill.toml with which its Spark
        runs; left out, those of `[spark]`.
        """
        return self.add_program(
            ProgramKind.SPARK,
            reads,
            writes,
            retries,
            backoff,
            run_on_empty,
            deliver_own,
            arguments or {},
            spark_profile=spark_profile,
        )

    def python(
        self,
        *,
        reads: Iterable[DeclaredInbox | DeclaredFileset | DeclaredSnapshot | Reads | Changes | str] = (),
        writes: Iterable[DeclaredFileset | DeclaredSnapshot | DeclaredSpan | str] = (),
        retries: int = 0,
        backoff: str | timedelta = "10s",
        run_on_empty: bool | None = None,
        deliver_own: bool = True,
        arguments: Mapping[str, type | Value | Secret] | None = None,
    ) -> Callable[[_C], _C]:
        """Register the decorated function as a program without Spark, called with `(run)`; see `spark`."""
        return self.add_program(
            ProgramKind.PYTHON, reads, writes, retries, backoff, run_on_empty, deliver_own, arguments or {}
        )

    def script(  # noqa: PLR0913  # options by keyword, each with a default
        self,
        path: str,
        *,
        name: str | None = None,
        argv: Sequence[str] = (),
        reads: Iterable[DeclaredInbox | DeclaredFileset | DeclaredSnapshot | Reads | Changes | str] = (),
        writes: Iterable[DeclaredFileset | DeclaredSnapshot | DeclaredSpan | str] = (),
        retries: int = 0,
        backoff: str | timedelta = "10s",
        run_on_empty: bool | None = None,
        deliver_own: bool = True,
        arguments: Mapping[str, type | Value | Secret] | None = None,
        spark_profile: str = "",
    ) -> None:
        """Declare a PySpark file as a program, unchanged: it is executed as `spark-submit` executes it.

        `path` is relative to the folder of the app file (`"jobs/etl.py"`). The deployment packs the file, and modules
        beside it that it imports. The program has the `name` of the file without `.py`, unless another is given.
        `argv` are the words of its command line: `["--day", "$day"]`, where `$day` stands for the argument `day`.
        `SparkSession.builder.getOrCreate()` gives the session of the run, and `tidemill.current_run()` the run. What
        the file itself writes to a path is no part of the transaction. The other options are as in `spark`.
        """
        self._add_files(path)
        program = check_name("program", PurePosixPath(path).stem if name is None else name)
        declared = [_argument(one, given) for one, given in (arguments or {}).items()]
        words = check_argv(f"script {program!r}", argv, declared)
        declare = self.spark(
            reads=reads,
            writes=writes,
            retries=retries,
            backoff=backoff,
            run_on_empty=run_on_empty,
            deliver_own=deliver_own,
            arguments=arguments,
            spark_profile=spark_profile,
        )
        declare(Script(program, path, words, lambda: self.folder))

    def _add_files(self, path: str) -> None:
        """Have a deployment pack a script with the code."""
        if not path.endswith(".py") or any(sign in path for sign in "*?["):
            raise BadDeclaration(f"script {path!r}", "is no Python file: name one below the folder of the app file")
        if not _is_below(path):
            why = "is not below the folder of the app file: move it there, and name it relative to that folder"
            raise BadDeclaration(f"script {path!r}", why)
        if path not in self.files:
            self.files = (*self.files, path)

    def pipeline(
        self,
        name: str,
        *,
        source: Jdbc | DeclaredInbox | DeclaredFileset | DeclaredSnapshot | Code,
        sink: DeclaredSnapshot | DeclaredFileset,
        transform: str | None = None,
        retries: int = 0,
        backoff: str | timedelta = "10s",
        spark_profile: str = "",
    ) -> None:
        """Declare a program without code: what `source` gives goes to `sink`, by way of the SQL `transform` if any.

        `source` is a database (`Jdbc`), a function that gives a data frame for `(run, spark)`, or a data set;
        `transform` reads it as `source` (`"SELECT id, name FROM source"`). A snapshot is refreshed by all that the
        source has, an inbox alone gives only its new files. To a file set what is new in an inbox or file set is
        appended; of any other source the partitions that it has rows of are overwritten. `spark_profile` is as in
        `spark`.
        """
        whole = isinstance(sink, DeclaredSnapshot) and isinstance(source, DeclaredFileset)
        new = isinstance(source, DeclaredInbox | DeclaredFileset) and not whole
        if source == sink:
            raise BadDeclaration(f"pipeline {name!r}", f"has {sink.qualified_name} as its source and its sink")
        dataset = source if isinstance(source, DeclaredInbox | DeclaredFileset | DeclaredSnapshot) else None
        if dataset is None and not isinstance(source, Jdbc) and not callable(source):
            why = f"has the source {source!r}: give a Jdbc, a declared data set, or a function of (run, spark)"
            raise BadDeclaration(f"pipeline {name!r}", why)
        written = Writing.APPEND if new else Writing.OVERWRITE
        pipeline = Pipeline(
            name,
            source.qualified_name if isinstance(source, DeclaredInbox | DeclaredFileset | DeclaredSnapshot) else source,
            Reading.WHOLE if whole else Reading.CONSUME,
            transform,
            sink.qualified_name,
            Writing.REPLACE if isinstance(sink, DeclaredSnapshot) else written,
        )
        reads = [dataset] if dataset is not None and not whole else []
        self.add_program(
            ProgramKind.SPARK, reads, [sink], retries, backoff, None, True, {}, spark_profile=spark_profile
        )(pipeline)

    def worker(  # noqa: PLR0913  # options by keyword, each with a default
        self,
        *,
        reads: Iterable[DeclaredFileset | DeclaredSnapshot | Reads | str],
        writes: Iterable[DeclaredFileset | DeclaredSnapshot | DeclaredSpan | str] = (),
        instances: int = 1,
        spark: bool = False,
        retries: int = 0,
        backoff: str | timedelta = "10s",
        deliver_own: bool = True,
        arguments: Mapping[str, Value | Secret] | None = None,
        spark_profile: str = "",
    ) -> Callable[[_C], _C]:
        """Register the decorated function as a worker: it runs until it is stopped, and needs no schedule.

        It is called with `(run)`, a `Worker`, or with `(run, spark)`; `while run.take(): …; run.commit()` makes each
        take and commit a transaction of its own. Runners keep `instances` of it alive, beside their slots; 0 stops it.
        One that fails is tried again as any program, then after `backoff`, then twice that, up to an hour; one that
        returns is called again after `backoff`. `tidemill run kill` has one replaced, with new code if there is some.
        `spark_profile` is as in `spark`, for a worker with Spark.
        """
        kind = ProgramKind.SPARK_WORKER if spark else ProgramKind.WORKER
        return self.add_worker(
            kind, reads, writes, instances, retries, backoff, deliver_own, arguments or {}, spark_profile=spark_profile
        )

    def add_worker(  # noqa: PLR0913  # the options of a program
        self,
        kind: ProgramKind,
        reads: Iterable[DeclaredInbox | DeclaredFileset | DeclaredSnapshot | Reads | Changes | str],
        writes: Iterable[DeclaredFileset | DeclaredSnapshot | DeclaredSpan | str],
        instances: int,
        retries: int,
        backoff: str | timedelta,
        deliver_own: bool,  # noqa: FBT001  # as below
        arguments: Mapping[str, type | Value | Secret],
        *,
        spark_profile: str = "",
    ) -> Callable[[_C], _C]:
        """Return the decorator that registers code as a worker."""
        if isinstance(instances, bool) or not isinstance(instances, int) or instances < 0:
            raise BadDeclaration("a worker", f"has {instances!r} instances: say how many, 0 to stop it")

        def register(code: _C) -> _C:
            self.add_program(
                kind, reads, writes, retries, backoff, None, deliver_own, arguments, spark_profile=spark_profile
            )(code)
            declared = self.programs[code.__name__]
            for argument in declared.arguments:
                if argument.default is None:
                    why = f"needs the argument {argument.name!r}: no caller passes it, so give its value here"
                    raise BadDeclaration(f"worker {declared.name!r}", why)
            self.programs[declared.name] = replace(declared, instances=instances)
            return code

        return register

    def workflow(
        self,
        name: str,
        nodes: Sequence[DeclaredNode],
        *,
        holds: Iterable[DeclaredInbox | DeclaredFileset | Reads | str] = (),
        arguments: Mapping[str, type | Value | Secret] | None = None,
        resume_within: str | timedelta = "24h",
    ) -> Workflow:
        """Declare a program that runs other programs of the app as its `nodes`, each in a transaction of its own.

        `[tm.Node(fetch), tm.Node(process, after=[fetch])]`: a node starts when the nodes before it have ended.
        The workflow has completed when each node has completed or was skipped. It has failed when a node has failed and
        no other node can go on; `tidemill run retry` then goes on with the nodes that have not completed.

        `holds` names inboxes and file sets whose claims belong to the workflow. The first node that reads one of them
        takes of all of them. Each later node that reads them gets the same. The commit of the last such node completes
        the claims. A failed workflow keeps its claims for `resume_within`, and then returns them. No node may write
        what the workflow holds.
        `arguments` are as in `spark`.
        """
        check_nodes(name, nodes)
        ordered = in_order(
            [
                make_node(self._program_name(node.program), tuple(self._program_name(one) for one in node.after), node)
                for node in nodes
            ]
        )
        spec = WorkflowSpec(ordered, parse_duration(resume_within))
        return self.add_workflow(name, spec, holds, arguments or {})

    def add_workflow(
        self,
        name: str,
        spec: WorkflowSpec,
        holds: Iterable[DeclaredInbox | DeclaredFileset | Reads | Changes | str],
        arguments: Mapping[str, type | Value | Secret],
    ) -> Workflow:
        """Add a workflow, and have its nodes get what it holds."""
        held = check_holds(name, [one if isinstance(one, Reads | Changes) else Reads(one) for one in holds])
        held_names = [self._name_of(one.dataset) for one in held]
        _refuse_twice(f"workflow {name!r}", "holds", held_names)
        names = set(held_names)
        of_workflow = tuple(_argument(one, given) for one, given in arguments.items())
        nodes = []
        for node in spec.nodes:
            self.find_program(node.name)
            program = self.programs[node.name]
            check_node(name, program, node, of_workflow)
            if own := names.intersection(program.writes):
                why = f"has the node {node.name!r}, which writes {min(own)}: the workflow would start itself for ever"
                raise BadDeclaration(f"workflow {name!r}", f"holds {min(own)} and {why}")
            shared = tuple(one for one in program.reads if one in names)
            self._hold(name, program, shared)
            nodes.append(replace(node, held=shared))
        if unread := names.difference(*(self.programs[node.name].reads for node in nodes)):
            raise BadDeclaration(f"workflow {name!r}", f"holds {min(unread)}, which none of its nodes reads")
        code = Workflow(name, qualified(self.namespace, self.name, name))
        self.add_program(
            ProgramKind.WORKFLOW,
            reads=held,
            writes=[],
            retries=0,
            backoff="10s",
            run_on_empty=None,
            deliver_own=True,
            arguments=arguments,
        )(code)
        self.programs[name] = replace(self.programs[name], workflow=replace(spec, nodes=tuple(nodes)))
        return code

    def _hold(self, workflow: str, program: DeclaredProgram, shared: tuple[str, ...]) -> None:
        """Have a node get data sets from its workflows."""
        if terms := sorted(program.terms.keys() & set(shared)):
            why = f"has the node {program.name!r}, which reads {terms[0]} on terms: give them in holds= of the workflow"
            raise BadDeclaration(f"workflow {workflow!r}", why)
        others = [
            one.name
            for one in self.programs.values()
            if one.workflow is not None and program.name in {node.name for node in one.workflow.nodes}
        ]
        if others and program.held != shared:
            why = f"has the node {program.name!r}, of which the workflow {others[0]!r} holds other data sets"
            raise BadDeclaration(f"workflow {workflow!r}", why)
        self.programs[program.name] = replace(program, held=shared)

    def window_sql(
        self,
        name: str,
        statement: str,
        *,
        retries: int = 0,
        backoff: str | timedelta = "10s",
        spark_profile: str = "",
    ) -> None:
        """Declare a program without code: windows of file sets with a watermark, into another file set.

        `INSERT INTO hourly SELECT window_start, …, to_date(window_start) AS day FROM TABLE(TUMBLE(TABLE clicks,
        DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end`, or `HOP(TABLE clicks, DESCRIPTOR(ts),
        <slide>, <size>)`, or `CUMULATE(TABLE clicks, DESCRIPTOR(ts), <step>, <size>)`, or `SESSION(TABLE clicks
        PARTITION BY visitor, DESCRIPTOR(ts), <gap>)`. FROM may join windows, or two tables by a range of their times.
        Each run computes the windows that the watermark has closed, and again those that late partitions touch. The
        columns must include the keys of the output. `BadStatement` for what cannot be windowed. `spark_profile` is as
        in `spark`.
        """
        from tidemill.sql.window_program import WindowProgram

        try:
            code = WindowProgram(check_name("program", name), statement, self.namespace)
        except UserError as error:
            raise BadDeclaration(f"window program {name!r}", f"is refused: {error}") from error
        self.add_windows(code, ProgramKind.SPARK, retries, parse_duration(backoff), spark_profile)

    def add_windows(
        self,
        code: WindowProgram,
        kind: ProgramKind,
        retries: int = 0,
        backoff: timedelta = timedelta(0),
        spark_profile: str = "",
    ) -> None:
        """Register the code of a window program."""
        name = code.__name__
        if name in self.programs:
            raise BadDeclaration(f"program {name!r}", "is declared twice")
        own = {**dict.fromkeys(code.side_names, SIDE_KEYS), **dict.fromkeys(filter(None, code.carry_names), CARRY_KEYS)}
        for dataset, keys in own.items():
            if dataset not in self.datasets:
                self.fileset(dataset, keys=keys, schema=SchemaPolicy.EVOLVE)
        self.programs[name] = DeclaredProgram(
            name,
            kind,
            code,
            code.look_ups,
            code.writes,
            retries,
            backoff,
            None,
            True,
            (),
            windows=code,
            spark_profile=_check_profile(name, kind, spark_profile),
        )

    def schedule(  # noqa: PLR0913  # options by keyword, each with a default
        self,
        name: str,
        program: str | Code,
        *,
        trigger: Trigger,
        constraints: Sequence[Constraint] = (Concurrency(1),),
        arguments: Mapping[str, Value | Secret | From] | None = None,
        description: str = "",
        timeout: str | timedelta = DEFAULT_TIMEOUT,
        on_timeout: str = "cancel",
        priority: int = 0,
        deadline: str | timedelta | None = None,
        trigger_timeout: str | timedelta | None = None,
        misfire: str = Misfire.ONCE,
        grace: str | timedelta = DEFAULT_GRACE,
        suspended: bool | None = None,
    ) -> None:
        """Start `program` whenever `trigger` occurs and all `constraints` hold.

        An argument is a value, or `From("clicks.partition.day")`, which takes it from what started the run.
        Without `constraints`, one run of the program is under way at a time. `[Concurrency(4)]` allows four, and an
        empty list any number.
        A job whose constraints do not hold within `timeout` of its trigger is dropped (`cancel`) or started (`force`).
        A job whose trigger is not satisfied within `trigger_timeout` of its first message is dropped, and the trigger
        counts from zero. Without `trigger_timeout` the job waits however long.
        Of two that want one slot the higher `priority` goes first; past its `deadline` a job goes before all.
        What a `Cron` has missed is one run (`misfire="once"`), a run each in order (`"all"`), or left out where older
        than `grace` (`"skip"`). A new schedule listens at once unless `suspended`. Without `suspended`, the setting
        `schedules.suspended` says so.
        """
        spec = ScheduleSpec(
            trigger=trigger,
            constraints=_constraints(constraints),
            arguments={} if arguments is None else arguments,
            description=description,
            timeout=_duration("timeout", timeout),
            on_timeout=_one_of(OnTimeout, on_timeout, f"on_timeout of schedule {name}"),
            priority=priority,
            deadline=None if deadline is None else _duration("deadline", deadline),
            trigger_timeout=None if trigger_timeout is None else _duration("trigger_timeout", trigger_timeout),
            misfire=_one_of(Misfire, misfire, f"misfire of schedule {name}"),
            grace=_duration("grace", grace),
        )
        self.add_schedule(DeclaredSchedule(name, self._program_name(program), spec, suspended))

    def add_schedule(self, declared: DeclaredSchedule) -> None:
        """Add a schedule of a program of the app; `BadDeclaration` for a name that another schedule has."""
        name = check_name("schedule", declared.name)
        if name in self.schedules:
            raise BadDeclaration(f"schedule {name!r}", "is declared twice")
        self.schedules[name] = replace(declared, program=self._program_name(declared.program))

    def alert(
        self,
        name: str,
        rule: Rule,
        *,
        to: Target | Sequence[Target] = (),
        repeat: str | timedelta | None = None,
        description: str = "",
    ) -> None:
        """Open an alert while the state of `rule` holds, and notify the targets `to` of its begin and its end.

        With `repeat` they are notified again after that time, until a person acknowledges the alert or it ends. Without
        targets the alert is shown, and nothing is sent. `description` is for readers. `BadRule`.
        """
        targets = (to,) if isinstance(to, Target) else tuple(to)
        again = None if repeat is None else _duration("repeat", repeat)
        self.add_alert(name, AlertSpec(rule, targets, again, description))

    def add_alert(self, name: str, spec: AlertSpec) -> None:
        """Add an alert; `BadDeclaration` for a name that another alert has."""
        check_name("alert rule", name)
        if name in self.alerts:
            raise BadDeclaration(f"alert {name!r}", "is declared twice")
        self.alerts[name] = spec

    def find_program(self, name: str) -> Code:
        """The code of program `name`: how a driver finds it again. `NotFound` when the app declares none."""
        if name not in self.programs:
            raise NotFound("program", qualified(self.namespace, self.name, name), nearest(name, self.programs))
        return self.programs[name].code

    def find_acceptors(self, program: str) -> Mapping[str, Acceptor]:
        """The acceptors of a program, by the qualified names of what they judge; for its driver."""
        terms = self.programs[program].terms if program in self.programs else {}
        partitions = {name: reads for name, reads in terms.items() if isinstance(reads, Reads)}
        return {name: reads.accept for name, reads in partitions.items() if reads.accept is not None}

    def add_program(  # noqa: PLR0913  # the options of a program
        self,
        kind: ProgramKind,
        reads: Iterable[DeclaredInbox | DeclaredFileset | DeclaredSnapshot | Reads | Changes | str],
        writes: Iterable[DeclaredFileset | DeclaredSnapshot | DeclaredSpan | str],
        retries: int,
        backoff: str | timedelta,
        run_on_empty: bool | None,  # noqa: FBT001  # as above
        deliver_own: bool,  # noqa: FBT001  # as above
        arguments: Mapping[str, type | Value | Secret],
        *,
        spark_profile: str = "",
    ) -> Callable[[_C], _C]:
        """Return the decorator that registers code as a program, by the checked options of `spark` and the others."""
        given = [one if isinstance(one, Reads | Changes) else Reads(one) for one in reads]
        read_names = tuple(self._name_of(one.dataset) for one in given)
        terms = {name: one for name, one in zip(read_names, given, strict=True) if one != Reads(one.dataset)}
        writes = tuple(writes)
        written = tuple(map(self._name_of, writes))
        spans = tuple(write_span(one) for one in writes if isinstance(one, DeclaredSpan))
        delay = parse_duration(backoff)
        declared = tuple(_argument(name, given) for name, given in arguments.items())

        def register(code: _C) -> _C:
            name = check_name("program", code.__name__)
            if name in self.programs:
                raise BadDeclaration(f"program {name!r}", "is declared twice")
            _refuse_twice(f"program {name!r}", "reads", read_names)
            if spans and kind.is_worker:
                why = "is a worker, which publishes again and again: a span is for one transaction"
                raise BadDeclaration(f"program {name!r}", why)
            if spans and len({*written}) < len(written):
                raise BadDeclaration(f"program {name!r}", "names a data set twice in writes=: one span is for it")
            both = sorted(set(read_names) & set(written))
            if both and deliver_own:
                why = (
                    f"reads and writes {both[0]}: say deliver_own=False, or it would consume what it publishes for ever"
                )
                raise BadDeclaration(f"program {name!r}", why)
            if isinstance(code, FunctionType):
                # By its name a trigger finds the program: `tm.RunEnded(ingest)`.
                vars(code)["qualified_name"] = qualified(self.namespace, self.name, name)
            self.programs[name] = DeclaredProgram(
                name,
                kind,
                code,
                read_names,
                written,
                retries,
                delay,
                run_on_empty,
                deliver_own,
                declared,
                terms,
                spans,
                spark_profile=_check_profile(name, kind, spark_profile),
            )
            return code

        return register

    def _program_name(self, program: str | Code) -> str:
        if isinstance(program, str):
            self.find_program(program)
            name = program
        else:
            names = [declared.name for declared in self.programs.values() if declared.code is program]
            if not names:
                why = "is not registered: decorate it with @app.spark or @app.python"
                raise BadDeclaration(f"program {program!r}", why)
            name = names[0]
        if self.programs[name].kind.is_worker:
            raise BadDeclaration(f"program {name!r}", "is a worker, which runs all the time: it needs no schedule")
        return name

    def _name_of(self, dataset: Declared | DeclaredSpan | str) -> str:
        if not isinstance(dataset, str):
            return dataset.qualified_name
        return dataset if "." in dataset else self._qualified(dataset)

    def _qualified(self, name: str) -> str:
        return qualified(self.namespace, check_name("data set", name))

    def add_dataset(self, dataset: _D) -> _D:
        """Add a declared data set; `BadDeclaration` for a name that another one has."""
        if dataset.name in self.datasets:
            raise BadDeclaration(f"data set {dataset.name!r}", "is declared twice")
        self.datasets[dataset.name] = dataset
        return dataset


_D = TypeVar("_D", DeclaredInbox, DeclaredFileset, DeclaredSnapshot)
_E = TypeVar("_E", bound=StrEnum)


def _refuse_twice(subject: str, option: str, names: Sequence[str]) -> None:
    """Raise `BadDeclaration` for a data set that an option names twice: only one of the two would have its terms."""
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise BadDeclaration(subject, f"names {twice[0]} twice in {option}=: name {twice[0]} once, with its terms")


def _check_patterns(app: str, files: Sequence[str]) -> tuple[str, ...]:
    if isinstance(files, str):
        raise BadDeclaration(f"app {app!r}", f"has files={files!r}: write a list, files=[{files!r}]")
    for pattern in files:
        if not isinstance(pattern, str) or not _is_below(pattern):
            why = "name files below the folder of the app file, such as 'sql/*.sql'"
            raise BadDeclaration(f"app {app!r}", f"has the pattern {pattern!r} in files: {why}")
    return tuple(files)


def _is_below(path: str) -> bool:
    """Return whether a path, or a pattern of paths, names files below the folder of the app file."""
    return not {"", ".", ".."}.intersection(path.split("/"))


def _check_profile(program: str, kind: ProgramKind, profile: str) -> str:
    if not profile:
        return ""
    if not kind.needs_spark:
        why = f"has the Spark profile {profile!r} and no Spark: declare it with Spark, or leave the profile out"
        raise BadDeclaration(f"program {program!r}", why)
    return check_name("Spark profile", profile)


def _check_expect(dataset: str, expect: object) -> Arrivals | None:
    if not isinstance(expect, Arrivals | None):
        raise BadExpectation("expect", f"{expect!r} of data set {dataset}", "write expect=tm.Arrivals(every='1d')")
    return expect


def _read_columns(fileset: str, given: str, keys: KeySchema, file_format: FileFormat) -> dict[str, str]:
    """Return the types of declared columns by name, as the declaration has them; `BadDeclaration` for unknown ones."""
    from tidemill.sql.ddl import read_types

    def refuse(why: str) -> BadDeclaration:
        return BadDeclaration(f"columns of file set {fileset!r}", f"are refused: {why}")

    pairs = columns_of(given)
    if not all(name and kind.strip() for name, kind in pairs):
        raise refuse(f"write 'id bigint, ts timestamp', not {given!r}")
    columns = {name: kind.strip() for name, kind in pairs}
    named = [name.lower() for name, _ in pairs] + [key.lower() for key in keys.names]
    if twice := [name for name in columns if named.count(name.lower()) > 1]:
        raise refuse(f"{twice[0]} stands there twice, or is a key: name each column once, without the keys")
    try:
        types = read_types(columns)
    except UserError as error:
        raise refuse(str(error)) from None
    if file_format is FileFormat.TEXT:
        raise refuse("text has one column, value: leave columns out")
    nested = next((name for name, kind in types.items() if not isinstance(kind, str)), None)
    if nested is not None and file_format is FileFormat.CSV:
        raise refuse(f"csv cannot hold the type of {nested}: use json, parquet or orc")
    return columns


def _constraints(given: object) -> tuple[Constraint, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadSchedule(f"constraints must be a list, such as [Concurrency(1)], not {given!r}")
    return tuple(given)


def _duration(field: str, given: str | timedelta) -> timedelta:
    try:
        return parse_duration(given)
    except BadDuration as error:
        raise BadSchedule(f"{field} is no duration: {error}") from None


def _one_of(options: type[_E], given: str, subject: str) -> _E:
    return one_of(options, given, lambda why: BadDeclaration(subject, why))


def _argument(name: str, given: type | Value | Secret) -> Argument:
    if isinstance(given, type):
        if given not in _TYPES:
            raise BadDeclaration(
                f"argument {name!r}", f"has the type {given.__name__}: use str, int, float, bool or Secret"
            )
        return Argument(name, _TYPES[given])
    if isinstance(given, Secret):
        return Argument(name, ArgumentType.SECRET, given.place)
    return Argument(name, _TYPES[type(given)], given)
