"""Triggers on windows: a program starts when a window program has computed windows again."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tidemill as tm
from tests.sql.hours import open_plain
from tidemill.schedule.loop import Scheduler
from tidemill.world import World

MORE = """

@app.python()
def correct(run):
    (feed,) = run.triggers
    with open("said.txt", "a") as said:
        print(feed.count, [message.payload["recomputed"] for message in feed.messages], file=said)


app.schedule("correct", correct, trigger={trigger})
"""


@pytest.fixture
def project(catalog_url, tmp_path, monkeypatch):
    """Hourly windows of lines, and a program that starts by the trigger."""
    opened = []

    def make(trigger):
        plain = open_plain(tmp_path / "project", catalog_url)
        opened.append(plain.mill)
        app = plain.mill.project.config.app
        app.write_text(app.read_text() + MORE.format(trigger=trigger))
        plain.mill.deploy()
        monkeypatch.chdir(app.parent)
        return plain

    yield make
    for mill in opened:
        mill.close()


def play(plain):
    """Let the scheduler and the drivers do all that they can."""
    scheduler = Scheduler(plain.mill.project.catalog, World(), lambda _launched: None)
    for _ in range(10):
        while scheduler.step() == timedelta(0):
            pass
        if plain.drive() == 0:
            return
    pytest.fail("there is no end of it")


def test_a_late_partition_starts_the_program_and_the_first_computation_does_not(project):
    """A correction is sent out; the first results have gone out another way."""
    plain = project("tm.WindowsRecomputed('shop.count_hours')")
    plain.add("2021-03-19 10:00", 5)
    plain.add("2021-03-19 11:00", 5)
    play(plain)
    first = plain.lines_of()
    plain.add("2021-03-19 10:00", 6)

    play(plain)

    assert first == []
    assert plain.results() == {"10:00": 2, "11:00": 1}
    assert plain.lines_of() == ["1 [1]"]


def test_windows_are_counted_and_not_commits(project):
    """Two late hours in one commit, and one in another: three windows."""
    plain = project("tm.WindowsRecomputed('shop.count_hours', 3)")
    for hour in (10, 11, 12):
        plain.add(f"2021-03-19 {hour}:00", 5)
    play(plain)
    for hour in (10, 11):
        plain.add(f"2021-03-19 {hour}:00", 6)
    play(plain)
    waits = [job.why for job in plain.mill.jobs.list() if job.schedule == "default.shop.correct"]
    plain.add("2021-03-19 12:00", 6)

    play(plain)

    assert waits == ["2/3 windows of default.shop.count_hours computed again"]
    assert plain.lines_of() == ["3 [2, 1]"]


def test_windows_after_a_reset_do_not_count(project):
    """The program computes them for the first time; the message of the reset itself has no number at all."""
    plain = project("tm.WindowsRecomputed('shop.count_hours')")
    plain.add("2021-03-19 10:00", 5)
    play(plain)
    plain.mill.watermarks.reset("shop.count_hours")

    play(plain)

    assert plain.results() == {"10:00": 1}
    assert plain.lines_of() == []
    assert plain.mill.topics.quarantined("data").items == ()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("shop.correct", "is no window program; name one"),
        ("shop.count_hour", "did you mean 'default.shop.count_hours'"),
    ],
)
def test_a_program_without_windows_is_refused(project, program, why):
    """Such a program never computes a window again."""
    plain = project("tm.WindowsRecomputed('shop.count_hours')")
    before = plain.mill.schedules.list().items
    app = plain.mill.project.config.app
    app.write_text(app.read_text().replace("WindowsRecomputed('shop.count_hours')", f"WindowsRecomputed('{program}')"))

    with pytest.raises(tm.UserError, match=why):
        plain.mill.deploy()

    assert plain.mill.schedules.list().items == before


def test_the_schedules_that_listen_to_a_window_program_are_listed(project):
    """By the name of the program, beside those of its output."""
    plain = project("tm.WindowsRecomputed('shop.count_hours')")

    found = plain.mill.schedules.triggered_by("shop.count_hours").items

    assert [one.name for one in found] == ["default.shop.correct"]
