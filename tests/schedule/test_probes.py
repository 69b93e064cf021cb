"""Probes: read outside of transactions, with a time-out; an error means "not yet"."""

from __future__ import annotations

import http.server
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import READING_AGE, Concurrency, ProbeReading
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.jobs import Outcome
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.probes import Probes, read_spark_load
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.waits import Probe

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Number:
    """A probe that gives the number it has, or raises its error."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def why(shop) -> str:
    """The answer of the only constraint of the only job."""
    (job,) = shop.jobs()
    return job.verdict["constraints"][0]["why"]


@pytest.fixture
def load() -> Number:
    """The load of something outside."""
    return Number(0.9)


@pytest.fixture
def step(shop, load):
    """Lets a scheduler with the probe `load` do all it can; returns its launches."""
    launches = []
    scheduler = Scheduler(shop.catalog, shop.world, launches.append, probes={"load": load})

    def do() -> list:
        launches.clear()
        while scheduler.step() == timedelta(0):
            pass
        return list(launches)

    return do


def test_a_job_waits_until_the_number_is_within_the_bounds(shop, load, step):
    """The cluster is full now; the job asks again a quarter of a minute later, without any message."""
    shop.schedule(NewPartitions("clicks"), constraints=(Probe("load", at_most=0.8),))
    shop.add()
    blocked = step()
    reason = why(shop)
    load.value = 0.5
    too_soon = step()
    shop.clock.move(READING_AGE)

    assert blocked == too_soon == []
    assert reason == "probe load 0.9, at most 0.8"
    assert len(step()) == 1


def test_one_reading_serves_all_jobs_of_its_time(shop, load, step):
    """A hundred schedules must not ask the Spark master a hundred times."""
    for number in range(5):
        shop.schedule(
            NewPartitions("clicks"),
            name=f"s{number}",
            program=shop.program(f"p{number}"),
            constraints=(Probe("load", at_most=1),),
        )
    shop.add()

    assert len(step()) == 5
    assert load.calls == 1


@pytest.mark.parametrize("value", [RuntimeError("no route"), "0.5", None, float("nan"), True])
def test_an_error_means_not_yet_even_with_skip(shop, load, step, value):
    """A page that is away for a minute must not cancel the night's run."""
    load.value = value
    shop.schedule(NewPartitions("clicks"), constraints=(Probe("load", at_most=0.8, on_limit="skip"),))
    shop.add()
    blocked = step()
    load.value = 0.1
    shop.clock.move(READING_AGE)

    assert blocked == []
    assert len(step()) == 1


def test_a_probe_that_skips_ends_the_job(shop, step):
    """As each constraint does."""
    schedule = shop.schedule(NewPartitions("clicks"), constraints=(Probe("load", at_most=0.8, on_limit="skip"),))
    shop.add()

    assert step() == []
    assert [job.outcome for job in shop.history(schedule)] == [Outcome.SKIPPED]


def test_a_probe_that_is_not_installed_says_so(shop, step):
    """The job waits, and its reason names the cure."""
    shop.schedule(NewPartitions("clicks"), constraints=(Probe("other", at_least=1),))
    shop.add()

    assert step() == []
    assert why(shop) == "probe other: no installed package has such a probe"


def test_a_probe_is_read_outside_of_transactions(shop):
    """A page that does not answer must not hold locks. Another scheduler checks the job meanwhile."""
    shop.schedule(NewPartitions("clicks"), constraints=(Probe("load", at_most=0.8), Concurrency(1)))
    shop.add()
    subscribe(shop.catalog, shop.world)
    other = Probes({"load": lambda: 0.2})

    def read() -> float:
        check_due(shop.catalog, shop.world, probes=other)
        return 0.9

    checked = check_due(shop.catalog, shop.world, probes=Probes({"load": read}))

    assert checked.launches == ()
    assert shop.jobs() == []


def test_a_probe_that_hangs_is_not_called_again_until_it_has_answered():
    """Else each check would leave one more thread behind."""
    released = threading.Event()
    calls = []

    def hang() -> float:
        calls.append(1)
        released.wait()
        return 1.0

    probes = Probes({"load": hang}, timeout=timedelta(milliseconds=1))
    for _ in range(3):
        probes.read(["load"], NOON)
    known = probes.known(["load"], NOON)
    released.set()

    assert known == {"load": ProbeReading(NOON, None, "it has not answered in time")}
    assert len(calls) == 1


def test_the_load_of_a_spark_master_is_the_share_of_its_cores_in_use():
    """As the JSON of the page of a standalone master of Spark 4 has it."""
    page = {"url": "spark://here:7077", "cores": 8, "coresused": 6, "status": "ALIVE"}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(page if self.path == "/json/" else {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        load = read_spark_load("spark://127.0.0.1:7077", str(server.server_port))
        thread.join()

    assert load == 0.75


def test_a_master_without_a_page_has_no_load():
    """`local[*]` has no master."""
    with pytest.raises(ValueError, match="only a standalone master"):
        read_spark_load("local[*]", "8080")
