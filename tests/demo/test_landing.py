"""The files that land: the scenario that the demo's last line is made of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidemill.demo.flights import Feed, read_archive
from tidemill.demo.landing import Lander, Landing, LandingStep, plan
from tidemill.storage.locations import open_files
from tidemill.world import World


@pytest.fixture(scope="module")
def steps() -> list[LandingStep]:
    """The plan of the demo's three days."""
    return plan(read_archive(World().disk, days=3))


def landings_of(steps: list[LandingStep], hour: int) -> dict[str, Landing]:
    """The files of flights that land in that hour of 1 January, by name."""
    time = datetime(2013, 1, 1, hour, tzinfo=UTC)
    (step,) = (step for step in steps if step.time == time and step.landings)
    return {landing.name: landing for landing in step.landings if landing.feed is Feed.FLIGHTS}


def test_an_upload_that_never_ends_keeps_its_suffix_and_counts_nowhere(steps):
    """The inbox must ignore the upload by its name. If its rows counted, the balance would show a loss that is none."""
    landed = landings_of(steps, 12)["2013-01-01T12_again.csv_current"]

    assert landed.rows == ()
    assert landed.content


def test_the_late_file_lands_in_its_own_name_only_at_20z(steps):
    """Its name sorts below files that were read long before: a marker alone would never see it."""
    landed = [step.time.hour for step in steps for each in step.landings if each.note == "five hours late"]

    assert landed == [20]
    assert [step.time.hour for step in steps if step.waits] == [20]
    assert landings_of(steps, 15) == {}
    assert len(landings_of(steps, 20)["2013-01-01T15.csv"].rows) == 39


def test_the_cut_file_ends_in_the_middle_of_its_32nd_row(steps):
    """FAILFAST alone does not notice every cut; this one stands for an upload that broke off."""
    landed = landings_of(steps, 18)["2013-01-01T18.csv"]

    _header, *lines = landed.content.decode().split("\n")
    assert len(landed.rows) == len(lines) == 32
    assert lines[:31] == [row.line for row in landed.rows[:31]]
    assert lines[31] == landed.rows[31].line[:30]


def test_the_rewritten_file_has_its_old_name_and_rows_in_another_order(steps):
    """A known name has another content of the same size, so the size alone cannot show the change."""
    first, again = landings_of(steps, 14)["2013-01-01T14.csv"], landings_of(steps, 20)["2013-01-01T14.csv"]

    assert again.content != first.content
    assert len(again.content) == len(first.content)
    assert (sorted(again.rows, key=str), len(again.rows)) == (sorted(first.rows, key=str), 56)


def test_the_file_sent_again_has_another_name_and_the_same_content(steps):
    """Only its rows say that it was there: the names do not."""
    first, again = landings_of(steps, 13)["2013-01-01T13.csv"], landings_of(steps, 21)["2013-01-01T13_again.csv"]

    assert again.content == first.content
    assert len(again.rows) == 58


def test_three_days_land_as_many_rows_as_the_docstring_derives(steps):
    """`in=3002`, from the ledger: on disk the rewritten file is there once."""
    landed = sum(len(landing.rows) for step in steps for landing in step.landings)

    assert landed == 211 + 2699 - 22 + 56 + 58 == 3002


def test_the_lander_writes_the_file_and_the_ledger(tmp_path):
    """The balance is only as good as its ledger."""
    lander = Lander(open_files(tmp_path, World()))
    landing = Landing(Feed.WEATHER, "a.csv", b"x\n", ())

    lander.land(landing)

    assert (tmp_path / "weather" / "a.csv").read_bytes() == b"x\n"
    assert lander.ledger == [landing]


def test_a_step_without_files_comes_first_and_each_day_begins_at_its_own_hour(steps):
    """The database is there before the first flight, and changes with New York's days."""
    begins = [(step.day, step.time, bool(step.landings)) for step in steps if step.day is not None]

    assert begins == [
        (0, datetime(2013, 1, 1, 6, tzinfo=UTC), False),
        (1, datetime(2013, 1, 2, 5, tzinfo=UTC), True),
        (2, datetime(2013, 1, 3, 5, tzinfo=UTC), True),
    ]
