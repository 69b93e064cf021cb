"""Refreshes of a snapshot that overlap go by the logical times of their runs, on both databases (seed 002)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from tests.stage import staged

APP = """
from pathlib import Path

import tidemill as tm

app = tm.App("shop")
users = app.snapshot("users")


@app.python(writes=[users], retries=1, backoff="0s")
def mirror(run):
    time = "by hand" if run.logical_time is None else f"{run.logical_time:%H:%M}"
    once = Path("fail") / time
    if once.exists():
        once.unlink()
        raise ValueError("the source is away")
    run.output(users).replace({"": f"{time}\\n"})


app.schedule("early", mirror, trigger=tm.Cron("30 12 * * *", zone="UTC"), constraints=[])
app.schedule("late", mirror, trigger=tm.Cron("40 12 * * *", zone="UTC"), constraints=[])
"""


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """The project at 12:50: both schedules have fired, and their runs wait to be taken in any order."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fail").mkdir()
    clock = ManualClock()
    with staged(tmp_path, catalog_url, APP, clock) as made:
        clock.move("50min")
        made.schedule()
        yield made


def current(stage):
    """Return the current content of the snapshot."""
    version = next(one for one in stage.mill.snapshots.versions("users") if one.current)
    location = stage.mill.datasets.show("users").location.removeprefix("file://")
    (file,) = Path(location).glob(f"tx-{version.version}-*/*/part-*")
    return file.read_text()


def fired(stage):
    """The runs of 12:30 and 12:40, taken."""
    return sorted(stage.take(), key=lambda run: run.triggered_by["logical_time"])


def logical_times(stage):
    """The logical times of the versions, newest version first."""
    return [one.logical_time and f"{one.logical_time:%H:%M}" for one in stage.mill.snapshots.versions("users")]


def test_the_later_logical_time_is_current_whichever_run_began_first(stage):
    """Several nodes begin runs in any order: by its begin, the mirror of 12:30 replaced that of 12:40."""
    early, late = fired(stage)
    stage.at["begin.after_commit"] = lambda: stage.attempt(early)

    stage.attempt(late)

    assert current(stage) == "12:40\n"
    assert logical_times(stage) == ["12:40", "12:30"]


def test_a_retry_keeps_the_place_of_its_run(stage):
    """The first attempt of 12:30 fails; its second one begins when the mirror of 12:40 has committed."""
    early, late = fired(stage)
    Path("fail/12:30").touch()
    stage.attempt(early)
    stage.attempt(late)

    (again,) = stage.play()

    assert (again.run_id, again.state, again.epoch) == (early.run_id, "COMPLETED", 2)
    assert current(stage) == "12:40\n"
    assert logical_times(stage) == ["12:40", "12:30"]


def test_a_refresh_by_hand_replaces_what_began_before_it(stage):
    """A refresh by hand has no logical time, and reads the source last."""
    early, late = fired(stage)
    stage.mill.runs.start("shop.mirror")
    (by_hand,) = stage.take()
    stage.at["begin.after_commit"] = lambda: stage.attempt(by_hand)
    stage.attempt(late)
    between = current(stage)

    stage.attempt(early)

    assert (between, current(stage)) == ("by hand\n", "12:30\n")
    assert logical_times(stage) == ["12:30", None, "12:40"]
