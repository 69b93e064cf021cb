"""What becomes of the files that a run holds, at each end of an attempt, and how others learn of what is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.durations import to_milliseconds
from tidemill.errors import Fenced
from tidemill.lake.inbox.file_checks import FileOutcome
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.names import DatasetId, RunId
from tidemill.texts import printable

if TYPE_CHECKING:
    from tidemill.lake.inbox.file_endings_sql import Sql

SQL: Sql = load_sql(__file__)


@refusal
class ClaimsLost(Fenced):
    """What a commit closes is not what the run holds: somebody took its claims, or some were forgotten."""

    code = "claims_lost"

    def __init__(self, run_id: str, closing: str, held: str) -> None:
        self.run_id = run_id
        self.closing = int(closing)
        self.held = int(held)
        super().__init__(f"run {run_id}", f"it closes {closing} files of inboxes and holds {held} claims")


@dataclass(frozen=True, slots=True)
class CloseFiles(Effect):
    """End all of a run's claims with its commit, each with its own outcome; `ClaimsLost` if they are not its own."""

    phase = Phase.FILES

    run_id: RunId
    epoch: int
    outcomes: tuple[FileOutcome, ...]

    def guards(self) -> Sequence[Call]:
        """Exactly the run's claims are closed, by the attempt that holds them."""
        params = _closing(self.run_id, self.epoch, self.outcomes)
        return (SQL.guard_claims(**params, files=len(self.outcomes)),)

    def writes(self) -> Sequence[Call]:
        """Close the files; what succeeded becomes input of the run."""
        return _close(self.run_id, self.epoch, self.outcomes)


@dataclass(frozen=True, slots=True)
class CloseSome(Effect):
    """End some of a run's claims, and leave it the others; `ClaimsLost` if one of them is not its own."""

    phase = Phase.FILES

    run_id: RunId
    epoch: int
    outcomes: tuple[FileOutcome, ...]

    def guards(self) -> Sequence[Call]:
        """The attempt holds each of them."""
        params = _closing(self.run_id, self.epoch, self.outcomes)
        return (SQL.guard_some(**params, files=len(self.outcomes)),)

    def writes(self) -> Sequence[Call]:
        """Close the files; what succeeded becomes input of the run."""
        return _close(self.run_id, self.epoch, self.outcomes)


def _close(run_id: RunId, epoch: int, outcomes: Sequence[FileOutcome]) -> Sequence[Call]:
    params = _closing(run_id, epoch, outcomes)
    calls = [SQL.insert_inputs(run_id=run_id, outcomes=params["outcomes"]), SQL.close_files(**params)]
    skipped = sorted({outcome.dataset_id for outcome in outcomes if outcome.status is FileState.SKIPPED})
    return [*calls, SQL.note_skipped(dataset_ids=json.dumps(skipped))] if skipped else calls


def _closing(run_id: RunId, epoch: int, outcomes: Sequence[FileOutcome]) -> dict[str, Param]:
    rows = [
        asdict(outcome) | {"retry_after": None if outcome.retry_after is None else to_milliseconds(outcome.retry_after)}
        for outcome in outcomes
    ]
    return {"run_id": run_id, "epoch": epoch, "outcomes": json.dumps(rows)}


@dataclass(frozen=True, slots=True)
class BlamedFile:
    """A file that fails an attempt, with its own reason; `alone` has it tried by itself the next time."""

    file: ClaimedFile
    error: str
    alone: bool = True

    def __post_init__(self) -> None:
        """Keep of the error what the catalog can: it quotes the file."""
        object.__setattr__(self, "error", printable(self.error))


@dataclass(frozen=True, slots=True)
class QuarantineAlone(Effect):
    """Quarantine the file of a failed attempt that was alone and has failed too often.

    Stands before `ReturnClaims`: beside a partition no file is alone.
    """

    phase = Phase.CLAIMS

    run_id: RunId
    epoch: int
    error: str

    def writes(self) -> Sequence[Call]:
        """Quarantine the file."""
        return (SQL.quarantine_alone(run_id=self.run_id, epoch=self.epoch, error=self.error),)


@dataclass(frozen=True, slots=True)
class FailFiles(Effect):
    """An attempt failed by its program (never for a lost lease) and the run goes on to another.

    The files in `blamed` leave the run and wait for another try; the others are innocent. Where no file is blamed all
    are suspects (see `QuarantineAlone`).
    """

    phase = Phase.FILES

    run_id: RunId
    epoch: int
    error: str
    blamed: tuple[BlamedFile, ...] = ()

    def writes(self) -> Sequence[Call]:
        """Count the failure."""
        params: dict[str, Param] = {
            "run_id": self.run_id,
            "epoch": self.epoch,
            "error": self.error,
        }
        if not self.blamed:
            return (SQL.count_failure(**params),)
        rows = [
            {
                "dataset_id": one.file.dataset_id,
                "name": one.file.name,
                "error": one.error,
                "alone": int(one.alone),
            }
            for one in self.blamed
        ]
        owner: dict[str, Param] = {"run_id": self.run_id, "epoch": self.epoch}
        return (SQL.fail_blamed(**owner, blamed=json.dumps(rows)),)


@dataclass(frozen=True, slots=True)
class ReturnFiles(Effect):
    """Return the files of a run that ends FAILED (`error` given) or KILLED (None, which counts nothing).

    After FAILED its files are in ERROR, to be claimed again after `backoff` (the program's), doubled with each failure,
    up to an hour; with `blamed`, only those, and the others are as new (see `QuarantineAlone`).
    """

    phase = Phase.FILES

    run_id: RunId
    epoch: int
    error: str | None
    backoff: timedelta = timedelta(0)
    blamed: tuple[BlamedFile, ...] = ()

    def writes(self) -> Sequence[Call]:
        """Release the files."""
        innocent = self.error is None or bool(self.blamed)
        params: dict[str, Param] = {
            "run_id": self.run_id,
            "epoch": self.epoch,
            "failed": 0 if innocent else 1,
            "error": self.error,
            "backoff": to_milliseconds(self.backoff),
        }
        first: Sequence[Call] = ()
        if self.error is not None and self.blamed:
            first = FailFiles(self.run_id, self.epoch, self.error, self.blamed).writes()
        return (*first, SQL.return_files(**params))


def retry_files(db: Db, inbox: Inbox, names: Sequence[str]) -> int:
    """Have files in ERROR tried again now, all when no names are given; how many. The keeper announces them."""
    if not names:
        return db.run(SQL.retry_all, dataset_id=inbox.dataset_id)
    return db.run(SQL.retry_named, dataset_id=inbox.dataset_id, names=json.dumps(names))


def release_quarantined(db: Db, inbox: Inbox, names: Sequence[str]) -> int:
    """Give these files in quarantine another chance, each by itself; how many. What was replaced meanwhile stays."""
    return db.run(SQL.release_quarantined, dataset_id=inbox.dataset_id, names=json.dumps(names))


@dataclass(frozen=True, slots=True)
class PublishInboxBacklog(Effect):
    """Say for each of these inboxes that files are left, if any can be claimed now (protocol: work never sticks).

    Goes last in every commit that closes or releases files, so that it sees what they left. `schedules` are those that
    hear it, all that listen when left out.
    """

    phase = Phase.FILES

    dataset_ids: tuple[DatasetId, ...]
    schedules: Sequence[str] = ()

    def writes(self) -> Sequence[Call]:
        """One message an inbox, or none."""
        if not self.dataset_ids:
            return ()
        payload = {"schedules": sorted(self.schedules)} if self.schedules else {}
        params = {"dataset_ids": json.dumps(self.dataset_ids), "payload": json.dumps(payload)}
        return (SQL.publish_backlog(**params),)


@dataclass(frozen=True, slots=True)
class PostponeInboxBacklog(Effect):
    """Say later that files are left, if any can be claimed now: at the end of a run that could not even claim them.

    In place of `PublishInboxBacklog`, which would start the next such run at once, and so on. After `wait` at the
    soonest; the longer the oldest file has waited the later, up to an hour.
    """

    phase = Phase.FILES

    dataset_ids: tuple[DatasetId, ...]
    wait: timedelta

    def writes(self) -> Sequence[Call]:
        """Give one file of each inbox a time, which the keeper sees to."""
        wait = max(1, to_milliseconds(self.wait))
        return [SQL.postpone(dataset_id=dataset_id, wait=wait) for dataset_id in self.dataset_ids]


@dataclass(frozen=True, slots=True)
class _MarkRetries(Effect):
    phase = Phase.FILES

    dataset_ids: tuple[DatasetId, ...]

    def writes(self) -> Sequence[Call]:
        return (SQL.mark_retries(dataset_ids=json.dumps(self.dataset_ids)),)


def next_retry(db: Db) -> int | None:
    """When the next retry time comes, epoch milliseconds, maybe past; None when none is set."""
    return db.value(SQL.select_next_retry, int)


def publish_due_backlog(catalog: Catalog) -> list[DatasetId]:
    """Announce files whose retry time has come, once; give the inboxes. A step of the keeper; cost: what is due."""
    due = tuple(DatasetId(str(row[0])) for row in catalog.read(lambda db: db.all(SQL.select_due_retries)))
    if due:
        catalog.world.mark("backlog.before_retries")
        catalog.apply([_MarkRetries(due), PublishInboxBacklog(due)])
    return list(due)
