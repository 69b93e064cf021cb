"""Visibility for transactions, against a model: random histories, on both databases."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tests.catalog.tiny import AddKeys, read_keys
from tidemill.catalog.db import Catalog
from tidemill.catalog.transactions import EndTransaction, Transaction, TxState, begin, commit, find_in_progress
from tidemill.names import DatasetId, RunId

DATASETS = [DatasetId("clicks"), DatasetId("lines")]


@dataclass
class Life:
    """Life of a transaction, as the model knows it."""

    tx: Transaction
    commit_seq: int | None = None
    added: frozenset[DatasetId] = frozenset()
    open: bool = True


@dataclass
class Model:
    """All transactions there ever were."""

    lives: list[Life] = field(default_factory=list)

    def sees(self, tx: Transaction, dataset: DatasetId) -> list[str]:
        seen = [
            life
            for life in self.lives
            if dataset in life.added and life.commit_seq is not None and life.commit_seq < tx.write_pointer
        ]
        return [f"from={life.tx.write_pointer}" for life in sorted(seen, key=lambda life: life.commit_seq or 0)]

    def in_progress(self, tx: Transaction, dataset: DatasetId) -> list[int]:
        """Open and below; or committed after it and begun below (with something for this data set)."""
        return [
            life.tx.write_pointer
            for life in self.lives
            if life.tx.write_pointer < tx.write_pointer
            and (
                (life.open and dataset in life.tx.writes)
                or (dataset in life.added and (life.commit_seq or 0) > tx.write_pointer)
            )
        ]


class Histories(RuleBasedStateMachine):
    """Begins, commits and ends in any order. Each open transaction looks again after every step."""

    transactions = Bundle("transactions")
    catalog: Catalog

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        # The same catalog serves all histories of a test: each has data sets of its own.
        self.prefix = uuid.uuid4().hex

    def named(self, datasets: set[DatasetId]) -> frozenset[DatasetId]:
        return frozenset(DatasetId(f"{self.prefix}.{dataset}") for dataset in datasets)

    @rule(target=transactions, writes=st.sets(st.sampled_from(DATASETS)))
    def begin(self, writes: set[DatasetId]) -> Life:
        tx = begin(self.catalog, run_id=RunId(uuid.uuid4().hex), epoch=1, writes=self.named(writes))
        self.model.lives.append(life := Life(tx))
        return life

    @rule(life=consumes(transactions), datasets=st.sets(st.sampled_from(DATASETS)))
    def commit(self, life: Life, datasets: set[DatasetId]) -> None:
        added = self.named(datasets) & life.tx.writes
        key = (f"from={life.tx.write_pointer}",)
        life.commit_seq = commit(
            self.catalog, life.tx, [AddKeys(dataset, life.tx.write_pointer, key) for dataset in sorted(added)]
        )
        life.added, life.open = added, False

    @rule(life=consumes(transactions), state=st.sampled_from([TxState.ABORTED, TxState.INVALID]))
    def end(self, life: Life, state: TxState) -> None:
        self.catalog.apply([EndTransaction(life.tx.write_pointer, state, "")])
        life.open = False

    @invariant()
    def everybody_sees_what_the_model_says(self) -> None:
        looks = [(life.tx, dataset) for life in self.model.lives for dataset in self.named(set(DATASETS))]
        seen = self.catalog.read(
            lambda db: [(read_keys(db, dataset, tx), find_in_progress(db, dataset, tx)) for tx, dataset in looks]
        )

        assert seen == [(self.model.sees(tx, dataset), self.model.in_progress(tx, dataset)) for tx, dataset in looks]


def test_every_transaction_sees_what_committed_before_it_began(catalog: Catalog) -> None:
    """And can say at any later time what was in progress at its begin; the rest of Tidemill stands on this."""
    machine = type("HistoriesHere", (Histories,), {"catalog": catalog})
    examples = 60 if catalog.dialect == "sqlite" else 25

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
