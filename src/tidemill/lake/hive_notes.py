"""Notes in Hive: the declaration of a table of Hive, as properties of the table there.

The catalog decides, and the properties are for readers. A statement records in its transaction that the properties have
to follow, with the values that Tidemill has written before. Then the process writes the properties, and deletes the
record. If the process dies, or the metastore is away, a janitor does both later.

Two processes may write the properties of one table at once. If a process finds its record replaced or deleted, the
process writes again, by the newest declaration. A property may stay old if that process dies before, which takes two
faults at once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Param, load_sql
from tidemill.lake.datasets import DatasetKind, find_present
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.stored import HiveName
from tidemill.names import CommitSeq, Namespace
from tidemill.storage.metastore import MetastoreUnavailable, open_metastore

if TYPE_CHECKING:
    from tidemill.lake.hive_notes_sql import Sql

SQL: Sql = load_sql(__file__)

WATERMARK_COLUMN: Final = "tidemill.watermark"
"""The property of a table of Hive that names its column of time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """Record that the properties of a table of Hive have to follow its declaration.

    `own` has the properties that Tidemill has or may have written, each with its values. `earlier` has the properties
    of before the declaration.
    """

    own: Mapping[str, Sequence[str]]
    earlier: Mapping[str, str]
    seq: CommitSeq


def properties_of(fileset: Fileset) -> dict[str, str]:
    """Return the declaration of a table as Hive keeps it, in the properties of the table."""
    column = fileset.storing.watermark_column
    return {**(fileset.storing.options or {}), **({} if column is None else {WATERMARK_COLUMN: column})}


def follow(there: Mapping[str, str], note: Note, declared: Mapping[str, str] | None) -> dict[str, str]:
    """Return the properties that a table of Hive is to have in the place of those that are `there`.

    A value that Tidemill has not written stays, unless the table is `declared` with another one. A table that is not
    declared any more, None, gets its earlier values back.
    """
    kept = {name: value for name, value in there.items() if value not in note.own.get(name, ())}
    if declared is not None:
        return {**kept, **declared}
    return {name: value for name, value in note.earlier.items() if name in there} | kept


def put_note(db: Db, hive: HiveName, written: Mapping[str, str]) -> None:
    """Record that the properties of a table in Hive have to follow its declaration.

    Part of the transaction of a statement, after the tick. `written` are the properties that Tidemill has or may have
    written.
    """
    note = _find_note(db, hive)
    own = {} if note is None else dict(note.own)
    own |= {name: [*{*own.get(name, ()), value}] for name, value in written.items()}
    db.run(SQL.put_note, **_key(hive), own=json.dumps(own), earlier=json.dumps(dict(hive.earlier or {})))


def write_note(catalog: Catalog, hive: HiveName) -> None:
    """Bring the properties of a table in Hive up to its declaration, if a record says so.

    A table that Hive does not have any more needs no properties. Errors: `MetastoreUnavailable`; a janitor tries again.
    """
    found = catalog.read(lambda db: _read(db, hive))
    while found is not None and not _write(catalog, hive, *found):
        found = catalog.read(lambda db: _read(db, hive))


def write_notes(catalog: Catalog) -> None:
    """Bring the properties of all tables with a record up to their declarations.

    A table whose properties cannot be written is logged, and holds up no other table. A metastore that does not answer
    is asked once: each time-out takes 20 seconds.
    """
    silent: set[str] = set()
    for key in catalog.read(lambda db: db.records(SQL.list_noted, tuple[str, str, str])):
        hive = HiveName(*key)
        if hive.metastore in silent:
            continue
        try:
            write_note(catalog, hive)
        except MetastoreUnavailable as error:
            if not error.answers:
                silent.add(hive.metastore)
            _log.warning("the properties of %s.%s in Hive do not follow yet: %s", hive.database, hive.table, error)


def _write(catalog: Catalog, hive: HiveName, note: Note, declared: Mapping[str, str] | None) -> bool:
    """Write the properties, and delete the note. Return False if the properties may have to be written again."""
    with open_metastore(hive.metastore) as metastore:
        metastore.change_properties(hive.database, hive.table, lambda there: follow(there, note, declared))
    catalog.world.mark("hive.properties_written")
    if catalog.write(lambda db: db.run(SQL.delete_note, **_key(hive), seq=note.seq)):
        return True

    def put_again(db: Db) -> None:
        # Another process may have written newer properties before these.
        db.tick()
        put_note(db, replace(hive, earlier=note.earlier), declared or {})

    catalog.write(put_again)
    return False


def _read(db: Db, hive: HiveName) -> tuple[Note, Mapping[str, str] | None] | None:
    """Return the note about a table, with its present declaration if there is one; None without a note."""
    note = _find_note(db, hive)
    if note is None:
        return None
    dataset = find_present(db, Namespace(hive.database), hive.table)
    fileset = Fileset.of(dataset) if dataset is not None and dataset.kind is DatasetKind.FILESET else None
    present = None if fileset is None else fileset.storing.hive
    if fileset is None or present is None or _key(present) != _key(hive):
        return note, None
    return note, properties_of(fileset)


def _find_note(db: Db, hive: HiveName) -> Note | None:
    return db.record(SQL.find_note, Note, **_key(hive))


def _key(hive: HiveName) -> dict[str, Param]:
    return {"metastore": hive.metastore, "database": hive.database, "table": hive.table}
