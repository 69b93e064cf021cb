"""`Workspace`: what an attempt reads, writes and counts, behind the `Run` that its program sees.

Inputs, window programs and pipelines work with it; user code gets a `Run`, which has no more than programs need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.messages import write_message
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.durations import parse_duration
from tidemill.errors import UserError
from tidemill.lake.consumer.take import return_claims
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import (
    ColumnSchema,
    Fileset,
    Partition,
    WriteOp,
    find_schema,
    pin_within,
    read_partitions,
)
from tidemill.lake.fileset.publish import PartitionWrite, see_own
from tidemill.lake.fileset.time_travel import AsOf, find_snapshot_at, seq_before
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.snapshot.snapshot import SnapshotDataset, find_current
from tidemill.names import ConsumerId, PinId, ProgramId, RunId
from tidemill.run.records.declared import Declared, find_dataset, qualified_name
from tidemill.run.records.runs import RunRecord
from tidemill.run.records.triggers import TriggerFeed, leaves_of, read_triggers
from tidemill.run.records.values import Value, name_values
from tidemill.run.records.workflows import find_workflow, list_nodes
from tidemill.run.step.output import Output
from tidemill.run.step.outputs import Compacted, Outputs
from tidemill.run.step.reads import ReadChanges
from tidemill.run.step.version_reads import VersionReader
from tidemill.shapes.custom_time import run_beside
from tidemill.shapes.filters import KeyFilter, Where, make_filter
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.frames.duplicates import Deduplicated
    from tidemill.frames.spark import RowCount

T = TypeVar("T")


class NeedsSpark(UserError):
    """A program without Spark asked for data frames."""

    code = "needs_spark"

    def __init__(self) -> None:
        super().__init__(
            "this program runs without Spark", "register it with @app.spark to read and write data frames", before=": "
        )


class TooManyMessages(UserError):
    """More messages of users in one transaction than a commit may carry."""

    code = "too_many_messages"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"{run_id} publishes more than {MOST_MESSAGES} messages in one transaction, for which all other commits "
            "would wait",
            "publish a message with a list, or rows to a file set",
        )


MOST_MESSAGES: Final = 1000


class Workspace:
    """The workspace of one attempt. `effects` are what its commit does beside publishing and closing claims."""

    def __init__(self, catalog: Catalog, record: RunRecord, tx: Transaction, outputs: Outputs) -> None:
        self.catalog = catalog
        self.world = catalog.world
        self.record = record
        self.tx = tx
        self.outputs = outputs
        self.reads = ReadChanges(catalog.world)
        self.effects: list[Effect] = []
        self.session: SparkSession | None = None
        self.values: dict[str, Value] = {}
        """The values that the program has put."""
        self._published = 0
        self._rows_read: list[tuple[str, RowCount | None]] = []
        self._duplicates: list[tuple[str, tuple[str, ...], Deduplicated]] = []

    @property
    def id(self) -> RunId:
        """The id of the run."""
        return self.record.run_id

    @property
    def program_id(self) -> ProgramId:
        """The program of the run."""
        assert self.record.program_id is not None, "a run that is driven is one of a program"  # noqa: S101
        return self.record.program_id

    @cached_property
    def triggers(self) -> tuple[TriggerFeed, ...]:
        """Feed of each leaf of the schedule's trigger; read once."""
        return self.catalog.read(lambda db: read_triggers(db, leaves_of(self.record.triggered_by)))

    @cached_property
    def earlier_values(self) -> Mapping[str, Value]:
        """The values that the nodes before this one have put, by their full names; read once."""
        workflow, node = self.record.workflow, self.record.node
        if workflow is None:
            return {}
        row, nodes = self.catalog.read(lambda db: (find_workflow(db, workflow), list_nodes(db, workflow)))
        before = frozenset() if row is None else row.spec.ancestors(node)
        return name_values({one.node: one.result for one in nodes if one.node in before})

    @property
    def spark(self) -> SparkSession:
        """The Spark session of the attempt. `NeedsSpark` in a program without."""
        if self.session is None:
            raise NeedsSpark
        return self.session

    @property
    def versions(self) -> VersionReader:
        """The reader of versions of snapshots."""
        return VersionReader(self.catalog, self.tx, self.reads)

    @property
    def _seen(self) -> Snapshot:
        """The snapshot that programs look at: that of the transaction, of a replay that of the run which it repeats."""
        replay = self.record.replay
        return self.tx if replay is None else Snapshot(replay.saw, self.tx.incarnation)

    def ask(self, block: Callable[[Db, Transaction], T]) -> T:
        """Return what `block` reads of the catalog; `block` gets the transaction, whose snapshot it looks by."""
        return run_beside(self.catalog.read, lambda db: block(db, self.tx))

    def also(self, *effects: Effect) -> None:
        """Add `effects` to the commit of this attempt."""
        self.effects += effects

    def publish(self, topic: str, payload: Mapping[str, object] | None, key: str) -> None:
        """Add a user's message to the commit, as `Run.publish` does. A quiet run publishes none."""
        if self._published == MOST_MESSAGES:
            raise TooManyMessages(self.id)
        message = write_message(topic, payload, key)
        self.also(*([] if self.record.quiet else [message]))
        self._published += 1

    # Reading.

    def read(self, name: str, where: Where | None, as_of: AsOf | None = None, after: int | None = None) -> DataFrame:
        """Read a data set as `Run.read` does; with `after` only commits after that sequence."""
        from tidemill.frames.duplicates import since

        fileset = Fileset.of(self.catalog.read(lambda db: find_dataset(db, name)))
        accepted = make_filter(fileset.keys, where)
        snapshot = self.catalog.read(lambda db: find_snapshot_at(db, fileset, as_of, self._seen))
        pin_id = PinId(self.world.new_id("pin"))
        self.catalog.write(lambda db: pin_within(db, self.tx, pin_id, fileset.dataset_id, snapshot))
        if fileset.dataset.kind is DatasetKind.SNAPSHOT:
            versions = SnapshotDataset.of(fileset.dataset)
            return self.versions.read_pinned(
                self.spark, versions, self.catalog.read(lambda db: find_current(db, versions, snapshot))
            )
        # A compaction is no commit of rows: what was committed since is found by the changes themselves.
        seen = self.catalog.read(
            lambda db: read_partitions(db, fileset.dataset_id, snapshot, accepted, compacted=after is None)
        )
        if after is not None:
            seen = since(seen, after)
        if as_of is None:
            own = [write for write in self.outputs.written(name) if accepted.accepts(fileset.keys.encode(write.key))]
            seen = see_own(fileset, seen, self.tx, own)
        return self._read_pinned(fileset, seen)

    def read_exactly(self, fileset: Fileset, partitions: Sequence[Partition]) -> DataFrame:
        """Read the rows of these partitions as the transaction sees them; their files stay until the attempt ends."""
        pin_id = PinId(self.world.new_id("pin"))
        self.catalog.write(lambda db: pin_within(db, self.tx, pin_id, fileset.dataset_id, self.tx))
        return self._read_pinned(fileset, partitions)

    def read_published(self, name: str, where: Where | None, within: str | timedelta | None) -> DataFrame | None:
        """Read what `Run.deduplicate` compares with; None for a file set that has no columns yet."""
        dataset = self.catalog.read(lambda db: find_dataset(db, name))
        if dataset.kind is DatasetKind.FILESET and self.columns_of(Fileset.of(dataset)) is None:
            return None
        after = None
        if within is not None:
            age = parse_duration(within)
            after = self.catalog.read(lambda db: seq_before(db, age))
        return self.read(name, where, None, after)

    def columns_of(self, fileset: Fileset) -> ColumnSchema | None:
        """Return the columns in a file set's files, those of own writes included; None before the first write."""
        own = self.outputs.columns_of(fileset.qualified_name)
        return own or self.catalog.read(lambda db: find_schema(db, fileset.dataset_id))

    def _read_pinned(self, fileset: Fileset, partitions: Sequence[Partition]) -> DataFrame:
        from tidemill.frames.spark import read_partitions as read_frame

        frame = read_frame(self.world, self.spark, fileset, partitions, self.columns_of(fileset))
        self.reads.add(fileset, partitions)
        return frame

    # Counting.

    def note_read(self, inbox: str, counted: RowCount | None) -> None:
        """Note that rows of an inbox are going to be read, and perhaps counted."""
        self._rows_read.append((inbox, counted))
        self.outputs.counts += [] if counted is None else [counted]

    def note_count(self, counted: RowCount) -> None:
        """Have the next write that takes all of the counted rows fill `counted`."""
        self.outputs.counts.append(counted)

    def note_duplicates(self, against: str, keys: Sequence[str], found: Deduplicated) -> None:
        """Note what `Run.deduplicate` looks for."""
        self._duplicates.append((against, tuple(keys), found))
        self.outputs.counts += found.counted

    def count_rows_read(self) -> dict[str, int | None]:
        """Count the rows that were read of each inbox: None when not known, or different at a second read.

        Rows are counted by a write that takes all of them before any other code looks at them.
        """
        from tidemill.frames.spark import count_of

        rows: dict[str, set[int | None]] = {}
        for name, counted in self._rows_read:
            rows.setdefault(name, set()).add(None if counted is None else count_of(self.spark, counted))
        return {name: seen.pop() if len(seen) == 1 else None for name, seen in rows.items()}

    def count_duplicates(self) -> list[dict[str, object]]:
        """Return what `Run.deduplicate` has found, for the run's facts."""
        return [{"against": name, "keys": list(keys), **found.facts()} for name, keys, found in self._duplicates]

    # Claims and outputs.

    def return_claims(
        self, consumer_id: ConsumerId, keys: Sequence[KeyText], wait: timedelta, tx: Transaction | None = None
    ) -> None:
        """Return claims of a consumer; a later run gets them, after `wait` at the soonest.

        `tx` is the transaction as it names another owner of the claims.
        """
        return_claims(self.catalog, tx or self.tx, consumer_id, keys, wait)

    def publish_rejects(self, inbox: Inbox, rows: DataFrame) -> None:
        """Append bad rows of an inbox to its file set of rejects, with the commit; those of a replay are there."""
        if self.record.replay is None:
            self.outputs.write(inbox.rejects, WriteOp.APPEND, rows)

    def output(self, dataset: Declared | str) -> Output:
        """Return where to write one of the outputs; `NotAnOutput` for others."""
        name = qualified_name(dataset)
        self.outputs.fileset(name)
        return Output(self.outputs, name)

    def compact(self, dataset: Declared | str, where: Where | KeyFilter | None) -> list[Compacted]:
        """Put the rows of each partition with many small files into fewer files; see `Run.compact`."""
        name = qualified_name(dataset)
        found = self.outputs.find_fragmented(name, where)
        if not found:
            return []
        from tidemill.frames.spark import gather

        fileset = self.outputs.fileset(name)
        return self.outputs.compact(name, found, gather(self.read_exactly(fileset, found), fileset))

    def undone_on_error(self, dataset: Declared | str) -> AbstractContextManager[None]:
        """Return a block that has written nothing to this output when it raises."""
        return self.outputs.undone_on_error(qualified_name(dataset))

    def undone(self, dataset: Declared | str) -> AbstractContextManager[None]:
        """Return a block that has written nothing to this output in any case: to see whether it can."""
        return self.outputs.undone(qualified_name(dataset))

    def note(self, dataset: Declared | str, text: str) -> None:
        """Tell something of what is written to an output, in the facts of the run."""
        self.outputs.note(qualified_name(dataset), text)

    def written(self, dataset: Declared | str) -> list[PartitionWrite]:
        """Return what this attempt has written to one of its outputs so far, by partition."""
        return self.outputs.written(qualified_name(dataset))
