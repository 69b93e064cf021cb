"""Scenarios of engines outside (R3) that take partitions by a consumer: beside writers, each other and reapers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.explore import promises
from tests.explore.consumers import (
    BOTH,
    DAY,
    LEASE,
    LINES,
    SOUND,
    TABLES,
    A,
    B,
    cut_power,
    fencer,
    lake,
    note_given,
    writer,
)
from tests.explore.search import Actor, Scenario
from tests.explore.stage import Stage
from tidemill.catalog.db import Catalog
from tidemill.catalog.transactions import TransactionEnded
from tidemill.errors import Fenced
from tidemill.lake.backlog import publish_due
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.run.processes.outside_writers import commit_outside, fail_outside, take_outside
from tidemill.run.step.outside_writes import OutsideCommit, OutsideRead

ENGINE: Final = "engine"
"""The consumer of all engines."""
_NOTHING: Final = OutsideCommit(())


def engine(name: str, limit: int, endings: Sequence[str]) -> Actor:
    """An engine outside: takes partitions once, and commits, fails, or is not heard of again."""

    def body(stage: Stage) -> None:
        take_once(stage, stage.catalog_of(name), limit, endings)

    return Actor(name, body, group="engine")


def take_once(stage: Stage, catalog: Catalog, limit: int, endings: Sequence[str]) -> bool:
    """Take partitions, and end the take. Return whether there were some."""
    try:
        read = OutsideRead(LINES.qualified_name, ENGINE, limit)
        take = take_outside(catalog, catalog.world, LINES, read, owner="me", lease=LEASE)
        if take.write_pointer is None:
            return False
        for one in take.partitions:
            note_given(stage, ENGINE, take.run_id, 1, one.write_pointer, LINES.keys.encode(LINES.keys.check(one.key)))
        match stage.pick(lambda: endings) if len(endings) > 1 else endings[0]:
            case "commit":
                commit_outside(catalog, catalog.world, take.write_pointer, _NOTHING)
            case "fail":
                fail_outside(catalog, take.write_pointer, "it raised")
    except (Fenced, TransactionEnded):
        pass
    return True


def recover(stage: Stage) -> None:
    """Take until no partition is left."""
    cut_power(stage)
    for _ in range(20):
        stage.clock.at += DAY
        publish_due(stage.catalog, CONSUMERS)
        if not take_once(stage, stage.catalog, 10, ("commit",)):
            return


def taken(
    *endings: str,
    engines: int = 1,
    limit: int = 10,
    writes: Sequence[Sequence[tuple[int, str]]] = (),
    earlier: Sequence[tuple[int, str]] = BOTH,
    fences: int = 0,
    losses: int = 0,
) -> Callable[[str], Scenario]:
    """Engines that take partitions of one file set by one consumer."""
    names = [f"w{number}" for number in range(len(writes))]

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "each change is in exactly one committed take, whichever engine is not heard of again",
            lake(writers=names, earlier=earlier),
            lambda: [
                *(writer(one, *ops, endings=("commit",)) for one, ops in zip(names, writes, strict=True)),
                *(engine(f"engine{n}", limit, endings) for n in range(engines)),
                *(fencer(f"reaper{n}") for n in range(fences)),
            ],
            SOUND,
            recover,
            promises.all_of(promises.at_rest, promises.everything_delivered(ENGINE)),
            promises.never_undone,
            losses=losses,
            tables=TABLES,
        )

    return make


SCENARIOS = {
    "engine": taken("commit", "fail", "leave", fences=1),
    "engine-late": taken("commit", writes=[A], earlier=B),
    "engine-lost-replies": taken("commit", "fail", losses=1),
    "engines": taken("commit", "fail", engines=2, limit=1),
    "engines-late": taken("commit", engines=2, limit=1, writes=[A], earlier=B),
    "engines-fenced": taken("commit", "fail", engines=2, limit=1, writes=[A], earlier=B, fences=1),
}
