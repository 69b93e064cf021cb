"""Filters: a choice of partitions, in values or in words. A refusal names the field."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.shapes.filters import Range, make_filter, parse_filter
from tidemill.shapes.keys import BadKey, KeySchema

KEYS = KeySchema.of({"day": "date", "hour": "int"})
TEXTS = KeySchema.of({"name": "string", "n": "long"})
DAYS = [date(2026, 1, day) for day in range(1, 6)]


def chosen(where):
    """The keys of five days with three hours each that the filter accepts, as (day of month, hour)."""
    accepts = make_filter(KEYS, where).accepts
    return [(day.day, hour) for day in DAYS for hour in range(3) if accepts(KEYS.encode((day, hour)))]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, 15),
        ({"day": DAYS[1]}, [(2, 0), (2, 1), (2, 2)]),
        ({"day": Range(DAYS[3], None), "hour": 0}, [(4, 0), (5, 0)]),
        ({"day": Range(None, DAYS[1]), "hour": {0, 2}}, [(1, 0), (1, 2)]),
        ({"day": Range(DAYS[1], DAYS[3]), "hour": Range(2)}, [(2, 2), (3, 2)]),
        ({"hour": [1], "day": (DAYS[0], DAYS[4])}, [(1, 1), (5, 1)]),
    ],
)
def test_all_conditions_hold_and_ranges_leave_out_their_upper_end(where, expected):
    """[lower, upper): two ranges side by side mean each partition once."""
    found = chosen(where)

    assert found == expected or len(found) == expected


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"dai": DAYS[0]}, "'dai' is not a field .* did you mean 'day'"),
        ({"day": "2026-01-01"}, "'day' wants a date"),
        ({"day": datetime(2026, 1, 1, tzinfo=UTC)}, "'day' wants a date"),
        ({"hour": Range(1.5)}, "'hour' wants an integer"),
        ({"hour": {True}}, "'hour' wants an integer"),
        ({"hour": {1, None}}, "'hour' is null"),
        ({"hour": Range()}, "range without bounds"),
        ({"hour": Range(3, 3)}, "in which nothing lies"),
        ({"hour": []}, "set without values"),
        ({"hour": 1 << 40}, "does not fit"),
    ],
)
def test_a_condition_that_cannot_be_meant_names_its_field(where, why):
    """A filter that quietly accepts nothing looks like a file set without data."""
    with pytest.raises(BadKey, match=why):
        make_filter(KEYS, where)


@pytest.mark.parametrize(
    ("texts", "where"),
    [
        (["day=2026-01-02"], {"day": DAYS[1]}),
        (["day>=2026-01-02", "day<2026-01-04", "hour=1"], {"day": Range(DAYS[1], DAYS[3]), "hour": 1}),
        (["hour=1", "hour=2"], {"hour": {1, 2}}),
        (["hour<2"], {"hour": Range(None, 2)}),
    ],
)
def test_conditions_read_as_people_write_them(texts, where):
    """The same on the command line as in Python."""
    assert parse_filter(KEYS, texts) == make_filter(KEYS, where)


def test_a_text_may_hold_the_signs_of_conditions():
    """The first sign divides."""
    assert parse_filter(TEXTS, ["name=a<b>=c"]) == make_filter(TEXTS, {"name": "a<b>=c"})


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["day"], "no condition"),
        (["day=soon"], "'day' wants a date"),
        (["dai=2026-01-01"], "did you mean 'day'"),
        (["hour=1", "hour<2"], "do not go together"),
        (["hour<1", "hour<2"], "do not go together"),
    ],
)
def test_words_that_say_no_condition_are_refused(texts, why):
    """With the field, and what would be right."""
    with pytest.raises(BadKey, match=why):
        parse_filter(KEYS, texts)


values = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda text: "\0" not in text
)
numbers = st.integers(-(2**63), 2**63 - 1)
conditions = st.one_of(
    st.none(), st.tuples(st.just("one of"), st.lists(values, min_size=1, max_size=3)), st.tuples(values, values)
)


@given(name=conditions, n=st.one_of(st.none(), numbers), key=st.tuples(values, numbers))
def test_what_is_accepted_lies_within_the_bounds(name, n, key):
    """The database looks only between them."""
    where = {} if n is None else {"n": n}
    if name is not None:
        low, high = name
        where["name"] = set(high) if low == "one of" and isinstance(high, list) else Range(min(name), max(name) + "x")
    accepted = make_filter(TEXTS, where)
    text = TEXTS.encode(key)
    lower, upper = accepted.bounds

    assert not accepted.accepts(text) or lower.encode() <= text.encode() < upper.encode()
