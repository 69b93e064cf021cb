"""Bare SELECT: rows that are computed once, of closed windows or of whole tables, and written nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import TokenType

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.lake.fileset.fileset import Fileset, find_schema
from tidemill.lake.snapshot.snapshot import SnapshotDataset, Version, find_current
from tidemill.lake.window.on_demand import is_on_demand
from tidemill.lake.window.outside_times import Stretches, present_stretches
from tidemill.lake.window.window_plan import Limits, Reached, Window, plan
from tidemill.lake.window.windows import find_instants, list_waiting, read_keys
from tidemill.names import DatasetId, Namespace, within
from tidemill.run.step.version_reads import find_snapshot
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Instant
from tidemill.sql.batches import Batch
from tidemill.sql.dialect import WINDOW_FUNCTIONS, bad, parse_one, tokenize
from tidemill.sql.empty_windows import fill_gaps
from tidemill.sql.outside_rows import (
    Outside,
    includes_outside,
    read_times,
    to_stored,
)
from tidemill.sql.window_program import (
    NextWindow,
    check_columns,
    check_sessions,
    find_first,
    find_passed,
    list_needed,
    make_grid,
    spec_of,
)
from tidemill.sql.windows import WindowQuery, name_of, read_query
from tidemill.texts import count_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.run.step.workspace import Workspace

_NO_LIMIT: Final = Limits(1 << 60, 1 << 60, 1 << 60)


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query without windows. `places` are the names of tables in its text: begin, end, table and alias."""

    text: str
    places: tuple[tuple[int, int, str, str], ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables as the text names them, each once."""
        return tuple(dict.fromkeys(table for _, _, table, _ in self.places))

    def over(self, names: Mapping[str, str]) -> str:
        """Return the text with other names of its tables."""
        text, at = "", 0
        for begin, end, table, alias in self.places:
            text += f"{self.text[at:begin]}{names[table]}{alias}"
            at = end
        return text + self.text[at:]


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """Rows that were asked for, None for no rows. `said` is what people read before the number of rows."""

    rows: DataFrame | None
    said: str = ""

    def collect(self, most: int) -> tuple[list[str], bool]:
        """Return up to `most` rows, each as a JSON object with all columns, and whether there are more."""
        if self.rows is None:
            return [], False
        text = "to_json(struct(*), map('ignoreNullFields', 'false'))"
        found = [str(row[0]) for row in self.rows.selectExpr(text).limit(most + 1).collect()]
        return found[:most], len(found) > most


def read_select(text: str) -> WindowQuery | TableQuery:
    """Check a query; `BadStatement`. A query with a window function follows the rules of window programs."""
    tokens = tokenize(text)
    for token, after in pairwise(tokens):
        if token.text.upper() in WINDOW_FUNCTIONS and after.token_type == TokenType.L_PAREN:
            return read_query(text, bare=True)
    statement = parse_one(text)
    if not isinstance(statement, exp.Query):
        raise bad("a query is SELECT … FROM …, or several with UNION ALL between them", statement)
    try:
        scopes = traverse_scope(statement)
    except OptimizeError as error:
        raise bad(str(error), statement) from error
    if (fetch := statement.find(exp.Fetch)) is not None:
        raise bad("Spark has no FETCH FIRST: write LIMIT", fetch)
    found = {
        id(source): source for scope in scopes for source in scope.sources.values() if isinstance(source, exp.Table)
    }
    named = {one.alias.lower() for one in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        # Spark would read files and functions by such names, past the rights of the caller.
        if not isinstance(table.this, exp.Identifier):
            raise bad("FROM must name tables of the catalog", table)
        if id(table) not in found and (table.db or table.name.lower() not in named):
            raise bad("a table cannot be named in this place", table)
        if table.args.get("sample") is not None or table.args.get("version") is not None:
            raise bad("TABLESAMPLE, VERSION and TIMESTAMP AS OF are not supported: read the whole table", table)
    return TableQuery(text.rstrip().rstrip(";"), tuple(sorted(map(_find_place, found.values()))))


def _find_place(table: exp.Table) -> tuple[int, int, str, str]:
    places = [part.meta for part in table.parts]
    alias = "" if table.args.get("alias") is not None else f" AS `{table.name}`"
    return places[0]["start"], places[-1]["end"] + 1, name_of(table), alias


def compute_tables(workspace: Workspace, query: TableQuery, namespace: Namespace, zone: str) -> SelectedRows:
    """Return the rows of a query over the current rows of tables, computed in a time zone.

    `namespace` is that of plain names.
    """
    workspace.spark.conf.set("spark.sql.session.timeZone", zone)
    names: dict[str, str] = {}
    for number, table in enumerate(query.tables):
        names[table] = f"tidemill_table_{number}"
        workspace.read(within(namespace, table), None).createOrReplaceTempView(names[table])
    return SelectedRows(workspace.spark.sql(query.over(names)))


def compute_closed(
    workspace: Workspace, query: WindowQuery, sources: Sequence[Fileset], namespace: Namespace
) -> SelectedRows:
    """Return the rows of all closed windows, whatever a program has computed already.

    Of tables with windows on demand alone, all windows are closed.

    `namespace` is that of plain names of snapshots. Raises `NoWatermark`, `BadTimeColumn`, `NoVersionYet`. Cost: all
    partitions of the tables.
    """
    from tidemill.sql.window_frames import SparkWindows

    grid = make_grid(query, sources)

    def look_up(name: str) -> DataFrame:
        def find(db: Db, tx: Transaction) -> tuple[SnapshotDataset, Version]:
            snapshot = find_snapshot(db, within(namespace, name))
            return snapshot, find_current(db, snapshot, tx)

        snapshot, version = workspace.ask(find)
        return workspace.versions.read(workspace.spark, snapshot, version.version)

    calculator = SparkWindows(query, look_up)
    outside: dict[DatasetId, Mapping[KeyText, Stretches]] = {}
    for source in filter(includes_outside, sources):
        read = read_times(workspace, calculator, source, None)
        for error in read.damaged.values():
            raise error
        outside[source.dataset_id] = present_stretches({}, read.found)

    def block(db: Db, tx: Transaction) -> tuple[list[Batch], Instant | None]:
        windows, passed = _plan_closed(db, tx, query, sources, outside)
        due = set(windows)
        batches = []
        for source in sources:
            near = {
                KeyText(one.key): (one.begins, one.ends)
                for one in list_waiting(db, source, tx, None)
                if not due.isdisjoint(grid.touched(one.begins, one.ends))
            }
            strewn = to_stored(source, outside.get(source.dataset_id, {}))
            met = {one.key for one in strewn if not due.isdisjoint(grid.touched(one.begins, one.ends))}
            near |= find_instants(db, source, tx, met)
            batches.append(Batch(source, source, windows, tuple(read_keys(db, source, tx, near)), near))
        return batches, passed

    batches, passed = workspace.ask(block)
    shown = ", ".join(source.qualified_name for source in sources)
    on_demand = all(map(is_on_demand, sources))
    if passed is None:
        why = "there are no partitions" if on_demand else "its watermark has no value yet"
        return SelectedRows(None, f"no window of {shown} is closed, since {why}: ")
    windows = batches[0].windows
    if on_demand:
        said = f"{count_of(len(windows), 'window')} of all partitions of {shown}: "
    else:
        value = spec_of(sources[0]).partition_time.zone.local(passed)
        said = f"{count_of(len(windows), 'closed window')} of {shown}, at its watermark {value}: "
    return SelectedRows(calculator.compute(workspace, batches) if windows else None, said)


def list_closed(db: Db, snapshot: Snapshot, query: WindowQuery, sources: Sequence[Fileset]) -> list[NextWindow]:
    """List the windows that `compute_closed` would compute, in the order of their ends.

    Rows outside their partition are not known without Spark.
    """
    windows, _ = _plan_closed(db, snapshot, query, sources, {})
    needed = list_needed(db, query, sources, snapshot, windows, {})
    return [NextWindow(window, "closed", needed.get(window, ())) for window in windows]


def _plan_closed(
    db: Db, snapshot: Snapshot, query: WindowQuery, sources: Sequence[Fileset], outside: Outside
) -> tuple[tuple[Window, ...], Instant | None]:
    """Return the closed windows, and the watermark of the query."""
    check_columns(query, sources, [find_schema(db, source.dataset_id) for source in sources])
    check_sessions(query, sources)
    waiting = [one for source in sources for one in list_waiting(db, source, snapshot, None)]
    strewn = [one for source in sources for one in to_stored(source, outside.get(source.dataset_id, {}))]
    passed = find_passed(db, snapshot, query, sources, [*waiting, *strewn])
    reached = Reached(None, 0, passed, snapshot.write_pointer, find_first(db, sources, query.reaches))
    grid = make_grid(query, sources)
    if query.emits_empty(spec_of(sources[0])):
        waiting += fill_gaps(grid, reached, waiting, _NO_LIMIT)
    return plan(grid, reached, [*waiting, *strewn], set(), (), _NO_LIMIT).new, passed
