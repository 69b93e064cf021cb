"""Fixtures of the server's tests: a project with a deployed app, and clients with roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from httpx import Client

from tests.served import NO_AUTHORITIES
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.server.listen import Listener

APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})
late = app.fileset("late", keys={"day": "date"})

@app.python(writes=[orders])
def load(run):
    pass

@app.python(reads=[orders], writes=[late])
def sift(run):
    pass

app.schedule("nightly", load, trigger=tm.Cron("30 2 * * *", zone="Europe/Berlin"))
app.schedule("on_orders", sift, trigger=tm.NewPartitions(orders, 1))
"""
Sign = Callable[..., Client]


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A deployed project."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield opened


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    """A client of a real server, which has not signed in."""
    listener = Listener(stage.mill)
    listener.start()
    try:
        with Client(base_url=listener.url, timeout=patience(10), verify=NO_AUTHORITIES) as opened:
            yield opened
    finally:
        listener.stop()


@pytest.fixture
def sign(stage: Stage, client: Client) -> Sign:
    """Return the client with the headers of a new token."""

    def signed(role: str = "admin", namespace: str | None = None, name: str = "") -> Client:
        made = stage.mill.tokens.create(name or f"t-{role}-{namespace or 'all'}", role=role, namespace=namespace)
        client.headers["authorization"] = f"Bearer {made.secret}"
        return client

    return signed
