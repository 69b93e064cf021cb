"""The demo with pages: they are there while it works and afterwards, and nothing stays when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.yardstick import patience

LINK = re.compile(r": (http://\S+/login\?code=\S+)")


def _processes_of(folder: str) -> list[str]:
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


@pytest.mark.spark
@pytest.mark.long
def test_the_demo_with_pages_stays_until_ctrl_c_and_ends_every_child(tmp_path):
    """A newcomer looks around for as long as she likes, and leaves no processes behind."""
    demo = subprocess.Popen(
        [str(Path(sys.executable).with_name("tidemill")), "demo", "--ui", "--days", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "TIDEMILL_SERVER_PORT": "0", "PYTHONUNBUFFERED": "1"},
    )
    try:
        lines: list[str] = []
        links: list[str] = []
        for line in demo.stdout:
            lines.append(line)
            if found := LINK.search(line):
                links.append(found[1])
                with httpx.Client(timeout=patience(10)) as client:
                    answer = client.get(links[-1])
                    cookie = answer.headers["set-cookie"].partition(";")[0]
                    page = client.get(links[-1].partition("/login")[0] + "/", headers={"cookie": cookie})
                assert answer.status_code == 303
                assert "flights" in page.text
            if "end with Ctrl-C" in line:
                break
        assert len(links) == 2, lines
        assert demo.poll() is None

        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=patience(60))
        assert demo.returncode == 0, rest
        assert "balance  in=" in rest.splitlines()[-1]
        assert "lost=0 twice=0" in rest.splitlines()[-1]
        assert _processes_of(str(tmp_path)) == []
        assert list(tmp_path.glob("tidemill-demo-*")) == []
    finally:
        demo.kill()
        demo.wait()
