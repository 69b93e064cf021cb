"""Seed 004's two calls for other engines: a claimed file goes to no other run, and a closed one stays closed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.test_inbox import Mill, make_mill
from tests.run.claimers import work_off
from tidemill.catalog.named import load_sql
from tidemill.errors import Fenced, NotFound, UserError
from tidemill.lake.backlog import publish_due
from tidemill.lake.inbox.file_checks import FileRewritten
from tidemill.lake.inbox.file_endings import INBOXES, ignore_quarantined, release_quarantined, retry_files
from tidemill.lake.inbox.inbox import FileState
from tidemill.run.processes.reaper import Reaper
from tidemill.run.records.runs import RunState, find_run
from tidemill.run.step.attempts import AttemptEnd, Cause, RunTaken, ask_kill, end_attempt
from tidemill.run.step.outside_claims import (
    NotClaimed,
    get_latest_files,
    release_claim,
    renew_claim,
    update_file_status,
)
from tidemill.upkeep.audit import audit

COUNT = load_sql(__file__)


@pytest.fixture
def mill(catalog_url: str, tmp_path: Path) -> Iterator[Mill]:
    """An empty inbox on each database."""
    made = make_mill(catalog_url, tmp_path / "raw", retry_after=timedelta(milliseconds=1))
    yield made
    made.catalog.close()


def claim(mill, limit=1000):
    """Claim files, as an engine's first step does."""
    return get_latest_files(mill.catalog, mill.inbox, limit=limit)


def close(mill, claim, names, status, error=""):
    """Close files, as an engine's last step does."""
    return update_file_status(mill.catalog, claim.claim_id, names, FileState(status), error=error)


def state(mill, claim):
    """Return the state of the claim's run."""
    return mill.catalog.read(lambda db: find_run(db, claim.claim_id)).state


def expire(mill, claim):
    """Fence a claim without renewals, as the reaper does."""
    return end_attempt(mill.catalog, claim.claim_id, 1, AttemptEnd(Cause.LOST, "its lease ran out", zombie=True))


def test_files_are_given_once_and_closed(mill):
    """The seed's workflow; the claim ends with its last file, and its files are the input of its run."""
    mill.land("1.txt", "2.txt", "3.txt")
    mill.discover()

    first, second = claim(mill, 2), claim(mill)
    held = [close(mill, first, ["1.txt"], "SUCCESS"), close(mill, first, None, "SUCCESS")]

    assert [[file.name for file in one.files] for one in (first, second)] == [["1.txt", "2.txt"], ["3.txt"]]
    assert first.files[0].url == (mill.folder / "1.txt").as_uri()
    assert held == [1, 0]
    assert (state(mill, first), state(mill, second)) == (RunState.COMPLETED, RunState.RUNNING)
    assert mill.states() == {"1.txt": "SUCCESS", "2.txt": "SUCCESS", "3.txt": "IN_PROGRESS"}
    assert claim(mill).files == ()
    assert audit(mill.catalog).findings == ()


def test_an_empty_claim_leaves_nothing(mill):
    """An engine that polls each minute must not fill the catalog."""
    assert claim(mill).claim_id == ""
    assert mill.catalog.read(lambda db: db.all(COUNT.count_runs))[0][0] == 0


def test_a_file_in_error_comes_again_and_one_that_fails_alone_too_often_is_quarantined(mill):
    """Most of the files that fail together are innocent: they come again, in ever smaller groups."""
    mill.land("a", "b")
    mill.discover()
    sizes = []
    for _ in range(9):
        got = claim(mill)
        if not got.files:
            break
        sizes.append(len(got.files))
        bad = [file.name for file in got.files]
        close(mill, got, bad, "ERROR", "boom") if "a" in bad else close(mill, got, bad, "SUCCESS")
        mill.retries_come_due()

    assert sizes[:2] == [2, 2]
    assert max(sizes[2:]) == 1
    assert mill.states() == {"a": "QUARANTINED", "b": "SUCCESS"}


def test_an_expired_claim_is_given_to_others_and_its_update_is_refused(mill):
    """A zombie that says SUCCESS at last has processed what another is processing."""
    mill.land("a", "b")
    mill.discover()
    zombie = claim(mill)
    close(mill, zombie, ["a"], "SUCCESS")

    assert expire(mill, zombie) is RunState.FAILED
    other = claim(mill)
    with pytest.raises(RunTaken):
        close(mill, zombie, ["b"], "SUCCESS")
    with pytest.raises(RunTaken):
        renew_claim(mill.catalog, zombie.claim_id)
    close(mill, other, None, "SUCCESS")

    assert [file.name for file in other.files] == ["b"]
    assert mill.states() == {"a": "SUCCESS", "b": "SUCCESS"}
    assert ("backlog:default.raw", {}) in mill.messages()
    assert audit(mill.catalog).findings == ()


def test_a_renewed_claim_is_not_reaped(mill):
    """Only a claim without renewals for a whole lease is fenced. Later renewals are refused."""
    mill.land("a")
    mill.discover()
    got = claim(mill)
    here = map(timedelta, itertools.repeat(0), itertools.count())
    clock = type("Clock", (), {"monotonic": lambda _: next(here)})()
    reaper = Reaper(mill.catalog.world.__class__(clock=clock), mill.catalog, timedelta(seconds=3))

    for number in range(6):
        # Each lease has run out before the look, and differs from the last one within one millisecond too.
        renew_claim(mill.catalog, got.claim_id, timedelta(seconds=number - 60))
        assert reaper.step() == []
    while not (reaped := reaper.step()):
        pass

    assert reaped == [got.claim_id]
    assert mill.states() == {"a": "NEW"}


def test_closing_again_changes_nothing_and_closing_otherwise_is_refused(mill):
    """The reply of the first call may have been lost; a file that was closed as SUCCESS does not become ERROR."""
    mill.land("a", "b")
    mill.discover()
    got = claim(mill)
    close(mill, got, ["a"], "SUCCESS")

    assert close(mill, got, ["a"], "SUCCESS") == 1
    with pytest.raises(NotClaimed, match="does not hold file 'a'"):
        close(mill, got, ["a"], "ERROR")
    with pytest.raises(NotClaimed, match="did you mean 'b'"):
        close(mill, got, ["bb"], "SUCCESS")
    assert close(mill, got, None, "SUCCESS") == 0
    assert close(mill, got, ["a", "b"], "SUCCESS") == 0
    assert close(mill, got, None, "SUCCESS") == 0


def test_what_was_written_again_is_not_recorded_as_processed(mill):
    """The claim names a content, and the processed one was another.

    As ERROR the old content is closed; the new one comes.
    """
    mill.land("a", "b")
    mill.discover()
    got = claim(mill)
    mill.land("a", content="more\n")
    mill.discover()

    with pytest.raises(FileRewritten, match="'a' was written again"):
        close(mill, got, None, "SUCCESS")
    close(mill, got, ["a"], "ERROR")
    close(mill, got, ["b"], "SUCCESS")
    again = claim(mill)

    assert [(file.name, file.bytes) for file in again.files] == [("a", 5)]


def test_what_has_gone_before_it_is_given_is_left_out(mill):
    """An engine would fail on it."""
    mill.land("a", "b")
    mill.discover()
    (mill.folder / "a").unlink()

    got = claim(mill)

    assert [file.name for file in got.files] == ["b"]
    assert mill.states() == {"a": "SKIPPED", "b": "IN_PROGRESS"}


def test_a_claim_is_returned_as_a_whole_or_file_by_file(mill):
    """By its holder, by a person, by `run kill`: nothing counts as a failure."""
    mill.land("a", "b", "c")
    mill.discover()

    got = claim(mill)
    close(mill, got, ["a"], "NEW")
    assert release_claim(mill.catalog, got.claim_id) is RunState.KILLED
    assert release_claim(mill.catalog, got.claim_id) is RunState.KILLED
    again = claim(mill)
    ask_kill(mill.catalog, again.claim_id)

    assert [(file.name, file.failures) for file in again.files] == [("a", 0), ("b", 0), ("c", 0)]
    assert set(mill.states().values()) == {"NEW"}
    with pytest.raises(Fenced):
        close(mill, again, ["a"], "SUCCESS")


def test_files_in_error_and_in_quarantine_come_back_on_request(mill):
    """A person has looked: the wait is over, or the file was mended elsewhere. The keeper announces both."""
    mill.land("a", "b", "c")
    mill.discover()
    got = claim(mill)
    for name in ("a", "b", "c"):
        close(mill, got, [name], "ERROR")
    mill.catalog.write(lambda db: db.run(COUNT.quarantine, name="c"))

    def block(db):
        counts = retry_files(db, mill.inbox, ["a", "c"]), retry_files(db, mill.inbox, ())
        return (*counts, release_quarantined(db, mill.inbox, ["a", "c"]))

    assert mill.catalog.write(block) == (1, 2, 1)
    assert publish_due(mill.catalog, INBOXES) == [mill.inbox.dataset_id]
    assert [file.name for file in claim(mill).files] == ["c"] or mill.states()["c"] == "NEW"


def test_an_ignored_file_is_no_more_handed_out_until_a_retry_by_name(mill):
    """The word of a person is final: no listing, no claim and no retry of all files brings the file back."""
    mill.land("a", "b")
    mill.discover()
    got = claim(mill)
    close(mill, got, None, "ERROR")
    mill.catalog.write(lambda db: db.run(COUNT.quarantine, name="b"))

    ignored = mill.catalog.write(lambda db: ignore_quarantined(db, mill.inbox, ["a", "b", "c"]))
    mill.discover()
    again = mill.catalog.write(
        lambda db: (retry_files(db, mill.inbox, ()), release_quarantined(db, mill.inbox, ["a", "b"]))
    )
    claimed = claim(mill)
    assert (ignored, again, [file.name for file in claimed.files]) == (1, (1, 0), ["a"])
    assert mill.states() == {"a": "IN_PROGRESS", "b": "IGNORED"}
    close(mill, claimed, None, "SUCCESS")

    retried = mill.catalog.write(lambda db: retry_files(db, mill.inbox, ["a", "b"]))

    assert retried == 1
    assert publish_due(mill.catalog, INBOXES) == [mill.inbox.dataset_id]
    assert [(file.name, file.failures) for file in claim(mill).files] == [("b", 0)]


def test_an_ignored_file_that_was_written_again_stays_ignored(mill):
    """The new content is delivered, and never the old one after it."""
    mill.land("a")
    mill.discover()
    close(mill, claim(mill), None, "ERROR")
    mill.catalog.write(lambda db: db.run(COUNT.quarantine, name="a"))
    mill.catalog.write(lambda db: ignore_quarantined(db, mill.inbox, ["a"]))
    mill.land("a", content="mended")
    mill.discover()

    assert mill.catalog.write(lambda db: retry_files(db, mill.inbox, ["a"])) == 0
    assert sorted(row.status for row in mill.list()) == ["IGNORED", "NEW"]


def test_wrong_calls_are_refused(mill):
    """With what to do instead."""
    mill.land("a")
    mill.discover()
    got = claim(mill)
    tx = mill.begin()

    with pytest.raises(UserError, match="SUCCESS, ERROR, NEW, not SKIPPED"):
        close(mill, got, None, "SKIPPED")
    with pytest.raises(UserError, match="1 to 10000"):
        claim(mill, 0)
    with pytest.raises(NotFound):
        update_file_status(mill.catalog, tx.run_id, None, FileState.SUCCESS)


def test_of_two_claimers_none_gets_a_file_of_the_other(mill):
    """In every interleaving, each file is claimed once. By hand `tests.run.claimers` does this with 100,000 files."""
    for number in range(1000):
        (mill.folder / f"f{number:06}").write_text("x\n")
    mill.discover()

    given, failed = work_off(mill.catalog, mill.inbox, claimers=2, limit=80)

    assert failed == []
    assert Counter(given) == dict.fromkeys((f"f{number:06}" for number in range(1000)), 1)
    assert set(mill.states().values()) == {"SUCCESS"}
