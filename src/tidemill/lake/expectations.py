"""Arrival expectations of data sets: one row each, checked by the keeper when the next deadline has come.

An arrival is a new file of an inbox, a commit that publishes partitions of a file set, or a version of a snapshot. A
check looks at the last arrival only. So arrivals in file sets and snapshots write nothing, and a commit that finds
files in an inbox changes one row. A check takes a tick first: then each earlier arrival is visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.named import Call, load_sql
from tidemill.catalog.records import to_json
from tidemill.epoch import show_time
from tidemill.json_specs import read_text, write_text
from tidemill.lake.datasets import Dataset
from tidemill.names import DatasetId, Namespace, missing_event, qualified
from tidemill.shapes.expectation import Arrivals, ArrivalState

if TYPE_CHECKING:
    from tidemill.lake.expectations_sql import Sql

SQL: Sql = load_sql(__file__)

NEXT_CHECK: Final = SQL.find_next_check()
"""Finds the time, maybe past, of the next check."""
_BATCH: Final = 100
"""The most expectations that one transaction checks."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The arrival expectation of a data set, as it stands now. `broken_since` is None unless it is broken."""

    expect: str
    last_arrival: datetime | None
    expected_by: datetime
    state: ArrivalState
    broken_since: datetime | None
    next_look_at: datetime
    """The time of the keeper's next check."""


class _ExpectationRow(NamedTuple):
    """Row of an expectation, with the name of its data set and the last arrival."""

    dataset_id: DatasetId
    namespace: Namespace
    name: str
    declared: str
    since_at: datetime
    arrived_at: datetime | None
    next_check_at: datetime
    broken_since: datetime | None


def declare_expectations(db: Db, namespace: Namespace, app: str, datasets: Iterable[Dataset]) -> None:
    """Bring the rows in line with `datasets`, which are all that the app declares, in the same transaction.

    The first period of a changed expectation begins now. A data set that the app declares no more expects nothing.
    Cost: the data sets of the app.
    """
    stored = dict(db.records(SQL.list_declared, tuple[DatasetId, str], namespace=namespace, app=app))
    expected = {dataset.dataset_id: dataset.expect for dataset in datasets if dataset.expect is not None}
    for dataset_id in stored.keys() - expected.keys():
        db.run(SQL.delete_expectation, dataset_id=dataset_id)
    now = db.now()
    for dataset_id, expect in expected.items():
        declared = write_text(expect)
        if declared != stored.get(dataset_id):
            first = expect.find_deadline(now, None)
            db.run(SQL.put_expectation, dataset_id=dataset_id, declared=declared, next_check_at=first.broken_at)


def note_arrival(dataset_id: DatasetId) -> Call:
    """Return the statement by which a commit that has found new files of an inbox notes the arrival."""
    return SQL.note_arrival(dataset_id=dataset_id)


def find_expectations(db: Db, dataset_ids: Iterable[DatasetId]) -> dict[DatasetId, Expectation]:
    """Return the expectations of those data sets that declare one, as they stand now. Cost: look-ups."""
    rows = db.records(SQL.find_some, _ExpectationRow, dataset_ids=json.dumps(sorted(dataset_ids)))
    now = db.now()
    return {row.dataset_id: _stand(row, now) for row in rows}


def check_due(catalog: Catalog) -> int:
    """Check the expectations whose deadline has come, and announce those that broke; return their number.

    The keeper's work. Each break is announced once: by one message, in the transaction that notes it. Cost: a look-up
    when nothing is due.
    """
    broken, more = 0, catalog.read(_has_due)
    while more:
        catalog.world.mark("expectations.before_check")
        checked, found = catalog.write(_check)
        catalog.world.mark("expectations.checked")
        broken, more = broken + found, checked == _BATCH
    return broken


def _has_due(db: Db) -> bool:
    look = db.look(NEXT_CHECK)
    return any(at <= look.now for at in look.times())


def _check(db: Db) -> tuple[int, int]:
    """Check a batch; return the number of expectations that were due, and of those that broke."""
    db.tick()  # first, so that each arrival which is earlier than now is visible, and no other keeper checks
    now = db.now()
    checked: list[dict[str, object]] = []
    broken = 0
    for row in db.records(SQL.find_due, _ExpectationRow, limit=_BATCH):
        expect = read_text(Arrivals, row.declared)
        deadline = expect.find_deadline(row.since_at, row.arrived_at)
        is_broken = deadline.state(now) is ArrivalState.BROKEN
        if is_broken and deadline.broken_at != row.broken_since:
            broken += 1
            for call in _announce(row, deadline.expected_by, deadline.broken_at).writes():
                db.call(call)
        # After a break nothing can break before the deadline of an arrival at this very moment.
        next_check = expect.find_deadline(row.since_at, now).broken_at if is_broken else deadline.broken_at
        broken_since = deadline.broken_at if is_broken else None
        checked.append({"dataset_id": row.dataset_id, "next_check_at": next_check, "broken_since": broken_since})
    if checked:
        db.run(SQL.note_checks, checks=to_json(checked))
    return len(checked), broken


def _announce(row: _ExpectationRow, expected_by: datetime, broken_at: datetime) -> Publish:
    payload = {
        "dataset": qualified(row.namespace, row.name),
        "expected_by": show_time(expected_by),
        "broken_since": show_time(broken_at),
        "last_arrival": None if row.arrived_at is None else show_time(row.arrived_at),
    }
    return Publish(Topic.DATA, "missing", missing_event(row.namespace, row.name), payload)


def _stand(row: _ExpectationRow, now: datetime) -> Expectation:
    expect = read_text(Arrivals, row.declared)
    deadline = expect.find_deadline(row.since_at, row.arrived_at)
    state = deadline.state(now)
    broken_since = deadline.broken_at if state is ArrivalState.BROKEN else None
    return Expectation(str(expect), row.arrived_at, deadline.expected_by, state, broken_since, row.next_check_at)
