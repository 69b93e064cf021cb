"""The watermark of a file set: where it stands after each commit, and what holds it."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lake.conftest import Lake
from tests.run.conftest import by_hand, rows_of
from tidemill.catalog.db import Catalog
from tidemill.catalog.transactions import EndTransaction, Transaction, TxState, begin
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.window.follow import publish_partitions
from tidemill.lake.window.watermark import (
    EARLIEST,
    LATEST,
    AdvanceWatermark,
    MarkPartitions,
    NotAhead,
    WatermarkChanged,
    WatermarkThere,
    declare_watermark,
    expire_moves,
    find_next_slot,
    find_watermark,
    list_holders,
    list_holes,
    list_incomplete,
    list_moves,
    list_parked,
    list_slots,
    release_due,
    rewind_watermark,
    value_at,
)
from tidemill.lake.window.windows import find_last_commit
from tidemill.names import DatasetId, Namespace, RunId
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.shapes.partition_time import Instant

HOUR = 3_600_000_000
MIDNIGHT = int(datetime(2021, 3, 19, tzinfo=UTC).timestamp()) * 1_000_000
OPTIONS = {
    "streaming-source.enable": "true",
    "partition.time-extractor.timestamp-pattern": "2021-03-19 $hour:00:00",
    "partition.time-interval": "1h",
}
_names = itertools.count()


def hours(value: int | None) -> float | None:
    """An instant as hours of that day."""
    return None if value is None else (value - MIDNIGHT) / HOUR


class Tide(Lake):
    """A file set with a watermark; partitions are hours of one day."""

    def declare(self, options: dict[str, str] | None, keys: dict[str, str] | None = None) -> Fileset:
        """Declare the watermark, or declare it again."""
        spec: dict[str, object] = {"keys": keys or {"hour": "int"}}
        if options is not None:
            spec["watermark"] = {"column": "ts", "options": {**OPTIONS, **options}}
        old = self.lines.dataset

        def block(db):
            db.tick()
            dataset = declare(
                db, Dataset(old.dataset_id, Namespace("default"), old.name, DatasetKind.FILESET, old.location, spec)
            )
            fileset = Fileset.of(dataset)
            declare_watermark(db, fileset, "test")
            return fileset

        self.lines = self.catalog.write(block)
        return self.lines

    @property
    def value(self) -> float | None:
        """W, in hours."""
        row = self.catalog.read(lambda db: find_watermark(db, self.lines.dataset_id))
        return None if row is None else hours(row.value)

    @property
    def moves(self) -> list[float | None]:
        """All values of W, oldest first."""
        found = self.catalog.read(lambda db: list_moves(db, self.lines.dataset_id, 100))
        return [hours(move.value) for move in reversed(found)]

    def messages(self) -> list[dict]:
        """Return the messages about the watermark."""
        key = f"watermark:{self.lines.qualified_name}"
        found = rows_of(self.catalog, f"SELECT payload FROM message WHERE event_key = '{key}' ORDER BY seq, n")
        return [json.loads(payload) for (payload,) in found]

    def span(self, first: int | None, last: int | None) -> Transaction:
        """A transaction that has declared to write these hours."""
        low = EARLIEST if first is None else MIDNIGHT + first * HOUR
        high = LATEST if last is None else MIDNIGHT + last * HOUR
        dataset_id = self.lines.dataset_id
        run_id = RunId(f"run_{next(self.runs)}")
        return begin(self.catalog, run_id=run_id, epoch=1, writes=[dataset_id], spans={dataset_id: (low, high)})


def make_tide(catalog: Catalog, options: dict[str, str] | None = None, keys: dict[str, str] | None = None) -> Tide:
    """A new file set with a watermark in `catalog`."""
    name = f"lines{next(_names)}"
    dataset = Dataset(
        DatasetId(f"ds_{name}"), Namespace("default"), name, DatasetKind.FILESET, f"file:///lake/{name}", {"keys": keys}
    )
    tide = Tide(catalog, Fileset(dataset, None))  # type: ignore[arg-type]
    tide.declare(options or {}, keys)
    return tide


@pytest.fixture
def tide(catalog: Catalog) -> Tide:
    """A file set with a watermark, on each database."""
    return make_tide(catalog)


def test_the_commit_of_an_hour_moves_the_watermark_to_its_end(tide):
    """The seed's example: with pt_hour=10 all rows before 11:00 have arrived, and no row of hour 11 is needed."""
    tide.publish(10)

    assert tide.value == 11
    assert tide.messages() == [
        {
            "dataset": tide.lines.qualified_name,
            "zone": "UTC",
            "from": None,
            "to": MIDNIGHT + 11 * HOUR,
            "since": MIDNIGHT + 10 * HOUR,
        },
    ]


def test_a_move_names_the_zone_of_the_windows(catalog):
    """Triggers count periods on its wall clock."""
    tide = make_tide(catalog, {"partition.time-zone": "Asia/Kolkata", "window.time-zone": "Europe/Berlin"})
    tide.publish(10)

    assert [message["zone"] for message in tide.messages()] == ["Europe/Berlin"]


def test_it_never_goes_back(tide):
    """A late hour is late."""
    for hour in (10, 8, 10, 12):
        tide.publish(hour)

    assert tide.moves == [11, 13]
    assert [(m["from"] and hours(m["from"]), hours(m["to"])) for m in tide.messages()] == [
        (None, 11),
        (11, 13),
    ]


def test_under_wait_a_hole_holds_it(catalog):
    """Slots are taken in order, several at a time."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait"})

    values = []
    for hour in (8, 10, 11, 9, 12):
        tide.publish(hour)
        values.append(tide.value)

    assert values == [9, 9, 9, 12, 13]
    assert tide.catalog.read(lambda db: list_holes(db, tide.lines.dataset_id, 10)) == []


def test_the_times_that_a_quiet_commit_frees_are_announced_with_the_next_move(catalog):
    """A quiet run fills the hole that held the hours of other runs: their ends would never be announced."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait"})
    for hour in (8, 10):
        tide.publish(hour)
    tx = tide.begin()
    tide.commit(tx, effects=tide.publishing(tx, tide.write(9), quiet=True))
    quietly = tide.value
    tide.publish(11)

    assert (quietly, tide.value) == (11, 12)
    assert [(m["from"] and hours(m["from"]), hours(m["to"])) for m in tide.messages()] == [(None, 9), (9, 12)]


def let_an_hour_pass(tide, *hours):
    """Have time slots completed an hour ago, and the keeper look at what is due."""
    times = ", ".join(str(MIDNIGHT + hour * HOUR) for hour in hours)
    aged = by_hand(f"UPDATE time_slot SET completed_at = completed_at - 3600000 WHERE slot_time IN ({times})")
    due = by_hand("UPDATE watermark SET next_check_at = 1 WHERE next_check_at IS NOT NULL")
    tide.catalog.write(lambda db: (db.run(aged), db.run(due)))
    release_due(tide.catalog)


def test_a_hole_counts_as_empty_when_it_has_been_waited_for_an_hour(catalog):
    """From the moment at which a later hour is complete. A second hole has a time of its own."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait(1h)"})
    for hour in (8, 10, 12):
        tide.publish(hour)
    at_once = tide.value, release_due(catalog)
    (completed,), (due,) = (
        rows_of(catalog, f"SELECT completed_at FROM time_slot WHERE slot_time = {MIDNIGHT + 10 * HOUR}")[0],
        rows_of(catalog, "SELECT next_check_at FROM watermark")[0],
    )

    let_an_hour_pass(tide, 10)
    first = tide.value
    tide.publish(9)
    late = tide.value
    let_an_hour_pass(tide, 12)
    holes = tide.catalog.read(lambda db: list_holes(db, tide.lines.dataset_id, 10))

    assert at_once == (9, 0)
    assert due == completed + 3_600_000
    assert (first, late, tide.value) == (11, 11, 13)
    assert [hours(hole) for hole in holes] == [11]
    assert rows_of(catalog, "SELECT next_check_at FROM watermark") == [(None,)]


def test_a_hole_is_waited_for_from_the_time_at_which_a_later_hour_had_been_quiet(catalog):
    """An hour that comes into being and one that is complete are two moments."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait(1h)", "partition.completeness": "delay(1h)"})
    for hour in (8, 10):
        tide.publish(hour)
    tide.catalog.write(lambda db: db.run(by_hand("UPDATE slot_wait SET due_at = 1")))
    release_due(catalog)
    quiet = tide.value
    (completed,), (due,) = (
        rows_of(catalog, f"SELECT completed_at FROM time_slot WHERE slot_time = {MIDNIGHT + 10 * HOUR}")[0],
        rows_of(catalog, "SELECT next_check_at FROM watermark")[0],
    )

    let_an_hour_pass(tide, 10)

    assert (quiet, tide.value) == (9, 11)
    assert completed is not None
    assert due == completed + 3_600_000


def test_an_hour_that_lacks_a_partition_is_no_hole(catalog):
    """The watermark passes the hole and stops at the begin of the hour that is waited for by name."""
    options = {"partition.gap-policy": "wait(1h)", "partition.expected-count": "2"}
    tide = make_tide(catalog, options, {"hour": "int", "region": "string"})

    def publish(hour: int, *regions: str) -> float | None:
        for region in regions:
            file = DataFile(f"1/{next(tide.files)}.parquet", 1, 1, "etag")
            key = tide.lines.keys.check({"hour": hour, "region": region})
            tide.commit(tide.begin(), PartitionWrite(key, WriteOp.APPEND, Manifest((file,))))
        return tide.value

    values = [publish(8, "eu", "us"), publish(10, "eu"), publish(11, "eu", "us")]
    let_an_hour_pass(tide, 11)
    passed = tide.value

    assert (values, passed) == ([9, 9, 9], 10)
    assert publish(10, "us") == 12


def test_holes_are_listed_under_every_policy(tide):
    """Skipped is not forgotten."""
    for hour in (8, 10, 13):
        tide.publish(hour)

    holes = tide.catalog.read(lambda db: list_holes(db, tide.lines.dataset_id, 10))

    assert [hours(hole) for hole in holes] == [11, 9]


def test_rows_may_lag(catalog):
    """With a lag of rows, what is complete ends earlier."""
    tide = make_tide(catalog, {"partition.row-lag": "15 min"})

    tide.publish(10)

    assert tide.value == 10.75


@pytest.mark.parametrize(
    "options", [{"partition.expected.region": "eu, us"}, {"partition.expected-count": "2"}], ids=["list", "count"]
)
def test_a_slot_of_several_partitions_waits_for_all(catalog, options):
    """Hour by region: the seed would move W after the first."""
    tide = make_tide(catalog, options, {"hour": "int", "region": "string"})

    def publish(hour: int, region: str) -> float | None:
        file = DataFile(f"1/{next(tide.files)}.parquet", 1, 1, "etag")
        key = tide.lines.keys.check({"hour": hour, "region": region})
        tide.commit(tide.begin(), PartitionWrite(key, WriteOp.APPEND, Manifest((file,))))
        return tide.value

    values = [publish(10, "eu"), publish(10, "eu"), publish(11, "us"), publish(10, "us"), publish(11, "eu")]
    incomplete = tide.catalog.read(lambda db: list_incomplete(db, tide.lines.dataset_id, 10))

    assert values == [None, None, None, 11, 12]
    assert incomplete == []


def test_a_partition_that_was_dropped_completes_no_slot(catalog):
    """Another partition of the same region stands in for it, but none whose region only has other capital letters."""
    keys = {"hour": "int", "region": "string", "source": "string"}
    tide = make_tide(catalog, {"partition.expected.region": "e_u, us"}, keys)

    def publish(hour: int, region: str, source: str, op: WriteOp = WriteOp.APPEND) -> float | None:
        file = DataFile(f"1/{next(tide.files)}.parquet", 1, 1, "etag")
        key = tide.lines.keys.check({"hour": hour, "region": region, "source": source})
        manifest = Manifest((file,) if op is WriteOp.APPEND else ())
        tide.commit(tide.begin(), PartitionWrite(key, op, manifest))
        return tide.value

    for hour, other in ((10, "ezu"), (11, "e_u"), (12, "E_U")):
        publish(hour, "e_u", "a")
        publish(hour, other, "b")
        publish(hour, "e_u", "a", WriteOp.DROP)
    values = [publish(10, "us", "a"), publish(10, "e_u", "b"), publish(11, "us", "a"), publish(12, "us", "a")]

    assert values == [None, 11, 12, 12]


def test_a_partition_that_is_not_expected_holds_no_slot(catalog):
    """A slot waits for the markers of the partitions that it names, and for no other marker."""
    options = {"partition.expected.region": "eu, us", "partition.completeness": "success-file"}
    tide = make_tide(catalog, options, {"hour": "int", "region": "string"})

    def publish(hour: int, region: str, *, marked: bool) -> float | None:
        file = DataFile(f"1/{next(tide.files)}.parquet", 1, 1, "etag")
        key = tide.lines.keys.check({"hour": hour, "region": region})
        tide.commit(tide.begin(), PartitionWrite(key, WriteOp.APPEND, Manifest((file,)), lacks_marker=not marked))
        return tide.value

    ten = [publish(10, "asia", marked=False), publish(10, "eu", marked=True), publish(10, "us", marked=True)]
    eleven = [publish(11, "eu", marked=False), publish(11, "us", marked=True), publish(11, "eu", marked=True)]

    assert (ten, eleven) == ([None, None, 11], [11, 11, 12])


def test_a_partition_without_a_time_is_parked_and_blocks_no_other(catalog):
    """Such a partition is listed. A corrected pattern gives it a time."""
    tide = make_tide(catalog)
    tide.publish(25)
    tide.publish(9)

    parked = tide.catalog.read(lambda db: list_parked(db, tide.lines, 10))
    value = tide.value
    tide.declare({"partition.time-extractor.timestamp-pattern": "2021-03-20 0:00:$hour"})

    assert tide.hours([type("P", (), {"partition_key": key}) for key in parked]) == [25]
    assert value == 10
    assert tide.catalog.read(lambda db: list_parked(db, tide.lines, 10)) == []
    assert tide.value == 25 + 25 / 3600


def test_an_open_transaction_holds_it_where_it_has_declared_to_write(tide):
    """A declared time is still to come. The end of its transaction releases the watermark, with or without a commit."""
    slow = tide.span(9, 10)
    undeclared = tide.begin()
    for hour in (8, 10, 11):
        tide.publish(hour)
    held = tide.value
    holders = tide.catalog.read(lambda db: list_holders(db, tide.lines.dataset_id))

    tide.commit(slow, tide.write(9))

    assert held == 9
    assert [holder.write_pointer for holder in holders] == [slow.write_pointer]
    assert tide.value == 12
    assert undeclared.write_pointer not in {holder.write_pointer for holder in holders}


@pytest.mark.parametrize("state", [TxState.ABORTED, TxState.INVALID])
def test_the_keeper_releases_what_an_end_without_commit_held(tide, state):
    """The process that ends a transaction knows nothing of watermarks."""
    slow = tide.span(None, None)
    tide.publish(10)
    before = tide.value, release_due(tide.catalog)

    tide.catalog.apply([EndTransaction(slow.write_pointer, state, "test")])
    looked = release_due(tide.catalog)

    assert before == (None, 0)
    assert looked == 1
    assert tide.value == 11
    assert release_due(tide.catalog) == 0


def test_what_lies_behind_it_already_holds_nothing(tide):
    """A back-fill of last year does not stop today."""
    tide.publish(10)
    tide.span(3, 5)

    tide.publish(11)

    assert tide.value == 12


def test_a_partition_of_a_far_future_does_not_close_today(catalog):
    """A partition of 2099 by mistake would make all earlier ones late for ever."""
    tide = make_tide(catalog, {"partition.time-extractor.timestamp-pattern": "20$hour-01-01"})
    tide.publish(21)
    tide.publish(99)

    row = tide.catalog.read(lambda db: find_watermark(db, tide.lines.dataset_id))

    assert row.value == int(datetime(2021, 1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    due = datetime(2099, 1, 1, tzinfo=UTC)
    assert timedelta(0) <= row.next_check_at - due <= timedelta(milliseconds=1)
    assert release_due(tide.catalog) == 0


def test_a_slot_ahead_of_the_clock_counts_once_its_time_has_come(catalog):
    """The keeper looks again when it is due, not before."""
    now = int(rows_of(catalog, "SELECT tidemill_now()")[0][0]) * 1000
    ahead = datetime.fromtimestamp((now + 2 * HOUR) / 1_000_000, UTC)
    pattern = f"{ahead:%Y-%m-%d %H}:00:0$hour"
    tide = make_tide(catalog, {"partition.time-extractor.timestamp-pattern": pattern, "partition.time-interval": "1 s"})
    tide.publish(1)
    before = tide.value, release_due(catalog)

    statement = by_hand("UPDATE watermark SET max_ahead = 10800000000, next_check_at = 1")
    catalog.write(lambda db: db.run(statement))
    released = release_due(catalog)

    assert before == (None, 0)
    assert released == 1
    assert tide.value is not None


def test_a_write_by_an_old_declaration_is_refused(tide):
    """Its partitions' times may be others now; nothing of it is published."""
    tx = tide.begin()
    effects = tide.publishing(tx, tide.write(10))

    tide.declare({"partition.time-extractor.timestamp-pattern": "2021-03-20 $hour:00:00"})

    with pytest.raises(WatermarkChanged):
        tide.catalog.apply(effects)


def test_a_watermark_comes_to_what_is_there_and_goes(tide):
    """ADD on a table with partitions counts them; DROP forgets; a change of policy keeps W."""
    tide.declare(None)
    tide.publish(10)
    without = tide.value

    tide.declare({})
    added = tide.value
    tide.declare({"partition.gap-policy": "wait"})
    tide.publish(11)

    assert without is None
    assert added == 11
    assert tide.value == 12


def test_a_watermark_that_waits_from_now_on_goes_on_from_where_it_stands(tide):
    """The watermark has passed a hole under the old policy, and the new policy would hold it there for good."""
    for hour in (8, 10):
        tide.publish(hour)

    tide.declare({"partition.gap-policy": "wait"})
    values = []
    for hour in (12, 11):
        tide.publish(hour)
        values.append(tide.value)

    assert values == [11, 13]


def test_an_advance_gives_up_the_hours_that_hold_the_watermark(catalog):
    """Hour 9 is lost for good: the hours after it move the watermark again."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait"})
    for hour in (8, 10):
        tide.publish(hour)
    value = Instant(MIDNIGHT + 11 * HOUR)

    next_time = catalog.read(lambda db: find_next_slot(db, tide.lines, value))
    catalog.apply([AdvanceWatermark(tide.lines, value, "by hand: anna", next_time)])
    values = []
    for hour in (12, 11):
        tide.publish(hour)
        values.append(tide.value)

    assert values == [11, 13]


def test_an_advance_passes_what_is_complete_beyond_the_hole(catalog):
    """Hour 9 is lost for good, and no hour after 10 may come for a while: nothing else would move the watermark."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait"})
    for hour in (8, 10):
        tide.publish(hour)
    value = Instant(MIDNIGHT + 10 * HOUR)
    next_time = catalog.read(lambda db: find_next_slot(db, tide.lines, value))

    catalog.apply([AdvanceWatermark(tide.lines, value, "by hand: anna", next_time)])
    release_due(catalog)

    assert tide.value == 11


def test_a_rewind_after_an_advance_waits_again_for_what_was_given_up(catalog):
    """The advance was a mistake: hours 9 and 10 come as always."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait"})
    tide.publish(8)
    value = Instant(MIDNIGHT + 20 * HOUR)
    next_time = catalog.read(lambda db: find_next_slot(db, tide.lines, value))
    catalog.apply([AdvanceWatermark(tide.lines, value, "by hand: anna", next_time)])

    rewind(tide, 9)
    values = []
    for hour in (10, 9):
        tide.publish(hour)
        values.append(tide.value)

    assert values == [9, 11]


def test_each_commit_to_a_table_is_its_last_and_a_move_by_the_keeper_is_none(catalog):
    """An empty hour and a marker change no partition. From the last commit on counts the time until a table is idle."""
    tide = make_tide(catalog)
    nine = Instant(MIDNIGHT + 9 * HOUR)
    slots = catalog.read(lambda db: list_slots(db, tide.lines, [], nine, Instant(nine + HOUR)))

    def has_committed(act) -> bool:
        catalog.write(lambda db: db.run(by_hand("UPDATE watermark SET committed_at = 1")))
        act()
        return catalog.read(lambda db: find_last_commit(db, tide.lines.dataset_id)) > datetime(2000, 1, 1, tzinfo=UTC)

    def hold() -> None:
        catalog.write(lambda db: db.run(by_hand("UPDATE watermark SET value = value - 1")))
        release_due(catalog)

    empty = publish_partitions(tide.begin(), tide.lines, [], None, frozenset(), completes=slots)
    commits = [
        partial(tide.publish, 8),
        partial(catalog.apply, empty),
        partial(tide.publish, 8, "drop"),
        partial(catalog.apply, [MarkPartitions(tide.lines, [])]),
        hold,
        partial(tide.declare, {"partition.gap-policy": "wait"}),
    ]

    assert [has_committed(act) for act in commits] == [True, True, True, True, False, False]
    assert tide.value == 10
    tide.declare(None)
    tide.declare({})
    assert rows_of(catalog, "SELECT committed_at FROM watermark") == rows_of(
        catalog, "SELECT max(at) FROM partition_change"
    )


@pytest.mark.parametrize("change", [{"watermark.max-ahead": "2h"}, {"partition.row-lag": "30 min"}])
def test_hours_that_a_declared_span_has_completed_stay_complete(catalog, change):
    """No partition says so: another policy must not make holes of them, which would hold the watermark for good."""
    tide = make_tide(catalog, {"partition.gap-policy": "wait"})
    tide.publish(8)
    nine = Instant(MIDNIGHT + 9 * HOUR)
    slots = catalog.read(lambda db: list_slots(db, tide.lines, [], nine, Instant(nine + HOUR)))
    catalog.apply(publish_partitions(tide.begin("run_span"), tide.lines, [], None, frozenset(), completes=slots))
    before = tide.value

    tide.declare({"partition.gap-policy": "wait", **change})
    tide.publish(10)

    assert before == 10
    assert tide.value == (10.5 if "partition.row-lag" in change else 11)


def test_another_reading_of_time_recomputes_it_backwards_too(tide):
    """A wrong zone was eleven hours ahead. With the right zone, the complete slots are found and announced."""
    right = {"partition.time-zone": "Asia/Dubai"}
    tide.declare(right)
    tide.publish(10)
    right_value = tide.value
    tide.declare({"partition.time-zone": "America/Los_Angeles"})
    ahead = tide.value
    tide.declare(right)

    back = tide.catalog.read(lambda db: list_moves(db, tide.lines.dataset_id, 1))[0]
    assert (right_value, ahead, tide.value) == (7, 18, 7)
    assert (hours(back.previous), hours(back.value)) == (18, 7)
    assert [(m["from"] and hours(m["from"]), hours(m["to"])) for m in tide.messages()] == [(None, 7), (7, 18), (18, 7)]
    tide.publish(11)
    assert tide.value == 8


def test_a_reading_by_which_no_partition_has_a_time_leaves_none(tide):
    """All partitions are parked: nothing is complete, and the next reading begins from there."""
    tide.publish(10)
    tide.declare({"partition.time-extractor.timestamp-pattern": "$hour"})
    none = tide.value
    tide.declare({})

    assert none is None
    assert tide.moves == [11, None, 11]
    assert tide.messages()[1]["to"] is None


def test_a_change_that_is_not_about_time_never_moves_it_back(catalog):
    """W under `skip` has passed a hole; `wait` begins where W stands."""
    tide = make_tide(catalog)
    for hour in (8, 10):
        tide.publish(hour)

    tide.declare({"partition.gap-policy": "wait"})
    tide.declare({"partition.gap-policy": "wait", "partition.late-policy": "drop"})

    assert tide.moves == [9, 11]


def test_an_open_transaction_holds_another_reading_too(tide):
    """The declared span is still to come."""
    tide.span(9, 10)
    for hour in (8, 10):
        tide.publish(hour)

    tide.declare({"partition.row-lag": "30 min"})

    assert tide.moves == [9, 8.5]


def rewind(tide: Tide, hour: int) -> None:
    """Move W back by hand."""
    instant = Instant(MIDNIGHT + hour * HOUR)

    def block(db):
        db.tick()
        rewind_watermark(db, tide.lines, instant, "by hand: anna")

    tide.catalog.write(block)


@pytest.mark.parametrize("gap", ["skip", "wait"])
def test_by_hand_it_goes_back_and_on_with_what_comes_then(catalog, gap):
    """The slots beyond count again when a commit brings them; nothing moves it before that."""
    tide = make_tide(catalog, {"partition.gap-policy": gap})
    for hour in (8, 9, 10, 11):
        tide.publish(hour)

    rewind(tide, 10)
    released = release_due(catalog)
    tide.publish(8)
    stays = tide.value
    tide.publish(10)

    assert released == 0
    assert stays == 10
    assert tide.moves == [9, 10, 11, 12, 10, 11]
    assert hours(tide.messages()[-2]["to"]) == 10
    assert [move.cause for move in catalog.read(lambda db: list_moves(db, tide.lines.dataset_id, 2))][
        1
    ] == "by hand: anna"


def test_an_advance_by_mistake_is_taken_back(tide):
    """The counterpart of `advance`; what stands there already, or behind, is refused."""
    tide.publish(10)
    tide.catalog.apply([AdvanceWatermark(tide.lines, Instant(MIDNIGHT + 100 * HOUR), "by hand: anna")])

    rewind(tide, 11)

    assert tide.value == 11
    for hour in (11, 12):
        with pytest.raises(NotAhead, match="stands at"):
            rewind(tide, hour)
    tide.publish(11)
    assert tide.value == 12


def test_by_hand_it_goes_forward_only(tide):
    """The record names the person."""
    tide.publish(10)
    noon = Instant(MIDNIGHT + 12 * HOUR)

    tide.catalog.apply([AdvanceWatermark(tide.lines, noon, "by hand: anna")])

    assert tide.value == 12
    assert tide.catalog.read(lambda db: list_moves(db, tide.lines.dataset_id, 1))[0].cause == "by hand: anna"
    assert len(tide.messages()) == 2
    with pytest.raises(WatermarkThere):
        tide.catalog.apply([AdvanceWatermark(tide.lines, noon, "by hand: anna")])


def test_old_moves_are_forgotten_but_for_what_a_reader_may_ask_for(tide):
    """The history grows with each commit; where it stands, and stood for open transactions, stays known."""
    for hour in (8, 9):
        tide.publish(hour)
    tx = tide.begin()
    for hour in (10, 11):
        tide.publish(hour)

    expire_moves(tide.catalog, timedelta(days=1))
    young = tide.moves
    expire_moves(tide.catalog, -timedelta(days=1))
    held = tide.moves
    seen = tide.catalog.read(lambda db: value_at(db, tide.lines.dataset_id, tx.write_pointer))
    tide.catalog.apply([EndTransaction(tx.write_pointer, TxState.ABORTED, "given up")])
    expire_moves(tide.catalog, -timedelta(days=1))

    assert young == held == [9, 10, 11, 12]
    assert hours(seen) == 10
    assert tide.moves == [12]
    assert tide.value == 12


def test_a_transaction_sees_it_as_it_stood_at_its_begin(tide):
    """With a later W it would compute windows whose last partitions it cannot see."""
    tide.publish(10)
    tx = tide.begin()
    tide.publish(11)

    seen = tide.catalog.read(lambda db: value_at(db, tide.lines.dataset_id, tx.write_pointer))

    assert hours(seen) == 11


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sets(st.integers(0, 12), min_size=1, max_size=3)),
        st.tuples(st.just("span"), st.tuples(st.integers(0, 12), st.integers(1, 4))),
        st.tuples(st.just("commit"), st.integers(0, 5)),
        st.tuples(st.just("abort"), st.integers(0, 5)),
        st.tuples(st.just("keep"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["skip", "wait"]), EVENTS)
def test_it_stands_where_the_definition_says(catalog, gap, events):  # noqa: C901  # five kinds of events
    """Slots in ascending order, never past a holder, never back: in every order of commits, spans and ends."""
    tide = make_tide(catalog, {"partition.gap-policy": gap})
    complete: set[int] = set()
    first: list[int] = []
    spans: list[tuple[Transaction, int, int]] = []
    value = -1

    def settled(now: int) -> int:
        """The definition."""
        if not complete:
            return now
        if gap == "skip":
            target = max(complete) + 1
        else:
            target = next(hour for hour in itertools.count(first[0]) if hour not in complete)
        held = [low for _, low, high in spans if high > now]
        return max(now, min([target, *held]))

    for event, what in events:
        if event == "publish":
            tide.commit(tide.begin(), *(tide.write(hour) for hour in what))
            complete |= what
            first = first or [min(what)]
            value = settled(value)
        elif event == "span":
            low, length = what
            spans.append((tide.span(low, low + length), low, low + length))
        elif event == "commit" and what < len(spans):
            tx, low, _ = spans.pop(what)
            tide.commit(tx, tide.write(low))
            complete.add(low)
            first = first or [low]
            value = settled(value)
        elif event == "abort" and what < len(spans):
            tide.end(spans.pop(what)[0])
        elif event == "keep":
            release_due(tide.catalog)
            value = settled(value)
        assert tide.value == (None if value < 0 else value)
    for tx, _, _ in spans:
        tide.end(tx)
    spans.clear()
    release_due(tide.catalog)
    assert tide.value == (None if not complete else settled(value))
    assert tide.moves == sorted(set(tide.moves))
