"""What is seen of claimed files by themselves: before the program reads them, and just before the commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from tidemill.errors import Conflict
from tidemill.lake.file_claims import ClaimedFile
from tidemill.lake.formats import check_file
from tidemill.lake.inbox import FileState, Inbox, content_version
from tidemill.names import DatasetId
from tidemill.storage.files import FileStatus
from tidemill.texts import printable
from tidemill.world import World


class FileRewritten(Conflict):
    """A file changed between its claim and the commit: what was read is not what would be recorded."""

    code = "file_rewritten"

    def __init__(self, name: str, found: str) -> None:
        self.name = name
        self.found = found
        super().__init__(f"file {name!r} {found} while it was being processed; run again without it")


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """How a claimed file ends with its run's commit; made by `succeeded`, `went_wrong` and `is_gone`."""

    dataset_id: DatasetId
    name: str
    content_version: str
    status: FileState
    failures: int
    row_count: int | None = None
    error: str | None = None
    retry_after: timedelta | None = None


def sort_out(
    world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]
) -> tuple[list[ClaimedFile], list[FileOutcome]]:
    """Look at each claimed file before the program does: those to hand over, and the outcomes of the others.

    A file that is bad by itself fails only itself; one that was written again or has gone since it was found is
    skipped (its new content comes by itself). The outcomes belong in the run's `CloseFiles`. Cost: reads text once.
    """
    at = {inbox.dataset_id: (inbox, inbox.files(world)) for inbox in inboxes}
    good: list[ClaimedFile] = []
    others: list[FileOutcome] = []
    for file in claimed:
        inbox, files = at[file.dataset_id]
        status = files.stat(file.name)
        try:
            why = check_file(files, status, inbox.spec.format) if status and _is_same(file, status) else None
        except FileNotFoundError:
            status, why = None, None
        if status is None or not _is_same(file, status):
            others.append(is_gone(file))
        elif why is not None:
            others.append(went_wrong(inbox, file, why))
        else:
            good.append(file)
    return good, others


def verify_claims(world: World, inboxes: Iterable[Inbox], claimed: Iterable[ClaimedFile]) -> None:
    """Refuse with `FileRewritten` if a file is no longer what was claimed: just before the commit, after reading."""
    at = {inbox.dataset_id: inbox.files(world) for inbox in inboxes}
    for file in claimed:
        status = at[file.dataset_id].stat(file.name)
        if status is None:
            raise FileRewritten(file.name, "was taken away")
        if not _is_same(file, status):
            raise FileRewritten(file.name, "was written again")


def _is_same(file: ClaimedFile, status: FileStatus) -> bool:
    return content_version(status) == file.content_version


def succeeded(file: ClaimedFile, row_count: int | None = None) -> FileOutcome:
    """The file was processed; `row_count` where it is known."""
    return FileOutcome(
        file.dataset_id, file.name, file.content_version, FileState.SUCCESS, file.failures, row_count=row_count
    )


def went_wrong(inbox: Inbox, file: ClaimedFile, why: str) -> FileOutcome:
    """The file itself is bad: to be tried again, and quarantined after the inbox's `attempts`."""
    failures = file.failures + 1
    ends = failures >= inbox.spec.attempts
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.QUARANTINED if ends else FileState.ERROR,
        failures,
        error=printable(why),
        retry_after=None if ends else inbox.spec.retry_after * 2 ** (failures - 1),
    )


def is_gone(file: ClaimedFile) -> FileOutcome:
    """What was claimed is not there any more."""
    return FileOutcome(
        file.dataset_id,
        file.name,
        file.content_version,
        FileState.SKIPPED,
        file.failures,
        error="taken away or written again before it was processed",
    )
