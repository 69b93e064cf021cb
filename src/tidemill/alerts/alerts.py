"""Alerts: one for each begin of the state of a rule, until its end, with the notices about it in the same transaction.

Each look takes a tick first, so that looks of several processes come one after the other, and each begin or end is
noted, and sent, once. Terms are those of Prometheus' alert manager: acknowledge, silence, resolve.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.alerts.conditions import MachineState, Violation, check_names, look
from tidemill.alerts.outbox import Notice, put_deliveries
from tidemill.alerts.rules import BadRule, LooksAfter
from tidemill.alerts.specs import AlertSpec
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Position, Topic, read_messages
from tidemill.catalog.named import load_sql
from tidemill.durations import format_duration
from tidemill.epoch import show_time
from tidemill.errors import NotFound
from tidemill.json_specs import read_plain, write_checked, write_plain, write_text
from tidemill.names import CommitSeq, Namespace, qualified
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.alerts.alerts_sql import Sql

SQL: Sql = load_sql(__file__)

NEXT_LOOK: Final = SQL.find_next_look()
"""Finds the time of the next look; none for never."""
KEEP: Final = timedelta(days=90)
"""Resolved alerts are shown for this time."""
_SOON: Final = timedelta(milliseconds=100)
"""The shortest time between two looks that time brings."""
_BATCH: Final = 100
RENEW_EVERY: Final = timedelta(minutes=1)
"""The time between two renewals of an open alert about a machine, by that machine."""
GONE_AFTER: Final = timedelta(minutes=5)
"""A process that has seen no renewal of such an alert for this time, by its own clock, resolves the alert."""


class AlertState(StrEnum):
    """States of an alert."""

    OPEN = "OPEN"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """A person works on it: targets are not notified again."""
    RESOLVED = "RESOLVED"


@dataclass(frozen=True, slots=True)
class Silences:
    """The ends of the silences of single subjects of a rule, by subject; JSON in the catalog."""

    ends: Mapping[str, datetime]

    @classmethod
    def decode(cls, stored: str) -> Silences:
        """Read the silences of a rule."""
        return cls({subject: read_plain(datetime, end) for subject, end in json.loads(stored).items()})

    def encode(self) -> str:
        """Return the text that the catalog keeps."""
        return json.dumps({subject: write_plain(end) for subject, end in self.ends.items()})

    def after(self, now: datetime) -> Silences:
        """Return the silences that hold at `now`."""
        return Silences({subject: end for subject, end in self.ends.items() if end > now})


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A declared alert; `app` is empty for one that a person made."""

    rule_id: str
    namespace: Namespace
    app: str
    name: str
    spec: AlertSpec
    silent_until: datetime | None
    silent_subjects: Silences
    next_look_at: datetime | None
    is_open: bool

    @property
    def qualified_name(self) -> str:
        """The name with its namespace."""
        return qualified(self.namespace, self.name)

    def find_silence(self, subject: str, now: datetime) -> datetime | None:
        """Return the end of the silence about a subject, the later one of rule and subject; None for no silence."""
        ends = (self.silent_until, self.silent_subjects.ends.get(subject))
        return max((end for end in ends if end is not None and end > now), default=None)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; `rule` is the qualified name of its rule."""

    alert_id: str
    rule_id: str
    namespace: Namespace
    rule: str
    subject: str
    state: AlertState
    why: str
    since: datetime
    opened_at: datetime
    notified_at: datetime | None
    acknowledged_by: str | None
    resolved_at: datetime | None


class AlertEvent(NamedTuple):
    """The begin or the end of an alert, for the process that has noted it."""

    event: str
    """`opened` or `resolved`, as in notices."""
    alert: Alert


class _MachineAlert(NamedTuple):
    """An open alert about a machine."""

    alert_id: str
    subject: str
    renewals: int


def put_rule(db: Db, world: World, namespace: Namespace, app: str, name: str, spec: AlertSpec) -> None:
    """Store a rule, or change it: it is looked at at once, and its silence goes on. `BadRule`."""
    write_checked(spec, lambda why: BadRule(name, why))
    db.run(
        SQL.put_rule,
        rule_id=world.new_id("rule"),
        namespace=namespace,
        app=app,
        name=name,
        spec=write_text(spec),
        looks_after=spec.rule.looks_after,
    )


def delete_rule(db: Db, world: World, seq: CommitSeq, rule: AlertRule) -> None:
    """Delete a rule, and resolve its alerts; `seq` is the tick that the caller took first."""
    live = _list_live(db, rule.rule_id)
    for alert in live:
        db.run(SQL.resolve_alert, alert_id=alert.alert_id)
    notices = [
        _notice(rule, alert, "resolved", "the rule was deleted") for alert in live if alert.notified_at is not None
    ]
    put_deliveries(db, world, seq, rule.spec.to, notices)
    db.run(SQL.delete_rule, rule_id=rule.rule_id)


def declare_rules(
    db: Db, world: World, seq: CommitSeq, namespace: Namespace, app: str, specs: Mapping[str, AlertSpec]
) -> None:
    """Bring the rules of an app in line with what it declares. A rule that is as before keeps its alerts.

    `BadRule` for a name that a rule of another app, or of a person, has.
    """
    db.run(SQL.look_at_namespace, namespace=namespace)
    stored = {rule.name: rule for rule in list_of_app(db, namespace, app)}
    for name, rule in stored.items():
        if name not in specs:
            delete_rule(db, world, seq, rule)
    for name, spec in specs.items():
        check_names(db, spec.rule)
        if name in stored and stored[name].spec == spec:
            continue
        taken = db.record(SQL.find_rule, AlertRule, namespace=namespace, name=name)
        if taken is not None and taken.app != app:
            owner = f"app {taken.app}" if taken.app else "a person"
            raise BadRule(name, f"{owner} has a rule of that name in namespace {namespace}; choose another name")
        put_rule(db, world, namespace, app, name, spec)


def list_of_app(db: Db, namespace: Namespace, app: str) -> list[AlertRule]:
    """Return the rules of an app."""
    return db.records(SQL.list_of_app, AlertRule, namespace=namespace, app=app)


def find_rule(db: Db, namespace: Namespace, name: str) -> AlertRule:
    """Return the rule of that name; `NotFound`."""
    rule = db.record(SQL.find_rule, AlertRule, namespace=namespace, name=name)
    if rule is None:
        raise NotFound("alert rule", qualified(namespace, name))
    return rule


def find_rule_of(db: Db, alert: Alert) -> AlertRule:
    """Return the rule of an alert; `NotFound` for a rule that was deleted."""
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=alert.rule_id)
    if rule is None:
        raise NotFound("alert rule", alert.rule, hint="it was deleted, and its alerts are resolved")
    return rule


def find_alert(db: Db, alert_id: str) -> Alert:
    """Return the alert of that id; `NotFound`."""
    alert = db.record(SQL.find_alert, Alert, alert_id=alert_id)
    if alert is None:
        raise NotFound("alert", alert_id)
    return alert


class Watch:
    """Looks at rules: those whose time has come, and after commits those whose state a commit can begin or end.

    A look reads first. Only a begin, an end or a notice takes the catalog's clock, and looks again under it.
    """

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        state: Path | None = None,
        on_event: Callable[[AlertEvent], None] = lambda _: None,
    ) -> None:
        self._catalog = catalog
        self._world = world
        self._state = state
        """The folder whose disk is looked at; None for none."""
        self._on_event = on_event
        """Is called for each begin and each end that this watch has noted, after the commit."""
        self._machine = MachineState(world.spawner.host())
        self._position: Position | None = None
        self._renewed_at: timedelta | None = None
        self._renewals: dict[str, tuple[int, timedelta]] = {}
        """The renewals of each open alert about another machine, and since when that number was seen."""

    def look(self) -> None:
        """Look at what is due; the next look is due at the time that `NEXT_LOOK` finds.

        The first look of a process is at all programs: it does not know what ended before. Cost: look-ups when nothing
        is due and nothing has changed.
        """
        self._machine = MachineState(self._machine.host, self._measure())
        changed, machines, position = self._catalog.read(self._find_changed)
        for rule_id, subjects in changed:
            self._look_at(rule_id, subjects)
        self._position = position  # last: a look that an error cut off is made again
        self._watch_machines(machines)
        while due := self._catalog.read(self._find_due):
            for rule_id, subjects in due:
                self._look_at(rule_id, subjects)

    def _measure(self) -> int | None:
        """Return the free bytes for the state of the project, outside of transactions: a disk may hang."""
        if self._state is None:
            return None
        try:
            return self._world.disk.free_bytes(self._state)
        except OSError:
            return None

    def _watch_machines(self, alerts: Sequence[tuple[str, _MachineAlert]]) -> None:
        """Renew the alerts about this machine, and resolve those that their machine does not renew any more.

        Only while such an alert is open. A stopped machine would never say that its disk has room again.
        """
        now = self._world.clock.monotonic()
        own = [one for _, one in alerts if one.subject == self._machine.host]
        others = [(rule_id, one) for rule_id, one in alerts if one.subject != self._machine.host]
        if own and (self._renewed_at is None or now - self._renewed_at >= RENEW_EVERY):
            self._catalog.write(lambda db: [db.run(SQL.renew_alert, alert_id=one.alert_id) for one in own])
            self._renewed_at = now
        before, self._renewals = self._renewals, {}
        for rule_id, one in others:
            number, since = before.get(one.alert_id, (-1, now))
            self._renewals[one.alert_id] = (one.renewals, since if number == one.renewals else now)
            if number == one.renewals and now - since >= GONE_AFTER:
                self._end(rule_id, one)

    def _end(self, rule_id: str, alert: _MachineAlert) -> None:
        for event in self._catalog.write(lambda db: _resolve_gone(db, self._world, rule_id, alert)):
            self._on_event(event)

    def _find_changed(
        self, db: Db
    ) -> tuple[list[tuple[str, Collection[str]]], list[tuple[str, _MachineAlert]], Position | None]:
        """Return the rules whose state commits have changed, with its subjects, and the position of the next look.

        Also the open alerts about machines, each with its rule.
        """
        rules = db.records(SQL.list_after, AlertRule)
        machines = [
            (rule.rule_id, alert)
            for rule in rules
            if rule.is_open and rule.spec.rule.looks_after is LooksAfter.MACHINE
            for alert in db.records(SQL.list_machines, _MachineAlert, rule_id=rule.rule_id)
        ]
        ended: Collection[str] | None = None
        position = None
        if any(rule.spec.rule.looks_after is LooksAfter.RUNS for rule in rules):
            ended, position = self._read_ends(db)
        live = _group_live(db, rules)
        changed: list[tuple[str, Collection[str]]] = []
        for rule in rules:
            only = ended if rule.spec.rule.looks_after is LooksAfter.RUNS else None
            if only is not None and rule.is_open:
                # A run that found no input announces nothing, and may end the state too.
                only = {*only, *(one.subject for one in live[rule.rule_id])}
            if only is not None and not only:
                continue
            subjects, next_at = _look_before(db, rule, only, self._machine, live[rule.rule_id])
            sooner = next_at is not None and (rule.next_look_at is None or next_at < rule.next_look_at)
            if subjects or sooner:
                changed.append((rule.rule_id, subjects))
        return changed, machines, position

    def _read_ends(self, db: Db) -> tuple[Collection[str] | None, Position]:
        """Return the programs of which a run has ended since the last look; None at the first look."""
        if self._position is None:
            return None, db.record(SQL.find_newest_end, Position, topic=Topic.PROGRAM) or Position(0, 0)
        ended: set[str] = set()
        position, more = self._position, True
        while more:
            found = read_messages(db, Topic.PROGRAM, position, _BATCH)
            ended |= {str(one.payload.get("program")) for one in found if one.event_type == "run_ended"}
            position, more = found[-1].position if found else position, len(found) == _BATCH
        return ended, position

    def _find_due(self, db: Db) -> list[tuple[str, Collection[str]]]:
        """Return rules that are due, with the subjects about which there is something to do."""
        due = db.records(SQL.list_due, AlertRule, limit=_BATCH)
        live = _group_live(db, due)
        found: list[tuple[str, Collection[str]]] = []
        for rule in due:
            own = live[rule.rule_id]
            subjects, _ = _look_before(db, rule, None, self._machine, own)
            found.append((rule.rule_id, subjects | _due_subjects(rule, own, db.now())))
        return found

    def _look_at(self, rule_id: str, subjects: Collection[str]) -> None:
        self._world.mark("alerts.before_look")
        events = self._catalog.write(lambda db: _look_at(db, self._world, rule_id, subjects, self._machine))
        self._world.mark("alerts.looked")
        for event in events:
            self._on_event(event)


def _list_live(db: Db, *rule_ids: str) -> list[Alert]:
    """Return the alerts of rules that are not resolved. Cost: a look-up a rule, in one statement."""
    return db.records(SQL.list_live, Alert, rule_ids=json.dumps(rule_ids)) if rule_ids else []


def _group_live(db: Db, rules: Iterable[AlertRule]) -> Mapping[str, Sequence[Alert]]:
    """Return the alerts of each rule that are not resolved, by id of the rule. One statement for all."""
    live: dict[str, list[Alert]] = {rule.rule_id: [] for rule in rules}
    for alert in _list_live(db, *live):
        live[alert.rule_id].append(alert)
    return live


def _look_before(
    db: Db, rule: AlertRule, only: Collection[str] | None, machine: MachineState, live: Iterable[Alert]
) -> tuple[set[str], datetime | None]:
    """Return the subjects, of all or of `only`, whose state has begun or ended; and when time brings the next look.

    `live` are the alerts of the rule that are not resolved.
    """
    if rule.spec.rule.looks_after is LooksAfter.MACHINE:
        if machine.free is None:
            return set(), None  # a disk that cannot be measured neither begins nor ends an alert
        only = {machine.host}  # other machines look at themselves
    found = look(rule.spec.rule, db, rule.namespace, only, machine)
    violated = {one.subject for one in found.violations}
    known = {one.subject for one in live}
    return violated ^ (known if only is None else known & set(only)), found.next_look_at


def _due_subjects(rule: AlertRule, live: Iterable[Alert], now: datetime) -> set[str]:
    """Return the subjects of the alerts of a rule about which targets are to be notified now."""
    due = (alert.subject for alert in live if (at := _next_notice(rule, alert)) is not None and at <= now)
    return {subject for subject in due if rule.find_silence(subject, now) is None}


def _look_at(db: Db, world: World, rule_id: str, only: Collection[str], machine: MachineState) -> Sequence[AlertEvent]:
    """Look at a rule, and note and return what began and what ended.

    An alert that is not about one of `only` stays as it is.
    """
    seq = db.tick()  # first: looks at a rule come one after the other
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=rule_id)
    if rule is None:
        return ()
    now = db.now()
    found = look(rule.spec.rule, db, rule.namespace, only, machine)
    if rule.spec.rule.looks_after is LooksAfter.MACHINE:
        only = set() if machine.free is None else {machine.host} & set(only)
    violated = {one.subject: one for one in found.violations}
    live = {alert.subject: alert for alert in _list_live(db, rule_id)}
    begun = [one for one in found.violations if one.subject not in live]
    live |= {one.subject: _open(db, world, rule, one, now) for one in begun}
    ended = {subject for subject in live if subject not in violated and subject in only}
    notices: list[Notice] = []
    times = [found.next_look_at]
    for subject, alert in live.items():
        if subject in ended:
            notice = _resolve(db, rule, alert)
        else:
            why = violated[subject].why if subject in violated else alert.why
            notice, next_at = _notify(db, rule, alert, why, now)
            times.append(next_at)
        if notice is not None:
            notices.append(notice)
    put_deliveries(db, world, seq, rule.spec.to, notices)
    next_look_at = min((max(at, now + _SOON) for at in times if at is not None), default=None)
    is_open = len(live) > len(ended)
    if (next_look_at, is_open) != (rule.next_look_at, rule.is_open):
        db.run(SQL.note_look, rule_id=rule_id, next_look_at=next_look_at, is_open=int(is_open))
    db.run(SQL.forget_old_alerts, keep=KEEP)
    opened = (AlertEvent("opened", live[one.subject]) for one in begun)
    return (*opened, *(AlertEvent("resolved", live[subject]) for subject in sorted(ended)))


def _resolve_gone(db: Db, world: World, rule_id: str, seen: _MachineAlert) -> Sequence[AlertEvent]:
    """Resolve and return an alert about a machine that has not renewed the alert.

    No effect if the machine has, or if the alert ended.
    """
    seq = db.tick()
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=rule_id)
    live = {one.alert_id: one for one in _list_live(db, rule_id)}
    if rule is None or seen not in db.records(SQL.list_machines, _MachineAlert, rule_id=rule_id):
        return ()
    alert = live[seen.alert_id]
    db.run(SQL.resolve_alert, alert_id=alert.alert_id)
    if alert.notified_at is not None:
        why = f"no process of `tidemill up` on {alert.subject} has looked for {format_duration(GONE_AFTER)}"
        put_deliveries(db, world, seq, rule.spec.to, [_notice(rule, alert, "resolved", f"{why}; before: {alert.why}")])
    if len(live) == 1:
        db.run(SQL.note_look, rule_id=rule_id, next_look_at=rule.next_look_at, is_open=0)
    return (AlertEvent("resolved", alert),)


def _resolve(db: Db, rule: AlertRule, alert: Alert) -> Notice | None:
    """Note the end of an alert. Targets that know of its begin are notified, also in a silence."""
    db.run(SQL.resolve_alert, alert_id=alert.alert_id)
    return None if alert.notified_at is None else _notice(rule, alert, "resolved", f"no more: {alert.why}")


def _notify(db: Db, rule: AlertRule, alert: Alert, why: str, now: datetime) -> tuple[Notice | None, datetime | None]:
    """Note and return the notice about an open alert that is due; and the time of the next one, None for never."""
    at = _next_notice(rule, alert)
    if at is not None and (silent_until := rule.find_silence(alert.subject, now)) is not None:
        at = max(at, silent_until)
    if at is None or at > now:
        return None, at
    event = "opened" if alert.notified_at is None else "repeated"
    db.run(SQL.note_notified, alert_id=alert.alert_id, why=why)
    return _notice(rule, alert, event, why), None if rule.spec.repeat is None else now + rule.spec.repeat


def _next_notice(rule: AlertRule, alert: Alert) -> datetime | None:
    """Return when targets are notified of an open alert, leaving silence aside; None for never."""
    if alert.notified_at is None:
        # A person that has taken the alert up in a silence knows of it.
        return alert.opened_at if alert.state is AlertState.OPEN else None
    if rule.spec.repeat is None or alert.state is not AlertState.OPEN:
        return None
    return alert.notified_at + rule.spec.repeat


def _open(db: Db, world: World, rule: AlertRule, violation: Violation, now: datetime) -> Alert:
    alert_id = world.new_id("alert")
    db.run(
        SQL.open_alert,
        alert_id=alert_id,
        rule_id=rule.rule_id,
        namespace=rule.namespace,
        rule=rule.qualified_name,
        subject=violation.subject,
        why=violation.why,
        since=violation.since,
    )
    return Alert(
        alert_id,
        rule.rule_id,
        rule.namespace,
        rule.qualified_name,
        violation.subject,
        AlertState.OPEN,
        violation.why,
        violation.since,
        now,
        None,
        None,
        None,
    )


def acknowledge(db: Db, world: World, seq: CommitSeq, alert: Alert, actor: str) -> bool:
    """Note that a person works on an alert, and notify its targets; return whether that is new."""
    if not db.run(SQL.acknowledge_alert, alert_id=alert.alert_id, acknowledged_by=actor):
        return False
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=alert.rule_id)
    if rule is not None and alert.notified_at is not None:
        put_deliveries(db, world, seq, rule.spec.to, [_notice(rule, alert, "acknowledged", f"by {actor}: {alert.why}")])
    return True


def silence(db: Db, rule: AlertRule, subject: str | None, until: datetime | None) -> None:
    """Send nothing about a rule until then, or about one subject of it; None ends the silence.

    An alert that is still open at the end of the silence is sent then. Take a tick before you read `rule`: else a
    silence that another caller adds meanwhile would be lost.
    """
    if subject is None:
        db.run(SQL.silence_rule, rule_id=rule.rule_id, silent_until=until)
        return
    others = {one: end for one, end in rule.silent_subjects.ends.items() if one != subject}
    left = Silences(others if until is None else {**others, subject: until}).after(db.now())
    db.run(SQL.silence_subjects, rule_id=rule.rule_id, silent_subjects=left.encode())


def count_live(db: Db, rules: Iterable[AlertRule]) -> Mapping[str, int]:
    """Return the numbers of alerts that are not resolved, by id of the rule; nothing for rules without any."""
    rule_ids = json.dumps([rule.rule_id for rule in rules])
    return dict(db.records(SQL.count_live, tuple[str, int], rule_ids=rule_ids))


def find_rules(db: Db, found: Iterable[Alert]) -> Mapping[str, AlertRule]:
    """Return the rules of alerts, by id of the rule, without rules that were deleted. Cost: look-ups."""
    rule_ids = json.dumps(sorted({one.rule_id for one in found}))
    return {rule.rule_id: rule for rule in db.records(SQL.find_rules, AlertRule, rule_ids=rule_ids)}


def find_namespaces(db: Db, about: Iterable[str]) -> dict[str, Namespace]:
    """Return the namespaces of alerts by id; nothing for ids of other things. Cost: look-ups."""
    ids = json.dumps(sorted(set(about)))
    return dict(db.records(SQL.name_namespaces, tuple[str, Namespace], alert_ids=ids))


def list_rules(db: Db, after: tuple[str, str], limit: int, app: tuple[Namespace, str] | None = None) -> list[AlertRule]:
    """Return rules (of an app) by name, behind `after`."""
    if app is not None:
        return db.records(SQL.list_rules_of_app, AlertRule, namespace=app[0], app=app[1], after=after[1], limit=limit)
    return db.records(SQL.list_rules, AlertRule, after_namespace=after[0], after_name=after[1], limit=limit)


def list_alerts(
    db: Db, after: str, limit: int, *, resolved: bool, namespace: str | None = None, rule_id: str | None = None
) -> list[Alert]:
    """Return alerts (of a rule, else of a namespace), the newest first, behind `after`.

    With `resolved` those that have ended too. Cost: the page; of the open alerts of a rule, these alerts.
    """
    if rule_id is not None:
        of_rule = SQL.list_of_rule if resolved else SQL.list_live_of_rule
        return db.records(of_rule, Alert, rule_id=rule_id, after=after, limit=limit)
    if namespace is not None:
        within = SQL.list_newest_of if resolved else SQL.list_newest_live_of
        return db.records(within, Alert, namespace=namespace, after=after, limit=limit)
    statement = SQL.list_newest if resolved else SQL.list_newest_live
    return db.records(statement, Alert, after=after, limit=limit)


def _notice(rule: AlertRule, alert: Alert, event: str, why: str) -> Notice:
    data = {
        "alert_id": alert.alert_id,
        "rule": rule.qualified_name,
        "subject": alert.subject,
        "event": event,
        "why": why,
        "since": show_time(alert.since),
        "opened_at": show_time(alert.opened_at),
        "description": rule.spec.description,
    }
    return Notice(alert.alert_id, event, f"tidemill.alert.{event}", alert.subject, data)
