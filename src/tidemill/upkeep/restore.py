"""Restore: a catalog from its backup, as a new life of it; and the adoption of what the life that ended has published.

What was under way when the backup was made belongs to the life that ended: its transactions are invalid, its runs are
lost attempts. The clock begins above all that the backup, the present catalog and the directories in storage name, and
the incarnation is new, so that no write pointer and no directory comes twice. What the backup does not know it cannot
know as consumed: so across a restore delivery is at least once, never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.migrate import read_version
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import Snapshot, Transaction, begin, commit
from tidemill.errors import Conflict, TidemillError, UserError
from tidemill.json_specs import read_plain
from tidemill.lake.datasets import DatasetKind, list_datasets
from tidemill.lake.fileset.columns import evolve
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp, find_schema, read_partitions
from tidemill.lake.fileset.publish import PartitionWrite, find_existing
from tidemill.lake.fileset.stored import SchemaPolicy
from tidemill.lake.snapshot.refresh_order import OrderRefreshes, RefreshOrder, find_order, sort_key
from tidemill.lake.snapshot.snapshot import PublishVersion, SnapshotDataset
from tidemill.lake.window.follow import publish_partitions
from tidemill.lake.window.watermark import find_known_times
from tidemill.names import RunId
from tidemill.run.processes.runner import LEASE
from tidemill.run.records.runs import Cause, create_external, list_live
from tidemill.run.step.attempts import AttachTransaction, AttemptEnd, FinishRun, end_attempt
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import DataFile, Manifest, check_files, find_snapshot, read_side_car
from tidemill.storage.locations import open_files
from tidemill.upkeep.backup import Backup, BadBackup, check_backup, read_backup
from tidemill.upkeep.storage import Directory, DirectoryKind, find_unnamed, list_snapshots
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.upkeep.restore_sql import Sql

SQL: Sql = load_sql(__file__)

_INCARNATION_CHARACTERS: Final = 8
_REASON: Final = "its catalog was restored from a backup"


class CatalogInUse(Conflict):
    """A restore would overwrite a catalog that has something in it."""

    code = "catalog_in_use"

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"catalog {url} is not empty",
            "stop all Tidemill processes, make a backup of this catalog, and add --replace to replace it",
            before=": ",
        )


class NotAdoptable(UserError):
    """A commit of another life that cannot be published again."""

    code = "not_adoptable"
    hint = "leave the directory to the janitor, and run its program again"

    def __init__(self, directory: str, why: str) -> None:
        self.directory = directory
        self.why = why
        super().__init__(f"{directory} cannot be adopted: {why}")


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore: the backup, the clock and incarnation with which the new life begins, and what was under way."""

    backup: Backup
    clock: int
    incarnation: str
    ended_transactions: int
    ended_runs: int


@dataclass(frozen=True, slots=True)
class NotAdopted:
    """A directory that stays as it is, for a person to look at."""

    dataset: str
    directory: str
    why: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of an adoption: transactions published again, with partitions and rows, and what was left."""

    transactions: int
    partitions: int
    rows: int
    left: tuple[NotAdopted, ...]


def restore(
    catalog: Catalog,
    path: str | Path,
    *,
    replace: bool = False,
    data: str | None = None,
    note: NoteChange | None = None,
) -> Restored:
    """Put the backup at `path` in the place of the catalog's content, in one transaction.

    Call it with all else stopped: a process that knows the life that ends would go on in the new one.
    `data` is where the site's file sets usually lie: the clock begins above what is there too, since the backup may
    not know all of them. `catalog` has the schema of this program. Raises `BadBackup`, and `CatalogInUse` unless it is
    empty or `replace` is given. Ended in the middle, it has done nothing, or lacks only the end of runs, which a second
    restore, or any runner's reaper after their leases, makes up for.
    """
    backup = check_backup(catalog.world, path)
    if backup.schema_version != (version := read_version(catalog)):
        why = f"its schema version is {backup.schema_version}, that of this program {version}"
        raise BadBackup(str(path), f"{why}: restore it with the tidemill that made it, then `tidemill catalog migrate`")
    if not replace and catalog.read(lambda db: db.all(SQL.has_content)):
        raise CatalogInUse(catalog.shown_url)
    incarnation = catalog.world.token(_INCARNATION_CHARACTERS)
    before = catalog.read(lambda db: db.records(SQL.read_clock, int)[0])

    def begin_life(db: Db) -> tuple[int, int]:
        in_storage = max(_find_pointers(catalog, db, data), default=0)
        ticks = db.records(SQL.find_greatest_tick, int)[0]
        clock = max(before, backup.clock, ticks, in_storage) + 1
        db.all(SQL.set_clock, clock=clock)
        db.run(SQL.begin_life, incarnation=incarnation)
        db.run(SQL.name_garbage, incarnation=backup.incarnation)
        ended = db.run(SQL.end_open, reason=_REASON)
        db.run(SQL.forget_declarations)
        if note is not None:
            lives = {"incarnation": catalog.incarnation, "clock": before}, {"incarnation": incarnation, "clock": clock}
            note.between(*lives).write(db)
        return clock, ended

    catalog.world.mark("restore.before_replace")
    clock, ended = catalog.replace(lambda: read_backup(catalog.world, path), begin_life)
    catalog.incarnation = incarnation
    catalog.world.mark("restore.replaced")
    runs = end_attempts(catalog)
    return Restored(backup, clock, incarnation, ended, runs)


def end_attempts(catalog: Catalog) -> int:
    """End the attempts that were under way in another life, as lost; return their number.

    Programs' runs are tried again. Workflows go on with the runs of their nodes.
    """
    end = AttemptEnd(Cause.LOST, _REASON, zombie=True)
    ended = [end_attempt(catalog, run.run_id, run.epoch, end) for run in catalog.read(list_live)]
    return sum(state is not None for state in ended)


def _find_pointers(catalog: Catalog, db: Db, data: str | None) -> Iterable[int]:
    locations = {fileset.dataset.location for fileset in _filesets(db)}
    if data is not None:
        top = open_files(data, catalog.world)
        namespaces = [open_files(top.url_of(name), catalog.world) for name in top.list_folders()]
        locations |= {namespace.url_of(name) for namespace in namespaces for name in namespace.list_folders()}
    for location in sorted(locations):
        yield from (snapshot.write_pointer for snapshot in list_snapshots(catalog.world, location))


def _filesets(db: Db) -> list[Fileset]:
    return [Fileset.of(dataset) for dataset in list_datasets(db) if dataset.kind is not DatasetKind.INBOX]


def adopt(catalog: Catalog, note: Callable[[], NoteChange] | None = None) -> Adopted:
    """Publish again what other lives of the catalog have committed, oldest commit first, each whole, as new.

    The files stay where they are; consumers get them, again if they had them before. What cannot be adopted is left,
    and reported. So is a partition that this life has written already, because an older overwrite would hide the new
    work. A repeated call continues where the previous one stopped. Each transaction takes a `note` along. Cost: all
    locations of all file sets are read.
    """
    adoptable: list[tuple[Directory, Fileset]] = []
    left: list[NotAdopted] = []
    for fileset in catalog.read(_filesets):
        for directory in find_unnamed(catalog, fileset)[0]:
            if directory.kind is DirectoryKind.ADOPTABLE:
                adoptable.append((directory, fileset))
            elif directory.kind is DirectoryKind.QUARANTINED:
                left.append(NotAdopted(directory.dataset, directory.name, "it is not marked as committed"))
    adoptable.sort(key=lambda one: (one[0].commit_seq or 0, one[0].name))
    transactions = partitions = rows = 0
    for name, grouped in groupby(adoptable, key=lambda one: one[0].name):
        group = list(grouped)
        try:
            writes = [(fileset, _read_content(catalog.world, fileset, directory)) for directory, fileset in group]
            content = {fileset.qualified_name: len(written.changes) for fileset, written in writes}
            also = [] if note is None else [note().between(None, {"directory": name, "partitions": content})]
            _publish(catalog, name, writes, also)
        except TidemillError as error:
            left += [NotAdopted(directory.dataset, name, str(error)) for directory, _ in group]
            continue
        transactions += 1
        partitions += sum(len(written.changes) for _, written in writes)
        rows += sum(change.manifest.total_rows for _, written in writes for change in written.changes)
        catalog.world.mark("adopt.adopted")
    return Adopted(transactions, partitions, rows, tuple(left))


class _Written(NamedTuple):
    """Content of a transaction of another life. What was `quiet` then was delivered to no consumer."""

    changes: list[PartitionWrite]
    schema: ColumnSchema | None
    quiet: bool


def _read_content(world: World, fileset: Fileset, directory: Directory) -> _Written:
    """Return what the transaction had committed to the file set, by its side-car, with all files there."""
    files = open_files(fileset.dataset.location, world)
    content = read_side_car(files, directory.snapshot)
    if content is None:
        raise NotAdoptable(directory.name, "its _manifest.json is gone, torn or of another directory")
    try:
        changes = [_read_change(fileset, directory.name, change) for change in content["changes"]]
        schema = None if content["schema"] is None else ColumnSchema(str(content["schema"]))
    except (KeyError, TypeError, ValueError) as error:
        raise NotAdoptable(directory.name, f"its _manifest.json cannot be read: {error!r}") from None
    for change in changes:
        check_files(
            files, fileset.qualified_name, partial(fileset.keys.show, change.key), directory.name, change.manifest
        )
    return _Written(changes, schema, bool(content.get("quiet")))


def _read_change(fileset: Fileset, directory: str, change: Mapping[str, Any]) -> PartitionWrite:
    key = fileset.keys.decode(KeyText(str(change["key"])))
    manifest = Manifest(tuple(DataFile.of(file) for file in change["files"]))
    return PartitionWrite(key, WriteOp(change["op"]), manifest, change.get("metadata", {}), location=directory)


def _publish(
    catalog: Catalog,
    directory: str,
    writes: Sequence[tuple[Fileset, _Written]],
    also: Sequence[Effect],
) -> None:
    """Commit what a transaction of another life had committed, in one of this, under a run of its own."""
    world = catalog.world
    run_id = RunId(world.new_id("run"))
    host, pid = world.spawner.host(), world.spawner.pid()
    owner, cause = f"{host}:{pid}", {"asked": "by an adoption"}
    quiet = {"quiet": True} if any(written.quiet for _, written in writes) else {}  # all, since they are of one run
    catalog.write(
        lambda db: create_external(db, run_id, owner=owner, host=host, pid=pid, lease=LEASE, cause={**cause, **quiet})
    )
    try:
        tx = begin(
            catalog,
            run_id=run_id,
            epoch=1,
            writes=[fileset.dataset_id for fileset, _ in writes],
            effects=[AttachTransaction(run_id, 1), OrderRefreshes([fileset for fileset, _ in writes])],
        )
        effects: list[Effect] = []
        for fileset, written in writes:
            _refuse_newer(catalog, fileset, written.changes, tx, directory)
            effects += _readd(catalog, fileset, written, tx)
        finish = FinishRun(run_id, 1, "", {"adopted": directory})
        world.mark("adopt.before_commit")
        commit(catalog, tx, [*effects, finish, *also])
    except TidemillError as error:
        end_attempt(catalog, run_id, 1, AttemptEnd(Cause.FAILED, f"{error.code}: {error}"))
        raise


def _readd(catalog: Catalog, fileset: Fileset, written: _Written, tx: Transaction) -> list[Effect]:
    changes, schema, quiet = written
    if fileset.dataset.kind is DatasetKind.SNAPSHOT:
        (change,) = changes
        assert schema is not None, "a refresh has columns, if no rows"  # noqa: S101
        before = _read_order(catalog, fileset, change.location or "")
        now = catalog.read(lambda db: find_order(db, fileset.dataset_id, tx))
        order = RefreshOrder(before.logical_time, now.order_time)
        snapshot = SnapshotDataset.of(fileset.dataset)
        return [PublishVersion(tx, snapshot, change.manifest, schema, order, change.location, quiet=quiet)]
    existing = catalog.read(lambda db: find_existing(db, fileset, changes, tx))
    base = catalog.read(lambda db: find_schema(db, fileset.dataset_id))
    if schema and base and fileset.storing.policy is SchemaPolicy.EVOLVE:
        # The new life may be further: columns never go.
        schema = evolve(base, schema) or schema
    known = catalog.read(lambda db: find_known_times(db, fileset, (change.key for change in changes)))
    return publish_partitions(tx, fileset, changes, schema, existing, base=base, known=known, quiet=quiet)


def _refuse_newer(
    catalog: Catalog, fileset: Fileset, changes: Sequence[PartitionWrite], tx: Transaction, directory: str
) -> None:
    """New work on a partition must not be hidden by an older overwrite that is adopted after it."""
    overwritten = {
        fileset.keys.encode(change.key) for change in changes if change.op in {WriteOp.OVERWRITE, WriteOp.DROP}
    }
    if not overwritten:
        return
    snapshot = Snapshot(tx.write_pointer, tx.incarnation)
    for partition in catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot)):
        own = any(change.location.endswith(f"-{catalog.incarnation}") for change in partition.changes)
        if own and partition.partition_key in overwritten:
            shown = fileset.show(partition.partition_key)
            raise NotAdoptable(directory, f"it overwrites {shown}, which was written again since the restore")
        if fileset.dataset.kind is DatasetKind.SNAPSHOT:
            # Of the same life: the later one in the order of refreshes was current there, whichever committed last.
            location = partition.changes[-1].location
            current, older = find_snapshot(location), find_snapshot(directory)
            if current and older and current.incarnation == older.incarnation:
                orders = [_read_order(catalog, fileset, name).order_time for name in (location, directory)]
                if sort_key(orders[0], current.write_pointer) > sort_key(orders[1], older.write_pointer):
                    raise NotAdoptable(directory, "a later refresh was current then, and is again")


def _read_order(catalog: Catalog, fileset: Fileset, directory: str) -> RefreshOrder:
    """Return the order of a refresh in the life that made it, as its side-car says."""
    found = find_snapshot(directory)
    content = read_side_car(open_files(fileset.dataset.location, catalog.world), found) if found else None
    return read_plain(RefreshOrder, (content or {}).get("order", {}))
