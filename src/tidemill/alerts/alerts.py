"""Alerts: one for each begin of the state of a rule, until its end, with the notices about it in the same transaction.

Each look takes a tick first, so that looks of several processes come one after the other, and each begin or end is
noted, and sent, once. Terms are those of Prometheus' alert manager: acknowledge, silence, resolve.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidemill.alerts.conditions import Violation, check_names, look
from tidemill.alerts.outbox import Notice, put_deliveries
from tidemill.alerts.rules import BadRule, LooksAfter
from tidemill.alerts.specs import AlertSpec
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Position, Topic, read_messages
from tidemill.catalog.named import load_sql
from tidemill.epoch import show_time
from tidemill.errors import NotFound
from tidemill.json_specs import write_checked, write_text
from tidemill.names import CommitSeq, Namespace, qualified
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.alerts.alerts_sql import Sql

SQL: Sql = load_sql(__file__)

KEEP: Final = timedelta(days=90)
"""Resolved alerts are shown for this time."""
_LOOK_AGAIN: Final = timedelta(minutes=1)
"""The time between two looks at the end of a state that is open."""
_BATCH: Final = 100


class AlertState(StrEnum):
    """States of an alert."""

    OPEN = "OPEN"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """A person works on it: targets are not notices again."""
    RESOLVED = "RESOLVED"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A declared alert; `app` is empty for one that a person made."""

    rule_id: str
    namespace: Namespace
    app: str
    name: str
    spec: AlertSpec
    silent_until: datetime | None
    next_look_at: datetime | None

    @property
    def qualified_name(self) -> str:
        """The name with its namespace."""
        return qualified(self.namespace, self.name)


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
    live = db.records(SQL.list_live, Alert, rule_id=rule.rule_id)
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
    db.run(SQL.look_at_app, namespace=namespace, app=app)
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
        raise NotFound("alert rule", qualified(namespace, name), hint="`tidemill alert rules` lists them all")
    return rule


def find_alert(db: Db, alert_id: str) -> Alert:
    """Return the alert of that id; `NotFound`."""
    alert = db.record(SQL.find_alert, Alert, alert_id=alert_id)
    if alert is None:
        raise NotFound("alert", alert_id, hint="`tidemill alert list --all` lists them all")
    return alert


class Watch:
    """Looks at rules: those whose time has come, and after each end of a run those that the end could change."""

    def __init__(self, catalog: Catalog, world: World) -> None:
        self._catalog = catalog
        self._world = world
        self._position: Position | None = None

    def look(self) -> datetime | None:
        """Look at what is due, and return the time of the next look; None for never.

        The first look of a process is at all rules about runs: it does not know what ended before. Cost: look-ups when
        nothing is due and no run has ended.
        """
        after = self._catalog.read(lambda db: db.records(SQL.list_after, tuple[LooksAfter, str]))
        programs = self._read_ends() if after else ()
        for what, rule_id in after:
            if what is LooksAfter.RUNS and (programs is None or programs):
                self._look_at(rule_id, programs)
            elif what is LooksAfter.COMMITS and self._catalog.read(lambda db: _has_changed(db, rule_id)):  # noqa: B023
                self._look_at(rule_id, None)
        while due := self._catalog.read(lambda db: db.records(SQL.list_due, str, limit=_BATCH)):
            for rule_id in due:
                self._look_at(rule_id, None)
        return self._catalog.read(lambda db: db.value(SQL.find_next_look, datetime))

    def _read_ends(self) -> Collection[str] | None:
        """Return the programs of which a run has ended since the last look; None at the first look."""

        def block(db: Db) -> tuple[Collection[str] | None, Position | None]:
            if self._position is None:
                newest = db.record(SQL.find_newest_end, Position, topic=Topic.PROGRAM)
                return None, newest or Position(0, 0)
            ended: set[str] = set()
            position, more = self._position, True
            while more:
                found = read_messages(db, Topic.PROGRAM, position, _BATCH)
                ended |= {str(one.payload.get("program")) for one in found if one.event_type == "run_ended"}
                position, more = found[-1].position if found else position, len(found) == _BATCH
            return ended, position

        programs, self._position = self._catalog.read(block)
        return programs

    def _look_at(self, rule_id: str, programs: Collection[str] | None) -> None:
        self._world.mark("alerts.before_look")
        self._catalog.write(lambda db: _look_at(db, self._world, rule_id, programs))
        self._world.mark("alerts.looked")


def _has_changed(db: Db, rule_id: str) -> bool:
    """Tell whether a state has begun or ended, without a write: commits are many."""
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=rule_id)
    if rule is None:
        return False
    found = look(rule.spec.rule, db, rule.namespace, None)
    live = db.records(SQL.list_live, Alert, rule_id=rule_id)
    return {one.subject for one in found.violations} != {one.subject for one in live}


def _look_at(db: Db, world: World, rule_id: str, programs: Collection[str] | None) -> None:
    """Look at a rule, and note what began and what ended."""
    seq = db.tick()  # first: looks at a rule come one after the other
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=rule_id)
    if rule is None:
        return
    now = db.now()
    silent = rule.silent_until is not None and rule.silent_until > now
    found = look(rule.spec.rule, db, rule.namespace, programs)
    live = {alert.subject: alert for alert in db.records(SQL.list_live, Alert, rule_id=rule_id)}
    notices: list[Notice] = []
    for violation in found.violations:
        alert = live.pop(violation.subject, None)
        event = "repeated" if alert is not None and alert.notified_at is not None else "opened"
        if alert is None:
            alert = _open(db, world, rule, violation, now)
        if not silent and _is_due(rule, alert, now):
            db.run(SQL.note_notified, alert_id=alert.alert_id, why=violation.why)
            notices.append(_notice(rule, alert, event, violation.why))
    open_at_end = bool(found.violations)
    for alert in live.values():
        # A program that is there no more has no state, and is not looked at by its name.
        if found.looked is not None and programs is not None and alert.subject not in found.looked:
            open_at_end = True
            continue
        db.run(SQL.resolve_alert, alert_id=alert.alert_id)
        if alert.notified_at is not None:
            notices.append(_notice(rule, alert, "resolved", f"no more: {alert.why}"))
    put_deliveries(db, world, seq, rule.spec.to, notices)
    again = [now + _LOOK_AGAIN] if open_at_end else []
    if rule.silent_until is not None and silent and open_at_end:
        again.append(rule.silent_until)
    next_look_at = min([*again, *([] if found.next_look_at is None else [found.next_look_at])], default=None)
    if next_look_at != rule.next_look_at:
        db.run(SQL.note_look, rule_id=rule_id, next_look_at=next_look_at)
    db.run(SQL.forget_old_alerts, keep=KEEP)


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


def _is_due(rule: AlertRule, alert: Alert, now: datetime) -> bool:
    if alert.notified_at is None:
        return True
    repeat = rule.spec.repeat
    return repeat is not None and alert.state is AlertState.OPEN and alert.notified_at + repeat <= now


def acknowledge(db: Db, world: World, seq: CommitSeq, alert: Alert, actor: str) -> bool:
    """Note that a person works on an alert, and notify its targets; return whether that is new."""
    if not db.run(SQL.acknowledge_alert, alert_id=alert.alert_id, acknowledged_by=actor):
        return False
    rule = db.record(SQL.find_rule_by_id, AlertRule, rule_id=alert.rule_id)
    if rule is not None and alert.notified_at is not None:
        put_deliveries(db, world, seq, rule.spec.to, [_notice(rule, alert, "acknowledged", f"by {actor}: {alert.why}")])
    return True


def silence(db: Db, rule: AlertRule, until: datetime | None) -> None:
    """Send nothing about a rule until then; None ends a silence. What is open at its end is sent then."""
    db.run(SQL.silence_rule, rule_id=rule.rule_id, silent_until=until)


def list_rules(db: Db, after: tuple[str, str], limit: int) -> list[AlertRule]:
    """Return rules by name, behind `after`."""
    return db.records(SQL.list_rules, AlertRule, after_namespace=after[0], after_name=after[1], limit=limit)


def list_alerts(db: Db, after: str, limit: int, *, resolved: bool) -> list[Alert]:
    """Return alerts, the newest first, behind `after`; with `resolved` those that have ended too."""
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
