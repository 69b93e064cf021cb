"""The page of a backfill, with a project of its own: the backfill makes runs of a program that others look at."""

from __future__ import annotations

import re


def test_a_backfill_shows_its_progress_and_what_failed(stage, browser, read):
    """A person sees at a glance what is done, what has failed and why, and can pause, cancel and retry."""
    nights = {"by": "times", "schedule": "shop.nightly", "since": "2026-01-01", "until": "2026-01-05"}
    backfill_id = stage.mill.backfills.start("shop.broken", **nights).backfill_id
    stage.work()
    stage.schedule()
    words, listed, page = read(f"/backfills/{backfill_id}"), read("/backfills?state=running"), browser.get
    stage.mill.backfills.pause(backfill_id)
    paused = read(f"/backfills/{backfill_id}")

    assert words.startswith(f"{backfill_id} ● running 1 of 4 items have ended: 25 %")
    assert "running 1 of 1 at a time waiting 2 failed 1" in words
    assert re.search(r"2026-01-01T01:30:00Z ✕ failed run_\w+ failed: ", words)
    assert all(button in words for button in ("Pause", "Cancel and kill", "Retry"))
    assert backfill_id in listed
    assert f"backfill cancel {backfill_id} --kill" in page(f"/backfills/{backfill_id}").text
    assert "‖ paused" in paused
    assert "Resume" in paused
