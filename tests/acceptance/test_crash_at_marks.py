"""Every step of every role, from a file that lands to what is published of it, with a fault at each of its points.

A round is played again and again, with a few strikes each time, until every point was struck once: on SQLite by every
way that leads there, on PostgreSQL, which takes four times as long, by one of them where points are marks. A pause
is as long everywhere: it is made by one way on SQLite too. A day plays one kind of faults, and seven days play all.
`python -m tests.acceptance.fail_points` strikes by every way on both and prints what was struck.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.fail_points import CANNOT_BE_STRUCK, named_marks, opened_machine, strike_everywhere
from tests.acceptance.machine import AT_MARKS, Kind, Machine
from tests.acceptance.rounds import check, play
from tests.seed_of_the_day import TODAY

# On two busy cores both databases take 465 s with PAUSE, 355 s with CUT, 264 s with AWAY, 176 s with CRASH.
OF_TODAY = tuple(Kind)[TODAY % len(Kind)]


@pytest.fixture
def machine(catalog_url: str, memory_folder: Path) -> Iterator[Machine]:
    """A project on nodes whose processes die, fail and stand at given points, on each database."""
    with opened_machine(catalog_url, memory_folder / "project") as machine:
        yield machine


@pytest.mark.proof
@pytest.mark.long
@pytest.mark.parametrize("kind", [OF_TODAY])
def test_a_fault_at_any_point_loses_and_doubles_nothing(machine, kind):
    """The next process takes up what a fault leaves, so that no user has to clean up. Every mark is struck."""
    short = kind in AT_MARKS and (kind is Kind.PAUSE or machine.catalog.dialect == "postgres")
    figures = strike_everywhere(machine, kind, first_ways_only=short)

    assert machine.sql("SELECT * FROM garbage") == []
    assert machine.sql("SELECT count(*) FROM tx WHERE state IN ('aborted', 'invalid')") != [(0,)]
    assert figures.ways
    if kind in AT_MARKS:
        assert figures.marks.keys() == named_marks() - CANNOT_BE_STRUCK.get(kind, {}).keys()


def test_a_round_reaches_every_mark_of_the_product(machine):
    """The test above strikes at a new step or mark, or this test reports that the step is not reached."""
    play(machine, 1)
    check(machine, 1)

    assert machine.deaths == []
    # Lost with its driver, failed by its program, completed with the claims of the first attempt; runs at work when
    # the node lost its power are retried too.
    ((state, epoch, failures),) = machine.sql(
        "SELECT r.state, r.epoch, r.failures FROM run AS r JOIN program AS p ON p.program_id = r.program_id"
        " WHERE p.name = 'load'"
    )
    assert (state, failures) == ("COMPLETED", 1)
    assert epoch >= 3
    assert machine.sql("SELECT count(*) FROM run WHERE state = 'COMPLETED' AND epoch > failures + 1") >= [(1,)]
    changes = {action for (action,) in machine.sql("SELECT action FROM audit WHERE action LIKE 'backfill.%'")}
    assert changes == {f"backfill.{verb}" for verb in ("start", "pause", "resume", "retry", "cancel")}
    assert machine.sql("SELECT count(*) FROM workflow_run WHERE holding = 'resumed'") == [(1,)]
    # Files of the first round that were away and come back as copies.
    play(machine, 2)
    assert machine.marks == named_marks()
