"""Checks of claimed files: before the program reads them, and just before the commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from tidemill.errors import Conflict
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import FileState, Inbox, is_of_time
from tidemill.names import DatasetId
from tidemill.shapes.contents import check_file
from tidemill.storage.files import (
    FileChanged,
    Files,
    FileStatus,
    FileUnreadable,
    StorageUnavailable,
    digest_of,
    find_file,
    find_files,
    for_each,
)
from tidemill.texts import printable
from tidemill.world import World

_LONGEST_WAIT: Final = timedelta(hours=1)


class FileRewritten(Conflict):
    """A file changed between its claim and the commit: what was read is not what would be recorded."""

    code = "file_rewritten"

    def __init__(self, name: str, found: str) -> None:
        self.name = name
        self.found = found
        super().__init__(f"file {name!r} {found} while it was being processed", "run again without it")


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """End of a claimed file with its run's commit. Made by `succeeded`, `went_wrong` and `is_gone`."""

    dataset_id: DatasetId
    name: str
    content_version: str
    status: FileState
    failures: int
    row_count: int | None = None
    error: str | None = None
    retry_after: timedelta | None = None
    etag: str | None = None
    checksum: str | None = None


def sort_out(
    world: World, inboxes: Iterable[Inbox], claimed: Sequence[ClaimedFile]
) -> tuple[list[ClaimedFile], list[FileOutcome]]:
    """Look at each claimed file before the program does: those to hand over, and the outcomes of the others.

    A file that is bad by itself fails only itself; one that was written again or has gone since it was found is
    skipped (its new content comes by itself). A copy of the file is the file. The outcomes belong in the run's
    `CloseFiles`. Raises `StorageUnavailable` when an inbox is away: then no file is closed. Cost: in a folder, reads
    text twice, other files once. In a bucket a text is one request, and requests for several files go out at once.
    """
    good: list[ClaimedFile] = []
    others: list[FileOutcome] = []
    for inbox, files, those in _by_inbox(world, inboxes, claimed):
        look = partial(_look_at, inbox, files)
        for one in for_each(files, look, those):
            if isinstance(one, ClaimedFile):
                good.append(one)
            else:
                others.append(one)
    # Of several inboxes too, the program gets the files in the order of the claim.
    order = {(file.dataset_id, file.name): place for place, file in enumerate(claimed)}
    return sorted(good, key=lambda file: order[file.dataset_id, file.name]), others


def _by_inbox(
    world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]
) -> Iterator[tuple[Inbox, Files, list[ClaimedFile]]]:
    """The inboxes of claimed files, each with its store and its files."""
    those: defaultdict[DatasetId, list[ClaimedFile]] = defaultdict(list)
    for file in claimed:
        those[file.dataset_id].append(file)
    for inbox in inboxes:
        if inbox.dataset_id in those:
            yield inbox, inbox.files(world), those[inbox.dataset_id]


def _look_at(inbox: Inbox, files: Files, file: ClaimedFile) -> ClaimedFile | FileOutcome:
    """Return a good file as the attempt is given it, else the outcome."""
    try:
        if files.capabilities.etag_is_of_content and file.bytes:
            # A read of the etag that was listed tells whether the file is that one: nothing is asked before.
            with suppress(FileChanged, FileNotFoundError):
                return _check(inbox, files, file, FileStatus(file.name, file.bytes, file.modified_at, file.etag))
        status = find_file(files, file.name)
        if status is None or not is_same(file, status):
            return is_gone(file)
        return _check(inbox, files, file, status)
    except (FileChanged, FileNotFoundError):
        return _look_again(files, file)
    except FileUnreadable as error:
        return _unreadable(inbox, file, error)


def _check(inbox: Inbox, files: Files, file: ClaimedFile, status: FileStatus) -> ClaimedFile | FileOutcome:
    """Read a file whose status is known. Raises `FileNotFoundError`, and `FileChanged` if it is another one by now."""
    why = check_file(files, status, inbox.spec.format)
    if why is None:
        return replace(file, etag=status.etag, checksum=digest_of(files, status))
    found = find_file(files, file.name)  # a writer may have begun again while the check read
    return went_wrong(inbox, file, why) if found is not None and is_same(file, found) else is_gone(file)


def _look_again(files: Files, file: ClaimedFile) -> FileOutcome:
    """Close a file that went or changed while it was read; `StorageUnavailable` when its location was away."""
    status = find_file(files, file.name)
    if status is not None and is_same(file, status):
        raise StorageUnavailable(files.url, file.name, "it was away for a moment")
    return is_gone(file)


def find_changed(world: World, inbox: Inbox, claimed: Sequence[ClaimedFile]) -> list[FileOutcome]:
    """Return the outcomes of claimed files that were deleted or written again since they were found, or are unreadable.

    Raises `StorageUnavailable` when the inbox is away.
    """
    changed = []
    statuses = find_files(inbox.files(world), [file.name for file in claimed])
    for file, status in zip(claimed, statuses, strict=True):
        if isinstance(status, FileUnreadable):
            changed.append(_unreadable(inbox, file, status))
        elif status is None or not is_same(file, status):
            changed.append(is_gone(file))
    return changed


def verify_claims(world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]) -> None:
    """Refuse with `FileRewritten` if a file is no longer what was claimed: just before the commit, after reading."""
    for _, files, those in _by_inbox(world, inboxes, claimed):
        for file, status in zip(those, find_files(files, [file.name for file in those]), strict=True):
            if isinstance(status, FileUnreadable):
                raise status
            if status is None:
                raise FileRewritten(file.name, "was deleted or moved")
            if status.etag != file.etag:
                raise FileRewritten(file.name, "was written again")


def is_same(file: ClaimedFile, status: FileStatus) -> bool:
    """Tell whether an unread file is still the one that was found, or a copy of it."""
    alike = status.bytes == file.bytes and is_of_time(status.modified_at, file.modified_at)
    return alike or status.etag == file.etag


def succeeded(file: ClaimedFile, row_count: int | None = None) -> FileOutcome:
    """The file was processed; `row_count` where it is known."""
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.SUCCESS,
        file.failures,
        row_count=row_count,
        etag=file.etag,
        checksum=file.checksum,
    )


def returned(file: ClaimedFile) -> FileOutcome:
    """Return the claim of a file that no attempt has processed."""
    return FileOutcome(file.dataset_id, file.name, file.content_version, FileState.NEW, file.failures)


def went_wrong(inbox: Inbox, file: ClaimedFile, why: str) -> FileOutcome:
    """The file itself is bad: to be tried again, and quarantined after the inbox's `attempts`."""
    return failed(inbox, file, why, alone=True)


def failed(inbox: Inbox, file: ClaimedFile, why: str, *, alone: bool) -> FileOutcome:
    """Work on the file failed, of it `alone` or of it among others: then it is a suspect, and never quarantined."""
    failures = file.failures + 1
    ends = alone and failures >= inbox.spec.attempts
    wait = min(inbox.spec.retry_after * 2 ** min(failures - 1, 20), _LONGEST_WAIT)
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.QUARANTINED if ends else FileState.ERROR,
        failures,
        error=printable(why),
        # No wait is None: the commit announces the file, and the keeper would announce a time again.
        retry_after=None if ends or not wait else wait,
    )


def _unreadable(inbox: Inbox, file: ClaimedFile, error: FileUnreadable) -> FileOutcome:
    return went_wrong(inbox, file, f"it cannot be read: {error.why}")


def is_gone(file: ClaimedFile) -> FileOutcome:
    """Close a claimed file that has disappeared."""
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.SKIPPED,
        file.failures,
        error="deleted, moved or written again before it was processed",
    )
