"""The audit of a snapshot: whether its versions replaced one another as they should, and never went back in time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.named import load_sql
from tidemill.lake.snapshot.refresh_order import sort_key
from tidemill.lake.snapshot.snapshot import SnapshotDataset
from tidemill.upkeep.search import FindingKind, Search

if TYPE_CHECKING:
    from tidemill.upkeep.audit_versions_sql import Sql

SQL: Sql = load_sql(__file__)

_AGAIN: Final = "refresh it, or roll it back to a version that is right"


@dataclass(frozen=True, slots=True)
class SnapshotAudit:
    """A snapshot: its versions, those of them that were announced since they became current, and the current one."""

    dataset: str
    versions: int
    announced: int
    current: int | None


class _Row(NamedTuple):
    """A version, with the state of its transaction where that is not its own commit."""

    write_pointer: int
    commit_seq: int
    superseded_seq: int | None
    order_time: datetime | None
    mismatch: str | None


def audit_versions(search: Search, snapshot: SnapshotDataset, announced: int) -> SnapshotAudit:
    """Go through the versions in the order of their commits, and say where what is recorded differs from the rule.

    The rule: the last in the order of refreshes is current; one that commits behind a later one is history from the
    first; any other is replaced by the next that is later. So at each commit one version is current, and none comes
    again.
    """
    versions = 0
    current: tuple[int, int | None] | None = None  # its write pointer, and when it says that it was replaced
    latest: tuple[datetime, int] | None = None  # its place in the order
    dataset_id = snapshot.dataset_id
    for after, bound in search.windows(SQL.find_bound_of_versions, 0, pointer=search.tick, dataset_id=dataset_id):
        for row in search.records(SQL.read_versions, _Row, after=after, bound=bound, dataset_id=dataset_id):
            version, commit_seq, superseded_seq, order_time, mismatch = row
            place = sort_key(order_time, version)
            versions += 1
            if mismatch != "":
                what = f"version {version} can be seen from {commit_seq} on; its transaction is {mismatch or 'unknown'}"
                search.report(FindingKind.DIRTY, snapshot.qualified_name, what, _AGAIN)
            if latest is not None and place < latest:
                _compare(search, snapshot, version, superseded_seq, commit_seq)
                continue
            if current is not None:
                _compare(search, snapshot, *current, commit_seq)
            current, latest = (version, superseded_seq), place
    if current is not None:
        _compare(search, snapshot, *current, None)
    return SnapshotAudit(snapshot.qualified_name, versions, announced, current[0] if current else None)


def _compare(search: Search, snapshot: SnapshotDataset, version: int, said: int | None, expected: int | None) -> None:
    if said == expected or (expected is None and said is not None and said >= search.tick):
        return
    is_said = "is current" if said is None else f"was replaced at {said}"
    should = "it should be current" if expected is None else f"it should have been replaced at {expected}"
    what = f"version {version} {is_said}, and {should}"
    search.report(FindingKind.BROKEN, snapshot.qualified_name, what, _AGAIN)
