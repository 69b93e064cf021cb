"""Filters of lists: each row that fits, in the order of the list, and no other."""

from __future__ import annotations

import pytest

from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill import iterate

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text")
orders = app.fileset("orders", keys={"day": "date"})
users = app.snapshot("users", key=["id"])

@app.python(writes=[orders])
def load(run):
    pass

@app.python(writes=[orders])
def sift(run):
    pass

app.schedule("nightly", load, trigger=tm.Cron("30 2 * * *"))

till = tm.App("till", namespace="other")
till.inbox("cash", "cash", format="text")
till.fileset("bills", keys={"day": "date"})
"""
STATES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "KILLED", "REJECTED")


@pytest.fixture
def stage(catalog_url, tmp_path):
    """A project with runs of two programs in each state, an hour apart, some of them by a schedule."""
    with staged(tmp_path, catalog_url, APP) as made:
        catalog = made.mill.project.catalog
        ((schedule_id,),) = rows_of(catalog, "SELECT schedule_id FROM schedule")
        for hour in range(24):
            run_id = made.mill.runs.start("shop.load" if hour % 2 else "shop.sift").run_id
            state = STATES[hour // 2 % 6]
            ended = 1 if state in STATES[2:] else "NULL"
            of = f"'{schedule_id}'" if hour % 3 == 0 else "NULL"
            rows_of(
                catalog,
                f"UPDATE run SET state = '{state}', created_at = {hour * 3_600_000}, ended_at = {ended}, "
                f"schedule_id = {of} WHERE run_id = '{run_id}' RETURNING 1",
            )
        yield made


def hour_of(run):
    """Return the hour in which a run was made."""
    return int(run.created_at.timestamp()) // 3600


def expected(program=None, state=None, schedule=None, since=0, until=24):
    """Return the hours of the runs that fit, newest first."""
    hours = [hour for hour in range(24) if since <= hour < until]
    hours = [hour for hour in hours if program is None or program == ("shop.load" if hour % 2 else "shop.sift")]
    hours = [hour for hour in hours if state is None or state == STATES[hour // 2 % 6]]
    return [hour for hour in hours if schedule is None or hour % 3 == 0][::-1]


@pytest.mark.parametrize("state", [None, *STATES])
def test_runs_are_filtered_by_all_that_a_caller_names(stage, state):
    """Program, state, schedule and time together, and page by page as in one page."""
    for program in (None, "shop.load"):
        for schedule in (None, "shop.nightly"):
            for since, until in ((0, 24), (5, 17)):
                given = {"program": program, "state": state, "schedule": schedule}
                asked = {name: value for name, value in given.items() if value is not None}
                times = {"since": f"1970-01-01T{since:02}:00", "until": f"1970-01-01T{until:02}:00"} if since else {}
                found = list(iterate(stage.mill.runs.list, limit=2, **asked, **times))

                assert list(map(hour_of, found)) == expected(**given, since=since, until=until), asked


def test_transactions_are_filtered_by_state(stage):
    """An aborted one among committed ones is found, and pages go on."""
    for hour in range(3):
        stage.publish("orders", f"day=2026-01-0{hour + 1}")
    states = ["committed", "aborted", "invalid"]
    pointers = [one.write_pointer for one in stage.mill.transactions.list()][::-1]
    catalog = stage.mill.project.catalog
    for pointer, state in zip(pointers, states, strict=True):
        seq = "commit_seq" if state == "committed" else "NULL"
        rows_of(
            catalog, f"UPDATE tx SET state = '{state}', commit_seq = {seq} WHERE write_pointer = {pointer} RETURNING 1"
        )

    for pointer, state in zip(pointers, states, strict=True):
        assert [one.write_pointer for one in stage.mill.transactions.list(state=state)] == [pointer]
    assert list(stage.mill.transactions.list(state="IN_PROGRESS")) == []
    assert len(stage.mill.transactions.list()) == 3


def test_data_sets_are_filtered_by_kind_and_app(stage):
    """Also page by page; an inbox is a data set of its kind, and has a list of its own."""

    def names(operation, **asked):
        return [one.name for one in iterate(operation, limit=1, **asked)]

    datasets, inboxes = stage.mill.datasets.list, stage.mill.inboxes.list
    assert names(datasets) == ["default.orders", "default.raw", "default.users", "other.bills", "other.cash"]
    assert names(datasets, kind="fileset") == ["default.orders", "other.bills"]
    assert names(datasets, kind="SNAPSHOT") == ["default.users"]
    assert names(datasets, app="shop") == ["default.orders", "default.raw", "default.users"]
    assert names(datasets, app="other.till") == ["other.bills", "other.cash"]
    assert names(datasets, kind="inbox", app="other.till") == names(inboxes, app="other.till") == ["other.cash"]
    assert names(inboxes) == ["default.raw", "other.cash"]


def test_a_filter_that_means_nothing_is_refused(stage):
    """An empty list would be read as an answer."""
    for wrong in (
        lambda: stage.mill.runs.list(state="done"),
        lambda: stage.mill.transactions.list(state="done"),
        lambda: stage.mill.datasets.list(kind="table"),
    ):
        with raises_code("bad_filter"):
            wrong()
    with raises_code("bad_filter", r"state 'Complete' is refused: there are PENDING, .*; did you mean 'COMPLETED'\?"):
        stage.mill.runs.list(state="Complete")
    with raises_code("not_found"):
        stage.mill.datasets.list(app="none")
    with raises_code("not_found"):
        stage.mill.runs.list(schedule="shop.none")
    with raises_code("bad_period"):
        stage.mill.runs.list(since="2026-01-02", until="2026-01-01")
