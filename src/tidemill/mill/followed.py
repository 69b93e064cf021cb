"""Window programs that the watermark of their output follows, as statements about the output ask for them."""

from __future__ import annotations

from tidemill.app.declaration import restore_declaration
from tidemill.app.deployments import find_declaration
from tidemill.catalog.db import Db
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.apps import find_deployed
from tidemill.names import split_qualified
from tidemill.run.records.declared import find_dataset
from tidemill.sql.cascades import check_output
from tidemill.sql.window_program import WindowProgram


def check_followed(db: Db, sink: Fileset, program: str) -> None:
    """Refuse the watermark of `sink` if it cannot follow the window program of that name; `UserError`."""
    namespace, (app, name) = split_qualified("program", program, 2)
    version = find_deployed(db, namespace, app).version
    code = restore_declaration(find_declaration(db, namespace, app, version)).programs[name].windows
    assert isinstance(code, WindowProgram), "a window program writes the file set"  # noqa: S101
    source = Fileset.of(find_dataset(db, code.sources[0]))
    if source.watermark is not None:
        check_output(code.query, sink, source.watermark.window_zone)
