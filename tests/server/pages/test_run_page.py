"""The page of a run: what happened, to what, and why."""

from __future__ import annotations

import json
import re

import pytest


@pytest.fixture(scope="module")
def failed(stage):
    """The run that failed."""
    return stage.mill.runs.list(program="shop.broken", limit=1)[0]


@pytest.fixture(scope="module")
def loaded(stage):
    """The run that loaded a file."""
    return next(one for one in stage.mill.runs.list(program="shop.load") if one.state == "COMPLETED")


def test_a_failed_run_shows_its_error_first_and_as_text(browser, read, failed):
    """The person on duty needs the error, not the page around it; a message may hold markup."""
    words = read(f"/runs/{failed.run_id}")

    assert words.index("ValueError: <script>alert(1)</script>") < words.index("What happened")
    assert "Retry" in words
    assert "attempt 1" in words
    assert "<script>alert(1)" not in browser.get(f"/runs/{failed.run_id}").text


def test_a_run_shows_rows_partitions_and_messages_in_numbers(read, loaded):
    """Three days of one row each: the numbers were made by hand."""
    words = read(f"/runs/{loaded.run_id}")

    assert re.search(r"3 rows out", words)
    assert re.search(r" · \d+\.\d core-seconds · 1 attempt", words)
    assert "3 partitions published" in words
    assert "day=2026-01-01, day=2026-01-02, day=2026-01-03 3" in words
    assert "raw a.csv" in words
    commit = loaded.write_pointer + 1
    assert f"visible since commit {commit}" in words
    assert f"data {commit}.0 partition:orders" in words
    assert "committed as" in words


def test_a_committed_run_is_compared_with_a_replay(browser, loaded, failed):
    """A question of the next morning: does the program still give these rows? The button publishes nothing."""
    text, other = (browser.get(f"/runs/{one.run_id}").text for one in (loaded, failed))

    assert f'data-command="run replay {loaded.run_id} --sandbox --diff"' in text
    assert "run replay" not in other


def test_a_run_names_its_schedule_and_the_message_that_fed_it(read, loaded):
    """Why did it run: a file."""
    words = read(f"/runs/{loaded.run_id}")

    assert "Why it ran shop.on_raw schedule NewFiles(raw) 2/1 new files of raw" in words
    assert "file:raw" in words


def test_a_run_at_work_links_the_pages_of_its_spark_and_counts_its_stages(stage, browser, read, loaded):
    """A stage that hangs is seen there. The pages of a run that has ended are gone, and no other address is a link.

    The page of the run itself has the numbers of stages and tasks.
    """
    was = stage.sql(f"SELECT state, facts, ended_at FROM run WHERE run_id = '{loaded.run_id}'")[0]

    def show(address: str, state: str) -> tuple[str, str]:
        ended = "NULL" if state == "RUNNING" else "created_at"
        stages = {"stages": 3, "stages_done": 1, "tasks": 12, "tasks_done": 7}
        facts = json.dumps({"spark_ui": address} | ({"stages": stages} if state == "RUNNING" else {}))
        stage.sql(
            f"UPDATE run SET state = '{state}', ended_at = {ended}, facts = '{facts}' "
            f"WHERE run_id = '{loaded.run_id}' RETURNING 1"
        )
        return browser.get(f"/runs/{loaded.run_id}").text, read(f"/runs/{loaded.run_id}")

    at_work, words = show("http://127.0.0.1:4040", "RUNNING")
    hostile, _ = show("javascript:alert(1)", "RUNNING")
    ended, words_of_ended = show("http://127.0.0.1:4040", "COMPLETED")
    stage.sql(
        f"UPDATE run SET state = '{was[0]}', facts = '{was[1]}', ended_at = {was[2]} "
        f"WHERE run_id = '{loaded.run_id}' RETURNING 1"
    )

    assert 'href="http://127.0.0.1:4040" rel="noreferrer"' in at_work
    assert "1 of 3 stages 7 of 12 tasks" in words
    assert " stages" not in words_of_ended
    assert "javascript:" not in hostile
    assert "127.0.0.1:4040" not in ended


def test_the_lines_that_speak_of_an_error_stand_above_the_log(stage, browser, loaded, tmp_path):
    """A log is long, and its error is somewhere in the middle; of a huge log only the end is read."""
    folder = tmp_path / "1"
    folder.mkdir()
    lines = [f"line {number}" for number in range(50_000)]
    lines[49_800] = "an <b>Error</b> in the middle"
    (folder / "stdout").write_text("\n".join(lines), encoding="utf-8")
    stage.sql(f"UPDATE run SET log_location = '{folder}' WHERE run_id = '{loaded.run_id}' RETURNING 1")
    text = browser.get(f"/runs/{loaded.run_id}").text

    assert "attempt 1 · the last 400 lines" in text
    assert text.count("an &lt;b&gt;Error&lt;/b&gt; in the middle") == 2
    assert text.index("1 line speaks of an error") < text.index('id="log"')
    assert "line 49600\n" in text
    assert "line 49599\n" not in text


def test_the_log_of_another_attempt_is_a_link(stage, browser, failed):
    """The first attempt has the cause, the last one often only its effect."""
    stage.sql(f"UPDATE run SET epoch = 2 WHERE run_id = '{failed.run_id}' RETURNING 1")
    text = browser.get(f"/runs/{failed.run_id}").text
    stage.sql(f"UPDATE run SET epoch = 1 WHERE run_id = '{failed.run_id}' RETURNING 1")

    assert f'href="/runs/{failed.run_id}?attempt=1"' in text
    assert browser.get(f"/runs/{failed.run_id}?attempt=1").status_code == 200
    assert browser.get(f"/runs/{failed.run_id}?attempt=7").status_code == 404


def test_a_log_on_another_machine_is_not_taken_for_an_empty_one(read, failed):
    """A program that wrote nothing, and a log that this server cannot read, are different things."""
    words = read(f"/runs/{failed.run_id}")

    assert f"Log on the machine of its runner, in {failed.log_location} ask a server on that machine" in words


def test_the_question_before_the_end_of_a_run_says_how_much_is_offered_again(stage, browser):
    """A run that has claimed a thousand files is another decision than one that has claimed none."""
    taken = stage.mill.consumers.take("orders", "lake", limit=2)
    landing = stage.mill.project.config.folder / "landing"
    (landing / "new.csv").write_text("id,ts,n\n1,2026-01-01,3\n", encoding="utf-8")
    claim = stage.mill.inboxes.get_latest_files("raw")
    pending = stage.mill.runs.list(program="shop.sift", limit=1)[0].run_id
    partitions, run_id = taken.partitions, stage.mill.transactions.show(taken.write_pointer).run_id
    pages = [browser.get(f"/runs/{one}").text for one in (run_id, claim.claim_id, pending)]
    shown = stage.mill.runs.show(run_id)
    stage.mill.transactions.abort(taken.write_pointer)
    stage.mill.inboxes.release_claim(claim)
    after = stage.mill.runs.show(run_id)

    assert (len(partitions), len(claim.files)) == (2, 1)
    assert "The 2 partitions that it has claimed are offered again." in pages[0]
    assert "The 1 file that it has claimed is offered again." in pages[1]
    assert "It has claimed no input." in pages[2]
    assert [(one.claimed_partitions, one.claimed_files) for one in (shown, after)] == [(2, 0), (0, 0)]
