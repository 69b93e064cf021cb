"""`/v1/docs`: all routes on one page, without a foreign host, a script or a style in the page."""

from __future__ import annotations

import re
import shlex
from html import unescape

import pytest
from httpx import Client

from tests.served import serving
from tests.server.conftest import APP
from tests.stage import staged
from tests.yardstick import patience
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.routes import list_routes


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a server, and the secret of a token."""
    folder = tmp_path_factory.mktemp("docs")
    with (
        staged(folder, f"sqlite:///{folder}/catalog.db", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage,
        serving(stage.mill) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def page(served):
    """The page, as a stranger gets it."""
    with Client(timeout=patience(10), base_url=served[0]) as client:
        answer = client.get("/v1/docs")
    assert answer.status_code == 200
    return answer


def test_each_route_is_there_with_its_right_its_lines_and_its_examples(page):
    """By noun, in the words of the list of operations."""
    text = unescape(page.text)
    for route in list_routes():
        operation = route.operation
        beginning = f'<details class="panel" id="{re.escape(operation.action)}">'
        (part,) = re.findall(f"{beginning}.*?</details>", text, re.DOTALL)
        assert f"{route.method} {route.path}</code>" in part
        assert operation.summary in part
        assert f"Needs the right `{operation.right}`" in part
        assert f"tidemill {operation.command}" in part or operation.mark.no_command in part
        assert "<h3>Answer</h3>" in part
        assert "<dt>422</dt>" in part
        assert ("<h3>Body</h3>" in part) == route.has_body
        assert all(f"<code>{name}" in part for name in (*route.in_path, *route.inputs))
        assert ("<code>If-Match</code>" in part) == route.conditional
    assert {f'href="#{one.noun}"' for one in OPERATIONS if one.noun} <= set(re.findall(r'href="#\w+"', text))
    assert "GET /v1/runs/{run_id}/logs" in text
    assert "GET /health" in text


def test_the_page_obeys_the_policy_for_its_content(page):
    """No script or style stands in it, and no address of another host."""
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page.text) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", page.text) == []
    assert len(page.content) < 2_000_000


def test_nothing_of_the_project_is_on_the_page(page, served):
    """The page is open to all, as the description of the routes is."""
    for word in ("nightly</", served[1], "catalog.db"):
        assert word not in page.text.partition("<main")[0]


def test_the_lines_for_curl_are_requests(page, served):
    """Each of a list works as it stands, with the two variables."""
    url, secret = served
    lines = re.findall(r"<span>\$ (curl [^<]+)</span>", page.text)
    asked = 0
    with Client(timeout=patience(10), headers={"authorization": f"Bearer {secret}"}) as client:
        for line in map(unescape, lines):
            words = shlex.split(line.replace("$TIDEMILL_SERVER", url))
            method = words[words.index("-X") + 1] if "-X" in words else "GET"
            if method == "GET":
                answer = client.get(words[-1])
                assert answer.status_code in (200, 404, 409, 422), (line, answer.text)
                assert answer.json().get("code") not in ("no_route", "bad_request"), (line, answer.text)
                asked += 1

    assert len(lines) == len(list(list_routes()))
    assert asked > 40
