"""A fifth kind of input is one file and one entry in `KINDS`: here a queue of numbers, with a table of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidemill.catalog.effects import Phase
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import TransactionEnded
from tidemill.lake.backlog import Backlog
from tidemill.lake.claims import ClaimTable
from tidemill.lake.suspects import HALVE_AFTER, halve
from tidemill.run.records.runs import RunRecord, RunState
from tidemill.run.step import inputs
from tidemill.run.step.attempts import AttemptEnd, Cause, FinishRun, Registration, end_attempt, register
from tidemill.run.step.input_kind import InputKind, TakenInput
from tidemill.run.step.outputs import write_frames
from tidemill.run.step.step import Step

SQL: Any = load_sql(__file__)

TABLE = """
CREATE TABLE number (
    program_id TEXT NOT NULL,
    value      BIGINT NOT NULL,
    state      TEXT NOT NULL,
    failures   BIGINT NOT NULL,
    not_before BIGINT NOT NULL,
    run_id     TEXT,
    epoch      BIGINT,
    PRIMARY KEY (program_id, value)
);
"""

NUMBERS = ClaimTable(
    phase=Phase.CLAIMS,
    find_held=SQL.find_held,
    refuse_if_moved=SQL.refuse_if_moved,
    restamp=SQL.restamp,
    complete=(SQL.refuse_other_epoch, SQL.complete),
    count_failure=SQL.count_failure,
    give_up=SQL.give_up,
    gives_up_early=False,
    return_claims=SQL.return_claims,
)
QUEUES = Backlog(
    phase=Phase.CLAIMS,
    publish=SQL.publish,
    postpone=SQL.postpone,
    find_next_due=SQL.find_next_due,
    find_due=SQL.find_due,
    clear_due=SQL.clear_due,
)


@dataclass
class TakenNumbers(TakenInput):
    """Numbers that a run has taken."""

    numbers: list[int]

    @property
    def empty(self) -> bool:
        """Tell whether there are none."""
        return not self.numbers

    def count(self) -> dict[str, object]:
        """Count the numbers."""
        return {"kind": "numbers", "count": len(self.numbers), "of": "number", "rows": None}


@dataclass(eq=False)
class NumberInputs(InputKind):
    """The queue of a program."""

    claims = NUMBERS
    backlog = QUEUES

    program: Any
    taken: Mapping[str, TakenNumbers] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, db, program, datasets, consumers):
        """Find the queue by the id of the program."""
        del db, datasets, consumers
        return cls(program)

    @property
    def ids(self):
        """The program."""
        return (self.program.program_id,)

    def take(self, catalog, tx, beside):
        """Claim what waits, or keep what an earlier attempt holds; in halves, if a number has failed before."""
        del beside

        def block(db):
            held = db.records(SQL.list_held, tuple[int, int], run_id=tx.run_id)
            if not held:
                db.run(SQL.claim, id=self.program.program_id, run_id=tx.run_id, epoch=tx.epoch)
                held = db.records(SQL.list_held, tuple[int, int], run_id=tx.run_id)
            if any(failures >= HALVE_AFTER for _, failures in held):
                held, _ = halve(held)
                db.run(SQL.keep, run_id=tx.run_id, numbers=json.dumps([number for number, _ in held]))
            return [number for number, _ in held]

        self.taken = {"default.numbers": TakenNumbers(catalog.write(block))}


class Queue:
    """A program that reads a queue of numbers."""

    def __init__(self, works, retries: int) -> None:
        self.works = works
        self.program = works.program(retries=retries)
        works.catalog.run_script(TABLE, unless=1 << 20)

    def add(self, *numbers: int) -> None:
        """Add numbers that wait."""
        for number in numbers:
            self.works.catalog.write(lambda db, one=number: db.run(SQL.add, id=self.program.program_id, value=one))

    def numbers(self) -> dict[int, tuple[str, int]]:
        """Return the state and the failures of each number."""
        rows = self.works.catalog.read(lambda db: db.records(SQL.list_numbers, tuple[int, str, int]))
        return {number: (state, failures) for number, state, failures in rows}

    def begin(self, run: RunRecord) -> Step:
        """Begin the transaction of an attempt, and take."""
        found = self.works.catalog.read(lambda db: inputs.find_inputs(db, self.program))
        step = Step.begin("driver", self.works.catalog, run, {}, write_frames, inputs=found)
        step.take()
        return step

    def go_on(self, run: RunRecord) -> RunRecord:
        """Start the next attempt of a run."""
        self.works.sql(f"UPDATE run SET not_before = 0 WHERE run_id = '{run.run_id}' RETURNING 1")
        (again,) = self.works.take()
        self.works.catalog.write(lambda db: register(db, Registration(again.run_id, again.epoch, 1, {}, "logs")))
        return self.works.run(run.run_id)

    def end(self, run: RunRecord, cause: Cause = Cause.FAILED) -> RunState | None:
        """End an attempt without success."""
        return end_attempt(self.works.catalog, run.run_id, run.epoch, AttemptEnd(cause, "it did not work"))

    def announced(self) -> int:
        """Count the messages about numbers that wait."""
        return len(self.works.sql("SELECT 1 FROM message WHERE event_key = 'backlog:default.numbers'"))


@pytest.fixture
def make_queue(works, monkeypatch):
    """Register the kind: the one line that the product needs."""
    monkeypatch.setattr(inputs, "KINDS", (*inputs.KINDS, NumberInputs))
    return lambda retries=0: Queue(works, retries)


def commit(step: Step) -> None:
    """Commit an attempt that completes its run."""
    step.commit(step.prepare(), [FinishRun(step.record.run_id, step.record.epoch, "", {})])


def test_a_fifth_kind_is_taken_and_completed_with_the_commit(make_queue):
    """The numbers and the output are one transaction, as with each other kind."""
    queue = make_queue()
    queue.add(1, 2)
    run = queue.works.under_way(queue.program)

    step = queue.begin(run)
    before = queue.numbers()
    queue.add(3)
    commit(step)

    counted = {"kind": "numbers", "count": 2, "of": "number", "rows": None}
    assert step.inputs.count() == [{"dataset": "default.numbers", **counted}]
    assert before == {1: ("held", 0), 2: ("held", 0)}
    assert queue.numbers() == {1: ("done", 0), 2: ("done", 0), 3: ("waiting", 0)}
    assert queue.announced() == 1  # of the number that came late


def test_claims_of_a_fifth_kind_follow_the_next_attempt(make_queue):
    """An attempt that was fenced commits nothing, and its successor has what it held."""
    queue = make_queue(retries=1)
    queue.add(1, 2)
    run = queue.works.under_way(queue.program)
    fenced = queue.begin(run)

    ended = queue.end(run)
    counted = queue.numbers()
    again = queue.begin(queue.go_on(run))
    with pytest.raises(TransactionEnded):
        commit(fenced)
    commit(again)

    assert ended is RunState.PENDING
    assert counted == {1: ("held", 1), 2: ("held", 1)}
    assert again.inputs.taken["default.numbers"].numbers == [1, 2]
    assert queue.numbers() == {1: ("done", 1), 2: ("done", 1)}


def test_a_killed_run_returns_a_fifth_kind_at_once(make_queue):
    """A person stopped the run: nothing is counted, and the next run may have the numbers now."""
    queue = make_queue()
    queue.add(1)
    run = queue.works.under_way(queue.program)
    queue.begin(run)

    ended = queue.end(run, Cause.KILLED)

    assert (ended, queue.numbers(), queue.announced()) == (RunState.KILLED, {1: ("waiting", 0)}, 1)


def find_next_due(queue):
    """Return the time at which postponed work of any kind is to be announced next."""
    return min(queue.works.catalog.read(lambda db: db.look(*inputs.next_due_times())).times(), default=None)


def test_a_failed_run_returns_a_fifth_kind_for_later(make_queue):
    """The keeper finds the time in the one list of due times, and announces the numbers once."""
    queue = make_queue()
    queue.add(1)
    run = queue.works.under_way(queue.program)
    queue.begin(run)

    ended = queue.end(run)
    silent, due = queue.announced(), find_next_due(queue)
    queue.works.catalog.write(lambda db: db.run(SQL.let_time_pass))
    inputs.announce_due(queue.works.catalog)
    inputs.announce_due(queue.works.catalog)

    assert (ended, queue.numbers()) == (RunState.FAILED, {1: ("waiting", 1)})
    assert due is not None
    assert (silent, queue.announced(), find_next_due(queue)) == (0, 1, None)


def test_of_a_fifth_kind_only_the_poison_is_given_up(make_queue):
    """A number that fails alone, and as often as allowed, is at fault; halves find it."""
    queue = make_queue()
    queue.add(1, 2, 3, 4)

    for _ in range(20):
        run = queue.works.under_way(queue.program)
        step = queue.begin(run)
        if 3 in step.inputs.taken["default.numbers"].numbers:
            queue.end(run)
        else:
            commit(step)
        queue.works.catalog.write(lambda db: db.run(SQL.let_time_pass))

    assert {number: state for number, (state, _) in queue.numbers().items()} == {
        1: "done",
        2: "done",
        3: "given up",
        4: "done",
    }
