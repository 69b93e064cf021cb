"""`tidemill up`, killed between the sending of a delivery and its record: the next process sends it again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue

import pytest

import tidemill as tm
from tests.stage import staged
from tests.yardstick import patience

APP = """
import tidemill as tm

app = tm.App("shop")


@app.python(retries=0)
def load(run):
    raise ValueError("no such column")


app.alert("failed", tm.RunFailed(load), to=tm.WebHook("{url}"))
"""


class Receiver(BaseHTTPRequestHandler):
    """Kills the sender of the first delivery before the answer; takes the others."""

    sender: subprocess.Popen[bytes] | None
    got: list[dict[str, str]]
    came: threading.Event

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        if self.sender is not None:
            self.sender.kill()
            self.sender.wait()
        self.came.set()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def started(folder: Path, said: Callable[[dict[str, str]], None] = lambda _: None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of `tidemill up` that is ready; it is ended after the block. Its further lines go to `said`."""
    program = "from tidemill.cli.main import main; main()"
    command = [sys.executable, "-c", program, "--project", str(folder), "up", "--json", "--no-server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as process:
        timer = threading.Timer(patience(120), process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            assert any(json.loads(line)["event"] == "ready" for line in process.stdout)
            # Read on: a full pipe would hold the process.
            lines = map(json.loads, process.stdout)
            threading.Thread(target=lambda: [said(line) for line in lines], daemon=True).start()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            timer.cancel()


@pytest.mark.share("sqlite")
def test_a_delivery_that_was_sent_and_not_recorded_comes_again_with_its_id(catalog_url, tmp_path):
    """At least once, from the outbox; the receiver leaves out the repetition by the id."""
    kind = type("Killing", (Receiver,), {"got": [], "came": threading.Event(), "sender": None})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        app = APP.replace("{url}", f"http://127.0.0.1:{server.server_address[1]}/")
        with staged(tmp_path, catalog_url, app) as stage:
            (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n[spark]\nwarm = 0\n')
            with started(tmp_path) as first:
                kind.sender = first
                stage.mill.runs.start("shop.load")
                assert kind.came.wait(patience(60))
                assert first.wait() == -signal.SIGKILL
            kind.sender = None
            kind.came.clear()
            ((state,),) = stage.sql("SELECT state FROM delivery")
            assert state == "WAITING"
            # As if the time for which a try is fenced had passed.
            stage.sql("UPDATE delivery SET next_try_at = 1 RETURNING 1")
            with started(tmp_path):
                assert kind.came.wait(patience(60))
                while [str(one.state) for one in stage.mill.alerts.deliveries()] != ["SENT"]:
                    threading.Event().wait(0.05)
            (alert,) = stage.mill.alerts.list()
        server.shutdown()

    first_body, second_body = kind.got
    assert first_body == second_body
    assert str(alert.state) == "OPEN"


def test_up_prints_an_alert_that_it_opens(sqlite_catalog_url, tmp_path):
    """A terminal that shows the failed run shows the alert too."""
    said: SimpleQueue[dict[str, str]] = SimpleQueue()
    with staged(tmp_path, sqlite_catalog_url, APP.replace("{url}", "https://example.org/")) as stage:
        (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n[spark]\nwarm = 0\n')
        with started(tmp_path, said.put):
            stage.mill.runs.start("shop.load")
            lines = iter(partial(said.get, timeout=patience(60)), None)
            line = next(one for one in lines if one["event"] == "alert")
        (alert,) = stage.mill.alerts.list()

    assert (line["subject"], line["alert_id"]) == ("default.failed", alert.alert_id)
    assert (line["change"], line["about"], line["why"]) == ("opened", "default.shop.load", alert.why)


@pytest.mark.share("sqlite")
def test_a_message_that_was_pushed_and_not_recorded_comes_again_with_its_id(catalog_url, tmp_path):
    """The position of the subscriber stands before the message; a message of later follows at its commit."""
    kind = type("Killing", (Receiver,), {"got": [], "came": threading.Event(), "sender": None})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with staged(tmp_path, catalog_url, APP.replace("{url}", "https://example.org/")) as stage:
            (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n[spark]\nwarm = 0\n')
            hook = tm.WebHook(f"http://127.0.0.1:{server.server_address[1]}/")
            stage.mill.subscribers.create("erp", "paid", to=hook)
            with started(tmp_path) as first:
                kind.sender = first
                stage.mill.topics.publish("paid", {"number": 1})
                assert kind.came.wait(patience(60))
                assert first.wait() == -signal.SIGKILL
            kind.sender = None
            assert stage.mill.subscribers.show("erp").waiting == 1
            # As if the time for which a try is fenced had passed.
            stage.sql("UPDATE outside_subscriber SET next_try_at = 1 RETURNING 1")
            with started(tmp_path):
                stage.mill.topics.publish("paid", {"number": 2})
                while stage.mill.subscribers.show("erp").waiting:
                    threading.Event().wait(0.05)
        server.shutdown()

    assert [one["data"]["number"] for one in kind.got] == [1, 1, 2]
    assert len({one["id"] for one in kind.got}) == 2


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMILL_CATALOG", raising=False)
