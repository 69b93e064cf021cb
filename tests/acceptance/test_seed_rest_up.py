"""Scenarios 4 to 7 of seed 001 through REST in real time: `tidemill up` as a process, files that arrive, HTTP.

`test_seed_rest.py` has the scenarios with the seed's own times, on a played clock. Here a second schedule with the same
trigger and delay is the witness: when it has launched its run, the schedule of the scenario has had its time as well.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from json import loads
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from tests.yardstick import patience

pytestmark = pytest.mark.long

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text", settle="0s", list_every="200ms")
clicks = app.fileset("clicks", keys={"n": "int"})


@app.python(reads=[raw], writes=[clicks])
def load(run):
    for name in run.input(raw).files:
        run.output(clicks).create_empty({"n": int(name.removesuffix(".txt"))})


@app.python(arguments={"level": 0})
def ingest(run):
    pass


@app.python()
def witness(run):
    pass


app.schedule("load", load, trigger=tm.NewFiles(raw))
"""
FIVE = {"type": "new_partitions", "fileset": "default.clicks", "n": 5}
THREE = FIVE | {"n": 3}
SCHEDULE = "/v1/schedules/shop.s"
LONGER_THAN_THE_TEST = [{"type": "delay", "duration": "10m"}]


class Site:
    """A project with its running process, as a caller of REST sees it."""

    def __init__(self, folder: Path, client: Client) -> None:
        self._landing = folder / "landing"
        self._client = client
        self._numbers = itertools.count(1)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Return the answer of a request that succeeds."""
        sent = {"params": body} if method == "GET" else {"json": body}
        answer = self._client.request(method, path, **sent)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def status(self, path: str) -> int:
        """Return the status of the answer to a GET."""
        return self._client.get(path).status_code

    def create(self, name: str, program: str, **options: Any) -> None:
        """Create a schedule."""
        options = {"constraints": [], **options}
        made = self.ask("POST", "/v1/schedules", name=f"shop.{name}", program=f"shop.{program}", **options)
        assert made["status"] == "SCHEDULED"

    def land(self, files: int) -> None:
        """Let files arrive, each in one step. Each becomes a partition."""
        for number in itertools.islice(self._numbers, files):
            part = self._landing / f".{number}.part"
            part.write_text("a click\n", encoding="utf-8")
            part.rename(self._landing / f"{number}.txt")

    def runs(self, program: str) -> list[dict[str, Any]]:
        """Return the arguments of the runs of a program, newest first."""
        return [run["arguments"] for run in self.ask("GET", "/v1/runs", program=f"shop.{program}")["items"]]

    def job(self) -> tuple[str, str]:
        """Return the state of the waiting job of the schedule, and why it waits; empty texts if none waits."""
        jobs = self.ask("GET", "/v1/jobs", schedule="shop.s")["items"]
        if not jobs:
            return "", ""
        found = self._client.get(f"/v1/jobs/{jobs[0]['job_id']}")  # 404 if its run has just begun
        because = found.json().get("because", [])
        return jobs[0]["state"], " ".join(one["why"] for one in because)

    def outcomes(self) -> list[str]:
        """Return the outcomes of the ended jobs of the schedule, newest first."""
        return [job["outcome"] for job in self.ask("GET", "/v1/jobs:history", schedule="shop.s")["items"]]


def until(claim: Callable[[], object]) -> None:
    """Wait until `claim` holds."""
    over = threading.Event()
    timer = threading.Timer(patience(60), over.set)
    timer.start()
    try:
        while not claim():
            assert not over.wait(0.05), "waited in vain"
    finally:
        timer.cancel()


@pytest.fixture
def site(catalog_url: str, tmp_path: Path) -> Iterator[Site]:
    """A project on each database, deployed by its running `tidemill up`, and a client with the user's own token."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\nstate = "state"\n', encoding="utf-8")
    program = "from tidemill.cli.main import main; main()"
    command = [sys.executable, "-c", program, "--project", str(tmp_path), "up", "--json"]
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(patience(200), process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            url = next(line["subject"] for line in map(loads, process.stdout) if line["event"] == "ready")
            # Read on: a full pipe would hold the process.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            token = tmp_path / "state" / "token"
            until(token.exists)
            headers = {"authorization": f"Bearer {token.read_text(encoding='utf-8').strip()}"}
            with Client(base_url=url, timeout=patience(20), headers=headers) as client:
                yield Site(tmp_path, client)
            process.send_signal(signal.SIGTERM)
            assert process.wait(patience(60)) == 0
        finally:
            process.kill()
            timer.cancel()


def test_scenario_4_what_was_counted_before_an_update_does_not_count(site):
    """A partition, an update with other properties, and four more: not yet. A fifth, and the program runs."""
    site.create("s", "ingest", trigger=FIVE, arguments={"level": 1})
    site.create("w", "witness", trigger=FIVE)
    site.land(1)
    until(lambda: "1/5" in site.job()[1])
    updated = site.ask("PATCH", SCHEDULE, arguments={"level": 2})
    site.land(4)
    until(lambda: site.runs("witness"))
    until(lambda: "4/5" in site.job()[1])
    four = site.runs("ingest")
    site.land(1)
    until(lambda: site.runs("ingest"))

    assert (updated["changed"], updated["dropped_jobs"]) == (True, 1)
    assert four == []
    assert site.runs("ingest") == [{"level": 2}]
    assert site.outcomes() == ["launched", "schedule_changed"]


def test_scenario_5_an_update_drops_what_waited_for_its_delay(site):
    """Five partitions wait for ten minutes. The update wants three, other properties, and the shortest delay."""
    site.create("s", "ingest", trigger=FIVE, arguments={"level": 1}, constraints=LONGER_THAN_THE_TEST)
    site.land(5)
    until(lambda: site.job()[0] == "PENDING_CONSTRAINT")
    short = [{"type": "delay", "duration": "1s"}]
    updated = site.ask("PATCH", SCHEDULE, trigger=THREE, arguments={"level": 2}, constraints=short)
    dropped = site.job()
    site.land(3)
    until(lambda: site.runs("ingest"))

    assert (updated["dropped_jobs"], dropped) == (1, ("", ""))
    assert site.runs("ingest") == [{"level": 2}]
    assert site.outcomes() == ["launched", "schedule_changed"]


def test_scenario_6_a_deleted_schedule_launches_nothing(site):
    """Four partitions, a deletion, and at once the fifth: the witness launches its run, the schedule nothing."""
    site.create("s", "ingest", trigger=FIVE)
    site.create("w", "witness", trigger=FIVE)
    site.land(4)
    until(lambda: "4/5" in site.job()[1])
    deleted = site.ask("DELETE", SCHEDULE)
    site.land(1)
    until(lambda: site.runs("witness"))

    assert (deleted["dropped_jobs"], deleted["status"]) == (1, None)
    assert site.runs("ingest") == []
    assert site.ask("GET", "/v1/jobs")["items"] == []
    assert site.status(SCHEDULE) == 404


def test_scenario_7_a_schedule_that_is_deleted_during_its_delay_launches_nothing(site):
    """The witness has the same trigger and delay, and launches its run when the delay is over."""
    delay = [{"type": "delay", "duration": f"{round(patience(4))}s"}]
    site.create("s", "ingest", trigger=FIVE, constraints=delay)
    site.create("w", "witness", trigger=FIVE, constraints=delay)
    site.land(5)
    until(lambda: site.job()[0] == "PENDING_CONSTRAINT")
    deleted = site.ask("DELETE", SCHEDULE)
    until(lambda: site.runs("witness"))

    assert deleted["dropped_jobs"] == 1
    assert site.runs("ingest") == []
