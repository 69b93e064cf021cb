"""SQL statements about tables, as `Mill` carries them out: each is one transaction, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tidemill.app.statements import NAME as STATEMENTS
from tidemill.catalog.db import Db, write_effects
from tidemill.errors import NotFound, StatementPlace, TidemillError, Unavailable, UserError
from tidemill.json_specs import write_plain
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset, DatasetKind, find_some
from tidemill.lake.fileset.columns import column_schema, to_fields
from tidemill.lake.fileset.expiry import release_files
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, find_schema, show_type
from tidemill.lake.fileset.monitor import declare_monitoring
from tidemill.lake.fileset.publish import declare_columns
from tidemill.lake.fileset.stored import HiveName, Storing
from tidemill.lake.hive_notes import WATERMARK_COLUMN, properties_of, put_note, write_note
from tidemill.lake.places import prepare_locations
from tidemill.lake.window.cascade import list_followed
from tidemill.lake.window.on_demand import source_of
from tidemill.lake.window.watermark import Reread, declare_watermark
from tidemill.lake.window.windows import list_inputs, list_states, set_definition
from tidemill.mill.plain import to_plain
from tidemill.mill.project import Noun, Project
from tidemill.mill.table_uses import find_uses
from tidemill.names import DatasetId, Namespace, check_name, nearest, qualified
from tidemill.shapes.custom_time import run_beside
from tidemill.shapes.formats import FileFormat, reason
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.watermark_spec import (
    COMPLETENESS,
    CONNECTION,
    ENABLE,
    INTERVAL,
    NO_MARKERS,
    NOT_OF_HIVE,
    UTC,
    ZONE,
    BadTableOption,
    WatermarkSpec,
    find_column_fault,
    has_no_zone,
    is_option,
    leave_out,
    own_name,
)
from tidemill.storage.files import BadLocation, StorageUnavailable
from tidemill.storage.locations import open_files
from tidemill.storage.metastore import HIVE_FORMATS, HiveTable, open_metastore
from tidemill.texts import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.sql.ddl import Alteration, CreateTable, DropTable, Select, Statement

_CONNECTORS: Final = ("filesystem", "hive")
_MOST_NAMESPACES: Final = 20
"""The most namespaces that an error names."""
_MOST_ROWS: Final = 1000
"""The most rows that a query shows."""
_FORMATS: Final = (FileFormat.PARQUET.value, *sorted(one.value for one in FileFormat if one is not FileFormat.PARQUET))


_CLAUSES: Final = {"format": "STORED"}
"""The first words of clauses that give an option in another way."""


class BadTable(UserError):
    """A statement that does not fit the table as it is."""

    code = "bad_table"
    hint = "correct the statement as the reason says"

    def __init__(self, table: str, why: str, about: str = "") -> None:
        self.table = table
        self.why = why
        self.about = about
        """The option or the column that is wrong; empty for the table."""
        self.options = re.findall(r"'([\w.-]+)'=", why)
        """The options that the reason names."""
        super().__init__(f"table {table}: {why}; nothing was changed")


_ALTERED: Final = ("options", "watermark_column", "watermark")
"""The fields of a table's spec that statements change."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a statement: one line, notices, and the rows of a query."""

    said: str
    notices: tuple[str, ...] = ()
    rows: tuple[Mapping[str, object], ...] = ()


def carry_out(project: Project, text: str) -> list[Done]:
    """Carry out the statements in `text`; see `Mill.sql`."""
    from tidemill.sql.ddl import read_statement
    from tidemill.sql.dialect import split_statements

    statements = [(read_statement(one), one) for one in split_statements(text)]
    return _Tables(project).carry_out_all(statements)


def _find_place(text: str, error: TidemillError) -> StatementPlace:
    """Return the place in a statement of the option, the column or the table that an error is about."""
    from tidemill.sql.dialect import find_after, find_option, find_word

    if isinstance(error, BadLocation | StorageUnavailable):
        return find_option(text, "path", own_name) or find_word(text, [])
    if isinstance(error, BadTable):
        # A column may have the name of an option, and that of its table.
        in_clauses = find_option(text, own_name(error.about), own_name) or find_after(text, "FOR", error.about)
        wanted = error.about, _CLAUSES.get(error.about, ""), *error.options, _local(error.table)
        return in_clauses or find_word(text, wanted, own_name)
    return find_word(text, [_local(str(getattr(error, "name", getattr(error, "dataset", ""))))])


def _local(name: str) -> str:
    return name.rpartition(".")[2]


class _Tables(Noun):
    """Tables of a project, which statements make and change."""

    def carry_out_all(self, statements: Sequence[tuple[Statement, str]]) -> list[Done]:
        """Carry out statements, each in a transaction of its own, but those that an earlier try of the request did.

        Beside each statement is its text, in which an error names the place of what is wrong.
        """
        from tidemill.sql.ddl import SetZone

        self._done = [Done(one["said"], tuple(one["notices"]), tuple(one["rows"])) for one in self._part or ()]
        self._zone = self._config.time_zone
        with ExitStack() as self._ending:
            for number, (statement, text) in enumerate(statements):
                if isinstance(statement, SetZone):
                    self._zone = statement.zone
                if number < len(self._done):
                    continue
                try:
                    self._done.append(self.carry_out(statement))
                except (UserError, StorageUnavailable) as error:
                    error.put_at(_find_place(text, error))
                    raise
        return self._done

    @cached_property
    def _spark(self) -> SparkSession:
        """Spark, which takes some 8 s to start, for all queries among the statements."""
        from tidemill.run.processes.session import spark_of_our_own

        return self._ending.enter_context(spark_of_our_own(self._world, self._config))

    def _write(self, block: Callable[[Db], Done]) -> Done:
        def kept(db: Db) -> Done:
            done = block(db)
            self._keep_done(db, done)
            return done

        return run_beside(self._catalog.write, kept)

    def _keep_line(self, db: Db, line: str) -> None:
        self._keep_done(db, Done(line))

    def _keep_done(self, db: Db, done: Done) -> None:
        write_effects(db, self._keep_part([to_plain(one) for one in (*self._done, done)]))

    def carry_out(self, statement: Statement) -> Done:
        from tidemill.mill.explaining import explain_statement
        from tidemill.mill.inserts import declare_insert, drop_program
        from tidemill.sql import ddl

        match statement:
            case ddl.CreateTable():
                done = self._create_table(statement)
            case ddl.DropTable():
                done = self._drop_table(statement)
            case ddl.Insert():
                done = Done(declare_insert(self._project, statement, self._keep_line))
            case ddl.DropProgram(name, if_exists):
                done = Done(drop_program(self._project, name, self._keep_line, if_exists=if_exists))
            case ddl.Select():
                done = self._select(statement)
            case ddl.Explain(explained):
                said, rows = run_beside(self._catalog.read, lambda db: explain_statement(db, self._project, explained))
                done = Done(said, (), tuple(rows))
            case ddl.ShowTables(namespace):
                done = self._catalog.read(lambda db: self._show_tables(db, namespace))
            case ddl.SetZone(zone):
                done = Done(f"the time zone of the statements that follow is {zone}")
            case ddl.Describe(name):
                done = self._catalog.read(lambda db: self._describe(db, name))
            case _:
                done = self._alter_table(statement)
        return done

    def _alter_table(self, statement: Alteration) -> Done:
        found = self._find_in_metastore(statement.name)
        noted: list[HiveName] = []

        def block(db: Db) -> Done:
            db.tick()
            try:
                dataset = self._project.dataset(db, statement.name)
            except NotFound:
                if found is None and statement.if_exists:
                    return Done(f"there is no table {statement.name}")
                if found is None:
                    raise
                dataset = self._declare(db, *found).dataset
            before = Fileset.of(dataset)
            spec = dict(before.dataset.spec)
            schema = find_schema(db, dataset.dataset_id)
            types = {} if schema is None else schema.types
            altered = _as_declared(statement, types)
            said, notices = _alter(dataset.qualified_name, spec, altered, adopted=self._is_adopted(dataset))
            if _takes_default_zone(spec, altered):
                self._record_zone(spec, types)
            reread, stopped = self._change(db, dataset, spec)
            was, now = ({name: one.get(name) for name in _ALTERED} for one in (dataset.spec, spec))
            self._project.note("sql", dataset.qualified_name, statement=said).between(was, now).write(db)
            told = [] if reread is None else [str(reread.limit(self._project.access.sees_name))]
            _note_in_hive(db, before, noted)
            return Done(said, (*told, *stopped, *notices))

        return self._write_noted(block, noted)

    def _write_noted(self, block: Callable[[Db], Done], noted: Sequence[HiveName]) -> Done:
        """Carry out `block`, and then write the properties of the tables that `block` has `noted`."""
        done = self._write(block)
        notices = [*done.notices]
        for hive in noted:
            try:
                write_note(self._catalog, hive)
            except Unavailable as error:  # also of the catalog: the statement has committed
                notices.append(f"{error}: `tidemill up` brings the properties of the table in Hive up to date later")
        return replace(done, notices=tuple(notices))

    def _find_in_metastore(self, name: str) -> tuple[Dataset, ColumnSchema] | None:
        """Return a table of the Hive metastore as a data set that is not declared yet, with its columns.

        None for a table that the catalog has, for one that the metastore lacks, and without a metastore.
        """
        from tidemill.sql.ddl import read_keys, read_types

        address = self._config.hive_metastore
        if not address or self._catalog.read(lambda db: self._knows(db, name)):
            return None
        namespace, (table,) = self._project.split("table", name, 1)
        # Properties of a table that was dropped here are not those of the new one.
        write_note(self._catalog, HiveName(address, namespace, table))
        with open_metastore(address) as metastore:
            found = metastore.find_table(namespace, table)
        if found is None:
            return None
        if why := _why_not(found):
            raise BadTable(qualified(namespace, table), f"Hive has it, but it cannot have a watermark: {why}")
        given = {one: text for one, text in found.properties.items() if is_option(one)}
        earlier = {one: text for one, text in found.properties.items() if one in given or one == WATERMARK_COLUMN}
        options = leave_out(given, monitored=True)[0]
        schema = column_schema(found.columns or to_fields(read_types(found.hive_columns)))
        storing = Storing(
            KeySchema.of(read_keys(found.keys)),
            FileFormat(found.file_format),
            columns=schema.types,
            options={own_name(one): text for one, text in options.items()},
            hive=HiveName(address, namespace, table, found.lines, earlier),
        )
        dataset_id, location = DatasetId(self._world.new_id("ds")), open_files(found.location, self._world).url
        spec = write_plain(storing)
        return Dataset(dataset_id, namespace, table, DatasetKind.FILESET, location, spec), schema

    def _knows(self, db: Db, name: str) -> bool:
        try:
            self._project.dataset(db, name)
        except NotFound:
            return False
        return True

    def _declare(self, db: Db, dataset: Dataset, schema: ColumnSchema) -> Fileset:
        made = Fileset.of(datasets.declare(db, dataset))
        declare_columns(db, made, schema, "statement")
        return made

    def _create_table(self, statement: CreateTable) -> Done:
        namespace, (name,) = self._project.split("table", statement.name, 1)
        adopted = "path" in statement.options
        location = statement.options.get("path", self._own_location(namespace, name))
        if not location:
            why = "its path is empty: name a folder or a URL, or leave the option out"
            raise BadTable(qualified(namespace, name), why, "path")
        if "://" not in location:
            location = str(self._config.folder / location)
        files = open_files(location, self._world)
        keys = KeySchema.of(statement.keys)
        wanted = FileFormat(_choose(qualified(namespace, name), statement.options, "format", _FORMATS))
        _choose(qualified(namespace, name), statement.options, "connector", _CONNECTORS)
        spec: dict[str, Any] = write_plain(Storing(keys, wanted))
        options, notices = leave_out(statement.options, monitored=adopted)
        spec["options"] = {key: value for key, value in options.items() if key not in CONNECTION}
        spec["columns"] = {column: show_type(kind) for column, kind in statement.columns.items()}
        if statement.watermark is not None:
            spec["watermark_column"] = statement.watermark
            self._record_zone(spec, spec["columns"])
        _derive(qualified(namespace, name), spec, adopted=adopted)
        if statement.watermark is not None:
            _check_time(qualified(namespace, name), spec, spec["columns"])
        dataset = Dataset(DatasetId(self._world.new_id("ds")), namespace, name, DatasetKind.FILESET, files.url, spec)

        def block(db: Db) -> Done:
            db.tick()
            if self._knows(db, statement.name):
                if statement.if_not_exists:
                    return Done(f"table {dataset.qualified_name} is there already")
                raise BadTable(dataset.qualified_name, "it exists already: write CREATE TABLE IF NOT EXISTS")
            made = self._declare(db, dataset, column_schema(to_fields(statement.columns)))
            declare_monitoring(db, made)
            declare_watermark(db, made, "statement")
            record = {"location": files.url, "columns": spec["columns"], "watermark": spec.get("watermark_column")}
            self._project.note("sql", made.qualified_name, statement="CREATE TABLE").between(None, record).write(db)
            return Done(f"table {dataset.qualified_name} is there", tuple(notices))

        prepare_locations(self._catalog, self._world, [files.url])
        return self._write(block)

    def _record_zone(self, spec: dict[str, Any], types: Mapping[str, str]) -> None:
        """Record the time zone of the session as that of a watermark whose options name no zone.

        A later session in another zone changes nothing then. A table without a zone in its options has UTC, and so has
        a column without a time zone. `types` are those of the columns, as far as they are known.
        """
        if self._zone != UTC and not has_no_zone(spec["watermark_column"], types):
            spec["options"] = {ZONE: self._zone, **spec["options"]}

    def _drop_table(self, statement: DropTable) -> Done:
        """Drop a table that nothing uses. Files of a table with a path of its own stay as they are.

        Other files are deleted as the files of replaced partitions are. A table of Hive stays there, with the
        properties that it had before.
        """
        noted: list[HiveName] = []
        return self._write_noted(lambda db: self._drop(db, statement, noted), noted)

    def _drop(self, db: Db, statement: DropTable, noted: list[HiveName]) -> Done:
        seq = db.tick()
        try:
            dataset = self._project.dataset(db, statement.name)
        except NotFound:
            if statement.if_exists:
                return Done(f"there is no table {statement.name}")
            raise
        name, fileset = dataset.qualified_name, Fileset.of(dataset)
        if dataset.app not in {None, STATEMENTS}:
            raise BadTable(name, f"it is declared by app {dataset.app}, and statements drop their own tables alone")
        if uses := find_uses(db, self._project, dataset):
            raise BadTable(name, f"it is used by {', '.join(uses)}")
        spec = {key: value for key, value in dataset.spec.items() if key not in {"watermark", "monitor_every"}}
        idle = Fileset.of(replace(dataset, spec=spec))
        notices = []
        if self._is_adopted(dataset):
            notices.append(f"the files in {dataset.location} stay: other programs write that directory")
        else:
            release_files(db, dataset.dataset_id, seq)
        datasets.drop_dataset(db, dataset)
        _note_in_hive(db, fileset, noted)
        declare_monitoring(db, idle)
        declare_watermark(db, idle, "statement")
        record = {"location": dataset.location, "keys": fileset.keys.names}
        self._project.note("sql", name, statement="DROP TABLE").between(record, None).write(db)
        return Done(f"table {name} is dropped", tuple(notices))

    def _select(self, statement: Select) -> Done:
        """Compute the rows of a query at one snapshot. The read is a run of kind external that writes nothing."""
        from tidemill.frames.spark import spark_errors
        from tidemill.run.processes.external import open_transaction, workspace_of
        from tidemill.sql.bare_select import TableQuery, compute_closed, compute_tables
        from tidemill.sql.dialect import BadStatement

        query = statement.query

        def find(db: Db) -> list[Fileset]:
            for name in () if isinstance(query, TableQuery) else query.look_ups:
                self._project.dataset(db, name)
            return [source_of(self._project.dataset(db, name)) for name in query.tables]

        found = self._catalog.read(find)
        namespace = Namespace(self._config.namespace)
        lease = self._config.lease
        spark = self._spark
        with open_transaction(self._catalog, self._world, [], lease=lease) as tx:
            workspace = workspace_of(tx, spark)
            try:
                if isinstance(query, TableQuery):
                    answer = compute_tables(workspace, query, namespace, self._zone)
                else:
                    answer = compute_closed(workspace, query, found, namespace)
                texts, more = answer.collect(_MOST_ROWS)
            except spark_errors() as error:
                raise BadStatement(f"Spark cannot compute the query: {reason(str(error))}") from error
        notices = (f"only the first {_MOST_ROWS} rows are shown",) if more else ()
        return Done(f"{answer.said}{count_of(len(texts), 'row')}", notices, tuple(json.loads(text) for text in texts))

    def _show_tables(self, db: Db, given: str | None) -> Done:
        namespace = Namespace(check_name("namespace", given or self._config.namespace))
        self._project.check(namespace, "namespace", namespace)
        found = datasets.list_datasets(db, kind=DatasetKind.FILESET, after=(namespace, ""))
        tables = [Fileset.of(one) for one in found if one.namespace == namespace]
        if not tables and namespace != self._config.namespace:
            self._check_namespace(db, namespace)
        rows: list[dict[str, object]] = [
            {"table": one.qualified_name, "watermark": one.watermark.column if one.watermark else None}
            for one in tables
        ]
        return Done(f"namespace {namespace} has {count_of(len(rows), 'table')}", (), tuple(rows))

    def _check_namespace(self, db: Db, namespace: Namespace) -> None:
        """Raise `NotFound` for a namespace without any data set, with those that the caller may read."""
        used = {one.namespace for one in datasets.list_datasets(db)} | {Namespace(self._config.namespace)}
        known = sorted(filter(self._project.access.sees, used))
        if namespace not in known:
            there = f"there are {', '.join(known[:_MOST_NAMESPACES])}"
            raise NotFound("namespace", namespace, nearest(namespace, known), hint=there)

    def _change(self, db: Db, dataset: Dataset, spec: dict[str, Any]) -> tuple[Reread | None, list[str]]:
        before = Fileset.of(dataset)
        _derive(dataset.qualified_name, spec, adopted=self._is_adopted(dataset))
        _check_column(db, before, spec)
        after = Fileset.of(replace(dataset, spec=spec))
        for state in list_states(db, dataset.dataset_id):
            if not state.definition or not _needs_reset(before, after, state.definition):
                continue
            if state.computed is None:
                # It was reset, or is new: the next deployment stores the definition by the options that hold then.
                set_definition(db, state.program_id, "")
            else:
                why = (
                    f"{self._show_program(state.name)} has published windows by it: `tidemill watermark reset` that "
                    "program first, with --keep-state if they are to stay"
                )
                raise BadTable(dataset.qualified_name, why)
        self._check_followed(db, after)
        stopped = list(self._check_readers(db, after))
        datasets.change_spec(db, after.dataset)
        if before.storing.monitor_every != after.storing.monitor_every:
            declare_monitoring(db, after)
        return declare_watermark(db, after, "statement"), stopped

    def _check_readers(self, db: Db, source: Fileset) -> Iterator[str]:
        """Refuse what no run of a program that reads the table could go on with. Say which programs have to wait."""
        from tidemill.mill.followed import check_reader

        for state in list_states(db, source.dataset_id):
            if state.computed is None:
                continue  # reset or new: the next deployment checks it, perhaps with another query
            shown = self._show_program(state.name)
            try:
                why = check_reader(db, source, state.name)
            except UserError as error:
                why = f"{shown} reads it, and its query would be refused: {error}"
                raise BadTable(source.qualified_name, why) from None
            if why:
                yield f"{shown} fails until its tables fit together: {why}"

    def _check_followed(self, db: Db, sink: Fileset) -> None:
        """Refuse a watermark that cannot follow the window program which writes the table."""
        from tidemill.mill.followed import check_followed

        for name in list_followed(db, sink):
            try:
                check_followed(db, sink, name)
            except UserError as error:
                options = sink.watermark.options if sink.watermark else ()
                about = next((one for one in options if f"'{one}'" in str(error)), "")
                why = f"{self._show_program(name)} writes it, and {error}"
                raise BadTable(sink.qualified_name, why, about) from None

    def _show_program(self, name: str) -> str:
        return self._project.access.show("window program", name)

    def _own_location(self, namespace: str, name: str) -> str:
        return f"{self._config.data.rstrip('/')}/{namespace}/{name}"

    def _is_adopted(self, dataset: Dataset) -> bool:
        """Return whether a table has a path of its own, where other programs write."""
        location = self._own_location(dataset.namespace, dataset.name)
        own = location if "://" in location else str(self._config.folder / location)
        return dataset.location != open_files(own, self._world).url

    def _describe(self, db: Db, name: str) -> Done:
        fileset = Fileset.of(self._project.dataset(db, name))
        schema = find_schema(db, fileset.dataset_id)
        columns = {} if schema is None else schema.types
        time = fileset.watermark.column if fileset.watermark else fileset.dataset.spec.get("watermark_column")
        rows: list[dict[str, object]] = [
            {"column": column, "type": kind, "key": False, "watermark": "SOURCE_WATERMARK" if column == time else None}
            for column, kind in columns.items()
        ]
        rows += [
            {"column": field.name, "type": field.type.value, "key": True, "watermark": None}
            for field in fileset.keys.fields
        ]
        return Done(fileset.qualified_name, tuple(self._say_programs(db, fileset)), tuple(rows))

    def _say_programs(self, db: Db, fileset: Fileset) -> Iterator[str]:
        """Say which window programs read a table, with their other tables, and which ones its watermark follows."""
        if fileset.watermark is not None and (custom := fileset.watermark.partition_time.extractor.custom):
            yield f"{custom} reads the times of its partitions"
        sees = self._project.access.sees_name
        if followed := [one for one in list_followed(db, fileset) if sees(one)]:
            yield f"the watermark follows {', '.join(followed)}"
        for state in list_states(db, fileset.dataset_id):
            if not sees(state.name):
                continue
            ids = [one for one in list_inputs(db, state.program_id) if one != fileset.dataset_id]
            names = (one.qualified_name for one in find_some(db, ids).values())
            others = sorted(filter(sees, names))
            yield f"{state.name} reads the table" + (f", and {', '.join(others)}" if others else "")


def _why_not(table: HiveTable) -> str:
    """Return why a table of Hive cannot be monitored; empty if it can be."""
    if not table.keys:
        return "it has no partitions"
    if not table.file_format and not table.why_not:
        return f"its files have none of the formats {', '.join(HIVE_FORMATS)}"
    return table.why_not


def _note_in_hive(db: Db, before: Fileset, noted: list[HiveName]) -> None:
    """Record that the properties of a table in Hive have to follow a change, and put the table into `noted`."""
    noted.clear()  # a database that is busy has the block done again
    if hive := before.storing.hive:
        put_note(db, hive, properties_of(before))
        noted.append(hive)


def _as_declared(statement: Alteration, columns: Iterable[str]) -> Alteration:
    """Return a statement with the column of its watermark as the table has it: capital letters do not count."""
    from tidemill.sql import ddl

    if not isinstance(statement, ddl.SetWatermark):
        return statement
    low = statement.column.lower()
    return replace(statement, column=next((one for one in columns if one.lower() == low), statement.column))


def _alter(  # noqa: C901  # four kinds of statements
    table: str, spec: dict[str, Any], statement: Alteration, *, adopted: bool
) -> tuple[str, list[str]]:
    """Change `spec` as the statement says; return what was done, and notices."""
    from tidemill.sql import ddl

    watermark = spec.get("watermark") or {}
    column = spec.get("watermark_column", watermark.get("column"))
    zone = {ZONE: watermark["default_zone"]} if "default_zone" in watermark else {}
    given = {**zone, **watermark.get("options", {}), **spec.get("options", {})}
    options: dict[str, str] = {own_name(name): value for name, value in given.items()}
    notices: list[str] = []
    match statement:
        case ddl.SetWatermark():
            if column is not None and not statement.modify:
                raise BadTable(table, f"it has a watermark for {column} already: write MODIFY WATERMARK", "ADD")
            if column is None and statement.modify:
                raise BadTable(table, "it has no watermark to modify: write ADD WATERMARK", "MODIFY")
            column = statement.column
            said = f"{table} has a watermark for {column}"
        case ddl.DropWatermark():
            if column is None:
                raise BadTable(table, "it has no watermark to drop", "DROP")
            column, said = None, f"{table} has no watermark"
        case ddl.SetOptions():
            if fixed := sorted(statement.options.keys() & {*CONNECTION}):
                why = f"the option '{fixed[0]}' is of CREATE TABLE alone: create another table"
                raise BadTable(table, why, fixed[0])
            given, notices = leave_out(statement.options, monitored=adopted)
            options |= {own_name(name): value for name, value in given.items()}
            said = f"{table} has {len(options)} options"
        case _:
            for name in statement.options:
                if own_name(name) not in options:
                    raise BadTable(table, f"the option '{name}' is not set", name)
                del options[own_name(name)]
            said = f"{table} has {len(options)} options"
    spec["options"] = options
    spec.pop("watermark_column", None)
    if column is not None:
        spec["watermark_column"] = column
    return said, notices


def _takes_default_zone(spec: Mapping[str, Any], statement: Alteration) -> bool:
    """Return whether a statement declares a watermark, or gives up the zone of one."""
    from tidemill.sql import ddl

    match statement:
        case ddl.SetWatermark():
            return not statement.modify
        case ddl.ResetOptions():
            return ZONE in map(own_name, statement.options) and "watermark_column" in spec
        case _:
            return False


def _derive(table: str, spec: dict[str, Any], *, adopted: bool) -> None:
    """Derive the watermark that moves, and the interval of listings, from the options.

    There is a watermark when a column is named and `streaming-source.enable` says so. An `adopted` table is monitored
    then, with or without a watermark.
    """
    keys, options, column = KeySchema.of(spec["keys"]), spec["options"], spec.get("watermark_column")
    spec.pop("watermark", None)
    spec.pop("monitor_every", None)
    try:
        enabled = options.get(ENABLE, "false").lower() == "true"
        # The interval is of the watermark alone: the other options are checked without one too.
        given = options if enabled and column is not None else {INTERVAL: "1h", **options}
        checked = WatermarkSpec.of(column or "no column", given, keys)
    except UserError as error:
        about = error.option if isinstance(error, BadTableOption) else ""
        raise BadTable(table, str(error), column or "" if about == "watermark" else about) from None
    if checked.completeness.metastore and "hive" not in spec:
        raise BadTable(table, NOT_OF_HIVE, COMPLETENESS)
    if checked.completeness.marker is not None and not adopted:
        raise BadTable(table, NO_MARKERS, COMPLETENESS)
    if enabled and column is not None:
        spec["watermark"] = write_plain(replace(checked.stored, by="statement"))
    if enabled and adopted:
        spec["monitor_every"] = write_plain(checked.monitor_every)


def _check_column(db: Db, fileset: Fileset, spec: Mapping[str, Any]) -> None:
    column, schema = spec.get("watermark_column"), find_schema(db, fileset.dataset_id)
    if column is None or schema is None:
        return
    _check_time(fileset.qualified_name, spec, schema.types)


def _check_time(table: str, spec: Mapping[str, Any], types: Mapping[str, str]) -> None:
    column: str = spec["watermark_column"]
    if fault := find_column_fault(column, spec["options"], types):
        raise BadTable(table, f"the watermark cannot be for {column}: {fault}", column)


def _choose(table: str, options: Mapping[str, str], option: str, known: Sequence[str]) -> str:
    """The value of an option of which some values are known, the first when it is not given."""
    given = options.get(option, known[0])
    if given not in known:
        raise BadTable(table, f"option '{option}'='{given}' is refused: use one of {', '.join(known)}", option)
    return given


def _needs_reset(before: Fileset, after: Fileset, definition: str) -> bool:
    """Return whether the windows that a program has published of a table would not fit to those of its next run.

    When a watermark that moves is read in another way, the windows start again without a reset. Those of a table on
    demand do not, since nothing computes them by itself.
    """
    if before.watermark is not None or after.watermark is not None:
        return _shape(before.watermark, definition) != _shape(after.watermark, definition)
    old, new = (source_of(one.dataset).watermark for one in (before, after))
    if old is None or new is None:
        return old is not new
    return old.reading != new.reading or _shape(old, definition) != _shape(new, definition)


def _shape(spec: WatermarkSpec | None, definition: str) -> object:
    """Return the part of a watermark that published windows depend on, by the definition of their program.

    Before a change of that part, a reset is needed.

    The reading of times is not part of it: a change of that makes the windows start again without a reset.
    """
    if spec is None:
        return None
    return spec.column, spec.outside, spec.session_max if "sessions" in json.loads(definition) else None
