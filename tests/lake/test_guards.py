"""Guards of a refresh, and retention of versions: tables, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.epoch import EPOCH
from tidemill.json_specs import read_text, write_text
from tidemill.lake.snapshot.guards import (
    BadGuard,
    ColumnPolicy,
    Figures,
    Guard,
    Guards,
    RefreshRefused,
    find_refusals,
    parse_allowed,
)
from tidemill.lake.snapshot.snapshot import SnapshotSpec
from tidemill.lake.snapshot.version_retention import BadRetention, Kept, Retention, decide_kept

DAY = timedelta(days=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def columns(**types):
    """Columns as Spark's JSON."""
    import json

    return json.dumps({"type": "struct", "fields": [{"name": n, "type": t} for n, t in types.items()]})


ID = columns(id="long")


@pytest.mark.parametrize(
    ("guards", "before", "after", "refused"),
    [
        (Guards(), None, Figures(0, ID), [Guard.EMPTY]),
        (Guards(), Figures(9, ID), Figures(0, ID), [Guard.EMPTY]),
        (Guards(allow_empty=True), Figures(9, ID), Figures(0, ID), []),
        (Guards(), None, Figures(1, ID), []),
        (Guards(), Figures(0, ID), Figures(1, ID), []),
        (Guards(), Figures(100, ID), Figures(50, ID), []),
        (Guards(), Figures(100, ID), Figures(49, ID), [Guard.DROP]),
        (Guards(max_drop=None), Figures(100, ID), Figures(1, ID), []),
        (Guards(max_drop=0.0), Figures(100, ID), Figures(99, ID), [Guard.DROP]),
        (Guards(), Figures(100, ID), Figures(100_000, ID), []),
        (Guards(max_growth=1.0), Figures(100, ID), Figures(200, ID), []),
        (Guards(max_growth=1.0), Figures(100, ID), Figures(201, ID), [Guard.GROWTH]),
        (Guards(), Figures(1, ID), Figures(1, columns(other="string")), []),
        (Guards(schema=ColumnPolicy.ADD), Figures(1, ID), Figures(1, columns(name="string", id="long")), []),
        (Guards(schema=ColumnPolicy.ADD), Figures(1, ID), Figures(1, columns(id="int")), [Guard.SCHEMA]),
        (Guards(schema=ColumnPolicy.ADD), Figures(1, ID), Figures(1, columns(name="string")), [Guard.SCHEMA]),
        (Guards(schema=ColumnPolicy.FAIL), Figures(1, ID), Figures(1, columns(id="long", x="int")), [Guard.SCHEMA]),
        (Guards(schema=ColumnPolicy.FAIL), None, Figures(1, ID), []),
        (Guards(), None, Figures(3, ID, null_keys=1), [Guard.KEY]),
        (Guards(), None, Figures(3, ID, duplicate_keys=1), [Guard.KEY]),
        (Guards(), None, Figures(3, ID, broken_checks={"positive": 2, "named": 0}), [Guard.CHECK]),
    ],
)
def test_a_guard_refuses_what_it_is_for(guards, before, after, refused):
    """A source that is empty by mistake must not replace what is good (seed 002 mirrors deletions, too)."""
    assert [guard for guard, _ in find_refusals(guards, before, after)] == refused
    assert find_refusals(guards, before, after, allowed=refused) == []


def test_a_refusal_says_what_to_set_to_allow_it_once():
    """Half of all rows may really have been deleted: then a person says so, for this run."""
    refusals = find_refusals(Guards(), Figures(100, ID), Figures(7, ID))

    error = RefreshRefused("default.users", refusals, 12)

    assert str(error) == (
        "the refresh of default.users is refused, version 12 stays: 7 rows after 100 is a drop of 93%, more than 50%. "
        "To let it pass once, start the run with --arg allow=drop"
    )
    assert parse_allowed("drop, empty") == {Guard.DROP, Guard.EMPTY}
    assert parse_allowed("") == frozenset()
    with pytest.raises(BadGuard, match=r"allow=dropp is refused: there is no such guard; did you mean 'drop'\?"):
        parse_allowed("dropp")


@pytest.mark.parametrize("share", [-0.1, 1.1, True])
def test_a_share_that_cannot_be_is_refused(share):
    """50 would be meant as a half, and let nothing be refused."""
    with pytest.raises(BadGuard, match="use a share from 0 to 1"):
        Guards(max_drop=share)


def kept(retention, ages_in_days, *, current=0, readers=()):
    """Return which versions of these ages, newest first, are kept."""
    versions = [
        Kept(100 - place, NOW - age * DAY, place == current, ("run_1",) if place in readers else ())
        for place, age in enumerate(ages_in_days)
    ]
    decided = decide_kept(versions, retention, NOW)
    return [place for place, version in enumerate(versions) if decided[version.version]]


@pytest.mark.parametrize(
    ("retention", "ages", "expected"),
    [
        (Retention(), [1, 6, 8, 9], [0, 1]),
        (Retention(ttl=None), [1, 6, 800], [0, 1, 2]),
        (Retention(min_versions=3), [1, 8, 9, 10], [0, 1, 2]),
        (Retention(max_versions=2), [1, 2, 3], [0, 1]),
        (Retention(ttl=None, max_versions=1), [1, 2, 3], [0]),
        (Retention(ttl=timedelta(days=2), min_versions=2, max_versions=3), [1, 1, 1, 1], [0, 1, 2]),
        (Retention(ttl=timedelta(days=2), min_versions=2, max_versions=3), [5, 6, 7, 8], [0, 1]),
    ],
)
def test_time_to_live_and_both_numbers_hold_together(retention, ages, expected):
    """None of them alone is enough (seed 002, consequences)."""
    assert kept(retention, ages) == expected


def test_a_pipeline_that_stops_does_not_lose_its_last_version():
    """Seed 002: with a time to live alone, all data of a stopped adapter would be deleted."""
    assert kept(Retention(ttl=timedelta(days=1)), [400, 401, 402]) == [0]


def test_a_schedule_slower_than_the_time_to_live_always_has_a_version_to_read():
    """Seed 002: if the adapter runs less often than the time to live, there would be no data at some time beyond."""
    monthly = Retention(ttl=timedelta(days=1))

    assert all(kept(monthly, [age, age + 30]) == [0] for age in (0.5, 2, 29))


def test_what_a_run_reads_is_kept_and_names_the_reader():
    """A version with a reader is kept, whatever retention says."""
    assert kept(Retention(max_versions=1), [1, 2, 3], readers=[2]) == [0, 2]
    decided = decide_kept([Kept(8, EPOCH, True), Kept(7, EPOCH, False, ("run_1",))], Retention(), NOW)
    assert decided == {7: ("run_1",), 8: ("current", "min_versions=1")}


@given(
    st.builds(
        lambda ttl, least, more: Retention(
            None if ttl is None else timedelta(days=ttl), least, None if more is None else least + more
        ),
        st.none() | st.integers(0, 20),
        st.integers(1, 5),
        st.none() | st.integers(0, 5),
    ),
    st.lists(st.integers(0, 40), min_size=1, max_size=12).map(sorted),
    st.integers(0, 3),
)
def test_no_retention_loses_what_is_current_or_the_least_number(retention, ages, current):
    """The current version is kept under all settings, also when an older refresh is current."""
    current = min(current, len(ages) - 1)

    left = kept(retention, ages, current=current)

    assert current in left
    assert set(range(min(retention.min_versions, len(ages)))) <= set(left)
    if retention.max_versions is not None:
        assert set(left) <= {current, *range(retention.max_versions)}


@pytest.mark.parametrize(
    "options",
    [{"min_versions": 0}, {"max_versions": 0}, {"min_versions": 3, "max_versions": 2}, {"min_versions": True}],
)
def test_a_retention_that_cannot_be_is_refused(options):
    """A bad retention is refused at its declaration, not weeks later."""
    with pytest.raises(BadRetention, match="versions"):
        Retention(**options)


def test_what_is_declared_comes_back_from_the_catalog():
    """The janitor and the driver read it there."""
    spec = SnapshotSpec(
        ("id",), Retention(timedelta(hours=5), 2, 9), Guards(True, None, 3.0, ColumnPolicy.ADD, True, {"a": "x > 0"})
    )

    assert read_text(SnapshotSpec, write_text(spec)) == spec
