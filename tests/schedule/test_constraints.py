from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.errors import Internal, UserError
from tidemill.json_specs import read_plain, read_text, write_plain, write_text
from tidemill.names import ProgramId
from tidemill.schedule.answers import Never, NotBefore, Satisfied, Waiting
from tidemill.schedule.constraint_json import CONSTRAINTS
from tidemill.schedule.constraints import (
    BadConstraint,
    Concurrency,
    Constraint,
    Facts,
    GroupConcurrency,
    LastRun,
    Rate,
)
from tidemill.schedule.specs import BadSchedule, OnTimeout, ScheduleSpec
from tidemill.schedule.time_triggers import Every
from tidemill.schedule.waits import Delay, Probe, SinceLastRun, TimeRange

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PROGRAM = ProgramId("prog_1")
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "triggers.md"

EXAMPLES = (
    Concurrency(3),
    Concurrency(1, "skip"),
    GroupConcurrency("crm", 5),
    Rate(2, per="1h"),
    Rate(2, per="1d", on_limit="skip"),
    Delay("10m"),
    Delay("10m", debounce=True),
    TimeRange("22:00", "06:00", zone="Europe/Berlin"),
    TimeRange("08:00", "18:30", on_limit="skip"),
    SinceLastRun("10m"),
    SinceLastRun("10m", since="start", on_limit="skip"),
    Probe("spark_load", at_most=0.8),
    Probe("free_slots", at_least=2, at_most=100, on_limit="skip"),
)


def facts_of(constraint: Constraint, **values: object) -> Facts:
    """Facts with the names that the constraint needs."""
    satisfied_at, fed_at = values.pop("satisfied_at", NOON), values.pop("fed_at", NOON)
    needs = constraint.needs(PROGRAM)
    named = {name: next(v for key, v in values.items() if name.startswith(key)) for name in needs}
    return Facts(PROGRAM, satisfied_at, fed_at, named)


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
    limits = (Concurrency(n), GroupConcurrency("crm", n))

    answers = [limit.check(facts_of(limit, slots=held, ahead=ahead), NOON) for limit in limits]

    assert [isinstance(answer, Satisfied) for answer in answers] == [starts, starts]


def test_a_job_over_the_limit_names_its_wake_key():
    """The queue is not polled: the end of a run wakes exactly the jobs that wait for its slots."""
    limits = (Concurrency(2), GroupConcurrency("crm", 2))

    answers = [limit.check(facts_of(limit, slots=2, ahead=0), NOON) for limit in limits]

    assert answers == [
        Waiting("concurrency 2/2", ("slots:program:prog_1",), 2),
        Waiting("group crm 2/2", ("slots:group:crm",), 2),
    ]


def test_a_rate_waits_until_the_oldest_launch_that_counts_leaves_the_window():
    """The window slides: two launches at five to and five past the hour are two in one hour."""
    starts = (NOON - 5 * MINUTE, NOON - 50 * MINUTE, NOON - 55 * MINUTE)
    rate = Rate(2, per="1h")

    full = rate.check(facts_of(rate, starts=starts), NOON)

    assert full == NotBefore(NOON + 10 * MINUTE, "rate 3/2 in 1h")


def test_a_rate_with_room_holds():
    """The window has one launch of two."""
    rate = Rate(2, per="1h")

    assert isinstance(rate.check(facts_of(rate, starts=(NOON,)), NOON), Satisfied)


def test_a_delay_counts_from_the_trigger_and_a_debounced_one_from_the_last_message():
    """Messages that join a job must not delay a run for ever, unless the schedule asks for that."""
    joined = Facts(PROGRAM, NOON, NOON + 5 * MINUTE, {})
    now = NOON + 7 * MINUTE

    plain, debounced = Delay("10m").check(joined, now), Delay("10m", debounce=True).check(joined, now)

    assert plain == NotBefore(NOON + 10 * MINUTE, "delay 10m since 2026-03-01T12:00:00Z")
    assert debounced == NotBefore(NOON + 15 * MINUTE, "delay 10m since 2026-03-01T12:05:00Z")
    assert isinstance(Delay("10m").check(joined, NOON + 10 * MINUTE), Satisfied)


def test_the_time_since_the_last_run_counts_from_its_end_or_from_its_start():
    """The seed leaves both readings open."""
    last = LastRun(NOON - 30 * MINUTE, NOON - 5 * MINUTE)
    by_end, by_start = SinceLastRun("10m"), SinceLastRun("10m", since="start")

    ended = by_end.check(facts_of(by_end, active=0, last_success=last), NOON)
    started = by_start.check(facts_of(by_start, active=0, last_success=last), NOON)

    assert ended == NotBefore(NOON + 5 * MINUTE, "since last run 10m: ended 2026-03-01T11:55:00Z")
    assert isinstance(started, Satisfied)


def test_an_active_run_blocks_until_it_has_ended():
    """Its end is not known: only the wake key tells."""
    since = SinceLastRun("10m")

    answer = since.check(facts_of(since, active=1, last_success=None), NOON)

    assert answer == Waiting("since last run 10m: 1 run has not ended", ("idle:program:prog_1",))


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        (Concurrency(1, "skip"), {"slots": 1, "ahead": 0}),
        (Concurrency(1, "skip"), {"slots": 0, "ahead": 1}),
        (GroupConcurrency("crm", 1, "skip"), {"slots": 1, "ahead": 0}),
        (Rate(1, per="1h", on_limit="skip"), {"starts": (NOON,)}),
        (SinceLastRun("10m", on_limit="skip"), {"active": 1, "last_success": None}),
        (SinceLastRun("10m", on_limit="skip"), {"active": 0, "last_success": LastRun(NOON, NOON)}),
        (TimeRange("22:00", "06:00", on_limit="skip"), {}),
    ],
)
def test_a_constraint_that_skips_never_waits(constraint, values):
    """The job ends at once, and its schedule counts again from zero."""
    assert isinstance(constraint.check(facts_of(constraint, **values), NOON), Never)


def test_a_fact_that_was_not_asked_for_is_refused():
    """A fact that nothing guards may be wrong when the run exists."""
    with pytest.raises(Internal, match="slots:program:prog_2"):
        Facts(PROGRAM, NOON, NOON, {}).count("slots:program:prog_2")


@pytest.mark.parametrize("n", [0, -1, True, 1.0, "1", None])
@pytest.mark.parametrize(
    "make", [Concurrency, lambda n: GroupConcurrency("crm", n), lambda n: Rate(n, per="1h")], ids=["n", "group", "rate"]
)
def test_a_limit_that_cannot_be_is_refused(make, n):
    """A limit of zero would wait for ever."""
    with pytest.raises(BadConstraint, match="n must be a whole number"):
        make(n)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Concurrency(1, "drop"), "on_limit"),
        (lambda: GroupConcurrency("", 1), "group"),
        (lambda: GroupConcurrency(5, 1), "group"),
        (lambda: Rate(1, per="0s"), "per"),
        (lambda: Rate(1, per="soon"), "per"),
        (lambda: Delay("-1m"), "duration"),
        (lambda: Delay("1m", debounce="yes"), "debounce"),
        (lambda: SinceLastRun("1m", since="begin"), "since"),
        (lambda: SinceLastRun(60), "duration"),
        (lambda: TimeRange("22:00", "22:00"), "start and end"),
        (lambda: TimeRange("24:00", "06:00"), "start"),
        (lambda: TimeRange("22:00", "6:00"), "end"),
        (lambda: TimeRange(22, 6), "start"),
        (lambda: TimeRange("22:00", "06:00", zone="Europe/Berln"), "Europe/Berlin"),
        (lambda: TimeRange("22:00", "06:00", zone=1), "zone"),
        (lambda: Probe("load"), "at_most"),
        (lambda: Probe("", at_most=1), "probe"),
        (lambda: Probe("load", at_most="1"), "at_most"),
        (lambda: Probe("load", at_least=float("nan")), "at_least"),
        (lambda: Probe("load", at_most=1, at_least=2), "no number is both"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_its_name(make, field):
    """The message names the field, so that the reader finds the cure."""
    with pytest.raises(BadConstraint, match=field):
        make()


@pytest.mark.parametrize(
    ("constraints", "why"),
    [
        ((Concurrency(1), Concurrency(2)), "has both"),
        ((Delay("1m"), Delay("2m")), "has both"),
        ((TimeRange("01:00", "02:00"), TimeRange("03:00", "04:00")), "has both"),
        ((GroupConcurrency("crm", 1), GroupConcurrency("crm", 2)), "has both"),
        ((Rate(1, per="1h"), Rate(2, per="60m")), "has both"),
        ((SinceLastRun("1h"), Concurrency(2)), "no run beside another"),
        ((Delay("24h"),), "is not shorter than timeout=1d"),
        ((3,), "is no constraint"),
    ],
)
def test_constraints_that_contradict_each_other_are_refused(constraints, why):
    """Each would make the other useless, or no run would ever start."""
    with pytest.raises(BadSchedule, match=why):
        ScheduleSpec(Every("1h"), constraints)


def test_several_of_one_kind_are_allowed_where_that_means_something():
    """Ten an hour and fifty a day; two groups."""
    constraints = (Rate(10, per="1h"), Rate(50, per="1d"), GroupConcurrency("a", 1), GroupConcurrency("b", 1))

    assert ScheduleSpec(Every("1h"), constraints).slots(PROGRAM) == {"program:prog_1", "group:a", "group:b"}
    assert ScheduleSpec(Every("1h"), (Delay("24h"),), on_timeout=OnTimeout.FORCE).constraints == (Delay("24h"),)


@pytest.mark.parametrize("constraint", EXAMPLES, ids=str)
def test_what_is_written_is_read_back(constraint):
    """The store keeps JSON."""
    assert read_text(Constraint, write_text(constraint)) == constraint


def test_the_table_of_the_page_has_each_constraint_in_its_json_form():
    """A user that writes JSON copies it from the table of docs/triggers.md."""
    _, page = PAGE.read_text(encoding="utf-8").split("## Constraints")
    forms = [json.loads(text) for text in re.findall(r"`(\{.*?\})` \|$", page, re.MULTILINE)]

    assert [write_plain(read_plain(Constraint, form)) for form in forms] == forms
    assert {form["type"] for form in forms} == set(CONSTRAINTS)


def test_the_examples_show_each_kind():
    """A new kind belongs there."""
    assert {write_plain(example)["type"] for example in EXAMPLES} == set(CONSTRAINTS)


@pytest.mark.parametrize("constraint", EXAMPLES, ids=str)
def test_a_constraint_is_shown_as_people_write_it(constraint):
    """`schedule show` has this text."""
    names = {kind.__name__: kind for kind in CONSTRAINTS.values()}

    assert eval(str(constraint), names) == constraint  # a text of our own


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"type": "concurrency", "n": 1, "m": 1},
        {"type": "concurrency", "n": True},
        {"type": "rate", "n": 1},
        {"type": "time_range", "start": "22:00", "end": 6},
        {"type": "delay", "duration": "10m", "debounce": 1},
        {"type": "since_last_run", "duration": "10m", "since": "begin"},
    ],
)
def test_other_json_is_refused_as_the_users_mistake(value):
    """A form of another version may mean something else."""
    with pytest.raises(UserError):
        read_plain(Constraint, value)
