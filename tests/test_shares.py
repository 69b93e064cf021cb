"""The cases that `make test` leaves out: those for `make test-long`, and those for `make test-both`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.conftest import MANY

LONG_TEST = """
import pytest

@pytest.mark.share({share})
@pytest.mark.parametrize("case", ["quick", "slow"])
def test_that_is_long(case):
    pass

def test_that_is_short():
    pass
"""


TEST_OF_MANY_CASES = """
import pytest

@pytest.mark.parametrize("case", range({cases}))
@pytest.mark.parametrize("catalog_url", ["sqlite", "postgres"])
def test_with_cases(case, catalog_url):
    print(catalog_url, case)
"""


@pytest.fixture
def collect(pytestconfig, tmp_path):
    """Run the tests of a file, and return what pytest ends with and prints."""

    def run(text: str, marked: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(text)
        configured = ["-c", str(pytestconfig.rootpath / "pyproject.toml"), "--rootdir", str(tmp_path)]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                *configured,
                "-p",
                "tests.conftest",
                "-q",
                "-rP",
                "-m",
                marked,
                str(tmp_path),
            ],
            cwd=pytestconfig.rootpath,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_share_stays_and_the_other_cases_are_long(collect):
    """Each kind of a campaign is seen at each `make test`, and nothing is lost between the two targets."""
    kept = collect(LONG_TEST.format(share='"quick"'), "not long")
    others = collect(LONG_TEST.format(share='"quick"'), "long")

    assert kept[0] == others[0] == 0
    assert "2 passed, 1 deselected" in kept[1]
    assert "1 passed, 2 deselected" in others[1]


def test_a_share_of_cases_that_are_not_there_is_refused(collect):
    """A case that was renamed would leave `make test` unnoticed."""
    code, printed = collect(LONG_TEST.format(share='"quick", "quicker"'), "not long")

    assert code == pytest.ExitCode.USAGE_ERROR
    assert "cases that are not there: {'quicker'}" in printed


@pytest.mark.long
def test_many_cases_take_turns_on_the_databases(collect):
    """Each database has half of the cases: in `make test` of each test, in CI only of tests with many cases."""
    few = collect(TEST_OF_MANY_CASES.format(cases=MANY - 1), "not twin")
    short = collect(TEST_OF_MANY_CASES.format(cases=MANY - 1), "not long")
    many = collect(TEST_OF_MANY_CASES.format(cases=MANY), "not twin")
    twins = collect(TEST_OF_MANY_CASES.format(cases=MANY), "twin")

    assert f"{2 * MANY - 2} passed" in few[1]
    assert f"{MANY - 1} passed" in short[1]
    played = set(re.findall(r"^(sqlite|postgres) (\d+)$", many[1], re.MULTILINE))
    others = set(re.findall(r"^(sqlite|postgres) (\d+)$", twins[1], re.MULTILINE))
    assert {case for _, case in played} == {case for _, case in others} == {str(case) for case in range(MANY)}
    assert len(played) == len(others) == MANY
    assert Counter(database for database, _ in played) == {"sqlite": MANY / 2, "postgres": MANY / 2}
