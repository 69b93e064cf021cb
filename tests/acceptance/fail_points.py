"""Strikes at every fail point by every way that leads there, and says what was struck (promise R7).

`python -m tests.acceptance.fail_points` plays all kinds of faults on both databases and prints the matrix.
"""

from __future__ import annotations

import errno
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final
from unittest import mock

import obstore

from tests.acceptance.machine import Kind, Machine, Ordinal
from tests.acceptance.rounds import check, forget_garbage, play, play_plainly
from tests.manual_clock import backdoor_of
from tidemill.catalog import postgres, sqlite
from tidemill.catalog.engine import open_catalog
from tidemill.world import World

SOURCE: Final = Path(__file__).parents[2] / "src" / "tidemill"
MARK: Final = re.compile(r"""world\.mark\(\s*"([^"]+)"\s*\)""")

CANNOT_BE_STRUCK: Final[Mapping[Kind, Mapping[str, str]]] = {}
"""Marks to which a kind of fault does not apply, each with the reason."""
_STORE_FAILS: Final = OSError(errno.EIO, "Input/output error")
_STRIKES_A_ROUND: Final = 6
_PAUSES_A_ROUND: Final = 3
_CHECK_EVERY: Final = 10


@dataclass(frozen=True, slots=True)
class Figures:
    """What was struck: `marks` (or other points) with the number of ways to each; `fenced` transactions."""

    marks: Mapping[str, int]
    ways: int
    rounds: int
    fenced: int


def named_marks() -> set[str]:
    """All marks of what works by itself. `upkeep` is what a person does: tests/upkeep interrupts that."""
    sources = (path for path in SOURCE.rglob("*.py") if path.parent.name != "upkeep")
    return {name for path in sources for name in MARK.findall(path.read_text())}


def strike_everywhere(machine: Machine, kind: Kind) -> Figures:
    """Play and check rounds, with a few strikes in each, until two of them have found no new way to any point."""
    faults = machine.faults[kind]
    rounds, known = 0, [-1, -1]
    while len(faults.struck) > known[-2]:  # the rounds are of two kinds
        rounds += 1
        known.append(len(faults.struck))
        faults.arm(_PAUSES_A_ROUND if kind is Kind.PAUSE else _STRIKES_A_ROUND)
        play(machine, rounds)
        check(machine, rounds)
    ((fenced,),) = machine.sql("SELECT count(*) FROM tx WHERE state = 'invalid'")
    forget_garbage(machine)
    return Figures(Counter(faults.struck.values()), len(faults.struck), rounds, int(str(fenced)))


def strike_each_operation(machine: Machine, ordinal: Ordinal) -> int:
    """Strike at the k-th operation of a round, k = 1, 2, … until one passes unstruck; how many were struck."""
    for k in count(1):
        machine.countdown.start(k, ordinal)
        play_plainly(machine, k)
        if (passed := machine.countdown.left > 0) or k % _CHECK_EVERY == 0:
            check(machine, k, "f")
        if passed:
            return k - 1
    raise AssertionError


@contextmanager
def opened_machine(catalog_url: str, folder: Path) -> Iterator[Machine]:
    """A machine with a new project, on an empty database."""
    session_name = f"tidemill-{uuid.uuid4().hex}"
    opened = f"{catalog_url}&application_name={session_name}" if "postgres" in catalog_url else catalog_url
    # Who stands in a transaction is ended by PostgreSQL after five seconds; on SQLite others wait for him for a minute.
    impatient = f"{postgres._SETTINGS}; SET idle_in_transaction_session_timeout = '100ms'"
    open_catalog(opened, World()).close()
    with (
        backdoor_of(catalog_url) as backdoor,
        mock.patch.object(postgres, "_SETTINGS", impatient),
        mock.patch.object(sqlite, "RETRY_FOR", timedelta(milliseconds=200)),
    ):
        machine = Machine(opened, session_name, folder, backdoor)

        def mortal(what, change):
            def changed(*args, **options):
                if machine.working is not None:
                    machine.working.write(what) if what == "put" else machine.working.operate(what, _STORE_FAILS)
                return change(*args, **options)

            return changed

        with (
            mock.patch.object(obstore, "put", mortal("put", obstore.put)),
            mock.patch.object(obstore, "get_range", mortal("get", obstore.get_range)),
            mock.patch.object(obstore, "delete", mortal("delete", obstore.delete)),
        ):
            yield machine
        machine.close()
