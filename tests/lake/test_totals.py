"""Totals of a file set: what its commits keep is what counting gives, whatever they did and in whatever order."""

from __future__ import annotations

from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lake.conftest import Lake, make_lake
from tests.run.conftest import rows_of
from tidemill.catalog.transactions import commit
from tidemill.lake.fileset.compaction import Compact, CompactedPartition
from tidemill.lake.fileset.fileset import WriteOp, read_partitions
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.fileset.time_travel import now
from tidemill.lake.fileset.totals import Totals, compare_totals, find_totals
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.upkeep.audit import audit

_names = count()
HOURS = st.integers(0, 3)
WRITES = st.lists(st.tuples(HOURS, st.sampled_from(["append", "overwrite", "drop"]), st.integers(0, 3)), max_size=5)
STEPS = st.lists(st.one_of(WRITES, st.sets(HOURS, min_size=1)), max_size=8)


def _manifest(files: int) -> Manifest:
    return Manifest(tuple(DataFile(f"f{next(_names)}", 10 + files, 2 + files, "e") for _ in range(files)))


def _write(lake: Lake, writes: list[tuple[int, str, int]]) -> None:
    changes = {
        hour: PartitionWrite(
            lake.lines.keys.check({"hour": hour}), WriteOp(op), _manifest(0 if op == "drop" else files)
        )
        for hour, op, files in writes
    }
    lake.commit(lake.begin(f"run_w{next(_names)}"), *changes.values())


def _compact(lake: Lake, hours: set[int]) -> None:
    tx = lake.begin(f"run_c{next(_names)}")
    seen = lake.catalog.read(lambda db: read_partitions(db, lake.lines.dataset_id, tx, compacted=True))
    chosen = [one for one in seen if lake.hour(one.partition_key) in hours]
    compactions = [CompactedPartition(one, _manifest(1)) for one in chosen]
    commit(lake.catalog, tx, [Compact(tx, lake.lines, compactions)] if chosen else [])


def _totals(lake: Lake) -> Totals:
    found = lake.catalog.read(lambda db: find_totals(db, [lake.lines.dataset_id]))
    return found.get(lake.lines.dataset_id, Totals())


def _counted(lake: Lake) -> Totals:
    snapshot = lake.catalog.read(lambda db: now(db, lake.catalog.incarnation))
    seen = lake.catalog.read(lambda db: read_partitions(db, lake.lines.dataset_id, snapshot, compacted=True))
    changes = [change for partition in seen for change in partition.changes]
    files = [file for change in changes for file in change.manifest.files]
    merged = [file for change in changes if change.compacts for file in change.manifest.files]
    return Totals(len(seen), len(files), sum(f.bytes for f in files), sum(f.rows for f in files), len(merged))


_numbers = count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_totals_are_those_of_the_partitions_that_a_reader_sees(catalog, steps):
    """A page shows the totals instead of counting, so an error in one commit would stay for ever."""
    lake = make_lake(catalog, name=f"lines_{next(_numbers)}")

    for step in steps:
        (_compact if isinstance(step, set) else _write)(lake, step)

    assert _totals(lake) == _counted(lake)
    assert len(catalog.read(lambda db: compare_totals(db, lake.lines.dataset_id))) == 1


def test_the_audit_finds_totals_that_differ(catalog):
    """Numbers kept beside their source are compared with it, so that an error is found."""
    lake = make_lake(catalog)
    _write(lake, [(1, "append", 2)])
    rows_of(catalog, "UPDATE fileset_total SET files = files + 1 RETURNING 1")

    found = audit(catalog).findings

    assert [one.what for one in found if "totals" in one.what] != []


def test_the_audit_finds_totals_that_are_missing(catalog):
    """A file set without a row of totals would be shown as empty."""
    lake = make_lake(catalog)
    _write(lake, [(1, "append", 2)])
    rows_of(catalog, "DELETE FROM fileset_total RETURNING 1")

    found = audit(catalog).findings

    assert [one.what for one in found if "totals" in one.what] != []
