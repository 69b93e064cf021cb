"""Inboxes, as `Mill` offers them: their files, looking for new ones, claims by other workflow engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.durations import format_duration, parse_lease
from tidemill.errors import UserError
from tidemill.lake.datasets import DatasetKind, find_some
from tidemill.lake.expectations import Expectation, find_expectations
from tidemill.lake.inbox import inbox
from tidemill.lake.inbox.s3_events import find_name, read_events
from tidemill.mill.arrivals import DAY, ArrivalsView, count_arrivals
from tidemill.mill.lineage import DEPTH, NODES, Lineage, read_bounds
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, one_more, read_name
from tidemill.mill.project import Noun
from tidemill.mill.why_work import explain_readers, list_readers
from tidemill.names import DatasetId, RunId, advise
from tidemill.run.records.runs import RunState, find_run
from tidemill.storage.file_names import check_file_names
from tidemill.storage.files import StorageUnavailable

if TYPE_CHECKING:
    from tidemill.mill.datasets import DatasetView
    from tidemill.run.step.outside_claims import FileClaim

_CLAIM_LEASE: Final = "10m"


@dataclass(frozen=True, slots=True)
class ScanView:
    """Result of a scan of an inbox. The last three numbers count since the inbox was made."""

    inbox: str
    found: tuple[str, ...]
    bytes: int
    ignored: tuple[tuple[str, str], ...]
    held_back: tuple[tuple[str, str], ...]
    unusable: tuple[tuple[str, str], ...]
    """Names that can never be processed, each with the reason."""
    reconciled: bool
    forgotten: int
    away: tuple[tuple[str, int], ...]
    """Folders that this reconciliation has missed, each with the number of its files, which stay known."""
    warning: str | None
    late_in_all: int
    only_reconciled_in_all: int
    longest_late: str


@dataclass(frozen=True, slots=True)
class EventsView:
    """Result of events about an inbox: `found` are the names of files that were recorded as new.

    `held_back` are files whose writers may not have finished: the next listing, due at once, looks at them again.
    `ignored` are the other objects that the events name, and the parts of the body that are no events. Each has its
    reason.
    """

    inbox: str
    events: int
    found: tuple[str, ...]
    held_back: tuple[tuple[str, str], ...]
    ignored: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InboxView:
    """An inbox as the catalog knows it: files and bytes by state, and what its last listing could not use.

    `unusable` are names that can never be processed: the reason, how many, and one of them.
    """

    inbox: str
    location: str
    files: Mapping[str, int]
    bytes: Mapping[str, int]
    unusable: tuple[tuple[str, int, str], ...]
    reconciled_at: datetime | None
    late_in_all: int
    only_reconciled_in_all: int
    longest_late: str
    expectation: Expectation | None
    """The arrival expectation, if the inbox declares one."""


@dataclass(frozen=True, slots=True)
class ReprocessView:
    """Files that are delivered again; `may_double` are the programs that read the inbox and publish data sets.

    Such a program publishes rows a second time, unless it overwrites its partitions or leaves out duplicates.
    """

    inbox: str
    files: int
    may_double: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """The reasons why NEW files of an inbox wait: one sentence for each program that reads the inbox."""

    inbox: str
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleasedFiles:
    """The number of files that were released from quarantine."""

    inbox: str
    released: int


@dataclass(frozen=True, slots=True)
class IgnoredFiles:
    """The number of files in quarantine that are ignored from now on."""

    inbox: str
    ignored: int


@dataclass(frozen=True, slots=True)
class RetriedFiles:
    """The number of files that are retried now."""

    inbox: str
    retried: int


@dataclass(frozen=True, slots=True)
class ClosedFiles:
    """A claim of which files were closed; `left` is the number of files that the claim still holds."""

    claim_id: RunId
    status: str
    left: int


@dataclass(frozen=True, slots=True)
class RenewedClaim:
    """A claim that is kept for `lease` from now."""

    claim_id: RunId
    lease: str


@dataclass(frozen=True, slots=True)
class ReleasedClaim:
    """A claim whose open files were returned, and the state of its run."""

    claim_id: RunId
    state: str


class Inboxes(Noun):
    """Operations on inboxes, among them claims of files by other workflow engines."""

    noun = "inbox"

    @operation(Right.READ)
    def list(self, *, app: str | None = None, limit: int = PAGE, after: str = "") -> Page[DatasetView]:
        """List inboxes by name, with the number and the size of their files: all, or those of an app. `NotFound`."""
        from tidemill.mill.datasets import Datasets

        return Datasets(self._project).list(kind=DatasetKind.INBOX, app=app, limit=limit, after=after)

    @operation(Right.READ, own=True)
    def show(self, name: str) -> InboxView:
        """Show what the catalog knows of an inbox. Cost: reads the states of all its files."""
        # No list of files needs this, nor what the methods below import.
        from tidemill.lake.inbox.discovery import read_lateness, read_listed

        watched = self._inbox(name)

        def block(db: Db) -> InboxView:
            counts = inbox.count_files(db, watched.dataset_id)
            late, missed, longest = read_lateness(db, watched.dataset_id)
            reconciled_at, unusable = read_listed(db, watched.dataset_id)
            return InboxView(
                watched.qualified_name,
                watched.dataset.location,
                {state.value: files for state, (files, _) in counts.items()},
                {state.value: size for state, (_, size) in counts.items()},
                unusable,
                reconciled_at,
                late,
                missed,
                str(longest),
                find_expectations(db, [watched.dataset_id]).get(watched.dataset_id),
            )

        return self._catalog.read(block)

    @operation(Right.READ, command="inbox files")
    def explain(self, name: str) -> WaitingFiles:
        """Say what the NEW files of an inbox wait for: one sentence for each program that reads the inbox."""
        watched = self._inbox(name)

        def block(db: Db) -> WaitingFiles:
            why = tuple(one.why for one in explain_readers(db, watched.dataset, self._project.access))
            unread = "no program reads this inbox: declare one in the app (`reads=[…]`) and `tidemill deploy`"
            return WaitingFiles(watched.qualified_name, why or (unread,))

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
    def files(
        self, name: str, *, state: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[inbox.InboxFile]:
        """List the files of an inbox by name, in one state or all. `after` is the name of a file.

        All contents of one name are on one page, which may make the page longer than `limit`.
        """
        behind = read_name(after)
        watched = self._inbox(name)
        wanted = None if state is None else file_state(state)
        found = self._catalog.read(
            lambda db: inbox.list_files(db, watched.dataset_id, state=wanted, after=behind, limit=one_more(limit))
        )
        # The last name of a page that has more than it should is the first of the next page, unless it began before.
        whole = [file for file in found if file.name != found[-1].name]
        shown = whole if len(found) > limit and len(whole) >= limit else found
        return Page(tuple(shown), shown[-1].name if len(found) > limit else None)

    @operation(Right.READ)
    def arrivals(self, name: str, *, hours: int = DAY) -> ArrivalsView:
        """Count the files that an inbox got in each of the last hours, by state, and balance their rows.

        `hours` is from 1 to 744. Cost: the newest 5,000 files, and the newest 200 runs of each program. `BadFilter`.
        """
        watched = self._inbox(name)
        return self._catalog.read(lambda db: count_arrivals(db, watched, hours, self._project.access))

    @operation(Right.READ)
    def lineage(
        self, name: str, file: str, *, direction: str = "both", depth: int = DEPTH, limit: int = NODES
    ) -> Lineage:
        """Show where the rows of a file went: the runs that took the file, and what they published.

        `direction`, `depth` and `limit` are as for `mill.datasets.lineage`. `NotFound`.
        """
        from tidemill.mill.lineage_actual import trace_file

        bounds = read_bounds(direction, depth, limit)

        def block(db: Db) -> Lineage:
            watched = inbox.Inbox.of(self._project.dataset(db, name))
            check_file_names([file])
            return trace_file(self._project, db, watched, file, bounds)

        return self._catalog.read(block)

    @operation(Right.OPERATE, repeats="a file that was found is known")
    def scan(self, name: str, *, reconcile: bool = False, accept_empty: bool = False) -> ScanView:
        """Look for new files now, as `tidemill up` does when the time comes; with `reconcile` at all there are.

        `accept_empty` takes an empty folder for emptied, though it is another folder than the one that had files. Only
        that is an audited change: a scan does what a listing process does when the time comes.
        Raises `StorageUnavailable` when the location is away.
        """
        from tidemill.lake.inbox.discovery import accept_empty as accept_empty_folder
        from tidemill.lake.inbox.discovery import discover_settled, read_lateness

        watched = self._inbox(name)
        if accept_empty and not self._is_as_known(watched):
            note = self._note("scan", watched.qualified_name, accept_empty=True)

            def accept(db: Db) -> None:
                root = self._project.dataset(db, name).root
                if root is not None:
                    accept_empty_folder(db, watched)
                    note.between({"folder": root}, {"folder": None}).write(db)

            self._catalog.write(accept)
        found = discover_settled(self._catalog, watched, reconcile=reconcile)
        late, missed, longest = self._catalog.read(lambda db: read_lateness(db, watched.dataset_id))
        return ScanView(
            watched.qualified_name,
            tuple(file.name for file in found.new),
            sum(file.bytes for file in found.new),
            found.ignored,
            found.held_back,
            tuple((one.name, one.why) for one in found.unusable),
            found.reconciled,
            found.forgotten,
            found.away,
            found.warning(watched),
            late,
            missed,
            str(longest),
        )

    @operation(
        Right.OPERATE,
        no_audit="looks at files, as a listing does",
        repeats="a file that was found is known",
        document="body",
    )
    def events(self, name: str, body: object) -> EventsView:
        """Look at the files that a notification of S3 names, as if they were listed now.

        `body` is decoded JSON as S3, SQS, SNS or EventBridge sends it. The folder of the inbox mirrors a part of the
        bucket: its path ends as the prefix of the objects does. An event is only a hint: doubled, late or false events
        do no harm. Cost: a look at each file. `BadEvents`, `TooManyEvents`, `NotConfirmed`, `StorageUnavailable`.
        """
        from tidemill.lake.inbox.discovery import look_at

        watched = self._inbox(name)
        events = read_events(body)
        names: dict[str, None] = {}
        ignored = [("", why) for why in events.unreadable]
        for event in events.found:
            place = f"{event.bucket}/{event.key}"
            file = find_name(watched.dataset.location, event)
            if not event.created:
                ignored.append((place, "the event is about no new object"))
            elif not file:
                ignored.append((place, f"the folder of {watched.qualified_name} does not end in its prefix"))
            elif pattern := watched.spec.ignored_by(file):
                ignored.append((file, f"the name matches {pattern}"))
            else:
                names[file] = None
        looked = look_at(self._catalog, watched, names)
        ignored += [(file, "there is no such file") for file in looked.missing]
        ignored += [(file, "the file is known") for file in looked.known]
        return EventsView(
            watched.qualified_name, len(events.found), looked.new, looked.held_back, tuple(dict.fromkeys(ignored))
        )

    @operation(Right.OPERATE, in_block=True)
    def release(self, name: str, files: Sequence[str]) -> ReleasedFiles:
        """Release files from quarantine: each is retried by itself. Return their number."""
        from tidemill.lake.inbox.file_endings import release_quarantined

        watched = self._inbox(name)
        check_file_names(files)
        note = self._note("release", watched.qualified_name, files=files)

        def block(db: Db) -> ReleasedFiles:
            released = release_quarantined(db, watched, files)
            if released:
                states = inbox.FileState.QUARANTINED, inbox.FileState.NEW
                note.between(*({"state": state, "files": released} for state in states)).write(db)
            return ReleasedFiles(watched.qualified_name, released)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def ignore(self, name: str, files: Sequence[str]) -> IgnoredFiles:
        """Ignore files in quarantine: no run gets them, and no alert counts them. Return their number.

        The files stay in the list of the inbox, as IGNORED. `retry` with their names takes that back.
        """
        from tidemill.lake.inbox.file_endings import ignore_quarantined

        def block(db: Db) -> IgnoredFiles:
            watched = inbox.Inbox.of(self._project.dataset(db, name))
            ignored = ignore_quarantined(db, watched, files)
            if ignored:
                note = self._note("ignore", watched.qualified_name, files=files)
                states = inbox.FileState.QUARANTINED, inbox.FileState.IGNORED
                note.between(*({"state": state, "files": ignored} for state in states)).write(db)
            return IgnoredFiles(watched.qualified_name, ignored)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def retry(self, name: str, files: Sequence[str] = ()) -> RetriedFiles:
        """Retry files in ERROR now, all if none is named, and ignored files that are named. Return their number."""
        from tidemill.lake.inbox.file_endings import retry_files

        watched = self._inbox(name)
        check_file_names(files)
        note = self._note("retry", watched.qualified_name, files=files or "all")

        def block(db: Db) -> RetriedFiles:
            retried = retry_files(db, watched, files)
            if retried:
                record = {"state": inbox.FileState.ERROR, "files": retried}
                note.between({**record, "due": "later"}, {**record, "due": "now"}).write(db)
            return RetriedFiles(watched.qualified_name, retried)

        return self._catalog.write(block)

    @operation(Right.OPERATE)
    def reprocess(self, name: str, files: Sequence[str]) -> ReprocessView:
        """Deliver processed files to the programs of an inbox again, all of them or none, as if they were new.

        On record with the actor. A program that appends publishes their rows a
        second time. Raises `NotReprocessed` for a file that is not processed or not there, and `FilesChanged`.
        """
        from tidemill.lake.inbox.reprocess import reprocess

        watched = self._inbox(name)
        check_file_names(files)
        note = self._note("reprocess", watched.qualified_name, files=files)
        readers = self._catalog.read(lambda db: list_readers(db, watched.dataset, self._project.access))
        appending = tuple(one.qualified_name for one in readers if one.writes)
        view = ReprocessView(watched.qualified_name, len(set(files)), appending)
        reprocess(self._catalog, watched, files, self._project.actor, note, self._keep(view))
        return view

    @operation(Right.DEPLOY, command="inbox claim", no_audit="its run is the record")
    def get_latest_files(
        self,
        name: str,
        limit: int = 1000,
        *,
        lease: str | timedelta = _CLAIM_LEASE,
        owner: str = "",
        scan: bool = True,
    ) -> FileClaim:
        """Claim the oldest files that wait, for a workflow engine of your own (seed 004's GetLatestFiles).

        No run gets these files until `update_file_status` closes them, or the claim's `lease` has run out and a runner
        of `tidemill up` has seen it: renew it while you work. Looks for new files before, unless `scan` is False.
        """
        from tidemill.lake.inbox.discovery import discover_settled
        from tidemill.run.step.outside_claims import get_latest_files

        watched = self._inbox(name)
        if scan:
            discover_settled(self._catalog, watched)
        earlier = None if self._part is None else RunId(str(self._part["claim_id"]))
        return get_latest_files(
            self._catalog,
            watched,
            limit=limit,
            lease=parse_lease(lease),
            owner=owner,
            earlier=earlier,
            also=lambda claim_id: self._keep_part({"claim_id": claim_id}),
        )

    @operation(Right.DEPLOY, command="inbox update", no_audit="the run of the claim is the record")
    def update_file_status(
        self, claim: FileClaim | str, files: Sequence[str] | None, status: str, *, error: str = ""
    ) -> ClosedFiles:
        """Close `files` of a claim (None: all files) as SUCCESS, ERROR (retried later) or NEW (returned).

        Refused with `Fenced` when the claim has ended: another claim may have its files.
        """
        from tidemill.run.step.outside_claims import update_file_status

        claim_id, state = self._claim_id(claim), file_state(status)
        check_file_names(files or ())

        def made(left: int) -> ClosedFiles:
            return ClosedFiles(claim_id, state, left)

        also = lambda left: self._keep(made(left))  # noqa: E731  # typed where it is taken
        return made(update_file_status(self._catalog, claim_id, files, state, error=error, also=also))

    @operation(Right.DEPLOY, command="inbox renew", no_audit="keeps a lease alive", repeats="keeps it alive again")
    def renew_claim(self, claim: FileClaim | str, *, lease: str | timedelta = _CLAIM_LEASE) -> RenewedClaim:
        """Keep a claim for `lease` from now; `Fenced` when it has ended."""
        from tidemill.run.step.outside_claims import renew_claim

        claim_id, duration = self._claim_id(claim), parse_lease(lease)
        renew_claim(self._catalog, claim_id, duration)
        return RenewedClaim(claim_id, format_duration(duration))

    @operation(Right.DEPLOY, command="inbox release", no_audit="the run of the claim is the record")
    def release_claim(self, claim: FileClaim | str) -> ReleasedClaim:
        """Return the files of a claim that are still open, as new."""
        from tidemill.run.step.outside_claims import release_claim

        claim_id = self._claim_id(claim)
        killed = self._keep(ReleasedClaim(claim_id, RunState.KILLED))
        return ReleasedClaim(claim_id, release_claim(self._catalog, claim_id, killed))

    def _claim_id(self, claim: FileClaim | str) -> RunId:
        """Return the id of a claim on an inbox that the caller may see. To others, the claim does not exist."""
        claim_id = RunId(claim) if isinstance(claim, str) else claim.claim_id
        if self._project.access.only is not None:
            dataset_id = self._catalog.read(lambda db: find_run(db, claim_id)).triggered_by.get("dataset_id")
            found = self._catalog.read(lambda db: find_some(db, [DatasetId(str(dataset_id))]))
            self._project.check(next((one.namespace for one in found.values()), None), "run", claim_id)
        return claim_id

    def _is_as_known(self, watched: inbox.Inbox) -> bool:
        """Return whether the folder of an inbox is the one that had its files, or has files itself."""
        try:
            watched.files(self._world).check_location()
        except StorageUnavailable:
            return False
        return True

    def _inbox(self, name: str) -> inbox.Inbox:
        def block(db: Db) -> inbox.Inbox:
            return inbox.Inbox.of(self._project.dataset(db, name))

        return self._catalog.read(block)


def file_state(given: str) -> inbox.FileState:
    """Read the state of a file as people write it; `UserError` with the states there are."""
    try:
        return inbox.FileState(given.upper())
    except ValueError:
        advice = advise(given.upper(), list(inbox.FileState), before="; ")
        raise UserError(f"a file is {', '.join(inbox.FileState)}, not {given!r}{advice}") from None
