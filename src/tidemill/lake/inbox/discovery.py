"""Discovery of new files in an inbox: a listing is compared with the catalog, and new files are recorded."""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import LAST_TEXT, Call, Param, RowSet, load_sql
from tidemill.catalog.records import to_json
from tidemill.durations import format_duration
from tidemill.json_specs import read_plain
from tidemill.lake.expectations import note_arrival
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.in_flight import HeldBack, Watched, held_back
from tidemill.lake.inbox.inbox import FileState, Inbox, OnRewrite, content_version, exact_version, latest_time
from tidemill.lake.inbox.lookback import Marker
from tidemill.names import DatasetId, file_event
from tidemill.storage.file_names import refusal_of
from tidemill.storage.files import Files, FileStatus, FileUnreadable, Seen, Unusable, digest_of, find_files, second_of

if TYPE_CHECKING:
    from tidemill.lake.inbox.discovery_sql import Sql

SQL: Sql = load_sql(__file__)

_CHUNK: Final = 10_000  # rows in one statement
_FOUND: Final = ("dataset_id", "name", "content_version", "etag", "bytes", "modified_at", "status", "error")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Discovered:
    """Result of a listing: `new` files were recorded; `ignored` are names with the pattern that hides them.

    `held_back` are names of files that are left to their writers, with the reason. `late` is the number of new files
    whose names sort before names that were listed earlier. `missed` of the late files would not have been found by any
    listing before this reconciliation. `longest` is the least possible delay of the latest file. `forgotten` is the
    number of rows that were deleted, because their names have been missing for long. `unusable` are names that can
    never be processed. `away` are folders that a reconciliation has not found, each with the number of its closed
    files.
    """

    new: tuple[FileStatus, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    held_back: tuple[tuple[str, str], ...] = ()
    late: int = 0
    missed: int = 0
    longest: timedelta = timedelta(0)
    reconciled: bool = False
    forgotten: int = 0
    unusable: tuple[Unusable, ...] = ()
    away: tuple[tuple[str, int], ...] = ()
    look_again: timedelta | None = None
    """After how long a file that is held back may be taken; None when nothing waits for a time."""
    settling: bool = False
    """True if a file only waits to be seen unchanged once more."""

    def warning(self, inbox: Inbox) -> str | None:
        """Return a warning if files came later than the inbox looks back, else None."""
        if not self.missed:
            return None
        found = f"only a reconciliation found {self.missed} files"
        if self.longest < inbox.spec.lookback:
            return f"{found} that listings had passed over"
        late = format_duration(self.longest - self.longest % timedelta(seconds=1))
        return f"{found}: they come {late} late, or more, and lookback is {format_duration(inbox.spec.lookback)}"


class Memory:
    """Memory of one process about its last listing of an inbox. Unchanged files then cost nothing.

    Every reconciliation starts with an empty memory. So does a listing after another process has changed the found
    files.
    """

    def __init__(self) -> None:
        self.watched = Watched()
        self.seen = Seen()
        self._inbox: Inbox | None = None
        self._superseded = 0

    def begin(self, inbox: Inbox, superseded: int, *, whole: bool) -> Seen:
        """A listing begins, of an inbox as it is declared and recorded now; what was remembered before it."""
        before, fits = self.seen, (self._inbox, self._superseded) == (inbox, superseded)
        self._inbox, self._superseded = inbox, superseded
        if whole or not fits:
            self.seen = Seen()
        self.seen.drop()
        return before if fits else Seen()


def discover(catalog: Catalog, inbox: Inbox, memory: Memory | None = None, *, reconcile: bool = False) -> Discovered:
    """List the inbox and record what is new in it, with one message, in one commit; nothing when nothing is new.

    Any number of processes may do it at once: each content is recorded and announced once. A file that waits still
    and was written again is superseded; one that is being processed is left to its run, and its new content waits.
    Where the store lists from a name, only what lies behind the marker and its lookback is listed; all of it when the
    time has come, or when asked to `reconcile`. Cost: the listing; with `memory`, a look-up for each file that was not
    in its last one, else for each (10,000 a statement); a commit only for what is new.
    """
    listing = _Listing(catalog, inbox, memory or Memory(), reconcile=reconcile)
    catalog.world.mark("discover.before_listing")
    new: list[FileStatus] = []
    for chunk in _chunks(listing.look()):
        found = listing.pick(_find_unknown(catalog, inbox, chunk))
        catalog.world.mark("discover.before_commit")
        if found:
            catalog.apply([_RecordFound(inbox, tuple(found), listing.superseded)])
            new += [one.file for one in found if one.status is FileState.NEW]
        catalog.world.mark("discover.after_commit")
    return listing.end(new)


def discover_settled(catalog: Catalog, inbox: Inbox, *, reconcile: bool = False) -> Discovered:
    """List the inbox as `discover` does, and once more when the files that only waited for a second look are due.

    For a caller that has not looked before. Takes the inbox's `settle` when there is anything new.
    """
    memory = Memory()
    first = discover(catalog, inbox, memory, reconcile=reconcile)
    if not first.settling:
        return first
    catalog.world.clock.sleep(inbox.spec.settle)
    second = discover(catalog, inbox, memory)
    return replace(
        first,
        new=first.new + second.new,
        held_back=second.held_back,
        late=first.late + second.late,
        longest=max(first.longest, second.longest),
        look_again=second.look_again,
        settling=second.settling,
    )


@dataclass(frozen=True, slots=True)
class Looked:
    """Result of a look at named files: `new` were recorded, `known` were recorded before, `missing` are not there.

    `held_back` are left to their writers, with the reason.
    """

    new: tuple[str, ...]
    known: tuple[str, ...]
    missing: tuple[str, ...]
    held_back: tuple[tuple[str, str], ...]


def look_at(catalog: Catalog, inbox: Inbox, names: Iterable[str]) -> Looked:
    """Look at the files of these names, which no pattern ignores, and record the new ones as `discover` does.

    A file that is held back makes a listing due at once; that listing looks at the file again. Cost: a look at each
    file.
    """
    listing = _Listing(catalog, inbox, Memory(), reconcile=False)
    there, missing = listing.look_at(sorted(set(names)))
    new: list[str] = []
    for chunk in _chunks(there):
        if found := listing.pick(_find_unknown(catalog, inbox, chunk)):
            catalog.apply([_RecordFound(inbox, tuple(found), listing.superseded)])
            new += [one.file.name for one in found]
    held_back = listing.list_held_back()
    if held_back:
        catalog.write(lambda db: have_listed(db, inbox))
    told = {*new, *(name for name, _ in held_back)}
    known = tuple(file.name for file in there if file.name not in told)
    return Looked(tuple(new), known, tuple(missing), held_back)


class _Listing:
    """Listing of an inbox: its start, the names that it ignores, the lateness it reports, and its memory."""

    def __init__(self, catalog: Catalog, inbox: Inbox, memory: Memory, *, reconcile: bool) -> None:
        self._catalog = catalog
        self._spec = inbox.spec
        self._memory = memory
        self._marker, self.superseded, self._noted, root, self._now = catalog.read(lambda db: _read_marker(db, inbox))
        self._inbox = inbox = replace(inbox, dataset=replace(inbox.dataset, root=root))
        self._files = inbox.files(catalog.world)
        self._whole = reconcile or self._marker.needs_reconciliation(self._now, self._spec.reconcile_every)
        self._before = memory.begin(inbox, self.superseded, whole=self._whole)
        self._start = (
            self._marker.start(self._now, self._spec.lookback) if self._files.capabilities.lists_from_name else None
        )
        self._names: list[str] = []
        self._settled: str | None = None
        self._ignored: list[tuple[str, str]] = []
        self._held_back: list[tuple[str, HeldBack]] = []
        self._unusable: list[Unusable] = []

    def look(self) -> list[FileStatus]:
        """List the files that are neither ignored nor remembered, in order of name."""
        listed: list[FileStatus] = []
        after = None if self._whole else self._start
        settled_at = self._now - self._spec.lookback
        for file in self._files.list_after("", after, self._memory.seen, self._unusable):
            self._names.append(file.name)
            if file.modified_at <= settled_at:
                self._settled = file.name
            if (pattern := self._spec.ignored_by(file.name)) is None:
                listed.append(file)
            else:
                self._ignored.append((file.name, pattern))
            self._memory.seen.remember(file)
        self._note_root()
        return listed

    def look_at(self, names: Sequence[str]) -> tuple[list[FileStatus], list[str]]:
        """Return the files of these names, and the names of those that are not there or cannot be read."""
        there: list[FileStatus] = []
        missing: list[str] = [name for name in names if refusal_of(name) is not None]
        possible = [name for name in names if refusal_of(name) is None]
        for name, status in zip(possible, self._files.stat_many(possible), strict=True):
            if isinstance(status, FileStatus):
                there.append(status)
            else:
                missing.append(name)
        self._note_root()
        return there, missing

    def list_held_back(self) -> tuple[tuple[str, str], ...]:
        """Return the files that are left to their writers, with the reason."""
        return tuple((name, held.why) for name, held in self._held_back)

    def _note_root(self) -> None:
        """Note which folder has files, before any of them is recorded: it may be unmounted at the next moment.

        An empty folder has no identity: whatever is mounted there next is as good.
        """
        root = self._files.check_location()
        if root != self._inbox.dataset.root:
            self._catalog.write(lambda db: _set_root(db, self._inbox, root))
            self._catalog.world.mark("discover.rooted")

    def pick(self, unknown: Iterable[_Unknown]) -> list[_Unknown]:
        """Return the unknown files to record now. A later listing looks at the others again."""
        picked: list[_Unknown] = []
        for one in unknown:
            file = one.file
            held = self._why_held_back(file) if one.status is FileState.NEW else None
            if one.status is None or held is not None:
                self._memory.seen.forget(file)
            if held is not None:
                self._held_back.append((file.name, held))
            elif one.status is not None:
                self._memory.watched.forget(file.name)
                picked.append(one)
        return picked

    def _why_held_back(self, file: FileStatus) -> HeldBack | None:
        if not self._spec.holds_back:
            return None
        unchanged_for = self._memory.watched.unchanged_for(file, self._catalog.world.clock.monotonic())
        return held_back(
            self._spec,
            file,
            now=self._now,
            unchanged_for=unchanged_for,
            exists=self._exists,
        )

    def _exists(self, name: str) -> bool:
        place = bisect.bisect_left(self._names, name)
        if self._names[place : place + 1] == [name]:
            return True  # nearly each flag is in the listing of its file
        try:
            return self._files.stat(name) is not None
        except FileUnreadable:
            return True  # a flag says all by its name

    def end(self, new: list[FileStatus]) -> Discovered:
        """Keep how far it came; and after a reconciliation forget what has gone."""
        late = [delay for file in new if (delay := self._marker.lateness(file.name, self._now)) is not None]
        absent = _Absent(self._catalog, self._inbox, self._files, self._names, self._unusable)
        if self._whole:
            absent.note()
        found = Discovered(
            tuple(new),
            tuple(self._ignored),
            self.list_held_back(),
            len(late),
            sum(map(self._was_passed_over, new)),
            max(late, default=timedelta(0)),
            self._whole,
            absent.forgotten,
            tuple(one for one in self._unusable if self._spec.ignored_by(one.name.removesuffix("/")) is None),
            tuple(sorted(absent.away.items())),
            min((held.look_again for _, held in self._held_back if held.look_again is not None), default=None),
            any(held.settling for _, held in self._held_back),
        )
        moved = self._marker
        if self._files.capabilities.lists_from_name and self._names:
            moved = moved.moved(self._now, self._names[-1], self._settled, self._spec.lookback)
        if self._whole:
            moved = replace(moved, reconciled_at=self._now)
        if moved != self._marker or found.late or found.missed:
            self._catalog.write(lambda db: _keep(db, self._inbox, self._marker, moved, found))
        if self._start is None or self._whole:
            self._note_unusable(found.unusable)
        self._memory.seen.turn()
        return found

    def _note_unusable(self, unusable: Sequence[Unusable]) -> None:
        """Keep for people how many names cannot be used, by reason; a write only when that has changed."""
        examples = {one.why: one.name for one in reversed(unusable)}
        counted = sorted(Counter(one.why for one in unusable).items())
        noted = json.dumps([[why, count, examples[why]] for why, count in counted])
        if noted != self._noted:
            params: dict[str, Param] = {"dataset_id": self._inbox.dataset_id, "unusable": noted}
            self._catalog.write(lambda db: db.run(SQL.note_unusable, **params))

    def _was_passed_over(self, file: FileStatus) -> bool:
        """Return whether only a reconciliation would have found the file."""
        if not self._whole or self._marker.reconciled_at is None:
            return False
        behind = self._start is not None and file.name <= self._start
        return behind or self._before.meets(file.name, file.etag, second_of(file.modified_at))


def accept_empty(db: Db, inbox: Inbox) -> None:
    """Take the folder of an inbox as it is, though it is empty and another folder than the one that had files."""
    _set_root(db, inbox, None)


def _set_root(db: Db, inbox: Inbox, root: str | None) -> None:
    db.run(SQL.note_root, dataset_id=inbox.dataset_id, location=inbox.dataset.location, root=root)


class _Read(NamedTuple):
    """Row of an inbox's listings, and the time of the catalog."""

    marker: str | None
    positions: tuple[tuple[int, str], ...]
    reconciled_at: datetime | None
    superseded: int
    unusable: str
    root: str | None
    now: datetime


def _read_marker(db: Db, inbox: Inbox) -> tuple[Marker, int, str, str | None, datetime]:
    """Read where listings have come, how often contents were replaced, the unusable names, the root, and the time."""
    row = db.record(SQL.read_marker, _Read, dataset_id=inbox.dataset_id)
    if row is None:
        return Marker(), 0, "[]", None, db.now()
    known = tuple((read_plain(datetime, at), name) for at, name in row.positions)
    return Marker(row.marker, known, row.reconciled_at), row.superseded, row.unusable, row.root, row.now


def _keep(db: Db, inbox: Inbox, before: Marker, after: Marker, found: Discovered) -> None:
    # If another process listed further, keep its marker. The marker must not pass a name that either listing has not
    # reached.
    db.run(
        SQL.move_marker,
        dataset_id=inbox.dataset_id,
        before=before.name or "",
        reconciled_before=before.reconciled_at or 0,
        marker=after.name,
        positions=to_json(after.positions),
        reconciled_at=after.reconciled_at,
    )
    if found.late or found.missed:
        db.run(
            SQL.count_late,
            dataset_id=inbox.dataset_id,
            late=found.late,
            missed=found.missed,
            longest=found.longest,
        )


class _Absent:
    """Closed files whose names a listing of all does not hold.

    The row keeps since when the name is not there, and goes when that has been so for the inbox's `forget_after`: a
    folder may be away for a while, and files that were forgotten would be processed again. When nothing at all was
    listed, nothing is noted. Cost: reads the rows of all files.
    """

    def __init__(
        self, catalog: Catalog, inbox: Inbox, files: Files, listed: Sequence[str], unusable: Sequence[Unusable]
    ) -> None:
        self._catalog = catalog
        self._inbox = inbox
        self._files = files
        self._listed = listed
        # What is below a folder that cannot be read may be there.
        self._unread = tuple(one.name for one in unusable if one.name.endswith("/"))
        self.forgotten = 0
        self.away: Counter[str] = Counter()
        """Folders of which nothing was listed, with the number of their files that are newly missed."""

    def note(self) -> None:
        """Note what is not there, and what is there again; forget what has not been there for long."""
        after = ""
        for names in _chunks(self._listed):
            bound = LAST_TEXT if names[-1] == self._listed[-1] else names[-1]
            listed = json.dumps([{"name": name} for name in names])
            self._note_returned(after, bound, listed)
            while absent := self._find(after, bound, listed):
                self._note(absent)
                after = absent[-1][0]
            after = bound

    def _find(self, after: str, bound: str, listed: str) -> list[tuple[str, datetime | None]]:
        window: dict[str, Param] = {**self._of, "after": after, "bound": bound, "limit": _CHUNK}
        return self._catalog.read(
            lambda db: db.records(SQL.select_absent, tuple[str, datetime | None], listed=listed, **window)
        )

    def _note(self, absent: Sequence[tuple[str, datetime | None]]) -> None:
        forget_after = self._inbox.spec.forget_after
        border = self._catalog.read(lambda db: db.now()) - forget_after
        missed = self._find_gone([name for name, since in absent if since is None])
        due = self._find_gone([name for name, since in absent if since is not None and since <= border])
        if not forget_after:
            due += missed
        if not missed and not due:
            return
        self._catalog.world.mark("discover.before_absent")

        def block(db: Db) -> int:
            db.run(SQL.note_absent, names=json.dumps(missed), **self._of)
            return db.run(SQL.forget_absent, names=json.dumps(due), forget_after=forget_after, **self._of)

        self.forgotten += self._catalog.write(block)
        self.away += Counter(folder for name in missed if (folder := self._folder_away(name)))

    def _find_gone(self, names: Sequence[str]) -> list[str]:
        """Return the names that the store does not know: others may have come since the listing passed them."""
        asked = [name for name in names if not name.startswith(self._unread)]
        return [name for name, status in zip(asked, find_files(self._files, asked), strict=True) if status is None]

    def _folder_away(self, name: str) -> str:
        """Name the outermost folder of a missed file of which nothing was listed; empty when there is none."""
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth]) + "/"
            place = bisect.bisect_left(self._listed, folder)
            if place == len(self._listed) or not self._listed[place].startswith(folder):
                return folder
        return ""

    def _note_returned(self, after: str, bound: str, listed: str) -> None:
        window: dict[str, Param] = {**self._of, "after": after, "bound": bound}
        rows = self._catalog.read(lambda db: db.all(SQL.find_returned, listed=listed, **window))
        if rows:
            names = json.dumps([row[0] for row in rows])
            self._catalog.write(lambda db: db.run(SQL.note_returned, names=names, **self._of))

    @property
    def _of(self) -> dict[str, Param]:
        return {"dataset_id": self._inbox.dataset_id}


class _Unknown(NamedTuple):
    """A file whose content is to be recorded in a state; None: not to be decided yet."""

    file: FileStatus
    version: str
    status: FileState | None


@dataclass(frozen=True, slots=True)
class _Twin:
    """A recorded content with the size and time of a file that was listed under its name."""

    version: str
    etag: str
    status: FileState
    checksum: str | None


def _find_unknown(catalog: Catalog, inbox: Inbox, files: Sequence[FileStatus]) -> list[_Unknown]:
    """Return the files to record, each with its state. The state is None if it cannot be decided yet."""
    versions = [content_version(file) for file in files]
    listed = RowSet(
        ("place", "name", "content_version", "etag"),
        [
            (place, file.name, version, file.etag)
            for place, (file, version) in enumerate(zip(files, versions, strict=True))
        ],
    )
    unknown = catalog.read(lambda db: db.all(SQL.select_unknown, dataset_id=inbox.dataset_id, listed=listed))
    places = cast("list[tuple[int, int | None]]", unknown)
    named: list[dict[str, object]] = [
        {
            "dataset_id": inbox.dataset_id,
            "place": place,
            "name": files[place].name,
            "content_version": versions[place],
            "etag": files[place].etag,
            "bytes": files[place].bytes,
            "modified_at": files[place].modified_at,
            "latest": latest_time(files[place].modified_at),
        }
        for place, is_named in places
        if is_named
    ]
    known: dict[int, tuple[int, int, int]] = {}
    if named:
        compared = catalog.read(lambda db: db.all(SQL.compare_named, listed=to_json(named)))
        known = {row[0]: row[1:] for row in cast("list[tuple[int, int, int, int]]", compared)}
    copies = _Copies(catalog, inbox, files, [row for row in named if known[cast(int, row["place"])][2]])
    found: list[_Unknown] = []
    for place, is_named in places:
        if not is_named:  # nearly all: a hundred thousand new files come at once
            found.append(_Unknown(files[place], versions[place], FileState.NEW))
            continue
        sibling, skipped, _ = known[place]
        # A content that only its checksum tells from a processed one has that one for a sibling.
        status = _status_of_unknown(inbox.spec.on_rewrite, max(sibling, int(place in copies.others)))
        if place in copies.undecided:
            found.append(_Unknown(files[place], "", None))
        # Skipped by rule, and recorded as such already: nothing to do.
        elif place not in copies.known and not (skipped and status in {FileState.SKIPPED, FileState.QUARANTINED}):
            version = exact_version(files[place]) if place in copies.others else versions[place]
            found.append(_Unknown(files[place], version, status))
    copies.keep()
    return found


class _Copies:
    """Files that are copies of contents which the catalog knows, and files that only look like such copies.

    A copy of the whole inbox (`cp -a`, rsync, a restore) has other etags, and the same names, sizes and times. Where
    the content was read when it was processed, its checksum decides. Cost: reads the files that look like copies, once.
    """

    def __init__(
        self, catalog: Catalog, inbox: Inbox, files: Sequence[FileStatus], doubtful: Sequence[dict[str, object]]
    ) -> None:
        self._catalog = catalog
        self._inbox = inbox
        self._listed = files
        self._files = inbox.files(catalog.world)
        self._recognized: list[dict[str, object]] = []
        self.known: set[int] = set()
        """Places of files that need not be recorded."""
        self.undecided: set[int] = set()
        """Places of files whose content a run holds, or that cannot be read now."""
        self.others: set[int] = set()
        """Places of other contents, of which only the checksum tells."""
        twins: defaultdict[int, list[_Twin]] = defaultdict(list)
        if doubtful:
            listed = to_json(doubtful)
            for row in catalog.read(lambda db: db.all(SQL.select_twins, listed=listed)):
                place, version, etag, status, known = cast("tuple[int, str, str, str, str | None]", row)
                twins[place].append(_Twin(version, etag, FileState(status), known))
        for place, alike in twins.items():
            self._decide(place, alike)

    def _decide(self, place: int, twins: Sequence[_Twin]) -> None:
        file = self._listed[place]
        if any(twin.etag == file.etag for twin in twins):
            self.known.add(place)
        elif any(twin.status is FileState.IN_PROGRESS for twin in twins):
            self.undecided.add(place)
        else:
            try:
                same = self._find_same(file, twins)
            except (FileNotFoundError, FileUnreadable):
                self.undecided.add(place)
                return
            if same is None:
                self.others.add(place)
                return
            self.known.add(place)
            self._recognized.append(
                {"name": file.name, "content_version": same.version, "known_etag": same.etag, "etag": file.etag}
            )

    def _find_same(self, file: FileStatus, twins: Sequence[_Twin]) -> _Twin | None:
        """Find the content of which this file is a copy.

        Without a checksum a content is known only by its time and size.
        """
        unread = next((twin for twin in twins if twin.checksum is None), None)
        if unread is not None and len(twins) == 1:
            return unread
        found = digest_of(self._files, file)
        return next((twin for twin in twins if twin.checksum == found), unread)

    def keep(self) -> None:
        """Store the etags of the copies, so that no process compares them again."""
        if self._recognized:
            copies = json.dumps([{"dataset_id": self._inbox.dataset_id, **copy} for copy in self._recognized])
            self._catalog.write(lambda db: db.run(SQL.recognize_copies, copies=copies))
            self._catalog.world.mark("discover.recognized")


def _status_of_unknown(on_rewrite: OnRewrite, sibling: int) -> FileState | None:
    """Return the state of an unrecorded content. None if the claim of another content has to end first.

    `sibling` is 2 while another content of its name is claimed, 1 when one was processed, 0 otherwise.
    """
    if sibling == 0 or on_rewrite is OnRewrite.REPROCESS:
        return FileState.NEW
    if sibling == 2:
        return None
    return FileState.SKIPPED if on_rewrite is OnRewrite.IGNORE else FileState.QUARANTINED


@dataclass(frozen=True, slots=True)
class _RecordFound(Effect):
    """Record files that were found, with their message.

    `superseded` is how often waiting contents had been replaced when the listing began.
    """

    phase = Phase.FILES

    inbox: Inbox
    found: tuple[_Unknown, ...]
    superseded: int = 0

    def writes(self) -> Sequence[Call]:
        dataset_id = str(self.inbox.dataset_id)
        refused = f"written again after it was processed (on_rewrite={self.inbox.spec.on_rewrite})"
        rows = [
            (
                dataset_id,
                file.name,
                version,
                file.etag,
                file.bytes,
                file.modified_at,
                str(status),  # a member of an enumeration has the garbage collector look at the row
                None if status is FileState.NEW else refused,
            )
            for file, version, status in self.found
        ]
        params: dict[str, Param] = {"dataset_id": self.inbox.dataset_id, "found": RowSet(_FOUND, rows)}
        event_key = file_event(self.inbox.dataset.namespace, self.inbox.dataset.name)
        arrived = any(one.status is FileState.NEW for one in self.found)
        return (
            SQL.publish_found(**params, event_key=event_key),
            SQL.insert_found(**params),
            SQL.note_superseded(**params),
            SQL.supersede_found(**params, superseded=self.superseded),
            *([note_arrival(self.inbox.dataset_id)] if arrived and self.inbox.spec.expect is not None else []),
        )


def read_lateness(db: Db, dataset_id: DatasetId) -> tuple[int, int, timedelta]:
    """Read the number of late files, the number that only a reconciliation found, and the longest delay."""
    return db.records(SQL.read_lateness, tuple[int, int, timedelta], dataset_id=dataset_id)[0]


def read_listed(db: Db, dataset_id: DatasetId) -> tuple[datetime | None, tuple[tuple[str, int, str], ...]]:
    """Read when the inbox was last reconciled, and which names its last listing could not use: reason, number, one."""
    row = db.record(
        SQL.read_listed,
        tuple[datetime | None, tuple[tuple[str, int, str], ...]],
        dataset_id=dataset_id,
    )
    if row is None:
        return None, ()
    reconciled_at, unusable = row
    return reconciled_at, tuple((why, count, example) for why, count, example in unusable)


def due_listings(
    db: Db, limit: int = 100, *, process: str = "", lead: timedelta = timedelta(0), held: Iterable[DatasetId] = ()
) -> list[tuple[DatasetId, datetime]]:
    """Return the inboxes whose time to be listed has come, longest due first, each with that time.

    For inboxes that are not among `held`, the time has come `lead` later. An inbox that `process` has charge of is due
    at once when another process asks for a listing.
    """
    params: dict[str, Param] = {"process": process, "lead": lead, "held": json.dumps(sorted(held)), "limit": limit}
    return db.records(SQL.select_due_listings, tuple[DatasetId, datetime], **params)


@dataclass(frozen=True, slots=True)
class NextListing:
    """The time of the next listing of an inbox, maybe past, and the process that has charge of the inbox until then."""

    next_listing_at: datetime
    in_charge: str | None


def find_listing(db: Db, dataset_id: DatasetId) -> NextListing | None:
    """Return the next listing of an inbox; None when there is no such inbox any more."""
    return db.record(SQL.find_listing, NextListing, dataset_id=dataset_id)


def all_listings(db: Db) -> list[tuple[DatasetId, datetime]]:
    """Return all inboxes, each with the time of its next listing."""
    return db.records(SQL.select_listings, tuple[DatasetId, datetime])


def take_listing(db: Db, dataset_id: DatasetId, due_at: datetime, process: str, hold: timedelta) -> bool:
    """Take charge of the listings of an inbox or a table for `hold`, if they are still due at `due_at`.

    Return whether they were.

    Until the charge ends, `process` lists the inbox by its own clock, and writes nothing to the catalog.
    """
    # First its row, then the inbox: no two processes wait for each other.
    db.run(SQL.hold_charge, process=process, interval=hold)
    return bool(db.all(SQL.take_listing, dataset_id=dataset_id, next_listing_at=due_at, process=process, interval=hold))


def renew_charge(db: Db, process: str, hold: timedelta) -> list[DatasetId]:
    """Renew the charge that `process` has of its inboxes, and return these inboxes.

    A charge that has ended is renewed too. The inboxes that other processes have taken meanwhile stay with these.
    """
    db.run(SQL.hold_charge, process=process, interval=hold)
    db.run(SQL.delete_ended_charges)
    return db.records(SQL.select_held, DatasetId, process=process)


def end_charge(db: Db, process: str) -> None:
    """End the charge that `process` has of its inboxes: they are due for all other processes now."""
    db.run(SQL.end_charge, process=process)


def have_listed(db: Db, inbox: Inbox | Fileset) -> None:
    """Have the inbox listed now, by the process that has charge of it or by any other one."""
    db.run(SQL.have_listed, dataset_id=inbox.dataset_id)


def next_listing(process: str = "", left: Iterable[DatasetId] = ()) -> Call:
    """Return the read of the time, maybe past, at which an inbox is due that is not among `left`. It may find NULL.

    An inbox that `process` has charge of is due at once when another process asks for a listing.
    """
    return SQL.select_next_listing(process=process, left=json.dumps(sorted(left)))


def _chunks(items: Sequence[_T]) -> Iterable[Sequence[_T]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
