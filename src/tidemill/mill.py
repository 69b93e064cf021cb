"""`Mill`: every operation of a project behind one object, so that Python, command line and pages cannot differ.

One object for a process; threads may share it. It opens the catalog and hands each operation to the room that it is
about; what it tells are the records of `views`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

from tidemill.app.deploy import Deployed, deploy
from tidemill.app.loading import load_declared
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.engine import connect, open_catalog
from tidemill.catalog.migrate import migrate
from tidemill.catalog.named import Row, load_sql
from tidemill.catalog.transactions import (
    EndTransaction,
    Snapshot,
    TransactionRow,
    TxState,
    find_transaction,
    list_transactions,
)
from tidemill.config import Config, load_config
from tidemill.durations import format_duration
from tidemill.lake import datasets, inbox
from tidemill.lake.claims import Consumer, WorkState, find_consumer, list_consumers, list_work, measure_lag
from tidemill.lake.consumer import (
    FROM_BEGINNING,
    PartitionConsumerResult,
    PartitionConsumerState,
    consume_partitions,
)
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset import Fileset, find_schema, read_partitions
from tidemill.lake.keys import KeyText
from tidemill.names import JobId, Namespace, ProgramId, RunId, ScheduleId, WritePointer, qualified, split_qualified
from tidemill.run import runs
from tidemill.run.attempts import AttemptEnd, Cause, ask_kill, end_attempt
from tidemill.run.context import Declared
from tidemill.run.external import ExternalTransaction, open_transaction
from tidemill.run.logs import LogLine, follow_logs
from tidemill.run.programs import Program, find_program, list_programs
from tidemill.run.runs import NewRun, RunRecord
from tidemill.schedule import jobs, schedules
from tidemill.schedule.jobs import EndedJob, Job
from tidemill.schedule.schedules import Resume, Suspend, change_schedules
from tidemill.schedule.specs import Schedule
from tidemill.upkeep.audit import Audit, audit
from tidemill.upkeep.backup import Written, write_backup
from tidemill.upkeep.fsck import Fsck, fsck
from tidemill.upkeep.restore import Adopted, Restored, adopt, restore
from tidemill.views import (
    ConsumerView,
    DatasetView,
    EndedJobView,
    FileView,
    InputView,
    JobView,
    PartitionView,
    PublishedView,
    RunView,
    ScheduleView,
)
from tidemill.world import World

SQL: Final = load_sql(__file__)

_MOST_SHOWN: Final = 1000


def open_project(
    folder: Path, *, options: Mapping[str, str] | None = None, create: bool = False, world: World | None = None
) -> Mill:
    """Open the project in `folder`; `options` override its settings. `create` makes the catalog if there is none."""
    world = world or World()
    config = load_config(world, folder, options)
    return Mill(open_catalog(config.catalog, world, create=create), world, config)


def open_mill(where: str | Path) -> Mill:
    """Open a project by its folder, or a catalog by its URL, with the settings of the current folder."""
    text = str(where)
    if "://" in text:
        return open_project(Path(), options={"catalog": text}, create=True)
    return open_project(Path(where), create=True)


def migrate_project(folder: Path, *, options: Mapping[str, str] | None = None) -> list[int]:
    """Bring the schema of the project's catalog up to date; the versions applied."""
    world = World()
    catalog = connect(load_config(world, folder, options).catalog, world, create=False)
    try:
        return migrate(catalog)
    finally:
        catalog.close()


class Mill:
    """A project: its catalog, its configuration, and what can be done with them."""

    def __init__(self, catalog: Catalog, world: World, config: Config) -> None:
        self.catalog = catalog
        self.world = world
        self.config = config

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back connections."""
        self.catalog.close()

    def deploy(self, *, update_schedules: bool = True) -> list[Deployed]:
        """Deploy the apps of the configured app file, each in one transaction, in their order in the file."""
        apps = load_declared(self.config.app)
        return [deploy(self.catalog, self.world, self.config, app, update_schedules=update_schedules) for app in apps]

    def audit(self, names: Sequence[str] = ()) -> Audit:
        """Look whether all that was committed was delivered, consumed and announced once; of these data sets, or all.

        Reads the history, in pieces, while work goes on; changes nothing. `NotFound` with the nearest name.
        """
        chosen = self.catalog.read(lambda db: [self._dataset(db, name) for name in names]) if names else None
        return audit(self.catalog, chosen)

    # The catalog itself

    def fsck(self, names: Sequence[str] = ()) -> Fsck:
        """Compare manifests with what lies in storage, both ways; of these file sets, or all. `NotFound`."""

        def block(db: Db) -> list[Fileset]:
            if names:
                return [Fileset.of(self._dataset(db, name)) for name in names]
            return [Fileset.of(one) for one in datasets.list_datasets(db) if one.kind is DatasetKind.FILESET]

        return fsck(self.catalog, self.catalog.read(block))

    def backup(self, target: Path) -> Written:
        """Copy the catalog into a file, as one moment shows it, while work goes on; data are not in it."""
        return write_backup(self.catalog, target)

    def restore(self, backup: Path, *, replace: bool = False) -> Restored:
        """Begin a new life of the catalog from a backup; `CatalogInUse` unless it is empty or `replace` is given.

        All else has to be stopped. What the backup does not know as consumed comes again.
        """
        return restore(self.catalog, backup, replace=replace, data=self.config.data)

    def adopt(self) -> Adopted:
        """Publish again what another life of the catalog has committed and this one does not know."""
        return adopt(self.catalog)

    # Runs

    def list_runs(self, *, program: str | None = None, limit: int = 20) -> list[RunView]:
        """The newest runs (of one program) first."""

        def block(db: Db) -> list[RunView]:
            program_id = None if program is None else self._program(db, program).program_id
            names = _program_names(db)
            return [_run_view(run, names) for run in runs.list_runs(db, most=limit, program_id=program_id)]

        return self.catalog.read(block)

    def show_run(self, run_id: str) -> dict[str, object]:
        """A run with what it took; `NotFound`."""

        def block(db: Db) -> dict[str, object]:
            view = _run_view(runs.find_run(db, RunId(run_id)), _program_names(db))
            by_id = _datasets_by_id(db)
            rows = db.all(SQL.list_inputs, run_id=run_id, limit=_MOST_SHOWN)
            return {**_fields(view), "inputs": [_input_view(row, by_id) for row in rows]}

        return self.catalog.read(block)

    def start_run(self, program: str, arguments: Mapping[str, object] | None = None) -> RunId:
        """Make a pending run of `program` (`app.program`), which a runner carries out; its id."""
        run_id = RunId(self.world.new_id("run"))

        def block(db: Db) -> None:
            found = self._program(db, program)
            bound = found.bind(arguments or {})
            new = NewRun(run_id, found.program_id, bound, {"asked": "by hand"})
            runs.create_pending(db, [new])

        self.catalog.write(block)
        return run_id

    def kill_run(self, run_id: str) -> str:
        """Ask for the end of a run; its state afterwards. No effect on one that has ended."""
        return ask_kill(self.catalog, RunId(run_id)).value

    def read_logs(
        self, run_id: str, *, attempt: int | None = None, follow_every: timedelta | None = None
    ) -> Iterator[LogLine]:
        """The lines that an attempt (the newest) wrote; with `follow_every` until the run has ended."""
        return follow_logs(self.catalog, self.world, RunId(run_id), attempt=attempt, every=follow_every)

    # Transactions

    def transaction(
        self, writes: Sequence[Declared | str] | None = None
    ) -> AbstractContextManager[ExternalTransaction]:
        """Open a transaction for a `with` block, in this process: it commits at the end, and is aborted by an error.

        `writes` are the file sets that it may publish to, all when None: `with mill.transaction() as tx:
        tx.fileset("clicks").append(frame)`. A thread renews its lease meanwhile.
        """
        return open_transaction(self.catalog, self.world, self._qualified(writes), lease=self.config.lease)

    def list_transactions(self, *, limit: int = 20, open_only: bool = False) -> list[TransactionRow]:
        """The newest transactions first; of open ones the oldest first."""
        return self.catalog.read(lambda db: list_transactions(db, limit=limit, open_only=open_only))

    def show_transaction(self, write_pointer: int) -> dict[str, object]:
        """A transaction with what it published; `NotFound`."""

        def block(db: Db) -> dict[str, object]:
            row = find_transaction(db, WritePointer(write_pointer))
            by_id = _datasets_by_id(db)
            published = db.all(SQL.list_published, write_pointer=write_pointer, limit=_MOST_SHOWN)
            return {**_fields(row), "published": [_published_view(change, by_id) for change in published]}

        return self.catalog.read(block)

    def abort_transaction(self, write_pointer: int) -> TxState:
        """Fence an open transaction: it becomes invalid and its run KILLED. The state it is in afterwards."""
        row = self.catalog.read(lambda db: find_transaction(db, WritePointer(write_pointer)))
        if row.state is TxState.IN_PROGRESS:
            end = AttemptEnd(Cause.KILLED, f"transaction {write_pointer} was aborted by hand", zombie=True)
            if end_attempt(self.catalog, row.run_id, row.epoch, end) is None:
                self.catalog.apply([EndTransaction(row.write_pointer, TxState.INVALID, "aborted by hand")])
        return self.catalog.read(lambda db: find_transaction(db, WritePointer(write_pointer))).state

    # Data sets

    def list_datasets(self) -> list[DatasetView]:
        """All data sets by name, with their sizes."""
        return self.catalog.read(lambda db: _dataset_views(db, datasets.list_datasets(db)))

    def show_dataset(self, name: str) -> DatasetView:
        """One data set; `NotFound` with the nearest name."""
        return self.catalog.read(lambda db: _dataset_views(db, [self._dataset(db, name)])[0])

    def list_partitions(self, name: str, *, limit: int = 100) -> list[PartitionView]:
        """The current changes of a file set by partition."""

        def block(db: Db) -> list[PartitionView]:
            fileset = Fileset.of(self._dataset(db, name))
            rows = db.all(SQL.list_current, dataset_id=fileset.dataset_id, limit=limit)
            return [_partition_view(fileset, row) for row in rows]

        return self.catalog.read(block)

    def list_files(self, name: str) -> list[FileView]:
        """All committed files of a file set, as of now, by partition: for any engine that reads Parquet.

        The values of the key columns are not in the files; each file's stand beside it.
        """

        def block(db: Db) -> list[FileView]:
            fileset = Fileset.of(self._dataset(db, name))
            pointer = WritePointer(cast("int", db.all(SQL.read_clock)[0][0]))
            partitions = read_partitions(db, fileset.dataset_id, Snapshot(pointer, self.catalog.incarnation))
            location = fileset.dataset.location.removeprefix("file://").rstrip("/")
            return [
                FileView(
                    f"{location}/{path}",
                    file.bytes,
                    file.rows,
                    fileset.show(partition.partition_key),
                    dict(zip(fileset.keys.names, fileset.keys.decode(partition.partition_key), strict=True)),
                )
                for partition in partitions
                for path, file in partition.files
            ]

        return self.catalog.read(block)

    def list_inbox_files(
        self, name: str, *, state: str | None = None, after: str = "", limit: int = 100
    ) -> list[inbox.InboxFile]:
        """The files of an inbox by name, from behind the name `after` on, in one state or all."""

        def block(db: Db) -> list[inbox.InboxFile]:
            found = inbox.Inbox.of(self._dataset(db, name))
            wanted = None if state is None else inbox.FileState(state)
            return inbox.list_files(db, found.dataset_id, state=wanted, after=after, limit=limit)

        return self.catalog.read(block)

    # Consumers

    def list_consumers(self, *, dataset: str | None = None) -> list[ConsumerView]:
        """All consumers (of one data set) by name, with what waits for each."""

        def block(db: Db) -> list[ConsumerView]:
            only = None if dataset is None else self._dataset(db, dataset).dataset_id
            by_id = _datasets_by_id(db)
            found = [c for c in list_consumers(db) if only in {None, c.dataset_id}]
            return [_consumer_view(db, consumer, by_id) for consumer in found]

        return self.catalog.read(block)

    def show_consumer(self, dataset: str, name: str) -> ConsumerView:
        """One consumer; `NotFound`."""

        def block(db: Db) -> ConsumerView:
            found = self._dataset(db, dataset)
            consumer = find_consumer(db, found.dataset_id, name)
            return _consumer_view(db, consumer, {found.dataset_id: found})

        return self.catalog.read(block)

    def consume_partitions(
        self, dataset: str, state: PartitionConsumerState = FROM_BEGINNING
    ) -> PartitionConsumerResult:
        """What is new in a file set since `state`, oldest first, and the state to store with what becomes of it.

        For whoever keeps the state by themselves (seed 000); `PartitionConsumer` keeps it in memory. `NotFound`.
        """
        fileset = Fileset.of(self.catalog.read(lambda db: self._dataset(db, dataset)))
        return consume_partitions(self.catalog, fileset, state)

    # Schedules and jobs

    def list_schedules(self) -> list[ScheduleView]:
        """All schedules by name."""

        def block(db: Db) -> list[ScheduleView]:
            names = _program_names(db)
            return [_schedule_view(db, schedule, names) for schedule in schedules.list_schedules(db)]

        return self.catalog.read(block)

    def show_schedule(self, name: str) -> ScheduleView:
        """One schedule; `NotFound` with the nearest name."""
        return self.catalog.read(lambda db: _schedule_view(db, self._schedule(db, name), _program_names(db)))

    def suspend_schedule(self, name: str) -> int:
        """Let a schedule listen to nothing; how many pending jobs that dropped."""

        def block(db: Db) -> int:
            seq = db.tick()
            change = Suspend(self._schedule(db, name).schedule_id)
            return change_schedules(db, self.world, seq, [change])[0].dropped_jobs

        return self.catalog.write(block)

    def resume_schedule(self, name: str) -> None:
        """Let a schedule listen to what comes from now on."""

        def block(db: Db) -> None:
            seq = db.tick()
            change_schedules(db, self.world, seq, [Resume(self._schedule(db, name).schedule_id)])

        self.catalog.write(block)

    def list_jobs(self) -> list[JobView]:
        """All jobs that wait, oldest first."""

        def block(db: Db) -> list[JobView]:
            names = _schedule_names(db)
            return [_job_view(job, names) for job in jobs.list_jobs(db)]

        return self.catalog.read(block)

    def list_ended_jobs(self, schedule: str, *, limit: int = 20) -> list[EndedJobView]:
        """The newest jobs of a schedule that have ended, newest first."""

        def block(db: Db) -> list[EndedJobView]:
            found = self._schedule(db, schedule)
            names = {found.schedule_id: found.qualified_name}
            return [_ended_view(job, names) for job in jobs.list_ended_jobs(db, found.schedule_id, most=limit)]

        return self.catalog.read(block)

    def show_job(self, job_id: str) -> JobView | EndedJobView:
        """A job, waiting or ended; `NotFound`."""

        def block(db: Db) -> JobView | EndedJobView:
            names = _schedule_names(db)
            job = jobs.find_job(db, JobId(job_id))
            return _job_view(job, names) if isinstance(job, Job) else _ended_view(job, names)

        return self.catalog.read(block)

    def _qualified(self, writes: Sequence[Declared | str] | None) -> list[Declared | str] | None:
        if writes is None:
            return None
        named = [(w, self._split("data set", w, 1)) if isinstance(w, str) else (w, None) for w in writes]
        return [w if parts is None else qualified(parts[0], *parts[1]) for w, parts in named]

    def _dataset(self, db: Db, name: str) -> Dataset:
        namespace, (local,) = self._split("data set", name, 1)
        return datasets.find(db, namespace, local)

    def _program(self, db: Db, name: str) -> Program:
        namespace, (app, program) = self._split("program", name, 2)
        return find_program(db, namespace, app, program)

    def _schedule(self, db: Db, name: str) -> Schedule:
        namespace, (app, schedule) = self._split("schedule", name, 2)
        return schedules.find_schedule(db, namespace, app, schedule)

    def _split(self, kind: str, name: str, parts: int) -> tuple[Namespace, tuple[str, ...]]:
        text = f"{self.config.namespace}.{name}" if name.count(".") == parts - 1 else name
        return split_qualified(kind, text, parts)


def _fields(view: object) -> dict[str, object]:
    return {name: getattr(view, name) for name in view.__slots__}  # type: ignore[attr-defined]  # all are slotted


def _program_names(db: Db) -> dict[ProgramId, str]:
    return {program.program_id: program.qualified_name for program in list_programs(db)}


def _schedule_names(db: Db) -> dict[ScheduleId, str]:
    return {schedule.schedule_id: schedule.qualified_name for schedule in schedules.list_schedules(db)}


def _datasets_by_id(db: Db) -> dict[str, Dataset]:
    return {dataset.dataset_id: dataset for dataset in datasets.list_datasets(db)}


def _run_view(run: RunRecord, names: Mapping[ProgramId, str]) -> RunView:
    return RunView(
        run_id=run.run_id,
        program=None if run.program_id is None else names.get(run.program_id),
        state=run.state,
        epoch=run.epoch,
        failures=run.failures,
        losses=run.losses,
        priority=run.priority,
        arguments=run.arguments,
        triggered_by=run.triggered_by,
        write_pointer=run.write_pointer,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        exit_reason=run.exit_reason,
        log_location=run.log_location,
        facts=run.facts,
    )


def _input_view(row: Row, by_id: Mapping[str, Dataset]) -> InputView:
    dataset_id, write_pointer, item, version = row
    dataset = by_id[str(dataset_id)]
    shown = str(item)
    if dataset.kind is DatasetKind.FILESET:
        shown = Fileset.of(dataset).show(KeyText(shown))
    return InputView(dataset.qualified_name, cast("int", write_pointer), shown, str(version))


def _published_view(row: Row, by_id: Mapping[str, Dataset]) -> PublishedView:
    dataset_id, key, op, files, size, rows = row
    fileset = Fileset.of(by_id[str(dataset_id)])
    shown = fileset.show(KeyText(str(key)))
    return PublishedView(
        fileset.qualified_name, shown, str(op), cast("int", files), cast("int", size), cast("int", rows or 0)
    )


def _dataset_views(db: Db, found: Sequence[Dataset]) -> list[DatasetView]:
    ids = [dataset.dataset_id for dataset in found if dataset.kind is DatasetKind.FILESET]
    sizes = {str(row[0]): row[1:] for row in db.all(SQL.measure_filesets, dataset_ids=json.dumps(ids))}
    views = []
    for dataset in found:
        partitions, files, size, rows = cast("tuple[int, ...]", sizes.get(dataset.dataset_id, (0, 0, 0, 0)))
        schema = None
        if dataset.kind is DatasetKind.INBOX:
            counts = inbox.count_files(db, dataset.dataset_id).values()
            files, size = sum(number for number, _ in counts), sum(total for _, total in counts)
        elif (columns := find_schema(db, dataset.dataset_id)) is not None:
            schema = columns.text
        is_fileset = dataset.kind is DatasetKind.FILESET
        views.append(
            DatasetView(
                dataset.qualified_name,
                dataset.kind,
                dataset.app,
                dataset.location,
                dataset.spec,
                schema,
                partitions if is_fileset else None,
                files,
                size,
                rows if is_fileset else None,
            )
        )
    return views


def _partition_view(fileset: Fileset, row: Row) -> PartitionView:
    key, op, write_pointer, commit_seq, files, size, rows, run_id, at = row
    return PartitionView(
        fileset.show(KeyText(str(key))),
        str(op),
        cast("int", write_pointer),
        cast("int", commit_seq),
        cast("int", files),
        cast("int", size),
        cast("int", rows or 0),
        RunId(str(run_id)),
        cast("int", at),
    )


def _consumer_view(db: Db, consumer: Consumer, by_id: Mapping[str, Dataset]) -> ConsumerView:
    lag = measure_lag(db, consumer)
    held = {
        state: len(list_work(db, consumer.consumer_id, state, _MOST_SHOWN))
        for state in (WorkState.IN_PROGRESS, WorkState.DISCARDED)
    }
    return ConsumerView(
        by_id[consumer.dataset_id].qualified_name,
        consumer.name,
        lag.partitions,
        lag.bytes,
        None if lag.oldest is None else jobs.to_ms(lag.oldest),
        held[WorkState.IN_PROGRESS],
        held[WorkState.DISCARDED],
        consumer.state.start_version,
        tuple(consumer.state.versions_to_check),
    )


def _schedule_view(db: Db, schedule: Schedule, names: Mapping[ProgramId, str]) -> ScheduleView:
    fires_at = schedules.next_timer(db, schedule.schedule_id)
    return ScheduleView(
        name=schedule.qualified_name,
        program=names.get(schedule.program_id, schedule.program_id),
        status=schedule.status,
        owner=schedule.owner,
        generation=schedule.generation,
        trigger=str(schedule.spec.trigger),
        constraints=", ".join(str(constraint) for constraint in schedule.spec.constraints),
        arguments=schedule.spec.arguments,
        description=schedule.spec.description,
        priority=schedule.spec.priority,
        timeout=format_duration(schedule.spec.timeout),
        next_fire_at=None if fires_at is None else jobs.to_ms(fires_at),
    )


def _job_view(job: Job, names: Mapping[ScheduleId, str]) -> JobView:
    verdict = job.verdict or {}
    return JobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.state,
        jobs.to_ms(job.created_at),
        None if job.next_check_at is None else jobs.to_ms(job.next_check_at),
        job.priority,
        _why(verdict),
        verdict,
    )


def _why(verdict: Mapping[str, object]) -> str:
    """What a job waits for, in words: its trigger's answer, then those of its constraints."""
    answers = [verdict.get("trigger"), *cast("list[object]", verdict.get("constraints", []))]
    return "; ".join(str(answer["why"]) for answer in answers if isinstance(answer, dict))


def _ended_view(job: EndedJob, names: Mapping[ScheduleId, str]) -> EndedJobView:
    return EndedJobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.outcome,
        job.run_id,
        jobs.to_ms(job.created_at),
        jobs.to_ms(job.ended_at),
        job.detail,
    )
