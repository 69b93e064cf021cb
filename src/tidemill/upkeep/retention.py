"""Retention: the catalog deletes its old history, in small parts.

The history is the ended runs with their inputs and transactions, ended jobs, fires, ended backfills, and replaced
changes of partitions with the work that they were for consumers, and replaced compactions. Current partitions, and all
that open work reads, stay at any age. A worker goes on: its old inputs are deleted, and its old transactions of which
nothing is left.

A horizon moves first. Audits do not look at or below the horizon. What lies at or below the previous horizon is then
deleted: an audit that began before the horizon moved has ended meanwhile. Each part is one transaction, and a deletion
that finds nothing changes nothing. So a janitor may be killed anywhere, and several may work at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.alerts.conditions import USUAL_RUNS, list_counted
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import GREATEST, Param, load_sql
from tidemill.catalog.records import to_json
from tidemill.lake.fileset.time_travel import seq_before
from tidemill.names import BackfillId, ConsumerId, DatasetId, JobId, RunId, ScheduleId, WritePointer
from tidemill.run.records.logs import delete_put_logs
from tidemill.shapes.keys import KeyText
from tidemill.upkeep.horizon import BEGINNING, Horizon, read_horizon
from tidemill.upkeep.time_to_live import KEEP_MESSAGES, expire_messages

if TYPE_CHECKING:
    from tidemill.upkeep.retention_sql import Sql

SQL: Sql = load_sql(__file__)

KEEP_HISTORY: Final = timedelta(days=90)
"""The time for which history stays, unless the project says otherwise (`retention.history`)."""
LONGEST_AUDIT: Final = timedelta(hours=1)
"""The time between two moves of the horizon: an audit that takes longer may report history that was deleted."""
_PART: Final = 200
_RUNS: Final = 10
"""The runs of one transaction: each may have ten thousand inputs."""


class _OldFire(NamedTuple):
    schedule_id: ScheduleId
    generation: int
    trigger_no: int
    fire_time: datetime


class _OldCompaction(NamedTuple):
    write_pointer: WritePointer
    partition_key: KeyText


class _PassedConsumer(NamedTuple):
    """A consumer with its state."""

    consumer_id: ConsumerId
    start_version: int
    versions_to_check: tuple[int, ...]

    @property
    def passed(self) -> int:
        """The write pointer below which the consumer has taken all changes."""
        return min((self.start_version, *self.versions_to_check))


class _OldChange(NamedTuple):
    partition_key: KeyText
    write_pointer: WritePointer
    may_go: bool


@dataclass(frozen=True, slots=True)
class _History:
    """The changes of a data set that were replaced up to the commit `seq`."""

    dataset_id: DatasetId
    seq: int
    is_dropped: bool

    def list_old(self, db: Db, keys: Sequence[KeyText], most: int) -> dict[KeyText, list[WritePointer]]:
        """List the oldest changes of each partition, `most` of them, up to the first that must stay, if there are any.

        Oldest first: a change that stayed before a deleted one would have nothing that replaced it.
        """
        seen = db.value(SQL.find_least_seen, int, dataset_id=self.dataset_id)
        changes = db.records(
            SQL.read_histories,
            _OldChange,
            dataset_id=self.dataset_id,
            keys=json.dumps([{"partition_key": key} for key in keys]),
            seq=self.seq if seen is None else min(seen, self.seq),
            floor=min((one.passed for one in self._list_consumers(db)), default=GREATEST),
            is_dropped=self.is_dropped,
            others=most - 1,
        )
        found = {
            key: [one.write_pointer for one in takewhile(attrgetter("may_go"), own)]
            for key, own in groupby(changes, attrgetter("partition_key"))
        }
        return {key: old for key, old in found.items() if old}

    def delete_oldest(self, db: Db, key: KeyText) -> int:
        """Delete a part of the changes that `list_old` finds of a partition, with the work that they were."""
        old = self.list_old(db, [key], _PART).get(key, [])
        if old:
            place: dict[str, Param] = {"dataset_id": self.dataset_id, "partition_key": key}
            past = db.records(SQL.list_past_consumers, ConsumerId, dataset_id=self.dataset_id)
            readers = [*(one.consumer_id for one in self._list_consumers(db)), *past]
            work = [{"consumer_id": reader, "write_pointer": one} for reader in readers for one in old]
            db.run(SQL.delete_changes, **place, pointers=json.dumps(old))
            db.run(SQL.delete_ended_transactions, pointers=json.dumps(old))
            db.run(SQL.delete_work, partition_key=key, work=json.dumps(work))
        return len(old)

    def _list_consumers(self, db: Db) -> list[_PassedConsumer]:
        return db.records(SQL.list_positions, _PassedConsumer, dataset_id=self.dataset_id)


class DeletedHistory(NamedTuple):
    """The numbers of deleted rows, of the kinds that people know."""

    runs: int = 0
    jobs: int = 0
    fires: int = 0
    backfills: int = 0
    changes: int = 0
    compactions: int = 0
    messages: int = 0


def count_deleted(db: Db) -> Mapping[str, int]:
    """Return the numbers of rows that retention has deleted so far, by kind. A crash may leave out those of a pass."""
    return DeletedHistory()._asdict() | (db.value(SQL.read_deleted, dict[str, int]) or {})


def _note_deleted(db: Db, deleted: DeletedHistory) -> None:
    db.tick()  # of two janitors, one adds after the other
    so_far = count_deleted(db)
    total = {kind: so_far[kind] + number for kind, number in deleted._asdict().items()}
    db.run(SQL.store_deleted, deleted=json.dumps(total))


class Historian:
    """Deletes the history that is older than `keep`, and expired messages. The janitor calls `step` again and again.

    `logs` is the location of the setting `logs`; empty without one.

    After each move of the horizon one pass goes over what is old. Later steps do nothing until the next move.
    """

    def __init__(
        self,
        catalog: Catalog,
        keep: timedelta = KEEP_HISTORY,
        keep_messages: timedelta = KEEP_MESSAGES,
        logs: str = "",
    ) -> None:
        self._catalog = catalog
        self._keep = keep
        self._keep_messages = keep_messages
        self._logs = logs
        self._between = min(keep, LONGEST_AUDIT)
        self._done: datetime | None = None

    def step(self) -> DeletedHistory:
        """Move the horizon if it is due, and delete what lies behind it; return the numbers of deleted rows."""
        horizon, is_due = self._catalog.read(self._look)
        if is_due:
            self._catalog.world.mark("retention.before_move")
            horizon = self._catalog.write(self._move)
        if horizon.moved_at == self._done:
            return DeletedHistory()
        # Before the pass: one that fails is not begun again each second, and the next one deletes what is left.
        self._done = horizon.moved_at
        self._delete_past_inputs(horizon)  # first: they keep replaced changes
        deleted = DeletedHistory(
            runs=self._delete_runs(horizon),
            jobs=self._delete_jobs(horizon),
            fires=self._delete_fires(horizon),
            backfills=self._delete_backfills(horizon),
            changes=sum(self._delete_changes(horizon)),
            compactions=sum(self._delete_compactions(horizon)),
            messages=expire_messages(self._catalog, self._keep_messages, horizon.delete_seq),
        )
        self._delete_transactions(horizon)
        if any(deleted):
            self._catalog.write(partial(_note_deleted, deleted=deleted))
        if self._logs:
            delete_put_logs(self._catalog, self._logs, horizon.delete_at)
        return deleted

    def _look(self, db: Db) -> tuple[Horizon, bool]:
        horizon = read_horizon(db)
        return horizon, db.now() - horizon.moved_at >= self._between

    def _move(self, db: Db) -> Horizon:
        db.tick()
        found, is_due = self._look(db)
        if is_due:  # else another janitor was here
            at = db.now() - self._keep
            db.run(SQL.move_horizon, seq=seq_before(db, self._keep), at=at, moved_at=found.moved_at)
        return read_horizon(db)

    def _delete(self, block: Callable[[Db], int]) -> int:
        """Delete a part, as one transaction."""
        self._catalog.world.mark("retention.before_part")
        deleted = self._catalog.write(block)
        self._catalog.world.mark("retention.part_deleted")
        return deleted

    def _delete_runs(self, horizon: Horizon) -> int:
        """Delete ended runs with their inputs, and with transactions of which nothing is left."""

        def list_part(db: Db, after: tuple[datetime, RunId]) -> list[tuple[RunId, datetime, bool]]:
            counted = list_counted(db)
            return db.records(
                SQL.list_old_runs,
                tuple[RunId, datetime, bool],
                created_after=after[0],
                after=after[1],
                before=horizon.delete_at,
                seq=horizon.delete_seq,
                other_failures=counted.failures - 1,
                timed=json.dumps(counted.timed),
                other_times=USUAL_RUNS - 1,
                most=_PART,
            )

        def delete_part(db: Db, runs: str) -> int:
            db.run(SQL.delete_transactions, runs=runs)
            db.run(SQL.delete_inputs, runs=runs)
            db.run(SQL.delete_workflow_nodes, runs=runs)
            db.run(SQL.delete_workflows, runs=runs)
            return db.run(SQL.delete_runs, runs=runs)

        deleted, after = 0, (BEGINNING, RunId(""))
        while found := self._catalog.read(partial(list_part, after=after)):
            runs = [run_id for run_id, _, may_go in found if may_go]
            for start in range(0, len(runs), _RUNS):
                deleted += self._delete(partial(delete_part, runs=json.dumps(runs[start : start + _RUNS])))
            after = (found[-1][1], found[-1][0])
        return deleted

    def _delete_past_inputs(self, horizon: Horizon) -> None:
        """Delete what workers have taken, whether they go on or have ended."""
        seq = horizon.delete_seq

        def is_left(db: Db) -> bool:
            first = db.value(SQL.find_past_input, int)
            return first is not None and first <= seq

        while self._catalog.read(is_left):
            self._delete(lambda db: db.run(SQL.delete_past_inputs, seq=seq, most=_PART))

    def _delete_transactions(self, horizon: Horizon) -> None:
        """Delete transactions of which nothing is left, of workers that go on."""

        def list_part(db: Db, run_id: RunId, after: WritePointer) -> list[tuple[WritePointer, bool]]:
            return db.records(
                SQL.list_past_transactions,
                tuple[WritePointer, bool],
                run_id=run_id,
                after=after,
                before=horizon.delete_at,
                seq=horizon.delete_seq,
                most=_PART,
            )

        for run_id in self._catalog.read(lambda db: db.records(SQL.list_workers, RunId)):
            after = WritePointer(0)
            while found := self._catalog.read(partial(list_part, run_id=run_id, after=after)):
                if pointers := [pointer for pointer, may_go in found if may_go]:
                    self._delete(lambda db: db.run(SQL.delete_past_transactions, pointers=json.dumps(pointers)))
                after = found[-1][0]

    def _delete_jobs(self, horizon: Horizon) -> int:
        """Delete the records of ended jobs whose runs are deleted, or that had none."""

        def list_part(db: Db, after: JobId) -> list[tuple[JobId, datetime, bool]]:
            rows = db.records(
                SQL.list_old_jobs, tuple[JobId, datetime, bool], after=after, before=horizon.delete_at, most=_PART
            )
            return list(takewhile(lambda row: row[1] < horizon.delete_at, rows))

        deleted, after = 0, JobId("")
        while found := self._catalog.read(partial(list_part, after=after)):
            if jobs := [job_id for job_id, _, may_go in found if may_go]:
                deleted += self._delete(lambda db: db.run(SQL.delete_jobs, jobs=json.dumps(jobs)))
            after = found[-1][0]
        return deleted

    def _delete_fires(self, horizon: Horizon) -> int:
        """Delete the records of times at which triggers have fired."""

        def list_part(db: Db, after: datetime) -> list[_OldFire]:
            return db.records(SQL.list_old_fires, _OldFire, after=after, before=horizon.delete_at, most=_PART)

        deleted, after = 0, BEGINNING
        while found := self._catalog.read(partial(list_part, after=after)):
            fires = to_json([one._asdict() for one in found])
            deleted += self._delete(lambda db: db.run(SQL.delete_fires, fires=fires))  # noqa: B023  # called at once
            after = found[-1].fire_time
        return deleted

    def _delete_backfills(self, horizon: Horizon) -> int:
        """Delete backfills that have ended, with their items."""
        before = horizon.delete_at

        def find_old(db: Db) -> BackfillId | None:
            return db.value(SQL.find_old_backfill, BackfillId, before=before)

        def delete_part(db: Db, backfill_id: BackfillId) -> int:
            # A retry may have begun since the backfill was found.
            if not db.run(SQL.close_backfill, backfill_id=backfill_id, before=before):
                return 0
            db.run(SQL.delete_items, backfill_id=backfill_id, most=_PART)
            return db.run(SQL.delete_backfill, backfill_id=backfill_id)

        deleted = 0
        while (found := self._catalog.read(find_old)) is not None:
            deleted += self._delete(partial(delete_part, backfill_id=found))
        return deleted

    def _delete_changes(self, horizon: Horizon) -> Iterator[int]:
        """Delete replaced changes of partitions and versions, with the work that they were for consumers."""
        place: dict[str, Param] = {"seq": horizon.delete_seq}
        for dataset_id, dropped_at in self._catalog.read(
            lambda db: db.records(SQL.list_histories, tuple[DatasetId, datetime | None], **place)
        ):
            for keys in self._list_old_partitions(dataset_id, horizon):
                history = _History(dataset_id, horizon.delete_seq, is_dropped=dropped_at is not None)
                # Most partitions have a change that stays at any age: those are only read, many at once.
                for key in self._catalog.read(lambda db: history.list_old(db, keys, 1)):  # noqa: B023  # called at once
                    yield self._delete_oldest(history, key)

    def _list_old_partitions(self, dataset_id: DatasetId, horizon: Horizon) -> Iterator[Sequence[KeyText]]:
        """Yield the partitions that have changes from before the horizon which were replaced before it, in parts."""
        place: dict[str, Param] = {"dataset_id": dataset_id}
        after = 0
        while bound := self._catalog.read(
            lambda db: db.value(SQL.find_bound, int, after=after, seq=horizon.delete_seq, most=_PART, **place)  # noqa: B023  # called at once
        ):
            found = self._catalog.read(
                lambda db: db.records(SQL.list_old_changes, tuple[int, KeyText], after=after, bound=bound, **place)  # noqa: B023  # called at once
            )
            keys = list(dict.fromkeys(key for _, key in found))
            # One commit may have replaced 50,000 partitions, and a table that was dropped all it had.
            yield from (keys[start : start + _PART] for start in range(0, len(keys), _PART))
            after = bound

    def _delete_oldest(self, history: _History, key: KeyText) -> int:
        """Delete the oldest changes of a partition, up to the first that must stay; return their number."""
        deleted, part = 0, _PART
        while part == _PART:
            part = self._delete(lambda db: history.delete_oldest(db, key))
            deleted += part
        return deleted

    def _delete_compactions(self, horizon: Horizon) -> Iterator[int]:
        """Delete replaced compactions whose files are deleted, with transactions of which nothing is left."""

        def list_part(db: Db, dataset_id: DatasetId, bound: int) -> list[_OldCompaction]:
            return db.records(SQL.list_old_compactions, _OldCompaction, dataset_id=dataset_id, bound=bound, most=_PART)

        def delete_part(db: Db, dataset_id: DatasetId, found: Iterable[_OldCompaction]) -> int:
            compactions = to_json([one._asdict() for one in found])
            deleted = db.run(SQL.delete_compactions, dataset_id=dataset_id, compactions=compactions)
            db.run(SQL.delete_ended_transactions, pointers=json.dumps([one.write_pointer for one in found]))
            return deleted

        for dataset_id, kept_from in self._catalog.read(
            lambda db: db.records(SQL.list_compacted, tuple[DatasetId, int], seq=horizon.delete_seq)
        ):
            bound = min(horizon.delete_seq, kept_from - 1)  # what a file set keeps for longer is not read
            while found := self._catalog.read(partial(list_part, dataset_id=dataset_id, bound=bound)):
                yield self._delete(partial(delete_part, dataset_id=dataset_id, found=found))
