"""The pages of a schedule, of a job and of an explanation: what is waited for."""

from __future__ import annotations

import re


def test_a_schedule_shows_its_trigger_as_a_tree_with_counts(read):
    """Three of nine partitions are there, and no run of the other program has ended well."""
    words = read("/schedules/default.shop.on_orders")

    assert words.startswith("shop.on_orders ◷ waits starts shop.sift")
    assert "all of since" in words
    assert re.search(r"3/9 new partitions of orders NewPartitions\(orders, 9\) since", words)
    assert "0/1 runs of shop.broken ended COMPLETED" in words
    assert "not asked yet Delay('1h')" in words
    assert "no job has ended yet" in words


def test_an_action_says_in_numbers_what_it_does(browser):
    """A person decides before, not after."""
    text = browser.get("/schedules/default.shop.on_orders").text

    assert "Suspend · drops 1 job" in text
    assert "This deletes default.shop.on_orders, and drops 1 pending job." in text
    assert 'data-method="DELETE"' in text


def test_a_schedule_counts_how_its_last_jobs_ended(read):
    """Its job became a run: the run's end is the job's colour."""
    words = read("/schedules/default.shop.on_raw")

    assert re.search(r"Last jobs \d completed|Last \d jobs", words)
    assert "completed" in words


def test_a_suspended_schedule_says_so_and_can_be_resumed(read):
    """The next times are of no use to a schedule that starts nothing."""
    words = read("/schedules/default.shop.nightly")

    assert words.startswith("shop.nightly ‖ suspended")
    assert "Resume" in words
    assert "Suspend ·" not in words


def test_a_job_says_what_would_unblock_it(stage, read):
    """The page has one sentence, then the reasons."""
    (job,) = stage.mill.jobs.list(schedule="shop.on_orders")
    page, why = read(f"/jobs/{job.job_id}"), read(f"/why/{job.job_id}")

    assert "waits: 3/9 new partitions of orders; 0/1 runs of shop.broken ended COMPLETED" in page
    assert "Fed by NewPartitions(orders, 9)" in page
    for words in (page, why):
        assert words.count("Ends when a message that feeds the trigger arrives") == 2
        assert "waits for partitions" in words
        assert "waits for run end" in words
    assert "Open the job" in why
