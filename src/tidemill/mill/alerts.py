"""Alerts, as `Mill` offers them: what is wrong for too long, the rules about it, and the deliveries to targets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from tidemill.alerts import alerts, outbox
from tidemill.alerts.alerts import Alert, AlertRule, AlertState
from tidemill.alerts.conditions import SubjectKind, check_names, find_kind, find_subject, list_references
from tidemill.alerts.outbox import DeliveryState, StoredDelivery
from tidemill.alerts.rules import BadRule, Rule
from tidemill.alerts.specs import AlertSpec
from tidemill.alerts.targets import Target, is_harmless
from tidemill.catalog.db import Db
from tidemill.catalog.named import LAST_TEXT
from tidemill.durations import format_duration, parse_duration
from tidemill.json_specs import read_plain, read_text, write_plain
from tidemill.mill.access import ALL_NAMESPACES, Forbidden
from tidemill.mill.apps import find_app_named
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, read_key, read_name, write_key
from tidemill.mill.project import Noun, fields_of
from tidemill.names import NamedThing, check_name, qualified

T = TypeVar("T")

_ALERT_ID: Final = re.compile("alert_[0-9A-Z]{26}")


@dataclass(frozen=True, slots=True)
class AlertView:
    """An alert: what is wrong (`why`), since when, and whether targets were notified or a person works on it."""

    alert_id: str
    rule: str
    subject: str
    subject_kind: SubjectKind | None
    """None if the rule was deleted, or is another one now."""
    state: AlertState
    why: str
    since: datetime
    opened_at: datetime
    notified_at: datetime | None
    """When targets were last notified. None: there was a silence from the begin on."""
    acknowledged_by: str | None
    resolved_at: datetime | None
    silent_until: datetime | None
    """The end of the silence of its subject; None for no silence. Its rule may be silent too."""


@dataclass(frozen=True, slots=True)
class AlertRuleView:
    """A rule: its JSON, its targets, and the next look that time alone brings. `app` is empty for a person's rule."""

    name: str
    app: str
    rule: Mapping[str, object]
    to: tuple[str, ...]
    repeat: timedelta | None
    description: str
    silent_until: datetime | None
    """The end of the silence of the rule; None if no silence holds."""
    silent_subjects: Mapping[str, datetime]
    """The ends of the silences of single subjects that hold."""
    next_look_at: datetime | None
    open_alerts: int
    """The alerts that are not resolved, with those that a person has acknowledged."""


@dataclass(frozen=True, slots=True)
class AlertSilence:
    """The silence of a rule, or of one subject of the rule; `silent_until` is None for a silence that was ended.

    `changed` is false if no silence was to be ended.
    """

    rule: str
    subject: str | None
    silent_until: datetime | None
    changed: bool


@dataclass(frozen=True, slots=True)
class UpdatedAlertRule(AlertRuleView):
    """A rule after an update; `changed` is false if the rule was so before."""

    changed: bool


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery to a target, about an alert: `event` is `opened`, `repeated`, `acknowledged` or `resolved`."""

    delivery_id: str
    target: str
    about: str
    event: str
    state: DeliveryState
    attempt: int
    error: str | None
    made_at: datetime
    next_try_at: datetime | None
    """None also for one that waits for an earlier one of its target."""
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class AcknowledgedAlert:
    """An alert that a person has taken up; `changed` is false if it was so before, or has ended."""

    alert_id: str
    state: AlertState
    changed: bool


@dataclass(frozen=True, slots=True)
class RetriedDelivery:
    """A delivery that is tried once more; `changed` is false if the delivery was not dead."""

    delivery_id: str
    changed: bool


@dataclass(frozen=True, slots=True)
class DeletedAlertRule:
    """A rule that was deleted."""

    name: str


class Alerts(Noun):
    """Operations on alerts."""

    noun = "alert"

    @operation(Right.READ)
    def list(
        self, *, rule: str | None = None, resolved: bool = False, limit: int = PAGE, after: str = ""
    ) -> Page[AlertView]:
        """List alerts (of a rule), the newest first; with `resolved` those that have ended too, for 90 days.

        `NotFound` for a rule that there is not.
        """
        behind = read_name(after) or LAST_TEXT

        def find_rule_id(db: Db) -> str | None:
            if rule is None:
                return None
            namespace, (local,) = self._project.split("alert rule", rule, 1)
            return alerts.find_rule(db, namespace, local).rule_id

        def block(db: Db) -> Page[AlertView]:
            rule_id = find_rule_id(db)
            rows = self._rows(
                lambda place, most: alerts.list_alerts(
                    db, place, most, resolved=resolved, namespace=self._project.access.only, rule_id=rule_id
                ),
                behind,
                limit,
                lambda row: row.alert_id,
            )
            return cut(rows, limit, lambda row: row.alert_id, _viewer(db, rows))

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, alert_id: str) -> AlertView:
        """Show an alert. `NotFound`."""

        def block(db: Db) -> AlertView:
            found = self._alert(db, alert_id)
            return _viewer(db, [found])(found)

        return self._catalog.read(block)

    @operation(Right.READ)
    def rules(self, *, app: str | None = None, limit: int = PAGE, after: str = "") -> Page[AlertRuleView]:
        """List the rules of alerts (that an app declares) by name. `NotFound` for an app that there is not."""
        place = read_key(after, ("", ""))

        def block(db: Db) -> Page[AlertRuleView]:
            of_app = find_app_named(self._project, db, app)
            rows = self._rows(
                lambda place, most: alerts.list_rules(db, place, most, of_app),
                place,
                limit,
                lambda row: (row.namespace, row.name),
                lambda rows: [row.namespace for row in rows],
                by_namespace=True,
            )
            return cut(rows, limit, lambda row: write_key(row.namespace, row.name), _rule_viewer(db, rows))

        return self._catalog.read(block)

    @operation(Right.READ)
    def deliveries(
        self, *, alert: str | None = None, state: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[DeliveryView]:
        """List what was sent to targets, and what waits or was given up: the newest first, of one `alert` or of all.

        `state` is `waiting`, `sent` or `dead`; `BadFilter`.
        """
        behind = read_name(after) or LAST_TEXT
        wanted = None
        if state is not None:
            wanted = check_filter("state", state, DeliveryState)

        def names_of(db: Db, rows: Sequence[StoredDelivery]) -> Sequence[str | None]:
            found = alerts.find_namespaces(db, (row.about for row in rows))
            return [found.get(row.about) for row in rows]

        def block(db: Db) -> Page[DeliveryView]:
            rows = self._rows(
                lambda place, most: outbox.list_deliveries(db, place, most, about=alert, state=wanted),
                behind,
                limit,
                lambda row: row.delivery_id,
                lambda rows: names_of(db, rows),
            )
            return cut(rows, limit, lambda row: row.delivery_id, view_delivery)

        return self._catalog.read(block)

    @operation(Right.DEPLOY, in_block=True)
    def create(
        self,
        name: str,
        rule: object,
        *,
        to: Sequence[object] = (),
        repeat: str | timedelta | None = None,
        description: str = "",
    ) -> AlertRuleView:
        """Create a rule that no app declares (`app.alert`).

        A caller of one namespace makes rules about its things, and targets of `WebHook` without a secret alone.
        `rule` and the targets `to` are values (`tm.RunFailed("shop.load")`, `tm.WebHook("https://…")`), or their JSON.
        `BadRule`, `BadTarget`, `BadJson`, and `NotFound` for what the rule is about.
        """
        namespace, (local,) = self._project.split("alert rule", name, 1)
        check_name("alert rule", local)
        again = parse_duration(repeat) if isinstance(repeat, str) else repeat
        targets = tuple(_read(Target, one) for one in to)
        spec = AlertSpec(_read(Rule, rule), targets, again, description)
        self._project.check_references(list_named(spec.rule, spec.to))
        note = self._note("create", qualified(namespace, local)).between(None, _record_of(spec))

        def block(db: Db) -> AlertRuleView:
            db.tick()
            check_names(db, spec.rule)
            if any(row.name == local for row in alerts.list_rules(db, (namespace, local[:-1]), 1)):
                raise BadRule(local, f"there is a rule of that name in namespace {namespace}; delete it first")
            alerts.put_rule(db, self._world, namespace, "", local, spec)
            note.write(db)
            return _view_rule(db, alerts.find_rule(db, namespace, local))

        return self._catalog.write(block)

    @operation(Right.DEPLOY, in_block=True)
    def update(
        self,
        name: str,
        *,
        rule: object = None,
        to: Sequence[object] | None = None,
        repeat: str | timedelta | None = None,
        description: str | None = None,
    ) -> UpdatedAlertRule:
        """Change what is given of a rule that a person made; the rest stays, as do its silence and its alerts.

        `rule` and `to` are as for `create`. An empty `to` leaves no target, and a `repeat` of `0s` ends repetitions.
        The rule is looked at at once: an alert whose state the changed rule does not have is resolved. A caller of one
        namespace may name what it may name in `create`, and changes only rules that name nothing else. `NotFound`;
        `Forbidden`; `BadRule` for a rule of an app.
        """
        namespace, (local,) = self._project.split("alert rule", name, 1)
        changes: dict[str, Any] = {}
        if rule is not None:
            changes["rule"] = _read(Rule, rule)
        if to is not None:
            changes["to"] = tuple(_read(Target, one) for one in to)
        if repeat is not None:
            changes["repeat"] = (parse_duration(repeat) if isinstance(repeat, str) else repeat) or None
        if description is not None:
            changes["description"] = description

        def block(db: Db) -> UpdatedAlertRule:
            db.tick()
            stored = _of_a_person(alerts.find_rule(db, namespace, local))
            spec = replace(stored.spec, **changes)
            self._check_named(stored.spec, spec)
            if spec != stored.spec:
                check_names(db, spec.rule)
                alerts.put_rule(db, self._world, namespace, "", local, spec)
                before, after = ({one: _record_of(of)[one] for one in changes} for of in (stored.spec, spec))
                self._note("update", stored.qualified_name).between(before, after).write(db)
            found = _view_rule(db, alerts.find_rule(db, namespace, local))
            return UpdatedAlertRule(**fields_of(found), changed=spec != stored.spec)

        return self._catalog.write(block)

    def _check_named(self, stored: AlertSpec, spec: AlertSpec) -> None:
        """Raise `NotFound` or `Forbidden` if a rule names, before or after a change, what the caller may not name.

        The error about the stored rule is `Forbidden`, which does not name the thing.
        """
        access = self._project.access
        if not all(access.sees(one.namespace) for one in list_named(stored.rule, stored.to)):
            raise Forbidden(access.right, ALL_NAMESPACES)
        self._project.check_references(list_named(spec.rule, spec.to))

    @operation(Right.DEPLOY, in_block=True)
    def delete(self, name: str) -> DeletedAlertRule:
        """Delete a rule that a person made, and resolve its alerts. `NotFound`; `BadRule` for a rule of an app."""
        namespace, (local,) = self._project.split("alert rule", name, 1)

        def block(db: Db) -> DeletedAlertRule:
            seq = db.tick()
            rule = _of_a_person(alerts.find_rule(db, namespace, local))
            alerts.delete_rule(db, self._world, seq, rule)
            self._note("delete", rule.qualified_name).between(_record_of(rule.spec), None).write(db)
            return DeletedAlertRule(rule.qualified_name)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def acknowledge(self, alert_id: str) -> AcknowledgedAlert:
        """Say that you work on an alert. Its targets are notified of that, and not again before its end. `NotFound`."""

        def block(db: Db) -> AcknowledgedAlert:
            seq = db.tick()
            alert = self._alert(db, alert_id)
            changed = alerts.acknowledge(db, self._world, seq, alert, self._project.actor)
            state = self._alert(db, alert_id).state
            if changed:
                note = self._note("acknowledge", alert_id, rule=alert.rule)
                note.between({"state": alert.state}, {"state": state}).write(db)
            return AcknowledgedAlert(alert_id, state, changed)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def silence(
        self, name: str, *, subject: str | None = None, duration: str | timedelta | None = None
    ) -> AlertSilence:
        """Send nothing about a rule for a `duration`; without one, end its silence. `NotFound`.

        With a `subject`, such as a program, the silence is about that subject alone. The id of an alert as `name`
        stands for the rule and the subject of the alert. Alerts open and end as before. What is open at the end of the
        silence is sent then.
        """
        lasts = None if duration is None else parse_duration(duration)

        def block(db: Db) -> AlertSilence:
            db.tick()
            rule, about = self._find_silenced(db, name, subject)
            view = _view_rule(db, rule)
            until = None if lasts is None else db.now() + lasts
            was = view.silent_until if about is None else view.silent_subjects.get(about)
            if until != was:
                alerts.silence(db, rule, about, until)
                before, after = ({"silent_until": one and one.isoformat()} for one in (was, until))
                detail = {} if about is None else {"about": about}
                self._note("silence", rule.qualified_name, **detail).between(before, after).write(db)
            return AlertSilence(rule.qualified_name, about, until, changed=until != was)

        return self._catalog.write(block)

    def _find_silenced(self, db: Db, name: str, subject: str | None) -> tuple[AlertRule, str | None]:
        """Return the rule, and the subject if there is one, by the name of a rule or the id of an alert."""
        if _ALERT_ID.fullmatch(name):
            alert = self._alert(db, name)
            if subject is not None:
                raise BadRule(alert.rule, f"alert {name} is about {alert.subject}; name the rule for another subject")
            return alerts.find_rule_of(db, alert), alert.subject
        namespace, (local,) = self._project.split("alert rule", name, 1)
        rule = alerts.find_rule(db, namespace, local)
        return rule, None if subject is None else find_subject(db, rule.spec.rule, namespace, subject)

    @operation(Right.OPERATE, in_block=True)
    def retry(self, delivery_id: str) -> RetriedDelivery:
        """Try a dead delivery once more, as the next of its target. `NotFound`.

        It is dead again if the try fails. Receivers may get it after later deliveries.
        """

        def block(db: Db) -> RetriedDelivery:
            db.tick()
            if self._project.access.only is not None:
                about = outbox.find_about(db, delivery_id) or ""
                self._project.check(alerts.find_namespaces(db, [about]).get(about), "delivery", delivery_id)
            changed = outbox.retry(db, delivery_id)
            if changed:
                note = self._note("retry", delivery_id)
                note.between({"state": DeliveryState.DEAD}, {"state": DeliveryState.WAITING}).write(db)
            return RetriedDelivery(delivery_id, changed)

        return self._catalog.write(block)

    def _alert(self, db: Db, alert_id: str) -> Alert:
        alert = alerts.find_alert(db, alert_id)
        self._project.check(alert.namespace, "alert", alert_id)
        return alert


def _read(kind: type[T], given: object) -> T:
    return given if isinstance(given, kind) else read_plain(kind, given)


def list_named(rule: Rule, to: Iterable[Target]) -> Sequence[NamedThing]:
    """Return the things that a rule is about, and those of its targets that belong to no namespace."""
    beyond = (one for one in to if not is_harmless(one))
    return [*list_references(rule), *(NamedThing("target", str(one), None) for one in beyond)]


def _of_a_person(rule: AlertRule) -> AlertRule:
    """Return a rule that a person made; `BadRule` for a rule of an app."""
    if rule.app:
        raise BadRule(rule.name, f"app {rule.app} declares it; change the app, and deploy")
    return rule


def _record_of(spec: AlertSpec) -> Mapping[str, object]:
    """Return what the audit log has of a rule. Of a target that is its name: the path of an address may be a secret."""
    return {
        "rule": write_plain(spec.rule),
        "to": [str(one) for one in spec.to],
        "repeat": None if spec.repeat is None else format_duration(spec.repeat),
        "description": spec.description,
    }


def _viewer(db: Db, rows: Sequence[Alert]) -> Callable[[Alert], AlertView]:
    """Return a function that views each of these alerts, with what their rules say. Cost: look-ups of the rules."""
    rules, now = alerts.find_rules(db, rows), db.now()

    def view(row: Alert) -> AlertView:
        rule = rules.get(row.rule_id)
        own = {name: getattr(row, name) for name in AlertView.__dataclass_fields__ if hasattr(row, name)}
        return AlertView(
            **own,
            subject_kind=None if rule is None else find_kind(rule.spec.rule, row.subject),
            silent_until=None if rule is None else rule.silent_subjects.after(now).ends.get(row.subject),
        )

    return view


def _view_rule(db: Db, row: AlertRule) -> AlertRuleView:
    return _rule_viewer(db, [row])(row)


def _rule_viewer(db: Db, rows: Sequence[AlertRule]) -> Callable[[AlertRule], AlertRuleView]:
    """Return a function that views each of these rules, with the silences that hold now. Cost: the open alerts."""
    now, live = db.now(), alerts.count_live(db, rows)
    return lambda row: AlertRuleView(
        row.qualified_name,
        qualified(row.namespace, row.app) if row.app else "",
        write_plain(row.spec.rule),
        tuple(map(str, row.spec.to)),
        row.spec.repeat,
        row.spec.description,
        row.silent_until if row.silent_until is not None and row.silent_until > now else None,
        row.silent_subjects.after(now).ends,
        row.next_look_at,
        live.get(row.rule_id, 0),
    )


def view_delivery(row: StoredDelivery) -> DeliveryView:
    """Return a delivery as lists show it."""
    values = {name: getattr(row, name) for name in DeliveryView.__dataclass_fields__}
    return DeliveryView(**values | {"target": str(read_text(Target, row.target))})
