"""Partition keys: four forms of one thing, none of which may lose or mix up a key."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.shapes.keys import BadKey, Key, KeyField, KeySchema, KeyText, KeyType

CLICKS = KeySchema.of({"day": "date", "hour": "int"})
ALL_TYPES = KeySchema.of({"s": "string", "i": "int", "l": "long", "d": "date", "t": "timestamp"})

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
values = {
    KeyType.STRING: texts,
    KeyType.INT: st.integers(-(2**31), 2**31 - 1),
    KeyType.LONG: st.integers(-(2**63), 2**63 - 1),
    KeyType.DATE: st.dates(),
    KeyType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
}


@st.composite
def keys(draw: st.DrawFn) -> tuple[KeySchema, Key, Key]:
    """A schema with two keys of it, often equal in their first fields."""
    types = draw(st.lists(st.sampled_from(KeyType), min_size=1, max_size=4))
    schema = KeySchema(tuple(KeyField(f"f{n}", t) for n, t in enumerate(types)))
    one = tuple(draw(values[t]) for t in types)
    same = draw(st.integers(0, len(types)))
    other = one[:same] + tuple(draw(values[t]) for t in types[same:])
    return schema, one, other


@given(keys())
def test_every_form_of_a_key_returns_the_key(drawn: tuple[KeySchema, Key, Key]) -> None:
    """The catalog, the directories and the messages must name the same partition."""
    schema, key, _ = drawn

    assert schema.decode(schema.encode(key)) == key
    assert schema.from_path(schema.to_path(key)) == key
    assert schema.parse(schema.show(key)) == key


@given(keys())
def test_stored_keys_sort_as_their_values_do(drawn: tuple[KeySchema, Key, Key]) -> None:
    """Ranges and "oldest first" are read from an index over the stored text."""
    schema, one, other = drawn

    assert (schema.encode(one) < schema.encode(other)) == (one < other)
    assert (schema.encode(one).encode() < schema.encode(other).encode()) == (one < other)


@given(keys())
def test_different_keys_differ_in_every_form(drawn: tuple[KeySchema, Key, Key]) -> None:
    """Two partitions in one directory would be one partition with the rows of both."""
    schema, one, other = drawn

    for form in (schema.encode, schema.to_path, schema.show):
        assert (form(one) == form(other)) == (one == other)


def test_a_key_is_shown_as_people_write_it() -> None:
    """Messages, command line and directories are read by people."""
    key = CLICKS.check({"day": date(2013, 1, 1), "hour": 5})

    assert CLICKS.show(key) == "day=2013-01-01 hour=5"
    assert CLICKS.parse(" hour=5   day=2013-01-01 ") == key
    assert CLICKS.to_path(key) == "day=2013-01-01/hour=5"
    assert CLICKS.encode(key) == "2013-01-01!a5"


def test_instants_are_one_key_whatever_their_zone() -> None:
    """05:00 in Berlin is 04:00 in UTC: one partition."""
    schema = KeySchema.of({"at": "timestamp"})
    berlin = schema.check({"at": datetime(2013, 1, 1, 5, 0, 0, 120000, timezone(timedelta(hours=1)))})
    utc = schema.check({"at": datetime(2013, 1, 1, 4, 0, 0, 120000, UTC)})

    assert schema.encode(berlin) == schema.encode(utc) == "2013-01-01T04:00:00.120000"
    assert schema.to_path(berlin) == "at=2013-01-01 04%3A00%3A00.12"
    assert schema.show(berlin) == "at=2013-01-01T04:00:00.120000Z"
    assert schema.parse("at=2013-01-01T05:00:00.12+01:00") == berlin


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("s", None, "is null"),
        ("s", "", "is empty"),
        ("s", "a\0b", "NUL"),
        ("s", "__HIVE_DEFAULT_PARTITION__", "writes for null"),
        ("s", "x" * 254, "too long"),
        ("s", "é" * 127, "too long"),
        ("s", "\ud800", "surrogate"),
        ("s", 5, "wants a text"),
        ("i", True, "wants an integer of 32 bits"),
        ("i", "5", "wants an integer of 32 bits"),
        ("i", 2**31, "does not fit"),
        ("i", -(2**31) - 1, "does not fit"),
        ("l", 2**63, "does not fit"),
        ("l", 1.0, "wants an integer of 64 bits"),
        ("d", datetime(2013, 1, 1, tzinfo=UTC), "wants a date"),
        ("d", "2013-01-01", "wants a date"),
        ("t", date(2013, 1, 1), "wants a datetime with a time zone"),
        ("t", datetime(2013, 1, 1), "wants a datetime with a time zone"),  # noqa: DTZ001 - the naive one is refused
        ("t", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside the years"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(name: str, value: object, why: str) -> None:
    """A person mends what is named; and what Spark would map to another directory must not get that far."""
    good = {"s": "x", "i": 1, "l": 1, "d": date(2013, 1, 1), "t": datetime(2013, 1, 1, tzinfo=UTC)}

    with pytest.raises(BadKey, match=why) as caught:
        ALL_TYPES.check(good | {name: value})

    assert caught.value.key_field == name
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("given_values", "why"),
    [
        ({"day": date(2013, 1, 1)}, "'hour' is missing"),
        ({"day": date(2013, 1, 1), "hour": 5, "minute": 1}, "'minute' is not a field"),
        ({"day": date(2013, 1, 1), "huor": 5}, "did you mean 'hour'"),
    ],
)
def test_missing_and_extra_fields_are_named(given_values: dict[str, object], why: str) -> None:
    """Half a key would be another partition."""
    with pytest.raises(BadKey, match=why):
        CLICKS.check(given_values)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "day=2013-01-01",
        "day=2013-01-01 hour=5 hour=6",
        "day=2013-01-01 hour=05",
        "day=2013-01-01 hour=+5",
        "day=2013-01-01 hour=\u0665",  # a digit, in Arabic
        "day=20130101 hour=5",
        "day=2013-02-30 hour=5",
        "day=2013-01-01/hour=5",
        "day=2013-01-01 hour",
        'day=2013-01-01 hour="5',
        'day=2013-01-01 hour="5"x',
    ],
)
def test_what_is_not_a_key_is_refused(text: str) -> None:
    """A guess would publish or drop the wrong partition."""
    with pytest.raises(BadKey):
        CLICKS.parse(text)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("day=2013-01-01", "1 directories for 2"),
        ("hour=5/day=2013-01-01", "'day' is looked for"),
        ("day=2013-01-01/hour=__HIVE_DEFAULT_PARTITION__", "'hour' is null or empty"),
        ("day=2013-01-01/hour=05", "wants an integer"),
        ("day=2013-01-01/hour=", "'hour' is null or empty"),
        ("day=2013-01-01/..", "'hour' is looked for"),
        ("day=2013-01%2D01/hour=5", "not how Spark writes"),
    ],
)
def test_directories_that_spark_would_not_write_are_refused(path: str, why: str) -> None:
    """A partition would have two names, or rows without a key would vanish in one."""
    with pytest.raises(BadKey, match=why):
        CLICKS.from_path(path)


@pytest.mark.parametrize("text", ["", "2013-01-01", "2013-01-01!b5", "2013-01-01!a5!a6", "2013-01-01!A5", "x!a5"])
def test_a_stored_text_that_no_key_has_is_refused(text: str) -> None:
    """A catalog that was changed by hand fails loudly."""
    with pytest.raises(BadKey):
        CLICKS.decode(KeyText(text))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "1 to 16 key fields"),
        ({"day": "date", "Day": "int"}, "twice"),
        ({"day": "dat"}, "did you mean 'date'"),
        ({"a/b": "int"}, "bad name"),
        ({"..": "int"}, "bad name"),
        ({f"f{n}": "int" for n in range(17)}, "1 to 16 key fields"),
    ],
)
def test_bad_schemas_are_refused(fields: dict[str, str], why: str) -> None:
    """The names become columns and directories."""
    with pytest.raises(BadKey, match=why):
        KeySchema.of(fields)
