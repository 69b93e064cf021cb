"""Pages of a real `tidemill up`: those of the demo, with its data of New York, until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.command import TIDEMILL
from tests.ui.conftest import CHROMIUM
from tests.ui.every_page import check_every_page
from tests.yardstick import patience

pytestmark = [pytest.mark.long, pytest.mark.spark]
LINK = re.compile(r": (http://\S+/login\?code=\S+)")
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium")


def first_page(link: str) -> str:
    """Sign in by a link, and return the page that it leads to."""
    with httpx.Client(timeout=patience(10)) as client:
        answer = client.get(link)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        page = client.get(link.partition("/login")[0] + "/", headers={"cookie": cookie})
    assert answer.status_code == 303
    return page.text


def processes_of(folder: str) -> list[str]:
    """Return the command lines of processes that name a folder."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = one.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in line:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the demo after its day is over, and a link that signs in.

    Fails if the demo gives no page while it works, or leaves anything behind when Ctrl-C has ended it.
    """
    folder = tmp_path_factory.mktemp("demo")
    command = [TIDEMILL, "demo", "--ui", "--days", "1"]
    environ = {**os.environ, "TMPDIR": str(folder), "TIDEMILL_SERVER_PORT": "0", "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
    with demo:
        assert demo.stdout is not None
        try:
            links: list[str] = []
            for line in demo.stdout:
                if found := LINK.search(line):
                    if not links:
                        assert "flights" in first_page(found[1])
                    links.append(found[1])
                if "end with Ctrl-C" in line:
                    break
            assert len(links) == 2
            assert demo.poll() is None

            yield links[1].partition("/login")[0], links[1]

            demo.send_signal(signal.SIGINT)
            rest, _ = demo.communicate(timeout=patience(60))
        finally:
            demo.kill()
    assert demo.returncode == 0, rest
    assert "balance  in=" in rest.splitlines()[-1]
    assert "lost=0 twice=0" in rest.splitlines()[-1]
    assert processes_of(str(folder)) == []
    assert list(folder.glob("tidemill-demo-*")) == []


def test_a_newcomer_looks_around_for_as_long_as_she_likes(site):
    """The app goes on after the last report, and the demo leaves no processes behind."""
    assert httpx.get(f"{site[0]}/ready", timeout=patience(10)).status_code == 200


@needs_chromium
@pytest.mark.browser
def test_every_page_of_the_demo_is_clean(visit):
    """The first project that a newcomer sees has files, partitions, versions, windows, runs and what went wrong."""
    # Other pages of the same kinds are looked at in all four ways, in seconds and not beside a running demo.
    paths = check_every_page(visit)

    assert {one.split("/")[1] for one in paths} >= {"datasets", "inboxes", "jobs", "runs", "schedules", "watermarks"}
    assert len(paths) > 20


@needs_chromium
@pytest.mark.browser
def test_an_action_on_the_demo_is_done_and_seen(visit):
    """The page is that of another process, and follows it."""
    page = visit("/schedules")
    page.get_by_role("link", name=re.compile("load")).first.click()
    page.get_by_role("button", name=re.compile("Suspend")).first.click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Suspend")).click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("suspended", timeout=patience(10_000))
