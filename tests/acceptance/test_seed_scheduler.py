"""User stories and test scenarios of seed 001, by their numbers.

Apps are deployed as users deploy them, by their app file. Data arrives as files in a folder and as committed
partitions. The scheduler is the loop's own step, and runs are worked on when a test says so.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from tests.acceptance.site import ONE_RUN, on

CLUSTER = "[tm.GroupConcurrency('cluster', 1)]"


class Killed(BaseException):
    """The end of a scheduler's process, as far as the catalog can tell."""


def die() -> None:
    """End the process here."""
    raise Killed


def test_story_1_many_schedules_due_at_once_are_all_fulfilled(site):
    """Thousands of workflows at fixed times, for a day: no thread is held for any of them."""
    site.deploy(
        *(on(f"s{number}", "join", "tm.Cron('0 6,18 * * *')") for number in range(1900)),
        *(on(f"h{number}", "join", "tm.Cron('30 * * * *')") for number in range(100)),
    )
    launched = Counter()

    for _ in range(48):
        site.clock.move("30m")
        launched.update(site.schedule())

    assert launched == {f"s{number}": 2 for number in range(1900)} | {f"h{number}": 24 for number in range(100)}


def test_story_2_no_schedule_is_skipped_while_the_scheduler_is_away(site):
    """A fail-over takes a minute: what was due and what arrived in it runs afterwards, once."""
    site.deploy(on("hourly", "ingest", "tm.Every('1h')"), on("data", "join", "tm.NewPartitions(clicks)"))
    site.clock.move("59m")
    before = site.schedule()
    site.clock.move("1m")
    site.add(1)
    site.clock.move("1m")

    after = site.schedule()

    assert before == []
    assert sorted(after) == ["data", "hourly"]
    assert site.schedule() == []


@pytest.mark.parametrize(
    "mark", ["subscriber.before_commit", "timekeeper.before_commit", "checker.before_runs", "checker.before_commit"]
)
def test_story_2_a_scheduler_that_dies_in_its_step_skips_nothing(site, mark):
    """Another one takes over, and launches what was due and what arrived, once."""
    nightly = on("nightly", "ingest", "tm.Cron('0 3 * * *')", misfire="all")
    site.deploy(nightly, on("data", "join", "tm.NewPartitions(clicks)"))
    site.clock.move("48h")
    site.add(1)
    site.at[mark] = die

    with pytest.raises(Killed):
        site.schedule()
    site.schedule()
    ended = []
    while runs := site.complete_runs():
        ended += runs
        site.schedule()

    names = [run.triggered_by["schedule"] for run in ended]
    assert sorted(names) == ["default.shop.data", "default.shop.nightly", "default.shop.nightly"]


def test_story_3_a_feed_that_arrives_once_a_day_makes_one_run_a_day(site):
    """With cron it would run every three hours, seven times out of eight for nothing."""
    site.deploy(on("feed", "ingest", "tm.NewFiles(raw)"))
    launched = []

    for hour in range(48):
        if hour in {5, 33}:
            site.land(1)
        launched.append(len(site.schedule()))
        site.clock.move("1h")

    assert [hour for hour, count in enumerate(launched) if count] == [5, 33]
    assert sum(launched) == 2


def test_story_4_what_reads_the_output_of_another_runs_after_its_success_only(site):
    """B is triggered by what A has committed: a failed A has published nothing."""
    site.deploy(on("b", "join", "tm.NewPartitions(clicks)"))

    site.add(3, fails=True)
    after_failure = site.schedule()
    site.add(3)
    after_success = site.schedule()

    assert (after_failure, after_success) == ([], ["b"])


def test_story_4_b_runs_when_a_has_completed_and_not_when_a_has_failed(site):
    """By the end of the run itself, also where A publishes nothing."""
    program = '@app.python(arguments={"ok": False})\ndef a(run):\n    assert run.arguments["ok"]\n\n'
    site.deploy(program, on("b", "join", "tm.RunEnded(a)"))
    site.mill.runs.start("shop.a")
    site.complete_runs()
    after_failure = site.schedule()
    site.mill.runs.start("shop.a", arguments={"ok": True})
    site.complete_runs()

    assert (after_failure, site.schedule()) == ([], ["b"])


def test_story_5_rare_feeds_are_processed_once_a_day_at_no_particular_time(site):
    """Their runs are spread over the day: no hour has more than twice its share."""
    site.deploy(*(on(f"feed{number}", "join", "tm.Anytime('day')") for number in range(480)))
    hours = []

    for _ in range(48):
        site.clock.move("1h")
        hours.append(site.schedule())

    launched = Counter(name for names in hours for name in names)
    assert launched == {f"feed{number}": 2 for number in range(480)}
    assert max(map(len, hours)) <= 2 * 480 // 24


def test_story_6_high_priority_goes_first_and_low_priority_catches_up(site):
    """The cluster has one slot. At high load low priority defers, and runs when the load is lower."""
    site.deploy(
        on("low", "ingest", "tm.NewPartitions(clicks)", constraints=CLUSTER, priority=1),
        on("high", "join", "tm.NewPartitions(clicks)", constraints=CLUSTER, priority=9),
    )
    launched = []

    for feeds in (1, 1, 1, 0):
        if feeds:
            site.add(feeds)
        launched.append(site.schedule())
        site.complete_runs()

    assert launched == [["high"], ["high"], ["high"], ["low"]]


def test_story_6_low_priority_is_not_starved_beyond_its_deadline(site):
    """Past its deadline a job goes first, whatever its priority is."""
    site.deploy(
        on("low", "ingest", "tm.NewPartitions(clicks)", constraints=CLUSTER, priority=1, deadline="2h"),
        on("high", "join", "tm.NewPartitions(clicks)", constraints=CLUSTER, priority=9),
    )
    launched = []

    for _ in range(5):
        site.add(1)
        launched += site.schedule()
        site.complete_runs()
        site.clock.move("59m")

    assert launched[:4] == ["high", "high", "high", "low"]


def test_story_7_maintenance_runs_at_night_and_only_after_new_data(site):
    """Once a day between 22:00 and 06:00. The clock begins at noon."""
    night = "[tm.TimeRange('22:00', '06:00', zone='UTC'), tm.SinceLastRun('12h')]"
    site.deploy(on("tidy", "join", "tm.NewPartitions(clicks)", constraints=night))
    hours = []

    for hour in range(12, 84):
        if hour in {13, 15, 17, 62}:
            site.add(1)
        if site.schedule():
            hours.append(hour)
            site.complete_runs()
        site.clock.move("1h")

    assert hours == [22, 24 + 24 + 22]


def test_story_8_a_join_waits_for_an_input_without_new_data_only_for_some_time(site):
    """After the wait the program reads the data that this input has had before."""
    site.deploy(on("join", "join", "tm.AllOf(tm.NewPartitions(clicks), tm.NewPartitions(users), patience='2h')"))
    site.add(1)
    hours = []

    for hour in range(4):
        if site.schedule():
            hours.append(hour)
        site.clock.move("1h")

    assert hours == [2]


def test_story_8_a_join_waits_for_all_of_its_inputs(site):
    """Two changes of one input are not one of each."""
    site.deploy(on("join", "join", "tm.NewPartitions(clicks) & tm.NewPartitions(users)"))

    site.add(1)
    site.add(1)
    half = site.schedule()
    site.add(1, "users")

    assert (half, site.schedule()) == ([], ["join"])


def test_story_9_a_feed_that_comes_in_n_chunks_is_processed_when_all_are_there(site):
    """The chunks arrive over hours; the run gets them all."""
    site.deploy(on("feed", "ingest", "tm.NewFiles(raw, 4)"))
    launched = []

    for _ in range(4):
        site.land(1)
        site.clock.move("1h")
        launched += [site.schedule()]

    (run,) = site.mill.runs.list(program="shop.ingest")
    assert launched == [[], [], [], ["feed"]]
    assert run.triggered_by["triggers"][0]["count"] == 4


def test_story_9_a_feed_that_comes_over_a_time_is_processed_when_no_more_comes(site):
    """The number of chunks is not known: a quiet time ends the delivery."""
    site.deploy(on("feed", "ingest", "tm.Silence(tm.NewFiles(raw), '15m')"))
    launched = []

    for _ in range(4):
        site.land(1)
        launched += site.schedule()
        site.clock.move("14m")
    launched += site.schedule()
    site.clock.move("1m")

    assert launched == []
    assert site.schedule() == ["feed"]


def test_story_10_a_feed_of_every_second_does_not_run_every_second(site):
    """The program runs when enough has accumulated. A burst that is more than enough is one run."""
    site.deploy(on("feed", "join", "tm.NewPartitions(clicks, 30)"))
    launched = 0

    for _ in range(60):
        site.add(1)
        site.clock.move("1s")
        launched += len(site.schedule())
    site.add(75)
    launched += len(site.schedule())

    assert launched == 3


def test_story_10_enough_is_a_number_of_bytes(site):
    """However many partitions they come in; small ones wait until there is enough, a large one is enough alone."""
    site.deploy(on("feed", "join", "tm.NewData(clicks, bytes='100 MB')"))
    launched = []

    for megabytes in (30, 40, 20, 15, 250, 99):
        site.add(1, size=megabytes * 1_000_000)
        launched.append(len(site.schedule()))
    why = {run.triggered_by["triggers"][0]["why"] for run in site.mill.runs.list(program="shop.join")}

    assert launched == [0, 0, 0, 1, 1, 0]
    assert why == {f"{size} MB/100 MB new bytes of default.clicks" for size in (105, 250)}


def test_story_11_a_hundred_gigabytes_or_four_hours(site):
    """As the seed says it, in bytes; the burst moves the next run by time."""
    site.deploy(on("feed", "join", "tm.Every('4h') | tm.NewData(clicks, bytes='100 GB')"))
    hours = []

    for hour in range(1, 13):
        site.clock.move("1h")
        site.add(2, size=(60 if hour == 6 else 1) * 1_000_000_000)
        if site.schedule():
            hours.append(hour)

    assert hours == [4, 6, 10]


def test_story_11_at_least_every_four_hours_and_sooner_with_a_burst(site):
    """An early run by data moves the next one by time."""
    site.deploy(on("feed", "ingest", "tm.Every('4h') | tm.NewFiles(raw, 100)"))
    hours = []

    for hour in range(1, 13):
        site.clock.move("1h")
        if hour == 6:
            site.land(120)
        if site.schedule():
            hours.append(hour)

    assert hours == [4, 6, 10]


def test_scenario_1_a_least_time_between_runs(site):
    """Five partitions in five minutes: the first one starts a run, and those right after it do not."""
    five_minutes = "[tm.SinceLastRun('5m', on_limit='skip')]"
    site.deploy(on("s", "join", "tm.NewPartitions(clicks)", constraints=five_minutes))
    launched = []
    for _ in range(5):
        site.add(1)
        launched.append(site.schedule())
        site.complete_runs()
        site.clock.move("59s")
    site.clock.move("1m")
    site.add(1)
    later = site.schedule()

    skipped = [job for job in site.mill.jobs.history("shop.s") if job.outcome == "skipped"]
    assert launched == [["s"], [], [], [], []]
    assert later == ["s"]
    assert len(skipped) == 4
    assert skipped[0].detail["why"].startswith("SinceLastRun('5m', on_limit='skip'): since last run 5m: ended ")


def test_scenario_2_an_update_by_deployment_changes_the_arguments(site):
    """The next scheduled run has the new ones."""
    site.deploy(on("s", "ingest", "tm.NewFiles(raw)", arguments={"level": 1}))
    site.land(1)
    first = site.schedule()
    site.complete_runs()
    site.deploy(on("s", "ingest", "tm.NewFiles(raw)", arguments={"level": 2}))
    site.land(1)
    second = site.schedule()

    assert first == second == ["s"]
    assert [run.arguments for run in site.mill.runs.list(program="shop.ingest")] == [{"level": 2}, {"level": 1}]


def test_scenario_3_a_deployment_touches_schedules_only_when_it_may(site):
    """In production ops own them; in development the app does."""
    one, two = "tm.NewPartitions(clicks)", "tm.NewPartitions(clicks, 2)"
    site.deploy(on("kept", "join", one), on("gone", "join", one))
    changed = (on("kept", "join", two), on("new", "join", one))

    site.deploy(*changed, update_schedules=False)
    site.add(1)
    untouched = site.schedule()
    site.deploy(*changed, update_schedules=True)
    site.add(1)
    followed = site.schedule()

    assert sorted(untouched) == ["gone", "kept"]
    assert followed == ["new"]
    assert sorted(view.name for view in site.mill.schedules.list()) == ["default.shop.kept", "default.shop.new"]


def test_scenario_4_what_was_counted_before_an_update_does_not_count(site):
    """A partition, an update, four more: not yet. After a fifth, the program runs with the new arguments."""
    trigger = "tm.NewPartitions(clicks, 5)"
    site.deploy(on("s", "ingest", trigger, arguments={"level": 1}))
    site.add(1)
    site.schedule()
    deployed = site.deploy(on("s", "ingest", trigger, arguments={"level": 2}))
    site.add(4)
    four = site.schedule()
    site.add(1)
    five = site.schedule()

    (run,) = site.mill.runs.list(program="shop.ingest")
    assert deployed.dropped_jobs == 1
    assert (four, five) == ([], ["s"])
    assert run.arguments == {"level": 2}


def test_scenario_5_an_update_drops_what_waited_for_its_delay(site):
    """Five partitions wait for ten minutes. The new schedule wants three, with new arguments and a short delay."""
    delayed = "[tm.Delay('10m')]"
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks, 5)", constraints=delayed))
    site.add(5)
    waiting = site.schedule()
    short = "[tm.Delay('1s')]"
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks, 3)", arguments={"level": 2}, constraints=short))
    site.clock.move("10m")
    dropped = site.schedule()
    site.add(3)
    site.schedule()
    site.clock.move("1s")

    assert (waiting, dropped, site.schedule()) == ([], [], ["s"])
    assert [run.arguments["level"] for run in site.mill.runs.list(program="shop.ingest")] == [2]


def test_an_update_drops_what_waited_for_a_slot(site):
    """As scenario 5, with a job that waits for the end of a run."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks, 5)", constraints=ONE_RUN))
    site.add(5)
    first = site.schedule()
    site.add(5)
    waiting = site.schedule()
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks, 3)", arguments={"level": 2}, constraints=ONE_RUN))
    site.complete_runs()
    after = site.schedule()
    site.add(3)
    last = site.schedule()

    assert (first, waiting, after, last) == (["s"], [], [], ["s"])
    assert [run.arguments["level"] for run in site.mill.runs.list(program="shop.ingest")] == [2, 0]


def test_scenario_6_a_deleted_schedule_launches_nothing(site):
    """Four partitions, a deletion, and the fifth: nothing."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks, 5)"))
    site.add(4)
    site.schedule()
    deployed = site.deploy()
    site.add(1)

    assert deployed.schedules_removed == ("s",)
    assert deployed.dropped_jobs == 1
    assert site.schedule() == []
    assert list(site.mill.jobs.list()) == []


def test_scenario_7_a_schedule_that_is_deleted_during_its_delay_launches_nothing(site):
    """Half a second before the delay is over."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks, 5)", constraints="[tm.Delay('40s')]"))
    site.add(5)
    site.schedule()
    site.clock.move("39500ms")
    deleted = site.mill.schedules.delete("shop.s")
    site.clock.move("10s")

    assert deleted.dropped_jobs == 1
    assert site.schedule() == []
    assert list(site.mill.runs.list(program="shop.ingest")) == []


def test_scenario_8_with_several_constraints_all_hold_at_one_instant(site):
    """Each of them holds sometimes: the slot in the morning, the range in the evening, the delay at last."""
    constraints = "[tm.GroupConcurrency('heavy', 1), tm.TimeRange('18:00', '06:00'), tm.Delay('30m')]"
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)", constraints=constraints))
    site.clock.move("17h50m" if site.clock.now().hour == 0 else "5h50m")
    site.add(1)
    closed = site.schedule()
    by_hand = site.mill.runs.start("shop.ingest").run_id
    site.clock.move("10m")
    delayed = site.schedule()
    site.clock.move("20m")
    no_slot = site.schedule()
    (job,) = site.mill.jobs.list()
    site.complete_runs()

    assert (closed, delayed, no_slot) == ([], [], [])
    assert job.why.startswith("1/1 new partitions of default.clicks; group heavy 1/1; time range 18:00 to 06:00 UTC")
    assert site.mill.runs.show(by_hand).state == "COMPLETED"
    assert site.schedule() == ["s"]


def test_scenario_8_a_launch_needs_the_trigger_and_all_constraints(site):
    """Neither is enough alone."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks) & tm.NewFiles(raw)", constraints=ONE_RUN))
    site.add(1)
    site.land(1)
    first = site.schedule()
    site.add(1)
    trigger_open = site.schedule()
    site.land(1)
    no_slot = site.schedule()
    site.complete_runs()

    assert (first, trigger_open, no_slot) == (["s"], [], [])
    assert site.schedule() == ["s"]


def test_an_idle_scheduler_sleeps(site):
    """Nothing due, nothing arrived: it waits for a commit, at most its longest sleep."""
    site.deploy(on("s", "ingest", "tm.NewPartitions(clicks)"))
    site.schedule()

    assert site.scheduler().step() == timedelta(seconds=5)
