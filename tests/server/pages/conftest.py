"""A busy project, and a client with the session of a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest
from httpx import Client

from tests.server.busy import APP, make_busy
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.server.listen import Listener


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A busy project on SQLite, which all tests of a module read."""
    folder = tmp_path_factory.mktemp("busy")
    url = f"sqlite:///{folder / 'catalog.db'}"
    with staged(folder, url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield make_busy(opened)


@pytest.fixture(scope="module")
def browser(stage: Stage) -> Iterator[Client]:
    """A client with the session of a browser."""
    listener = Listener(stage.mill)
    link = listener.start()
    try:
        with Client(base_url=listener.url, timeout=patience(10), headers={"accept": "text/html"}) as client:
            answer = client.get(link)
            assert answer.status_code == 303
            cookie = answer.headers["set-cookie"]
            assert {"HttpOnly", "SameSite=strict"} <= {one.strip() for one in cookie.split(";")}
            # The client of tests keeps no cookies of numeric hosts.
            client.headers["cookie"] = cookie.partition(";")[0]
            yield client
    finally:
        listener.stop()


@pytest.fixture
def read(browser: Client) -> Callable[[str], str]:
    """Return a function that gives the words of a page's main part, one space between two."""

    def words(path: str) -> str:
        answer = browser.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        main = answer.text.partition("<main")[2].partition(">")[2].partition("</main>")[0]
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", main)).split())

    return words
