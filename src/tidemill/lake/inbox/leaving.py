"""Leaving of processed files: they stay, or the janitor archives or deletes them.

The commit that closes a file writes the intent into its row. The janitor acts on the intent: it copies, compares,
deletes, and then records the result. After a crash anywhere the janitor repeats these steps. A file that was written
again meanwhile stays: the new content has not been processed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.errors import TidemillError
from tidemill.lake.inbox.inbox import Afterwards, is_of_time
from tidemill.names import DatasetId
from tidemill.storage.file_names import LONGEST_NAME
from tidemill.storage.files import (
    FileChanged,
    FileExists,
    Files,
    FileStatus,
    FileUnreadable,
    StorageUnavailable,
    digest_of,
    for_each,
    read_chunks,
)
from tidemill.storage.locations import open_files
from tidemill.texts import printable
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.lake.inbox.leaving_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST_FILES: Final = 32
_MOST_BYTES: Final = 256 << 20
_WAIT: Final = timedelta(minutes=1)
_LOOKS: Final = 3
_VERSION_SHOWN: Final = 12
_LONGEST_SUFFIX: Final = 64
_ANOTHER_FOLDER: Final = "it is another folder than the one that had the file: mount the disk, or list the inbox"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Leaving:
    dataset_id: DatasetId
    name: str
    content_version: str
    etag: str
    bytes: int
    afterwards: Afterwards
    archive: str | None
    location: str
    root: str | None
    checksum: str | None
    modified_at: datetime
    error: str | None = None
    wait: timedelta | None = None


def empty_inboxes(catalog: Catalog) -> int:
    """Archive or delete some of the due files, and record the results. Return the number of files, 0 if none is due.

    Any number of janitors may do this at one time. A file that cannot be moved now is retried. Cost: a call ends after
    32 files, or with the file by which 256 MiB went into archives, so that a stop does not wait for a whole backlog.
    """
    due = catalog.read(lambda db: db.records(SQL.find_leaving, _Leaving, most=_MOST_FILES))
    done: list[_Leaving] = []
    for group in _group(catalog.world, due):
        done += _leave(catalog.world, group)
    if done:
        catalog.world.mark("leaving.before_note")
        catalog.write(lambda db: db.run(SQL.note_left, files=to_json([asdict(file) for file in done])))
    return len(done)


def is_due(db: Db) -> bool:
    """Return whether a file is due. A file that could not be moved is due again after a wait."""
    return db.one(SQL.find_leaving, most=1) is not None


@dataclass(slots=True)
class _Group:
    """Due files that go from one location to one place."""

    files: Files
    archive: Files | None
    due: list[_Leaving]


def _group(world: World, due: Iterable[_Leaving]) -> Iterable[_Group]:
    """Group the files that one call takes: those up to the bound of bytes, and at least one."""
    groups: dict[tuple[str, str | None, str | None], _Group] = {}
    copied = 0
    for file in due:
        place = file.location, file.root, file.archive
        if place not in groups:
            archive = None if file.archive is None else open_files(file.archive, world)
            groups[place] = _Group(open_files(file.location, world, file.root), archive, [])
        groups[place].due.append(file)
        copied += file.bytes if file.archive is not None else 0
        if copied >= _MOST_BYTES:
            break
    return groups.values()


def _leave(world: World, group: _Group) -> list[_Leaving]:
    """Archive or delete the files of a group, and return them with the results."""
    done = _take_untouched(world, group) if group.files.capabilities.etag_is_of_content else {}
    left = [place for place in range(len(group.due)) if place not in done]
    looked_at = for_each(group.files, partial(_archive_or_delete, world, group), [group.due[p] for p in left])
    done |= zip(left, looked_at, strict=True)
    return [done[place] for place in range(len(group.due))]


def _take_untouched(world: World, group: _Group) -> dict[int, _Leaving]:
    """Take the files that nothing has touched, and return them by place with their results.

    The store compares etags by itself. But a content that was written again has its etag of before, so the time is
    looked at between copy and deletion: for many files by one page of a listing.
    """
    done: dict[int, _Leaving] = {}
    try:
        copied = for_each(group.files, partial(_copy_untouched, group), group.due)
        places = [place for place, is_copied in enumerate(copied) if is_copied]
        found = group.files.stat_many([group.due[place].name for place in places])
        same = [p for p, one in zip(places, found, strict=True) if _is_processed(group.files, group.due[p], one)]
        world.mark("leaving.copied")
        deleted = group.files.delete_contents([(group.due[place].name, group.due[place].etag) for place in same])
        done |= {p: _left(group.archive, group.due[p]) for p, ok in zip(same, deleted, strict=True) if ok}
    except (OSError, TidemillError) as error:
        _log.info("files in %s are looked at one by one: %s", group.files.url, error)
    return done


def _copy_untouched(group: _Group, file: _Leaving) -> bool:
    """Copy a file that leaves by a copy; return whether nothing was in its way."""
    try:
        if group.archive is not None:
            group.archive.copy_from(group.files, file.name, file.etag, file.name)
    except (FileChanged, FileExists, FileNotFoundError):
        return False
    return True


def _archive_or_delete(world: World, group: _Group, file: _Leaving) -> _Leaving:
    """Archive or delete one file after a look at it, and return the file with the result."""
    why: OSError | TidemillError
    for _ in range(_LOOKS):
        try:
            return _look_and_take(world, group.files, group.archive, file)
        except (FileChanged, FileExists, FileNotFoundError) as error:
            why = error  # it changed meanwhile: another janitor works on it, or a writer does
        except (OSError, TidemillError) as error:
            why = error  # the store is away, the disk full: one file must not hold up the others
            break
    _log.warning("cannot %s %s in %s yet: %s", file.afterwards, file.name, file.location, why)
    return replace(file, error=printable(f"cannot {file.afterwards} it yet: {why}"), wait=_WAIT)


def _left(archive: Files | None, file: _Leaving, name: str | None = None) -> _Leaving:
    """Return the record of a file that has left: for the archive under that name, or its own."""
    if archive is None:
        return replace(file, afterwards=Afterwards.DELETED)
    return replace(file, afterwards=Afterwards.ARCHIVED, archive=archive.url_of(name or file.name))


def _look_and_take(world: World, files: Files, archive: Files | None, file: _Leaving) -> _Leaving:
    # First complete a move that another janitor has begun: that janitor may have died, and after this record no janitor
    # looks at the file again.
    status = files.settle(file.name)
    if status is None:
        _check_folder(files, file)
        # The disk may have been mounted between the two looks.
        status = files.settle(file.name)
    if status is None:
        return _not_there(archive, file)
    if status.etag != file.etag and _is_copy(files, file, status):
        file = replace(file, etag=status.etag)
    if not _is_processed(files, file, status):
        return replace(file, afterwards=Afterwards.REPLACED, archive=None)
    name = None if archive is None else _copy(files, archive, file)
    world.mark("leaving.copied")
    files.delete(file.name, etag=file.etag)
    return _left(archive, file, name)


def _check_folder(files: Files, file: _Leaving) -> None:
    """Raise `StorageUnavailable` unless the folder is the folder that had the file: another folder proves nothing.

    A mount point without its disk may have files of its own. The next listing of a restored folder notes the folder.
    """
    root = files.check_location()
    if None not in (root, file.root) and root != file.root:
        raise StorageUnavailable(files.url, "", _ANOTHER_FOLDER)


def _is_processed(files: Files, file: _Leaving, status: FileStatus | FileUnreadable | None) -> bool:
    """Tell whether a file is the one that was processed. In a bucket the same content has one etag at all times."""
    if not isinstance(status, FileStatus) or status.etag != file.etag:
        return False
    return not files.capabilities.etag_is_of_content or is_of_time(status.modified_at, file.modified_at)


def _is_copy(files: Files, file: _Leaving, status: FileStatus) -> bool:
    """Tell whether the file is a copy of the content that was processed: of its size and time, with its checksum."""
    alike = status.bytes == file.bytes and is_of_time(status.modified_at, file.modified_at)
    return alike and file.checksum is not None and digest_of(files, status) == file.checksum


def _not_there(archive: Files | None, file: _Leaving) -> _Leaving:
    """Return the record of a file that is missing: another janitor moved it and died, or another process deleted it.

    If the archive has an earlier content of the same size under the name, the two cases look alike.
    """
    if archive is None:
        return replace(file, afterwards=Afterwards.DELETED)
    plain, distinct = _targets(file)
    for target in (distinct, plain):  # where the first is, the second is another content
        status = archive.stat(target)
        if status is not None and status.bytes == file.bytes:
            return replace(file, afterwards=Afterwards.ARCHIVED, archive=archive.url_of(target))
    return replace(file, afterwards=Afterwards.GONE, archive=None)


def _copy(files: Files, archive: Files, file: _Leaving) -> str:
    """Have the content in the archive, and return the name that it has there; nothing that is there is overwritten."""
    names = list(_targets(file))
    # Looked at once: a second look could see what another janitor has put there since, and take it for another content.
    taken = [name for name in names if archive.stat(name) is not None]
    if len(taken) == len(names):
        # Inboxes that share an archive may have contents of one name, one size and one time.
        names.append(_with_digest(file, _digest(files, file.name)))
        taken += [name for name in names[-1:] if archive.stat(name) is not None]
    for name in reversed(taken):
        # Where an earlier try has put it, or where the same content lies.
        if _are_equal(files, file.name, archive, name):
            return name
    free = [name for name in names if name not in taken]
    target = free[0] if free else names[-1]
    archive.copy_from(files, file.name, file.etag, target)
    return target


def _digest(files: Files, name: str) -> str:
    digest = sha256()
    for chunk in read_chunks(files, name):
        digest.update(chunk)
    return digest.hexdigest()


def _are_equal(files: Files, name: str, archive: Files, target: str) -> bool:
    """Compare two files byte by byte: the one is deleted if they are equal."""
    pairs = zip_longest(read_chunks(files, name), read_chunks(archive, target))
    return all(one == other for one, other in pairs)


def _targets(file: _Leaving) -> tuple[str, str]:
    """Return two names in the archive: the file's own, and one to use if the first has another content."""
    return file.name, _with_digest(file, file.content_version)


def _with_digest(file: _Leaving, digest: str) -> str:
    path = PurePosixPath(file.name)
    stem, suffix = (path.stem, path.suffix) if len(path.suffix.encode()) < _LONGEST_SUFFIX else (path.name, "")
    end = f"-{digest[:_VERSION_SHOWN]}{suffix}"
    begin = stem.encode()[: LONGEST_NAME - len(end.encode())].decode(errors="ignore")
    return str(path.with_name(begin + end))
