"""User stories and test scenarios of seed 001, by their numbers, as far as triggers and constraints exist for them.

Apps are deployed as users deploy them; data arrives as files in a folder and as committed partitions; the scheduler is
the loop's own step. Only the programs are not run: a run's end is what its driver would commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

import tidemill as tm
from tests.manual_clock import ManualClock, backdoor_of
from tidemill import App, Mill
from tidemill.app.deploy import Deployed, deploy
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import EndTransaction, begin, commit
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.consumer.take import take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import find
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.inbox import Inbox
from tidemill.mill.mill import open_project
from tidemill.names import DEFAULT_NAMESPACE, RunId
from tidemill.run.step.attempts import FinishRun, register, take_runs
from tidemill.schedule.loop import LONGEST_SLEEP, Scheduler
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.world import World

SCHEMA = ColumnSchema('{"type":"struct","fields":[]}')


def _files(size: int) -> tuple[DataFile, ...]:
    return (DataFile("part-0.parquet", size, size // 100, "etag"),) if size else ()


@dataclass
class Site:
    """A project whose data arrives when the test says so."""

    mill: Mill
    clock: ManualClock
    landing: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def deploy(self, app: App, *, update_schedules: bool = True) -> Deployed:
        """Deploy an app."""
        return deploy(
            self.mill.project.catalog,
            self.mill.project.world,
            self.mill.project.config,
            app,
            update_schedules=update_schedules,
        )

    def land(self, files: int) -> None:
        """Files arrive in the inbox `raw`."""
        self.landing.mkdir(parents=True, exist_ok=True)
        for number in itertools.islice(self.numbers, files):
            (self.landing / f"{number:06}.csv").write_text(f"{number}\n", encoding="utf-8")
        discover(
            self.mill.project.catalog,
            Inbox.of(self.mill.project.catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, "raw"))),
        )

    def add(self, partitions: int, dataset: str = "clicks", *, fails: bool = False, size: int = 0) -> None:
        """Commit so many new partitions of `size` bytes, or fail to."""
        catalog = self.mill.project.catalog
        fileset = Fileset.of(catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, dataset)))
        run_id = RunId(self.mill.project.world.new_id("run"))
        tx = begin(catalog, run_id=run_id, epoch=1, writes=[fileset.dataset_id])
        if fails:
            catalog.apply([EndTransaction(tx.write_pointer, "aborted", "it failed")])
            return
        changes = [
            PartitionWrite(fileset.keys.check({"n": number}), WriteOp.CREATE, Manifest(_files(size)))
            for number in itertools.islice(self.numbers, partitions)
        ]
        commit(catalog, tx, [AddPartitions(tx, fileset, changes, SCHEMA, frozenset())])

    def take(self, dataset: str, consumer: str) -> int:
        """Return the number of partitions that a run of a program gets now."""
        catalog = self.mill.project.catalog
        dataset_id = catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, dataset)).dataset_id
        consumer_id = catalog.write(lambda db: ensure_consumer(db, dataset_id, consumer)).consumer_id
        tx = begin(catalog, run_id=RunId(self.mill.project.world.new_id("run")), epoch=1)
        return len(take_claims(catalog, tx, {consumer_id: Terms()})[consumer_id])

    def schedule(self) -> list[str]:
        """Let a scheduler that was just started do what it can; the schedules whose programs it launched."""
        launched: list[str] = []
        scheduler = Scheduler(
            self.mill.project.catalog, self.mill.project.world, lambda launch: launched.append(launch.schedule)
        )
        while not scheduler.step():
            pass
        return [name.removeprefix("default.shop.") for name in launched]

    def complete_runs(self) -> None:
        """All runs end well, a second later."""
        self.clock.move("1s")

        def take(db: Db) -> list[tuple[RunId, int]]:
            runs = take_runs(db, most=10_000, owner="r", host="h", lease=timedelta(minutes=1))
            for run in runs:
                register(db, run.run_id, run.epoch, pid=1, facts={}, log_location="logs")
            return [(run.run_id, run.epoch) for run in runs]

        for run_id, epoch in self.mill.project.catalog.write(take):
            self.mill.project.catalog.apply([FinishRun(run_id, epoch, "done", {})])


@pytest.fixture
def site(catalog_url, tmp_path):
    """An empty project on each database."""
    clock = ManualClock()
    options = {"catalog": catalog_url}
    world = replace(World(), clock=clock)
    with open_project(tmp_path, options=options, create=True, world=world) as mill, backdoor_of(catalog_url) as behind:
        clock.rule(behind, mill.project.catalog.dialect)
        yield Site(mill, clock, tmp_path / "landing")


@dataclass
class Shop:
    """An app with one inbox, two file sets and programs that read them."""

    app: App = field(default_factory=lambda: tm.App("shop"))

    def __post_init__(self) -> None:
        self.raw = self.app.inbox("raw", "landing", format="text", settle="0s")
        self.clicks = self.app.fileset("clicks", keys={"n": "int"})
        self.users = self.app.fileset("users", keys={"n": "int"})
        self.app.python(reads=[self.raw, self.clicks], arguments={"level": 0})(ingest)
        self.app.python(reads=[self.clicks, self.users])(join)

    def schedule(self, name: str, program: object, trigger: object, **rules: object) -> Shop:
        """Add a schedule that listens, and has no constraints unless the story gives some."""
        self.app.schedule(name, program, trigger=trigger, **{"constraints": [], **rules})
        return self


def ingest(run):
    """A program of the user's."""


def join(run):
    """Another one."""


def test_story_1_many_schedules_due_at_once_are_all_fulfilled(site):
    """Hundreds of workflows at a fixed time: no thread is held for any of them."""
    shop = Shop()
    for number in range(400):
        shop.schedule(f"s{number}", join, tm.Every("4h"))
    site.deploy(shop.app)
    site.clock.move("4h")

    launched = site.schedule()

    assert sorted(launched) == sorted(f"s{number}" for number in range(400))


def test_story_2_no_schedule_is_skipped_while_the_scheduler_is_away(site):
    """A fail-over takes a minute: what was due and what arrived in it runs afterwards, once."""
    shop = Shop().schedule("hourly", ingest, tm.Every("1h")).schedule("data", join, tm.NewPartitions("clicks"))
    site.deploy(shop.app)
    site.clock.move("59m")
    before = site.schedule()
    site.clock.move("1m")
    site.add(1)
    site.clock.move("1m")

    after = site.schedule()

    assert before == []
    assert sorted(after) == ["data", "hourly"]
    assert site.schedule() == []


def test_story_3_a_feed_that_arrives_once_a_day_makes_one_run_a_day(site):
    """With cron it would run every three hours, seven times out of eight for nothing."""
    shop = Shop()
    site.deploy(shop.schedule("feed", ingest, tm.NewFiles(shop.raw)).app)
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
    shop = Shop()
    site.deploy(shop.schedule("b", join, tm.NewPartitions(shop.clicks)).app)

    site.add(3, fails=True)
    after_failure = site.schedule()
    site.add(3)
    after_success = site.schedule()

    assert (after_failure, after_success) == ([], ["b"])


def test_story_8_a_join_waits_for_all_of_its_inputs(site):
    """(Waiting at most for some time is later.) Two changes of one input are not one of each."""
    shop = Shop()
    site.deploy(shop.schedule("join", join, tm.NewPartitions(shop.clicks) & tm.NewPartitions(shop.users)).app)

    site.add(1)
    site.add(1)
    half = site.schedule()
    site.add(1, "users")

    assert (half, site.schedule()) == ([], ["join"])


def test_story_9_a_feed_that_comes_in_n_chunks_is_processed_when_all_are_there(site):
    """The chunks arrive over hours; the run gets them all."""
    shop = Shop()
    site.deploy(shop.schedule("feed", ingest, tm.NewFiles(shop.raw, 4)).app)
    launched = []

    for _ in range(4):
        site.land(1)
        site.clock.move("1h")
        launched += [site.schedule()]

    (run,) = site.mill.runs.list()
    assert launched == [[], [], [], ["feed"]]
    assert run.triggered_by["triggers"][0]["count"] == 4


def test_story_10_a_feed_of_every_second_does_not_run_every_second(site):
    """The program runs when enough has accumulated. A burst that is more than enough is one run."""
    shop = Shop()
    site.deploy(shop.schedule("feed", join, tm.NewPartitions(shop.clicks, 30)).app)
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
    shop = Shop()
    site.deploy(shop.schedule("feed", join, tm.NewData(shop.clicks, bytes="100 MB")).app)
    launched = []

    for megabytes in (30, 40, 20, 15, 250, 99):
        site.add(1, size=megabytes * 1_000_000)
        launched.append(len(site.schedule()))
    why = {run.triggered_by["triggers"][0]["why"] for run in site.mill.runs.list()}

    assert launched == [0, 0, 0, 1, 1, 0]
    assert why == {f"{size} MB/100 MB new bytes of default.clicks" for size in (105, 250)}


def test_story_11_a_hundred_gigabytes_or_four_hours(site):
    """As the seed says it, in bytes; the burst moves the next run by time."""
    shop = Shop()
    site.deploy(shop.schedule("feed", join, tm.Every("4h") | tm.NewData(shop.clicks, bytes="100 GB")).app)
    hours = []

    for hour in range(1, 13):
        site.clock.move("1h")
        site.add(2, size=(60 if hour == 6 else 1) * 1_000_000_000)
        if site.schedule():
            hours.append(hour)

    assert hours == [4, 6, 10]


def test_story_11_at_least_every_four_hours_and_sooner_with_a_burst(site):
    """An early run by data moves the next one by time."""
    shop = Shop()
    site.deploy(shop.schedule("feed", ingest, tm.Every("4h") | tm.NewFiles(shop.raw, 100)).app)
    hours = []

    for hour in range(1, 13):
        site.clock.move("1h")
        if hour == 6:
            site.land(120)
        if site.schedule():
            hours.append(hour)

    assert hours == [4, 6, 10]


def test_scenario_2_an_update_by_deployment_changes_the_arguments(site):
    """The next scheduled run has the new ones."""
    site.deploy(Shop().schedule("s", ingest, tm.NewFiles("raw"), arguments={"level": 1}).app)
    site.land(1)
    first = site.schedule()
    site.complete_runs()
    site.deploy(Shop().schedule("s", ingest, tm.NewFiles("raw"), arguments={"level": 2}).app)
    site.land(1)
    second = site.schedule()

    assert first == second == ["s"]
    assert [run.arguments for run in site.mill.runs.list()] == [{"level": 2}, {"level": 1}]


def test_scenario_3_a_deployment_touches_schedules_only_when_it_may(site):
    """In production ops own them; in development the app does."""
    one, two = tm.NewPartitions("clicks"), tm.NewPartitions("clicks", 2)
    site.deploy(Shop().schedule("kept", join, one).schedule("gone", join, one).app)
    changed = Shop().schedule("kept", join, two).schedule("new", join, one).app

    site.deploy(changed, update_schedules=False)
    site.add(1)
    untouched = site.schedule()
    site.deploy(changed, update_schedules=True)
    site.add(1)
    followed = site.schedule()

    assert sorted(untouched) == ["gone", "kept"]
    assert followed == ["new"]
    assert sorted(view.name for view in site.mill.schedules.list()) == ["default.shop.kept", "default.shop.new"]


def test_scenario_4_what_was_counted_before_an_update_does_not_count(site):
    """A partition, an update, four more: not yet. After a fifth, the program runs with the new arguments."""
    trigger = tm.NewPartitions("clicks", 5)
    site.deploy(Shop().schedule("s", ingest, trigger, arguments={"level": 1}).app)
    site.add(1)
    site.schedule()
    deployed = site.deploy(Shop().schedule("s", ingest, trigger, arguments={"level": 2}).app)
    site.add(4)
    four = site.schedule()
    site.add(1)
    five = site.schedule()

    (run,) = site.mill.runs.list()
    assert deployed.dropped_jobs == 1
    assert (four, five) == ([], ["s"])
    assert run.arguments == {"level": 2}


def test_scenario_5_an_update_drops_what_waited_for_its_constraint(site):
    """(The delay is later: here the job waits for a slot.) The new schedule starts on what is new."""
    rules = {"constraints": [tm.Concurrency(1)]}
    site.deploy(Shop().schedule("s", ingest, tm.NewPartitions("clicks", 5), **rules).app)
    site.add(5)
    first = site.schedule()
    site.add(5)
    waiting = site.schedule()
    site.deploy(Shop().schedule("s", ingest, tm.NewPartitions("clicks", 3), arguments={"level": 2}, **rules).app)
    site.complete_runs()
    after = site.schedule()
    site.add(3)
    last = site.schedule()

    assert (first, waiting, after, last) == (["s"], [], [], ["s"])
    assert [run.arguments["level"] for run in site.mill.runs.list()] == [2, 0]


def test_scenario_6_a_deleted_schedule_launches_nothing(site):
    """Four partitions, a deletion, and the fifth: nothing."""
    site.deploy(Shop().schedule("s", ingest, tm.NewPartitions("clicks", 5)).app)
    site.add(4)
    site.schedule()
    deployed = site.deploy(Shop().app)
    site.add(1)

    assert deployed.schedules_removed == ("s",)
    assert deployed.dropped_jobs == 1
    assert site.schedule() == []
    assert list(site.mill.jobs.list()) == []


def test_scenario_8_a_launch_needs_the_trigger_and_all_constraints(site):
    """Neither is enough alone."""
    trigger = tm.NewPartitions("clicks") & tm.NewFiles("raw")
    site.deploy(Shop().schedule("s", ingest, trigger, constraints=[tm.Concurrency(1)]).app)
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


def test_a_redeployment_of_the_same_app_keeps_what_is_pending(site):
    """Known from elsewhere (airflow #50890): an event just before a deployment must not be lost with it."""
    app = Shop().schedule("s", ingest, tm.NewPartitions("clicks", 2)).app
    site.deploy(app)
    site.add(1)
    site.schedule()
    deployed = site.deploy(app)
    site.add(1)

    assert deployed.schedules_kept == ("s",)
    assert site.schedule() == ["s"]


def test_events_while_the_consumer_runs_are_the_next_run(site):
    """Known from elsewhere (airflow #56050, #49857): they are neither lost nor added to the run under way."""
    site.deploy(Shop().schedule("s", ingest, tm.NewPartitions("clicks"), constraints=[tm.Concurrency(1)]).app)
    site.add(1)
    site.schedule()
    for _ in range(3):
        site.add(1)
        site.schedule()
    site.complete_runs()
    site.schedule()

    counts = [run.triggered_by["triggers"][0]["count"] for run in site.mill.runs.list()]
    assert counts == [3, 1]


def test_an_event_while_the_schedule_is_suspended_is_taken_when_it_is_resumed(site):
    """An event starts nothing while the schedule is suspended, and its data does not wait for another event."""
    site.deploy(Shop().schedule("s", ingest, tm.NewPartitions("clicks")).app)
    site.mill.schedules.suspend("shop.s")
    site.add(1)
    suspended = site.schedule()
    site.mill.schedules.resume("shop.s")
    resumed = site.schedule()

    assert (suspended, resumed) == ([], ["s"])
    assert site.take("clicks", "default.shop.ingest") == 1


def test_an_idle_scheduler_sleeps(site):
    """Nothing due, nothing arrived: it waits for a commit, at most its longest sleep."""
    site.deploy(Shop().schedule("s", ingest, tm.NewPartitions("clicks")).app)
    site.schedule()

    assert Scheduler(site.mill.project.catalog, site.mill.project.world, lambda _: None).step() == LONGEST_SLEEP
