"""Claims of inbox files for external workflow engines: seed 004's two calls, to claim files and to close them.

A claim is a run of kind external with a lease. A caller that works longer renews the lease. Files that are not closed
when the lease ends become NEW again. The claim's id alone identifies the holder, so that several steps of a workflow
can share a claim. Once the claim has ended, every call with its id is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db, write_effects
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.errors import Conflict, UserError
from tidemill.lake.backlog import Announce
from tidemill.lake.datasets import find_by_id
from tidemill.lake.inbox.file_checks import FileOutcome, failed, find_changed, returned, succeeded, verify_claims
from tidemill.lake.inbox.file_claims import MOST_FILES, ClaimedFile, claim_waiting, read_claims
from tidemill.lake.inbox.file_endings import INBOXES, CloseFiles
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.names import DatasetId, RunId, advise
from tidemill.run.records.runs import Cause, RunKind, RunState, create_external, find_run
from tidemill.run.step.attempts import SQL as ATTEMPTS
from tidemill.run.step.attempts import AttemptEnd, RunTaken, end_attempt, renew
from tidemill.storage.files import StorageUnavailable

if TYPE_CHECKING:
    from tidemill.run.step.outside_claims_sql import Sql

SQL: Sql = load_sql(__file__)

CLAIM_LEASE: Final = timedelta(minutes=10)
_EPOCH: Final = 1  # a claim has one attempt
_CLOSING: Final = (FileState.SUCCESS, FileState.ERROR, FileState.NEW)


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that a claim holds; `failures` are those of earlier tries."""

    name: str
    url: str
    bytes: int
    modified_at: datetime
    etag: str
    failures: int


@dataclass(frozen=True, slots=True)
class FileClaim:
    """Files of one inbox that no other run gets while the claim lasts. `claim_id` is empty if there are none."""

    claim_id: RunId
    inbox: str
    files: tuple[GivenFile, ...]


class NotClaimed(Conflict):
    """A file that the claim does not hold: never did, or has closed otherwise."""

    code = "not_claimed"
    hint = "name a file of the claim: `tidemill inbox claim` gave their names"

    def __init__(self, claim_id: str, name: str, held: Sequence[str]) -> None:
        self.claim_id = claim_id
        self.name = name
        super().__init__(f"{claim_id} does not hold file {name!r}, but {len(held)} others", advise(name, held))


def get_latest_files(
    catalog: Catalog,
    inbox: Inbox,
    *,
    limit: int = 1000,
    lease: timedelta = CLAIM_LEASE,
    owner: str = "",
    earlier: RunId | None = None,
    also: Callable[[RunId], Sequence[Effect]] = lambda _: (),
) -> FileClaim:
    """Claim the oldest files of the inbox that wait, new ones and those in ERROR whose time has come.

    No two claims, and no claim and run, ever hold the same file. As for runs, a file that failed twice comes with ever
    fewer others, and one that was blamed by name comes alone. What is not there any more is left out, and closed.

    The transaction takes along what `also` gives for the id of the claim. `earlier` is the claim of an earlier try of
    the same request: as long as it lasts, its files are given again.
    """
    world = catalog.world
    run_id = RunId(world.new_id("run"))
    most = min(limit, inbox.spec.max_files or MOST_FILES)
    if not 1 <= limit <= MOST_FILES:
        raise UserError(f"a claim takes 1 to {MOST_FILES} files, not {limit}")
    bounded = replace(inbox, spec=replace(inbox.spec, max_files=most))
    host, pid = world.spawner.host(), world.spawner.pid()

    def block(db: Db) -> list[ClaimedFile]:
        claimed = claim_waiting(db, run_id, _EPOCH, [bounded])
        if claimed:
            create_external(
                db,
                run_id,
                owner=owner or f"{host}:{pid}",
                host=host,
                pid=pid,
                lease=lease,
                cause={"asked": "by a claim of files", "inbox": inbox.qualified_name, "dataset_id": inbox.dataset_id},
            )
            write_effects(db, also(run_id))
        return claimed

    claimed = [] if earlier is None else catalog.read(lambda db: read_claims(db, earlier))
    if claimed and earlier is not None:
        run_id = earlier
    else:
        claimed = catalog.write(block)
    world.mark("outside.claimed")
    if not claimed:
        return FileClaim(RunId(""), inbox.qualified_name, ())
    try:
        changed = find_changed(world, inbox, claimed)
    except StorageUnavailable:
        release_claim(catalog, run_id)  # else no run gets the files until the lease ends
        raise
    if changed:
        _close(catalog, inbox, run_id, changed)
    gone = {outcome.name for outcome in changed}
    given = [_given(inbox, catalog, file) for file in claimed if file.name not in gone]
    return FileClaim(run_id if given else RunId(""), inbox.qualified_name, tuple(given))


def renew_claim(catalog: Catalog, claim_id: RunId, lease: timedelta = CLAIM_LEASE) -> None:
    """Keep the claim for `lease` from now; `RunTaken` when it has ended. One that has run out may still be renewed."""
    if not catalog.write(lambda db: renew(db, [(claim_id, _EPOCH)], lease), urgent=True):
        raise RunTaken(claim_id, str(_EPOCH), catalog.read(lambda db: find_run(db, claim_id)).state)


def update_file_status(
    catalog: Catalog,
    claim_id: RunId,
    names: Sequence[str] | None,
    status: FileState,
    *,
    error: str = "",
    also: Callable[[int], Sequence[Effect]] = lambda _: (),
) -> int:
    """Close files of a claim (all that it still holds when None); how many it holds afterwards.

    SUCCESS: processed; refused with `FileRewritten` when the file has changed since it was claimed. ERROR: to be tried
    again after the inbox's wait; one that failed alone, and too often, is QUARANTINED. NEW: returned. With its last
    file the claim ends. Called again, it changes nothing. `RunTaken` when the claim has
    ended otherwise, `NotClaimed`. The transaction takes along what `also` gives for the result.
    """
    if status not in _CLOSING:
        raise UserError(f"a claimed file becomes {', '.join(_CLOSING)}, not {status}")
    inbox = catalog.read(lambda db: _find_inbox(db, claim_id))
    return close_claim(catalog, inbox, claim_id, names, status, error, also)


def close_claim(
    catalog: Catalog,
    inbox: Inbox,
    claim_id: RunId,
    names: Sequence[str] | None,
    status: FileState,
    error: str = "",
    also: Callable[[int], Sequence[Effect]] = lambda _: (),
) -> int:
    """`update_file_status` of a claim on `inbox`."""
    held = {file.name: file for file in catalog.read(lambda db: read_claims(db, claim_id))}
    wanted = list(held) if names is None else list(dict.fromkeys(names))
    closing = [held[name] for name in wanted if name in held]
    _check_closed(catalog, inbox, claim_id, [name for name in wanted if name not in held], status, list(held))
    left = len(held) - len(closing)
    if closing:
        if status is FileState.SUCCESS:
            verify_claims(catalog.world, [inbox], closing)
        outcomes = [_outcome(inbox, file, status, error, len(closing)) for file in closing]
        _close(catalog, inbox, claim_id, outcomes, also(left))
    return left


def release_claim(catalog: Catalog, claim_id: RunId, also: Sequence[Effect] = ()) -> RunState:
    """Return all files of the claim as new, with `also`; return the state of its run afterwards."""
    catalog.read(lambda db: _find_inbox(db, claim_id))
    ended = end_attempt(catalog, claim_id, _EPOCH, AttemptEnd(Cause.KILLED, "released"), also)
    return ended or catalog.read(lambda db: find_run(db, claim_id)).state


def _close(
    catalog: Catalog, inbox: Inbox, claim_id: RunId, outcomes: Sequence[FileOutcome], also: Sequence[Effect] = ()
) -> None:
    catalog.world.mark("outside.before_close")
    effects: list[Effect] = [
        CloseFiles(claim_id, _EPOCH, tuple(outcomes), some=True),
        _FinishClaim(claim_id, catalog.world.spawner.host()),
        Announce(INBOXES, [inbox.dataset_id]),
        *also,
    ]
    catalog.apply(effects)
    catalog.world.mark("outside.after_close")


@dataclass(frozen=True, slots=True)
class _FinishClaim(Effect):
    """The claim's run is COMPLETED if it holds nothing any more."""

    phase = Phase.FILES

    run_id: RunId
    closed_by: str

    def guards(self) -> Sequence[Call]:
        return (ATTEMPTS.refuse_unless_running(run_id=self.run_id, epoch=_EPOCH),)

    def writes(self) -> Sequence[Call]:
        facts = json.dumps({"closed_by": self.closed_by})
        params: dict[str, Param] = {"run_id": self.run_id, "epoch": _EPOCH, "facts": facts}
        return (SQL.complete_claim(**params),)


def _find_inbox(db: Db, claim_id: RunId) -> Inbox:
    """The inbox of a claim; `UserError` for a run that is none, `NotFound`."""
    run = find_run(db, claim_id)
    dataset_id = run.triggered_by.get("dataset_id")
    if run.kind is not RunKind.EXTERNAL or not isinstance(dataset_id, str):
        raise UserError(f"{claim_id} is no claim of files, but a run: `tidemill run show {claim_id}`")
    return Inbox.of(find_by_id(db, DatasetId(dataset_id)))


def _check_closed(
    catalog: Catalog, inbox: Inbox, claim_id: RunId, names: Sequence[str], status: FileState, held: Sequence[str]
) -> None:
    """Let pass what an earlier call of the same kind has closed; raise why the rest is not held."""
    run = catalog.read(lambda db: find_run(db, claim_id))
    if run.state.ended and run.state is not RunState.COMPLETED:
        raise RunTaken(claim_id, str(_EPOCH), run.state)
    if not names:
        return
    rows = catalog.read(
        lambda db: db.all(SQL.find_closed, dataset_id=inbox.dataset_id, run_id=claim_id, names=json.dumps(names))
    )
    closed: Mapping[str, str] = {str(name): str(state) for name, state in rows}
    same = {FileState.ERROR: {FileState.ERROR, FileState.QUARANTINED}}.get(status, {status})
    for name in names:
        if closed.get(name) not in same:
            raise NotClaimed(claim_id, name, held)


def _outcome(inbox: Inbox, file: ClaimedFile, status: FileState, error: str, together: int) -> FileOutcome:
    match status:
        case FileState.SUCCESS:
            return succeeded(file)
        case FileState.NEW:
            return returned(file)
        case _:
            # Of several that fail together most are innocent: they come again, and ever fewer of them together.
            return failed(inbox, file, error or "failed, as the engine outside says", alone=together == 1)


def _given(inbox: Inbox, catalog: Catalog, file: ClaimedFile) -> GivenFile:
    url = inbox.files(catalog.world).url_of(file.name)
    return GivenFile(file.name, url, file.bytes, file.modified_at, file.etag, file.failures)
