"""Commits of a simulated schedule: the transactions' writes, as the simulation knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.sim.simulation import Intent, Simulation


def refuse(holds: object, kind: str, why: str) -> None:
    """Raise `Broken`, unless it holds."""
    from tests.sim.simulation import Broken

    if not holds:
        raise Broken(f"{kind}: {why}")


def plain(key: str) -> str:
    """The values of a partition's key."""
    return key.rpartition("=")[2]


class Write(NamedTuple):
    """Write of one transaction to one partition: replace, add or drop."""

    replaces: bool
    tokens: list[str]
    drops: bool = False


def fold(intents: Iterable[Intent], dataset: str) -> dict[str, Write]:
    """Return the writes of one transaction to the partitions of a data set."""
    folded: dict[str, Write] = {}
    for intent in intents:
        if intent.dataset == dataset:
            for key, tokens in intent.texts.items():
                before = folded.get(key, Write(replaces=False, tokens=[]))
                if intent.op in {"overwrite", "replace", "drop"}:
                    folded[key] = Write(replaces=True, tokens=tokens, drops=intent.op == "drop")
                else:
                    folded[key] = Write(before.replaces, [*before.tokens, *tokens])
    return folded


class Committed:
    """The transactions that have committed, oldest commit first."""

    def __init__(self, simulation: Simulation) -> None:
        rows = simulation.ground.sql(
            "SELECT t.write_pointer, t.commit_seq, t.run_id, CASE WHEN r.backfill_id IS NOT NULL THEN 'past'"
            " ELSE coalesce(p.name, 'notebook') END FROM tx AS t"
            " JOIN run AS r ON r.run_id = t.run_id LEFT JOIN program AS p ON p.program_id = r.program_id"
            " WHERE t.state = 'committed' ORDER BY t.commit_seq"
        )
        self.rows: list[tuple[int, int, str, str]] = rows
        self.first_attempts: dict[str, int] = dict(
            simulation.ground.sql("SELECT run_id, min(write_pointer) FROM tx GROUP BY run_id")
        )
        """The write pointers by which runs could take for the first time."""
        self.datasets: dict[str, str] = dict(simulation.ground.sql("SELECT name, dataset_id FROM dataset"))
        self.inputs: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
        for run_id, dataset_id, pointer, item, version in simulation.ground.sql(
            "SELECT run_id, dataset_id, write_pointer, item, content_version FROM run_input"
        ):
            self.inputs.setdefault((run_id, dataset_id), []).append((pointer, item, version))
        self.changes: list[tuple[int, str, int, int | None, str]] = simulation.ground.sql(
            "SELECT write_pointer, partition_key, commit_seq, superseded_seq, location FROM partition_change"
            f" WHERE dataset_id = '{self.datasets['lines']}' AND delivers = 1 ORDER BY write_pointer, partition_key"
        )

    def inputs_of(self, run_id: str, dataset: str) -> list[tuple[int, str, str]]:
        """Return the inputs that the run has taken of a data set, as the catalog has them."""
        return self.inputs.get((run_id, self.datasets.get(dataset, "")), [])


def publish(simulation: Simulation, committed: Committed, name: str, before: int = 2**62) -> dict[str, list[str]]:
    """Return the content of a data set after the transactions that committed before `before`, in order."""
    published: dict[str, list[str]] = {}
    for pointer, seq, *_ in committed.rows:
        if seq < before:
            for key, write in fold(simulation.intents.get(pointer, ()), name).items():
                published[key] = [*([] if write.replaces else published.get(key, [])), *write.tokens]
                if write.drops:
                    del published[key]
    return published
