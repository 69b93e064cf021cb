"""Tests of the app without Spark, in less than a second: `pytest` in the project's folder."""

from pathlib import Path

import pytest

import tidemill as tm

PROJECT = Path(__file__).parent.parent
BY_HAND = set()
"""Programs that no schedule starts, but a person: `tidemill run start`."""


@pytest.fixture
def mill(tmp_path, monkeypatch):
    """The project with a catalog of the test's own."""
    monkeypatch.setenv("TIDEMILL_STATE", str(tmp_path))
    with tm.open(PROJECT) as opened:
        yield opened


def test_the_app_can_be_deployed(mill):
    """Names, schemas, triggers and arguments are checked then."""
    assert mill.deploy()


def test_each_program_is_started_by_a_schedule(mill):
    """A program without a schedule, or with one that is suspended, would wait for ever."""
    declared = {program for deployed in mill.deploy() for program in deployed.programs}

    started = {
        schedule.program.rpartition(".")[2] for schedule in mill.schedules.list() if schedule.status == "SCHEDULED"
    }

    assert declared - BY_HAND == started
