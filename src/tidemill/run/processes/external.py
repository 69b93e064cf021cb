"""Transactions of callers outside, each in its own process: a notebook, a test, another scheduler.

Such a transaction belongs to a run of kind external. The process that works on the run renews its lease, in a thread. A
C call that holds the interpreter for a whole lease may lose the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db, write_effects
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.errors import TidemillError, Unavailable
from tidemill.lake.datasets import DatasetKind, list_datasets
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.snapshot.refresh_order import find_order
from tidemill.lake.snapshot.snapshot import SnapshotDataset
from tidemill.lake.snapshot.versions import RollBack, find_version
from tidemill.names import CommitSeq, DatasetId, RunId
from tidemill.run.processes.runner import LEASE, RENEWALS_IN_A_LEASE
from tidemill.run.records.declared import Declared, find_dataset, qualified_name
from tidemill.run.records.runs import Cause, RunRecord, create_external, find_run
from tidemill.run.step.attempts import AttemptEnd, FinishRun, end_attempt, renew
from tidemill.run.step.inputs import Inputs
from tidemill.run.step.output import Output
from tidemill.run.step.outputs import Compacted, Outputs, Writer, write_frames
from tidemill.run.step.spans import find_spans
from tidemill.run.step.step import NOTHING, Step
from tidemill.run.step.version_reads import find_snapshot
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.filters import KeyFilter, Where
from tidemill.shapes.partition_time import Instant
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ExternalTransaction:
    """An open transaction; made by `open_transaction`, whose block ends it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._tx = step.tx
        self._outputs = step.outputs
        self._rolled_back: list[dict[str, object]] = []

    @property
    def run_id(self) -> RunId:
        """The run that it belongs to."""
        return self._tx.run_id

    @property
    def write_pointer(self) -> int:
        """Names it; greater than that of every earlier one."""
        return self._tx.write_pointer

    def fileset(self, dataset: Declared | str) -> Output:
        """Return the writer of a file set.

        The end of the block publishes all writes. `NotAnOutput`, if not declared.
        """
        name = qualified_name(dataset)
        self._outputs.fileset(name)
        return Output(self._outputs, name)

    def compact(
        self, spark: SparkSession, dataset: Declared | str, *, where: Where | KeyFilter | None = None
    ) -> list[Compacted]:
        """Put the rows of each partition with many small files into fewer files; see `Run.compact`."""
        self._step.workspace.session = spark
        return self._step.workspace.compact(dataset, where)

    def snapshot(self, dataset: Declared | str) -> Output:
        """Return the writer of a snapshot. Its next version becomes current at the end of the block."""
        return self.fileset(dataset)

    def roll_back(self, dataset: Declared | str, version: int) -> None:
        """Make an older version of a snapshot current again at the end of the block, as a new one that has its files.

        Raises `NotFound`, `VersionGone`; at the end `RefreshedMeanwhile` when a refresh has committed since the begin.
        """
        name = qualified_name(dataset)
        snapshot = SnapshotDataset.of(self._outputs.fileset(name).dataset)
        catalog = self._outputs.catalog
        found = catalog.read(lambda db: find_version(db, snapshot, version))
        order = catalog.read(lambda db: find_order(db, snapshot.dataset_id, self._tx))
        self._step.workspace.also(RollBack(self._tx, snapshot, found, order))
        self._rolled_back.append({"dataset": name, "to": version})

    def read_version(self, spark: SparkSession, dataset: Declared | str, version: int) -> DataFrame:
        """The rows of a version of a snapshot, kept until the end of the block; `NotFound`, `VersionGone`."""
        return self._step.workspace.versions.read(spark, self._snapshot(dataset), version)

    def diff(
        self, spark: SparkSession, dataset: Declared | str, old: int, new: int, *, key: Sequence[str] = ()
    ) -> DataFrame:
        """Return the rows by which version `new` of a snapshot differs from `old` (see `Run.diff`).

        Read them within the block.
        """
        return self._step.workspace.versions.diff(spark, self._snapshot(dataset), old, new, key)

    def publish(self, topic: str, payload: Mapping[str, object] | None = None, *, key: str = "") -> None:
        """Publish a message to a topic of your own with the commit: not before, and never without.

        `payload` has JSON values. `MessageOn(topic, key=…)` can listen to the messages of one `key`. At most 1,000
        messages a transaction. `ReservedTopic`, `BadName`, `BadPayload`, `MessageTooLarge`, `TooManyMessages`.
        """
        self._step.workspace.publish(topic, payload, key)

    def _snapshot(self, dataset: Declared | str) -> SnapshotDataset:
        return self._outputs.catalog.read(lambda db: find_snapshot(db, qualified_name(dataset)))


def outputs_of(opened: ExternalTransaction) -> Outputs:
    """Return the outputs of a transaction, for what a person or a rule does to partitions (`partitions.py`)."""
    return opened._outputs  # noqa: SLF001  # users have no business there


def workspace_of(opened: ExternalTransaction, spark: SparkSession) -> Workspace:
    """Return the workspace of a transaction that reads with `spark`, for a statement (`bare_select.py`)."""
    workspace = opened._step.workspace  # noqa: SLF001  # users have no business there
    workspace.session = spark
    return workspace


@contextmanager
def open_transaction(
    catalog: Catalog,
    world: World,
    writes: Sequence[Declared | str] | None = None,
    *,
    lease: timedelta = LEASE,
    writer: Writer = write_frames,
    also: Sequence[Effect] = (),
) -> Iterator[ExternalTransaction]:
    """Open a transaction for a block: it commits at the end, and is aborted when the block raises.

    `writes` are the file sets and snapshots that it may publish to, all when None. Raises what a commit refuses, with
    nothing published; `Fenced` when the lease was lost. `writer` makes the files. The commit takes `also`
    along, as it is at the end of the block.
    """
    filesets = catalog.read(lambda db: _find_filesets(db, writes))
    spans = find_spans(filesets, writes or ())
    owner = f"{world.spawner.host()}:{world.spawner.pid()}"
    record = create_run(catalog, world, owner=owner, lease=lease)
    run_id = record.run_id
    with renewed(catalog, world, run_id, lease):
        try:
            step = begin_step(catalog, record, filesets, writer, spans)
            opened = ExternalTransaction(step)
            yield opened
            facts: dict[str, object] = {}
            if rolled_back := opened._rolled_back:  # noqa: SLF001  # of this module, and no business of users
                facts = {"rolled_back": rolled_back, "by": world.environ.get("USER", "")}
            commit_step(step, facts, also)
        except BaseException as error:
            end_failed(catalog, run_id, error)
            raise


def create_run(
    catalog: Catalog,
    world: World,
    *,
    owner: str,
    lease: timedelta,
    cause: Mapping[str, object] | None = None,
    also: Callable[[RunId], Sequence[Effect]] = lambda _: (),
) -> RunRecord:
    """Create the run of a transaction of a caller outside, with what `also` gives for its id. `cause` is JSON."""
    run_id = RunId(world.new_id("run"))
    given = {} if cause is None else {"cause": cause}

    def create(db: Db) -> RunRecord:
        host, pid = world.spawner.host(), world.spawner.pid()
        create_external(db, run_id, owner=owner, host=host, pid=pid, lease=lease, **given)
        write_effects(db, also(run_id))
        return find_run(db, run_id)

    record = catalog.write(create)
    world.mark("external.created")
    return record


def begin_step(
    catalog: Catalog,
    record: RunRecord,
    filesets: Mapping[str, Fileset],
    writer: Writer = write_frames,
    spans: Mapping[DatasetId, tuple[Instant, Instant]] | None = None,
    also: Sequence[Effect] = (),
    inputs: Inputs = NOTHING,
) -> Step:
    """Begin the transaction of a run that `create_run` made, with `also`."""
    return Step.begin("external", catalog, record, filesets, writer, inputs=inputs, spans=spans, announced=also)


def resume_step(
    catalog: Catalog, record: RunRecord, tx: Transaction, filesets: Mapping[str, Fileset], inputs: Inputs = NOTHING
) -> Step:
    """Return the step of an open transaction that another request, or another process, has begun."""
    return Step("external", catalog, record, tx, Outputs(catalog, tx, filesets), inputs)


def commit_step(step: Step, facts: Mapping[str, object], also: Sequence[Effect]) -> CommitSeq:
    """Commit what was written in a step, and complete its run with `facts` and those of its outputs."""
    prepared = step.prepare()
    told: dict[str, object] = {"outputs": step.outputs.facts()}
    if compactions := step.outputs.compactions():
        told["compactions"] = compactions
    record = step.record
    return step.commit(prepared, [FinishRun(record.run_id, record.epoch, "", {**told, **facts}), *also])


def end_failed(catalog: Catalog, run_id: RunId, error: BaseException, cause: Cause = Cause.FAILED) -> None:
    """End the run of a transaction that was refused or given up; nothing if the run has ended.

    Partitions that the transaction has taken are blamed by the cause FAILED, and not by LOST.
    """
    what = f"{error.code}: {error}" if isinstance(error, TidemillError) else f"{type(error).__name__}: {error}"
    end_attempt(catalog, run_id, 1, AttemptEnd(cause, what))


@contextmanager
def renewed(catalog: Catalog, world: World, run_id: RunId, lease: timedelta) -> Iterator[None]:
    """Renew the lease in a thread until the block ends."""

    def step() -> bool:
        try:
            # When it has ended, the commit will say so.
            return bool(catalog.write(lambda db: renew(db, [(run_id, 1)], lease), urgent=True))
        except Unavailable:
            return True  # an expired lease may be renewed still

    with world.beside(f"lease of {run_id}", lease / RENEWALS_IN_A_LEASE, step):
        yield


def _find_filesets(db: Db, names: Sequence[Declared | str] | None) -> Mapping[str, Fileset]:
    if names is None:
        found = [dataset for dataset in list_datasets(db) if dataset.kind is not DatasetKind.INBOX]
    else:
        found = [find_dataset(db, qualified_name(name)) for name in names]
    return {dataset.qualified_name: Fileset.of(dataset) for dataset in found}
