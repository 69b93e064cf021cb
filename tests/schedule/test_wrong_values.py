"""Triggers, constraints and schedules with any values: refused as a user's error, or kept as they were given."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.errors import UserError
from tidemill.json_specs import read_plain, write_plain
from tidemill.schedule.constraints import Constraint
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.triggers import Trigger

ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 3),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["1h", "-1h", "0s", "day", "UTC", "Mars", "clicks", "shop.load", "skip", "each", "FAILED", "1 GB"]),
    st.sampled_from(["12:00", "@daily", "* * * * *", "0 0 30 2 *", "data", "a b", "", "\x00", "\udcff"]),
    st.timedeltas(),
    st.sampled_from([timedelta(0), timedelta(microseconds=1), timedelta(hours=1)]),
    st.lists(st.sampled_from(["new", "FAILED", 1, None]), max_size=2),
    st.dictionaries(st.sampled_from(["day", "n"]), st.sampled_from([1, "x", None, []]), max_size=1),
    st.builds(tm.Every, st.just("1h")),
    st.builds(tm.Concurrency, st.just(1)),
    st.just(object()),
)
DECLARATIONS = {
    tm.AllOf: (2, "patience"),
    tm.AnyOf: (2,),
    tm.AtLeast: (2,),
    tm.Silence: (2,),
    tm.Every: (1,),
    tm.Cron: (1, "zone"),
    tm.Anytime: (1, "zone"),
    tm.NewFiles: (1, "n", "bytes"),
    tm.NewPartitions: (1, "n", "where", "kinds"),
    tm.NewData: (1, "bytes", "rows"),
    tm.Refreshed: (1,),
    tm.WatermarkPassed: (1, "every", "mode"),
    tm.WatermarkStands: (2,),
    tm.WindowsRecomputed: (1, "n"),
    tm.Missing: (1,),
    tm.RunEnded: (1, "states", "n"),
    tm.MessageOn: (1, "key", "n"),
    tm.Hook: (1, "n"),
    tm.Concurrency: (1, "on_limit"),
    tm.GroupConcurrency: (2, "on_limit"),
    tm.Rate: (2, "on_limit"),
    tm.Delay: (1, "debounce"),
    tm.TimeRange: (2, "zone", "on_limit"),
    tm.SinceLastRun: (1, "since", "on_limit"),
    tm.Probe: (1, "at_most", "at_least", "on_limit"),
}
"""For each declaration the number of arguments that are given by place, and names of further ones."""


@pytest.mark.parametrize("kind", DECLARATIONS, ids=lambda kind: kind.__name__)
@settings(max_examples=60)
@given(data=st.data())
def test_any_values_are_refused_or_kept(kind, data):
    """A wrong one gives no `TypeError` later, in a scheduler, where no user sees it."""
    places, *names = DECLARATIONS[kind]
    given_by_place = data.draw(st.lists(ANY, min_size=places, max_size=places))
    given_by_name = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANY)))
    try:
        made = kind(*given_by_place, **given_by_name)
    except UserError:
        return

    base = Trigger if isinstance(made, Trigger) else Constraint
    written = json.loads(json.dumps(write_plain(made), allow_nan=False))
    assert read_plain(base, written) == made
    assert str(made)


FIELDS = st.sampled_from([one.name for one in fields(ScheduleSpec)])
JSON = ANY.filter(lambda value: isinstance(value, str | int | float | list | dict | None))


@settings(max_examples=150)
@given(given_fields=st.dictionaries(FIELDS | st.just("unknown"), JSON | st.just([{}]), max_size=3))
def test_any_json_of_a_schedule_is_refused_or_kept(given_fields):
    """As the command line and REST give it."""
    try:
        made = read_plain(ScheduleSpec, {"trigger": {"type": "every", "duration": "1h"}, **given_fields})
    except UserError:
        return

    assert read_plain(ScheduleSpec, json.loads(json.dumps(write_plain(made), allow_nan=False))) == made


@settings(max_examples=150)
@given(given_fields=st.dictionaries(FIELDS, ANY | st.lists(ANY, max_size=2), max_size=3))
def test_any_schedule_of_an_app_is_refused_or_kept(given_fields):
    """As an app file gives it."""
    app = tm.App("shop")
    try:
        app.schedule("s", "report", **{"trigger": tm.Every("1h"), **given_fields})
    except UserError:
        return

    spec = app.schedules["s"].spec
    assert read_plain(ScheduleSpec, json.loads(json.dumps(write_plain(spec), allow_nan=False))) == spec
