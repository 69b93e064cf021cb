"""Random histories of a few schedules against a model: each message is in one job, or dropped with a reason."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tidemill.catalog.messages import Publish, Topic
from tidemill.names import EventKey, RunId
from tidemill.schedule.changes import Resume, Suspend, Update, change_schedules
from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewFiles, NewPartitions
from tidemill.schedule.jobs import Outcome
from tidemill.schedule.specs import ScheduleSpec, SuspendMode
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.time_triggers import Every
from tidemill.schedule.timekeeper import fire_due

TRIGGERS = [
    NewPartitions("clicks"),
    NewPartitions("clicks", 3),
    NewPartitions("clicks") & NewFiles("raw", 2),
    NewFiles("raw") | Every("2h") | NewPartitions("clicks", 4),
]
KEYS = ["partition:default.clicks", "file:default.raw", "partition:default.other"]
NAMES = ["a", "b", "c"]
LIMIT = 2
RULES = {"constraints": (Concurrency(LIMIT),), "timeout": timedelta(hours=5)}
TABLES = ["message", "subscriber", "schedule", "trigger_key", "timer", "fire", "job", "job_message", "job_waits"]
TABLES += ["job_history", "run", "slot", "slot_limit", "program", "passed_while_suspended"]

triggers = st.sampled_from(TRIGGERS)
names = st.sampled_from(NAMES)


class Crash(Exception):
    """The end of a process before its commit."""


class Histories(RuleBasedStateMachine):
    """Acts of users and schedulers, in any order, with crashes. Three schedules of one program share a limit."""

    shop = None

    @initialize(chosen=st.tuples(triggers, triggers, triggers))
    def begin(self, chosen):
        """Start with an empty catalog and three schedules that listen."""
        self.shop.at_mark = None
        for table in TABLES:
            self.shop.sql(f"DELETE FROM {table}")
        self.program = self.shop.program(reads=["raw", "clicks"])
        self.messages = []
        self.read = 0
        self.expected = Counter()
        self.schedules = {
            name: self.shop.schedule(trigger, name=name, program=self.program, **RULES)
            for name, trigger in zip(NAMES, chosen, strict=True)
        }
        self.triggers = dict(zip(NAMES, chosen, strict=True))
        self.since = {name: schedule.since_seq for name, schedule in self.schedules.items()}
        self.modes = dict.fromkeys(NAMES)
        self.passed = Counter()

    @rule(events=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 3)), min_size=1, max_size=3))
    def publish(self, events):
        """Commit something, with one or more messages of one seq."""
        effects = [Publish(Topic.DATA, "data", EventKey(key), {"count": count}) for key, count in events]
        seq = self.shop.catalog.apply(effects)
        self.messages += [(seq, n, key) for n, (key, _) in enumerate(events)]

    @rule(name=names, mode=st.sampled_from(SuspendMode))
    def suspend(self, name, mode):
        """Stop launching. In two modes the schedule goes on, or begins, to listen."""
        seq = self.change(Suspend(self.schedules[name].schedule_id, mode))
        if not self.listens(name) and mode is not SuspendMode.DROP:
            self.since[name] = seq
        self.modes[name] = mode

    @rule(name=names)
    def resume(self, name):
        """Launch what comes from now on, and what was held."""
        seq = self.change(Resume(self.schedules[name].schedule_id))
        if not self.listens(name):
            self.since[name] = seq
        self.modes[name] = None

    @rule(name=names, trigger=triggers)
    def update(self, name, trigger):
        """Deploy another trigger."""
        seq = self.change(Update(self.schedules[name].schedule_id, ScheduleSpec(trigger, **RULES)))
        self.triggers[name], self.since[name] = trigger, seq

    @rule(hours=st.integers(1, 3))
    def wait(self, hours):
        """Let time pass: timers come due, jobs time out."""
        self.shop.clock.move(f"{hours}h")

    @rule(limit=st.integers(1, 4), crash=st.integers(0, 3))
    def subscribe(self, limit, crash):
        """Read messages; a crash leaves them unread."""
        self.note_published()
        if self.survives(lambda: subscribe(self.shop.catalog, self.shop.world, limit), crash):
            for seq, n, key in self.messages[self.read : self.read + limit]:
                for name in NAMES:
                    leaves = self.triggers[name].leaves
                    fed = [no for no, leaf in enumerate(leaves) if key in leaf.event_keys]
                    if self.listens(name) and self.since[name] < seq:
                        self.expected.update((name, no, seq, n) for no in fed)
                    elif fed and not key.startswith("backlog:"):
                        self.passed[name] += 1
            self.read += len(self.messages[self.read : self.read + limit])

    @rule(limit=st.integers(1, 3), crash=st.integers(0, 4))
    def fire(self, limit, crash):
        """Look at timers."""
        self.survives(lambda: fire_due(self.shop.catalog, self.shop.world, limit), crash)

    @rule(limit=st.integers(1, 3), crash=st.integers(0, 4))
    def check(self, limit, crash):
        """Look at jobs. None of a suspended schedule becomes a run."""
        before = self.launched()
        self.survives(lambda: check_due(self.shop.catalog, self.shop.world, limit), crash)
        suspended = {self.schedules[name].schedule_id for name in NAMES if self.modes[name] is not None}
        assert suspended.isdisjoint(self.launched() - before)

    @rule(limit=st.integers(1, 3))
    def work(self, limit):
        """Read and look without a crash, so that many jobs become runs."""
        self.subscribe(limit=limit, crash=0)
        self.check(limit=limit, crash=0)

    @rule(which=st.integers(0, 9))
    def end_run(self, which):
        """Let one of the runs complete."""
        runs = self.shop.sql("SELECT run_id FROM run WHERE ended_at IS NULL ORDER BY run_id")
        if runs:
            self.shop.end(RunId(str(runs[which % len(runs)][0])))

    @invariant()
    def each_message_is_in_one_job(self):
        """In an open job, in a run, or dropped with a reason: never lost, never twice."""
        found = Counter()
        by_id = {schedule.schedule_id: name for name, schedule in self.schedules.items()}
        for schedule_id, no, seq, n in self.shop.sql(
            "SELECT j.schedule_id, m.trigger_no, m.seq, m.n FROM job_message AS m JOIN job AS j ON j.job_id = m.job_id"
        ):
            found[by_id[schedule_id], no, seq, n] += 1
        for schedule_id, text in self.shop.sql("SELECT schedule_id, triggered_by FROM run"):
            for trigger in json.loads(text)["triggers"]:
                found.update((by_id[schedule_id], trigger["trigger_no"], seq, n) for _, seq, n in trigger["messages"])
        for schedule_id, outcome, text in self.shop.sql("SELECT schedule_id, outcome, detail FROM job_history"):
            assert Outcome(outcome)
            found.update((by_id[schedule_id], no, seq, n) for no, _, seq, n in json.loads(text)["messages"])
        assert found == self.expected

    @invariant()
    def each_message_that_a_schedule_passed_is_counted(self):
        """Because the schedule was suspended or changed, also when a scheduler sees the message after that."""
        rows = self.shop.sql(
            "SELECT s.name, p.messages FROM passed_while_suspended AS p"
            " JOIN schedule AS s ON s.schedule_id = p.schedule_id"
        )
        assert Counter(dict(rows)) == self.passed

    @invariant()
    def the_limit_holds(self):
        """There are never more runs than allowed."""
        ((active,),) = self.shop.sql("SELECT count(*) FROM run WHERE ended_at IS NULL")
        assert active <= LIMIT

    @invariant()
    def a_job_waits_only_for_a_run_that_is_there(self):
        """While all slots are free, so many jobs are due for a check as can start. The others come after their runs."""
        due = [
            at <= self.shop.clock.at.timestamp() * 1000
            for (at,) in self.shop.sql(
                "SELECT j.next_check_at FROM job_waits AS w JOIN job AS j ON j.job_id = w.job_id"
                " WHERE NOT EXISTS (SELECT 1 FROM run WHERE ended_at IS NULL)"
            )
        ]
        assert sum(due) >= min(LIMIT, len(due))

    def listens(self, name):
        """True if messages feed jobs of the schedule."""
        return self.modes[name] is not SuspendMode.DROP

    def launched(self):
        """The schedules of all runs, one for each run."""
        return Counter(schedule_id for (schedule_id,) in self.shop.sql("SELECT schedule_id FROM run"))

    def change(self, change):
        """Change a schedule, and give the tick of it."""

        def block(db):
            seq = db.tick()
            change_schedules(db, self.shop.world, seq, [change])
            return seq

        return self.shop.catalog.write(block)

    def survives(self, step, crash):
        """Run a step that dies at its mark number `crash`, if it gets there; whether it committed."""
        left = [crash]

        def at_mark(mark):
            left[0] -= 1
            if left[0] == 0 and not mark.startswith("apply") and mark != "checker.before_cancel":
                raise Crash

        self.shop.at_mark = at_mark
        try:
            step()
        except Crash:
            return False
        finally:
            self.shop.at_mark = None
        return True

    def note_published(self):
        """Take over what the scheduler itself has published: work left by jobs that were cancelled."""
        known = {(seq, n) for seq, n, _ in self.messages}
        rows = self.shop.sql("SELECT seq, n, event_key FROM message ORDER BY seq, n")
        self.messages += [(seq, n, key) for seq, n, key in rows if (seq, n) not in known]
        self.messages.sort()


@pytest.mark.share("sqlite")
def test_each_message_is_in_exactly_one_job_or_dropped_with_a_reason(shop):
    """The scheduler keeps its promise in histories that no developer would think of, with a crash at any mark."""
    machine = type("Machine", (Histories,), {"shop": shop})
    examples = 150 if shop.catalog.dialect == "sqlite" else 50

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
