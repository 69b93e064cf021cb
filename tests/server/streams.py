"""Streams of a real server process: their memory, and the queries while nothing happens.

`python -m tests.postgres_server -- python -m tests.server.streams` prints both for 500 streams and half a minute.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from tests.chaos.launches import own_schema
from tests.command import TIDEMILL
from tests.postgres_server import ADDRESS
from tests.server.test_rates import request
from tests.yardstick import patience
from tidemill.mill.mill import open_project

STREAMS = 500
_PER_TOKEN = 100


@dataclass(frozen=True)
class Measured:
    """Memory of one server, and its queries in a time in which nothing happened."""

    streams: int
    before: int
    after: int
    """Resident bytes of the process."""
    queries: int
    """Connections of the server that asked anything meanwhile."""
    woken: int
    """Streams that got the event of a commit afterwards."""

    @property
    def more(self) -> float:
        """MiB that the streams cost."""
        return (self.after - self.before) / 2**20

    def __str__(self) -> str:
        return (
            f"{self.streams} streams: {self.more:.1f} MiB more (from {self.before / 2**20:.0f}), "
            f"{self.queries} queries while nothing happened, {self.woken} woken by a commit"
        )


def measure(catalog_url: str, folder: Path, streams: int, quiet: float) -> Measured:
    """Open streams at a server of its own, wait for `quiet` seconds, and commit something."""
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0"}
    command = [TIDEMILL, "--project", str(folder), "server", "--json"]
    with open_project(folder, create=True) as mill, ExitStack() as opened:
        count = -(-streams // _PER_TOKEN)
        tokens = [mill.tokens.create(f"t{number}", role="viewer").secret for number in range(count)]
        server = opened.enter_context(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE))
        opened.callback(server.terminate)
        assert server.stdout is not None
        url = urlsplit(json.loads(server.stdout.readline())["url"])
        place = (url.hostname or "", url.port or 0)
        process = psutil.Process(server.pid)

        def connect(path: str, secret: str, wanted: bytes) -> socket.socket:
            one = opened.enter_context(socket.create_connection(place, timeout=patience(60)))
            one.sendall(request(path, {"authorization": f"Bearer {secret}"}))
            _read_until(one, wanted)
            return one

        for secret in tokens:  # all that a first request makes is there before the streams
            for _ in range(5):
                connect("/v1/runs", secret, b"items").close()
        connect("/v1/stream", tokens[0], b": connected").close()
        before = process.memory_info().rss
        held = [connect("/v1/stream", tokens[number % count], b": connected") for number in range(streams)]
        after = process.memory_info().rss
        asked = _queries_of(process, catalog_url)
        assert asked, "the connections of the server are seen"
        threading.Event().wait(quiet)
        queries = len(set(_queries_of(process, catalog_url)) - set(asked))
        mill.topics.publish("own", {})
        woken = sum(_read_until(one, b"event: commit") for one in held)
        return Measured(streams, before, after, queries, woken)


def _queries_of(process: psutil.Process, catalog_url: str) -> list[tuple[object, ...]]:
    """Return the last query of each connection of a process, by its port, with its begin."""
    ports = [one.laddr.port for one in process.net_connections() if one.status == psutil.CONN_ESTABLISHED]
    with psycopg.connect(catalog_url) as connection:
        query = "SELECT pid, query_start, query FROM pg_stat_activity WHERE client_port = ANY(%s)"
        return connection.execute(query, (ports,)).fetchall()


def _read_until(stream: socket.socket, wanted: bytes) -> bool:
    found = b""
    while wanted not in found:
        part = stream.recv(1000)
        if not part:
            return False
        found += part
    return True


def _main() -> None:
    with own_schema(os.environ[ADDRESS]) as url, tempfile.TemporaryDirectory() as folder:
        print(measure(url, Path(folder), STREAMS, quiet=30))


if __name__ == "__main__":
    _main()
