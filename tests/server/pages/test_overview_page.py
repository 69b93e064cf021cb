"""The overview: the first screen of a person on duty."""

from __future__ import annotations

import re


def test_the_overview_says_what_needs_a_person_in_the_heading(read):
    """The number of things that need a person is the first thing to see."""
    words = read("/")

    assert words.startswith("Two things need you 3 of 3 feeds are well · 0 running · 1 waiting")
    assert "shop.broken failed" in words
    assert "raw has 1 file in quarantine" in words
    assert "Open the run" in words
    assert "Look at it" in words


def test_a_feed_shows_its_arrivals_and_when_the_next_is_due(browser, read):
    """Fresh is a time against an expectation."""
    words = read("/")
    bars = re.findall(r'aria-label="(\d+) arrivals in 24 hours"', browser.get("/").text)

    assert "fresh raw inbox" in words
    assert re.search(r"next due in (59|58) min", words)
    assert bars == ["0", "1", "1"]
    assert "fresh orders file set" in words
    assert "3/9 new partitions of orders" in words


def test_all_is_well_is_one_line(stage, read):
    """A calm page: nothing to read."""
    stage.sql("UPDATE run SET state = 'COMPLETED', exit_reason = 'F' || exit_reason WHERE state = 'FAILED' RETURNING 1")
    stage.sql("UPDATE inbox_file SET status = 'SKIPPED' WHERE status = 'QUARANTINED' RETURNING 1")
    words = read("/")
    # Other tests of this module read the same project.
    back = "UPDATE run SET state = 'FAILED', exit_reason = substr(exit_reason, 2)"
    stage.sql(f"{back} WHERE state = 'COMPLETED' AND exit_reason LIKE 'F%' RETURNING 1")
    stage.sql("UPDATE inbox_file SET status = 'QUARANTINED' WHERE status = 'SKIPPED' RETURNING 1")

    assert words.startswith("All is well nothing needs you · 3 of 3 feeds are well")


def test_the_first_line_says_where_its_counts_end(stage, browser, read):
    """A count of the rows on a page is no count of the project."""
    series = "WITH RECURSIVE series(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i < 1099)"
    stage.sql(
        f"INSERT INTO dataset (dataset_id, namespace, name, kind, location, spec, created_at) {series} "
        "SELECT 'd' || i, 'default', 'd' || i, 'fileset', '/', '{}', 1 FROM series RETURNING 1"
    )
    stage.sql(
        f"INSERT INTO message (topic, seq, n, at, event_type, event_key, payload) {series} "
        "SELECT 'data', 900000 + i, 0, (SELECT max(created_at) FROM run), "
        "'partitions', 'partition:default.d0', '{}' FROM series RETURNING 1"
    )
    stage.sql(
        f"INSERT INTO job (job_id, schedule_id, generation, state, created_at, progress) {series} "
        "SELECT 'job_z' || i, 'none_' || i, 1, 'PENDING_TRIGGER', 1, '{}' FROM series RETURNING 1"
    )
    words, text = read("/"), browser.get("/").text
    stage.sql("DELETE FROM dataset WHERE location = '/' RETURNING 1")
    stage.sql("DELETE FROM job WHERE job_id LIKE 'job_z%' RETURNING 1")
    stage.sql("DELETE FROM message WHERE seq >= 900000 RETURNING 1")

    assert words.startswith("Two things need you 0 of 1,000+ feeds are late or failing · 0 running · 1,000+ waiting")
    assert "an hour is counted up to 200" in words
    assert "over 200 arrivals in 24 hours" in text
    assert "some of them, and why · all" in words
    assert "an hour is counted up to 200" not in read("/")
