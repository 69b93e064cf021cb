"""Comparison of two versions of a snapshot by what the catalog knows of them: figures, columns, contents of files.

No file is read, so that a server without Spark can answer. Which rows differ is found by `frames.version_diff`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

from tidemill.lake.snapshot.snapshot import Version
from tidemill.names import RunId, WritePointer


@dataclass(frozen=True, slots=True)
class VersionFigures:
    """Figures of a version."""

    version: WritePointer
    committed_at: datetime
    run_id: RunId
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class RetypedColumn:
    """Column that has another type in the new version."""

    name: str
    old_type: str
    new_type: str


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Comparison of versions `old` and `new`, without a look at their rows.

    `same_files` are the contents of files that both have: all of them in a version that was rolled back to, or
    refreshed from a source that did not change. `identical` versions have the same columns and contents.
    """

    dataset: str
    old: VersionFigures
    new: VersionFigures
    more_rows: int
    more_bytes: int
    identical: bool
    same_files: int
    files_added: int
    files_removed: int
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    columns_retyped: tuple[RetypedColumn, ...]


def compare_versions(dataset: str, old: Version, new: Version) -> VersionComparison:
    """Compare two versions of a snapshot. Cost: their manifests."""
    before, after = _contents(old), _contents(new)
    same = (before & after).total()
    types, now = old.columns.types, new.columns.types
    first, second = _figures(old), _figures(new)
    return VersionComparison(
        dataset,
        first,
        second,
        second.rows - first.rows,
        second.bytes - first.bytes,
        before == after and types == now,
        same,
        after.total() - same,
        before.total() - same,
        tuple(name for name in now if name not in types),
        tuple(name for name in types if name not in now),
        tuple(RetypedColumn(name, types[name], kind) for name, kind in now.items() if types.get(name, kind) != kind),
    )


def _figures(version: Version) -> VersionFigures:
    manifest = version.manifest
    figures = manifest.total_rows, manifest.total_bytes, len(manifest.files)
    return VersionFigures(version.version, version.at, version.run_id, *figures)


def _contents(version: Version) -> Counter[Hashable]:
    """Count the contents of a version's files: by checksum, or by place where there is none."""
    return Counter(
        (file.bytes, file.rows, file.checksum) if file.checksum else (version.location, file.name)
        for file in version.manifest.files
    )
