"""The audit finds what must not be, each kind once, and nothing where all is well; on both databases."""

from __future__ import annotations

import pytest

from tests.lake.conftest import Lake, make_lake
from tests.run.conftest import rows_of
from tidemill.catalog.engine import open_catalog
from tidemill.upkeep.audit import audit
from tidemill.upkeep.search import FindingKind
from tidemill.world import World

CONSUMER = "default.shop.report"


@pytest.fixture
def lake(catalog_url):
    """A file set with a past: appends, overwrites, a late commit, a take that is done, one that is not."""
    catalog = open_catalog(catalog_url, World())
    lake = make_lake(catalog)
    lake.consumer()
    slow = lake.begin()
    for number in range(12):
        lake.publish(number % 4, "overwrite" if number % 5 == 4 else "append")
    first = lake.begin("first")
    lake.take(first)
    lake.commit(slow, lake.write(7))
    lake.complete(first)
    lake.publish(9)
    lake.take(lake.begin("second"))
    lake.publish(10)
    yield lake
    catalog.close()


def sql(lake: Lake, text: str) -> None:
    """Execute a statement that no code of the product would."""
    rows_of(lake.catalog, text + " RETURNING 1")


def kinds(lake: Lake) -> set[FindingKind]:
    """Return the kinds of the findings."""
    return {finding.kind for finding in audit(lake.catalog).findings}


def test_nothing_is_found_where_all_is_well(lake):
    """Both deliveries are the same set, and each change is done, waits, is held, or lies ahead of the consumer."""
    found = audit(lake.catalog)

    assert found.findings == ()
    assert found.clean
    (lines,), (consumer,) = found.filesets, found.consumers
    assert lines.changes == lines.by_pointer == lines.by_commit == lines.announced == 15
    done = (
        consumer.completed
        + consumer.overwritten
        + consumer.ignored
        + consumer.in_progress
        + consumer.new
        + consumer.dropped
    )
    assert (done, consumer.in_progress, consumer.untaken) == (14, 2, 1)


def test_an_audit_of_nothing_is_clean(catalog_url):
    """A catalog that has just been made."""
    catalog = open_catalog(catalog_url, World())

    found = audit(catalog)

    assert (found.findings, found.commits, found.filesets) == ((), 0, ())
    catalog.close()


DAMAGES = {
    "a change that its consumer was never given": (
        "DELETE FROM consumer_work WHERE write_pointer = (SELECT min(write_pointer) FROM consumer_work)",
        FindingKind.LOST,
    ),
    "a change that nobody announced": (
        "DELETE FROM message WHERE seq = (SELECT max(commit_seq) FROM partition_change)",
        FindingKind.LOST,
    ),
    "a change that was announced twice": (
        (
            "INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)"
            " SELECT topic, seq, n + 1, at, event_type, event_key, payload FROM message"
            " WHERE seq = (SELECT max(commit_seq) FROM partition_change)"
        ),
        FindingKind.DOUBLED,
    ),
    "an announcement of nothing": (
        "DELETE FROM partition_change WHERE commit_seq = (SELECT max(commit_seq) FROM partition_change)",
        FindingKind.DIRTY,
    ),
    "work that is done by nobody's commit": (
        "UPDATE consumer_work SET state = 'completed' WHERE state = 'in_progress'",
        FindingKind.LOST,
    ),
    "an input of a second run": (
        (
            "INSERT INTO run_input (run_id, dataset_id, write_pointer, item)"
            " SELECT 'another', dataset_id, write_pointer, item FROM run_input"
            " WHERE write_pointer = (SELECT max(write_pointer) FROM run_input)"
        ),
        FindingKind.DOUBLED,
    ),
    "a change without a commit": (
        (
            "UPDATE tx SET state = 'invalid', commit_seq = NULL"
            " WHERE write_pointer = (SELECT max(write_pointer) FROM partition_change)"
        ),
        FindingKind.DIRTY,
    ),
    "an overwrite that replaced nothing": (
        (
            "UPDATE partition_change SET superseded_seq = NULL"
            " WHERE write_pointer = (SELECT min(write_pointer) FROM partition_change WHERE superseded_seq IS NOT NULL)"
        ),
        FindingKind.BROKEN,
    ),
    "a claim of a run that has ended": (
        (
            "INSERT INTO run (run_id, kind, state, arguments, triggered_by, created_at, ended_at)"
            " VALUES ('second', 'program', 'FAILED', '{}', '{}', 1, 2)"
        ),
        FindingKind.ORPHANED,
    ),
    "a slot of a run that is gone": (
        "INSERT INTO slot (limit_key, run_id, taken_at) VALUES ('program:p', 'gone', 1)",
        FindingKind.ORPHANED,
    ),
    "a declaration of a transaction that has ended": (
        "INSERT INTO in_progress (dataset_id, write_pointer) SELECT 'dataset_lines', min(write_pointer) FROM tx",
        FindingKind.ORPHANED,
    ),
    "a run that says it has not committed": (
        (
            "INSERT INTO run (run_id, kind, state, arguments, triggered_by, write_pointer, created_at, ended_at)"
            " SELECT run_id, 'program', 'FAILED', '{}', '{}', write_pointer, 1, 2 FROM tx WHERE run_id = 'first'"
        ),
        FindingKind.BROKEN,
    ),
    "a state that went back": ("UPDATE consumer SET start_version = 3, versions_to_check = '[]'", FindingKind.DOUBLED),
    "garbage that has committed": (
        (
            "INSERT INTO garbage (location, dataset_id, write_pointer, reason, not_before)"
            " SELECT 'x', 'dataset_lines', max(write_pointer), 'aborted', 1 FROM partition_change"
        ),
        FindingKind.BROKEN,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found(lake, damage):
    """An audit that has never found anything proves nothing."""
    text, kind = DAMAGES[damage]
    sql(lake, text)

    found = audit(lake.catalog)

    assert kind in {finding.kind for finding in found.findings}
    assert all(finding.what and finding.next_step and finding.subject for finding in found.findings)


def test_what_commits_meanwhile_is_left_to_the_next_audit(lake, monkeypatch):
    """The audit runs in production, beside writers and takers: their work must not look like damage."""
    read = lake.catalog.read

    def read_while_others_work(block):
        monkeypatch.setattr(lake.catalog, "read", read)
        tx = lake.begin()
        lake.take(tx)
        lake.complete(tx)
        lake.publish(3, "overwrite")
        monkeypatch.setattr(lake.catalog, "read", read_while_others_work)
        return read(block)

    before = audit(lake.catalog)
    monkeypatch.setattr(lake.catalog, "read", read_while_others_work)
    found = audit(lake.catalog)

    assert found.findings == ()
    assert found.filesets[0].changes == before.filesets[0].changes
