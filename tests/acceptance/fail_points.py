"""Strikes at every fail point by every way that leads there, and says what was struck (promise R7).

`python -m tests.acceptance.fail_points` plays all kinds of faults on both databases and prints the matrix.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, product
from pathlib import Path
from typing import Final
from unittest import mock

import apsw
import psycopg

from tests.acceptance.machine import AT_MARKS, Kind, Machine, Ordinal
from tests.acceptance.rounds import check, forget_garbage, play, play_plainly
from tests.manual_clock import backdoor_of
from tests.postgres_server import ADDRESS, running_server
from tidemill.catalog import postgres, sqlite
from tidemill.catalog.engine import open_catalog
from tidemill.run.records import bundles
from tidemill.upkeep.audit import audit
from tidemill.world import World

DATABASES: Final = ("sqlite", "postgres")
SOURCE: Final = Path(__file__).parents[2] / "src" / "tidemill"
MARK: Final = re.compile(r"""world\.mark\(\s*"([^"]+)"\s*\)""")
MARK_OF_STEP: Final = re.compile(r"""world\.mark\(f"\{(?:self\.)?who\}(\.\w+)"\)""")
CALLER_OF_STEP: Final = re.compile(r"""\bStep\.begin\(\s*"(\w+)\"""")

CANNOT_BE_STRUCK: Final[Mapping[Kind, Mapping[str, str]]] = {}
"""Marks to which a kind of fault does not apply, each with the reason."""
_STRIKES_A_ROUND: Final = 9
_PAUSES_A_ROUND: Final = 5
_CHECK_EVERY: Final = 10


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the strikes: `marks` (or other points) with the number of ways to each, and `fenced` transactions."""

    marks: Mapping[str, int]
    ways: int
    rounds: int
    fenced: int


def named_marks() -> set[str]:
    """Return all marks of roles and programs.

    The marks of some modules are left out, since other tests interrupt them: those of `upkeep` (tests/upkeep), of
    alerts (tests/alerts), of `inbox reprocess` (tests/lake/test_reprocess.py), of requests with a key
    (tests/server/test_idempotency.py) and of commits of outside writers (tests/server/test_outside_writers.py). So are
    those of a sandbox (tests/app/test_replay.py) and of tables of Hive (tests/lake/test_hive_notes.py).

    The marks of a `Step` begin with the name of its caller.
    """
    elsewhere = {"upkeep", "alerts", "reprocess.py", "once.py", "outside_writers.py", "hive_notes.py"}
    sources = (path for path in SOURCE.rglob("*.py") if not elsewhere & set(path.relative_to(SOURCE).parts))
    text = "\n".join(path.read_text() for path in sources)
    of_steps = {who + mark for who in CALLER_OF_STEP.findall(text) for mark in MARK_OF_STEP.findall(text)}
    return {mark for mark in (*MARK.findall(text), *of_steps) if not mark.startswith("sandbox.")}


def strike_everywhere(machine: Machine, kind: Kind, *, first_ways_only: bool = False) -> Figures:
    """Play and check rounds, with a few strikes in each, until two of them have found no new way to any point.

    `first_ways_only`: a point counts once, by whichever way it is met first.
    """
    faults = machine.faults[kind]
    faults.first_ways_only = first_ways_only
    rounds, known = 0, [-1, -1]
    while len(faults.struck) > known[-2]:  # the rounds are of two kinds
        rounds += 1
        known.append(len(faults.struck))
        faults.arm(_PAUSES_A_ROUND if kind is Kind.PAUSE else _STRIKES_A_ROUND)
        play(machine, rounds)
        check(machine, rounds)
    ((fenced,),) = machine.sql("SELECT count(*) FROM tx WHERE state = 'invalid'")
    assert audit(machine.catalog).findings == ()
    forget_garbage(machine)
    return Figures(Counter(faults.struck.values()), len(faults.struck), rounds, int(str(fenced)))


def strike_each_operation(machine: Machine, ordinal: Ordinal, first: int = 1, step: int = 1) -> int:
    """Strike at the k-th operation of a round, k = first, first + step, … until one passes unstruck; that k."""
    for number, k in enumerate(count(first, step), start=1):
        machine.countdown.start(k, ordinal)
        play_plainly(machine, number)
        if (passed := machine.countdown.left > 0) or number % _CHECK_EVERY == 0:
            check(machine, number, "f")
        if passed:
            assert audit(machine.catalog).findings == ()
            return k
    raise AssertionError


@contextmanager
def opened_machine(catalog_url: str, folder: Path) -> Iterator[Machine]:
    """A machine with a new project, on an empty database."""
    session_name = f"tidemill-{uuid.uuid4().hex}"
    opened = f"{catalog_url}&application_name={session_name}" if "postgres" in catalog_url else catalog_url
    # PostgreSQL ends a session that pauses in a transaction after five seconds. On SQLite, others wait a minute for it.
    impatient = f"{postgres._SETTINGS}; SET idle_in_transaction_session_timeout = '300ms'"
    open_catalog(opened, World()).close()
    with (
        backdoor_of(catalog_url) as backdoor,
        mock.patch.object(postgres, "_SETTINGS", impatient),
        mock.patch.object(sqlite, "RETRY_FOR", timedelta(milliseconds=200)),
        mock.patch.object(bundles, "MOST_IN_CATALOG", 0),
        mock.patch("tidemill.app.deployments.KEPT", 1),
    ):
        machine = Machine(opened, session_name, folder, backdoor)
        yield machine
        machine.close()


def main() -> None:
    """Play everything on both databases, and print what was struck."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.fail_points", description=__doc__)
    parser.add_argument("--database", choices=DATABASES, action="append", help="only this one")
    parser.add_argument("--kind", choices=[kind.name for kind in Kind], action="append", help="only this one")
    options = parser.parse_args()
    databases = options.database or list(DATABASES)
    kinds = [kind for kind in Kind if options.kind is None or kind.name in options.kind]
    struck: dict[tuple[Kind, str], Figures] = {}
    for database, kind in product(databases, kinds):
        with _new_machine(database) as machine:
            figures = struck[kind, database] = strike_everywhere(machine, kind)
        ways = f"struck {figures.ways} ways to {len(figures.marks)} points in {figures.rounds} rounds"
        print(f"{database}: {kind}: {ways}; {figures.fenced} fenced, 0 lost, 0 doubled, 0 dirty", flush=True)
    for database, ordinal in product(databases, Ordinal if options.kind is None else ()):
        with _new_machine(database) as machine:
            operations = strike_each_operation(machine, ordinal)
        print(f"{database}: operation k = 1 … {operations - 1}: {ordinal}; 0 lost, 0 doubled, 0 dirty", flush=True)
    print(_matrix(struck))
    versions = f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, psycopg {psycopg.__version__}"
    print(f"{datetime.now(UTC).date()}, seed 1, {versions}")


@contextmanager
def _new_machine(database: str) -> Iterator[Machine]:
    shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-", dir=shared_memory)))
        url = f"sqlite:///{folder / 'catalog.db'}"
        if database == "postgres":
            lent = os.environ.get(ADDRESS)
            server = lent or stack.enter_context(running_server())
            connection = stack.enter_context(psycopg.connect(server, autocommit=True))
            schema = f"t_{uuid.uuid4().hex}"
            connection.execute(f"CREATE SCHEMA {schema}")
            stack.callback(connection.execute, f"DROP SCHEMA {schema} CASCADE")
            url = f"{server}?options=-csearch_path%3D{schema}"
        yield stack.enter_context(opened_machine(url, folder / "project"))


def _matrix(struck: Mapping[tuple[Kind, str], Figures]) -> str:
    """Ways struck to each mark, by kind and database; other kinds strike at calls and writes, not at marks."""
    columns = [column for column in struck if column[0] in AT_MARKS]
    lines = [f"{'ways struck to each mark':28}" + "".join(f"{kind.name:>8}" for kind, _ in columns)]
    lines.append(" " * 28 + "".join(f"{database[:8]:>9}"[-8:] for _, database in columns))
    for mark in sorted(named_marks()):
        counts = [struck[column].marks.get(mark, 0) for column in columns]
        lines.append(f"{mark:28}" + "".join(f"{count:8}" for count in counts))
    lines += [f"{mark} cannot meet {kind.name}: {why}" for kind in AT_MARKS for mark, why in _reasons(kind).items()]
    return "\n".join(lines)


def _reasons(kind: Kind) -> Mapping[str, str]:
    return CANNOT_BE_STRUCK.get(kind, {})


if __name__ == "__main__":
    main()
