"""Alerts: one for each begin of a state, sent once, also when nothing runs, and after each crash."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import Stage, staged
from tidemill.alerts.alerts import Watch
from tidemill.alerts.conditions import MachineState
from tidemill.alerts.outbox import Sender
from tidemill.alerts.rule_sentences import describe_rule
from tidemill.alerts.rules import RULES
from tidemill.alerts.targets import Target
from tidemill.catalog.db import CatalogUnavailable, Db
from tidemill.epoch import to_ms
from tidemill.json_specs import read_text
from tidemill.narration import Narrator
from tidemill.roles import alerter
from tidemill.roles.alerter import Couriers

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", schema="id int", attempts=1, settle="0s")
orders = app.fileset("orders", keys={"day": "date"}, expect=tm.Arrivals(every="1h", grace="1m"))
hook = tm.WebHook("https://example.org/hook")


@app.python(retries=0, arguments={"bad": False})
def load(run):
    if run.arguments["bad"]:
        raise ValueError("no such column")


@app.python()
def other(run):
    pass


@app.python(retries=0)
def broken(run):
    raise ValueError("always")


@app.python(reads=[orders], retries=0)
def report(run):
    raise ValueError("bad orders")


@app.python(reads=[raw], retries=0)
def sift(run):
    raise ValueError("damaged")


app.schedule("on_raw", sift, trigger=tm.NewFiles(raw))
app.schedule("hourly", load, trigger=tm.NewPartitions(orders, 1), constraints=[tm.Delay("3h")])
app.alert("failed", tm.RunFailed(load), to=hook, description="see the runbook")
app.alert("twice", tm.RunFailed(load, times=2), to=hook)
app.alert("any", tm.RunFailed())
app.alert("late", tm.Late(orders, by="2h"), to=hook)
app.alert("held", tm.JobWaits("shop.hourly", longer_than="1h"), to=hook)
app.alert("open", tm.TransactionTooLong(longer_than="1h"), to=hook)
app.alert("bad_files", tm.Quarantined(raw), to=hook, repeat="4h")
"""

READER = """

@app.python(reads=[orders])
def read(run):
    pass
"""


class Room:
    """A project whose alerts are looked at by hand, and sent into a list."""

    def __init__(self, stage: Stage, clock: ManualClock) -> None:
        self.stage, self.mill, self.clock = stage, stage.mill, clock
        self.catalog, self.world = stage.mill.project.catalog, stage.mill.project.world
        self.sent: list[dict] = []
        self.failing = ""
        self.watch = self.watcher()
        self.sender = Sender(self.catalog, self.world, self._send)

    def watcher(self) -> Watch:
        """Another process that looks."""
        return Watch(self.catalog, self.world)

    def _send(self, _: Target, body: str) -> None:
        if self.failing:
            raise OSError(self.failing)
        self.sent.append(json.loads(body))

    def run(self, *, bad: bool) -> None:
        """Run the program once."""
        self.clock.pass_by(timedelta(seconds=1))
        self.mill.runs.start("shop.load", {"bad": bad})
        self.stage.play()

    def narrated(self) -> list[str]:
        """Have the watch and the sender print what `tidemill up` prints; the lines, without their times."""
        lines: list[str] = []
        narrator = Narrator(self.world, lambda line: lines.append(line.partition(" ")[2]), as_json=False)
        self.watch = Watch(self.catalog, self.world, on_event=narrator.alerted)
        self.sender = Sender(self.catalog, self.world, self._send, narrator.gave_up)
        return lines

    def look(self) -> list[tuple[str, str]]:
        """Look and send; what targets were notified since the last time: the event, and the rule."""
        self.watch.look()
        self.sender.send_due()
        notices, self.sent = self.sent, []
        return [(one["data"]["event"], one["data"]["rule"].removeprefix("default.")) for one in notices]

    def open(self) -> list[tuple[str, str, str]]:
        """The alerts that have not ended: rule, subject, state."""
        found = [(one.rule, one.subject, str(one.state)) for one in self.mill.alerts.list()]
        return sorted((rule.removeprefix("default."), subject, state) for rule, subject, state in found)


@pytest.fixture
def room(catalog_url, tmp_path):
    """The project on each database, at a time that the test moves."""
    clock = ManualClock()
    with staged(tmp_path, catalog_url, APP, clock) as stage:
        (tmp_path / "landing").mkdir(exist_ok=True)
        yield Room(stage, clock)


def test_a_failed_run_opens_an_alert_and_a_completed_one_ends_it(room):
    """Each begin and each end is sent once, however often is looked."""
    assert room.look() == []
    room.run(bad=True)

    assert room.look() == [("opened", "failed")]
    assert room.open() == [("any", "default.shop.load", "OPEN"), ("failed", "default.shop.load", "OPEN")]
    room.run(bad=True)
    assert room.look() == [("opened", "twice")]
    assert room.look() == []
    room.run(bad=False)
    assert sorted(room.look()) == [("resolved", "failed"), ("resolved", "twice")]
    assert room.open() == []
    assert [str(one.state) for one in room.mill.alerts.list(resolved=True)] == ["RESOLVED"] * 3


def test_what_is_sent_says_what_to_do(room):
    """A person that is woken reads this first."""
    room.look()
    room.run(bad=True)
    room.watch.look()
    room.sender.send_due()

    (event,) = room.sent
    assert (event["specversion"], event["type"], event["subject"]) == (
        "1.0",
        "tidemill.alert.opened",
        "default.shop.load",
    )
    assert "no such column" in event["data"]["why"]
    assert event["data"]["description"] == "see the runbook"


def test_an_alert_fires_for_what_never_started(room):
    """Nothing runs, and no message comes: the time alone begins these states."""
    assert room.look() == []
    room.clock.pass_by(timedelta(hours=3, minutes=2))

    assert room.look() == [("opened", "late")]
    room.stage.publish("orders", "day=2026-01-01")
    room.clock.pass_by(timedelta(minutes=1))
    assert room.look() == [("resolved", "late")]


def test_a_job_that_waits_for_its_constraints_opens_an_alert(room):
    """The alert ends when the run starts."""
    room.stage.publish("orders", "day=2026-01-01")
    room.stage.schedule()
    room.clock.pass_by(timedelta(minutes=61))

    assert room.look() == [("opened", "held")]
    room.mill.jobs.force(room.mill.jobs.list()[0].job_id)
    room.stage.schedule()
    room.clock.pass_by(timedelta(minutes=1))
    assert room.look() == [("resolved", "held")]


def test_a_transaction_that_stays_open_opens_an_alert(room):
    """An open transaction holds back watermarks and the janitor."""
    room.look()
    with room.stage.transaction("orders"):
        room.clock.pass_by(timedelta(minutes=59))
        assert room.look() == []
        room.clock.pass_by(timedelta(minutes=2))
        assert ("opened", "open") in room.look()
    room.clock.pass_by(timedelta(minutes=1))
    assert room.look() == [("resolved", "open")]


def test_files_in_quarantine_are_notified_again_until_a_person_takes_them_up(room):
    """A first message may have been missed."""
    (room.mill.project.config.folder / "landing" / "a.csv").write_text("1\n", encoding="utf-8")
    room.mill.inboxes.scan("raw")
    room.look()
    room.stage.play()
    assert room.look() == [("opened", "bad_files")]
    room.clock.pass_by(timedelta(hours=3, minutes=1))
    assert ("repeated", "bad_files") not in room.look()
    room.clock.pass_by(timedelta(hours=1))
    assert ("repeated", "bad_files") in room.look()

    (alert,) = [one for one in room.mill.alerts.list() if one.rule == "default.bad_files"]
    assert room.mill.acting_as("ann@desk").alerts.acknowledge(alert.alert_id).changed
    assert not room.mill.alerts.acknowledge(alert.alert_id).changed
    assert room.look() == [("acknowledged", "bad_files")]
    room.clock.pass_by(timedelta(hours=9))
    assert ("repeated", "bad_files") not in room.look()
    assert room.mill.alerts.show(alert.alert_id).acknowledged_by == "ann@desk"


def test_a_silent_rule_sends_nothing_and_sends_at_its_end_what_is_open(room):
    """Work on a machine is no alert, and what it broke is one."""
    room.look()
    room.mill.alerts.silence("failed", duration="1h")
    room.run(bad=True)
    assert room.look() == []
    room.run(bad=False)
    assert room.look() == []
    room.run(bad=True)
    assert room.look() == [("opened", "twice")] * 0
    room.clock.pass_by(timedelta(minutes=61))

    assert room.look() == [("opened", "failed")]
    room.mill.alerts.silence("failed", duration="1h")
    assert room.mill.alerts.silence("failed").silent_until is None


EACH = tm.WebHook("https://example.org/each")


def test_a_silence_of_one_subject_keeps_the_others_of_its_rule(room):
    """Known trouble of one program must not hide new trouble of another."""
    room.mill.alerts.create("each", tm.RunFailed(), to=[EACH], repeat="30m")
    room.look()

    silence = room.mill.alerts.silence("each", subject="shop.load", duration="1h")
    room.run(bad=True)
    room.mill.runs.start("shop.broken")
    room.stage.play()
    room.watch.look()
    room.sender.send_due()

    assert (silence.rule, silence.subject) == ("default.each", "default.shop.load")
    assert [one["subject"] for one in room.sent if one["data"]["rule"] == "default.each"] == ["default.shop.broken"]
    shown = {one.subject: one.silent_until for one in room.mill.alerts.list(rule="each")}
    assert shown == {"default.shop.load": silence.silent_until, "default.shop.broken": None}
    (rule,) = [one for one in room.mill.alerts.rules() if one.name == "default.each"]
    assert rule.silent_subjects == {"default.shop.load": silence.silent_until}
    room.sent.clear()
    room.clock.pass_by(timedelta(minutes=61))
    assert sorted(room.look()) == [("opened", "each"), ("repeated", "each")]
    assert room.mill.alerts.list(rule="each")[1].silent_until is None


def test_the_end_of_a_silence_says_whether_there_was_one(room):
    """A script that ends the silence of a wrong subject would take the answer for a success."""
    room.mill.alerts.create("each", tm.RunFailed())
    room.mill.alerts.silence("each", subject="shop.load", duration="1h")
    begun = room.mill.alerts.silence("each", duration="1h")
    longer = room.mill.alerts.silence("each", duration="2h")

    other = room.mill.alerts.silence("each", subject="shop.broken")
    ended = room.mill.alerts.silence("each", subject="shop.load")
    room.clock.pass_by(timedelta(hours=3))
    over = room.mill.alerts.silence("each")

    assert [one.changed for one in (begun, longer, other, ended, over)] == [True, True, False, True, False]
    assert len(room.mill.audit.log(subject="default.each")) == 1 + 4


def test_a_rule_is_shown_with_the_silences_that_hold_alone(room):
    """A silence that was over stood in `alert rules --json` for ever, as if the rule sent nothing."""
    room.mill.alerts.create("each", tm.RunFailed())
    room.mill.alerts.silence("each", duration="1h")
    room.mill.alerts.silence("each", subject="shop.broken", duration="1h")
    longer = room.mill.alerts.silence("each", subject="shop.load", duration="3h").silent_until

    def shown() -> tuple[bool, dict]:
        (rule,) = [one for one in room.mill.alerts.rules() if one.name == "default.each"]
        assert (rule.silent_until, rule.silent_subjects) == (
            (updated := room.mill.alerts.update("each")).silent_until,
            updated.silent_subjects,
        )
        return rule.silent_until is not None, dict(rule.silent_subjects)

    before = shown()
    room.clock.pass_by(timedelta(hours=2))

    assert (before[0], before[1].keys()) == (True, {"default.shop.broken", "default.shop.load"})
    assert shown() == (False, {"default.shop.load": longer})


def test_one_alert_is_silenced_by_its_id(room):
    """A person has the id of the alert at hand, from the notice. The silence ends when the person says so."""
    room.mill.alerts.create("each", tm.RunFailed(), to=[EACH], repeat="10m")
    room.look()
    room.run(bad=True)
    room.look()
    (alert,) = room.mill.alerts.list(rule="each")
    silence = room.mill.alerts.silence(alert.alert_id, duration="2h")
    room.clock.pass_by(timedelta(minutes=30))
    assert room.look() == []
    assert room.mill.alerts.show(alert.alert_id).silent_until == silence.silent_until

    ended = room.mill.alerts.silence(alert.alert_id)

    assert (ended.subject, ended.silent_until) == ("default.shop.load", None)
    assert room.look() == [("repeated", "each")]
    assert [one.detail["about"] for one in room.mill.audit.log(subject="default.each", limit=2)] == [alert.subject] * 2


def test_the_longer_of_two_silences_holds(room):
    """A rule is silent for a night, and one program for a week: the end of the night must not ring for the program."""
    room.mill.alerts.create("each", tm.RunFailed(), to=[EACH])
    room.look()
    room.mill.alerts.silence("each", duration="1h")
    room.mill.alerts.silence("each", subject="default.shop.load", duration="3h")
    room.mill.alerts.silence("each", subject="shop.broken", duration="30m")
    room.run(bad=True)
    room.mill.runs.start("shop.broken")
    room.stage.play()
    room.clock.pass_by(timedelta(minutes=59))
    assert ("opened", "each") not in room.look()

    room.clock.pass_by(timedelta(minutes=2))
    assert room.look() == [("opened", "each")]
    room.mill.alerts.update("each", description="kept")
    assert room.look() == []
    room.clock.pass_by(timedelta(hours=2))
    assert [one for one in room.look() if one[1] == "each"] == [("opened", "each")]


@pytest.mark.parametrize(
    ("name", "subject", "code", "match"),
    [
        ("failed", "shop.lod", "not_found", "did you mean 'default.shop.load'"),
        ("failed", "shop.broken", "not_found", "its only subject is default.shop.load"),
        ("any", "shop.brokn", "not_found", "did you mean 'default.shop.broken'"),
        ("late", "raw", "not_found", "its only subject is default.orders"),
        ("open", "17", "not_found", "its only subject is transactions"),
        ("alert_01J00000000000000000000000", None, "not_found", "alert list --resolved"),
    ],
)
def test_a_subject_that_a_rule_never_has_is_refused(room, name, subject, code, match):
    """A silence about a name with a typo would keep nothing silent."""
    with raises_code(code, match=match):
        room.mill.alerts.silence(name, subject=subject, duration="1h")


def test_an_alert_has_its_own_subject(room):
    """The silence would be about another subject than the person meant."""
    room.look()
    room.run(bad=True)
    room.look()
    alert = room.mill.alerts.list(rule="failed")[0]

    with raises_code("bad_rule", match="about default.shop.load"):
        room.mill.alerts.silence(alert.alert_id, subject="shop.broken", duration="1h")


def test_a_run_without_input_ends_the_alert_of_a_failed_one(room):
    """A program that has nothing to do is not broken any more, and announces no end that schedules would hear."""
    room.mill.alerts.create("reports", tm.RunFailed("shop.report"), to=[EACH])
    room.look()
    room.stage.publish("orders", "day=2026-01-01")
    assert room.stage.outcome("shop.report")[0] == "FAILED"
    assert ("opened", "reports") in room.look()
    room.clock.pass_by(timedelta(seconds=1))

    assert room.stage.outcome("shop.report") == ("COMPLETED", "no_input")

    assert room.look() == [("resolved", "reports")]


def test_begins_ends_and_dead_deliveries_are_printed_once(room):
    """A person at the terminal of `tidemill up` sees them without a target, and has the next command at hand."""
    lines = room.narrated()
    room.failing = "no route to host"
    room.look()
    room.run(bad=True)
    room.look()
    room.look()
    (alert,) = room.mill.alerts.list(rule="failed")
    run_id = room.stage.runs()[0].run_id
    show = f"(tidemill alert show {alert.alert_id})"
    failed = f"run {run_id} of default.shop.load failed: ValueError: no such column"
    assert [one for one in lines if "failed " in one] == [f"alert   default.failed   opened: {failed}   {show}"]

    room.clock.pass_by(timedelta(hours=25))
    room.sender.send_due()
    (dead,) = room.mill.alerts.deliveries(alert=alert.alert_id)
    given_up = f"{dead.target} was not notified (opened): no route to host"
    retry = f"(tidemill alert retry {dead.delivery_id})"
    assert f"alert   default.failed   {given_up}   {retry}" in lines
    lines.clear()
    room.run(bad=False)
    room.look()

    resolved = [one for one in lines if one.startswith("alert   default.failed")]
    assert resolved == [f"alert   default.failed   resolved: {failed}   {show}"]


def test_two_processes_send_once(room):
    """Each scheduler of a site looks."""
    second = room.watcher()
    room.watch.look()
    second.look()
    room.run(bad=True)
    second.look()

    assert room.look() == [("opened", "failed")]


@pytest.mark.parametrize("mark", ["alerts.before_look", "alerts.looked", "delivery.begun", "delivery.sent"])
def test_a_crash_loses_no_alert(room, mark):
    """The next process looks at all, and sends what waits; after a try that was cut off maybe twice, with one id."""
    room.look()
    room.run(bad=True)

    def die() -> None:
        raise KeyboardInterrupt

    room.stage.at[mark] = die
    with pytest.raises(KeyboardInterrupt):
        room.look()
    room.watch = room.watcher()
    room.clock.pass_by(timedelta(minutes=3))
    room.watch.look()
    room.sender.send_due()

    notices = {one["id"] for one in room.sent if one["data"]["rule"] == "default.failed"}
    assert len(notices) == 1


def test_a_catalog_that_is_away_for_a_moment_loses_no_alert(room):
    """The loop calls the same watch again, which must not have passed over the end of the run."""
    room.look()
    room.run(bad=True)

    def be_away() -> None:
        raise CatalogUnavailable("postgresql://db", "the server restarts")

    room.stage.at["alerts.before_look"] = be_away
    with raises_code("catalog_unavailable"):
        room.look()

    assert room.look() == [("opened", "failed")]


def test_a_look_at_which_nothing_has_changed_writes_nothing(room):
    """A commit a second, and hundreds of rules: each tick would hold up the commits of programs."""
    room.run(bad=True)
    room.look()
    room.run(bad=True)
    room.look()
    room.run(bad=True)
    room.stage.commit("orders", {"day=2026-01-01": "1\n"})
    writes: list[str] = []
    room.stage.at["alerts.before_look"] = lambda: writes.append("a write")

    assert room.look() == []
    assert writes == []


def test_a_look_at_many_open_alerts_has_as_many_statements_as_one_at_few(room, monkeypatch):
    """The alerter looks after each commit: an outage that opens 300 alerts must not slow it down by 300 statements."""
    called: list[str] = []
    run = Db._run

    def counted(db, call):
        called.append(call.statement.name)
        return run(db, call)

    def look() -> list[str]:
        called.clear()
        room.watch.look()
        return sorted(called)

    monkeypatch.setattr(Db, "_run", counted)
    room.look()
    room.run(bad=True)
    room.look()
    few = look()
    room.mill.runs.start("shop.broken")
    room.stage.play()
    room.look()
    many = look()

    assert [subject for rule, subject, _ in room.open() if rule == "any"] == [
        "default.shop.broken",
        "default.shop.load",
    ]
    assert many == few
    assert few.count("alerts.list_live") <= 2


def test_the_end_of_a_state_is_noted_at_its_commit(room):
    """Without a look each minute: an open alert costs nothing while nothing happens."""
    room.look()
    with room.stage.transaction("orders"):
        room.clock.pass_by(timedelta(minutes=61))
        assert ("opened", "open") in room.look()
        assert all(rule.next_look_at is None for rule in room.mill.alerts.rules() if rule.name == "default.open")

    assert ("resolved", "open") in room.look()


def test_killed_and_rejected_runs_are_no_end_of_failures(room):
    """A person that kills a run has repaired nothing."""
    room.look()
    room.run(bad=True)
    room.mill.runs.kill(room.mill.runs.start("shop.load").run_id)
    room.run(bad=True)

    assert sorted(room.look()) == [("opened", "failed"), ("opened", "twice")]


def test_a_replay_is_no_end_of_failures(room):
    """A replay runs the code and the input of another time."""
    room.look()
    room.run(bad=False)
    (good,) = room.mill.runs.list().items
    room.run(bad=True)
    room.look()
    room.clock.pass_by(timedelta(seconds=1))
    replayed = room.mill.runs.replay(good.run_id, sandbox=True)
    room.stage.play()

    assert room.mill.runs.show(replayed.run_id).state == "COMPLETED"
    assert room.look() == []
    assert ("failed", "default.shop.load", "OPEN") in room.open()


def test_two_processes_race_and_each_notice_is_sent_once(room):
    """Each begin and end once, and each delivery tried by one process at a time, under real threads."""
    sent: list[tuple[str, str]] = []
    under_way: set[str] = set()
    doubled: list[str] = []

    def send(target: Target, body: str) -> None:
        if (key := str(target)) in under_way:
            doubled.append(key)
        under_way.add(key)
        event = json.loads(body)
        sent.append((event["id"], event["data"]["event"]))
        under_way.discard(key)

    senders = [Sender(room.catalog, room.world, send) for _ in range(3)]
    watches = [room.watcher() for _ in range(3)]
    for number in range(6):
        room.run(bad=number % 2 == 0)
        with ThreadPoolExecutor(6) as threads:
            for one in [*(watch.look for watch in watches), *(sender.send_due for sender in senders)]:
                threads.submit(one)
    room.watch.look()
    for sender in senders:
        sender.send_due()

    assert doubled == []
    assert len({delivery_id for delivery_id, _ in sent}) == len(sent)
    events = [event for _, event in sent]
    assert events == ["opened", "resolved"] * (len(events) // 2)
    states = {str(one.state) for one in room.mill.alerts.deliveries()}
    assert states == {"SENT"}


def test_a_receiver_that_hangs_holds_up_no_other(room):
    """Each target has a courier of its own while it is due."""
    room.look()
    hang, reached = threading.Event(), threading.Event()

    def send(target: Target, body: str) -> None:
        del body
        if "slow" in str(target):
            hang.wait(60)
        else:
            reached.set()

    for name in ("slow", "quick"):
        room.mill.alerts.create(name, {"type": "run_failed"}, to=[tm.WebHook(f"https://{name}.example.com/")])
    room.run(bad=True)
    room.watch.look()
    couriers = Couriers(room.world, [Sender(room.catalog, room.world, send)])
    try:
        couriers.start_due()
        assert reached.wait(60)
    finally:
        hang.set()
        couriers.stop()


@dataclass
class BusyLane:
    """A lane in which there is always something; a courier works on it by a function."""

    work_off: Callable[[str, Callable[[], bool]], None]

    def list_due(self) -> list[str]:
        return ["lane"]

    def next_try(self) -> None:
        return None


def couriers_in_a_lane(room) -> tuple[Couriers, threading.Event, threading.Event]:
    """Return couriers of which one stays in its lane, the event that lets it leave, and that of the woken loop."""
    entered, leave, woken = threading.Event(), threading.Event(), threading.Event()

    def be_slow_to_leave(_lane: str, _stopped: Callable[[], bool]) -> None:
        entered.set()
        leave.wait(60)

    couriers = Couriers(room.world, [BusyLane(be_slow_to_leave)])
    couriers.wake = woken.set
    couriers.start_due()
    assert entered.wait(60)
    return couriers, leave, woken


def test_a_courier_that_leaves_a_lane_wakes_the_loop(room):
    """A try that the courier has planned would wait for the longest nap of the loop."""
    couriers, leave, woken = couriers_in_a_lane(room)
    early = woken.is_set()
    leave.set()
    late = woken.wait(60)
    couriers.stop()

    assert (early, late) == (False, True)


def test_a_courier_that_outlives_the_end_wakes_no_loop(room):
    """The waiter of the loop is closed then. Its file descriptor may already be that of another file."""
    couriers, leave, woken = couriers_in_a_lane(room)
    with patch.object(alerter, "_END_WITHIN", timedelta(0)):
        couriers.stop()
    leave.set()
    couriers.stop()

    assert not woken.is_set()


def test_couriers_end_while_the_loop_starts_some(room):
    """A signal came while the loop started a courier: the end failed, and `up` stayed there without an end."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            couriers = Couriers(room.world, [BusyLane(lambda _lane, _stopped: None)])
            loop = threading.Thread(target=couriers.start_due)
            loop.start()
            couriers.stop()
            loop.join()
    finally:
        sys.setswitchinterval(before)


def test_an_error_of_a_courier_is_raised_by_the_loop(room):
    """A thread that dies in silence would send nothing ever after."""
    room.look()
    room.run(bad=True)
    room.watch.look()

    def die() -> None:
        raise MemoryError("no more")

    room.stage.at["delivery.begun"] = die
    couriers = Couriers(room.world, [room.sender])
    couriers.start_due()
    while not couriers.errors:
        threading.Event().wait(0.01)
    couriers.stop()
    with pytest.raises(MemoryError, match="no more"):
        couriers.start_due()


def test_a_dead_delivery_is_tried_again_by_hand(room):
    """In its order before those that wait. A second failure leaves it dead, and a second request changes nothing."""
    room.look()
    room.failing = "gone"
    room.run(bad=True)
    room.look()
    room.clock.pass_by(timedelta(hours=25))
    room.sender.send_due()
    (dead,) = room.mill.alerts.deliveries()
    assert str(dead.state) == "DEAD"
    assert room.mill.alerts.retry(dead.delivery_id).changed
    assert not room.mill.alerts.retry(dead.delivery_id).changed
    room.sender.send_due()
    assert str(room.mill.alerts.deliveries()[0].state) == "DEAD"

    room.failing = ""
    assert room.mill.alerts.retry(dead.delivery_id).changed
    room.run(bad=False)
    assert [event for event, rule in room.look() if rule == "failed"] == ["opened", "resolved"]
    assert not room.mill.alerts.retry(dead.delivery_id).changed
    with raises_code("not_found", match="alert deliveries"):
        room.mill.alerts.retry("delivery_0")


def test_a_silence_keeps_begins_back_and_no_end(room):
    """The pager of a person that silenced the rule would stay open for ever."""
    room.look()
    room.run(bad=True)
    assert room.look() == [("opened", "failed")]
    room.mill.alerts.silence("failed", duration="1h")
    room.run(bad=False)

    assert room.look() == [("resolved", "failed")]


def test_targets_and_durations_have_bounds(room):
    """A target that no index holds, and a time beyond all calendars, would end the process that looks."""
    with raises_code("bad_target", match="2000"):
        room.mill.alerts.create("long", tm.RunFailed(), to=[tm.Command(("/bin/true", "x" * 3000))])
    with raises_code("bad_rule"):
        room.mill.alerts.create("far", tm.RunFailed(), repeat=timedelta.max)
    with raises_code("bad_duration"):
        room.mill.alerts.silence("failed", duration=timedelta.max)
    with raises_code("bad_duration"):
        tm.RunTooLong("shop.load", longer_than=timedelta.max)


def test_deliveries_of_a_target_stay_in_order_and_others_go_on(room):
    """The end of an alert never comes before its begin."""
    room.look()
    room.failing = "no route to host"
    room.run(bad=True)
    room.run(bad=False)
    room.mill.alerts.create("second", {"type": "run_failed"}, to=[tm.WebHook("https://example.com/other")])
    room.run(bad=True)
    assert room.look() == []
    states = [(one.event, str(one.state), one.attempt, one.error) for one in room.mill.alerts.deliveries()]
    assert ("opened", "WAITING", 1, "no route to host") in states
    room.run(bad=False)
    assert room.look() == []
    room.failing = ""
    room.clock.pass_by(timedelta(seconds=3))
    events = [event for event, rule in room.look() if rule == "failed"]
    assert events == sorted(events)  # opened, resolved


def test_a_target_that_is_away_for_a_day_is_given_up(room):
    """Its deliveries are shown as dead, and the next ones are tried."""
    room.look()
    room.failing = "gone"
    room.run(bad=True)
    room.look()
    for _ in range(100):
        room.clock.pass_by(timedelta(minutes=16))
        room.sender.send_due()

    (dead,) = [one for one in room.mill.alerts.deliveries() if one.event == "opened"][-1:]
    assert (str(dead.state), dead.error) == ("DEAD", "gone")


def test_a_rule_that_is_no_longer_declared_ends_its_alerts(room):
    """And one that is declared as before keeps them."""
    room.look()
    room.run(bad=True)
    room.look()
    room.stage.declare(APP.replace('app.alert("failed"', 'app.alert("renamed"'))

    assert room.look() == [("resolved", "failed"), ("opened", "renamed")]
    assert ("any", "default.shop.load", "OPEN") in room.open()
    room.mill.apps.delete("shop")
    assert room.open() == []
    assert list(room.mill.alerts.rules()) == []


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ('tm.RunFailed("shop.lod")', "not_found"),
        ('tm.RunFailed("lod")', "BadName"),
        ('tm.Late("orders", by="-1h")', "BadDuration"),
        ("tm.RunFailed(load, times=0)", "BadRule"),
        ("tm.RunTooLong(load, longer_than='0s')", "BadRule"),
        ("tm.RunTooLong(load, longer_than=5)", "BadRule"),
        ("tm.RunTooLong(5, longer_than='1h')", "BadRule"),
        ("tm.JobWaits('shop.none', longer_than='1h')", "not_found"),
        ("tm.RunFailed(), repeat='1s'", "BadRule"),
        ("tm.RunFailed(), to=tm.WebHook('http://example.org')", "BadTarget"),
        ("tm.RunFailed(), to=tm.WebHook('https://example.org', secret='abc')", "BadSecretPlace"),
        ("tm.RunFailed(), to=tm.Slack('https://hooks.slack.com/x')", "BadSecretPlace"),
        ("tm.RunFailed(), to=tm.Email((), 'mail:25', 'a@b')", "BadTarget"),
        ("tm.RunFailed(), to=tm.Email(('a@b',), 'mail', 'a@b')", "BadTarget"),
        ("tm.RunFailed(), to=tm.Email(('a@b\\nBcc: c@d',), 'mail:25', 'a@b')", "BadTarget"),
        ("tm.RunFailed(), to=tm.Command(())", "BadTarget"),
    ],
)
def test_a_wrong_declaration_is_refused(room, declared, code):
    """A rule with a slip would be silent for ever; nothing of the deployment is kept."""
    before = room.mill.alerts.rules()
    with raises_code(
        "not_found" if code == "not_found" else "broken_app", match="named" if code == "not_found" else code
    ):
        room.stage.declare(f'{APP}\napp.alert("wrong", {declared})\n')

    assert [one.name for one in room.mill.alerts.rules()] == [one.name for one in before]


def test_a_rule_of_a_person_is_made_and_deleted(room):
    """By its JSON, as from the command line."""
    made = room.mill.alerts.create(
        "mine", {"type": "late", "dataset": "orders"}, to=[{"type": "slack", "url": "env:X"}]
    )

    assert (made.name, made.app, made.rule["dataset"]) == ("default.mine", "", "default.orders")
    with raises_code("bad_rule", match="there is a rule"):
        room.mill.alerts.create("mine", tm.RunFailed())
    with raises_code("bad_rule", match="app shop declares"):
        room.mill.alerts.delete("failed")
    assert room.mill.alerts.delete("mine").name == "default.mine"
    with raises_code("not_found"):
        room.mill.alerts.delete("mine")
    with raises_code("bad_json"):
        room.mill.alerts.create("mine", {"type": "nothing"})


def test_a_rule_of_a_person_is_changed_in_place(room):
    """A target that moved, or a limit that rings too often, must not cost the silence and the open alerts."""
    room.mill.alerts.create("mine", tm.RunFailed("shop.load"), to=[tm.Slack("env:X")], repeat="1h")
    room.run(bad=True)
    room.look()
    room.mill.alerts.silence("mine", duration="2h")
    silent = next(one for one in room.mill.alerts.rules() if one.name == "default.mine").silent_until

    changed = room.mill.alerts.update("mine", to=[tm.WebHook("https://example.org/a")], repeat="0s", description="call")
    again = room.mill.alerts.update("mine", description="call")
    open_after_words = [one.rule for one in room.mill.alerts.list() if one.rule == "default.mine"]
    other = room.mill.alerts.update("mine", rule={"type": "late", "dataset": "orders"}, to=[])
    room.look()

    assert (changed.changed, changed.to, changed.repeat) == (True, ("WebHook example.org",), None)
    assert (changed.description, changed.rule["program"]) == ("call", "default.shop.load")
    assert (changed.silent_until, again.changed, open_after_words) == (silent, False, ["default.mine"])
    assert (other.to, other.rule["type"], other.description) == ((), "late", "call")
    assert [one for one in room.mill.alerts.list() if one.rule == "default.mine"] == []
    with raises_code("bad_rule", match="app shop declares"):
        room.mill.alerts.update("failed", description="x")
    with raises_code("not_found"):
        room.mill.alerts.update("other", description="x")
    with raises_code("not_found"):
        room.mill.alerts.update("mine", rule={"type": "late", "dataset": "nothing"})
    with raises_code("bad_rule", match="one minute"):
        room.mill.alerts.update("mine", repeat="1s")


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_each_rule_has_a_sentence_of_its_own(rule):
    """A page says when an alert opens, in words, for every kind of rule."""
    given = {
        "program": "shop.load", "schedule": "shop.nightly", "dataset": "orders", "inbox": "raw", "fileset": "orders",
        "longer_than": "2h", "consumer": "shop.load", "by": "3m", "free": "10 GB",
    }  # fmt: skip
    wanted = {name: value for name, value in given.items() if name in rule.__dataclass_fields__}

    said = describe_rule(rule(**wanted))

    shown = [value for name, value in wanted.items() if name != "consumer"]
    assert all(value.rpartition(".")[2] in said for value in shown), said


def test_a_caller_of_a_namespace_sees_its_alerts_only(room):
    """Alerts name programs and data."""
    room.look()
    room.run(bad=True)
    room.look()
    from tidemill.mill.access import Access, Role
    from tidemill.mill.operation import Right

    stranger = room.mill.acting_as("eve", Access(Role.ADMIN, "elsewhere", Right.READ))

    assert (len(stranger.alerts.list()), len(stranger.alerts.rules())) == (0, 0)
    with raises_code("not_found"):
        stranger.alerts.show(room.mill.alerts.list()[0].alert_id)
    with raises_code("not_found"):
        stranger.alerts.silence("default.failed")


def test_the_json_of_a_target_is_read_back():
    """A target stands in the catalog for as long as its delivery waits."""
    from tidemill.json_specs import write_text

    for target in (
        tm.WebHook("https://example.org/a", secret="env:HOOK"),
        tm.Slack("file:/run/hook"),
        tm.Email(("a@b.org",), "mail.b.org:587", "tidemill@b.org", user="u", password="env:MAIL"),
        tm.Command(("/bin/true", "x")),
    ):
        assert read_text(Target, write_text(target)) == target


def add(room, name: str, rule: object) -> None:
    """Add a rule of a person, and look once."""
    room.mill.alerts.create(name, rule, to=[tm.WebHook("https://example.org/added")])
    room.look()


def of(room, name: str) -> list[str]:
    """Look and send; the events of one rule."""
    return [event for event, rule in room.look() if rule == name]


def test_a_run_that_takes_longer_than_usual_opens_an_alert(room):
    """Usual is what the last runs that completed took; the time alone begins the state of the next one."""
    add(room, "slow", tm.RunSlow("shop.other", factor=2))
    for _ in range(5):
        room.clock.pass_by(timedelta(seconds=1))
        room.mill.runs.start("shop.other")
        room.stage.play()
    room.stage.sql("UPDATE run SET started_at = ended_at - 600000 WHERE state = 'COMPLETED' RETURNING 1")
    room.mill.runs.start("shop.other")
    (run,) = room.stage.take()
    room.stage.sql(f"UPDATE run SET started_at = {to_ms(room.clock.now())} WHERE run_id = '{run.run_id}' RETURNING 1")
    assert of(room, "slow") == []
    room.clock.pass_by(timedelta(minutes=19))
    assert of(room, "slow") == []
    room.clock.pass_by(timedelta(minutes=2))

    assert of(room, "slow") == ["opened"]
    room.stage.attempt(run)
    assert of(room, "slow") == ["resolved"]


def test_a_data_set_without_expectation_opens_an_alert_when_nothing_comes(room):
    """A week without data is wrong, however often data come."""
    add(room, "quiet", tm.NothingArrived("orders", longer_than="5h"))
    add(room, "quiet_raw", tm.NothingArrived("raw", longer_than="5h"))
    room.stage.publish("orders", "day=2026-01-01")
    room.clock.pass_by(timedelta(hours=4))
    (room.mill.project.config.folder / "landing" / "a.csv").write_text("1\n", encoding="utf-8")
    room.mill.inboxes.scan("raw")
    room.clock.pass_by(timedelta(hours=2))

    assert sorted(rule for event, rule in room.look() if "quiet" in rule) == ["quiet"]
    room.stage.publish("orders", "day=2026-01-02")
    assert of(room, "quiet") == ["resolved"]


def test_a_backfill_that_ends_with_failed_items_opens_an_alert(room):
    """The items stay undone until a person tries them again, or starts another backfill that succeeds."""
    add(room, "undone", tm.BackfillStopped("shop.load"))
    room.run(bad=False)
    (run,) = room.mill.runs.list()
    first = room.mill.backfills.start("shop.load", {"bad": True}, by="runs", runs=[run.run_id])
    assert of(room, "undone") == []
    room.stage.play()

    assert of(room, "undone") == ["opened"]
    (alert,) = [one for one in room.mill.alerts.list() if one.rule == "default.undone"]
    assert alert.subject == "default.shop.load"
    assert f"backfill {first.backfill_id} of default.shop.load ended with 1 item failed" in alert.why
    room.clock.pass_by(timedelta(seconds=1))
    room.mill.backfills.start("shop.load", {"bad": False}, by="runs", runs=[run.run_id])
    room.stage.play()
    assert of(room, "undone") == ["resolved"]


def test_a_backfill_that_pauses_by_itself_opens_an_alert_until_it_is_cancelled(room):
    """Its waiting items would wait for ever, and no run fails."""
    add(room, "stopped", tm.BackfillStopped())
    runs = [room.mill.runs.start("shop.other").run_id for _ in range(2)]
    room.stage.play()
    backfill_id = room.mill.backfills.start("shop.other", by="runs", runs=runs).backfill_id
    room.mill.backfills.pause(backfill_id)
    assert of(room, "stopped") == []
    room.stage.declare(APP.replace("@app.python()\ndef other(run):\n    pass\n", ""))
    room.mill.backfills.resume(backfill_id)

    assert of(room, "stopped") == ["opened"]
    assert [one.why.partition(" has paused: ")[0] for one in room.mill.alerts.list()] == [
        f"backfill {backfill_id} of default.shop.other"
    ]
    room.mill.backfills.cancel(backfill_id)
    assert of(room, "stopped") == ["resolved"]


def test_partitions_that_wait_for_a_consumer_open_an_alert(room):
    """A reader that has stopped is late for all its readers."""
    room.stage.declare(f"{APP}{READER}")
    add(room, "many", tm.ConsumerLag("orders", "shop.read", partitions=3))
    add(room, "old", tm.ConsumerLag("orders", "shop.read", longer_than="1h"))
    room.stage.publish("orders", "day=2026-01-01", "day=2026-01-02")
    assert room.look() == []
    room.clock.pass_by(timedelta(minutes=61))
    assert of(room, "old") == ["opened"]
    room.stage.publish("orders", "day=2026-01-03")
    assert of(room, "many") == ["opened"]

    room.mill.runs.start("shop.read")
    room.stage.work()
    assert sorted(rule for event, rule in room.look() if event == "resolved") == ["many", "old"]


def test_work_that_no_scheduler_does_opens_an_alert(room):
    """The process that looks may run while the scheduler of another machine hangs."""
    room.stage.declare(f'{APP}\napp.schedule("clock", other, trigger=tm.Every("1h"))\n')
    add(room, "behind", tm.SchedulerBehind(by="5m"))
    room.clock.pass_by(timedelta(minutes=64))
    assert of(room, "behind") == []
    room.clock.pass_by(timedelta(minutes=2))

    assert of(room, "behind") == ["opened"]
    room.stage.schedule()
    assert of(room, "behind") == ["resolved"]


def test_each_machine_looks_at_its_own_disk(room, monkeypatch):
    """A machine whose disk is free says nothing about the disk of another one."""
    free = {"a": 5_000_000_000, "b": 50_000_000_000}
    asked: list[str] = []

    def watch(host: str) -> Watch:
        made = Watch(room.catalog, room.world, Path("/somewhere"))
        made._machine = MachineState(host)
        monkeypatch.setattr(made, "_measure", lambda: asked.append(host) or free[host])
        return made

    one, other = watch("a"), watch("b")
    add(room, "disk", tm.DiskLow("10 GB"))
    one.look()
    other.look()
    one.look()
    assert of(room, "disk") == ["opened"]
    assert [subject for rule, subject, _ in room.open() if rule == "disk"] == ["a"]
    free["a"] = 20_000_000_000
    other.look()
    assert of(room, "disk") == []
    one.look()
    assert of(room, "disk") == ["resolved"]


def test_an_alert_of_a_machine_that_is_gone_is_resolved(room, monkeypatch):
    """The machine itself would never say that its disk has room: another one has to see that it says nothing."""

    def watch(host: str, free: int) -> Watch:
        made = Watch(room.catalog, room.world, Path("/somewhere"))
        made._machine = MachineState(host)
        monkeypatch.setattr(made, "_measure", lambda: free)
        return made

    elapsed = [timedelta(0)]
    monkeypatch.setattr(room.clock, "monotonic", lambda: elapsed[0])
    full, other = watch("a", 5), watch("b", 50_000_000_000)
    add(room, "disk", tm.DiskLow("10 GB"))
    full.look()
    other.look()
    for _ in range(8):  # as long as it lives, however often others look
        elapsed[0] += timedelta(minutes=1)
        full.look()
        other.look()
    assert of(room, "disk") == ["opened"]
    elapsed[0] += timedelta(minutes=4)
    other.look()
    assert of(room, "disk") == []
    elapsed[0] += timedelta(minutes=1)
    other.look()

    assert of(room, "disk") == ["resolved"]
    assert [rule for rule, _, _ in room.open() if rule == "disk"] == []
    full.look()  # it was only stopped for a while
    assert of(room, "disk") == ["opened"]


def test_a_machine_that_comes_back_meanwhile_keeps_its_alert(room, monkeypatch):
    """Its renewal comes between the look of the other machine and the transaction that would resolve the alert."""

    def watch(host: str) -> Watch:
        made = Watch(room.catalog, room.world, Path("/somewhere"))
        made._machine = MachineState(host)
        monkeypatch.setattr(made, "_measure", lambda: 5)
        return made

    elapsed = [timedelta(0)]
    monkeypatch.setattr(room.clock, "monotonic", lambda: elapsed[0])
    late, other = watch("a"), watch("b")
    add(room, "disk", tm.DiskLow("10 GB"))
    late.look()
    other.look()
    late.look()
    other.look()
    elapsed[0] += timedelta(minutes=5)
    seen = room.catalog.read(other._find_changed)[1]
    late.look()
    other._watch_machines(seen)

    assert [subject for rule, subject, _ in room.open() if rule == "disk"] == ["a", "b"]


def test_a_disk_that_cannot_be_measured_keeps_its_alert(room, monkeypatch):
    """A disk that hangs or is away is not a disk with room again: its alert stays open."""
    free: int | None = 5_000_000_000
    watch = Watch(room.catalog, room.world, Path("/somewhere"))
    monkeypatch.setattr(watch, "_measure", lambda: free)
    add(room, "disk", tm.DiskLow("10 GB"))
    watch.look()
    assert of(room, "disk") == ["opened"]
    free = None
    watch.look()
    assert of(room, "disk") == []
    assert [rule for rule, _, _ in room.open() if rule == "disk"] == ["disk"]
    free = 20_000_000_000
    watch.look()
    assert of(room, "disk") == ["resolved"]


def test_the_disk_of_the_state_is_measured(room, tmp_path):
    """By the real file system; a folder that is away is no alert."""
    for state, opened in ((tmp_path / "away", []), (tmp_path, ["disk"])):
        room.watch = Watch(room.catalog, room.world, state)
        if opened == []:
            add(room, "disk", tm.DiskLow("900 PB"))
        room.look()
        assert [rule for rule, _, _ in room.open() if rule == "disk"] == opened


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: tm.RunSlow("shop.load", factor=0.5), "bad_rule"),
        (lambda: tm.RunSlow("shop.load", factor=True), "bad_rule"),
        (lambda: tm.ConsumerLag("orders", "shop.load"), "bad_rule"),
        (lambda: tm.ConsumerLag("orders", "shop.load", partitions=-1), "bad_rule"),
        (lambda: tm.ConsumerLag("orders", "shop.load", partitions=1, longer_than="1h"), "bad_rule"),
        (lambda: tm.DiskLow("10"), "bad_size"),
        (lambda: tm.SchedulerBehind("0s"), "bad_rule"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(make, code):
    """A rule that holds always, or never, is a slip."""
    with raises_code(code):
        make()


def test_a_lag_of_no_consumer_is_refused(room):
    """The rule would be silent for ever."""
    with raises_code("not_found", match="consumer"):
        room.mill.alerts.create("lag", tm.ConsumerLag("orders", "shop.load", partitions=1))
