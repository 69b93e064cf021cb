from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest

from tidemill.errors import UserError
from tidemill.json_specs import BadJson, read_plain, read_text, renamed, shaped, sparse, union, write_plain, write_text
from tidemill.names import RunId


class Colour(StrEnum):
    """Options."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    """A spec within a spec."""

    colour: Colour
    options: Mapping[str, str] = field(default_factory=dict)


@sparse
@dataclass(frozen=True, slots=True)
class Spec:
    """A field of each type that specs have."""

    inner: Inner
    run: RunId | None = None
    number: int = 1
    share: float = 0.5
    most: float | None = None
    flag: bool = False
    wait: timedelta | None = timedelta(hours=1)
    names: tuple[str, ...] = ()
    any: Mapping[str, object] = field(default_factory=dict)
    value: str | int | float | bool | None = None

    def __post_init__(self) -> None:
        if self.number < 1:
            raise UserError("number is at least 1")


@dataclass(frozen=True, slots=True)
class Circle:
    """A kind whose field has another name in JSON, and one that JSON leaves out."""

    radius: int
    area: int = field(init=False, default=0)


@dataclass(frozen=True, slots=True)
class Line:
    """A kind of another form."""

    ends: tuple[int, int]


class Drawn:
    """A union of the two kinds."""


union(Drawn, {"circle": Circle, "line": Line})
renamed(Circle, radius="r", area=None)


def _ends(line: Line) -> dict[str, int]:
    return dict(zip(("from", "to"), line.ends, strict=True))


shaped(Line, dict[str, int], lambda ends: Line((ends["from"], ends["to"])), _ends)

FULL = Spec(
    Inner(Colour.BLUE, {"sep": ";"}),
    RunId("run_1"),
    3,
    1.0,
    2.5,
    True,
    timedelta(minutes=90),
    ("a", "b"),
    {"x": [1, {}]},
    7,
)


@pytest.mark.parametrize("spec", [Spec(Inner(Colour.RED)), FULL])
def test_what_is_written_is_read_back(spec):
    """The catalog keeps JSON: a spec that changed on the way would be another declaration."""
    assert read_text(Spec, write_text(spec)) == spec


def test_a_whole_number_is_a_number_too():
    """`max_growth=2` was stored and then refused: no program could read the snapshot any more."""
    read = read_plain(Spec, write_plain(Spec(Inner(Colour.RED), share=1, most=2)))

    assert (read.share, read.most) == (1, 2)
    assert {type(read.share), type(read.most)} == {float}


def test_what_is_written_is_plain():
    """Plain values are read again without a detour by text: an option must be as JSON has it."""
    assert read_plain(Spec, write_plain(FULL)) == FULL


def test_json_is_as_people_read_it():
    """Durations with units, options by their word, lists as lists: what is compared and shown is decoded JSON."""
    assert write_plain(FULL) == {
        "inner": {"colour": "blue", "options": {"sep": ";"}},
        "run": "run_1",
        "number": 3,
        "share": 1.0,
        "most": 2.5,
        "flag": True,
        "wait": "1h30m",
        "names": ["a", "b"],
        "any": {"x": [1, {}]},
        "value": 7,
    }
    assert write_plain(Spec(Inner(Colour.RED))) == {"inner": {"colour": "red", "options": {}}}


@pytest.mark.parametrize("one", [Circle(3), Line((1, 2))])
def test_a_union_names_the_kind(one):
    """A reader knows which of the kinds is meant."""
    assert write_plain(one) in ({"type": "circle", "r": 3}, {"type": "line", "from": 1, "to": 2})
    assert read_plain(Drawn, write_plain(one)) == one


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": "3"}, "number must be a whole number, not '3'"),
        ({"number": True}, "number must be a whole number, not True"),
        ({"nubmer": 3}, "it has no field 'nubmer'; did you mean 'number'?"),
        ({"wait": 90}, "wait must be text, not 90"),
        ({"names": "ab"}, "names must be a list, not 'ab'"),
        ({"names": ["a", 1]}, "names[1] must be text, not 1"),
        ({"most": True}, "most must be a number or null, not True"),
        ({"flag": 1}, "flag must be true or false, not 1"),
        ({"inner": {}}, "inner.colour is missing"),
        ({"inner": {"colour": "rde"}}, "inner.colour is 'rde', which is not known; did you mean 'red'?"),
        ({"inner": {"colour": "red", "options": {"sep": 1}}}, "inner.options['sep'] must be text, not 1"),
        ({"inner": []}, "inner must be a JSON object, not []"),
        ({"value": []}, "value must be text or a whole number or a number or true or false or null, not []"),
    ],
)
def test_other_json_is_refused_with_the_place_and_the_type(change, why):
    """A user that wrote the JSON by hand looks at the message, and not at our source."""
    with pytest.raises(BadJson, match=re.escape(f"JSON of Spec is refused: {why}; if a newer")):
        read_plain(Spec, write_plain(FULL) | change)


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        ({"type": "circel", "r": 1}, "it has no type that is known; did you mean 'circle'?"),
        ({"type": ["circle"]}, "it has no type that is known"),
        ({"type": "circle", "r": "1"}, "r must be a whole number"),
        ({"type": "circle", "radius": 1}, "it has no field 'radius'"),
        (None, "it must be a JSON object"),
    ],
)
def test_another_kind_is_refused(plain: Any, why):
    """Names are those of the JSON."""
    with pytest.raises(BadJson, match=why):
        read_plain(Drawn, plain)


def test_a_value_that_a_spec_refuses_raises_the_error_of_the_spec():
    """The class says what is wrong, with its own code."""
    with pytest.raises(UserError, match="number is at least 1") as caught:
        read_plain(Spec, write_plain(FULL) | {"number": 0})

    assert not isinstance(caught.value, BadJson)


def test_text_that_is_no_json_is_refused():
    """A cut row gives no traceback."""
    with pytest.raises(BadJson, match="no JSON"):
        read_text(Spec, '{"inner": ')
