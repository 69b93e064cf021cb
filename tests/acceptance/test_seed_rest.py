"""Scenarios 4 to 7 of seed 001 through REST, as the seed says: over HTTP, against a server and the scheduler's loop.

Schedules are made, changed, deleted and looked at by requests alone. The clock is played, also that of the server.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from httpx import Client

from tests.acceptance.site import Site
from tests.manual_clock import ManualClock, backdoor_of
from tests.served import serving
from tests.stage import EMPTY, open_stage
from tests.yardstick import patience

FIVE = {"type": "new_partitions", "fileset": "default.clicks", "n": 5}
THREE = FIVE | {"n": 3}
SCHEDULE = "/v1/schedules/shop.s"


@pytest.fixture
def site(catalog_url, tmp_path):
    """A project without schedules, on each database, at the time of its clock."""
    clock = ManualClock()
    site = open_stage(Site, tmp_path, catalog_url, EMPTY, clock=clock, environ={"TIDEMILL_SERVER_PORT": "0"})
    site.clock = clock
    with closing(site.mill), backdoor_of(catalog_url) as behind:
        clock.rule(behind, site.mill.project.catalog.dialect)
        site.deploy()
        yield site


@pytest.fixture
def rest(site):
    """A client with the token of a developer."""
    with (
        serving(site.mill, role="developer") as (url, secret),
        Client(base_url=url, timeout=patience(10), headers={"authorization": f"Bearer {secret}"}) as client,
    ):
        yield client


def ask(client, method, path, **body):
    """Return the answer of a request that succeeds."""
    answer = client.request(method, path, **({"params": body} if method == "GET" else {"json": body}))
    assert answer.status_code == 200, answer.text
    return answer.json()


def create(client, **options):
    """Create the schedule `s` of the program `ingest`."""
    made = ask(client, "POST", "/v1/schedules", name="shop.s", program="shop.ingest", constraints=[], **options)
    assert made["status"] == "SCHEDULED"


def runs_of(client):
    """Return the arguments of the runs of the program, newest first."""
    return [run["arguments"] for run in ask(client, "GET", "/v1/runs", program="shop.ingest")["items"]]


def jobs_of(client):
    """Return the states of the waiting jobs of the schedule."""
    return [job["state"] for job in ask(client, "GET", "/v1/jobs", schedule="shop.s")["items"]]


def outcomes_of(client):
    """Return the outcomes of the ended jobs of the schedule, newest first."""
    return [job["outcome"] for job in ask(client, "GET", "/v1/jobs:history", schedule="shop.s")["items"]]


def test_scenario_4_what_was_counted_before_an_update_does_not_count(site, rest):
    """A partition, an update with other properties, and four more: not yet. A fifth, and the program runs."""
    create(rest, trigger=FIVE, arguments={"level": 1})
    site.add(1)
    first = site.schedule()
    updated = ask(rest, "PATCH", SCHEDULE, arguments={"level": 2})
    site.add(4)
    four = site.schedule()
    site.clock.move("10s")
    later = site.schedule()
    waiting = jobs_of(rest)
    site.add(1)
    five = site.schedule()

    assert (updated["changed"], updated["dropped_jobs"]) == (True, 1)
    assert (first, four, later, waiting) == ([], [], [], ["PENDING_TRIGGER"])
    assert five == ["s"]
    assert runs_of(rest) == [{"level": 2}]
    assert outcomes_of(rest) == ["launched", "schedule_changed"]
    assert ask(rest, "GET", SCHEDULE)["generation"] == 2


def test_scenario_5_an_update_drops_what_waited_for_its_delay(site, rest):
    """Five partitions wait for ten minutes. The update wants three, other properties, and the shortest delay."""
    create(rest, trigger=FIVE, arguments={"level": 1})
    ask(rest, "PATCH", SCHEDULE, constraints=[{"type": "delay", "duration": "10m"}])
    site.add(5)
    delayed = site.schedule()
    waiting = jobs_of(rest)
    short = [{"type": "delay", "duration": "1s"}]
    updated = ask(rest, "PATCH", SCHEDULE, trigger=THREE, arguments={"level": 2}, constraints=short)
    site.clock.move("10m")
    dropped = site.schedule()
    site.add(3)
    too_early = site.schedule()
    site.clock.move("1s")
    last = site.schedule()

    assert (delayed, waiting, updated["dropped_jobs"]) == ([], ["PENDING_CONSTRAINT"], 1)
    assert (dropped, too_early, last) == ([], [], ["s"])
    assert runs_of(rest) == [{"level": 2}]


def test_scenario_6_a_deleted_schedule_launches_nothing(site, rest):
    """Four partitions, a deletion, at once the fifth, and ten seconds: nothing."""
    create(rest, trigger=FIVE)
    site.add(4)
    site.schedule()
    waiting = jobs_of(rest)
    deleted = ask(rest, "DELETE", SCHEDULE)
    site.add(1)
    site.clock.move("10s")

    assert (waiting, deleted["dropped_jobs"], deleted["status"]) == (["PENDING_TRIGGER"], 1, None)
    assert site.schedule() == []
    assert runs_of(rest) == []
    assert ask(rest, "GET", "/v1/jobs")["items"] == []
    assert rest.get(SCHEDULE).status_code == 404


def test_scenario_7_a_schedule_that_is_deleted_during_its_delay_launches_nothing(site, rest):
    """Half a second before the delay of 40 seconds is over."""
    create(rest, trigger=FIVE)
    ask(rest, "PATCH", SCHEDULE, constraints=[{"type": "delay", "duration": "40s"}])
    site.add(5)
    site.schedule()
    waiting = jobs_of(rest)
    site.clock.move("39500ms")
    still = site.schedule()
    deleted = ask(rest, "DELETE", SCHEDULE)
    site.clock.move("10s")

    assert (waiting, still, deleted["dropped_jobs"]) == (["PENDING_CONSTRAINT"], [], 1)
    assert site.schedule() == []
    assert runs_of(rest) == []


def test_a_suspension_and_a_resumption_through_rest(site, rest):
    """Beside the scenarios: what comes during a suspension starts nothing, and a repetition changes nothing."""
    create(rest, trigger=THREE)
    suspended = ask(rest, "POST", f"{SCHEDULE}:suspend")
    again = ask(rest, "POST", f"{SCHEDULE}:suspend")
    site.add(3)
    meanwhile = site.schedule()
    resumed = ask(rest, "POST", f"{SCHEDULE}:resume")
    site.add(3)

    assert [one["changed"] for one in (suspended, again, resumed)] == [True, False, True]
    assert meanwhile == []
    assert site.schedule() == ["s"]
