"""Consumers, as `Mill` offers them: the managed ones, and the one whose state the caller keeps."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db
from tidemill.durations import format_duration, parse_lease
from tidemill.epoch import to_micros
from tidemill.errors import NotFound, UserError
from tidemill.lake.consumer.consumer import (
    FROM_BEGINNING,
    PartitionConsumerResult,
    PartitionConsumerState,
    consume_partitions,
)
from tidemill.lake.consumer.managed import (
    Consumer,
    Lag,
    WorkState,
    count_work,
    find_consumer,
    list_consumers,
    list_work,
)
from tidemill.lake.consumer.resets import ChosenPartitions, drop_consumer, list_resets, requeue, reset
from tidemill.lake.consumer.starts import BadStart, Start
from tidemill.lake.consumer.take import peek_claims
from tidemill.lake.datasets import Dataset, find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.watermark import EARLIEST, LATEST
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, cut, read_key, write_key
from tidemill.mill.project import MOST_SHOWN, Noun, complete, fields_of
from tidemill.mill.transactions import LEASE, find_source
from tidemill.names import DatasetId, RunId, nearest
from tidemill.run.records.programs import list_reads
from tidemill.run.step.inputs import consumer_kind_of
from tidemill.run.step.outside_writes import MOST_PARTITIONS, OutsideRead
from tidemill.shapes.filters import Where, choose, make_filter
from tidemill.shapes.keys import KeyText, KeyValue
from tidemill.shapes.partition_time import Instant, Zone

if TYPE_CHECKING:
    from tidemill.run.processes.outside_writers import PartitionTake


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A managed consumer of a file set: its state, and what waits for it.

    `waiting` counts the changes that no run has taken, `in_progress` and `discarded` those that a run has.
    `dropped` counts the partitions that were dropped before a run processed them, since the last reset.
    """

    dataset: str
    name: str
    waiting: int
    bytes: int
    oldest_at: datetime | None
    in_progress: int
    discarded: int
    dropped: int
    retired: bool
    """True if the program of the consumer does not read by it any more. Never for a consumer of an engine outside."""
    start_version: int
    versions_to_check: tuple[int, ...]
    terms: Mapping[str, object]
    """Terms of a take, where they differ from the defaults."""


@dataclass(frozen=True, slots=True)
class OfferedView:
    """A partition that a take would give now; `kind` is new, appended or overwritten, sizes are of what it brings."""

    key: Mapping[str, KeyValue]
    partition: str
    kind: str
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class LagView:
    """Lag of a consumer: the changes that it has not taken, and the wait of the oldest of them."""

    dataset: str
    name: str
    partitions: int
    bytes: int
    oldest_at: datetime | None
    age: str | None


@dataclass(frozen=True, slots=True)
class WorkView:
    """A partition in a consumer's hands: held by a run, or discarded since it failed too often."""

    partition: str
    write_pointer: int
    state: str
    failures: int
    run_id: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ResetView:
    """Reset of a consumer: its actor, its new start, and the state that it left."""

    reset_at: datetime
    by: str
    to: str
    start_version: int
    versions_to_check: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConsumerDetail(ConsumerView):
    """A consumer with the partitions that its runs hold, its discarded partitions, and its resets."""

    work: tuple[WorkView, ...]
    not_shown: int
    resets: tuple[ResetView, ...]


@dataclass(frozen=True, slots=True)
class DroppedConsumer:
    """A consumer that was dropped."""

    dataset: str
    name: str


@dataclass(frozen=True, slots=True)
class Requeued:
    """The number of discarded partitions that a consumer gets again."""

    dataset: str
    name: str
    requeued: int


class NotPeekable(UserError):
    """A change feed gives rows of a snapshot, by comparing two versions of it, and no partitions."""

    code = "not_peekable"

    def __init__(self, dataset: str, consumer: str) -> None:
        self.dataset = dataset
        self.consumer = consumer
        super().__init__(
            f"{consumer} gets what changed in the snapshot {dataset}, and no partitions",
            f"`tidemill snapshot versions {dataset}` says which version it has seen, `tidemill snapshot diff "
            f"{dataset} SEEN NEWEST` what changed since",
        )


class ConsumerInUse(UserError):
    """A consumer was to be dropped by which a program reads."""

    code = "consumer_in_use"

    def __init__(self, dataset: str, consumer: str) -> None:
        self.dataset = dataset
        self.consumer = consumer
        super().__init__(
            f"consumer {consumer} cannot be dropped: the program of that name reads {dataset} by it",
            "take the program out of its app, or the data set out of its `reads`, and deploy first",
        )


class NoTimes(UserError):
    """Partitions were chosen by time, and the file set does not say what the time of a partition is."""

    code = "no_times"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{dataset} declares no partition time",
            "choose partitions by their keys, or declare a watermark",
            before=": ",
        )


class Consumers(Noun):
    """Operations on consumers."""

    noun = "consumer"

    @operation(Right.READ)
    def list(
        self, *, dataset: str | None = None, program: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[ConsumerView]:
        """List consumers (of a data set, of a program) by name, with the changes that wait for each. `NotFound`."""
        place = read_key(after, ("", ""))

        def block(db: Db) -> Page[ConsumerView]:
            only = None if dataset is None else self._project.dataset(db, dataset).dataset_id
            name = None if program is None else self._project.program(db, program).qualified_name
            found, by_id = self._list(db, only, name, place, limit)
            reads = list_reads(db)
            return cut(found, limit, _key_of, lambda consumer: _consumer_view(db, consumer, by_id, reads))

        return self._catalog.read(block)

    def _list(
        self, db: Db, only: DatasetId | None, name: str | None, place: tuple[str, str], limit: int
    ) -> tuple[Sequence[Consumer], Mapping[DatasetId, Dataset]]:
        """Return the rows of a page, and their data sets."""
        by_id: dict[DatasetId, Dataset] = {}

        def names(rows: Sequence[Consumer]) -> Sequence[str | None]:
            by_id.update(find_some(db, (row.dataset_id for row in rows)))
            sees = self._project.access.sees_consumer
            return [by_id[row.dataset_id].namespace if sees(row.name) else None for row in rows]

        found = self._rows(
            lambda behind, most: list_consumers(db, dataset_id=only, name=name, after=behind, limit=most),
            place,
            limit,
            lambda one: read_key(_key_of(one), ("", "")),
            names,
        )
        names(found)
        return found, by_id

    @operation(Right.READ, own=True)
    def show(self, dataset: str, name: str) -> ConsumerDetail:
        """Return a consumer, with the changes that its runs hold, its discarded changes, and its resets.

        `work` has the first `MOST_SHOWN` of each state, and `not_shown` is the number of all others. `NotFound` with
        the nearest name.
        """

        def block(db: Db) -> ConsumerDetail:
            found, consumer = self._consumer(db, dataset, name)
            show = Fileset.of(found).show
            work = [
                WorkView(show(w.partition_key), w.write_pointer, w.state, w.failures, w.run_id, w.error)
                for state in (WorkState.IN_PROGRESS, WorkState.DISCARDED)
                for w in list_work(db, consumer.consumer_id, state, MOST_SHOWN)
            ]
            resets = [
                ResetView(p.at, p.by, p.asked, p.state.start_version, tuple(p.state.versions_to_check))
                for p in list_resets(db, consumer.dataset_id, consumer.name)
            ]
            view = _consumer_view(db, consumer, {found.dataset_id: found}, list_reads(db))
            not_shown = view.in_progress + view.discarded - len(work)
            return ConsumerDetail(**fields_of(view), work=tuple(work), not_shown=not_shown, resets=tuple(resets))

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
    def peek(self, dataset: str, name: str, *, limit: int | None = None) -> Sequence[OfferedView]:
        """List the partitions that the next take would claim now, in order, by the consumer's terms. Claims nothing.

        At most `limit` partitions, if that is less than its terms allow. An acceptor of the program is not asked.
        `NotPeekable` for a change feed.
        """
        found, consumer = self._catalog.read(lambda db: self._consumer(db, dataset, name))
        if not consumer_kind_of(found).delivers_partitions:
            raise NotPeekable(found.qualified_name, consumer.name)
        terms = consumer.terms if limit is None else replace(consumer.terms, partitions=limit, old_percent=0)
        fileset = Fileset.of(found)
        offered = []
        for delivery in peek_claims(self._catalog, consumer.consumer_id, terms):
            manifests = [change.manifest for change in delivery.changes]
            offered.append(
                OfferedView(
                    dict(zip(fileset.keys.names, fileset.keys.decode(delivery.partition_key), strict=True)),
                    fileset.show(delivery.partition_key),
                    delivery.kind,
                    sum(len(manifest.files) for manifest in manifests),
                    sum(manifest.total_bytes for manifest in manifests),
                    sum(manifest.total_rows for manifest in manifests),
                )
            )
        return offered

    @operation(Right.DEPLOY, no_audit="its run is the record")
    def take(
        self,
        dataset: str,
        name: str,
        *,
        limit: int = MOST_PARTITIONS,
        lease: str | timedelta = LEASE,
        owner: str = "",
    ) -> PartitionTake:
        """Take the oldest waiting partitions for an engine outside: no run and no other take of the consumer gets them.

        A consumer that does not exist is made, and begins with all partitions; its name has no dots. The take is a
        transaction that publishes nothing: `tx commit` completes the partitions, `tx fail` and `tx abort` return them,
        with or without a failure, and `tx renew` keeps them for a `lease`. If no partition waits, `write_pointer` is
        None. `NotFound`, `BadName`, `BadLease`.
        """
        from tidemill.run.processes.outside_writers import take_outside

        read = OutsideRead(dataset, name, limit)
        fileset = self._catalog.read(lambda db: find_source(self._project, db, read))
        return take_outside(
            self._catalog,
            self._world,
            fileset,
            read,
            owner=owner or self._project.actor,
            lease=parse_lease(lease),
            earlier=None if self._part is None else RunId(str(self._part["run_id"])),
            also=lambda run_id: self._keep_part({"run_id": run_id}),
        )

    @operation(Right.OPERATE)
    def reset(
        self,
        dataset: str,
        name: str,
        to: str | datetime,
        *,
        where: Where | Sequence[str] | None = None,
        time_from: str | datetime | None = None,
        time_until: str | datetime | None = None,
    ) -> ConsumerView:
        """Reset a consumer: to the `beginning`, to `now`, or to the commits since a time.

        With `where` or times, of the partitions that have committed since then only those are delivered whose keys
        `where` accepts and whose time lies from `time_from` until `time_until`, and all that commits from now on. Times
        without an offset are those of the watermark's zone.

        On record with the actor: `show`. Refused (`ClaimsInProgress`)
        while a run holds what it took; `NotFound`, `BadStart`, `BadKey`, `NoTimes`, `TooManyChosen`.
        """
        start = Start.parse(to)
        found, consumer = self._catalog.read(lambda db: self._consumer(db, dataset, name))
        if self._part is not None:  # an earlier try of the same request has reset it
            return self._catalog.read(
                lambda db: _consumer_view(db, consumer, {found.dataset_id: found}, list_reads(db))
            )
        chosen = None
        if where or time_from is not None or time_until is not None:
            if not consumer_kind_of(found).delivers_partitions:
                raise NotPeekable(found.qualified_name, consumer.name)
            chosen = _choose(Fileset.of(found), where, time_from, time_until)
        which, subject = chosen.shown if chosen else "all", f"{found.qualified_name} {consumer.name}"
        note = self._note("reset", subject, to=str(to), partitions=which)
        who, also = self._project.actor, self._keep_part({"reset": subject})
        after = reset(self._catalog, consumer.dataset_id, consumer.name, start, who, chosen, note=note, also=also)
        return self._catalog.read(lambda db: _consumer_view(db, after, {found.dataset_id: found}, list_reads(db)))

    @operation(Right.DEPLOY, in_block=True)
    def drop(self, dataset: str, name: str) -> DroppedConsumer:
        """Drop a consumer by which no program reads any more: nothing is kept or counted for it from then on.

        On record with the actor. `ConsumerInUse`; `ClaimsInProgress` while a run holds what it took; `NotFound`.
        """

        def block(db: Db) -> DroppedConsumer:
            db.tick()
            found, consumer = self._consumer(db, dataset, name)
            if (consumer.name, found.qualified_name) in list_reads(db):
                raise ConsumerInUse(found.qualified_name, consumer.name)
            drop_consumer(db, consumer, self._project.actor)
            note = self._note("drop", f"{found.qualified_name} {consumer.name}")
            note.between({"since_seq": consumer.since_seq}, None).write(db)
            return DroppedConsumer(found.qualified_name, consumer.name)

        return self._catalog.write(block)

    @operation(Right.OPERATE)
    def requeue(self, dataset: str, name: str, partitions: Sequence[str] | None = None) -> Requeued:
        """Retry discarded partitions (these, like `day=2026-01-31`, or all), and return their number.

        `NotFound` for a partition that is not discarded.
        """
        found, consumer = self._catalog.read(lambda db: self._consumer(db, dataset, name))
        note = self._note("requeue", f"{found.qualified_name} {consumer.name}", partitions=partitions or "all")

        def chosen(db: Db) -> Sequence[KeyText] | None:
            if partitions is None:
                return None
            _, discarded = count_work(db, consumer.consumer_id)
            rows = list_work(db, consumer.consumer_id, WorkState.DISCARDED, discarded)
            by_name = {Fileset.of(found).show(work.partition_key): work.partition_key for work in rows}
            for partition in partitions:
                if partition not in by_name:
                    raise NotFound("discarded partition", partition, nearest(partition, by_name))
            return [by_name[partition] for partition in partitions]

        def made(number: int) -> Requeued:
            return Requeued(found.qualified_name, consumer.name, number)

        keys = self._catalog.read(chosen)
        return made(requeue(self._catalog, consumer, keys, note, lambda number: self._keep(made(number))))

    @operation(Right.READ)
    def lag(
        self, *, dataset: str | None = None, name: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[LagView]:
        """Measure the lag of consumers (of a data set; of a name), by name."""
        place = read_key(after, ("", ""))

        def block(db: Db) -> Page[LagView]:
            only = None if dataset is None else self._project.dataset(db, dataset).dataset_id
            if dataset is not None and name is not None:
                self._consumer(db, dataset, name)
            found, by_id = self._list(db, only, name, place, limit)
            now = db.now()
            return cut(
                found, limit, _key_of, lambda consumer: _lag_view(consumer, _measure(db, consumer, by_id), by_id, now)
            )

        return self._catalog.read(block)

    @operation(
        Right.DEPLOY,
        no_command="the caller keeps the state, in Python",
        no_audit="changes nothing in the catalog",
        no_route="the caller keeps the state, in Python",
    )
    def consume_partitions(
        self, dataset: str, state: PartitionConsumerState = FROM_BEGINNING, *, where: Where | None = None
    ) -> PartitionConsumerResult:
        """Return the partitions that are new since `state`, oldest first, and the state to store with their outcome.

        For a caller that keeps the state (seed 000); `PartitionConsumer` keeps it in memory. Partitions that `where`
        does not accept are never delivered. `NotFound`, `BadKey`.
        """
        fileset = Fileset.of(self._catalog.read(lambda db: self._project.dataset(db, dataset)))
        accepted = None if where is None else make_filter(fileset.keys, where)
        return consume_partitions(self._catalog, fileset, state, accepted)

    def _consumer(self, db: Db, dataset: str, name: str) -> tuple[Dataset, Consumer]:
        found = self._project.dataset(db, dataset)
        sees = self._project.access.sees_consumer
        names = [one.name for one in list_consumers(db, dataset_id=found.dataset_id) if sees(one.name)]
        if "." not in name and name not in names:
            name = complete("consumer", name, names)
        if name not in names:
            raise NotFound("consumer", name, nearest(name, names))
        return found, find_consumer(db, found.dataset_id, name)


def _choose(
    fileset: Fileset,
    where: Where | Sequence[str] | None,
    time_from: str | datetime | None,
    time_until: str | datetime | None,
) -> ChosenPartitions:
    accepted = choose(fileset.keys, where or {})
    shown = [] if not where else [f"where {where if isinstance(where, Mapping) else ' and '.join(where)}"]
    if time_from is None and time_until is None:
        return ChosenPartitions(accepted, " ".join(shown))
    if fileset.watermark is None:
        raise NoTimes(fileset.qualified_name)
    times = fileset.watermark.partition_time
    lower = EARLIEST if time_from is None else _instant(times.zone, time_from)
    upper = LATEST if time_until is None else _instant(times.zone, time_until)
    shown += [] if time_from is None else [f"from {time_from}"]
    shown += [] if time_until is None else [f"until {time_until}"]

    def overlaps(key: KeyText) -> bool:
        span = times.span_of(fileset.keys.decode(key))
        return span is not None and span.begins < upper and lower < span.ends

    return ChosenPartitions(accepted, " ".join(shown), overlaps)


def _instant(zone: Zone, given: str | datetime) -> Instant:
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except ValueError:
        raise BadStart(str(given), "a partition time is a time like 2026-01-31T06:00") from None
    if moment.tzinfo is None:
        return zone.opens(moment)
    return Instant(to_micros(moment))


def _key_of(consumer: Consumer) -> str:
    return write_key(consumer.name, consumer.dataset_id)


def _measure(db: Db, consumer: Consumer, by_id: Mapping[DatasetId, Dataset]) -> Lag:
    return consumer_kind_of(by_id[consumer.dataset_id]).measure(db, consumer)


def _lag_view(consumer: Consumer, lag: Lag, by_id: Mapping[DatasetId, Dataset], now: datetime) -> LagView:
    age = None if lag.oldest is None else max(now - lag.oldest, timedelta(0))
    shown = None if age is None else format_duration(age - age % timedelta(seconds=1))
    name = by_id[consumer.dataset_id].qualified_name
    return LagView(name, consumer.name, lag.partitions, lag.bytes, lag.oldest, shown)


def _consumer_view(
    db: Db, consumer: Consumer, by_id: Mapping[DatasetId, Dataset], reads: Collection[tuple[str, str]]
) -> ConsumerView:
    lag = _measure(db, consumer, by_id)
    dataset = by_id[consumer.dataset_id].qualified_name
    held, discarded = count_work(db, consumer.consumer_id)
    return ConsumerView(
        dataset,
        consumer.name,
        lag.partitions,
        lag.bytes,
        lag.oldest,
        held,
        discarded,
        consumer.dropped,
        "." in consumer.name and (consumer.name, dataset) not in reads,
        consumer.state.start_version,
        tuple(consumer.state.versions_to_check),
        json.loads(consumer.spec),
    )
