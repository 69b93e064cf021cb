"""The audit of snapshots finds each way in which versions could have gone back in time, on both databases."""

from __future__ import annotations

import pytest

from tests.run.conftest import rows_of
from tidemill.mill.mill import open_project
from tidemill.run.processes.external import open_transaction
from tidemill.testing.plain import write_texts
from tidemill.upkeep.search import FindingKind

APP = """
import tidemill as tm
app = tm.App("shop")
users = app.snapshot("users")
"""


@pytest.fixture
def mill(catalog_url, tmp_path):
    """A snapshot of five versions: the second began first and committed behind the third, the last is a roll-back."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")

    def refresh(meanwhile=lambda: None):
        with open_transaction(
            opened.project.catalog, opened.project.world, ["default.users"], writer=write_texts
        ) as tx:
            tx.snapshot("default.users").replace({"": "a\n"})
            meanwhile()

    with open_project(tmp_path, create=True) as opened:
        opened.deploy()
        refresh()
        refresh(meanwhile=refresh)
        refresh()
        opened.snapshots.rollback("users", opened.snapshots.versions("users")[-1].version)
        yield opened


def test_nothing_is_found_where_versions_followed_one_another(mill):
    """Also with a late version, which was not announced, and with a roll-back, which is a version like any other."""
    found = mill.catalog.audit()

    assert found.findings == ()
    (users,) = found.snapshots
    newest = mill.snapshots.versions("users")[0].version
    assert (users.dataset, users.versions, users.announced, users.current) == ("default.users", 5, 4, newest)


OLDEST = "(SELECT min(write_pointer) FROM partition_change)"
NEWEST = "(SELECT max(write_pointer) FROM partition_change)"
LAST = "event_type = 'refreshed' AND seq = (SELECT max(seq) FROM message WHERE event_type = 'refreshed')"
DAMAGES = {
    "nothing is current": (
        f"UPDATE partition_change SET superseded_seq = commit_seq WHERE write_pointer = {NEWEST}",
        FindingKind.BROKEN,
        "it should be current",
    ),
    "an older one was replaced too late": (
        f"UPDATE partition_change SET superseded_seq = superseded_seq + 1 WHERE write_pointer = {OLDEST}",
        FindingKind.BROKEN,
        "it should have been replaced at",
    ),
    "what came too late was current for a while": (
        "UPDATE partition_change SET superseded_seq = superseded_seq + 1 WHERE commit_seq = superseded_seq",
        FindingKind.BROKEN,
        "it should have been replaced at",
    ),
    "a version without a commit": (
        f"UPDATE tx SET state = 'invalid', commit_seq = NULL WHERE write_pointer = {NEWEST}",
        FindingKind.DIRTY,
        "its transaction is invalid",
    ),
    "a version that nobody was told of": (f"DELETE FROM message WHERE {LAST}", FindingKind.LOST, "was not announced"),
    "a version that was announced twice": (
        (
            "INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)"
            f" SELECT topic, seq, n + 1, at, event_type, event_key, payload FROM message WHERE {LAST}"
        ),
        FindingKind.DOUBLED,
        "announced more than once",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found(mill, damage):
    """With the version, and what should be."""
    text, kind, what = DAMAGES[damage]
    rows_of(mill.project.catalog, f"{text} RETURNING 1")

    found = [finding for finding in mill.catalog.audit().findings if finding.subject == "default.users"]

    assert (kind, True) in {(finding.kind, what in finding.what) for finding in found}
