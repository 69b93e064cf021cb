"""Names and ids: what they may look like, and one type for each so that a mix-up is a type error.

Names end in directory names, URLs and event keys, so they are kept to letters, digits, `_` and `-`. Ids are text with
a prefix that says what they name (`run_…`); write pointers and commit sequences are `int`, ticks of one clock.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple, NewType, TypeVar

from tidemill.errors import UserError
from tidemill.texts import printable

_Option = TypeVar("_Option", bound=StrEnum)

WritePointer = NewType("WritePointer", int)
"""The tick of the catalog's clock that a transaction's begin took (seed 000)."""
CommitSeq = NewType("CommitSeq", int)
"""The tick that a commit took; a transaction with write pointer w sees what has `commit_seq < w`."""

Namespace = NewType("Namespace", str)
DatasetId = NewType("DatasetId", str)
ConsumerId = NewType("ConsumerId", str)
ProgramId = NewType("ProgramId", str)
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
ScheduleId = NewType("ScheduleId", str)
JobId = NewType("JobId", str)
PinId = NewType("PinId", str)
BackfillId = NewType("BackfillId", str)
EventKey = NewType("EventKey", str)
"""The key by which triggers find messages: `partition:default.clicks`, `program:default.shop.ingest`."""

DEFAULT_NAMESPACE: Final = Namespace("default")

_MOST_LETTERS: Final = 200
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class BadName(UserError):
    """A name that is not URL-safe and path-safe, or has not the parts that names of its kind have."""

    code = "bad_name"

    def __init__(
        self, kind: str, name: str, cure: str = "use a letter, then up to 99 letters, digits, '_' or '-'"
    ) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} name {name!r} is refused", cure, before=": ")


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may name a `kind` (data set, program, …); raise `BadName` otherwise."""
    if not _NAME.fullmatch(name):
        raise BadName(kind, name)
    return name


def check_event_key(key: object) -> EventKey:
    """Return `key` if it may be the event key of a user's message, or empty; raise `BadName` otherwise."""
    if not isinstance(key, str) or len(key) > _MOST_LETTERS or printable(key) != key:
        raise BadName(
            "event key", str(key)[:_MOST_LETTERS], f"use a text of up to {_MOST_LETTERS} characters, without NUL"
        )
    return EventKey(key)


def qualified(namespace: Namespace, *names: str) -> str:
    """Give the dotted name that messages, CLI and logs use: `default.clicks`, `default.shop.ingest`."""
    return ".".join((namespace, *names))


def within(namespace: Namespace, name: str) -> str:
    """Return the qualified name of a data set that a statement names; a plain name lies in `namespace`."""
    return name if "." in name else qualified(namespace, name)


def launches_limit(namespace: Namespace) -> str:
    """The limit under which the launches of a namespace are counted."""
    return f"launches:{namespace}"


def program_limit(program_id: ProgramId) -> str:
    """Give the limit under which the runs of a program are counted."""
    return f"program:{program_id}"


def split_qualified(kind: str, text: str, parts: int) -> tuple[Namespace, tuple[str, ...]]:
    """Take a dotted name apart into its namespace (default when left out) and `parts` names; raise `BadName`."""
    pieces = text.split(".")
    if len(pieces) == parts:
        pieces = [DEFAULT_NAMESPACE, *pieces]
    if len(pieces) != parts + 1:
        written = ".".join((*["app"] * (parts - 1), "name"))
        raise BadName(kind, text, f"write {written}, or namespace.{written}")
    for piece in pieces:
        check_name(kind, piece)
    return Namespace(pieces[0]), tuple(pieces[1:])


def namespace_of_consumer(name: str) -> Namespace | None:
    """Return the namespace of the program whose consumer has this name; None for a consumer of no program."""
    namespace, _, rest = name.partition(".")
    return Namespace(namespace) if "." in rest else None


class NamedThing(NamedTuple):
    """A thing that a spec names. A thing of no single namespace, such as a topic, has None."""

    kind: str
    name: str
    namespace: Namespace | None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that is nearest to the typed `name`, if any is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return close[0] if close else None


def advise(given: str, known: Iterable[str], otherwise: str = "", *, before: str = "") -> str:
    """Return a hint for a user that typed `given`: the nearest name in `known`, else `otherwise`.

    `before` separates the hint from the text before it. It is left out if there is no hint.
    """
    meant = nearest(given, known)
    advice = f"did you mean {str(meant)!r}?" if meant else otherwise
    return f"{before}{advice}" if advice else ""


def one_of(options: type[_Option], given: str, refuse: Callable[[str], Exception]) -> _Option:
    """The option that is called `given`; where there is none, raise what `refuse` makes of the reason."""
    try:
        return options(given)
    except ValueError:
        known = [option.value for option in options]
        advice = advise(str(given), known, f"use one of {', '.join(known)}")
        raise refuse(f"is {given!r}, which is not known: {advice}") from None


def partition_event(namespace: Namespace, dataset: str) -> EventKey:
    """The key of messages about new, appended and overwritten partitions of a file set."""
    return EventKey(f"partition:{qualified(namespace, dataset)}")


def file_event(namespace: Namespace, dataset: str) -> EventKey:
    """The key of messages about files that landed in an inbox."""
    return EventKey(f"file:{qualified(namespace, dataset)}")


def snapshot_event(namespace: Namespace, dataset: str) -> EventKey:
    """The key of messages about refreshes of a snapshot data set."""
    return EventKey(f"snapshot:{qualified(namespace, dataset)}")


def watermark_event(namespace: Namespace, dataset: str) -> EventKey:
    """The key of messages that say that the watermark of a file set has moved."""
    return EventKey(f"watermark:{qualified(namespace, dataset)}")


def missing_event(namespace: Namespace, dataset: str) -> EventKey:
    """The key of messages that say that nothing has arrived in a data set as expected."""
    return EventKey(f"missing:{qualified(namespace, dataset)}")


def window_event(program: str) -> EventKey:
    """The key of messages about windows that a program has published; `program` is its qualified name."""
    return EventKey(f"window:{program}")


def backlog_event(namespace: Namespace, dataset: str) -> EventKey:
    """The key of messages that say claimable work is left of a data set (protocol: work never sticks)."""
    return EventKey(f"backlog:{qualified(namespace, dataset)}")


def dataset_events(namespace: Namespace, dataset: str) -> tuple[EventKey, ...]:
    """The keys of all messages about a data set, whatever its kind."""
    kinds = (partition_event, file_event, snapshot_event, watermark_event, missing_event, backlog_event)
    return tuple(event(namespace, dataset) for event in kinds)


STARTED: Final = "STARTED"
"""The state of a run whose first attempt has begun, as messages name it."""


def program_event(namespace: Namespace, app: str, program: str, state: str) -> EventKey:
    """The key of messages about runs of a program that reached `state`: an end state, or `STARTED`."""
    return EventKey(f"program:{qualified(namespace, app, program)}:{state}")


def hook_event(namespace: Namespace, hook: str) -> EventKey:
    """The key of messages about a hook that was fired."""
    return EventKey(f"hook:{qualified(namespace, hook)}")


def namespace_of_event(event_key: str) -> Namespace | None:
    """Return the namespace of the thing that an event key names; None for the keys of users' topics."""
    kind, _, name = event_key.partition(":")
    return None if kind in {"topic", "message"} or "." not in name else Namespace(name.partition(".")[0])


def topic_event(topic: str) -> EventKey:
    """The key under which all listeners of a topic are found. No message has the key."""
    return EventKey(f"topic:{topic}")


def message_event(topic: str, key: str = "") -> EventKey:
    """The key of the messages of a users' topic with the event key `key`; without it, the key of all of them."""
    return EventKey(f"message:{topic}:{key}")
