"""Lists with filters: schedules by app, program, trigger and status, and jobs by schedule and state."""

from __future__ import annotations

from itertools import product

import pytest

from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill import AllOf, Cron, Every, NewPartitions, RunEnded, iterate

APP = """
import tidemill as tm

shop = tm.App("shop")
crm = tm.App("crm")
clean = shop.fileset("clean", keys={"day": "date"}, format="text")


@shop.python(reads=[clean])
def report(run):
    pass


@shop.python()
def tidy(run):
    pass


@crm.python()
def export(run):
    pass
"""
TRIGGERS = {
    "cron": (Cron("@daily"), {"cron"}),
    "every": (Every("1h"), {"every"}),
    "both": (
        AllOf(NewPartitions("clean"), Cron("@daily") | Every("2h"), patience="1h"),
        {"all_of", "any_of", "new_partitions", "cron", "every"},
    ),
    "after": (RunEnded("shop.tidy") | NewPartitions("clean", 7), {"any_of", "run_ended", "new_partitions"}),
}
PROGRAMS = {"shop": ["shop.report", "shop.tidy"], "crm": ["crm.export"]}
STATUSES = ["SCHEDULED", "SUSPENDED"]


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Two apps, whose programs have a suspended and a listening schedule of each trigger."""
    with staged(tmp_path, catalog_url, APP) as entered:
        entries = [
            {
                "name": f"{app}.{program.partition('.')[2]}_{name}_{status.lower()}",
                "program": program,
                "trigger": trigger,
                "suspended": status == "SUSPENDED",
            }
            for app, programs in PROGRAMS.items()
            for program, status, (name, (trigger, _)) in product(programs, STATUSES, TRIGGERS.items())
            if (program, name) != ("shop.tidy", "after")  # it would start itself for ever
        ]
        entered.mill.schedules.create_many(entries)
        yield entered


def fits(view, *, app=None, program=None, trigger=None, status=None):
    """Return whether a schedule fits the filters, by its name and by what it is."""
    _, of_app, name = view.name.split(".")
    kind = name.split("_")[1]
    return (
        app in {None, of_app}
        and program in {None, view.program.removeprefix("default.")}
        and (trigger is None or trigger in TRIGGERS[kind][1])
        and status in {None, view.status}
    )


@pytest.mark.share("sqlite")
def test_each_combination_of_filters_lists_the_schedules_that_fit(stage):
    """Each filter has a statement or a condition of its own, and a page may end anywhere."""
    everything = list(iterate(stage.mill.schedules.list))
    apps, programs = [None, "shop", "crm"], [None, "shop.report", "crm.export"]
    types = [None, "cron", "every", "all_of", "any_of", "new_partitions", "run_ended", "new_files"]

    for app, program, trigger, status in product(apps, programs, types, [None, *STATUSES]):
        filters = {"app": app, "program": program, "trigger": trigger, "status": status}
        found = list(iterate(stage.mill.schedules.list, **filters, limit=3))
        assert found == [one for one in everything if fits(one, **filters)], filters
    assert len(everything) == 22


def test_the_index_of_triggers_follows_changes(stage):
    """A list from an index that lags behind would show schedules that are no more."""
    stage.mill.schedules.update("shop.report_cron_scheduled", trigger={"type": "every", "duration": "3h"})
    stage.mill.schedules.delete("shop.report_both_scheduled")
    stage.mill.schedules.suspend("shop.tidy_cron_scheduled")

    kept = rows_of(stage.mill.project.catalog, "SELECT schedule_id FROM trigger_type")
    there = rows_of(stage.mill.project.catalog, "SELECT schedule_id FROM schedule")
    listed = [one.name for one in stage.mill.schedules.list(app="shop", trigger="cron", status="scheduled")]
    assert listed == ["default.shop.tidy_both_scheduled"]
    assert set(kept) == set(there)


@pytest.mark.parametrize(
    ("filters", "code", "match"),
    [
        ({"trigger": "corn"}, "bad_filter", "did you mean 'cron'"),
        ({"status": "asleep"}, "bad_filter", "SUSPENDED, SCHEDULED"),
        ({"app": "shpo"}, "not_found", "shop"),
        ({"program": "shop.reprot"}, "not_found", "report"),
    ],
)
def test_a_filter_that_fits_nothing_ever_is_refused(stage, filters, code, match):
    """A slip would look like an empty list."""
    with raises_code(code, match=match):
        stage.mill.schedules.list(**filters)


def test_jobs_are_listed_by_schedule_and_state(stage):
    """A question about one schedule needs no list of thousands."""
    stage.mill.schedules.create(
        "shop.one", "shop.report", trigger=NewPartitions("clean", 1), constraints=[{"type": "delay", "duration": "1h"}]
    )
    stage.publish("clean", "day=2026-01-01")
    stage.schedule()
    everything = list(iterate(stage.mill.jobs.list))

    for schedule, state in product(
        [None, "shop.one", "shop.report_both_scheduled", "shop.tidy_every_suspended"],
        [None, "pending_trigger", "PENDING_CONSTRAINT"],
    ):
        found = list(iterate(stage.mill.jobs.list, schedule=schedule, state=state, limit=2))
        assert found == [
            one
            for one in everything
            if schedule in {None, one.schedule.removeprefix("default.")}
            and state in {None, one.state, one.state.lower()}
        ], (schedule, state)
    assert {one.state for one in everything} == {"PENDING_TRIGGER", "PENDING_CONSTRAINT"}
    with raises_code("bad_filter", match="did you mean 'PENDING_TRIGGER'"):
        stage.mill.jobs.list(state="pending_triger")
    with raises_code("not_found"):
        stage.mill.jobs.list(schedule="shop.lost")
