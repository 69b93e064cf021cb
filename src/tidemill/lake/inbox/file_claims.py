"""Files of inboxes that runs hold: claimed for one run, through all its attempts, until its commit closes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Param, Statement, load_sql
from tidemill.catalog.transactions import Transaction, TransactionEnded, find_transaction
from tidemill.lake.claims import ClaimTable, find_held
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.suspects import HALVE_AFTER, halve
from tidemill.names import DatasetId, RunId
from tidemill.shapes.formats import blame
from tidemill.storage.locations import path_for_readers

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
    """Checksum of the content that the attempt was given. None until a program has read the file."""


class _Located(NamedTuple):
    """File of a run, with the location of its inbox."""

    location: str
    file: ClaimedFile


def claim_files(
    catalog: Catalog, tx: Transaction, inboxes: Iterable[Inbox], beside: Sequence[ClaimTable] = ()
) -> list[ClaimedFile]:
    """The files that this attempt of the run works on, oldest first: to be called once, after its begin.

    `inboxes` are all that the run reads. The first attempt claims what waits there; a later one has the run's claims.
    If one of them failed twice or more, only the first half is kept and the rest returned, until the one that makes
    the program fail is alone. A file that an error has named is alone at once. No two runs ever hold the same file,
    nor two contents of one name. Raises `TransactionEnded` when the attempt is fenced. Cost: what is claimed.

    `beside` are the tables of claims that the run has taken before. Beside such a claim no file that failed twice or
    more is claimed or kept, and none at all when the claim failed as often: else neither would ever fail alone. Such
    files wait for a run that finds nothing else.
    """
    ordered = sorted(inboxes, key=lambda inbox: inbox.dataset_id)

    def block(db: Db) -> list[ClaimedFile]:
        owner = db.one(SQL.lock_owner, write_pointer=tx.write_pointer, run_id=tx.run_id, epoch=tx.epoch)
        if owner is None:
            row = find_transaction(db, tx.write_pointer)
            raise TransactionEnded(str(tx.write_pointer), row.state, row.reason or "")
        worst = worst_beside(db, tx.run_id, beside)
        held = db.records(SQL.select_claims, ClaimedFile, run_id=tx.run_id)
        if held:
            kept = _isolate(_fit_beside(worst, held))
            if len(kept) < len(held):
                _move(db, SQL.return_others, kept, run_id=tx.run_id)
            return kept
        return claim_waiting(db, tx.run_id, tx.epoch, ordered, worst)

    claimed = catalog.write(block)
    catalog.world.mark("claim_files.after_commit")
    return claimed


def worst_beside(db: Db, run_id: RunId, beside: Sequence[ClaimTable]) -> int | None:
    """Return the most failures of a claim that the run holds in these tables; None if the run holds none."""
    others = [find_held(db, table, run_id) for table in beside]
    return max((one.failures for one in others if one.claims), default=None)


def claim_waiting(
    db: Db, run_id: RunId, epoch: int, inboxes: Iterable[Inbox], worst: int | None = None
) -> list[ClaimedFile]:
    """Claim files of the inboxes (in order of their ids) that a run may process together, oldest first.

    `worst` is the most failures of another claim that the run holds. None if the run holds none.
    """
    waiting = [file for inbox in inboxes for file in _select_claimable(db, inbox)]
    ordered = sorted(waiting, key=lambda file: (file.modified_at, file.dataset_id, file.name))
    kept = _isolate(_fit_beside(worst, ordered))
    if kept:
        _move(db, SQL.claim, kept, run_id=run_id, epoch=epoch)
    return kept


def _select_claimable(db: Db, inbox: Inbox) -> list[ClaimedFile]:
    """Return the files of the inbox that one run may take, locked."""
    most = min(inbox.spec.max_files or MOST_FILES, MOST_FILES)
    waiting = db.records(SQL.select_claimable, ClaimedFile, dataset_id=inbox.dataset_id, limit=most)
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


def _fit_beside(worst: int | None, files: list[ClaimedFile]) -> list[ClaimedFile]:
    """Return the files that may go with the run's other claims. `worst` is None if the run has none."""
    if worst is None:
        return files
    if worst >= HALVE_AFTER:
        return []
    return [file for file in files if file.failures < HALVE_AFTER]


def _isolate(files: list[ClaimedFile]) -> list[ClaimedFile]:
    """Return the files that one attempt may process together, so that a file that always fails ends up alone."""
    if files and files[0].alone:
        return files[:1]
    together = [file for file in files if not file.alone]
    if any(file.failures >= HALVE_AFTER for file in together):
        return halve(together)[0]
    return together


def read_claims(db: Db, run_id: RunId) -> list[ClaimedFile]:
    """Return the files that the run holds, of all inboxes, oldest first. Empty if the run has ended."""
    return db.records(SQL.select_claims, ClaimedFile, run_id=run_id)


def hand_over_files(db: Db, run_id: RunId, heir: RunId) -> None:
    """Hand the files that a run holds to another run, for its first attempt."""
    db.run(SQL.hand_over, run_id=run_id, heir=heir)


def find_claimed_inboxes(db: Db, run_id: RunId) -> list[DatasetId]:
    """The inboxes of which the run holds files."""
    return [DatasetId(str(row[0])) for row in db.all(SQL.select_claimed_inboxes, run_id=run_id)]


def find_blamed(db: Db, run_id: RunId, error: str) -> ClaimedFile | None:
    """Find the file of the run that `error` (the whole text, with causes) could not read.

    None if `error` names none.
    """
    held = db.records(SQL.select_claimed_names, _Located, run_id=run_id)
    found = blame(error, held, lambda one: path_for_readers(one.location, one.file.name))
    return None if found is None else found.file
