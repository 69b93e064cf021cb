"""The share of long tests that `make test` keeps; `make test-long` runs the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

LONG_TEST = """
import pytest

@pytest.mark.share({share})
@pytest.mark.parametrize("case", ["quick", "slow"])
def test_that_is_long(case):
    pass

def test_that_is_short():
    pass
"""


@pytest.fixture
def collect(pytestconfig, tmp_path):
    """Run the tests of a file with a share, and return what pytest ends with and prints."""

    def run(share: str, marked: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(LONG_TEST.format(share=share))
        configured = ["-c", str(pytestconfig.rootpath / "pyproject.toml"), "--rootdir", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *configured, "-p", "tests.conftest", "-q", "-m", marked, str(tmp_path)],
            cwd=pytestconfig.rootpath,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_share_stays_and_the_other_cases_are_long(collect):
    """Each kind of a campaign is seen at each `make test`, and nothing is lost between the two targets."""
    kept = collect('"quick"', "not long")
    others = collect('"quick"', "long")

    assert kept[0] == others[0] == 0
    assert "2 passed, 1 deselected" in kept[1]
    assert "1 passed, 2 deselected" in others[1]


def test_a_share_of_cases_that_are_not_there_is_refused(collect):
    """A case that was renamed would leave `make test` unnoticed."""
    code, printed = collect('"quick", "quicker"', "not long")

    assert code == pytest.ExitCode.USAGE_ERROR
    assert "cases that are not there: {'quicker'}" in printed
