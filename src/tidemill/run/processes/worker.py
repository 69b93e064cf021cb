"""`Worker`: what a worker program gets in place of a `Run`: one transaction after the other, a take and a commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, WakeKind
from tidemill.catalog.transactions import EndTransaction, TxState
from tidemill.durations import parse_duration
from tidemill.errors import Conflict, Fenced, TidemillError, Unavailable, UserError
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.names import RunId
from tidemill.run.records.declared import Declared
from tidemill.run.records.programs import Code, Program, Value
from tidemill.run.records.runs import RunRecord
from tidemill.run.records.workers import SQL as WORKERS
from tidemill.run.step.attempts import SQL as ATTEMPTS
from tidemill.run.step.context import Run
from tidemill.run.step.inputs import Input, find_inputs, holds_any
from tidemill.run.step.output import Output
from tidemill.run.step.outputs import Writer
from tidemill.run.step.run_ends import announce_start
from tidemill.run.step.step import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.catalog.wakeups import Waiter

_AWAITED: Final = frozenset(
    {
        WakeKind.MESSAGE,
        WakeKind.UNHEARD,
        WakeKind.STREAMED,
        WakeKind.JOB,
        WakeKind.RUN,
        WakeKind.COMPLETED,
        WakeKind.TIME,
    }
)
_LONGEST_NAP: Final = timedelta(seconds=5)
"""After which it looks without having been woken, as a scheduler does."""


class NothingTaken(UserError):
    """A worker program worked, or committed, without having taken."""

    code = "nothing_taken"

    def __init__(self) -> None:
        super().__init__(
            "nothing is taken", "call run.take() first, which begins a transaction, and then run.commit()", before=": "
        )


class NotCommitted(UserError):
    """A worker program took again, or returned, while what it had taken was neither committed nor returned."""

    code = "not_committed"

    def __init__(self) -> None:
        super().__init__(
            "what was taken last is not committed",
            "call run.commit() before the next take, and at the end",
            before=": ",
        )


class Worker:
    """A run that goes on until it is stopped, as its program sees it: the first argument of each worker program.

    `while run.take(): …; run.commit()`. Each take begins a transaction of its own, each commit ends it: what was taken
    is completed and what was written is published together. A process that dies loses nothing: the next attempt of the
    run begins with what this one held.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    @property
    def id(self) -> RunId:
        """Id of the run, the same for all transactions of the worker."""
        return self._steps.record.run_id

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self._steps.record.epoch

    @property
    def write_pointer(self) -> int:
        """Names the transaction since the last take. `NothingTaken` before one."""
        return self._steps.run.write_pointer

    @property
    def arguments(self) -> Mapping[str, Value]:
        """The declared arguments, with their defaults."""
        return self._steps.arguments

    @property
    def spark(self) -> SparkSession:
        """The Spark session; `NeedsSpark` in a worker without. `NothingTaken` before a take."""
        return self._steps.run.spark

    def take(self, wait: str | timedelta | None = None) -> bool:
        """Begin the next transaction and take from the inputs. If they have nothing, wait for at most `wait`.

        False if nothing came within that time; then no transaction is begun. The wait asks the catalog only after
        commits. `NotCommitted` before the last transaction is committed.
        """
        return self._steps.take(wait)

    def commit(self) -> None:
        """Complete what was taken and publish what was written, in one transaction; then `take` the next.

        When it raises, nothing of it has happened and this attempt is over: the next one has the same input.
        """
        self._steps.commit()

    def input(self, dataset: Declared | str) -> Input:
        """Return the part of an input that the last take has brought. `NotAnInput`, `NothingTaken`."""
        return self._steps.run.input(dataset)

    def output(self, dataset: Declared | str) -> Output:
        """Return the writer of an output. The next commit publishes its writes. `NotAnOutput`, `NothingTaken`."""
        return self._steps.run.output(dataset)

    def publish(self, topic: str, payload: Mapping[str, object] | None = None, *, key: str = "") -> None:
        """Publish a message to a topic of your own with the commit: not before, and never without.

        `payload` has JSON values. `MessageOn(topic, key=…)` can listen to the messages of one `key`. At most 1,000
        messages a transaction. `ReservedTopic`, `BadName`, `BadPayload`, `MessageTooLarge`, `TooManyMessages`,
        `NothingTaken`.
        """
        self._steps.run.publish(topic, payload, key=key)

    def read(self, dataset: Declared | str) -> DataFrame:
        """All of a file set or snapshot as the transaction sees it; nothing is consumed. `NothingTaken`."""
        return self._steps.run.read(dataset)


class Steps:
    """The steps of a worker's attempt, one after the other, behind the `Worker` that its program sees."""

    def __init__(
        self,
        catalog: Catalog,
        record: RunRecord,
        program: Program,
        outputs: Mapping[str, Fileset],
        acceptors: Mapping[str, Code],
        writer: Writer,
    ) -> None:
        self.record = record
        self.session: SparkSession | None = None
        self.facts: Mapping[str, object] = {}
        """The facts about the attempt's driver and Spark, which the facts of each commit have too."""
        self.step: Step | None = None
        """The transaction that is not committed; None between a commit and a take."""
        self.commits = 0
        """The number of commits."""
        self.lost: TidemillError | None = None
        """The error that ended the attempt without a fault of the program."""
        self._catalog = catalog
        self._program = program
        self._filesets = outputs
        self._acceptors = acceptors
        self._writer = writer
        self._waiter: Waiter | None = None
        self._held = catalog.read(lambda db: holds_any(db, record.run_id))
        self._starting = announce_start(record, program)

    @property
    def run(self) -> Run:
        """The transaction since the last take, as its program sees it. `NothingTaken` before one."""
        return Run(self._current)

    @property
    def arguments(self) -> Mapping[str, Value]:
        """The arguments as the program sees them."""
        return self._program.reveal(self._catalog.world, self.record.arguments)

    def take(self, wait: str | timedelta | None = None) -> bool:
        """Begin the next step; see `Worker.take`."""
        if self.step is not None:
            raise NotCommitted
        clock = self._catalog.world.clock
        until = None if wait is None else clock.monotonic() + parse_duration(wait)
        with self._noting():
            while True:
                if self._held or self._catalog.read(self._is_any_there):
                    self._held = False
                    if self._begin():
                        return True
                    continue
                left = _LONGEST_NAP if until is None else min(until - clock.monotonic(), _LONGEST_NAP)
                if left <= timedelta(0):
                    return False
                self._nap(left)

    def commit(self) -> None:
        """Commit the step; see `Worker.commit`."""
        step = self._current
        with self._noting():
            prepared = step.prepare()
            done = {"commits": self.commits + 1, "inputs": step.inputs.count(), "last": step.outputs.facts()}
            facts = {**self.facts, **done}
            step.commit(prepared, [_NoteCommit(self.record.run_id, self.record.epoch, self._program, facts)])
        self.step = None
        self.commits += 1

    def close(self) -> None:
        """Close the waiter, if there is one."""
        if self._waiter is not None:
            self._waiter.close()
            self._waiter = None

    @property
    def _current(self) -> Step:
        if self.step is None:
            raise self.lost or NothingTaken()
        return self.step

    def _is_any_there(self, db: Db) -> bool:
        # Looked up each time: a consumer may be reset, and get other terms, while a worker lives.
        return find_inputs(db, self._program).has_work(db)

    def _begin(self) -> bool:
        """Begin a transaction and take; False, and it is ended again, if there was nothing after all."""
        inputs = self._catalog.read(lambda db: find_inputs(db, self._program))
        announced, self._starting = self._starting, []
        step = Step.begin(
            "worker", self._catalog, self.record, self._filesets, self._writer, inputs=inputs, announced=announced
        )
        step.take()
        step.workspace.session = self.session
        self.step = step
        step.accept(self._acceptors)
        self._catalog.world.mark("worker.taken")
        if not inputs.empty:
            return True
        self.step = None
        # Another run was first, or the acceptors refused everything.
        ended = EndTransaction(step.tx.write_pointer, TxState.ABORTED, "there was nothing to take")
        self._catalog.apply([ended, Unpin(self.record.run_id)])
        return False

    def _nap(self, longest: timedelta) -> None:
        if self._waiter is None:
            self._waiter = self._catalog.waiter(_AWAITED)
            return  # what was committed before it watched has not woken it: look once more
        self._waiter.wait(longest)

    def _noting(self) -> _Noting:
        return _Noting(self)


class _Noting:
    """Remembers what the catalog refuses in a block: no program is to blame for that, also if it passes it on."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        if self._steps.lost is not None:
            raise self._steps.lost

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Conflict | Fenced | Unavailable):
            self._steps.lost = error


@dataclass(frozen=True, slots=True)
class _NoteCommit(Effect):
    """Note a commit of a worker, whose run continues: the run makes progress, so its failures no longer count."""

    phase = Phase.RUN

    run_id: RunId
    epoch: int
    program: Program
    facts: Mapping[str, object]

    def guards(self) -> Sequence[Call]:
        return (ATTEMPTS.refuse_unless_running(run_id=self.run_id, epoch=self.epoch),)

    def writes(self) -> Sequence[Call]:
        run: dict[str, Param] = {"run_id": self.run_id, "epoch": self.epoch, "facts": json.dumps(self.facts)}
        return WORKERS.forgive(program_id=self.program.program_id), WORKERS.note_commit(**run)
