"""Window programs that read or write a table, as statements about the table ask for them."""

from __future__ import annotations

from tidemill.app.declaration import restore_declaration
from tidemill.app.deployments import find_declaration
from tidemill.catalog.db import Db
from tidemill.errors import UserError
from tidemill.lake.fileset.fileset import Fileset, find_schema
from tidemill.lake.window.on_demand import source_of
from tidemill.mill.apps import find_deployed
from tidemill.names import split_qualified
from tidemill.run.records.declared import find_dataset
from tidemill.sql.cascades import check_output
from tidemill.sql.window_program import WindowProgram


def check_followed(db: Db, sink: Fileset, program: str) -> None:
    """Refuse the watermark of `sink` if it cannot follow the window program of that name; `UserError`."""
    code = _find_code(db, program)
    assert code is not None, "a window program writes the file set"  # noqa: S101
    source = Fileset.of(find_dataset(db, code.sources[0]))
    if source.watermark is not None:
        check_output(code.query, sink, source.watermark.window_zone)


def check_reader(db: Db, changed: Fileset, program: str) -> str:
    """Return why the window program of that name can no longer read its tables with `changed`; empty if it can.

    Of a program over one table, raise that as `UserError`. Several tables may be changed one after the other.
    """
    if (code := _find_code(db, program)) is None:
        return ""  # its app has no such program any more
    tables = [find_dataset(db, one) for one in code.sources]
    sources = [source_of(changed.dataset if one.dataset_id == changed.dataset_id else one) for one in tables]
    schemas = [find_schema(db, one.dataset_id) for one in sources]
    try:
        code.check(sources, Fileset.of(find_dataset(db, code.sink)), schemas)
    except UserError as error:
        if len(sources) == 1:
            raise
        return str(error)
    return ""


def _find_code(db: Db, program: str) -> WindowProgram | None:
    namespace, (app, name) = split_qualified("program", program, 2)
    version = find_deployed(db, namespace, app).version
    declared = restore_declaration(find_declaration(db, namespace, app, version)).programs.get(name)
    code = None if declared is None else declared.windows
    return code if isinstance(code, WindowProgram) else None
