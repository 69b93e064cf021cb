"""`Run`: one attempt of a run as its program sees it: its arguments, its input, its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidemill.errors import UserError
from tidemill.lake.fileset.time_travel import AsOf
from tidemill.names import RunId
from tidemill.run.records.declared import Declared, qualified_name
from tidemill.run.records.programs import Value
from tidemill.run.records.triggers import TriggerFeed
from tidemill.run.records.values import put_value
from tidemill.run.step.inputs import Input
from tidemill.run.step.output import Output
from tidemill.run.step.outputs import Compacted
from tidemill.run.step.step import Step
from tidemill.run.step.version_reads import find_snapshot
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.filters import KeyFilter, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NotAnInput(UserError):
    """A data set that the program does not name in `reads=`."""

    code = "not_an_input"

    def __init__(self, dataset: str, declared: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{dataset} is no input of this program, which reads {declared or 'none'}",
            "name it in `reads=`, or use run.read() to look at it without consuming",
            before=": ",
        )


class NoRun(UserError):
    """`current_run()` was called outside of a run."""

    code = "no_run"
    hint = "call it in a program that a driver of Tidemill executes"

    def __init__(self) -> None:
        super().__init__("there is no current run in this process")


class Run:
    """Attempt of a run, as its program sees it: the first argument of each program.

    After the program has returned, one transaction publishes all writes, completes the claims and ends the run. If the
    program raises, nothing is published.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._workspace = step.workspace

    @property
    def id(self) -> RunId:
        """Id of the run. With `write_pointer` it is a key by which side effects elsewhere can be made idempotent."""
        return self._workspace.id

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self._step.tx.epoch

    @property
    def write_pointer(self) -> int:
        """Names this attempt's transaction; greater than that of every earlier one."""
        return self._step.tx.write_pointer

    @property
    def arguments(self) -> Mapping[str, Value]:
        """The declared arguments, with their values; of a `Secret` the secret itself. `NoSecret`."""
        program, given = self._step.inputs.program, self._step.record.arguments
        return given if program is None else program.reveal(self._workspace.world, given)

    @property
    def triggered_by(self) -> Mapping[str, object]:
        """Cause of the run: its schedule and the triggers with their messages, or the person that started it."""
        return self._step.record.triggered_by

    @property
    def triggers(self) -> tuple[TriggerFeed, ...]:
        """Feed of each leaf of the schedule's trigger, with its messages; empty if no schedule started the run.

        At most 100 messages in all, oldest first for each leaf. The first call reads the messages from their topics.
        """
        return self._workspace.triggers

    @property
    def logical_time(self) -> datetime | None:
        """The time for which a time trigger fired (aware); None when none did."""
        return self._step.record.logical_time

    @property
    def logical_times(self) -> tuple[datetime, ...]:
        """All times for which time triggers fired, oldest first: several after downtime, under `misfire="once"`."""
        return self._step.record.logical_times

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this run; `NeedsSpark` in a program without."""
        return self._workspace.spark

    @property
    def values(self) -> Mapping[str, Value]:
        """Values that the nodes before this one have put, such as `fetch.rows`; empty outside of a workflow."""
        return self._workspace.earlier_values

    def put(self, name: str, value: Value) -> None:
        """Put a small value on record, with the commit of this run: later nodes of its workflow see the value.

        The message about the end of the run has the value too. `BadValue` for another type than text, int, float or
        bool, and for more than 100 values or 3,900 characters in a run.
        """
        put_value(self._workspace.values, name, value, self._workspace.record.node)

    def input(self, dataset: Declared | str) -> Input:
        """Return the part of an input that this run has taken.

        Each retry gets the same. `NotAnInput` for other data sets.

        For a snapshot, the result is the version that was current when the attempt began. For `Changes`, it is the
        changes up to that version.
        """
        name = qualified_name(dataset)
        taken = self._step.inputs.taken
        if name not in taken:
            raise NotAnInput(name, ", ".join(taken))
        return taken[name].open(self._workspace)

    def output(self, dataset: Declared | str) -> Output:
        """Return the writer of one of the outputs. `NotAnOutput` for other data sets."""
        return self._workspace.output(dataset)

    def publish(self, topic: str, payload: Mapping[str, object] | None = None, *, key: str = "") -> None:
        """Publish a message to a topic of your own with the commit of this run: not before, and never without.

        `payload` has JSON values. `MessageOn(topic, key=…)` can listen to the messages of one `key`. At most 1,000
        messages a transaction. `ReservedTopic`, `BadName`, `BadPayload`, `MessageTooLarge`, `TooManyMessages`.
        """
        self._workspace.publish(topic, payload, key)

    def deduplicate(
        self,
        rows: DataFrame,
        *,
        keys: Sequence[str],
        against: Declared | str | None = None,
        within: str | timedelta | None = None,
        where: Where | None = None,
    ) -> DataFrame:
        """Return one row of `rows` for each value of `keys`, without keys that the file set `against` already has.

        `within` compares only with rows published in the last `within` (`"7d"`), and `where` only with these
        partitions. Rows that this run has written to `against` count too. Concurrent runs do not see each other's rows,
        so such a program keeps the usual `Concurrency(1)`. The run's facts have the numbers of rows and of left-out
        rows, if the whole result was written and nothing had read it before.
        """
        from tidemill.frames.duplicates import leave_out_duplicates

        name = "" if against is None else qualified_name(against)
        published = None if against is None else self._workspace.read_published(name, where, within)
        found = leave_out_duplicates(rows, keys, published, name)
        self._workspace.note_duplicates(name, keys, found)
        return found.rows

    def read(
        self,
        dataset: Declared | str,
        *,
        where: Where | None = None,
        as_of: AsOf | None = None,
        version: int | None = None,
    ) -> DataFrame:
        """A file set or snapshot as this run's transaction sees it, with its own writes; nothing is consumed.

        The same whenever it is asked, also when partitions are overwritten meanwhile: their files are kept for it.
        `where` chooses partitions: `{"day": Range(date(2026, 1, 1)), "hour": {1, 2}}`. `as_of`, a commit sequence or
        an aware time, gives an earlier state, without own writes; `version` a snapshot's of that number. Raises
        `BadKey`, `BadTime`, `NotKept`, `VersionGone`, and `NoVersionYet` for a snapshot that was never refreshed.
        """
        name, workspace = qualified_name(dataset), self._workspace
        if version is not None:
            return workspace.versions.read(
                workspace.spark, workspace.ask(lambda db, _: find_snapshot(db, name)), version
            )
        return workspace.read(name, where, as_of)

    def compact(self, dataset: Declared | str, *, where: Where | KeyFilter | None = None) -> list[Compacted]:
        """Put the rows of each partition with many small files into fewer files; return these partitions.

        `where` chooses partitions. The data set is an output of the program. The rows stay the same, and consumers get
        nothing. The commit raises `CompactionConflict` when another transaction has replaced such a partition.
        """
        return self._workspace.compact(dataset, where)

    def diff(self, dataset: Declared | str, old: int, new: int, *, key: Sequence[str] = ()) -> DataFrame:
        """By which rows version `new` of a snapshot differs from `old`, by key: `change`, the key, `before`, `after`.

        `change` is inserted, deleted or updated; `key` where another is wanted than the declared one. `VersionGone`,
        `NotComparable`.
        """
        workspace = self._workspace
        snapshot = workspace.ask(lambda db, _: find_snapshot(db, qualified_name(dataset)))
        return workspace.versions.diff(workspace.spark, snapshot, old, new, key)


_current: Final[list[Run]] = []
"""The run whose program this process executes. No variable of a context: threads of a program see the run too."""


def current_run() -> Run:
    """Return the run whose program this process executes now: the first argument of the program. `NoRun`."""
    if not _current:
        raise NoRun
    return _current[-1]


@contextmanager
def being_current(run: Run) -> Iterator[None]:
    """Have `current_run()` return this run, for a block."""
    _current.append(run)
    try:
        yield
    finally:
        _current.remove(run)


def workspace_of(run: Run) -> Workspace:
    """Return what stands behind `run`, for the programs that are part of Tidemill."""
    return run._workspace  # noqa: SLF001  # users have no business there
