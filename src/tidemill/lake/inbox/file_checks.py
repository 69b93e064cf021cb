"""Checks of claimed files: before the program reads them, and just before the commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from tidemill.errors import Conflict
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import FileState, Inbox, is_of_time
from tidemill.names import DatasetId
from tidemill.shapes.contents import check_file
from tidemill.storage.files import Files, FileStatus, FileUnreadable, StorageUnavailable, checksum, find_file
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
    world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]
) -> tuple[list[ClaimedFile], list[FileOutcome]]:
    """Look at each claimed file before the program does: those to hand over, and the outcomes of the others.

    A file that is bad by itself fails only itself; one that was written again or has gone since it was found is
    skipped (its new content comes by itself). A copy of the file is the file. The outcomes belong in the run's
    `CloseFiles`. Raises `StorageUnavailable` when an inbox is away: then no file is closed. Cost: reads text twice,
    other files once.
    """
    at = {inbox.dataset_id: (inbox, inbox.files(world)) for inbox in inboxes}
    good: list[ClaimedFile] = []
    others: list[FileOutcome] = []
    for file in claimed:
        inbox, files = at[file.dataset_id]
        status, why, digest = None, None, None
        try:
            status = find_file(files, file.name)
            if status is not None and is_same(file, status):
                why = check_file(files, status, inbox.spec.format)
                digest = checksum(files, file.name) if why is None else None
                if why is not None:
                    status = find_file(files, file.name)  # a writer may have begun again while the check read
        except FileNotFoundError:
            status = _look_again(files, file)
        except FileUnreadable as error:
            others.append(_unreadable(inbox, file, error))
            continue
        if status is None or not is_same(file, status):
            others.append(is_gone(file))
        elif why is not None:
            others.append(went_wrong(inbox, file, why))
        else:
            good.append(replace(file, etag=status.etag, checksum=digest))
    return good, others


def _look_again(files: Files, file: ClaimedFile) -> FileStatus | None:
    """Return the status of a file that vanished while it was read; `StorageUnavailable` when its location did."""
    status = find_file(files, file.name)
    if status is not None and is_same(file, status):
        raise StorageUnavailable(files.url, file.name, "it was away for a moment")
    return status


def find_changed(world: World, inbox: Inbox, claimed: Iterable[ClaimedFile]) -> list[FileOutcome]:
    """Return the outcomes of claimed files that were deleted or written again since they were found, or are unreadable.

    Raises `StorageUnavailable` when the inbox is away.
    """
    files = inbox.files(world)
    changed = []
    for file in claimed:
        try:
            status = find_file(files, file.name)
        except FileUnreadable as error:
            changed.append(_unreadable(inbox, file, error))
            continue
        if status is None or not is_same(file, status):
            changed.append(is_gone(file))
    return changed


def verify_claims(world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]) -> None:
    """Refuse with `FileRewritten` if a file is no longer what was claimed: just before the commit, after reading."""
    at = {inbox.dataset_id: inbox.files(world) for inbox in inboxes}
    for file in claimed:
        status = find_file(at[file.dataset_id], file.name)
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
