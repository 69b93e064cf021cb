"""Failures that other schedulers are known for, under their numbers there. None of them happens here.

Races are beside the module that decides them: airflow #54491, kestra #14196 and airflow #56646 in
tests/schedule/test_checker.py, CDAP-12583 and CDAP-2831 in tests/schedule/test_timekeeper.py.
"""

from __future__ import annotations

from tests.acceptance.site import ONE_RUN, on


def test_airflow_50890_a_redeployment_of_the_same_app_keeps_what_is_pending(site):
    """An event just before a deployment must not be lost with it."""
    app = on("s", "ingest", "tm.NewPartitions(clicks, 2)")
    site.deploy(app)
    site.add(1)
    site.schedule()
    deployed = site.deploy(app)
    site.add(1)

    assert deployed.schedules_kept == ("s",)
    assert site.schedule() == ["s"]


def test_airflow_56050_events_while_the_consumer_runs_are_the_next_run(site):
    """They are neither lost nor added to the run under way."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)", constraints=ONE_RUN))
    site.add(1)
    site.schedule()
    for _ in range(3):
        site.add(1)
        site.schedule()
    site.complete_runs()
    site.schedule()

    counts = [run.triggered_by["triggers"][0]["count"] for run in site.mill.runs.list(program="shop.ingest")]
    assert counts == [3, 1]


def test_airflow_49857_an_event_while_the_schedule_is_suspended_is_taken_when_it_is_resumed(site):
    """An event starts nothing while the schedule is suspended, and its data does not wait for another event."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)"))
    site.mill.schedules.suspend("shop.s")
    site.add(1)
    suspended = site.schedule()
    site.mill.schedules.resume("shop.s")
    resumed = site.schedule()

    (run,) = site.complete_runs()
    assert (suspended, resumed) == ([], ["s"])
    assert [taken.dataset for taken in site.mill.runs.show(run.run_id).inputs] == ["default.clicks"]


def test_prefect_8566_a_dead_worker_does_not_keep_its_slot(site):
    """Another runner takes the run, which has one slot all the time. The slot is free when the run ends."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)", constraints=ONE_RUN))
    site.add(1)
    first = site.schedule()
    (run,) = site.take()
    site.add(1)
    waiting = site.schedule()
    site.end_attempt(run, "lost", "the runner is gone")
    retried = site.schedule()
    site.clock.move("1h")
    (ended,) = site.complete_runs()

    assert (first, waiting, retried) == (["s"], [], [])
    assert (ended.run_id, ended.state) == (run.run_id, "COMPLETED")
    assert site.schedule() == ["s"]


def test_prefect_8566_slots_of_a_group_are_free_again_too(site):
    """A run whose workers die again and again fails at last, and leaves its slot."""
    group = "[tm.GroupConcurrency('crm', 1)]"
    site.deploy(
        on("a", "ingest", "tm.NewPartitions(clicks)", constraints=group, priority=2),
        on("b", "join", "tm.NewPartitions(clicks)", constraints=group, priority=1),
    )
    site.add(1)
    first = site.schedule()
    (started,) = site.mill.runs.list(program="shop.ingest")
    while taken := site.take():
        site.end_attempt(taken[0], "lost", "the runner is gone")
        site.clock.move("1h")

    assert first == ["a"]
    assert site.find(started.run_id).state == "FAILED"
    assert site.schedule() == ["b"]


def test_cdap_21064_a_completion_is_not_seen_before_its_outputs(site):
    """A run that starts at the end of another one gets the partitions that the other has published."""
    program = "@app.python(writes=[clicks])\ndef a(run):\n    run.output(clicks).append({'n=7': 'one'})\n\n"
    site.deploy(program, on("b", "join", "tm.RunEnded(a)"))
    site.mill.runs.start("shop.a")
    (ended,) = site.complete_runs()
    launched = site.schedule()
    (run,) = site.complete_runs()

    (taken,) = (one for one in site.mill.runs.show(run.run_id).inputs if one.dataset == "default.clicks")
    assert (ended.state, launched) == ("COMPLETED", ["b"])
    assert "n=7" in taken.item


def test_cdap_5_1_a_ready_job_survives_a_restart(site):
    """A start of the scheduler deletes no job, however long the job has waited."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)", constraints=ONE_RUN))
    busy = site.mill.runs.start("shop.ingest").run_id
    site.add(1)
    before = [site.schedule() for _ in range(3)]
    site.clock.move("23h")
    site.complete_runs()

    assert before == [[], [], []]
    assert site.mill.runs.show(busy).state == "COMPLETED"
    assert site.schedule() == ["s"]


def test_cdap_5_1_a_run_that_no_runner_has_begun_survives_a_restart(site):
    """A launch is a run in the catalog, and a scheduler that starts later deletes no run."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)", constraints=ONE_RUN))
    site.add(1)
    launched = site.schedule()
    site.clock.move("1h")
    again = site.schedule()

    assert (launched, again) == (["s"], [])
    assert [run.state for run in site.complete_runs()] == ["COMPLETED"]
