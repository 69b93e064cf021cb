"""Servers that are killed while callers change things with keys: no change is lost, or made twice.

`python -m tests.postgres_server -- python -m tests.chaos.servers --changes 5000` is the campaign. Two `tidemill server`
processes share one PostgreSQL. Callers start runs and publish messages, each change with a key of its own. A caller
whose answer does not come asks again with the same key, at either server. The judge counts rows, never answers alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from tests.chaos.launches import own_schema
from tests.command import TIDEMILL
from tests.postgres_server import ADDRESS
from tests.served import NO_AUTHORITIES
from tests.yardstick import patience
from tidemill import Mill, iterate
from tidemill.mill.mill import open_project

CALLERS = 8
SERVERS = 2
TOPIC = "changes"
APP = """
import tidemill as tm

app = tm.App("shop")


@app.python(arguments={"n": int})
def load(run, n):
    pass
"""


@dataclass
class Servings:
    """Result of a campaign."""

    changes: int = 0
    kills: int = 0
    repeated: int = 0
    """Requests that were sent again with their key, because no answer came, or another try was under way."""
    seconds: float = 0.0
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        seen = f"{self.changes} changes, {self.kills} kills, {self.repeated} requests again in {self.seconds:.0f} s"
        return f"{seen}; {len(self.breaches)} breaches {self.breaches[:5]}"


class Site:
    """Two servers of a project, the callers, and the hand that kills servers."""

    def __init__(self, folder: Path, secret: str, seed: int) -> None:
        self._folder = folder
        self._secret = secret
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self.seen = Servings()
        self.answers: dict[int, Any] = {}
        self._readers: list[threading.Thread] = []
        started = [self._start() for _ in range(SERVERS)]
        self._servers = [server for server, _ in started]
        self._urls = [url for _, url in started]

    def _start(self) -> tuple[subprocess.Popen[str], str]:
        command = [TIDEMILL, "--project", str(self._folder), "server", "--json"]
        environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0"}
        server = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert server.stdout is not None
        url: str = json.loads(server.stdout.readline())["url"]
        reader = threading.Thread(target=_read_all, args=(server.stdout,), daemon=True)
        reader.start()
        self._readers.append(reader)
        return server, url

    def play(self, changes: int, kill_every: float) -> None:
        """Make so many changes while servers are killed."""
        begin = time.monotonic()
        ended = threading.Event()
        killer = threading.Thread(target=self._kill_until, args=(ended, kill_every))
        killer.start()
        try:
            with ThreadPoolExecutor(CALLERS) as callers:
                list(callers.map(self._change, range(changes)))
        finally:
            ended.set()
            killer.join()
        self.seen.changes = changes
        self.seen.seconds = time.monotonic() - begin

    def stop(self) -> None:
        """End both servers."""
        for server in self._servers:
            server.kill()
            server.wait()
        for reader in self._readers:
            reader.join()

    def _kill_until(self, ended: threading.Event, kill_every: float) -> None:
        while not ended.wait(self._dice.uniform(0.5, 1.5) * kill_every):
            number = self._dice.randrange(SERVERS)
            self._servers[number].send_signal(signal.SIGKILL)
            self._servers[number].wait()
            self._servers[number], self._urls[number] = self._start()
            self.seen.kills += 1

    def _change(self, number: int) -> None:
        """Make one change, and ask for its answer once more, at any server."""
        dice = random.Random(number)
        path, body = request_of(number)
        ask = lambda: self._ask(dice, path, body, f"change-{number}")  # noqa: E731
        first = self._until_answered(ask)
        again = self._until_answered(ask) if dice.random() < 0.3 else first
        with self._lock:
            self.answers[number] = first
            if again != first:
                self.seen.breaches.append(f"change {number} was answered {first} and then {again}")

    def _until_answered(self, ask: Callable[[], Any]) -> Any:
        give_up_at = time.monotonic() + patience(60)
        while (answer := ask()) is None:
            with self._lock:
                self.seen.repeated += 1
            if time.monotonic() > give_up_at:
                raise TimeoutError("no server answers")
            time.sleep(0.02)
        return answer

    def _ask(self, dice: random.Random, path: str, body: object, key: str) -> Any:
        """Return the answer of a server; None where the same request has to be sent again."""
        headers = {"authorization": f"Bearer {self._secret}", "idempotency-key": key}
        try:
            url, seconds = dice.choice(self._urls) + path, patience(10)
            answer = httpx.post(url, json=body, headers=headers, timeout=seconds, verify=NO_AUTHORITIES)
        except httpx.HTTPError:
            return None
        if answer.status_code in {409, 429, 503}:
            return None
        if answer.status_code != 200:
            with self._lock:
                self.seen.breaches.append(f"{key}: {answer.status_code} {answer.text[-300:]}")
            return {}
        return answer.json()


def _read_all(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


def request_of(number: int) -> tuple[str, object]:
    """Return the path and the body of a change."""
    if number % 2:
        return "/v1/runs", {"program": "shop.load", "arguments": {"n": number}}
    return f"/v1/topics/{TOPIC}/messages", {"payload": {"n": number}}


def judge(mill: Mill, site: Site) -> None:
    """Compare the rows with the answers: each change has one row, which its answer names, and one row of audit."""
    breaches = site.seen.breaches
    made: dict[int, list[str]] = {}
    for message in iterate(mill.topics.read, TOPIC, limit=1000, after="0"):
        made.setdefault(int(str(message.payload["n"])), []).append(message.position)
    for run in iterate(mill.runs.list, limit=1000):
        made.setdefault(int(str(mill.runs.show(run.run_id).arguments["n"])), []).append(run.run_id)
    for number, answer in site.answers.items():
        named = answer.get("run_id") or answer.get("position")
        if made.get(number) != [named]:
            breaches.append(f"change {number} was answered {named}, and made {made.get(number)}")
    breaches += [f"change {number} was never asked for" for number in made.keys() - site.answers.keys()]
    rows = Counter(one.action for one in iterate(mill.audit.log, limit=1000) if one.actor.startswith("load@"))
    wanted = Counter("run.start" if number % 2 else "topic.publish" for number in range(site.seen.changes))
    if rows != wanted:
        breaches.append(f"the audit log has {rows}, and {wanted} were asked for")


def campaign(catalog_url: str, folder: Path, changes: int, seed: int, kill_every: float) -> Servings:
    """Play on an empty catalog, and judge."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    with open_project(folder, create=True) as mill:
        mill.deploy()
        site = Site(folder, mill.tokens.create("load", role="developer").secret, seed)
        try:
            site.play(changes, kill_every)
        finally:
            site.stop()
        judge(mill, site)
        return site.seen


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every", type=float, default=4.0)
    options = parser.parse_args()
    with own_schema(os.environ[ADDRESS]) as url, tempfile.TemporaryDirectory() as folder:
        seen = campaign(url, Path(folder), options.changes, options.seed, options.kill_every)
    sys.stdout.write(f"{seen}\n")
    return 1 if seen.breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
