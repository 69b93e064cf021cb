"""The smallest lake there is: partitions with a name and nothing in them, for tests of the catalog alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, load_sql
from tidemill.catalog.transactions import Snapshot
from tidemill.names import DatasetId, WritePointer

SQL = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class AddKeys(Effect):
    """Add partitions `keys` to a data set."""

    phase = Phase.PUBLISH

    dataset_id: DatasetId
    write_pointer: WritePointer
    keys: tuple[str, ...]

    def writes(self) -> Sequence[Call]:
        params = {"dataset_id": self.dataset_id, "write_pointer": self.write_pointer, "keys": json.dumps(self.keys)}
        return (SQL.insert_change(**params),)


def read_keys(db: Db, dataset_id: DatasetId, snapshot: Snapshot) -> list[str]:
    """The keys that `snapshot` sees, in order of their commits."""
    rows = db.all(SQL.read_changes, dataset_id=dataset_id, write_pointer=snapshot.write_pointer)
    return [str(row[1]) for row in rows]
