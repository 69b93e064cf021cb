"""Files of inboxes that runs hold: claimed for one run, through all its attempts, until its commit closes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, Row, Statement, load_sql
from tidemill.catalog.transactions import Transaction, TransactionEnded, find_transaction
from tidemill.epoch import from_ms
from tidemill.lake.formats import blame
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.suspects import HALVE_AFTER, halve
from tidemill.names import DatasetId, RunId
from tidemill.storage.files import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.lake.inbox.file_claims_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_FILES: Final = 10_000
"""In one claim."""


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file that a run has claimed: what was claimed, so that the commit can tell whether that is what was read."""

    dataset_id: DatasetId
    name: str
    content_version: str
    etag: str
    bytes: int
    modified_at: datetime
    failures: int
    alone: bool = False
    checksum: str | None = None
    """Of the content that the attempt was given; None until somebody has read it."""


def claim_files(catalog: Catalog, tx: Transaction, inboxes: Iterable[Inbox]) -> list[ClaimedFile]:
    """The files that this attempt of the run works on, oldest first: to be called once, after its begin.

    `inboxes` are all that the run reads. The first attempt claims what waits there; a later one has the run's claims.
    If one of them failed twice or more, only the first half is kept and the rest returned, until the one that makes
    the program fail is alone. A file that an error has named is alone at once. No two runs ever hold the same file,
    nor two contents of one name. Raises `TransactionEnded` when the attempt is fenced. Cost: what is claimed.

    Call it after `take_claims`: beside the run's partitions no file that failed twice or more is claimed or kept, and
    none at all when that is so of a partition, else neither kind would ever fail alone. Such files wait for a run that
    finds no partitions.
    """
    ordered = sorted(inboxes, key=lambda inbox: inbox.dataset_id)

    def block(db: Db) -> list[ClaimedFile]:
        owner = db.one(SQL.lock_owner, write_pointer=tx.write_pointer, run_id=tx.run_id, epoch=tx.epoch)
        if owner is None:
            row = find_transaction(db, tx.write_pointer)
            raise TransactionEnded(str(tx.write_pointer), row.state, row.reason or "")
        beside = cast("int | None", db.all(SQL.find_worst_partition, run_id=tx.run_id)[0][0])
        held = [_claimed(row) for row in db.all(SQL.select_claims, run_id=tx.run_id)]
        if held:
            kept = _isolate(_fit_beside(beside, held))
            if len(kept) < len(held):
                _move(db, SQL.return_others, kept, run_id=tx.run_id)
            return kept
        return claim_waiting(db, tx.run_id, tx.epoch, ordered, beside)

    claimed = catalog.write(block)
    catalog.world.mark("claim_files.after_commit")
    return claimed


def claim_waiting(
    db: Db, run_id: RunId, epoch: int, inboxes: Iterable[Inbox], worst_partition: int | None = None
) -> list[ClaimedFile]:
    """What of the inboxes (in order of their ids) waits and may be worked on together, claimed for a run; oldest first.

    `worst_partition`: the most failures of a partition that the run holds beside; None when it has none.
    """
    waiting = [file for inbox in inboxes for file in _select_claimable(db, inbox)]
    ordered = sorted(waiting, key=lambda file: (file.modified_at, file.dataset_id, file.name))
    kept = _isolate(_fit_beside(worst_partition, ordered))
    if kept:
        _move(db, SQL.claim, kept, run_id=run_id, epoch=epoch)
    return kept


def _select_claimable(db: Db, inbox: Inbox) -> list[ClaimedFile]:
    """What of the inbox one run may take, locked."""
    most = min(inbox.spec.max_files or MOST_FILES, MOST_FILES)
    waiting = [_claimed(row) for row in db.all(SQL.select_claimable, dataset_id=inbox.dataset_id, limit=most)]
    # Two contents of a name can wait: one returned while the other was being recorded. The later one is there.
    files = list({file.name: file for file in waiting}.values())
    if inbox.spec.max_bytes is None:
        return files
    sizes = itertools.accumulate(file.bytes for file in files)
    return [file for file, size in zip(files, sizes, strict=True) if size <= inbox.spec.max_bytes] or files[:1]


def _move(db: Db, statement: Statement[...], files: Iterable[ClaimedFile], **owner: Param) -> None:
    rows = [
        {"dataset_id": file.dataset_id, "name": file.name, "content_version": file.content_version} for file in files
    ]
    db.run(statement, files=json.dumps(rows), **owner)


def _fit_beside(worst_partition: int | None, files: list[ClaimedFile]) -> list[ClaimedFile]:
    """What of `files` may go with the run's partitions, of which the worst has so many failures; None: it has none."""
    if worst_partition is None:
        return files
    if worst_partition >= HALVE_AFTER:
        return []
    return [file for file in files if file.failures < HALVE_AFTER]


def _isolate(files: list[ClaimedFile]) -> list[ClaimedFile]:
    """What of `files` one attempt may work on together, so that a file that always fails ends up alone."""
    if files and files[0].alone:
        return files[:1]
    together = [file for file in files if not file.alone]
    if any(file.failures >= HALVE_AFTER for file in together):
        return halve(together)[0]
    return together


@dataclass(frozen=True, slots=True)
class RestampFiles(Effect):
    """Hand the run's claims to its new attempt `epoch`; an effect of that attempt's begin."""

    phase = Phase.FILES

    run_id: RunId
    epoch: int

    def writes(self) -> Sequence[Call]:
        """Raise the epoch of the claims."""
        return (SQL.restamp(run_id=self.run_id, epoch=self.epoch),)


def read_claims(db: Db, run_id: RunId) -> list[ClaimedFile]:
    """What the run holds, of all inboxes, oldest first: empty when none or when it has ended."""
    return [_claimed(row) for row in db.all(SQL.select_claims, run_id=run_id)]


def find_claimed_inboxes(db: Db, run_id: RunId) -> list[DatasetId]:
    """The inboxes of which the run holds files."""
    return [DatasetId(str(row[0])) for row in db.all(SQL.select_claimed_inboxes, run_id=run_id)]


def find_blamed(db: Db, world: World, run_id: RunId, error: str) -> ClaimedFile | None:
    """Which of the run's files its `error` (the whole text, with causes) says it could not read; None for none."""
    held = [(str(row[0]), _claimed(row[1:])) for row in db.all(SQL.select_claimed_names, run_id=run_id)]
    found = blame(error, held, lambda one: str(open_files(one[0], world).local_path(one[1].name) or ""))
    return None if found is None else found[1]


def _claimed(row: Row) -> ClaimedFile:
    dataset_id, name, version, etag, size, modified_at, failures, alone = cast(
        "tuple[str, str, str, str, int, int, int, int]", row
    )
    return ClaimedFile(DatasetId(dataset_id), name, version, etag, size, from_ms(modified_at), failures, bool(alone))
