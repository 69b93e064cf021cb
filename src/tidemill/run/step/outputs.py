"""Outputs of one transaction: directories that are invisible until the commit, and the effects that publish them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidemill.catalog.db import Catalog
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.errors import NotFound, Unavailable, UserError
from tidemill.frames.checks import Check, CheckResult, to_metadata
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.compaction import Compact, CompactedPartition, is_worth_compacting
from tidemill.lake.fileset.fileset import (
    Change,
    ColumnSchema,
    Fileset,
    Partition,
    WriteOp,
    find_schema,
    read_partitions,
)
from tidemill.lake.fileset.metadata import MetadataChange, check_metadata
from tidemill.lake.fileset.publish import MOST_CHANGES, PartitionWrite, find_existing, fold, see_own
from tidemill.lake.snapshot.guards import Figures, Guard, RefreshRefused, find_refusals
from tidemill.lake.snapshot.refresh_order import RefreshOrder, find_order
from tidemill.lake.snapshot.snapshot import NotASnapshot, PublishVersion, SnapshotDataset, find_visible
from tidemill.lake.window.follow import publish_partitions
from tidemill.lake.window.parked import release_parked
from tidemill.lake.window.watermark import find_known_times, list_slots
from tidemill.names import CommitSeq, DatasetId
from tidemill.shapes.filters import KeyFilter, Where, make_filter
from tidemill.shapes.keys import NO_KEYS, KeyValue
from tidemill.shapes.manifest import Manifest, check_files, delete_unnamed, mark_committed, tx_directory, write_side_car
from tidemill.shapes.partition_time import Instant, Span
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.frames.spark import PartitionWrites, RowCount

_log = logging.getLogger(__name__)

_MOST_SHOWN: Final = 20
_MOST_PUBLICATIONS: Final = 500
"""The most data sets that the message of a run's end names."""
_NO_ROWS: Final[Mapping[WriteOp, str]] = {
    WriteOp.APPEND: "append() got no rows, so no partition was made; create_empty(key) makes one without rows",
    WriteOp.CREATE: "create() got no rows, so no partition was made; create_empty(key) makes one without rows",
    WriteOp.OVERWRITE: (
        "overwrite() got no rows, so nothing was replaced: the rows say which partitions are; drop(where) removes "
        "partitions, and create_empty(key) after it makes one without rows"
    ),
}
"""Notes about a write without rows. Its rows would have named the partitions."""


class NotAnOutput(UserError):
    """A write to a data set that the program does not name in `writes=`."""

    code = "not_an_output"

    def __init__(self, dataset: str, declared: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{dataset} is no output of this transaction, which declared {declared or 'none'}",
            "name it in `writes=`, or at begin",
        )


class RowsChanged(Unavailable):
    """A compaction wrote another number of rows than it read."""

    code = "rows_changed"

    def __init__(self, dataset: str, partition: str, before: int, after: int) -> None:
        self.dataset = dataset
        self.partition = partition
        self.before = before
        self.after = after
        super().__init__(
            f"the compaction of partition {partition} of {dataset} read {before} rows and wrote {after}; nothing of "
            "it is published",
            "run again",
        )


class WritesAndCompacts(UserError):
    """Transaction both compacts a file set and writes to it."""

    code = "writes_and_compacts"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"this transaction compacts {dataset} and writes to it",
            "compact it in a transaction of its own",
            before=": ",
        )


class Writer(Protocol):
    """Writes rows of some kind into files of a file set."""

    def __call__(
        self,
        world: World,
        rows: Any,  # noqa: ANN401  # of the writer's own kind
        fileset: Fileset,
        directory: str,
        columns: ColumnSchema | None,
    ) -> PartitionWrites:
        """Write below `directory`, which is new, and give the manifests; `columns` are those the file set has."""


def write_frames(
    world: World, rows: DataFrame, fileset: Fileset, directory: str, columns: ColumnSchema | None = None
) -> PartitionWrites:
    """Let Spark write a data frame as Parquet."""
    from tidemill.frames import spark

    return spark.write_partitions(world, rows, fileset, directory, columns)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A partition that was dropped: its key as people read it and by field, and what it held."""

    partition: str
    key: Mapping[str, KeyValue]
    files: int
    bytes: int
    rows: int


def describe_partition(fileset: Fileset, partition: Partition) -> Dropped:
    """Describe the partition that a drop removes."""
    values = dict(zip(fileset.keys.names, fileset.keys.decode(partition.partition_key), strict=True))
    shown = fileset.show(partition.partition_key)
    return Dropped(shown, values, len(partition.files), partition.bytes, partition.rows)


@dataclass(frozen=True, slots=True)
class Compacted:
    """A partition that was compacted: its key as people read it, its files before and after, and what they hold."""

    partition: str
    files_before: int
    files: int
    bytes: int
    rows: int


@dataclass(slots=True)
class _Output:
    fileset: Fileset
    writes: list[PartitionWrite] = field(default_factory=list)
    base: ColumnSchema | None = None
    schema: ColumnSchema | None = None
    calls: int = 0
    refused: RefreshRefused | None = None
    checks: list[CheckResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes for people about the writes: writes without effect, and rows that were left out."""
    forgot: bool = False
    """True if a partition was written and then dropped."""
    compacted: list[CompactedPartition] = field(default_factory=list)
    seen: int | None = None
    """The newest commit that registered files take into account. None for what the transaction sees."""
    order: RefreshOrder | None = None
    """Place of this transaction among the refreshes of a snapshot. None for a file set."""

    @property
    def is_ours(self) -> bool:
        """True if the output has a directory of this transaction. An adopted partition keeps its own directory."""
        return not any(write.location for write in self.writes)

    @property
    def changes(self) -> list[PartitionWrite]:
        return fold(self.fileset, self.writes)

    def misses_rows(self, op: WriteOp) -> bool:
        """Return whether a write without rows is likely to be a mistake."""
        if op is WriteOp.APPEND:
            # Most programs append what there is, if anything. A watermark waits for a partition, but not one that
            # follows window programs, whose windows may all be without rows.
            spec = self.fileset.watermark
            return spec is not None and not spec.follows_windows
        # The rest of partitions that were dropped before may have no rows: so windows are replaced by none.
        return op is not WriteOp.OVERWRITE or all(write.op is not WriteOp.DROP for write in self.writes)

    def forget_since(self, writes: list[PartitionWrite], schema: ColumnSchema | None) -> None:
        """Be again as it was then."""
        self.writes, self.schema, self.forgot = writes, schema, True


class Outputs:
    """The file sets and snapshots that a transaction may write, and what it has written to each.

    `writer` makes the files; `allowed` are the guards of snapshots that are let pass; `spans` are the times that the
    transaction has declared to write, all of which are complete with its commit. What is published with `quiet` is
    delivered to no consumer and not announced. The guards of snapshots do not look at what a `sandbox` writes.
    """

    def __init__(
        self,
        catalog: Catalog,
        tx: Transaction,
        filesets: Mapping[str, Fileset],
        writer: Writer = write_frames,
        allowed: Collection[Guard] = (),
        spans: Mapping[DatasetId, tuple[Instant, Instant]] | None = None,
        *,
        quiet: bool = False,
        sandbox: bool = False,
    ) -> None:
        self.catalog = catalog
        self.tx = tx
        self._writer = writer
        self._allowed = allowed
        self._spans = spans or {}
        self._quiet = quiet
        self._sandbox = sandbox
        self._outputs = {name: _Output(fileset) for name, fileset in filesets.items()}
        self.counts: list[RowCount] = []
        """Counts of the rows that a program was given. A write reads all of its rows, so the counts are complete then.
        """

    def fileset(self, name: str) -> Fileset:
        """The declared output of that qualified name; `NotAnOutput` otherwise."""
        return self._find(name).fileset

    @property
    def filesets(self) -> dict[str, Fileset]:
        """The declared outputs, by qualified name."""
        return {name: output.fileset for name, output in self._outputs.items()}

    def write(
        self,
        name: str,
        op: WriteOp,
        rows: DataFrame,
        *,
        metadata: Mapping[str, str] | None = None,
        expect: Sequence[Check] = (),
        quarantine: str | None = None,
    ) -> None:
        """Write `rows` into files of this transaction, one Spark job for all their partitions.

        The commit publishes them.

        Each partition gets `metadata`. `expect` are checks; rows that a check quarantines are appended to the output
        `quarantine`. Raises `SchemaChanged` if the file set, or an earlier write of this transaction, has other
        columns. Errors: also `CheckFailed`, `BadCheck`.
        """
        output = self._find_partitioned(name)
        said = check_metadata(metadata or {})
        dataset_id = output.fileset.dataset_id
        if output.schema is None:
            output.base = self.catalog.read(lambda db: find_schema(db, dataset_id))
        columns = output.schema or output.base
        if not expect:
            written = self._write(output, rows, columns)
        else:
            written, results = self._write_under(output, rows, columns, expect, quarantine)
            output.checks += results
            said |= to_metadata(results)
        output.writes += [PartitionWrite(key, op, manifest, said) for key, manifest in written.manifests.items()]
        if not written.manifests and output.misses_rows(op):
            output.notes.append(_NO_ROWS[op])
            _log.warning("%s: %s", name, _NO_ROWS[op])

    def create_empty(self, name: str, key: Mapping[str, object]) -> None:
        """Make the partition `key` without rows; `BadKey`. One that exists already fails the commit, or this call."""
        output = self._find_partitioned(name)
        output.writes.append(PartitionWrite(output.fileset.keys.check(key), WriteOp.CREATE))
        _ = output.changes  # refuses what this transaction has written already

    def _write_under(
        self,
        output: _Output,
        rows: DataFrame,
        columns: ColumnSchema | None,
        expect: Sequence[Check],
        quarantine: str | None,
    ) -> tuple[PartitionWrites, list[CheckResult]]:
        from tidemill.frames.checked import put_under

        if quarantine is not None:
            self._find_partitioned(quarantine)
        with self._counting(rows):
            checked = put_under(rows, expect, quarantine=quarantine is not None)
        try:
            written = self._write(output, checked.rows, columns)
            total = sum(manifest.total_rows for manifest in written.manifests.values())
            results = checked.results(output.fileset.qualified_name, total)
            if quarantine is not None and checked.quarantined is not None:
                self.write(quarantine, WriteOp.APPEND, checked.quarantined)
        finally:
            checked.close()
        return written, results

    def drop(self, name: str, where: Where | KeyFilter) -> list[Dropped]:
        """Drop the partitions that this transaction sees and `where` accepts; what they were. `BadKey`.

        What it made itself is as if it had never been; of the rest, whatever others did since fails the commit.
        """
        output = self._find_partitioned(name)
        keys = output.fileset.keys
        accepted = where if isinstance(where, KeyFilter) else make_filter(keys, where)
        before = self._seen(output, accepted)
        chosen = [write for write in output.changes if accepted.accepts(keys.encode(write.key))]
        gone = see_own(output.fileset, before, self.tx, chosen)
        seen = {partition.partition_key for partition in before}
        own = {keys.encode(change.key): change.op for change in output.changes}
        made = {key for key in own.keys() - seen if accepted.accepts(key)}
        output.forgot |= bool(own.keys() & (made | seen))
        output.writes = [write for write in output.writes if keys.encode(write.key) not in made]
        dropped = sorted(key for key in seen if own.get(key) is not WriteOp.DROP)
        output.writes += [PartitionWrite(keys.decode(key), WriteOp.DROP) for key in dropped]
        return [describe_partition(output.fileset, partition) for partition in gone]

    def register(
        self,
        name: str,
        writes: Sequence[PartitionWrite],
        columns: ColumnSchema | None,
        *,
        base: ColumnSchema | None,
        seen: int | None = None,
    ) -> None:
        """Publish files that are there already, each where its write says, with the commit.

        `columns` were made of `base`, the columns that the file set had when they were read. If another transaction has
        changed these since, the commit is refused: it would lose what the other one has added. So is a write to a
        partition that another transaction has changed after the commit `seen`, if the writes follow from what was there
        before this transaction began.
        """
        output = self._find_partitioned(name)
        output.base, output.seen = base, seen
        output.schema = columns
        output.writes += writes

    def describe(
        self, name: str, key: Mapping[str, object], change: MetadataChange
    ) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        """Change the metadata of one partition that this transaction sees; return those before and after.

        `NotFound`, `MetadataExists`.
        """
        output = self._find_partitioned(name)
        fileset = output.fileset
        checked = fileset.keys.check(key)
        only = make_filter(fileset.keys, dict(zip(fileset.keys.names, checked, strict=True)))
        own = [write for write in output.changes if write.key == checked]
        seen = see_own(fileset, self._seen(output, only), self.tx, own)
        if not seen:
            raise NotFound("partition", f"{fileset.keys.show(checked)} of {name}")
        said = change.decide(name, fileset.keys.show(checked), seen[0].metadata)
        output.writes.append(PartitionWrite(checked, WriteOp.APPEND, metadata=said, claimed=frozenset(said)))
        after = {**seen[0].metadata, **said}
        return seen[0].metadata, {name: value for name, value in after.items() if value is not None}

    def find_fragmented(self, name: str, where: Where | KeyFilter | None) -> list[Partition]:
        """Return the partitions that this transaction sees, `where` accepts and a compaction would improve. `BadKey`.

        Not those that this transaction has compacted. At most `MOST_CHANGES`: a later compaction finds the others.
        """
        output = self._find_partitioned(name)
        accepted = where if isinstance(where, KeyFilter) else make_filter(output.fileset.keys, where)
        done = {one.before.partition_key for one in output.compacted}
        found = [one for one in self._seen(output, accepted) if one.partition_key not in done]
        return [one for one in found if is_worth_compacting(one)][: MOST_CHANGES - len(done)]

    def compact(self, name: str, partitions: Sequence[Partition], rows: DataFrame) -> list[Compacted]:
        """Write `rows`, which are those of `partitions`, into files that the commit puts in the place of their files.

        The transaction does nothing else to the file set. Raises `RowsChanged` when a partition has another number of
        rows then.
        """
        output = self._find_partitioned(name)
        columns = self.catalog.read(lambda db: find_schema(db, output.fileset.dataset_id))
        manifests = self._write(output, rows, columns).manifests
        output.schema = None
        compacted, done = [], []
        for partition in partitions:
            shown = output.fileset.show(partition.partition_key)
            key = output.fileset.keys.decode(partition.partition_key)
            manifest = manifests.get(key, Manifest(()))
            if manifest.total_rows != partition.rows:
                raise RowsChanged(name, shown, partition.rows, manifest.total_rows)
            compacted.append(CompactedPartition(partition, manifest))
            size, count = manifest.total_bytes, manifest.total_rows
            done.append(Compacted(shown, len(partition.files), len(manifest.files), size, count))
        if stray := manifests.keys() - {output.fileset.keys.decode(one.partition_key) for one in partitions}:
            raise RowsChanged(name, output.fileset.keys.show(min(stray)), 0, manifests[min(stray)].total_rows)
        output.compacted += compacted
        return done

    def _find_partitioned(self, name: str) -> _Output:
        output = self._find(name)
        if output.fileset.dataset.kind is DatasetKind.SNAPSHOT:
            raise NotASnapshot(name, "is a snapshot, replaced whole by each refresh: use replace()")
        return output

    def _seen(self, output: _Output, where: KeyFilter) -> list[Partition]:
        dataset_id = output.fileset.dataset_id
        return self.catalog.read(lambda db: read_partitions(db, dataset_id, self.tx, where, compacted=True))

    def replace(self, name: str, rows: DataFrame, allowed: Collection[Guard] = ()) -> None:
        """Write `rows` as the next version of a snapshot; the last of several is it. `allowed` guards let it pass.

        Raises `RefreshRefused`, here and at the commit, when they are not what its guards expect of a next version.
        """
        output = self._find(name)
        snapshot = SnapshotDataset.of(output.fileset.dataset)
        written = self._write(output, rows, None)
        manifest = written.manifests.get((), Manifest(()))
        output.writes = [PartitionWrite((), WriteOp.OVERWRITE, manifest)]
        output.schema = written.schema
        if self._sandbox:
            return
        dataset_id = snapshot.dataset_id
        before = self.catalog.read(lambda db: find_visible(db, dataset_id, self.tx))
        output.order = self.catalog.read(lambda db: find_order(db, dataset_id, self.tx))
        after = self._measure(snapshot, rows, manifest, written.schema)
        allowed = {*allowed, *self._allowed}
        refusals = find_refusals(snapshot.spec.guards, before.figures if before else None, after, allowed)
        output.refused = RefreshRefused(name, refusals, before.version if before else None) if refusals else None
        self.catalog.world.mark("output.guarded")
        if output.refused:
            raise output.refused

    def _measure(
        self, snapshot: SnapshotDataset, rows: DataFrame, manifest: Manifest, columns: ColumnSchema
    ) -> Figures:
        if not snapshot.spec.guards.read_rows:
            return Figures(manifest.total_rows, columns.text)
        from tidemill.frames.measures import measure

        change = Change(
            NO_KEYS.encode(()), self.tx.write_pointer, CommitSeq(0), WriteOp.OVERWRITE, tx_directory(self.tx), manifest
        )
        written = Partition(change.partition_key, (change,))
        return measure(self.catalog.world, rows.sparkSession, snapshot, written, columns)

    def _write(self, output: _Output, rows: DataFrame, columns: ColumnSchema | None) -> PartitionWrites:
        output.calls += 1
        # Each call has its own directory: the files of a failed call are deleted before the commit.
        directory = f"{tx_directory(self.tx)}/{output.calls}"
        with self._counting(rows):
            written = self._writer(self.catalog.world, rows, output.fileset, directory, columns)
        self.catalog.world.mark("output.written")
        if written.manifests:
            output.schema = written.schema
        return written

    def _counting(self, rows: DataFrame) -> AbstractContextManager[None]:
        if not self.counts:
            return nullcontext()
        from tidemill.frames.spark import counting

        return counting(rows, self.counts)

    @contextmanager
    def undone_on_error(self, name: str) -> Iterator[None]:
        """Forget what the block writes to an output when it raises; its files go before the commit."""
        output = self._find(name)
        before, schema = list(output.writes), output.schema
        try:
            yield
        except BaseException:
            output.forget_since(before, schema)
            raise

    @contextmanager
    def undone(self, name: str) -> Iterator[None]:
        """Forget what the block writes to an output, in any case; its files go before the commit."""
        output = self._find(name)
        before, schema = list(output.writes), output.schema
        try:
            yield
        finally:
            output.forget_since(before, schema)

    def columns_of(self, name: str) -> ColumnSchema | None:
        """The columns of what has been written to an output; None before that, and for what is no output."""
        output = self._outputs.get(name)
        return output.schema if output else None

    def note(self, name: str, text: str) -> None:
        """Have `facts` tell something of an output."""
        self._find(name).notes.append(text)

    def written(self, name: str) -> list[PartitionWrite]:
        """Return the writes to an output so far, folded. Empty if the name is no output."""
        output = self._outputs.get(name)
        return output.changes if output else []

    def prepare(self) -> list[Effect]:
        """Check the written files, put the side-cars beside them, and return the effects that publish them.

        Files of failed or replaced writes are deleted: another engine that reads the folder would take them for rows.
        The janitor deletes there only a day after the commit. Raises `DamagedFiles` if a file is not as written. Raises
        the refusal of a refresh if the program went on after it. Cost: a stat for each file, and a listing for an
        output that was written more than once.
        """
        effects: list[Effect] = []
        for name, output in self._outputs.items():
            if output.refused:
                raise output.refused
            changes = output.changes
            files = open_files(output.fileset.dataset.location, self.catalog.world)
            if output.compacted:
                effects.append(self._prepare_compaction(name, output, files))
                continue
            if output.calls > 1 or output.forgot or (output.calls and not changes):
                delete_unnamed(files, self.tx, {file.name for change in changes for file in change.manifest.files})
            if not changes:
                self._remove_directory(output, files)
                if self._completed(output):
                    effects += self._publish(output, changes)
                continue
            keys = output.fileset.keys
            for change in changes:
                place = change.location or tx_directory(self.tx)
                check_files(files, name, partial(keys.show, change.key), place, change.manifest)
            content = {
                "dataset": name,
                "run_id": self.tx.run_id,
                "schema": output.schema.text if output.schema else None,
                "changes": [
                    {
                        "key": keys.encode(change.key),
                        "op": change.op,
                        "files": [file.values for file in change.manifest.files],
                        "metadata": change.metadata,
                    }
                    for change in changes
                ],
                **({"order": write_plain(output.order)} if output.order else {}),
                **({"quiet": True} if self._quiet else {}),
            }
            if output.is_ours:
                write_side_car(files, self.tx, content)
            effects += self._publish(output, changes)
        self.catalog.world.mark("output.side_cars")
        return effects

    def _prepare_compaction(self, name: str, output: _Output, files: Files) -> Compact:
        if output.writes:
            raise WritesAndCompacts(name)
        if output.calls > 1 or output.forgot:
            delete_unnamed(files, self.tx, {file.name for one in output.compacted for file in one.manifest.files})
        for one in output.compacted:
            show = partial(output.fileset.show, one.before.partition_key)
            check_files(files, name, show, tx_directory(self.tx), one.manifest)
        return Compact(self.tx, output.fileset, output.compacted)

    def _remove_directory(self, output: _Output, files: Files) -> None:
        """Remove the directory of an output to which nothing is published. Its empty folders have no other name."""
        if output.calls:
            try:
                files.delete_below(tx_directory(self.tx))
            except Unavailable as error:
                _log.warning("empty folders of transaction %s stay: %s", self.tx.write_pointer, error)

    def mark(self, commit_seq: CommitSeq) -> None:
        """Write the marker of the commit beside the files.

        If the process dies or cannot, the janitor writes the marker.

        Never raises: the transaction has committed, and an exception here would make the caller run it again.
        """
        for output in self._outputs.values():
            if output.changes and output.is_ours:
                try:
                    files = open_files(output.fileset.dataset.location, self.catalog.world)
                    mark_committed(files, self.tx, commit_seq)
                except Unavailable as error:
                    _log.warning("transaction %s has committed; its marker waits: %s", self.tx.write_pointer, error)

    def facts(self) -> list[dict[str, object]]:
        """Return the written partitions (the first of them by name), rows and bytes, by data set, for people."""
        facts: list[dict[str, object]] = []
        for name, output in self._outputs.items():
            changes = output.changes
            if changes or output.checks or output.notes:
                shown = [output.fileset.keys.show(change.key) for change in changes[:_MOST_SHOWN]]
                rows = sum(change.manifest.total_rows for change in changes)
                size = sum(change.manifest.total_bytes for change in changes)
                fact = {"dataset": name, "partitions": shown, "count": len(changes), "rows": rows, "bytes": size}
                checks = write_plain(output.checks)
                fact |= {"checks": checks} if checks else {}
                facts.append(fact | ({"notes": output.notes} if output.notes else {}))
        return facts

    def publications(self) -> list[dict[str, object]]:
        """Return the numbers of partitions, rows and bytes that are published, by data set, for programs.

        At most `_MOST_PUBLICATIONS` data sets.
        """
        return [
            {name: fact[name] for name in ("dataset", "count", "rows", "bytes")}
            for fact in self.facts()
            if fact["count"]
        ][:_MOST_PUBLICATIONS]

    def compactions(self) -> list[dict[str, object]]:
        """Return what was compacted, by data set, for people. An entry of `facts` says which rows are new."""
        return [_describe_compaction(name, output) for name, output in self._outputs.items() if output.compacted]

    def _find(self, name: str) -> _Output:
        if name not in self._outputs:
            raise NotAnOutput(name, ", ".join(self._outputs))
        return self._outputs[name]

    def _publish(self, output: _Output, changes: list[PartitionWrite]) -> list[Effect]:
        fileset = output.fileset
        if fileset.dataset.kind is DatasetKind.SNAPSHOT:
            assert output.schema is not None, "a refresh has columns, if no rows"  # noqa: S101
            assert output.order is not None, "a refresh was ordered at its begin"  # noqa: S101
            snapshot, manifest = SnapshotDataset.of(fileset.dataset), changes[0].manifest
            return [PublishVersion(self.tx, snapshot, manifest, output.schema, output.order, quiet=self._quiet)]
        existing = self.catalog.read(lambda db: find_existing(db, fileset, changes, self.tx))
        completes = self._completed(output)
        release_parked(self.catalog, fileset, self.tx.run_id)
        known = self.catalog.read(lambda db: find_known_times(db, fileset, (change.key for change in changes)))
        return publish_partitions(
            self.tx,
            fileset,
            changes,
            output.schema,
            existing,
            base=output.base,
            known=known,
            completes=completes,
            quiet=self._quiet,
            seen=output.seen,
        )

    def complete_nothing(self) -> None:
        """Have the commit complete no declared times: the program was not called. The run holds them until then."""
        self._spans = {}

    def _completed(self, output: _Output) -> list[Span]:
        declared = self._spans.get(output.fileset.dataset_id)
        if declared is None:
            return []
        keys = [change.key for change in output.changes]
        return self.catalog.read(lambda db: list_slots(db, output.fileset, keys, *declared))


def _describe_compaction(name: str, output: _Output) -> dict[str, object]:
    done = output.compacted
    return {
        "dataset": name,
        "partitions": [output.fileset.show(one.before.partition_key) for one in done[:_MOST_SHOWN]],
        "count": len(done),
        "files_before": sum(len(one.before.files) for one in done),
        "files": sum(len(one.manifest.files) for one in done),
        "rows": sum(one.manifest.total_rows for one in done),
        "bytes": sum(one.manifest.total_bytes for one in done),
    }
