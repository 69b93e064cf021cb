"""Lists of a caller of one namespace: its own rows in pages, whatever stands between them, at the cost of a page."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.stage import staged
from tidemill.mill.access import Access, Role
from tidemill.mill.page import iterate
from tidemill.mill.project import Noun

APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})

@app.python(reads=[orders])
def sift(run):
    pass

@app.python()
def broken(run):
    raise ValueError("no")

app.schedule("on_orders", sift, trigger=tm.NewPartitions(orders, 9))
"""
SERIES = "WITH RECURSIVE series(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i < 2499)"


@pytest.fixture
def stage(catalog_url, tmp_path):
    """A project with two runs and a job of `default`, between 2,500 rows of each kind of `a` and of `z`."""
    with staged(tmp_path, catalog_url, APP) as opened:
        opened.publish("orders", "day=2026-01-01")
        opened.schedule()
        for program in ("shop.broken", "shop.sift"):
            opened.mill.runs.start(program)
            opened.play()
        for other in ("a", "z"):
            _crowd(opened, other)
        yield opened


def _crowd(stage, namespace):
    def fill(table: str, columns: str, values: str) -> None:
        stage.sql(f"INSERT INTO {table} ({columns}) {SERIES} SELECT {values} FROM series RETURNING 1")

    name = f"'{namespace}' || i"
    spec = "(SELECT spec FROM schedule WHERE schedule.name = 'on_orders')"
    fill(
        "run",
        "run_id, kind, namespace, state, arguments, triggered_by, created_at, ended_at",
        f"'run_{namespace}' || i, 'program', '{namespace}', 'FAILED', '{{}}', '{{}}', 4000000000000 + i, 1",
    )
    fill(
        "schedule",
        "schedule_id, namespace, app, name, generation, created_seq, since_seq, since_at, program_id, spec, owner, "
        "status",
        f"{name}, '{namespace}', 'x', {name}, 1, 1, 1, 1, 'p', {spec}, 'app', 'SCHEDULED'",
    )
    fill(
        "job",
        "job_id, schedule_id, generation, state, created_at, progress",
        f"'job_0' || {name}, {name}, 1, 'PENDING_TRIGGER', 1, '{{}}'",
    )
    fill(
        "dataset",
        "dataset_id, namespace, name, kind, location, spec, created_at",
        f"{name}, '{namespace}', {name}, 'fileset', '/', '{{}}', 1",
    )
    fill(
        "alert",
        "alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at",
        f"'alert_z' || {name}, {name}, '{namespace}', 'r', 's', 'OPEN', 'why', 1, 1",
    )


def test_the_lists_of_one_namespace_have_its_rows_alone(stage):
    """Runs, jobs, schedules, data sets and alerts, page by page."""
    stage.sql(
        "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
        "VALUES ('alert_0', 'own', 'default', 'own', 's', 'OPEN', 'why', 1, 1), "
        "('alert_1', 'own', 'default', 'own', 't', 'OPEN', 'why', 1, 1) RETURNING 1"
    )
    caller = stage.mill.acting_as("ann", Access(Role.VIEWER, "default"))

    assert [run.program for run in iterate(caller.runs.list, limit=1)] == ["default.shop.sift", "default.shop.broken"]
    assert [run.program for run in caller.runs.list(state="failed")] == ["default.shop.broken"]
    assert [run.program for run in caller.runs.list(program="shop.sift")] == ["default.shop.sift"]
    assert list(caller.runs.list(state="pending")) == []
    assert [job.schedule for job in caller.jobs.list()] == ["default.shop.on_orders"]
    assert [job.schedule for job in caller.jobs.list(state="pending_trigger")] == ["default.shop.on_orders"]
    assert list(caller.jobs.list(state="pending_constraint")) == []
    assert [one.name for one in iterate(caller.schedules.list, limit=1)] == ["default.shop.on_orders"]
    assert [one.name for one in iterate(caller.datasets.list, limit=1)] == ["default.orders"]
    assert [one.alert_id for one in iterate(caller.alerts.list, limit=1)] == ["alert_1", "alert_0"]
    assert [one.alert_id for one in caller.alerts.list(resolved=True)] == ["alert_1", "alert_0"]


def test_a_caller_of_another_namespace_gets_pages_of_its_own(stage):
    """The next key leads on within the namespace."""
    caller = stage.mill.acting_as("zoe", Access(Role.VIEWER, "z"))

    assert len(list(iterate(caller.datasets.list, limit=1000))) == 2500
    assert len(list(iterate(caller.jobs.list, limit=1000))) == 2500
    assert len(list(iterate(caller.runs.list, limit=1000, state="failed"))) == 2500
    assert len(list(iterate(caller.alerts.list, limit=1000))) == 2500


@pytest.mark.parametrize("place", [("", ""), ("a", "x"), ("default", ""), ("z", "x")])
def test_a_list_in_the_order_of_namespaces_reads_one_page(stage, place):
    """The rows of others before and behind are never read."""
    caller = stage.mill.acting_as("ann", Access(Role.VIEWER, "default"))
    asked: list[tuple[tuple[str, str], int]] = []
    rows = [("default", "one"), ("default", "two"), ("z", "other")]

    def read(behind: tuple[str, str], most: int) -> Sequence[tuple[str, str]]:
        asked.append((behind, most))
        return [row for row in rows if row > behind][:most]

    found = Noun(caller.project)._rows(
        read, place, 5, lambda row: row, lambda found: [row[0] for row in found], by_namespace=True
    )

    assert asked == [(("default", ""), 6)]
    assert list(found) == rows[:2]
