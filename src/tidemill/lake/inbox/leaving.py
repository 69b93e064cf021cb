"""What becomes of files that were processed: they stay, or the janitor takes them to an archive, or deletes them.

The commit that closes a file writes the intent into its row. The janitor acts on it, as often as it takes: it copies
first, compares, then deletes, and then notes what came of it; so a crash anywhere is a repetition. A file that was
written again meanwhile is left alone: it is another one, and nobody has processed it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from hashlib import sha256
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Row, load_sql
from tidemill.durations import to_milliseconds
from tidemill.epoch import to_ms
from tidemill.errors import TidemillError
from tidemill.lake.inbox.inbox import Afterwards, latest_time
from tidemill.lake.manifest import checksum
from tidemill.names import DatasetId
from tidemill.storage.files import LONGEST_NAME, FileChanged, FileExists, Files, FileStatus, open_files, read_chunks
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
    modified_at: int
    error: str | None = None
    wait: int | None = None


def take_away(catalog: Catalog) -> int:
    """Archive or delete some of what is due, and note what came of it; how many files it were, 0 when nothing is due.

    Any number of janitors may do it at once. What cannot be moved now is tried again. Cost: a call ends after 32 files,
    or with the one by which 256 MiB went into archives, so that a stop does not wait for a whole backlog.
    """
    due = catalog.read(lambda db: db.all(SQL.find_leaving, most=_MOST_FILES))
    done: list[_Leaving] = []
    copied = 0
    for file in map(_leaving, due):
        done.append(_take_away(catalog, file))
        copied += file.bytes if file.archive is not None else 0
        if copied >= _MOST_BYTES:
            break
    if done:
        catalog.world.mark("leaving.before_note")
        catalog.write(lambda db: db.run(SQL.note_left, files=json.dumps([asdict(file) for file in done])))
    return len(done)


def is_due(db: Db) -> bool:
    """Whether there is a file for `take_away`; what could not be moved is none until its next try."""
    return db.one(SQL.find_leaving, most=1) is not None


def _take_away(catalog: Catalog, file: _Leaving) -> _Leaving:
    """Take one file to where it belongs; the file with what came of it."""
    files = open_files(file.location, catalog.world, file.root)
    archive = None if file.archive is None else open_files(file.archive, catalog.world)
    why: OSError | TidemillError
    for _ in range(_LOOKS):
        try:
            return _look_and_take(catalog.world, files, archive, file)
        except (FileChanged, FileExists, FileNotFoundError) as error:
            why = error  # it changed under our eyes: another janitor is at it, or somebody writes
        except (OSError, TidemillError) as error:
            why = error  # the store is away, the disk full: one file must not hold up the others
            break
    _log.warning("cannot %s %s in %s yet: %s", file.afterwards, file.name, file.location, why)
    return replace(file, error=printable(f"cannot {file.afterwards} it yet: {why}"), wait=to_milliseconds(_WAIT))


def _look_and_take(world: World, files: Files, archive: Files | None, file: _Leaving) -> _Leaving:
    # What another has begun is ended first: he may die, and what is noted here nobody looks at again.
    status = files.settle(file.name)
    if status is None:
        files.check_location()
        return _not_there(archive, file)
    if status.etag != file.etag and _is_copy(files, file, status):
        file = replace(file, etag=status.etag)
    if status.etag != file.etag:
        return replace(file, afterwards=Afterwards.REPLACED, archive=None)
    moved_to = None if archive is None else archive.url_of(_copy(files, archive, file))
    world.mark("leaving.copied")
    files.delete(file.name, etag=file.etag)
    if moved_to is None:
        return replace(file, afterwards=Afterwards.DELETED)
    return replace(file, afterwards=Afterwards.ARCHIVED, archive=moved_to)


def _is_copy(files: Files, file: _Leaving, status: FileStatus) -> bool:
    """Tell whether the file is a copy of the content that was processed: of its size and time, with its checksum."""
    is_of_its_time = to_ms(status.modified_at) <= file.modified_at <= latest_time(status.modified_at)
    alike = file.checksum is not None and status.bytes == file.bytes and is_of_its_time
    return alike and checksum(files, file.name) == file.checksum


def _not_there(archive: Files | None, file: _Leaving) -> _Leaving:
    """It was taken away: by a janitor that did not come to note it, or by somebody else.

    Somebody else may go unnoticed where an earlier content of that size is in the archive under its name.
    """
    if archive is None:
        return replace(file, afterwards=Afterwards.DELETED)
    plain, told_apart = _targets(file)
    for target in (told_apart, plain):  # where the first is, the second is another content
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
        names.append(_told_apart(file, _digest(files, file.name)))
        taken += [name for name in names[-1:] if archive.stat(name) is not None]
    for name in reversed(taken):
        # Where an earlier try has put it, or where the same content lies.
        if _are_equal(files, file.name, archive, name):
            return name
    free = [name for name in names if name not in taken]
    target = free[0] if free else names[-1]
    archive.put_new(target, _content(files, file))
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
    """Its names in the archive: its own, and one for when another content lies there."""
    return file.name, _told_apart(file, file.content_version)


def _told_apart(file: _Leaving, digest: str) -> str:
    path = PurePosixPath(file.name)
    stem, suffix = (path.stem, path.suffix) if len(path.suffix.encode()) < _LONGEST_SUFFIX else (path.name, "")
    end = f"-{digest[:_VERSION_SHOWN]}{suffix}"
    begin = stem.encode()[: LONGEST_NAME - len(end.encode())].decode(errors="ignore")
    return str(path.with_name(begin + end))


def _content(files: Files, file: _Leaving) -> Iterator[bytes]:
    """The content that was processed, to its end; `FileChanged` when it was written again before that."""
    with suppress(FileNotFoundError):
        yield from read_chunks(files, file.name)
    status = files.stat(file.name)
    if status is None or status.etag != file.etag:
        raise FileChanged(files.url, file.name, file.etag, "none" if status is None else status.etag)


def _leaving(row: Row) -> _Leaving:
    dataset_id, name, version, etag, size, afterwards, archive, location, root, known, at = cast(
        "tuple[str, str, str, str, int, str, str | None, str, str | None, str | None, int]", row
    )
    what = Afterwards(afterwards)
    return _Leaving(DatasetId(dataset_id), name, version, etag, size, what, archive, location, root, known, at)
