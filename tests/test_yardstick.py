"""Time-outs of the tests on a slow machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import yardstick

HANGS = "import time\n\ndef test_that_takes_longer_than_its_time_out():\n    time.sleep({seconds})\n"


def test_a_slow_machine_has_more_patience(monkeypatch):
    """A time-out of 5 minutes ended a test that was at work on a machine half as fast, and its worker with it."""
    monkeypatch.setattr(yardstick, "_start_python", lambda: 2.5 * yardstick.USUAL)
    monkeypatch.delenv(yardstick.SLOWNESS, raising=False)

    assert yardstick.patience(100) == 250
    assert yardstick.slowness() == 2.5


def test_a_fast_machine_keeps_the_time_outs_as_they_are_written(monkeypatch):
    """They are written with room: to shorten them would only find fault with a machine that is busy."""
    monkeypatch.setattr(yardstick, "_start_python", lambda: yardstick.USUAL / 3)
    monkeypatch.delenv(yardstick.SLOWNESS, raising=False)

    assert yardstick.patience(100) == 100


@pytest.mark.parametrize(("slowness", "ended"), [("1", 1), ("30", 0)])
def test_the_time_out_of_each_test_is_as_long_as_the_machine_is_slow(pytestconfig, slowness, ended, tmp_path):
    """Pytest's own time-out, which ends the whole process, goes by the same yardstick."""
    (tmp_path / "test_sleeps.py").write_text(HANGS.format(seconds=1))
    (tmp_path / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 0.2\nfaulthandler_exit_on_timeout = true\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=pytestconfig.rootpath,
        env={"PATH": "", yardstick.SLOWNESS: slowness, "PYTHONPATH": str(pytestconfig.rootpath)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == ended, done.stdout + done.stderr
