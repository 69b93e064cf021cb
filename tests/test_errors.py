from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import get_args, get_origin, get_type_hints

import pytest

import tidemill
from tidemill.errors import Conflict, Denied, Fenced, Internal, NotFound, TidemillError, Unavailable, UserError


def _all_errors() -> list[type[TidemillError]]:
    for module in pkgutil.walk_packages(tidemill.__path__, "tidemill."):
        if not module.name.endswith("__main__") and ".demo.project" not in module.name:
            importlib.import_module(module.name)
    found, waiting = [], [TidemillError]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        found.append(error)
    return [error for error in found if error.__module__.startswith("tidemill")]


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (UserError, 2),
        (Denied, 1),
        (Conflict, 3),
        (Fenced, 3),
        (NotFound, 4),
        (Unavailable, 5),
        (Internal, 1),
        (TidemillError, 1),
    ],
)
def test_what_to_do_decides_the_exit_code(error: type[TidemillError], exit_code: int) -> None:
    """Scripts look at nothing else."""
    assert error.exit_code == exit_code


def test_every_error_says_what_to_do_and_has_a_code_of_its_own() -> None:
    """By its base and its code the command line, REST, logs and documentation know it."""
    errors = _all_errors()
    codes = [error.code for error in errors]
    useful = UserError | Denied | Conflict | Fenced | Unavailable | Internal
    # The demo's own failure is none that a program could meet.
    useless = [e for e in errors if not issubclass(e, useful) and not e.__module__.startswith("tidemill.demo")]

    assert useless == [TidemillError]
    assert sorted(codes) == sorted(set(codes))
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


_BASES = {TidemillError, UserError, Denied, Conflict, Fenced, Unavailable, Internal}
_WITHOUT_STEP = {TidemillError: "the root: nothing raises it", Fenced: "an error of it is made with its subject"}
"""Classes whose errors have no next step before they are made, each with the reason."""


def _concrete() -> list[type[TidemillError]]:
    return [kind for kind in _all_errors() if kind not in _BASES]


def _made(kind: type[TidemillError]) -> TidemillError:
    """Return an error of a class, made of any values that fit its types."""
    hints = get_type_hints(kind.__init__, vars(sys.modules[kind.__module__]) | _NAMES)
    parameters = [one for one in inspect.signature(kind).parameters.values() if one.default is one.empty]
    return kind(**{one.name: _any(kind, one.name, hints[one.name]) for one in parameters})


def _any(kind: type[TidemillError], name: str, hint: object) -> object:
    if (kind.__name__, name) in _GIVEN:
        return _GIVEN[kind.__name__, name]
    if NoneType in get_args(hint):
        return None
    return next((made for base, made in _VALUES.items() if base == (get_origin(hint) or hint)), "7")


_NAMES = {"Sequence": Sequence, "Path": Path}
_VALUES: dict[object, object] = {int: 7, Path: Path("/there"), Sequence: (), timedelta: timedelta(1), bool: True}
_GIVEN: dict[tuple[str, str], object] = {
    ("BadEntry", "because"): NotFound("app", "shop"),
    ("SchemaChanged", "present"): '{"fields": []}',
    ("SchemaChanged", "offered"): '{"fields": []}',
    ("PartitionConflict", "op"): "overwrite",
    ("_OutOfReach", "error"): OSError(2, "it is not there", "/there"),
    ("RefreshRefused", "refusals"): (),
    ("BadUnderSchema", "files"): SimpleNamespace(url="file:///there"),
    ("BadUnderSchema", "file"): SimpleNamespace(name="a.csv"),
}


def test_every_error_has_a_next_step() -> None:
    """A caller without one must guess. The step of its base says nothing of the error, so each class has its own."""
    general = {base.hint for base in _BASES}
    missing = [f"{kind.__module__}.{kind.__name__}" for kind in _concrete() if _made(kind).hint in general]

    assert missing == []
    assert {base for base in _BASES if not base.hint} == set(_WITHOUT_STEP)


def test_the_next_step_is_no_field_and_ends_the_message() -> None:
    """A client that shows `hint` and `wrong` shows all, and nothing twice."""
    for kind in _concrete():
        error = _made(kind)
        rest = str(error).removeprefix(error.wrong)

        assert "hint" not in error.fields(), kind
        assert str(error).startswith(error.wrong), kind
        assert not rest or rest.endswith(error.hint), kind


def test_the_sentence_of_an_error_has_its_next_step_once() -> None:
    """The command line and pages show the sentence; without the step of the class, its reader must guess."""
    for kind in _concrete():
        error = _made(kind)

        assert error.sentence.startswith(str(error)), kind
        assert error.sentence.endswith(error.hint), kind
        assert not error.sentence.removesuffix(error.hint).endswith(f"{error.hint}; "), kind


def test_an_error_keeps_what_it_was_made_from() -> None:
    """For JSON; the message is built from the same data."""
    error = NotFound("data set", "default.click", "default.clicks")

    assert error.fields() == {"kind": "data set", "name": "default.click", "nearest": "default.clicks"}
    assert str(error) == "no data set named 'default.click'; did you mean 'default.clicks'?"


def test_a_hint_comes_last() -> None:
    """The hint names the next step, even without a similar name."""
    assert str(NotFound("run", "run_1", hint="`tidemill run list`")) == "no run named 'run_1'; `tidemill run list`"
