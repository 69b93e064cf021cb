"""The page of alert rules: what each watches, their targets and silences, and forms to make, change and delete one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.alerts.rule_sentences import describe_rule
from tidemill.alerts.rules import Rule
from tidemill.alerts.targets import Target
from tidemill.durations import format_duration
from tidemill.epoch import show_time
from tidemill.errors import TidemillError, UserError
from tidemill.json_specs import read_plain, write_plain
from tidemill.mill.alerts import AlertRuleView, list_named
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.server.pages.columns import Column
from tidemill.server.pages.data_view import Preview, body_of, command_of, number_of, offered, query
from tidemill.server.pages.lists import NOTHING_FITS, Filter
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, Field, Form, allowed, may, show_page

_RULES: Final = (
    Column("name", "Rule", "name"),
    Column("app", "App", "text", "/apps/{app}"),
    Column("says", "Opens an alert when", "long"),
    Column("to", "Targets", "long"),
    Column("silent_until", "Silent until", "time"),
    Column("silent", "Silent subjects", "long"),
    Column("next_look_at", "Next look", "time"),
)
_PAGE: Final = 50
_MAKE: Final = Action("", "", "", "", Right.DEPLOY)
"""The action that a caller must be allowed to do, to see the forms."""
_PROGRAM: Final = Field("program", "Program", "shop.load")
_DATASET: Final = Field("dataset", "Data set", "orders")
_LONGER: Final = Field("longer_than", "For longer than", "2h")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of rule: the words that choose it, and the fields of its form."""

    words: str
    fields: tuple[Field, ...]


_KINDS: Final[Mapping[str, _Kind]] = {
    "run_failed": _Kind(
        "runs fail",
        (Field("program", "Program, or nothing for all", "shop.load"), Field("times", "Runs one after the other", "1")),
    ),
    "run_too_long": _Kind("a run takes too long", (_PROGRAM, _LONGER)),
    "run_slow": _Kind("a run is slower than usual", (_PROGRAM, Field("factor", "Times the usual duration", "3"))),
    "backfill_stopped": _Kind("a backfill stops", (Field("program", "Program, or nothing for all", "shop.load"),)),
    "job_waits": _Kind("a job waits too long", (Field("schedule", "Schedule", "shop.nightly"), _LONGER)),
    "late": _Kind("an expected arrival is late", (_DATASET, Field("by", "By more than", "30m"))),
    "nothing_arrived": _Kind("nothing arrives", (_DATASET, _LONGER)),
    "quarantined": _Kind(
        "files are in quarantine", (Field("inbox", "Inbox", "raw"), Field("files", "So many files or more", "1"))
    ),
    "watermark_held": _Kind("a watermark does not move", (Field("fileset", "File set", "orders"), _LONGER)),
    "partition_misdated": _Kind(
        "a partition has no time, or one too far ahead", (Field("fileset", "File set", "orders"),)
    ),
    "consumer_lag": _Kind(
        "partitions wait for a consumer",
        (
            _DATASET,
            Field("consumer", "Consumer or program", "shop.load"),
            Field("partitions", "So many partitions, or", "100"),
            _LONGER,
        ),
    ),
    "transaction_too_long": _Kind("a transaction stays open", (_LONGER,)),
    "scheduler_behind": _Kind("the scheduler is behind", (Field("by", "By more than", "1m"),)),
    "disk_low": _Kind("a disk is nearly full", (Field("free", "Less free than", "10 GB"),)),
}
"""Kinds of rules by their `type`, in the order of the page."""
_NUMBERS: Final = {"times": int, "files": int, "partitions": int, "factor": float}


class _BadTargetText(UserError):
    """A text that names no target."""

    code = "bad_target_text"

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"{text!r} is no target of this form",
            "write https://… for a web hook, env:NAME or file:PATH for the address of a Slack hook; `tidemill alert "
            "create` takes mail and commands too",
            before=": ",
        )


def show_rules(request: Request, after: str = "", app: str = "") -> HTMLResponse:
    """Return the page of alert rules, with a form and a preview as the URL asks."""
    mill: Mill = request.state.mill
    page = mill.alerts.rules(app=app or None, limit=_PAGE, after=after)
    place = {name: value for name, value in (("app", app), ("after", after)) if value}
    asked = request.query_params
    changed = next((one for one in page if one.name == asked.get("change")), None)
    makes = may(request, _MAKE)
    return show_page(
        request,
        "alert_rules.html",
        title="Alert rules",
        rows=[_row(request, one, place, makes=makes) for one in page],
        columns=_RULES,
        filters=[(Filter("app", "App"), app)],
        filtered=bool(place),
        nothing=NOTHING_FITS,
        next=query(app=app, after=page.next) if page.next else None,
        preview=_preview(request, changed),
        kinds=[(one.words, f"{query(new=kind)}#form", asked.get("new") == kind) for kind, one in _KINDS.items()]
        if makes
        else (),
        form=_form(asked, changed) if makes else None,
        form_title=f"Change {changed.name}" if changed else "",
        command=command_of("alert", "rules", **place),
    )


def _row(request: Request, rule: AlertRuleView, place: Mapping[str, str], *, makes: bool) -> Mapping[str, Any]:
    # The form is filled from the rules of the page, so the link leads to the same part of the list.
    change = f"{query(**place, change=rule.name)}#form" if makes and not rule.app else None
    says = describe_rule(read_plain(Rule, rule.rule))
    silent = ", ".join(f"{subject} until {show_time(end)}" for subject, end in sorted(rule.silent_subjects.items()))
    actions = allowed(request, _actions(rule))
    return {**plain(rule), "says": says, "silent": silent, "change": change, "actions": actions}


def _actions(rule: AlertRuleView) -> list[Action]:
    path = link("/v1/alerts", rule.name)
    if rule.silent_until is not None:
        ask = f"This ends the silence of {rule.name}. What is open is sent now."
        found = [Action("End the silence", f"{path}:silence", ask, "the silence has ended")]
    else:
        found = [silence(rule.name)]
    for subject in sorted(rule.silent_subjects):
        ask = f"This ends the silence of {rule.name} about {subject}. If its alert is open, it is sent now."
        body = json.dumps({"subject": subject})
        label = f"End the silence about {subject}"
        found.append(Action(label, f"{path}:silence", ask, "the silence has ended", body=body))
    if not rule.app:
        silences = len(rule.silent_subjects) + (rule.silent_until is not None)
        ends = f"It resolves {number_of(rule.open_alerts, 'alert')} and ends {number_of(silences, 'silence')}."
        told = f" It notifies {number_of(len(rule.to), 'target')}." if rule.to and rule.open_alerts else ""
        ask = f"This deletes {rule.name}. {ends}{told}"
        found.append(Action("Delete", path, ask, "the rule is deleted", Right.DEPLOY, "DELETE", danger=True))
    return found


def silence(rule: str, label: str = "Silence for 1 h") -> Action:
    """Return the action that silences a rule for an hour."""
    ask = f"This sends nothing about {rule} for an hour. Its alerts open and end as before."
    path = f"{link('/v1/alerts', rule)}:silence"
    return Action(label, path, ask, "the rule is silent", body=json.dumps({"duration": "1h"}))


def _form(asked: Mapping[str, str], changed: AlertRuleView | None) -> Form | None:
    """Return the form of the kind that the URL names, or of the rule that is to be changed."""
    kind = asked.get("new", "") or (str(changed.rule["type"]) if changed else "")
    if kind not in _KINDS:
        return None
    stored = write_plain(read_plain(Rule, changed.rule)) if changed else {}

    def filled(one: Field) -> Field:
        given = asked.get(one.name)
        return Field(one.name, one.label, one.hint, str(stored.get(one.name, "")) if given is None else given)

    common = (
        Field("to", "Notify (optional)", "https://ops.example.com/hook"),
        Field("repeat", "Again every", "1h"),
        Field("description", "Text for the people", "call the desk"),
    )
    if changed is None:
        fields = (Field("name", "Name of the rule", "load_failed", required=True), *_KINDS[kind].fields, *common)
        return Form("What would it do?", tuple(map(filled, fields)), ask="create", kept=(("new", kind),))
    stored |= {
        "repeat": format_duration(changed.repeat) if changed.repeat else "",
        "description": changed.description,
    }
    keep = Field("to", "Notify others instead", ", ".join(changed.to) or "https://ops.example.com/hook")
    fields = (*_KINDS[kind].fields, keep, *common[1:])
    kept = (("new", kind), ("change", changed.name))
    return Form("What would it do?", tuple(map(filled, fields)), ask="update", kept=kept)


def _read_rule(asked: Mapping[str, str], kind: str) -> Rule:
    """Return the rule that the fields of a form describe; an error of a rule for what cannot be meant."""
    values: dict[str, object] = {"type": kind}
    for field in _KINDS[kind].fields:
        if text := asked.get(field.name, "").strip():
            number = _NUMBERS.get(field.name)
            try:
                values[field.name] = text if number is None else number(text)
            except ValueError:
                values[field.name] = text  # the rule says what it wants
    return read_plain(Rule, values)


def _read_targets(text: str) -> list[Target]:
    targets: list[Target] = []
    for word in text.replace(",", " ").split():
        if word.startswith(("https://", "http://")):
            targets.append(read_plain(Target, {"type": "web_hook", "url": word}))
        elif word.startswith(("env:", "file:")):
            targets.append(read_plain(Target, {"type": "slack", "url": word}))
        else:
            raise _BadTargetText(word)
    return targets


def _preview(request: Request, changed: AlertRuleView | None) -> Preview | None:
    asked = request.query_params
    kind, ask = asked.get("new", ""), asked.get("ask", "")
    if kind not in _KINDS or ask not in {"create", "update"} or (ask == "update" and changed is None):
        return None
    try:
        rule, targets = _read_rule(asked, kind), _read_targets(asked.get("to", ""))
    except TidemillError as error:
        return Preview("This cannot be done", error.sentence, command_of("alert", "rules"))
    if changed is not None and ask == "update":
        return offered(request, _ask_update(asked, changed, rule, targets))
    return offered(request, _ask_create(asked, rule, targets))


def _ask_create(asked: Mapping[str, str], rule: Rule, targets: list[Target]) -> Preview:
    name, repeat, text = (asked.get(one, "").strip() for one in ("name", "repeat", "description"))
    to = [write_plain(one) for one in targets]
    says = f"This opens an alert when {describe_rule(rule)}. {_say_targets(targets, repeat)}"
    words = [word for one in to for word in ("--to", json.dumps(one))]
    words += ["--repeat", repeat] * bool(repeat) + ["--description", text] * bool(text)
    command = command_of("alert", "create", name, json.dumps(write_plain(rule)), *words)
    body = {"name": name, "rule": write_plain(rule), "to": to, "description": text}
    if repeat:
        body["repeat"] = repeat
    action = Action(
        "Make the rule",
        "/v1/alerts",
        says,
        f"{name} is watched",
        Right.DEPLOY,
        body=body_of(**body),
        whole=_is_whole(rule, targets),
    )
    return Preview(f"New rule {name}", says, command, action)


def _ask_update(asked: Mapping[str, str], changed: AlertRuleView, rule: Rule, targets: list[Target]) -> Preview:
    repeat, text = asked.get("repeat", "").strip() or "0s", asked.get("description", "").strip()
    to = [write_plain(one) for one in targets]
    told = _say_targets(targets, repeat) if targets else f"Its targets stay: {', '.join(changed.to) or 'none'}."
    says = f"This opens an alert when {describe_rule(rule)}. {told} Open alerts without that state are resolved."
    words = [word for one in to for word in ("--to", json.dumps(one))]
    plain_rule = write_plain(rule)
    command = command_of(
        "alert", "update", changed.name, "--rule", json.dumps(plain_rule), *words, "--repeat", repeat,
        "--description", text,
    )  # fmt: skip
    body = {"rule": plain_rule, "repeat": repeat, "description": text, **({"to": to} if to else {})}
    action = Action(
        "Change the rule",
        link("/v1/alerts", changed.name),
        says,
        f"{changed.name} is changed",
        Right.DEPLOY,
        "PATCH",
        body=body_of(**body),
        whole=_is_whole(rule, targets),
        then="/alert-rules",
    )
    return Preview(f"Change {changed.name}", says, command, action)


def _is_whole(rule: Rule, targets: list[Target]) -> bool:
    """Return whether a rule is about a thing of no namespace, or has a target that belongs to none."""
    return any(one.namespace is None for one in list_named(rule, targets))


def _say_targets(targets: list[Target], repeat: str) -> str:
    if not targets:
        return "It notifies no target: pages and lists show the alert."
    again = f", again every {repeat}" if repeat and repeat != "0s" else ""
    return f"It notifies {', '.join(map(str, targets))}{again}."
