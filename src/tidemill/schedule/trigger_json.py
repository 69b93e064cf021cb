"""The JSON form of triggers: what the catalog keeps, and what people may write by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemill.schedule.data_triggers import NewFiles, NewPartitions
from tidemill.schedule.time_triggers import Every
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


def _parse(value: object) -> Trigger:
    match value:
        case {"type": "new_files", "inbox": str(inbox), **rest} if rest.keys() <= {"n"}:
            return NewFiles(inbox, _number(rest))
        case {"type": "new_partitions", "fileset": str(fileset), **rest} if rest.keys() <= {"n"}:
            return NewPartitions(fileset, _number(rest))
        case {"type": "every", "duration": str(duration), **rest} if not rest:
            return Every(duration)
        case {"type": "all_of", "triggers": list(triggers), **rest} if not rest:
            return AllOf(*map(_parse, triggers))
        case {"type": "any_of", "triggers": list(triggers), **rest} if not rest:
            return AnyOf(*map(_parse, triggers))
        case _:
            raise BadTrigger(
                _short(value),
                "known are new_files (inbox, n), new_partitions (fileset, n), every (duration), "
                "all_of (triggers) and any_of (triggers)",
            )


def _number(fields: Mapping[object, object]) -> int:
    n = fields.get("n", 1)
    if not isinstance(n, int):
        raise BadTrigger(_short(fields), f"n must be a whole number of at least 1, not {n!r}")
    return n


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"  # a line of a terminal
