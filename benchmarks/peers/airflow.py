"""Airflow beside B1, B2 and B11: `airflow standalone` with its LocalExecutor.

All settings are the defaults, but the number of tasks at one time in B2.

An asset event is published by Airflow's REST interface, as a program outside of it does. Its tasks write the clock of
the machine into a file, as the programs of ours do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from benchmarks.peers.environments import PeerMissing
from benchmarks.processes import ending_processes
from benchmarks.project import lines_of
from tests.postgres_server import free_port

SAMPLES: Final = 10
TASKS_AT_ONCE: Final = 32
"""Airflow's default (`[core] parallelism`)."""
_QUIET: Final = 1.0
_READY_IN: Final = 120.0
_FIRST_TASK_IN: Final = 45.0
_MEASURED_IN: Final = 330.0
"""Seconds from the start of Airflow until the round of B2 must have ended."""
_EVENT: Final = {"asset_id": 1, "extra": {}}
_FINISHED: Final = "/api/v2/dags/~/dagRuns?state=success&limit=1"
_ENDED: Final = "/api/v2/dags/~/dagRuns?state=success&state=failed&limit=1"

DAGS: Final = """
import os
import time

from airflow.sdk import DAG, Asset, task

bell, out = Asset("bell"), Asset("out")


def made(number):
    with DAG(f"d{number}", schedule=[bell], catchup=False):

        @task(outlets=[out])
        def work():
            now = time.monotonic()
            with open(os.environ["BENCH_LINES"], "a") as file:
                file.write(f"{now}\\n")

        work()


for number in range(int(os.environ["BENCH_DAGS"])):
    made(number)
"""


class Airflow:
    """A running Airflow whose DAGs each have one task, and are scheduled by one asset."""

    def __init__(self, base: str, database_url: str, lines: Path, process: subprocess.Popen[bytes]) -> None:
        self.database_url = database_url
        self._base = base
        self._lines = lines
        self._process = process

    def publish(self) -> float:
        """Publish one event of the asset; the moment at which the answer came, by the machine's monotonic clock."""
        self._ask("/api/v2/assets/events", _EVENT)
        return time.monotonic()

    def lines(self) -> list[float]:
        """Return the moments at which tasks began."""
        return [float(line) for line in lines_of(self._lines)]

    def finished(self) -> int:
        """Return the number of DAG runs that succeeded."""
        return int(self._ask(_FINISHED)["total_entries"])

    def ended(self) -> int:
        """Return the number of DAG runs that have ended."""
        return int(self._ask(_ENDED)["total_entries"])

    def processes(self) -> list[psutil.Process]:
        """Return all of its processes."""
        main = psutil.Process(self._process.pid)
        return [main, *main.children(recursive=True)]

    def wait_until_ready(self, dags: int) -> None:
        """Wait until the asset starts all DAGs. Raises `PeerMissing`."""
        self._wait(lambda: self._listens(dags), _READY_IN, "schedule its DAGs by the asset")

    def warm_up(self, dags: int) -> None:
        """Start the first DAGs by hand, again if they fail: the first tasks time out while Airflow loads."""
        for _ in range(2):
            begun, ended = len(self.lines()), self.ended()
            for number in range(dags):
                self._ask(f"/api/v2/dags/d{number}/dagRuns", {"logical_date": None})
            with suppress(PeerMissing):
                self.wait_for_ends(ended, dags, _FIRST_TASK_IN)
                if len(self.lines()) >= begun + dags:
                    return
        raise PeerMissing("its tasks did not begin")

    def wait_for_lines(self, wanted: int, patience: float) -> None:
        """Wait until so many tasks have begun."""
        self._wait(lambda: len(self.lines()) >= wanted, patience, f"begin {wanted} tasks", every=0.005)

    def wait_for_ends(self, before: int, wanted: int, patience: float) -> None:
        """Wait until so many DAG runs have ended, beside the earlier ones. `PeerMissing` says how many ended."""
        seen = 0

        def all_ended() -> bool:
            nonlocal seen
            seen = self.ended() - before
            return seen >= wanted

        try:
            self._wait(all_ended, patience, f"end {wanted} runs")
        except PeerMissing as missing:
            raise PeerMissing(f"{missing}; {seen} ended, {seen / patience:.2g} a second") from None

    def _listens(self, dags: int) -> bool:
        assets = self._ask("/api/v2/assets?limit=10")["assets"]
        return any(one["name"] == "bell" and len(one["scheduled_dags"]) == dags for one in assets)

    def _wait(self, claim: Callable[[], bool], patience: float, what: str, every: float = 0.5) -> None:
        deadline = time.monotonic() + patience
        while True:
            with suppress(OSError):
                if claim():
                    return
            if self._process.poll() is not None:
                raise PeerMissing(f"it ended with exit code {self._process.returncode}")
            if time.monotonic() > deadline:
                raise PeerMissing(f"it did not {what} within {patience:.0f} s")
            time.sleep(every)

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


@contextmanager
def running_airflow(python: Path, url: str, dags: int, tasks_at_once: int = TASKS_AT_ONCE) -> Iterator[Airflow]:
    """Start Airflow with so many DAGs, its database beside the catalog at `url`; end its processes after the block."""
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-airflow-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "dags").mkdir()
        (home / "dags" / "bench.py").write_text(DAGS)
        database_url = _database_beside(url, home)
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        settings = {
            "AIRFLOW_HOME": folder,
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": str(tasks_at_once),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{base}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": base,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_url.replace("postgresql://", "postgresql+psycopg2://"),
            "BENCH_LINES": str(home / "lines"),
            "BENCH_DAGS": str(dags),
        }
        environment = {**os.environ, **settings, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)
        with (home / "log").open("wb") as log, ending_processes():
            process = subprocess.Popen(
                [str(python.with_name("airflow")), "standalone"],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
            try:
                airflow = Airflow(base, database_url, home / "lines", process)
                airflow.wait_until_ready(dags)
                airflow.warm_up(min(dags, tasks_at_once))
                yield airflow
            except (PeerMissing, OSError) as missing:
                raise PeerMissing(f"{missing}; {_last_error(home / 'log')}") from None


def _database_beside(url: str, home: Path) -> str:
    """Return the URL of Airflow's own database: a new one in the same server, or a file in `home`."""
    if url.startswith("sqlite"):
        return f"sqlite:///{home}/airflow.db"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS airflow WITH (FORCE)")
        connection.execute("CREATE DATABASE airflow")
    return f"{url.rpartition('/')[0]}/airflow"


def _last_error(log: Path) -> str:
    found = [
        line for line in log.read_text(errors="replace").splitlines() if re.search(r"\w+(Error|Exception)\b", line)
    ]
    return f"its last error: {found[-1].strip()[:200]}" if found else "it logged no error"


def measure_first_lines(url: str, python: Path) -> list[float]:
    """Return milliseconds from the return of an event to the first line of its task, one event after the other."""
    with running_airflow(python, url, 1) as airflow:
        # The first event is the warm-up.
        return [_sample(airflow) for _ in range(1 + SAMPLES)][1:]


def _sample(airflow: Airflow) -> float:
    begun, ended = len(airflow.lines()), airflow.ended()
    published = airflow.publish()
    airflow.wait_for_lines(begun + 1, _FIRST_TASK_IN)
    taken = (airflow.lines()[begun] - published) * 1000
    airflow.wait_for_ends(ended, 1, _FIRST_TASK_IN)
    time.sleep(_QUIET)
    return taken


def measure_runs(url: str, dags: int, tasks_at_once: int, python: Path) -> float:
    """Return the runs in a second of a round in which one event starts so many DAGs. Raises `PeerMissing`."""
    deadline = time.monotonic() + _MEASURED_IN
    with running_airflow(python, url, dags, tasks_at_once) as airflow:
        return _round(airflow, dags, deadline - time.monotonic())


def _round(airflow: Airflow, dags: int, patience: float) -> float:
    finished, ended = airflow.finished(), airflow.ended()
    published = airflow.publish()
    airflow.wait_for_ends(ended, dags, patience)
    seconds = time.monotonic() - published
    if airflow.finished() < finished + dags:
        raise PeerMissing(f"{airflow.finished() - finished} of {dags} runs succeeded")
    return dags / seconds
