"""What can be known without Spark, in less than a second: `pytest` in the project's folder."""

from pathlib import Path

import pytest

import tidemill as tm

PROJECT = Path(__file__).parent.parent


@pytest.fixture
def mill(tmp_path, monkeypatch):
    """The project with a catalog of the test's own."""
    monkeypatch.setenv("TIDEMILL_STATE", str(tmp_path))
    with tm.open(PROJECT) as opened:
        yield opened


def test_the_app_can_be_deployed(mill):
    """Names, schemas, triggers and arguments are checked then."""
    (deployed,) = mill.deploy()

    assert deployed.programs == ("load", "report")


def test_each_program_is_started_by_its_data(mill):
    """A schedule that listens to nothing, or is suspended, would wait for ever."""
    mill.deploy()

    listening = [
        (found.program, found.status) for name in ("orders", "orders_clean") for found in mill.find_triggered(name)
    ]

    assert listening == [("default.shop.load", "SCHEDULED"), ("default.shop.report", "SCHEDULED")]
