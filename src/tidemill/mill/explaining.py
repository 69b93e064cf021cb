"""EXPLAIN: the windows that the next run of a statement would compute, the partitions that it would read, and W."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tidemill.app.statements import NAME
from tidemill.catalog.db import Db
from tidemill.errors import NotFound
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.lake.fileset.time_travel import now
from tidemill.lake.window.on_demand import is_on_demand, source_of
from tidemill.lake.window.parked import explain_parked
from tidemill.lake.window.watermark import find_watermark, list_parked
from tidemill.lake.window.windows import WindowState, find_state
from tidemill.mill.access import Access
from tidemill.mill.project import Project
from tidemill.mill.why_data import explain_watermark
from tidemill.names import Namespace
from tidemill.run.records.programs import find_program
from tidemill.shapes.watermark_spec import ENABLE
from tidemill.sql.bare_select import TableQuery, list_closed
from tidemill.sql.ddl import Insert, Query
from tidemill.sql.window_program import NextWindow, WindowProgram, spec_of

Row = dict[str, object]
_MOST_NAMED: Final = 20
"""The most partitions that a row names."""


def explain_statement(db: Db, project: Project, statement: Query) -> tuple[str, list[Row]]:
    """Return a line for people, and rows of what the statement would read: each with `part`, `value` and more.

    The parts are the watermark, what holds it, `computed` of the program, and the windows in their order; of a SELECT
    without windows its tables. Raises what the statement would raise.
    """
    if isinstance(statement, Insert):
        return _explain_program(db, project, statement)
    query = statement.query
    snapshot = now(db, project.catalog.incarnation)
    if isinstance(query, TableQuery):
        found = [Fileset.of(project.dataset(db, table)) for table in query.tables]
        rows: list[Row] = []
        for one in found:
            keys = [one.show(partition.partition_key) for partition in read_partitions(db, one.dataset_id, snapshot)]
            rows.append(_row("table", one.qualified_name, "current", keys))
        return "the query would read", rows
    sources = [source_of(project.dataset(db, table)) for table in query.tables]
    windows = list_closed(db, snapshot, query, sources)
    shown = ", ".join(source.qualified_name for source in sources)
    return f"the query would compute {len(windows)} windows of {shown}", [
        *(row for source in sources for row in _explain_watermark(db, source, project.access)),
        *_list_windows(windows),
    ]


def _explain_program(db: Db, project: Project, statement: Insert) -> tuple[str, list[Row]]:
    namespace, name = Namespace(project.config.namespace), statement.name
    code = WindowProgram(name, statement.text, namespace)
    sources = [source_of(project.dataset(db, source)) for source in code.sources]
    project.dataset(db, code.sink)
    state = _find_state(db, namespace, name)
    said = ""
    if state is not None and state.computed is not None and state.definition not in {"", code.definition(sources)}:
        said = f"{state.name} has another query now; after a reset "
        state = replace(state, computed=None)
    windows = code.list_next(db, now(db, project.catalog.incarnation), state)
    reached = None if state is None else state.computed
    computed = None if reached is None else str(spec_of(sources[0]).window_zone.local(reached))
    rows = [
        *(row for source in sources for row in _explain_watermark(db, source, project.access)),
        _row("computed", computed, f"by {NAME}.{name}"),
        *_list_windows(windows),
    ]
    shown = ", ".join(code.sources)
    return f"{said}the next run of {NAME}.{name} would compute {len(windows)} windows of {shown}", rows


def _find_state(db: Db, namespace: Namespace, name: str) -> WindowState | None:
    try:
        program = find_program(db, namespace, NAME, name)
    except NotFound:
        return None
    return find_state(db, program.program_id)


def _explain_watermark(db: Db, source: Fileset, access: Access) -> Iterator[Row]:
    if is_on_demand(source):
        why = f"of {source.qualified_name}, as '{ENABLE}' is not 'true': all its partitions count"
        yield _row("watermark", None, why)
    row, spec = find_watermark(db, source.dataset_id), source.watermark
    if row is None or spec is None:
        return
    value = None if row.value is None else str(spec.partition_time.zone.local(row.value))
    custom = spec.partition_time.extractor.custom
    yield _row("watermark", value, f"of {source.qualified_name}" + (f", whose times {custom} reads" if custom else ""))
    for shown, why in explain_parked(source, list_parked(db, source, _MOST_NAMED)).items():
        yield _row("parked", shown, f"{why}: no window waits for the partition")
    for because in explain_watermark(db, source, access):
        yield _row("waits", because.code.value, f"{because.why}. Next: {because.unblock}")


def _list_windows(windows: Sequence[NextWindow]) -> Iterator[Row]:
    return (_row("window", str(one), one.why, one.partitions) for one in windows)


def _row(part: str, value: str | None, why: str, partitions: Sequence[str] = ()) -> Row:
    more = [f"and {len(partitions) - _MOST_NAMED} more"] if len(partitions) > _MOST_NAMED else []
    return {"part": part, "value": value, "why": why, "partitions": [*partitions[:_MOST_NAMED], *more]}
