"""Arrival expectations in a catalog: kept, late and broken by the catalog's clock; each break is announced once."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import tidemill as tm
from tests.manual_clock import ManualClock
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.lake.expectations import check_due
from tidemill.roles.keeper import DUE_THINGS

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text", settle="0s"{raw})
clicks = app.fileset("clicks", keys={{"hour": "int"}}, format="text"{clicks})
users = app.snapshot("users", key=["id"], max_drop=None{users})


@app.python()
def alarm(run):
    for feed in run.triggers:
        for message in feed.messages:
            with open("said.txt", "a") as said:
                print(message.payload["dataset"][8:], message.payload["broken_since"][8:16], file=said)


app.schedule("alarm", alarm, trigger={trigger})
"""
EVERY = ", expect=tm.Arrivals(every='6h', grace='1h')"
DAILY = ", expect=tm.Arrivals(cron='0 6 * * *', grace='2h')"
KINDS = ("raw", "clicks", "users")


class Crash(BaseException):
    """The end of the process, as far as the database can tell."""


def crash() -> None:
    """End the process."""
    raise Crash


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """Make the project on 1 March 2026 at noon, with an expectation of the named data set."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def make(kind="raw", expect=EVERY):
        clock = ManualClock()
        text = APP.format(**{one: expect if one == kind else "" for one in KINDS}, trigger=f"tm.Missing({kind})")
        entered = staged(tmp_path, catalog_url, text, clock)
        opened.append(entered)
        made = entered.__enter__()
        made.clock, made.kind, made.arrivals = clock, kind, 0
        (tmp_path / "landing").mkdir(exist_ok=True)
        return made

    yield make
    for entered in opened:
        entered.__exit__(None, None, None)


def arrive(stage):
    """Let a file, a partition or a version arrive."""
    stage.arrivals += 1
    folder = stage.mill.project.config.folder
    match stage.kind:
        case "raw":
            (folder / "landing" / f"{stage.arrivals}.txt").write_text("a\n", encoding="utf-8")
            stage.mill.inboxes.scan("raw")
        case "clicks":
            stage.publish("clicks", f"hour={stage.arrivals % 20}")
        case _:
            with stage.transaction("users") as tx:
                tx.snapshot("default.users").replace({"": f"{stage.arrivals}\n"})


def keep(stage):
    """Do what is due, as a keeper, a scheduler and a driver do."""
    for thing in DUE_THINGS:
        thing.do_due(stage.mill.project.catalog)
    stage.play()


def pass_hours(stage, hours):
    """Let these hours pass, with a keeper in each."""
    for _ in range(hours):
        stage.clock.move("1h")
        keep(stage)


def standing(stage):
    """Return the expectation as `dataset show` has it."""
    return stage.mill.datasets.show(stage.kind).expectation


@pytest.mark.parametrize("kind", KINDS)
def test_a_break_is_announced_once_and_again_after_an_arrival(stage, kind):
    """An alarm that comes each hour is switched off."""
    made = stage(kind)
    pass_hours(made, 20)
    arrive(made)
    pass_hours(made, 5)
    arrive(made)
    pass_hours(made, 30)

    assert made.lines_of() == [f"{kind} 01T19:00", f"{kind} 02T20:00"]


@pytest.mark.parametrize("kind", KINDS)
def test_arrivals_in_time_start_nothing(stage, kind):
    """Each six hours, for two days; the last half hour is grace."""
    made = stage(kind)
    for _ in range(8):
        pass_hours(made, 6)
        made.clock.move("30m")
        arrive(made)

    assert made.runs() == []


def test_by_the_clock_a_late_delivery_does_not_stand_for_the_next(stage):
    """The delivery of the second is an hour late, the one of the third never comes."""
    made = stage(expect=DAILY)
    pass_hours(made, 19)
    arrive(made)
    pass_hours(made, 24)
    early = made.lines_of()
    pass_hours(made, 24)

    assert (early, made.lines_of()) == ([], ["raw 03T08:00"])


def test_a_drop_is_no_arrival(stage):
    """Retention goes on when the sender has stopped."""
    made = stage("clicks")
    arrive(made)
    pass_hours(made, 5)
    made.mill.datasets.drop("clicks", ["hour=1"])
    pass_hours(made, 10)

    assert made.lines_of() == ["clicks 01T19:00"]


def test_two_keepers_announce_a_break_once(stage):
    """Both have seen that the check is due; the second finds it done."""
    made = stage()
    catalog = made.mill.project.catalog
    made.clock.move("7h")
    others = []
    made.at["expectations.before_check"] = lambda: others.append(check_due(catalog))

    own = check_due(catalog)
    made.play()

    assert (others, own) == ([1], 0)
    assert made.lines_of() == ["raw 01T19:00"]


@pytest.mark.parametrize("mark", ["before_check", "checked"])
def test_a_crash_loses_and_doubles_nothing(stage, mark):
    """The message, and the note that the break is announced, are one transaction."""
    made = stage()
    made.clock.move("7h")
    made.at[f"expectations.{mark}"] = crash
    with pytest.raises(Crash):
        keep(made)

    pass_hours(made, 20)

    assert made.lines_of() == ["raw 01T19:00"]


def test_a_clock_that_jumps_ahead_and_back_raises_no_second_alarm(stage):
    """The break is known by its time."""
    made = stage()
    made.clock.move("3d")
    keep(made)
    made.clock.set_back("2d")
    pass_hours(made, 100)

    assert made.lines_of() == ["raw 01T19:00"]


def test_a_check_costs_nothing_before_its_time(stage):
    """Neither an arrival nor a look moves the row before the deadline."""
    made = stage("clicks")
    before = made.sql("SELECT * FROM expectation")
    (tick,) = made.sql("SELECT value FROM clock")
    pass_hours(made, 6)
    after = made.sql("SELECT * FROM expectation")

    assert before == after
    assert made.sql("SELECT value FROM clock") == [tick]


def test_what_is_shown_follows_the_last_arrival(stage, capsys):
    """On the pages of the inbox and of the data set, and by `why`."""
    made = stage()
    arrive(made)
    kept = standing(made)
    made.clock.move("6h")
    late = standing(made)
    made.clock.move("1h")
    keep(made)
    broken = standing(made)
    (reason,) = [one for one in made.mill.why("raw").because if one.code is tm.Reason.EXPECTATION_BROKEN]
    folder = str(made.mill.project.config.folder)
    with pytest.raises(SystemExit):
        main(["--project", folder, "inbox", "show", "raw", "--json"])
    shown = json.loads(capsys.readouterr().out)["expectation"]
    arrive(made)

    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert (kept.state, kept.last_arrival, kept.expected_by) == ("kept", noon, noon.replace(hour=18))
    assert (late.state, broken.state, standing(made).state) == ("late", "broken", "kept")
    assert (kept.broken_since, late.broken_since, broken.broken_since) == (None, None, noon.replace(hour=19))
    assert reason.next_look_at == broken.next_look_at == datetime(2026, 3, 2, 2, tzinfo=UTC)
    assert shown["broken_since"] == "2026-03-01T19:00:00.000Z"
    assert shown["expect"] == "Arrivals(every='6h', grace='1h')"


def test_a_deployment_plans_changes_and_removes_the_expectation(stage):
    """The first period of another expectation begins with the deployment."""
    made = stage("clicks")
    app = made.mill.project.config.app
    text = app.read_text()
    made.clock.move("6h")
    app.write_text(text.replace("every='6h', grace='1h'", "every='2h'"))
    (plan,) = made.mill.plan()
    made.mill.deploy()
    changed = standing(made)
    made.mill.deploy()
    same = standing(made)
    app.write_text(text.replace(EVERY, "").replace("tm.Missing(clicks)", "tm.Every('9d')"))
    made.mill.deploy()

    assert "clicks" in str(plan)
    assert (changed.expect, changed.expected_by.hour) == ("Arrivals(every='2h')", 20)
    assert same == changed
    assert standing(made) is None
    assert made.sql("SELECT * FROM expectation") == []


def test_a_data_set_that_no_app_declares_expects_nothing(stage):
    """`dataset show` called such data sets broken for ever. The deletion of the app ends the other expectations too."""
    made = stage("clicks")
    app = made.mill.project.config.app
    text = app.read_text()
    without = [line for line in text.splitlines() if not line.startswith("clicks")]
    app.write_text("\n".join(without).replace("tm.Missing(clicks)", "tm.Every('9d')"))
    made.mill.deploy()
    left = made.sql("SELECT * FROM expectation")
    app.write_text(text)
    made.mill.deploy()
    again = standing(made)
    made.mill.apps.delete("shop")

    assert left == []
    assert again.state == "kept"
    assert made.sql("SELECT * FROM expectation") == []


def test_a_trigger_on_a_data_set_without_an_expectation_is_refused(stage):
    """Such a job waits for ever. The refused deployment changes nothing."""
    made = stage("clicks")
    app = made.mill.project.config.app
    app.write_text(app.read_text().replace("tm.Missing(clicks)", "tm.Missing(users)"))

    with pytest.raises(tm.UserError, match=r"users has no arrival expectation; declare expect=tm.Arrivals"):
        made.mill.deploy()

    (schedule,) = made.mill.schedules.list().items
    assert schedule.trigger == "Missing(default.clicks)"
