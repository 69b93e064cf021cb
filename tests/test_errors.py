from __future__ import annotations

import importlib
import pkgutil

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


def test_an_error_keeps_what_it_was_made_from() -> None:
    """For JSON; the message is built from the same data."""
    error = NotFound("data set", "default.click", "default.clicks")

    assert error.fields() == {"kind": "data set", "name": "default.click", "nearest": "default.clicks"}
    assert str(error) == "no data set named 'default.click'; did you mean 'default.clicks'?"


def test_a_hint_comes_last() -> None:
    """The hint names the next step, even without a similar name."""
    assert str(NotFound("run", "run_1", hint="`tidemill run list`")) == "no run named 'run_1'; `tidemill run list`"
