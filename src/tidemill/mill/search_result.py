"""The result of a search: the things that were found, and where to look next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidemill.errors import UserError
from tidemill.texts import printable

HITS: Final = 10
"""The most hits of one kind, unless the caller gives another number."""
MOST_HITS: Final = 100


class HitKind(StrEnum):
    """Kinds of things that a search finds, in the order of the answer."""

    DATASET = "dataset"
    APP = "app"
    PROGRAM = "program"
    SCHEDULE = "schedule"
    CONSUMER = "consumer"
    TOPIC = "topic"
    SUBSCRIBER = "subscriber"
    ALERT_RULE = "alert rule"
    HOOK = "hook"
    RUN = "run"
    JOB = "job"
    TRANSACTION = "transaction"
    FILE = "file"
    PARTITION = "partition"


class BadSearch(UserError):
    """A text that cannot be searched for."""

    code = "bad_search"

    def __init__(self, text: str, cure: str) -> None:
        self.text = printable(text[:100])
        self.cure = cure
        super().__init__(f"text {self.text!r} is refused", cure, before=": ")


@dataclass(frozen=True, slots=True)
class Hit:
    """A thing that a search has found. `command` is the command to look at the thing next, without `tidemill`."""

    kind: HitKind
    name: str
    command: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Things whose names begin with a text: the thing of exactly this name first, then by kind and name.

    `more` is true if there are further things: the text says too little.
    """

    text: str
    hits: tuple[Hit, ...]
    more: bool
