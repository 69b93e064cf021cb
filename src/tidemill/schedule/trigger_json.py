"""The JSON form of triggers: what the catalog keeps, and what people may write by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemill.names import advise, nearest
from tidemill.schedule.data_triggers import NewData, NewFiles, NewPartitions, Refreshed, WatermarkPassed
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.triggers import AllOf, AnyOf, BadTrigger, Trigger

VERSION: Final = 1
"""A reader refuses others."""


def trigger_to_json(trigger: Trigger) -> dict[str, object]:
    """The JSON form of `trigger`, with its version."""
    return {"version": VERSION, **trigger.spec()}


def trigger_from_json(value: object) -> Trigger:
    """Read what `trigger_to_json` wrote, or a person; raise `BadTrigger` for anything else."""
    if not isinstance(value, Mapping) or value.get("version") != VERSION:
        raise BadTrigger(_short(value), f'a JSON object with "version": {VERSION} is wanted')
    return _parse({key: field for key, field in value.items() if key != "version"})


@dataclass(frozen=True, slots=True)
class _Form:
    """What one type of trigger is made of: its fields with their types, and by whom they are checked."""

    make: Callable[..., Trigger]
    required: Mapping[str, type]
    optional: Mapping[str, type] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join([*self.required, *(f"{name} (optional)" for name in self.optional)])


def _parse(value: object) -> Trigger:
    if not isinstance(value, Mapping) or not isinstance(kind := value.get("type"), str) or kind not in _FORMS:
        raise BadTrigger(_short(value), _unknown_type(value))
    form = _FORMS[kind]
    fields = {str(name): given for name, given in value.items() if name != "type"}
    known = {**form.required, **form.optional}
    for name, given in fields.items():
        if name not in known:
            raise BadTrigger(_short(value), f"{kind} has no field {name!r}; {advise(name, known, f'it has {form}')}")
        if not isinstance(given, known[name]):
            raise BadTrigger(_short(value), f"{name} must be {_WORDS[known[name]]}, not {given!r}")
    if missing := [name for name in form.required if name not in fields]:
        raise BadTrigger(_short(value), f"{kind} needs {', '.join(missing)}")
    required = [fields.pop(name) for name in form.required]
    return form.make(*required, **fields)


def _unknown_type(value: object) -> str:
    kind = value.get("type") if isinstance(value, Mapping) else None
    close = nearest(kind, _FORMS) if isinstance(kind, str) else None
    if close is not None:
        return f"there is no type {kind!r}; did you mean {close!r} ({_FORMS[close]})?"
    return f"known types are {'; '.join(f'{name} ({form})' for name, form in _FORMS.items())}"


_WORDS: Final = {str: "text", int: "a whole number of at least 1", list: "a list"}
_FORMS: Final[Mapping[str, _Form]] = {
    "new_files": _Form(NewFiles, {"inbox": str}, {"n": int}),
    "new_partitions": _Form(NewPartitions, {"fileset": str}, {"n": int}),
    "new_data": _Form(NewData, {"fileset": str}, {"bytes": str, "rows": int}),
    "refreshed": _Form(Refreshed, {"snapshot": str}),
    "watermark_passed": _Form(WatermarkPassed, {"fileset": str}, {"every": str, "mode": str}),
    "every": _Form(Every, {"duration": str}),
    "cron": _Form(Cron, {"expression": str}, {"zone": str}),
    "all_of": _Form(lambda triggers: AllOf(*map(_parse, triggers)), {"triggers": list}),
    "any_of": _Form(lambda triggers: AnyOf(*map(_parse, triggers)), {"triggers": list}),
}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"  # a line of a terminal
