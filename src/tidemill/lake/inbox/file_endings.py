"""Endings of the files that a run holds, at each end of an attempt, and the backlog of inboxes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.records import to_json
from tidemill.errors import Fenced
from tidemill.lake.backlog import Backlog
from tidemill.lake.claims import Blamed, ClaimTable
from tidemill.lake.inbox.file_checks import FileOutcome
from tidemill.lake.inbox.file_claims import SQL as CLAIMS
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.names import RunId

if TYPE_CHECKING:
    from tidemill.lake.inbox.file_endings_sql import Sql

SQL: Sql = load_sql(__file__)


@refusal
class ClaimsLost(Fenced):
    """The commit closes other files than the run holds: another attempt took the claims, or some were forgotten."""

    code = "claims_lost"

    def __init__(self, run_id: str, closing: str, held: str) -> None:
        self.run_id = run_id
        self.closing = int(closing)
        self.held = int(held)
        super().__init__(f"run {run_id}", f"it closes {closing} files of inboxes and holds {held} claims")


@dataclass(frozen=True, slots=True)
class CloseFiles(Effect):
    """End the claims of a run, each with its own outcome; `ClaimsLost` if they are not its own.

    `some` leaves the run its other claims. Else the outcomes must be those of all that the run holds.
    """

    phase = Phase.FILES

    run_id: RunId
    epoch: int
    outcomes: tuple[FileOutcome, ...]
    some: bool = False

    def guards(self) -> Sequence[Call]:
        """Refuse files that the attempt does not hold."""
        guard = SQL.guard_some if self.some else SQL.guard_claims
        return (guard(**self._closing, files=len(self.outcomes)),)

    def writes(self) -> Sequence[Call]:
        """Close the files; what succeeded becomes input of the run."""
        params = self._closing
        calls = [SQL.insert_inputs(run_id=self.run_id, outcomes=params["outcomes"]), SQL.close_files(**params)]
        skipped = sorted({outcome.dataset_id for outcome in self.outcomes if outcome.status is FileState.SKIPPED})
        return [*calls, SQL.note_skipped(dataset_ids=json.dumps(skipped))] if skipped else calls

    @property
    def _closing(self) -> dict[str, Param]:
        rows = [asdict(one) for one in self.outcomes]
        return {"run_id": self.run_id, "epoch": self.epoch, "outcomes": to_json(rows)}


@dataclass(frozen=True, slots=True)
class NoteContents(Effect):
    """Record the contents that an attempt was given, of files that the run keeps."""

    phase = Phase.FILES

    run_id: RunId
    epoch: int
    files: tuple[ClaimedFile, ...]

    def writes(self) -> Sequence[Call]:
        """Set the etags and checksums."""
        contents = to_json([asdict(file) for file in self.files])
        return (SQL.note_contents(run_id=self.run_id, epoch=self.epoch, contents=contents),)


FILES: Final = ClaimTable(
    phase=Phase.FILES,
    find_held=CLAIMS.find_held,
    refuse_if_moved=CLAIMS.refuse_if_moved,
    restamp=CLAIMS.restamp,
    complete=(),
    count_failure=SQL.count_failure,
    fail_blamed=SQL.fail_blamed,
    give_up=SQL.quarantine,
    gives_up_early=True,
    return_claims=SQL.return_files,
)
"""Claims of files. `CloseFiles` completes them. A file that fails alone leaves its run for quarantine at once."""


def blame_file(file: ClaimedFile, error: str, *, alone: bool = True) -> Blamed:
    """Blame a file for a failure."""
    return Blamed(FILES, {"dataset_id": file.dataset_id, "name": file.name}, error, alone)


def retry_files(db: Db, inbox: Inbox, names: Sequence[str]) -> int:
    """Try files in ERROR again now, all when no names are given, and return their number. The keeper announces them.

    A file that was ignored is tried again if it is named: as a released one, unless it was replaced meanwhile.
    """
    if not names:
        return db.run(SQL.retry_all, dataset_id=inbox.dataset_id)
    failed = db.run(SQL.retry_named, dataset_id=inbox.dataset_id, names=json.dumps(names))
    return failed + _deliver_alone(db, inbox, names, FileState.IGNORED)


def ignore_quarantined(db: Db, inbox: Inbox, names: Sequence[str]) -> int:
    """Ignore these files in quarantine, and return their number: no run gets them, and no rule counts them."""
    return db.run(SQL.ignore_quarantined, dataset_id=inbox.dataset_id, names=json.dumps(names))


def release_quarantined(db: Db, inbox: Inbox, names: Sequence[str]) -> int:
    """Give these files in quarantine another chance, each by itself; how many. What was replaced meanwhile stays."""
    return _deliver_alone(db, inbox, names, FileState.QUARANTINED)


def _deliver_alone(db: Db, inbox: Inbox, names: Sequence[str], state: FileState) -> int:
    return db.run(SQL.deliver_alone, dataset_id=inbox.dataset_id, names=json.dumps(names), status=state)


INBOXES: Final = Backlog(
    phase=Phase.FILES,
    publish=SQL.publish_backlog,
    postpone=SQL.postpone,
    find_next_due=SQL.find_next_due,
    find_due=SQL.find_due,
    clear_due=SQL.clear_due,
)
"""The files that wait, by the ids of their inboxes."""
