"""Operations of `Mill` on schedules, jobs, runs, topics and apps, on both databases."""

from __future__ import annotations

import json

import pytest

from tests.errors import raises_code
from tidemill import Cron, Every
from tidemill.catalog.messages import Publish, Topic
from tidemill.names import EventKey
from tidemill.schedule.checker import check_due
from tidemill.schedule.subscriber import subscribe


@pytest.fixture
def deployed(mill):
    """The project with its app."""
    mill.deploy()
    return mill


def _new_partitions(mill, count=1) -> None:
    """Publish new partitions as a commit does, and let the subscriber and the checker see the message."""
    key = EventKey("partition:default.clean")
    mill.project.catalog.apply([Publish(Topic.DATA, "partitions", key, {"count": count})])
    subscribe(mill.project.catalog, mill.project.world)
    check_due(mill.project.catalog, mill.project.world)


def test_the_next_fires_of_all_time_triggers_come_in_order(deployed):
    """A question for the next report means all triggers of the schedule."""
    trigger = Cron("0 * * * *") | Every("40m")
    deployed.schedules.create("shop.often", "shop.report", trigger=trigger)

    fires = deployed.schedules.next("shop.often", limit=12)

    assert [fire.fire_at for fire in fires] == sorted(fire.fire_at for fire in fires)
    assert {fire.trigger for fire in fires} == {"Cron('0 * * * *', zone='UTC')", "Every(40m)"}
    assert list(deployed.schedules.next("shop.on_orders")) == []


def test_listeners_are_found_from_either_end(deployed):
    """Before a data set or a program is changed one asks what hangs on it."""
    assert [s.name for s in deployed.schedules.triggered_by("clean")] == ["default.shop.on_clean"]
    assert [s.name for s in deployed.schedules.triggered_by("default.orders")] == ["default.shop.on_orders"]
    assert [s.name for s in deployed.schedules.triggered_by("shop.load")] == ["default.shop.on_clean"]
    assert list(deployed.schedules.triggered_by("shop.report")) == []


def test_an_update_keeps_what_it_does_not_name(deployed):
    """Only named fields change: a new priority must not lose the constraint (seed 001, scenario 5)."""
    deployed.schedules.update("shop.on_orders", priority=7)

    shown = deployed.schedules.show("shop.on_orders")
    assert (shown.priority, shown.constraints, shown.status) == (7, "Concurrency(1)", "SCHEDULED")
    assert shown.trigger == "NewFiles(default.orders)"


def test_a_schedule_that_cannot_be_is_refused_and_changes_nothing(deployed):
    """Wrong arguments, names and options are found when they are given, and not by a job at night."""
    with raises_code("schedule_exists"):
        deployed.schedules.create("shop.on_orders", "shop.load", trigger=Every("1h"))
    with raises_code("bad_argument"):
        deployed.schedules.create("shop.other", "shop.load", trigger=Every("1h"), arguments={"limt": 3})
    with raises_code("bad_json", match="did you mean 'priority'"):
        deployed.schedules.update("shop.on_orders", priorty=7)

    assert [s.name for s in deployed.schedules.list()] == ["default.shop.on_clean", "default.shop.on_orders"]
    assert deployed.schedules.show("shop.on_orders").generation == 1


def test_a_job_is_forced_whatever_it_waits_for(deployed):
    """A user wants the report now, with one partition of two."""
    deployed.schedules.resume("shop.on_clean")
    _new_partitions(deployed)
    (job,) = deployed.jobs.list()

    run_id = deployed.jobs.force(job.job_id).run_id

    cause = deployed.runs.show(run_id).triggered_by
    assert cause["schedule"] == "default.shop.on_clean"
    assert cause["triggers"][0]["count"] == 1
    assert list(deployed.jobs.list()) == []
    assert [ended.outcome for ended in deployed.jobs.history("shop.on_clean")] == ["forced"]
    again = deployed.jobs.force(job.job_id)
    assert (again.run_id, again.changed) == (run_id, False)
    with raises_code("job_ended", match="forced"):
        deployed.jobs.drop(job.job_id)


def test_a_dropped_job_is_in_the_history_with_its_messages(deployed):
    """Dropping is never silent; the schedule goes on listening."""
    deployed.schedules.resume("shop.on_clean")
    _new_partitions(deployed)
    (job,) = deployed.jobs.list()

    deployed.jobs.drop(job.job_id)
    _new_partitions(deployed)

    (ended,) = deployed.jobs.history("shop.on_clean")
    assert (ended.outcome, len(ended.detail["messages"])) == ("dropped", 1)
    assert [later.why for later in deployed.jobs.list()] == ["1/2 new partitions of default.clean"]
    assert not deployed.jobs.drop(job.job_id).changed
    with raises_code("job_ended"):
        deployed.jobs.force(job.job_id)


def test_a_retry_has_the_logical_times_of_its_run(deployed):
    """The program names its output by them: the retry of Monday's report is Monday's report."""
    times = {"logical_time": 2000, "logical_times": [1000, 2000]}
    run_id = deployed.runs.start("shop.report").run_id
    deployed.runs.kill(run_id)
    text = json.dumps({"schedule": "default.shop.nightly", **times})
    deployed.project.catalog.run_script(f"UPDATE run SET triggered_by = '{text}'", unless=99)

    retry_id = deployed.runs.retry(run_id).run_id

    asked = {"asked": "by hand", "by": deployed.project.actor}
    assert deployed.runs.show(retry_id).triggered_by == {**asked, "retry_of": run_id, **times}
    with raises_code("nothing_to_retry"):
        deployed.runs.retry(retry_id)


def test_topics_are_listed_with_their_newest_message(deployed):
    """If nothing starts, the first question is how far the scheduler is behind."""
    _new_partitions(deployed)
    deployed.topics.publish("own", key="door")

    topics = {topic.topic: topic for topic in deployed.topics.list()}

    assert sorted(topics) == ["data", "own"]
    assert topics["data"].subscribers == {"scheduler": topics["data"].newest}
    assert [message.event_key for message in deployed.topics.read("data")] == ["partition:default.clean"]
    assert list(deployed.topics.read("data", after=topics["data"].newest)) == []
    assert list(deployed.topics.read("program")) == []


def test_an_app_shows_what_belongs_to_it(deployed):
    """An operator sees what a deletion would remove."""
    deployed.deploy()

    (app,) = deployed.apps.list()

    assert deployed.apps.show("shop") == app
    assert (app.name, app.version) == ("default.shop", 1)  # a deployment of the same has no number of its own
    assert (app.datasets, app.programs) == (("clean", "orders"), ("load", "report"))
    assert app.schedules == ("on_clean", "on_orders")


def test_a_schedule_shows_all_its_waits(deployed):
    """To learn why a job was cancelled, or went first, an operator needs these."""
    cron = {"type": "cron", "expression": "@daily"}
    options = {"deadline": "6h", "on_timeout": "force", "misfire": "skip", "grace": "5m", "trigger_timeout": "2h"}
    made = deployed.schedules.create("shop.late", "shop.load", trigger=cron, **options)
    plain = deployed.schedules.create("shop.plain", "shop.load", trigger=cron)

    assert {name: getattr(made, name) for name in options} == options
    assert [plain.deadline, plain.on_timeout, plain.grace, plain.trigger_timeout] == ["", "cancel", "", ""]
