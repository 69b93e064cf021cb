"""Reads of engines outside: partitions that a transaction takes with its begin, by a consumer.

The claims are those of a run. So no run and no other transaction gets the partitions, and the commit completes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.catalog.db import Catalog, Db
from tidemill.errors import UserError
from tidemill.lake.consumer.managed import Consumer, ensure_consumer, find_consumer, find_readers
from tidemill.lake.consumer.take import Delivery
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import WritePointer, check_name
from tidemill.run.step.inputs import Inputs
from tidemill.run.step.outside_writes import OutsideRead
from tidemill.run.step.partition_input import PartitionInputs
from tidemill.shapes.keys import KeyValue
from tidemill.storage.locations import path_for_readers


@dataclass(frozen=True, slots=True)
class TakenFile:
    """File of a taken partition. `name` is below the location of the data set."""

    name: str
    path: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class TakenPartition:
    """Partition that a transaction has taken. Of an appended partition, `files` are the appended files only.

    `kind` is new, appended or overwritten. `write_pointer` is that of the newest change in `files`. The values of the
    key are not in the files.
    """

    partition: str
    key: Mapping[str, KeyValue]
    kind: str
    write_pointer: WritePointer
    files: tuple[TakenFile, ...]
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class TransactionInput:
    """Partitions of a file set that a transaction has taken by a consumer, the oldest first."""

    dataset: str
    consumer: str
    location: str
    format: str
    keys: Mapping[str, str]
    partitions: tuple[TakenPartition, ...]


def find_reads(catalog: Catalog, reads: Sequence[tuple[Fileset, OutsideRead]]) -> PartitionInputs:
    """Find the consumers of `reads`. A consumer that does not exist is made, and begins with all partitions.

    A name with dots is that of a program, whose deployment makes the consumer. `NotFound`, `BadName`.
    """
    named: dict[str, tuple[Fileset, OutsideRead]] = {}
    for fileset, read in reads:
        name = fileset.qualified_name
        if fileset.dataset.kind is not DatasetKind.FILESET:
            raise UserError(f"{name} is a {fileset.dataset.kind}, not a file set: read it by a program")
        if name in named:
            raise UserError(f"{name} is read twice: name each file set once, and begin a transaction for each consumer")
        named[name] = (fileset, read)

    def find(db: Db) -> dict[str, Consumer]:
        found = find_readers(db, [(name, read.consumer) for name, (_, read) in named.items()])
        by_id = {consumer.dataset_id: consumer for consumer in found}
        return {name: by_id[one.dataset_id] for name, (one, _) in named.items() if one.dataset_id in by_id}

    def make(db: Db) -> dict[str, Consumer]:
        found = find(db)
        return {
            name: found[name] if name in found else _make_consumer(db, fileset, read.consumer)
            for name, (fileset, read) in named.items()
        }

    consumers = catalog.read(find)
    if len(consumers) < len(named):
        consumers = catalog.write(make)
    sources = {name: (fileset, consumers[name]) for name, (fileset, _) in named.items()}
    return PartitionInputs(None, sources, {name: read.limit for name, (_, read) in named.items()})


def _make_consumer(db: Db, fileset: Fileset, name: str) -> Consumer:
    if "." in name:
        return find_consumer(db, fileset.dataset_id, name)
    return ensure_consumer(db, fileset.dataset_id, check_name("consumer", name))


def describe_inputs(inputs: Inputs) -> tuple[TransactionInput, ...]:
    """Return what the engine outside gets of the inputs of a transaction: no partitions before their take."""
    return tuple(
        TransactionInput(
            name,
            consumer.name,
            path_for_readers(fileset.dataset.location, ""),
            fileset.storing.format,
            fileset.keys.types,
            tuple(_describe(fileset, one) for one in kind.taken[name].deliveries) if name in kind.taken else (),
        )
        for kind in inputs.kinds
        if isinstance(kind, PartitionInputs)
        for name, (fileset, consumer) in kind.sources.items()
    )


def _describe(fileset: Fileset, delivery: Delivery) -> TakenPartition:
    key, location = delivery.partition_key, fileset.dataset.location
    files = tuple(
        TakenFile(name, path_for_readers(location, name), file.bytes, file.rows) for name, file in delivery.files
    )
    return TakenPartition(
        fileset.show(key),
        dict(zip(fileset.keys.names, fileset.keys.decode(key), strict=True)),
        delivery.kind,
        delivery.changes[-1].write_pointer,
        files,
        sum(file.bytes for file in files),
        sum(file.rows for file in files),
    )
