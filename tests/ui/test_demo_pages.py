"""Pages of a real `tidemill up` in a real browser: those of the demo, with its data of New York."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import CHROMIUM
from tests.ui.every_page import check_every_page
from tests.yardstick import patience

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
]
LINK = re.compile(r"(http://[^/]+)/login\?code=\S+")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the demo after its day is over, and a link that signs in."""
    folder = tmp_path_factory.mktemp("demo")
    command = [str(Path(sys.executable).with_name("tidemill")), "demo", "--ui", "--days", "1"]
    environ = {**os.environ, "TMPDIR": str(folder), "TIDEMILL_SERVER_PORT": "0", "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
    assert demo.stdout is not None
    try:
        link = ""
        for line in demo.stdout:
            if found := LINK.search(line):
                link = found[0]
            if "end with Ctrl-C" in line:
                break
        assert link
        yield link.partition("/login")[0], link
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=patience(60))


def test_every_page_of_the_demo_is_clean(visit):
    """The first project that a newcomer sees has files, partitions, versions, windows, runs and what went wrong."""
    paths = check_every_page(visit)

    assert {one.split("/")[1] for one in paths} >= {"datasets", "inboxes", "jobs", "runs", "schedules", "watermarks"}
    assert len(paths) > 20


def test_an_action_on_the_demo_is_done_and_seen(visit):
    """The page is that of another process, and follows it."""
    page = visit("/schedules")
    page.get_by_role("link", name=re.compile("load")).first.click()
    page.get_by_role("button", name=re.compile("Suspend")).first.click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Suspend")).click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("suspended", timeout=patience(10_000))
