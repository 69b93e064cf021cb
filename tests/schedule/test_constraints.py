from __future__ import annotations

import pytest

from tidemill.errors import UserError
from tidemill.json_specs import read_plain, read_text, write_text
from tidemill.names import ProgramId
from tidemill.schedule.answers import Satisfied, Waiting
from tidemill.schedule.constraints import BadConstraint, Concurrency

KEY = Concurrency(1).limit_key(ProgramId("prog_1"))


@pytest.mark.parametrize(
    ("n", "held", "ahead", "starts"),
    [
        (1, 0, 0, True),
        (1, 1, 0, False),
        (1, 2, 0, False),
        (3, 2, 0, True),
        (3, 2, 1, False),
        (3, 1, 1, True),
        (3, 0, 3, False),
    ],
)
def test_a_run_starts_only_into_a_slot_that_is_free_and_its_own(n, held, ahead, starts):
    """A free slot goes first to the jobs with the better turn, or high priority would mean nothing."""
    answer = Concurrency(n).check(KEY, held, ahead)

    assert isinstance(answer, Satisfied) == starts


def test_a_job_over_the_limit_names_its_wake_key():
    """The queue is not polled: the end of a run wakes exactly the jobs that wait for its slots."""
    answer = Concurrency(2).check(KEY, 2, 0)

    assert answer == Waiting("concurrency 2/2", ("slots:program:prog_1",))


@pytest.mark.parametrize("n", [0, -1, True, 1.0, "1", None])
def test_a_limit_that_cannot_be_is_refused(n):
    """A limit of zero would wait for ever."""
    with pytest.raises(BadConstraint):
        Concurrency(n)


def test_what_is_written_is_read_back():
    """The store keeps JSON."""
    assert read_text(Concurrency, write_text(Concurrency(3))) == Concurrency(3)


@pytest.mark.parametrize(
    "value", [None, {}, {"type": "concurrency", "n": 1, "m": 1}, {"type": "concurrency", "n": True}]
)
def test_other_json_is_refused_as_the_users_mistake(value):
    """A form of another version may mean something else."""
    with pytest.raises(UserError):
        read_plain(Concurrency, value)
