"""Programs that leave their app, and apps that are deleted: nothing starts them, nothing is lost (seed 001)."""

from __future__ import annotations

import pytest

from tests.app.conftest import APP
from tests.app.test_deploy import redeploy
from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill import NotFound

PIPE = """
from pathlib import Path
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")

@app.python(reads=[lines])
def report(run):
    with Path(__file__).with_name("said.txt").open("a") as said:
        said.write(" ".join(str(one["hour"]) for one in run.input(lines).partitions) + "\\n")

@app.python()
def other(run):
    pass

app.schedule("on_lines", report, trigger=tm.NewPartitions(lines))
"""
WITHOUT = PIPE[: PIPE.index("@app.python(reads")] + PIPE[PIPE.index("@app.python()") : PIPE.index("app.schedule")]


@pytest.fixture
def stage(tmp_path, catalog_url, monkeypatch):
    """A project whose program `report` reads `lines`. Of all deployments the code of the newest alone is kept."""
    monkeypatch.setattr("tidemill.app.deployments.KEPT", 1)
    with staged(tmp_path, catalog_url, PIPE) as stage:
        yield stage


@pytest.mark.parametrize("update_schedules", [True, False])
def test_a_program_that_left_the_app_takes_its_schedules_with_it(stage, update_schedules):
    """Also schedules of ops and their pending jobs, which are counted; also with --keep-schedules (seed 001)."""
    stage.mill.schedules.create("shop.by_ops", "shop.report", trigger={"type": "every", "duration": "1h"})
    stage.mill.schedules.create("shop.on_other", "shop.other", trigger={"type": "every", "duration": "1h"})
    stage.publish("lines", "hour=1")

    rows_of(stage.mill.project.catalog, "UPDATE timer SET next_fire_at = 1 RETURNING 1")
    deployed = redeploy(stage.mill, WITHOUT, update_schedules=update_schedules)
    left = [view.name for view in stage.mill.schedules.list()]
    ran = stage.play()

    assert set(deployed.schedules_removed) >= {"on_lines", "by_ops"}
    assert deployed.programs_retired == ("report",)
    assert "retired programs: report" in deployed.sentence()
    assert left == ([] if update_schedules else ["default.shop.on_other"])
    assert ran == []
    assert stage.lines_of() == []


def test_pending_jobs_of_a_program_that_left_are_counted(stage):
    """After the deployment a user sees which runs will not come."""
    redeploy(stage.mill, PIPE.replace("NewPartitions(lines)", "NewPartitions(lines, 2)"))
    stage.publish("lines", "hour=1")
    stage.schedule()

    deployed = redeploy(stage.mill, WITHOUT, update_schedules=False)

    assert deployed.dropped_jobs == 1
    assert "dropped 1 pending job" in deployed.sentence()


def test_a_retired_program_is_never_started(stage):
    """Neither by hand, nor as a retry, nor by a new schedule; `app show` does not list it."""
    run_id = stage.mill.runs.start("shop.report").run_id
    stage.mill.runs.kill(run_id)
    redeploy(stage.mill, WITHOUT)

    for start in (
        lambda: stage.mill.runs.start("shop.report"),
        lambda: stage.mill.runs.retry(run_id),
        lambda: stage.mill.schedules.create("shop.x", "shop.report", trigger={"type": "every", "duration": "1h"}),
    ):
        with raises_code("program_retired", match=r"default\.shop\.report is retired"):
            start()
    assert stage.mill.apps.show("shop").programs == ("other",)


def test_a_run_that_waits_when_its_program_leaves_ends_with_its_own_code(stage):
    """The run was launched, and its bundle stays until the run has ended."""
    run_id = stage.mill.runs.start("shop.report").run_id
    stage.publish("lines", "hour=1")
    redeploy(stage.mill, WITHOUT)
    stage.sweep()
    kept = rows_of(stage.mill.project.catalog, "SELECT count(*) FROM bundle")
    stage.work()
    stage.sweep()

    assert stage.find(run_id).state == "COMPLETED"
    assert stage.lines_of() == ["1"]
    assert kept == [(2,)]
    assert rows_of(stage.mill.project.catalog, "SELECT count(*) FROM bundle") == [(1,)]


def test_a_retired_program_is_not_warmed_up(stage):
    """Its bundle may be deleted; and `up` needs no Spark for what never starts."""
    redeploy(stage.mill, f"{PIPE}\n@app.spark()\ndef a_first(run, spark):\n    pass\n")
    redeploy(stage.mill, PIPE)
    stage.sweep()

    assert "not needed" in stage.up()[0]


def test_a_program_that_comes_back_goes_on_where_it_stood(stage):
    """Its consumer was kept as retired."""
    stage.publish("lines", "hour=1")
    stage.play()
    redeploy(stage.mill, WITHOUT)
    (retired,) = stage.mill.consumers.list()
    stage.publish("lines", "hour=2")
    redeploy(stage.mill, PIPE)
    (back,) = stage.mill.consumers.list()
    stage.mill.runs.start("shop.report")
    stage.play()

    assert (retired.retired, back.retired) == (True, False)
    assert stage.lines_of() == ["1", "2"]


def test_only_a_retired_consumer_is_dropped(stage):
    """A program that reads by it would lose its place."""
    with raises_code("consumer_in_use", match="take the program out of its app"):
        stage.mill.consumers.drop("lines", "default.shop.report")

    assert len(stage.mill.consumers.list()) == 1


def test_a_dropped_consumer_starts_again_when_its_program_comes_back(stage):
    """Nothing is kept for it meanwhile, and the audit finds nothing amiss."""
    stage.publish("lines", "hour=1")
    stage.play()
    redeploy(stage.mill, WITHOUT)
    stage.publish("lines", "hour=2")
    stage.mill.acting_as("ann").consumers.drop("lines", "default.shop.report")
    gone = stage.mill.consumers.list()
    clean = stage.mill.catalog.audit().clean
    redeploy(stage.mill, PIPE)
    stage.mill.runs.start("shop.report")
    stage.play()
    (reset,) = stage.mill.consumers.show("lines", "default.shop.report").resets

    assert list(gone) == []
    assert clean
    assert stage.lines_of() == ["1", "1 2"]
    assert (reset.by, reset.to) == ("ann", "dropped")
    assert stage.mill.catalog.audit().clean


def test_a_deleted_app_starts_nothing_and_comes_back_whole(stage):
    """Schedules go, data sets and consumers stay."""
    stage.publish("lines", "hour=1")
    deleted = stage.mill.apps.delete("shop")
    apps, schedules, ran = stage.mill.apps.list(), stage.mill.schedules.list(), stage.play()
    with pytest.raises(NotFound):
        stage.mill.apps.delete("shop")
    stage.mill.deploy()
    stage.publish("lines", "hour=2")
    stage.play()

    assert deleted.sentence() == "deleted app default.shop with 1 schedule and 0 pending jobs; retired 2 programs"
    assert [*apps, *schedules, *ran] == []
    assert stage.lines_of() == ["1 2"]


def test_schedule_create_refuses_workers_and_apps_that_are_not_there(tmp_path, catalog_url):
    """Both would make a schedule that no deployment could have declared."""
    text = APP + "\n@app.worker(reads=[clean])\ndef always(run):\n    pass\n"
    trigger = {"type": "every", "duration": "1h"}
    with staged(tmp_path, catalog_url, text) as stage:
        with raises_code("starts_by_itself"):
            stage.mill.schedules.create("shop.x", "shop.always", trigger=trigger)
        with pytest.raises(NotFound, match=r"default\.shopp.*shop"):
            stage.mill.schedules.create("shopp.x", "shop.report", trigger=trigger)

        assert [view.name.split(".")[-1] for view in stage.mill.schedules.list()] == ["on_clean", "on_orders"]


def test_a_program_that_becomes_a_worker_takes_its_schedules_with_it(stage):
    """A worker runs all the time, also where schedules are kept."""
    worker = PIPE.replace("@app.python(reads=[lines])", "@app.worker(reads=[lines], instances=0)")
    deployed = redeploy(stage.mill, worker[: worker.index("app.schedule")], update_schedules=False)

    assert deployed.schedules_removed == ("on_lines",)


def test_files_of_an_inbox_wait_for_no_retired_program(stage):
    """Starts of such a program are refused, so the advice to start the program was wrong."""
    read = """landing = app.inbox("landing", "landing", format="text", settle="0s")

@app.python(reads=[landing], writes=[lines])
def load(run):
    pass
"""
    before, after = PIPE.split("@app.python(reads")
    redeploy(stage.mill, before + read + "\n@app.python(reads" + after)
    redeploy(stage.mill, before + read[: read.index("@app.python")] + "\n@app.python(reads" + after)

    waiting = stage.mill.inboxes.explain("landing").why

    assert waiting == ("no program reads this inbox: declare one in the app (`reads=[…]`) and `tidemill deploy`",)
