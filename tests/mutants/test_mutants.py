from __future__ import annotations

import random
from collections import Counter

import apsw
import pytest

from tests.mutants.campaign import Fate, hunt
from tests.mutants.every import MUTANTS
from tests.mutants.mutant import SOURCE, Mutant, Room
from tests.seed_of_the_day import TODAY
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Dialect, load_sql
from tidemill.world import World

QUICK = [mutant for mutant in MUTANTS if mutant.scenario]


@pytest.fixture(scope="module")
def schema(tmp_path_factory) -> apsw.Connection:
    """A database with the tables of a catalog, and functions of the names that its statements call."""
    path = tmp_path_factory.mktemp("schema") / "catalog.db"
    open_catalog(f"sqlite:///{path}", World()).close()
    connection = apsw.Connection(str(path))
    for name in ("tidemill_now", "tidemill_refuse", "tidemill_unbase64"):
        connection.create_scalar_function(name, lambda *_: None, -1)
    return connection


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_applies(mutant: Mutant, tmp_path, schema):
    """A hunt proves nothing about a mutant that does not apply, or is no program."""
    for file, text in mutant.texts(SOURCE).items():
        assert text != (SOURCE / file).read_text()
        path = tmp_path / file.rpartition("/")[2]
        path.write_text(text)
        if path.suffix == ".py":
            compile(text, file, "exec")
            continue
        for statement in load_sql(str(path.with_suffix(".py"))):
            schema.execute(f"EXPLAIN {statement.text(Dialect.SQLITE)}", dict.fromkeys(statement.parameters))


def test_names_are_unique_and_rooms_well_filled():
    """At least so many mutants of each kind were promised."""
    rooms = Counter(mutant.room for mutant in MUTANTS)

    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert rooms[Room.TRANSACTIONS] + rooms[Room.CONSUMERS] >= 16
    assert rooms[Room.RUNS] + rooms[Room.SCHEDULER] >= 7
    assert rooms[Room.WINDOWS] >= 8


@pytest.mark.proof
@pytest.mark.parametrize("room", sorted({mutant.room for mutant in QUICK}))
def test_a_mutant_of_the_day_is_killed(room):
    """Hunt a mutant of each room that one small scenario finds; `make mutants` hunts all."""
    mutant = random.Random(TODAY).choice([mutant for mutant in QUICK if mutant.room is room])

    verdict = hunt(mutant)

    again = f"TIDEMILL_SEED={TODAY}, or python -m tests.mutants {mutant.name}"
    assert verdict.fate is not Fate.SURVIVED, f"{mutant.name} survives: {mutant.forgets} ({again})"
