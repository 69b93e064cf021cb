"""Takes against a model: whatever order runs begin, take, commit, fail and die in, each change is delivered once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tests.lake.conftest import Lake, make_lake
from tidemill.catalog.transactions import Transaction, TxState
from tidemill.lake.backlog import Announce
from tidemill.lake.claims import Blame, Fail, Return
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerState, take
from tidemill.lake.consumer.managed import WorkState
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.fileset.publish import PartitionConflict
from tidemill.run.step.inputs import find_claims, return_claims

Change = tuple[int, int]
"""A write pointer and an hour."""


class Takes(RuleBasedStateMachine):
    """Managed consumer with overlapping runs, a consumer that keeps its own state, and writers.

    The model knows the commits, and the input of each committed run. In the end all runs have ended, and a last run has
    taken. Then every change was in the input of exactly one committed run. A change that was overwritten before its
    take was in no run, or in one.
    """

    writers = Bundle("writers")
    runs = Bundle("runs")

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self.lake = lake
        self.committed: set[Change] = set()
        self.overwritten: set[Change] = set()
        self.delivered: Counter[Change] = Counter()
        self.held: dict[str, set[Change]] = {}
        self.own_state: PartitionConsumerState = FROM_BEGINNING
        self.own: Counter[Change] = Counter()

    def teardown(self) -> None:
        """End all runs, take the rest, and compare."""
        for run_id in list(self.held):
            self.lake.catalog.apply([Return(PARTITIONS, run_id, 1 << 30)])
        while True:
            self.lake.pass_time()
            last = self.lake.begin()
            got = self._changes(self.lake.take(last))
            self.lake.complete(last)
            self.delivered.update(got)
            if not got:
                break
        self.take_own()
        given_up = {
            (work.write_pointer, self.lake.hour(work.partition_key))
            for work in self.lake.list_work(WorkState.DISCARDED)
        }

        assert set(self.delivered) | self.overwritten | given_up >= self.committed
        assert set(self.delivered) <= self.committed
        assert not given_up & set(self.delivered)
        assert all(times == 1 for times in self.delivered.values())
        assert self.own == Counter(self.committed)

    def _changes(self, deliveries) -> set[Change]:
        return {(c.write_pointer, self.lake.hour(c.partition_key)) for d in deliveries for c in d.changes}

    @rule(target=writers)
    def begin_writing(self) -> Transaction:
        """A writer begins; it may commit long after others that began later."""
        return self.lake.begin()

    @rule(writer=consumes(writers), hours=st.sets(st.integers(0, 3), min_size=1))
    def append(self, writer: Transaction, hours: set[int]) -> None:
        """A writer commits appends, unless one of the keys was overwritten meanwhile."""
        self._commit(writer, [self.lake.write(hour) for hour in hours], hours)

    @rule(hour=st.integers(0, 3))
    def overwrite(self, hour: int) -> None:
        """A partition is replaced."""
        writer = self.lake.begin()
        before = {change for change in self.committed if change[1] == hour}
        self._commit(writer, [self.lake.write(hour, "overwrite")], {hour})
        self.overwritten |= before

    def _commit(self, writer: Transaction, writes, hours: set[int]) -> None:
        try:
            self.lake.commit(writer, *writes)
        except PartitionConflict:
            self.lake.end(writer)
        else:
            self.committed |= {(writer.write_pointer, hour) for hour in hours}

    @rule(writer=consumes(writers))
    def abort(self, writer: Transaction) -> None:
        """A writer gives up."""
        self.lake.end(writer)

    @rule(target=runs)
    def begin_run(self) -> Transaction:
        """A run of the consumer begins."""
        return self.lake.begin()

    @rule(target=runs, run=consumes(runs), limit=st.integers(1, 4))
    def take(self, run: Transaction, limit: int) -> Transaction:
        """A run takes; again, it gets the same."""
        got = self._changes(self.lake.take(run, Terms(limit)))
        held = self.held.setdefault(run.run_id, set())
        assert not held or got <= held, "a run that holds something gets nothing new"
        self.held[run.run_id] = got
        return run

    @rule(run=consumes(runs))
    def complete(self, run: Transaction) -> None:
        """A run commits."""
        self.lake.complete(run, Announce(CONSUMERS, [self.lake.consumer().consumer_id]))
        self.delivered.update(self.held.pop(run.run_id, ()))

    @rule(run=consumes(runs), failed=st.booleans())
    def end_run(self, run: Transaction, *, failed: bool) -> None:
        """A run fails once, or is killed."""
        claims, blame = self.lake.read(lambda db: find_claims(db, run.run_id)), Blame("boom") if failed else None
        self.lake.end(run, *return_claims(run.run_id, run.epoch, blame, timedelta(minutes=1), claims))
        self.held.pop(run.run_id, None)

    @rule(target=runs, run=consumes(runs), failed=st.booleans())
    def try_again(self, run: Transaction, *, failed: bool) -> Transaction:
        """An attempt is lost, or fails and is tried again."""
        effects = [Fail(PARTITIONS, run.run_id, run.epoch, Blame("boom"))] if failed else []
        self.lake.end(run, *effects, state=TxState.INVALID)
        return self.lake.try_again(run)

    @rule()
    def pass_time(self) -> None:
        """Waiting times are over."""
        self.lake.pass_time()

    @rule()
    def take_own(self) -> None:
        """The consumer that keeps its own state takes."""
        reader = self.lake.begin()
        changes, self.own_state = self.lake.catalog.read(
            lambda db: take(db, self.lake.lines.dataset_id, self.own_state, reader)
        )
        self.own.update((c.write_pointer, self.lake.hour(c.partition_key)) for c in changes)
        self.lake.end(reader)

    @invariant()
    def no_two_runs_hold_one_key(self) -> None:
        """Two runs at once on one partition would publish results in any order."""
        held = [{hour for _, hour in changes} for changes in getattr(self, "held", {}).values()]
        assert sum(map(len, held)) == len(set().union(*held))


def test_each_change_is_delivered_once_in_any_order_of_steps(catalog):
    """The promise of the product, tried against many histories; each has a file set of its own in one catalog."""
    numbers, runs = count(), count()

    def play() -> Takes:
        lake = make_lake(catalog, name=f"lines{next(numbers)}")
        lake.runs = runs
        return Takes(lake)

    run_state_machine_as_test(
        play,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
