"""A watermark that stands still starts a program: once for each stand, by the catalog's clock."""

from __future__ import annotations

import threading

import pytest

import tidemill as tm
from tests.manual_clock import ManualClock
from tests.stage import staged

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
bare = app.fileset("bare", keys={{"hour": "int"}}, format="text")
raw = app.inbox("raw", "landing", format="text")


@app.python()
def alarm(run):
    with open("said.txt", "a") as said:
        print(f"{{run.logical_time:%d %H:%M}}", file=said)


app.schedule("alarm", alarm, trigger={trigger})
"""
STANDS = "tm.WatermarkStands(clicks, '6h')"


class Crash(BaseException):
    """The end of the process, as far as the database can tell."""


def crash() -> None:
    """End the process."""
    raise Crash


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """Make the project with this trigger, on 1 March 2026 at noon."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def make(trigger=STANDS):
        clock = ManualClock()
        entered = staged(tmp_path, catalog_url, APP.format(trigger=trigger), clock)
        opened.append(entered)
        made = entered.__enter__()
        made.clock = clock
        made.hour = 0
        return made

    yield make
    for entered in opened:
        entered.__exit__(None, None, None)


def move(stage):
    """Move the watermark by an hour: a partition of the day before commits."""
    stage.publish("clicks", f"day=2026-02-28/hour={stage.hour}")
    stage.hour += 1


def pass_hours(stage, hours):
    """Let these hours pass, with a scheduler that was just started in each."""
    for _ in range(hours):
        stage.clock.move("1h")
        stage.play()


def test_a_watermark_that_never_moved_counts_from_the_begin_of_the_schedule(stage):
    """The first delivery that is late is an alarm too; one alarm is enough."""
    made = stage()

    pass_hours(made, 40)

    assert made.lines_of() == ["01 18:00"]


def test_the_next_stand_begins_with_the_next_move(stage):
    """The alarm is raised again, and only then."""
    made = stage()
    pass_hours(made, 20)
    move(made)
    pass_hours(made, 20)
    move(made)
    pass_hours(made, 5)
    move(made)
    pass_hours(made, 20)

    assert made.lines_of() == ["01 18:00", "02 14:00", "03 15:00"]


def test_a_watermark_that_moves_starts_nothing(stage):
    """Each five hours, for two days."""
    made = stage()
    for _ in range(10):
        pass_hours(made, 5)
        move(made)

    assert made.runs() == []


def test_a_move_by_hand_ends_the_stand(stage):
    """The operator has seen to it: the six hours begin again."""
    made = stage()
    move(made)
    pass_hours(made, 5)
    made.mill.watermarks.advance("clicks", "2026-02-28 10:00")
    pass_hours(made, 5)
    early = made.lines_of()

    pass_hours(made, 5)

    assert early == []
    assert made.lines_of() == ["01 23:00"]


def test_a_run_for_another_reason_does_not_begin_the_stand_again(stage):
    """`Every` counts from the last launch, a stand from the last move."""
    made = stage(f"{STANDS} | tm.Every('5h')")

    pass_hours(made, 16)

    assert made.lines_of() == ["01 17:00", "01 18:00", "01 23:00", "02 04:00"]


def test_after_a_time_without_a_scheduler_the_program_starts_once(stage):
    """The logical time is when the stand was six hours long, however late the scheduler was."""
    made = stage()
    made.clock.move("3d")
    made.play()
    pass_hours(made, 20)

    assert made.lines_of() == ["01 18:00"]


@pytest.mark.parametrize("mark", ["locked", "before_jobs", "before_timers", "before_commit"])
def test_a_crash_loses_and_doubles_nothing(stage, mark):
    """The run, and the memory that the stand has fired, are one transaction."""
    made = stage()
    made.clock.move("6h")
    made.at[f"timekeeper.{mark}"] = crash
    with pytest.raises(Crash):
        made.play()

    pass_hours(made, 20)

    assert made.lines_of() == ["01 18:00"]


def test_a_crash_between_a_move_and_its_stand_loses_no_stand(stage):
    """The position behind the message of the move, and the timer of the stand, are one transaction."""
    made = stage()
    pass_hours(made, 8)
    move(made)
    made.at["subscriber.before_commit"] = crash
    with pytest.raises(Crash):
        made.play()

    pass_hours(made, 20)

    assert made.lines_of() == ["01 18:00", "02 02:00"]


def test_a_move_while_the_stand_before_fires_begins_the_next_stand(stage, catalog_url):
    """Another scheduler handles the move before the first one has committed: the new timer waits for that."""
    if catalog_url.startswith("sqlite"):
        pytest.skip("writers of SQLite take turns")
    made = stage()
    other = threading.Thread(target=made.schedule)

    def move_meanwhile():
        move(made)
        other.start()
        # Time enough for a scheduler that does not wait.
        other.join(timeout=0.5)

    made.clock.move("6h")
    made.at["timekeeper.before_commit"] = move_meanwhile
    made.play()
    other.join()

    pass_hours(made, 20)

    assert made.lines_of() == ["01 18:00", "02 00:00"]


def test_a_stand_that_has_fired_costs_nothing(stage):
    """The schedule has no timer, and no next time, until the watermark moves."""
    made = stage()
    pass_hours(made, 8)
    timers = made.sql("SELECT * FROM timer")
    fires, (reason,) = made.mill.schedules.next("shop.alarm").items, made.mill.why("shop.alarm").because
    move(made)
    made.play()
    (fire,) = made.mill.schedules.next("shop.alarm").items

    assert (timers, fires, reason.next_look_at) == ([], (), None)
    assert reason.unblock == "a message that feeds the trigger arrives"
    assert f"{fire.fire_at:%d %H:%M}" == "02 02:00"


def test_a_stand_of_months_has_started_one_run(stage):
    """The janitor forgets old times of schedules, and the timer does not forget its stand."""
    made = stage()
    pass_hours(made, 6)
    made.sql("DELETE FROM fire RETURNING 1")

    pass_hours(made, 30)

    assert made.lines_of() == ["01 18:00"]


def test_a_clock_that_is_set_back_raises_no_second_alarm(stage):
    """The scheduler comes to rest, and waits for the times that come again."""
    made = stage()
    pass_hours(made, 7)
    made.clock.set_back("10h")
    made.play()

    pass_hours(made, 40)

    assert made.lines_of() == ["01 18:00"]


def test_a_suspended_schedule_counts_from_its_resumption(stage):
    """As `Every` does: the time of the suspension is not the schedule's."""
    made = stage()
    pass_hours(made, 2)
    made.mill.schedules.suspend("shop.alarm")
    pass_hours(made, 6)
    made.mill.schedules.resume("shop.alarm")

    pass_hours(made, 20)

    assert made.lines_of() == ["02 02:00"]


def test_the_trigger_is_shown(stage):
    """By `schedule show`, `next`, `triggered-by` and `why`."""
    made = stage()
    shown = made.mill.schedules.show("shop.alarm")
    (fire,) = made.mill.schedules.next("shop.alarm").items
    (listed,) = made.mill.schedules.triggered_by("clicks").items
    (reason,) = made.mill.why("shop.alarm").because
    pass_hours(made, 6)
    (run,) = made.runs()
    (feed,) = made.mill.runs.show(run.run_id).triggers

    assert shown.trigger == "WatermarkStands(default.clicks, '6h')"
    assert f"{fire.fire_at:%d %H:%M}" == "01 18:00"
    assert listed.name == "default.shop.alarm"
    assert (reason.code, reason.next_look_at) == ("waits_for_time", fire.fire_at)
    assert reason.unblock == "the time comes"
    assert reason.why.endswith("no new stand of 6h of the watermark of default.clicks yet")
    assert (feed.trigger, feed.logical_times) == ("WatermarkStands(default.clicks, '6h')", (fire.fire_at,))


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        ("tm.WatermarkStands(bare, '6h')", "has no watermark; declare"),
        ("tm.WatermarkPassed(bare)", "has no watermark; declare"),
        ("tm.WatermarkStands(raw, '6h')", "data set of kind inbox"),
        ("tm.WatermarkStands('click', '6h')", "did you mean 'default.clicks'"),
    ],
)
def test_a_file_set_without_a_watermark_is_refused(stage, tmp_path, trigger, why):
    """At deployment, with the cure; the deployment before stays."""
    made = stage()
    before = made.mill.schedules.list().items
    (tmp_path / "app.py").write_text(APP.format(trigger=trigger), encoding="utf-8")

    with pytest.raises(tm.UserError, match=why):
        made.mill.deploy()

    assert made.mill.schedules.list().items == before
