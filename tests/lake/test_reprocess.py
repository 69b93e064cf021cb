"""A processed file is delivered again when a person asks: once, on record, and with a message that triggers."""

from __future__ import annotations

import pytest

from tests.lake.test_inbox import make_mill
from tests.run.conftest import rows_of
from tidemill.lake.inbox.inbox import FileState
from tidemill.lake.inbox.reprocess import FilesChanged, NotReprocessed, reprocess


@pytest.fixture
def mill(catalog_url, tmp_path):
    """An inbox with two processed files, and one that waits."""
    mill = make_mill(catalog_url, tmp_path / "raw")
    for name in ("a", "b"):
        mill.land(name)
    mill.discover()
    mill.process()
    mill.land("new")
    mill.discover()
    return mill


def test_files_are_delivered_again_and_the_old_record_is_kept(mill):
    """The commit that closes the record announces the files, so that a schedule starts for them."""
    before = mill.messages()
    runs = {row.name: row.run_id for row in mill.list()}

    count = reprocess(mill.catalog, mill.inbox, ["a", "b", "a"], "ada@here")
    announced = mill.messages()[len(before) :]
    waiting = {row.name: (row.status, row.run_id, row.failures) for row in mill.list()}
    processed = mill.process()

    assert count == 2
    assert [key for key, _ in announced] == ["file:default.raw"]
    assert waiting == dict.fromkeys(("a", "b", "new"), (FileState.NEW, None, 0))
    assert sorted(processed) == ["a", "b", "new"]
    assert {row.name: row.status for row in mill.list()} == dict.fromkeys(("a", "b", "new"), FileState.SUCCESS)
    kept = rows_of(mill.catalog, "SELECT name, run_id, by_whom FROM inbox_reprocessed ORDER BY name")
    assert [tuple(row) for row in kept] == [(name, runs[name], "ada@here") for name in ("a", "b")]


def test_what_is_not_processed_or_not_there_is_refused_with_all_others(mill):
    """A file in work would be processed by two runs, one that is not there by none."""
    (mill.folder / "b").unlink()

    with pytest.raises(NotReprocessed, match="'new' cannot be processed again: no run has processed it"):
        reprocess(mill.catalog, mill.inbox, ["a", "new"], "ada")
    with pytest.raises(NotReprocessed, match="not in the inbox any more"):
        reprocess(mill.catalog, mill.inbox, ["a", "b"], "ada")
    mill.land("a", content="other\n")
    with pytest.raises(NotReprocessed, match="written again"):
        reprocess(mill.catalog, mill.inbox, ["a"], "ada")
    assert {row.name: row.status for row in mill.list()}["b"] is FileState.SUCCESS


def test_of_two_callers_that_ask_at_once_one_is_refused(mill):
    """Else one record would be closed twice, and the file announced twice."""

    def ask_too(mark: str) -> None:
        if mark == "reprocess.before_commit" and not asked:
            asked.append(mark)
            reprocess(mill.catalog, mill.inbox, ["a"], "bob")

    asked: list[str] = []
    object.__setattr__(mill.catalog.world, "marked", ask_too)
    with pytest.raises(FilesChanged, match="of 2 files to process again 1 are still processed"):
        reprocess(mill.catalog, mill.inbox, ["a", "b"], "ada")

    assert {row.name: row.status for row in mill.list()}["b"] is FileState.SUCCESS
