from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.schedule.answers import Answer, Never, NotBefore, Satisfied, Waiting, all_of, any_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
YES, SOON, LATE = Satisfied("yes"), NotBefore(NOON, "soon"), NotBefore(LATER, "late")
WAIT, NO = Waiting("wait", ("slots:a",)), Never("no")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([YES, YES], Satisfied("yes; yes")),
        ([YES, SOON], NotBefore(NOON, "soon")),
        ([SOON, LATE], NotBefore(LATER, "soon; late")),
        ([YES, WAIT, SOON], Waiting("wait; soon", ("slots:a",))),
        ([WAIT, NO, YES], Never("no")),
    ],
)
def test_all_must_hold_at_one_instant(answers, expected):
    """A `never` wins over any "not yet". A check that comes too late would start the run too late."""
    assert all_of(answers) == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([WAIT, YES, NO], Satisfied("yes")),
        ([LATE, SOON], NotBefore(NOON, "late or soon")),
        ([Waiting("wait"), SOON, NO], NotBefore(NOON, "wait or soon")),
        ([Waiting("wait"), NO], Waiting("wait")),
        ([NO, NO], Never("no; no")),
    ],
)
def test_one_is_enough(answers, expected):
    """The first time of any of them is the time to ask again."""
    assert any_of(answers) == expected


# A model of what triggers do: each is satisfied from some moment on, or never by itself.
_moments = st.one_of(st.none(), st.integers(0, 20))
_trees = st.recursive(_moments, lambda inner: st.tuples(st.sampled_from(["all", "any"]), st.lists(inner, min_size=1)))


def _ask(tree, now: int) -> Answer:
    match tree:
        case ("all", children):
            return all_of([_ask(child, now) for child in children])
        case ("any", children):
            return any_of([_ask(child, now) for child in children])
        case None:
            return Never("no")
        case moment if moment <= now:
            return YES
        case moment:
            return NotBefore(NOON + timedelta(hours=moment), "soon")


@given(_trees)
def test_a_time_answered_is_never_late(tree):
    """A job that gets "not before T" sleeps until T: an earlier start would be missed."""
    answers = [_ask(tree, now) for now in range(22)]
    first = next((now for now, answer in enumerate(answers) if isinstance(answer, Satisfied)), None)

    asleep_until = [answer.at for answer in answers[:first] if isinstance(answer, NotBefore)]

    assert first is None or all(at <= NOON + timedelta(hours=first) for at in asleep_until)
    assert first is not None or all(isinstance(answer, Never) for answer in answers)
