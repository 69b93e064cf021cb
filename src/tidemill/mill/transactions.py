"""Transactions, as `Mill` offers them: list, show, abort; and begin, renew, commit for outside writers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tidemill.catalog.db import Db, write_effects
from tidemill.catalog.named import Row, load_sql
from tidemill.catalog.transactions import EndTransaction, TransactionRow, TxState, find_transaction, list_transactions
from tidemill.durations import format_duration, parse_lease
from tidemill.errors import NotFound, UserError
from tidemill.json_specs import read_plain
from tidemill.lake.consumer.managed import list_consumers
from tidemill.lake.datasets import Dataset, find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.access import ALL_NAMESPACES, Forbidden
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, read_key, write_key
from tidemill.mill.project import MOST_SHOWN, Noun, Project, fields_of
from tidemill.names import DatasetId, RunId, WritePointer
from tidemill.run.records.runs import Cause, find_run
from tidemill.run.step.outside_writes import OutsideChange, OutsideCommit, OutsideMessage, OutsideRead
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.mill.transactions_sql import Sql
    from tidemill.run.processes.outside_writers import CommittedTransaction, FailedTransaction, OutsideTransaction

SQL: Sql = load_sql(__file__)

LEASE: Final = "10m"
_MOST_NOTED: Final = 100
"""The most changes that an audit row names."""


@dataclass(frozen=True, slots=True)
class PublishedView:
    """Changes of one transaction to one data set."""

    dataset: str
    partition: str
    op: str
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class TransactionDetail(TransactionRow):
    """A transaction with the changes that it published.

    `owner` is the runner of its run, or the name that an outside writer gave. `leased_until` is the end of its lease
    while the transaction is open. `writes` are the file sets that an outside writer has declared. `reads` are the
    file sets of which it has taken partitions, each with the consumer.
    """

    published: tuple[PublishedView, ...]
    outside: bool
    owner: str | None
    leased_until: datetime | None
    writes: tuple[str, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction that was to be aborted, and its state afterwards. `changed` is false if it had ended already."""

    write_pointer: WritePointer
    state: TxState
    changed: bool


@dataclass(frozen=True, slots=True)
class RenewedTransaction:
    """A transaction of an outside writer that is kept for `lease` from now."""

    write_pointer: WritePointer
    lease: str


class _RunOf(NamedTuple):
    run_id: str
    namespace: str | None
    triggered_by: Mapping[str, object]


class Transactions(Noun):
    """Operations on transactions, among them those of outside writers: begin, renew, commit."""

    noun = "tx"

    @operation(Right.READ)
    def list(
        self, *, open_only: bool = False, state: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[TransactionRow]:
        """List transactions (in a state), newest first; open transactions oldest first. `after` is a write pointer.

        `open_only` stands for the state `in_progress`. `BadFilter` for a state that there is not.
        """
        named = None if state is None else check_filter("state", state, TxState)
        (pointer,) = read_key(after, (0,))
        behind = WritePointer(pointer) if after else None

        def block(db: Db) -> Page[TransactionRow]:
            found = self._rows(
                lambda place, most: list_transactions(db, limit=most, open_only=open_only, state=named, after=place),
                behind,
                limit,
                lambda row: row.write_pointer,
                lambda rows: self._names_of(db, rows),
            )
            return cut(found, limit, lambda row: write_key(row.write_pointer), lambda row: row)

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
    def show(self, write_pointer: int) -> TransactionDetail:
        """Return a transaction with its owner, its lease, and the changes that it published; `NotFound`."""
        from tidemill.run.processes.outside_writers import READS, WRITES

        def block(db: Db) -> TransactionDetail:
            row = self._find(db, write_pointer)
            rows = db.all(SQL.list_published, write_pointer=write_pointer, limit=MOST_SHOWN)
            by_id = find_some(db, (DatasetId(str(row[0])) for row in rows))
            sees = self._project.access.sees
            published = tuple(
                _published_view(one, by_id) for one in rows if sees(by_id[DatasetId(str(one[0]))].namespace)
            )
            run = find_run(db, row.run_id)
            reads = (f"{one['dataset']} by {one['consumer']}" for one in _list_of(run.triggered_by, READS))
            return TransactionDetail(
                **fields_of(row),
                published=published,
                outside=WRITES in run.triggered_by,
                owner=run.owner,
                leased_until=run.lease_until if row.state is TxState.IN_PROGRESS else None,
                writes=tuple(map(str, _list_of(run.triggered_by, WRITES))),
                reads=tuple(reads),
            )

        return self._catalog.read(block)

    @operation(Right.DEPLOY, no_audit="its run is the record")
    def begin(
        self,
        writes: Sequence[str],
        *,
        reads: Sequence[OutsideRead | Mapping[str, object]] = (),
        lease: str | timedelta = LEASE,
        owner: str = "",
    ) -> OutsideTransaction:
        """Begin a transaction that writes files by itself, in any process; `writes` are the file sets.

        The answer has a location for each of them. Put the files there, and name them at the commit. No reader sees
        them before. Renew the transaction while you work: the reaper of `tidemill up` fences it a whole `lease` after
        the last renewal.

        Each of `reads` has `dataset`, `consumer` and maybe `limit`. The answer has the partitions that the consumer
        takes, as `mill.consumers.take` does. The commit completes them together with what it publishes.
        `NotFound`, `NotASnapshot`, `BadLease`.
        """
        from tidemill.run.processes.outside_writers import begin_outside

        names = list(dict.fromkeys(writes))
        wanted = [one if isinstance(one, OutsideRead) else read_plain(OutsideRead, one) for one in reads]
        if not names and not wanted:
            raise UserError("the transaction declares no file sets: name those that it writes, or reads")
        filesets = self._catalog.read(lambda db: [Fileset.of(self._project.dataset(db, name)) for name in names])
        sources = self._catalog.read(lambda db: [(find_source(self._project, db, one), one) for one in wanted])
        given = owner or self._project.actor
        earlier = None if self._part is None else RunId(str(self._part["run_id"]))
        return begin_outside(
            self._catalog,
            self._world,
            filesets,
            sources,
            owner=given,
            lease=parse_lease(lease),
            earlier=earlier,
            also=lambda run_id: self._keep_part({"run_id": run_id}),
        )

    @operation(Right.DEPLOY, no_audit="keeps a lease alive", repeats="keeps it alive again")
    def renew(self, write_pointer: int, *, lease: str | timedelta = LEASE) -> RenewedTransaction:
        """Keep a transaction that `begin` has begun for `lease` from now; `TransactionEnded`, `NotFound`."""
        from tidemill.run.processes.outside_writers import renew_outside

        row = self._catalog.read(lambda db: self._find(db, write_pointer))
        duration = parse_lease(lease)
        renew_outside(self._catalog, row.write_pointer, duration)
        return RenewedTransaction(row.write_pointer, format_duration(duration))

    @operation(Right.DEPLOY, repeats="the same commit again has the same answer")
    def commit(
        self,
        write_pointer: int,
        partitions: Sequence[OutsideChange | Mapping[str, object]] | None = None,
        *,
        messages: Sequence[OutsideMessage | Mapping[str, object]] = (),
    ) -> CommittedTransaction:
        """Commit a transaction that `begin` has begun: publish the files in its locations, all at once.

        The partitions that the transaction has taken are completed by the same commit. Without `partitions`, a
        transaction that only takes is committed; one that may write file sets is refused.

        Each of `partitions` has `dataset`, `key` (`day=2026-01-01`) and `op`: `append`, `overwrite`, `create`, `drop`.
        Its `files` have `name` (below the location, in Hive's layout: `day=2026-01-01/a.parquet`), `bytes` and `rows`;
        `metadata` may stand beside them. Sizes and rows are compared with the storage. `messages` have `topic`,
        `payload` and `key`. The same commit again has the same answer, and publishes nothing twice. Cost: a look at
        each file.

        After `FilesRefused` the transaction is open: correct the commit. A conflict ends it: begin again.
        `TransactionEnded`, `CommitDiffers`, `NotAnOutput`, `BadKey`, `SchemaChanged`, `PartitionConflict`.
        """
        from tidemill.run.processes.outside_writers import WRITES, commit_outside

        if messages and self._project.access.only is not None:
            raise Forbidden(Right.DEPLOY, ALL_NAMESPACES)  # a topic belongs to no namespace
        row = self._catalog.read(lambda db: self._find(db, write_pointer))
        if partitions is None:
            run = self._catalog.read(lambda db: find_run(db, row.run_id))
            if writes := _list_of(run.triggered_by, WRITES):
                shown = ", ".join(map(str, writes))
                raise UserError(
                    f"the commit names no partitions, and transaction {write_pointer} may write {shown}",
                    "name the partitions that you have written, or an empty list to publish nothing",
                )
        given = partitions or ()
        changes = [one if isinstance(one, OutsideChange) else read_plain(OutsideChange, one) for one in given]
        names = self._project.qualified([one.dataset for one in changes]) or []
        told = [one if isinstance(one, OutsideMessage) else read_plain(OutsideMessage, one) for one in messages]
        wanted = OutsideCommit(
            tuple(replace(one, dataset=str(name)) for one, name in zip(changes, names, strict=True)), tuple(told)
        )
        some = [f"{one.op} {one.dataset} {one.key}" for one in wanted.changes[:_MOST_NOTED]]
        note = self._note("commit", str(write_pointer), partitions=len(changes), changes=some, run_id=row.run_id)
        note = note.between({"state": TxState.IN_PROGRESS}, {"state": TxState.COMMITTED})
        return commit_outside(self._catalog, self._world, row.write_pointer, wanted, [note])

    @operation(Right.DEPLOY)
    def fail(self, write_pointer: int, error: str) -> FailedTransaction:
        """End a transaction that `begin` or `take` has begun, because the work failed with `error`.

        The partitions that the transaction has taken wait, 10 seconds at first, and come again. A partition that fails
        alone, and too often, is discarded. `abort` returns them without a failure. The same call again has the same
        answer. `TransactionEnded`, `NotFound`.
        """
        from tidemill.run.processes.outside_writers import FailedTransaction, fail_outside
        from tidemill.run.step.attempts import AttemptEnd

        if not error.strip():
            raise UserError("say why the work failed: the reason is empty")
        row = self._catalog.read(lambda db: self._find(db, write_pointer))
        reason = AttemptEnd(Cause.FAILED, error).shown_reason
        failed = FailedTransaction(row.write_pointer, row.run_id, TxState.ABORTED, reason)
        note = self._note("fail", str(write_pointer), error=reason, run_id=row.run_id)
        note = note.between({"state": TxState.IN_PROGRESS}, {"state": TxState.ABORTED})
        return fail_outside(self._catalog, row.write_pointer, reason, [note, *self._keep(failed)])

    @operation(Right.OPERATE)
    def abort(self, write_pointer: int) -> AbortedTransaction:
        """Abort an open transaction: it becomes invalid and its run KILLED. No effect on one that has ended.

        Partitions that it has taken are returned without a failure.
        """
        from tidemill.run.step.attempts import AttemptEnd, end_attempt

        row = self._catalog.read(lambda db: self._find(db, write_pointer))
        changed = row.state is TxState.IN_PROGRESS
        if changed:
            end = AttemptEnd(Cause.KILLED, f"transaction {write_pointer} was aborted by hand", zombie=True)
            aborted = AbortedTransaction(row.write_pointer, TxState.INVALID, changed=True)
            note = self._note("abort", str(write_pointer), run_id=row.run_id)
            note = note.between({"state": TxState.IN_PROGRESS}, {"state": TxState.INVALID})
            also = [note, *self._keep(aborted)]
            if end_attempt(self._catalog, row.run_id, row.epoch, end, also) is None:

                def block(db: Db) -> bool:
                    db.tick()  # no other commit ends it between the look and the end
                    is_open = find_transaction(db, row.write_pointer).state is TxState.IN_PROGRESS
                    if is_open:
                        for call in EndTransaction(row.write_pointer, TxState.INVALID, "aborted by hand").writes():
                            db.call(call)
                        write_effects(db, also)
                    return is_open

                changed = self._catalog.write(block)
        state = self._catalog.read(lambda db: find_transaction(db, row.write_pointer)).state
        return AbortedTransaction(row.write_pointer, state, changed)

    def _find(self, db: Db, write_pointer: int) -> TransactionRow:
        """Return a transaction that the caller may see: its program, or all that it may write, is of its namespace."""
        row = find_transaction(db, WritePointer(write_pointer))
        if self._project.access.only is not None:
            (name,) = self._names_of(db, [row])
            if name is None or not self._project.access.sees_name(name):
                raise NotFound("transaction", str(write_pointer))
        return row

    def _names_of(self, db: Db, rows: Sequence[TransactionRow]) -> Sequence[str | None]:
        """Return for each transaction a name by which the caller sees it: of its program, or of what it declared.

        Of several declared data sets, and consumers of programs, that is one that the caller may not see, if there is
        such a one.
        """
        from tidemill.run.processes.outside_writers import READS, WRITES

        ids = json.dumps(sorted({row.run_id for row in rows}))
        found = {run.run_id: run for run in db.records(SQL.list_runs, _RunOf, run_ids=ids)}
        names: dict[str, str | None] = {}
        for run_id, run in found.items():
            given = [str(one) for one in _list_of(run.triggered_by, WRITES)]
            reads = _list_of(run.triggered_by, READS)
            given += [str(one["dataset"]) for one in reads]
            given += [str(one["consumer"]) for one in reads if "." in str(one["consumer"])]
            hidden = (one for one in given if not self._project.access.sees_name(one))
            names[run_id] = next(hidden, given[0]) if given else run.namespace
        return [names.get(row.run_id) for row in rows]


def find_source(project: Project, db: Db, read: OutsideRead) -> Fileset:
    """Return the file set of a read of an engine outside; `NotFound` for a consumer that the caller may not see.

    Elsewhere the last part of a name means the consumer of a program: such a name of a new consumer is refused.
    """
    sees = project.access.sees_consumer
    if not sees(read.consumer):
        raise NotFound("consumer", read.consumer)
    fileset = Fileset.of(project.dataset(db, read.dataset))
    if "." not in read.consumer:
        names = [one.name for one in list_consumers(db, dataset_id=fileset.dataset_id) if sees(one.name)]
        meant = [name for name in names if name.endswith(f".{read.consumer}")]
        if meant and read.consumer not in names:
            raise UserError(
                f"{fileset.qualified_name} has no consumer {read.consumer}, but {meant[0]}, that of a program",
                f"take by {meant[0]} to share its partitions with the runs of the program, or choose another name",
            )
    return fileset


def _list_of(cause: Mapping[str, Any], entry: str) -> Sequence[Any]:
    """Return a list in the cause of a run; it is empty for a run of another kind."""
    found: Sequence[Any] = cause.get(entry, ())
    return found


def _published_view(row: Row, by_id: Mapping[DatasetId, Dataset]) -> PublishedView:
    dataset_id, key, op, files, size, rows = row
    fileset = Fileset.of(by_id[DatasetId(str(dataset_id))])
    shown = fileset.show(KeyText(str(key)))
    return PublishedView(
        fileset.qualified_name, shown, str(op), cast("int", files), cast("int", size), cast("int", rows or 0)
    )
