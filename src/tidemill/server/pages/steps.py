"""Views of steps: the parts of a trigger, the answers of constraints, and reasons with their evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tidemill.reasons import Because, Reason
from tidemill.schedule.parts import ConstraintPart, TriggerPart
from tidemill.server.pages.render import link, show, state_of

_COUNTED: Final = re.compile(r"(?P<number>\d+/\d+) (?P<rest>.+)", re.DOTALL)
_HOLDS: Final = {True: ("ok", "✓", "holds"), False: ("wait", "◷", "waits"), None: ("off", "–", "not asked yet")}
_PAGES: Final = (
    (re.compile(r"run_[0-9A-Z]{26}"), "/runs"),
    (re.compile(r"job_[0-9A-Z]{26}"), "/jobs"),
)
_DEEPEST: Final = 5
_SHAPES: Final[Mapping[str, str]] = {
    "WAITS": "wait",
    "RUN_COMPLETED": "ok",
    "RUN_RUNNING": "run",
    "RUN_STARTING": "run",
    "RUN_WAITS": "wait",
    "RUN": "fail",
    "JOB_LAUNCHED": "ok",
    "JOB": "off",
    "SCHEDULE_SUSPENDED": "off",
    "FILE_PROCESSED": "ok",
    "FILE_IN_RUN": "run",
    "FILE_QUARANTINED": "fail",
    "EXPECTATION_BROKEN": "late",
    "CONSUMER_LAGS": "wait",
    "CONSUMER_IS_CURRENT": "ok",
    "DATASET_WRITTEN": "ok",
}
"""Shapes by the begin of a reason's code, the longest that fits."""
_SIGNS: Final = {"wait": "◷", "ok": "✓", "run": "●", "fail": "✕", "late": "!", "off": "–"}


def view_trigger(parts: Iterable[TriggerPart]) -> list[Mapping[str, Any]]:
    """Return the parts of a trigger with their signs, and with the number before its sentence."""
    return [_part(one) for one in parts]


def view_constraints(parts: Iterable[ConstraintPart]) -> list[Mapping[str, Any]]:
    """Return constraints with the signs of their answers."""
    return [_answered(one) for one in parts]


def view_reasons(because: Iterable[Because]) -> list[Mapping[str, Any]]:
    """Return reasons with their signs, and evidence as names, values and links."""
    return [_reason(one) for one in because]


def _part(part: TriggerPart) -> Mapping[str, Any]:
    shape, sign, badge = _HOLDS[part.holds]
    counted = _COUNTED.fullmatch(part.why)
    text, note = part.text, part.why
    if part.type in {"all_of", "any_of", "at_least", "silence"}:
        badge, text, note = part.text, "", ""
    elif counted:
        badge, text, note = counted["number"], counted["rest"], part.text
    return {
        "level": min(part.depth, _DEEPEST),
        "shape": shape,
        "sign": sign,
        "badge": badge,
        "text": text,
        "note": note,
        "since": part.since,
        "not_before": part.not_before,
    }


def _answered(part: ConstraintPart) -> Mapping[str, Any]:
    shape, sign, badge = _HOLDS[part.holds]
    return {
        "shape": shape,
        "sign": sign,
        "badge": badge,
        "text": part.text,
        "note": part.why,
        "not_before": part.not_before,
    }


def _reason(one: Because) -> Mapping[str, Any]:
    shape = shape_of(one.code)
    return {
        "code": one.code.value,
        "why": one.why,
        "unblock": one.unblock,
        "next_look_at": one.next_look_at,
        "shape": shape,
        "sign": _SIGNS[shape],
        "facts": [_fact(name, value) for name, value in one.evidence.items() if value not in (None, "", [], {}, ())],
    }


def shape_of(code: Reason) -> str:
    """Return the shape of a reason."""
    begins = [begin for begin in _SHAPES if code.name.startswith(begin)]
    return _SHAPES[max(begins, key=len)] if begins else "off"


def _fact(name: str, value: object) -> tuple[str, str, str]:
    if isinstance(value, datetime):
        return name, value.isoformat(timespec="seconds"), ""
    text = show(value)
    page = next((path for pattern, path in _PAGES if pattern.fullmatch(text)), "")
    return name, text, link(page, text) if page else ""


def strip_cell(outcome: str, run_state: str | None) -> tuple[str, str]:
    """Return the shape and the words of a job that has ended: those of its run, if there is one."""
    if run_state is None:
        return "off", outcome.replace("_", " ")
    shape, _, words = state_of(run_state)
    return shape, f"run {words}"
