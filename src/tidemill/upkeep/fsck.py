"""The difference between catalog and storage, both ways: files that are not as manifests say, and what none names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from tidemill.catalog.db import Catalog
from tidemill.errors import Unavailable
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import WritePointer
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import DamagedManifest, DataFile, Manifest, find_snapshot, is_checksum, is_side_car
from tidemill.storage.files import Files, FileStatus, checksum
from tidemill.storage.locations import open_files
from tidemill.upkeep.findings import Findings
from tidemill.upkeep.storage import SQL, DirectoryKind, find_unnamed, read_windows


class DifferenceKind(StrEnum):
    """In what catalog and storage differ."""

    MISSING = "missing"
    """A manifest names a file that is gone."""
    DAMAGED = "damaged"
    """A file has another size or content than its manifest says."""
    UNNAMED = "unnamed"
    """A file in a committed directory that no manifest names."""
    ADOPTABLE = "adoptable"
    QUARANTINED = "quarantined"
    FORGOTTEN = "forgotten"
    UNREADABLE = "unreadable"
    """The location of a file set cannot be listed, or a manifest cannot be read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference: what, where, and the next step."""

    kind: DifferenceKind
    dataset: str
    where: str
    what: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Fsck:
    """The result: the compared changes and files of manifests, directories of storage by kind, and differences.

    `other_etags` are files of the right size with another etag and no checksum to compare: a copied folder has them.
    """

    changes: int
    files: int
    other_etags: int
    directories: int
    unnamed: Mapping[str, int]
    differences: tuple[Difference, ...]
    not_shown: int

    @property
    def clean(self) -> bool:
        """Return whether nothing differs."""
        return not self.differences


_STRAYS: Final = {
    DirectoryKind.ADOPTABLE: (
        "was committed by another life of this catalog, which the catalog has lost",
        "`tidemill catalog adopt` publishes it again",
    ),
    DirectoryKind.QUARANTINED: (
        "is of another life of this catalog, and not marked as committed",
        "look into its _manifest.json; write it again from its source, or delete it by hand",
    ),
    DirectoryKind.FORGOTTEN: (
        "is of a transaction that has ended without publishing it, and that the janitor looks for no more",
        "delete it by hand",
    ),
}


def fsck(catalog: Catalog, filesets: Sequence[Fileset]) -> Fsck:
    """Compare these file sets with their locations, while work goes on; changes nothing.

    Cost: all manifests are read, each directory is listed once; a file is read only if its etag is another one than
    that in its manifest.
    """
    findings = Findings[Difference]()
    counts: Counter[str] = Counter()
    unnamed: Counter[str] = Counter()
    for fileset in filesets:
        try:
            directories, total = find_unnamed(catalog, fileset)
        except (OSError, Unavailable) as error:
            findings.add(
                Difference(
                    DifferenceKind.UNREADABLE,
                    fileset.qualified_name,
                    fileset.dataset.location,
                    str(error),
                    "bring the location back, then look again",
                )
            )
            continue
        counts["directories"] += total
        for directory in directories:
            unnamed[directory.kind] += 1
            if directory.kind in _STRAYS:
                what, next_step = _STRAYS[directory.kind]
                kind = DifferenceKind(directory.kind)
                findings.add(Difference(kind, fileset.qualified_name, directory.name, what, next_step))
        files = open_files(fileset.dataset.location, catalog.world)
        for window in read_windows(catalog, fileset, SQL.read_manifests, _Named):
            for location, rows in groupby(window, key=attrgetter("location")):
                _compare(fileset, files, location, list(rows), counts, findings)
    return Fsck(
        counts["changes"],
        counts["files"],
        counts["other etags"],
        counts["directories"],
        dict(sorted(unnamed.items())),
        tuple(findings.shown),
        findings.not_shown,
    )


class _Named(NamedTuple):
    """A manifest that names files of a directory."""

    location: str
    partition_key: KeyText
    write_pointer: WritePointer
    manifest: bytes
    """As stored. A manifest may name a million files: one at a time is decoded."""
    expired_at: datetime | None


def _compare(
    fileset: Fileset,
    files: Files,
    location: str,
    rows: Sequence[_Named],
    counts: Counter[str],
    findings: Findings[Difference],
) -> None:
    """A directory with all manifests that name it."""
    prefix = f"{location}/"
    try:
        found = {status.name.removeprefix(prefix): status for status in files.list_after(prefix, None)}
    except Unavailable:
        found = {}  # the location itself is missing: each file is reported
    named: set[str] = set()
    all_read = True
    for row in rows:
        shown = fileset.show(row.partition_key)
        change = f"write pointer {row.write_pointer} of {fileset.qualified_name}, partition {shown}"
        try:
            files_named = Manifest.decode(row.manifest, change).files
        except DamagedManifest as error:
            all_read = False
            kind = DifferenceKind.UNREADABLE
            findings.add(Difference(kind, fileset.qualified_name, location, str(error), error.hint))
            continue
        named.update(file.name for file in files_named)
        if row.expired_at is not None:
            continue  # they go, or have gone
        counts["changes"] += 1
        for file in files_named:
            counts["files"] += 1
            status = found.get(file.name)  # a version that was rolled back to has the same ones
            wrong = _find_difference(files, location, file, status, counts)
            if wrong is not None:
                kind = DifferenceKind.MISSING if status is None else DifferenceKind.DAMAGED
                what = f"{wrong}; partition {shown}"
                next_step = "bring the file back, or overwrite the partition"
                findings.add(Difference(kind, fileset.qualified_name, prefix + file.name, what, next_step))
    # In a directory that was there before Tidemill there may be anything. What a damaged manifest names is not known.
    for name in sorted(found.keys() - named) if all_read and find_snapshot(location) else ():
        if not is_side_car(name) and not is_checksum(name, named):
            what = "lies in a committed directory, and no manifest names it: no reader needs it"
            kind = DifferenceKind.UNNAMED
            next_step = "the janitor deletes it 25 h after the commit; delete it by hand if it came later"
            findings.add(Difference(kind, fileset.qualified_name, prefix + name, what, next_step))


def _find_difference(
    files: Files, location: str, file: DataFile, status: FileStatus | None, counts: Counter[str]
) -> str | None:
    if status is None:
        return "is gone"
    if status.bytes != file.bytes:
        return f"has {status.bytes} bytes instead of {file.bytes}"
    if status.etag == file.etag:
        return None
    if not file.checksum:
        counts["other etags"] += 1
        return None
    found = checksum(files, f"{location}/{file.name}", file.checksum)
    return None if found == file.checksum else f"has other content than was written ({found}, not {file.checksum})"
