"""What a program gets to work with: its arguments, its input, its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.durations import parse_duration
from tidemill.epoch import from_ms
from tidemill.errors import UserError
from tidemill.lake.consumer.take import return_claims
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, WriteOp, find_schema, pin, read_partitions
from tidemill.lake.fileset.publish import PartitionWrite, see_own
from tidemill.lake.fileset.time_travel import AsOf, find_snapshot_at, seq_before
from tidemill.lake.filters import KeyFilter, Where, make_filter
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.keys import KeyText
from tidemill.lake.snapshot.snapshot import SnapshotDataset, find_current
from tidemill.names import ConsumerId, PinId, ProgramId, RunId
from tidemill.run.change_input import ChangesInput
from tidemill.run.declared import Declared, find_dataset, qualified_name
from tidemill.run.file_input import FileInput
from tidemill.run.output import Output
from tidemill.run.outputs import Compacted
from tidemill.run.partition_input import PartitionInput
from tidemill.run.programs import Value
from tidemill.run.step import Step
from tidemill.run.version_input import SnapshotInput
from tidemill.run.version_reads import VersionReader, find_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.lake.inbox.duplicates import Deduplicated
    from tidemill.lake.spark import RowCount


T = TypeVar("T")


class NotAnInput(UserError):
    """A data set that the program does not name in `reads=`."""

    code = "not_an_input"

    def __init__(self, dataset: str, declared: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{dataset} is no input of this program, which reads {declared or 'none'}: name it in `reads=`, or use "
            "run.read() to look at it without consuming"
        )


class NeedsSpark(UserError):
    """A program without Spark asked for data frames."""

    code = "needs_spark"

    def __init__(self) -> None:
        super().__init__("this program runs without Spark: register it with @app.spark to read and write data frames")


class Run:
    """One attempt of a run, as its program sees it: the first argument of each program.

    What it writes is published, what it has taken is completed, and the run ends, in one transaction after the
    program has returned; nothing of it when the program raises.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        """For the driver: the transaction that the run works in."""
        self._catalog = step.catalog
        self.world = step.catalog.world
        """For its inputs, which read by it."""
        self._record = step.record
        self._tx = step.tx
        self._outputs = step.outputs
        self._spark: SparkSession | None = None
        self.reads = step.reads
        """For its inputs, whose files the step looks at once more before the commit."""
        self._rows_read: list[tuple[str, RowCount | None]] = []
        self._duplicates: list[tuple[str, tuple[str, ...], Deduplicated]] = []

    @property
    def id(self) -> RunId:
        """Its id; with `write_pointer` the key by which side effects elsewhere can be made idempotent."""
        return self._record.run_id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._tx.epoch

    @property
    def write_pointer(self) -> int:
        """Names this attempt's transaction; greater than that of every earlier one."""
        return self._tx.write_pointer

    @property
    def arguments(self) -> Mapping[str, Value]:
        """The declared arguments, with their values."""
        return self._record.arguments

    @property
    def triggered_by(self) -> Mapping[str, object]:
        """What caused the run: its schedule, the triggers with their messages; or who asked."""
        return self._record.triggered_by

    @property
    def logical_time(self) -> datetime | None:
        """The time for which a time trigger fired (aware); None when none did."""
        moment = self._record.logical_time
        return None if moment is None else from_ms(moment)

    @property
    def logical_times(self) -> tuple[datetime, ...]:
        """All times for which time triggers fired, oldest first: several after downtime, under `misfire="once"`."""
        moments = self._record.triggered_by.get("logical_times")
        return tuple(map(from_ms, moments)) if isinstance(moments, list) else ()

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this run; `NeedsSpark` in a program without."""
        if self._spark is None:
            raise NeedsSpark
        return self._spark

    def input(self, dataset: Declared | str) -> PartitionInput | FileInput | SnapshotInput | ChangesInput:
        """What this run has taken of one of its inputs; the same in every retry. `NotAnInput` for others.

        Of a snapshot it is what was current when the attempt began, of `Changes` what has changed until then.
        """
        name = qualified_name(dataset)
        taken = self.step.inputs.taken
        if name not in taken:
            raise NotAnInput(name, ", ".join(taken))
        return taken[name].open(self)

    def output(self, dataset: Declared | str) -> Output:
        """Where to write one of the outputs; `NotAnOutput` for others."""
        name = qualified_name(dataset)
        self._outputs.fileset(name)
        return Output(self._outputs, name)

    def deduplicate(
        self,
        rows: DataFrame,
        *,
        keys: Sequence[str],
        against: Declared | str | None = None,
        within: str | timedelta | None = None,
        where: Where | None = None,
    ) -> DataFrame:
        """One row of `rows` for each value of `keys`, and none whose key the file set `against` has already.

        `within` looks only at what was published there in so long a time (`"7d"`), `where` only at these partitions.
        With what this run has written; runs at the same time do not see one another, so such a program keeps
        the usual `Concurrency(1)`. The run's facts say how many rows there were and were left out, when all that is
        given was written and nothing had looked at it before.
        """
        from tidemill.lake.inbox.duplicates import leave_out_duplicates

        name = "" if against is None else qualified_name(against)
        published = None if against is None else self._read_published(name, where, within)
        found = leave_out_duplicates(rows, keys, published, name)
        self._duplicates.append((name, tuple(keys), found))
        self._outputs.counts += found.counted
        return found.rows

    def _read_published(self, name: str, where: Where | None, within: str | timedelta | None) -> DataFrame | None:
        """What `deduplicate` compares with; None before the first commit, when a file set has no columns yet."""
        dataset = self._catalog.read(lambda db: find_dataset(db, name))
        if dataset.kind is DatasetKind.FILESET and self.columns_of(Fileset.of(dataset)) is None:
            return None
        return self._read(name, where, None, self._seq_before(within))

    def note_read(self, inbox: str, counted: RowCount | None) -> None:
        """Rows of an inbox are going to be read, and perhaps counted; the input's business."""
        self._rows_read.append((inbox, counted))
        self._outputs.counts += [] if counted is None else [counted]

    def note_count(self, counted: RowCount) -> None:
        """Have the next write that takes all of the counted rows fill `counted`."""
        self._outputs.counts.append(counted)

    @property
    def rows_read(self) -> list[dict[str, object]]:
        """How many rows were read of each inbox, for the run's facts; None when not known, or differently twice.

        Known of what was written to an output before anything else looked at it, whole.
        """
        from tidemill.lake.spark import count_of

        rows: dict[str, set[int | None]] = {}
        for name, counted in self._rows_read:
            rows.setdefault(name, set()).add(None if counted is None else count_of(self.spark, counted))
        taken = self.step.inputs.taken
        return [
            {"dataset": name, "rows": seen.pop() if len(seen) == 1 else None, **taken[name].describe_reading()}
            for name, seen in rows.items()
        ]

    def publish_rejects(self, inbox: Inbox, rows: DataFrame) -> None:
        """Append bad rows of an inbox to its file set of rejects, with the commit; the input's business."""
        self._outputs.write(inbox.rejects, WriteOp.APPEND, rows)

    @property
    def duplicates(self) -> list[dict[str, object]]:
        """What `deduplicate` came to, for the run's facts."""
        return [{"against": name, "keys": list(keys), **found.facts()} for name, keys, found in self._duplicates]

    def _seq_before(self, within: str | timedelta | None) -> int | None:
        if within is None:
            return None
        age = parse_duration(within)
        return self._catalog.read(lambda db: seq_before(db, age))

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
        name = qualified_name(dataset)
        if version is not None:
            return self.versions.read(self.spark, self.ask(lambda db, _: find_snapshot(db, name)), version)
        return self._read(name, where, as_of, None)

    def _read(self, name: str, where: Where | None, as_of: AsOf | None, after: int | None) -> DataFrame:
        """`read`; with `after` only what was committed after that sequence."""
        from tidemill.lake.inbox.duplicates import since
        from tidemill.lake.spark import read_partitions as read_frame

        fileset = Fileset.of(self._catalog.read(lambda db: find_dataset(db, name)))
        pin_id = PinId(self.world.new_id("pin"))
        accepted = make_filter(fileset.keys, where)
        snapshot = self._catalog.read(lambda db: find_snapshot_at(db, fileset, as_of, self._tx))
        self._catalog.write(lambda db: pin(db, pin_id, fileset.dataset_id, snapshot, self.id))
        if fileset.dataset.kind is DatasetKind.SNAPSHOT:
            versions = SnapshotDataset.of(fileset.dataset)
            found = self.ask(lambda db, _: find_current(db, versions, snapshot))
            return self.versions.read_pinned(self.spark, versions, found)
        # A compaction is no commit of rows: what was committed since is found by the changes themselves.
        compacted = after is None
        seen = self._catalog.read(
            lambda db: read_partitions(db, fileset.dataset_id, snapshot, accepted, compacted=compacted)
        )
        if after is not None:
            seen = since(seen, after)
        if as_of is None:
            own = [write for write in self._outputs.written(name) if accepted.accepts(fileset.keys.encode(write.key))]
            seen = see_own(fileset, seen, self._tx, own)
        frame = read_frame(self.world, self.spark, fileset, seen, self.columns_of(fileset))
        self.reads.add(fileset, seen)
        return frame

    def compact(self, dataset: Declared | str, *, where: Where | KeyFilter | None = None) -> list[Compacted]:
        """Put the rows of each partition with many small files into fewer files; return these partitions.

        `where` chooses partitions. The data set is an output of the program. The rows stay the same, and consumers get
        nothing. The commit raises `CompactionConflict` when another transaction has replaced such a partition.
        """
        name = qualified_name(dataset)
        found = self._outputs.find_fragmented(name, where)
        if not found:
            return []
        from tidemill.lake.spark import gather

        fileset = self._outputs.fileset(name)
        return self._outputs.compact(name, found, gather(self.read_exactly(fileset, found), fileset))

    def diff(self, dataset: Declared | str, old: int, new: int, *, key: Sequence[str] = ()) -> DataFrame:
        """By which rows version `new` of a snapshot differs from `old`, by key: `change`, the key, `before`, `after`.

        `change` is inserted, deleted or updated; `key` where another is wanted than the declared one. `VersionGone`,
        `NotComparable`.
        """
        snapshot = self.ask(lambda db, _: find_snapshot(db, qualified_name(dataset)))
        return self.versions.diff(self.spark, snapshot, old, new, key)

    # For programs that are no user code (a window program, a pipeline).

    @property
    def program_id(self) -> ProgramId:
        """The program that it is a run of."""
        assert self._record.program_id is not None, "a run that is driven is one of a program"  # noqa: S101
        return self._record.program_id

    def also(self, *effects: Effect) -> None:
        """Have the commit of this attempt do `effects` as well, after its outputs are published."""
        self.step.effects += effects

    def ask(self, block: Callable[[Db, Transaction], T]) -> T:
        """What `block` reads of the catalog, given the transaction, whose snapshot it should look by."""
        return self._catalog.read(lambda db: block(db, self._tx))

    def read_exactly(self, fileset: Fileset, partitions: Sequence[Partition]) -> DataFrame:
        """The rows of these partitions, as the transaction sees them; their files are kept until the attempt ends."""
        from tidemill.lake.spark import read_partitions as read_frame

        pin_id = PinId(self.world.new_id("pin"))
        self._catalog.write(lambda db: pin(db, pin_id, fileset.dataset_id, self._tx, self.id))
        frame = read_frame(self.world, self.spark, fileset, partitions, self.columns_of(fileset))
        self.reads.add(fileset, partitions)
        return frame

    def undone_on_error(self, dataset: Declared | str) -> AbstractContextManager[None]:
        """A block that has written nothing to this output when it raises."""
        return self._outputs.undone_on_error(qualified_name(dataset))

    def undone(self, dataset: Declared | str) -> AbstractContextManager[None]:
        """A block that has written nothing to this output in any case: to see whether it can."""
        return self._outputs.undone(qualified_name(dataset))

    def note(self, dataset: Declared | str, text: str) -> None:
        """Tell something of what is written to an output, in the facts of the run."""
        self._outputs.note(qualified_name(dataset), text)

    def written(self, dataset: Declared | str) -> list[PartitionWrite]:
        """What this attempt has written to one of its outputs so far, by partition."""
        return self._outputs.written(qualified_name(dataset))

    @property
    def versions(self) -> VersionReader:
        """For its inputs, which read by it."""
        return VersionReader(self._catalog, self.id, self.reads)

    def return_claims(self, consumer_id: ConsumerId, keys: Sequence[KeyText], wait: timedelta) -> None:
        """Return claims of an input; the input's business."""
        return_claims(self._catalog, self._tx, consumer_id, keys, wait)

    def use_spark(self, session: SparkSession | None) -> None:
        """Hand over the session of this attempt; the driver's business."""
        self._spark = session

    def columns_of(self, fileset: Fileset) -> ColumnSchema | None:
        """The columns in a file set's files, those of own writes included; None before its first commit and write."""
        own = self._outputs.columns_of(fileset.qualified_name)
        return own or self._catalog.read(lambda db: find_schema(db, fileset.dataset_id))
