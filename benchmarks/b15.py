"""B15: the server with a long past behind it: pages until their first byte, lists by REST, starts of runs, streams.

`tidemill server` is a process of its own. Clients are plain sockets with keep-alive, so that the server is measured.
"""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil

from benchmarks.aged import BIG, READER, RUNS, age, app_of
from benchmarks.project import running_project, wait_until
from benchmarks.table import Figure
from tidemill.mill.mill import Mill

SAMPLES: Final = 30
LOOKS: Final = 2_000
CLIENTS: Final = 4
STARTS: Final = 200
STREAMS: Final = 500
_QUIET: Final = 2.0
_SETTLE: Final = 10.0
"""Seconds from the start of `up` until nothing is left to do."""
SMALL: Final = """
import tidemill as tm

app = tm.App("bench")


@app.python()
def load(run):
    pass


app.schedule("nightly", load, trigger=tm.Cron("30 2 * * *"))
"""
MANY_SCHEDULES: Final = """
import tidemill as tm

app = tm.App("scraped")


@app.python()
def load(run):
    pass


for n in range(10_000):
    app.schedule(f"s{n:05}", load, trigger=tm.Cron("30 2 * * *"))
"""
AIM: Final = "≥ 500, aim 1,000"
_PER_TOKEN: Final = 100
"""The cap of a token on open streams, by default."""
_RUN: Final = "00000000000000000000299990"
PAGES: Final = {
    "overview": "/",
    "data sets": "/datasets",
    "file set of 1,000,000 partitions": f"/datasets/{BIG}",
    "partition": f"/datasets/{BIG}/n=1000005",
    "inboxes": "/inboxes",
    "inbox of 100,000 files": "/inboxes/raw",
    "consumers": "/consumers",
    "consumer": f"/consumers/{BIG}/{READER}",
    "snapshot": "/datasets/planes",
    "watermarks": "/watermarks",
    "watermark": "/watermarks/hours",
    "runs": "/runs",
    "runs of a program": "/runs?program=bench.p0007",
    "run": f"/runs/run_{_RUN}",
    "schedules": "/schedules",
    "schedule": "/schedules/bench.s0007_0",
    "jobs": "/jobs",
    "job": f"/jobs/job_{_RUN}",
    "why of a file set": f"/why/{BIG}",
    "why of a schedule": "/why/bench.s0007_0",
    "alerts": "/alerts",
    "alert": "/alerts/alert_1000000",
    "alert rules": "/alert-rules",
    "transactions": "/transactions",
    "nodes": "/nodes",
    "start a run": "/start-run?program=bench.p0007&ask=start",
    "backfills": "/backfills",
    "plan of a backfill": "/plan-backfill?program=bench.p0007",
    "backfill": "/backfills/backfill_1000000",
    "transaction": "/transactions/1000",
    "topics": "/topics",
    "topic": "/topics/data",
    "subscribers": "/subscribers",
    "audit": "/audit",
    "tokens": "/tokens",
    "apps": "/apps",
    "app": "/apps/bench",
    "flow around a data set": f"/flow?around={BIG}",
    "lineage of a file set": f"/lineage?thing={BIG}",
    "search": "/search?text=run_000000000000000000002999",
}
"""Pages, all of the server: each is read behind the past of `aged`."""


class _Client:
    """A connection that stays, with a token."""

    def __init__(self, url: str, secret: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}

    def ask(self, path: str, body: object = None) -> float:
        """Return the milliseconds until the first byte of the answer, which must be a good one."""
        start = time.perf_counter()
        given = None if body is None else json.dumps(body)
        self._connection.request("GET" if body is None else "POST", path, given, self._headers)
        answer = self._connection.getresponse()
        taken = (time.perf_counter() - start) * 1000
        text = answer.read()
        assert answer.status < 400, (path, answer.status, text[:500])
        return taken


def run(url: str) -> Iterator[Figure]:
    """Measure on the database at `url`."""
    database = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    with running_project(url, app_of(), age, ("server",)) as mill:
        address, secret = _address(mill), mill.tokens.create("bench", role="admin").secret
        client = _Client(address, secret)
        for name, path in PAGES.items():
            client.ask(path)
            yield Figure("B15", f"first byte of {name}", database, _repeat(client, path), "ms", "≤ 100")
        yield from _lists(address, secret, database)
        started = [client.ask("/v1/runs", {"program": f"bench.p{number:04}"}) for number in range(STARTS)]
        yield Figure("B15", "start a run", database, started, "ms")
        yield from _streams(mill, address, database)
    with running_project(url, MANY_SCHEDULES, command=("server",)) as mill:
        client = _Client(_address(mill), mill.tokens.create("scraper", role="viewer").secret)
        client.ask("/metrics")
        yield Figure("B15", "a scrape with 10,000 schedules", database, _repeat(client, "/metrics"), "ms", "≤ 50")
    if database == "SQLite":
        yield from _idle()


def _address(mill: Mill) -> str:
    file = Path(mill.project.config.state) / "server"
    wait_until(file.exists)
    return file.read_text().strip()


def _repeat(client: _Client, path: str) -> list[float]:
    return [client.ask(path) for _ in range(SAMPLES)]


def _lists(address: str, secret: str, database: str) -> Iterator[Figure]:
    """Read pages of 100 runs, each behind another key, by several clients at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        share = LOOKS // CLIENTS

        def look(number: int) -> list[float]:
            client = _Client(address, secret)
            keys = (f"run_{299_999 - (number * share + one) * 90:026}" for one in range(share))
            return [client.ask(f"/v1/runs?limit=100&program=bench.p{hash(key) % 1000:04}") for key in keys]

        start = time.perf_counter()
        taken = [one for times in pool.map(look, range(CLIENTS)) for one in times]
        seconds = time.perf_counter() - start
    yield Figure("B15", f"pages of 100 of {RUNS:,} runs, {CLIENTS} clients", database, [LOOKS / seconds], "/s", AIM)
    yield Figure("B15", "the same, 99th percentile", database, [sorted(taken)[int(len(taken) * 0.99)]], "ms", "≤ 50")


def _streams(mill: Mill, address: str, database: str) -> Iterator[Figure]:
    """Open streams, and look what they cost while nothing happens."""
    server = next(one for one in psutil.Process().children() if "server" in one.cmdline())
    parts = urlsplit(address)
    before = server.memory_info().rss
    secrets = [mill.tokens.create(f"watcher{number}", role="viewer").secret for number in range(STREAMS // _PER_TOKEN)]
    opened = []
    for number in range(STREAMS):
        secret = secrets[number % len(secrets)]
        head = f"GET /v1/stream HTTP/1.1\r\nhost: {parts.hostname}\r\nauthorization: Bearer {secret}\r\n\r\n".encode()
        one = socket.create_connection((parts.hostname, parts.port), timeout=60)
        one.sendall(head)
        assert one.recv(16).startswith(b"HTTP/1.1 200"), "a stream was refused"
        opened.append(one)
    grown = (server.memory_info().rss - before) / 2**20
    yield Figure("B15", f"memory of {STREAMS} streams", database, [grown], "MiB", "≤ 100")
    time.sleep(_QUIET)
    yield Figure("B15", f"{STREAMS} quiet streams", database, [_share_of_a_core(server)], "% of a core")
    for one in opened:
        one.close()


def _idle() -> Iterator[Figure]:
    """Compare `tidemill up` of a small project, while nothing happens, with and without its server."""
    for what, command in (("up", ("up",)), ("up --no-server", ("up", "--no-server"))):
        with (
            tempfile.TemporaryDirectory(prefix="tidemill-b15-") as folder,
            running_project(f"sqlite:///{folder}/catalog.db", SMALL, command=command),
        ):
            time.sleep(_SETTLE)
            up = next(one for one in psutil.Process().children() if "up" in one.cmdline())
            yield Figure("B15", f"memory of idle `{what}`", "SQLite", [up.memory_info().rss / 2**20], "MiB")
            yield Figure("B15", f"idle `{what}`", "SQLite", [_share_of_a_core(up, 60.0)], "% of a core")


def _share_of_a_core(process: psutil.Process, seconds: float = 10.0) -> float:
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return 100 * (sum(process.cpu_times()[:2]) - before) / seconds
