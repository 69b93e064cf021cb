"""Mutants of snapshots: their versions, retention and roll-back."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import In, Sql
from tests.mutants.mutant import Room, mutants_of

_mutant = mutants_of(Room.SNAPSHOTS)

MUTANTS: Final = (
    _mutant(
        "older_refresh_becomes_current",
        "whichever refresh ends last is current, also one that read the source before another",
        Sql("supersede_older").swap("< (coalesce(CAST(:order_time", "<> (coalesce(CAST(:order_time"),
        scenario="refreshes",
    ),
    _mutant(
        "logical_time_ignored",
        "refreshes that overlap go by their begin, whatever the schedule says",
        Sql("supersede_older").swap("AND (coalesce(order_time,", "AND (0 * coalesce(order_time,"),
        Sql("supersede_older").swap("< (coalesce(CAST(:order_time", "< (0 * coalesce(CAST(:order_time"),
        scenario="logical-times",
    ),
    _mutant(
        "earlier_logical_time_never_current",
        "a refresh does not come after the version that was current when its run began",
        Sql("order_by_logical_time").swap(
            "AND change.commit_seq < coalesce(CAST(:run_began AS BIGINT), {commit_seq})", "AND 1 = 0"
        ),
        scenario="logical-times",
    ),
    _mutant(
        "open_refreshes_not_counted",
        "a refresh by hand is replaced by one that began before it",
        Sql("order_by_begin").swap(
            "WHERE other.dataset_id = in_progress.dataset_id)",
            "WHERE other.dataset_id = in_progress.dataset_id AND 1 = 0)",
        ),
        scenario="logical-times",
    ),
    _mutant(
        "refresh_that_came_too_late_is_announced",
        "every refresh is announced, also one that brings nothing to read",
        Sql("publish_if_current").swap("AND change.write_pointer = :write_pointer", "AND :write_pointer > 0"),
        scenario="refreshes",
    ),
    _mutant(
        "refresh_is_not_announced",
        "the message is left to somebody else, after the commit",
        In("PublishVersion.writes").drop("SQL.publish_if_current"),
        scenario="refreshes",
    ),
    _mutant(
        "reader_sees_the_newest",
        "a reader gets what is current when it looks, and not what was at its begin",
        In("find_current").swap("seen", 'TransactionSnapshot(WritePointer(1 << 62), "")'),
        scenario="versions",
    ),
    _mutant(
        "retention_ignores_readers",
        "a version goes while somebody reads it",
        In("list_versions").swap("_readers_of(one, readers)", "()"),
        scenario="versions",
    ),
    _mutant(
        "least_number_forgotten",
        "the least number of versions is not kept when they are older than their time",
        In("decide_kept").swap("place <= retention.min_versions", "one.current"),
        scenario="least-versions",
    ),
    _mutant(
        "time_to_live_removes_the_last",
        "a pipeline that has stopped loses its last version",
        In("decide_kept").swap('found = ["current"] if one.current else []', "found: list[str] = []"),
        In("decide_kept").swap("place <= retention.min_versions", "place < retention.min_versions"),
        scenario="least-versions",
    ),
    _mutant(
        "roll_back_to_what_has_gone",
        "nobody looks again, at the commit, whether retention was faster",
        In("RollBack.guards").drop("SQL.refuse_expired"),
        scenario="rolled-back",
    ),
    _mutant(
        "roll_back_hides_a_refresh",
        "a refresh that committed while somebody looked at the versions is replaced by an older one",
        In("RollBack.guards").drop("SQL.refuse_refreshed"),
        scenario="rolled-back",
    ),
)
