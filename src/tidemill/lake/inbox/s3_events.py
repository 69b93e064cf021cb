"""Events of S3 about objects, in the envelopes in which they arrive: of S3 itself, SQS, SNS and EventBridge.

An event is only a hint to look at a file. It may be late, doubled, lost or forged, so nothing of it is used but the
name of the object: its size and etag are those of the storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, unquote_plus, urlsplit

from tidemill.errors import UserError
from tidemill.storage.file_names import MOST_NAME_BYTES, is_too_long

MOST_EVENTS: Final = 10_000
"""The most events in one body. S3 itself sends one, SQS hands out ten."""
_MOST_LEVELS: Final = 8
"""Envelopes in envelopes: a list of messages of SQS, each of which holds a message of SNS, takes five."""
_SHOWN: Final = 80
_CREATED: Final = "Object Created"
_CONFIRMATIONS: Final = ("SubscriptionConfirmation", "UnsubscribeConfirmation")


class BadEvents(UserError):
    """A body that holds no events of S3."""

    code = "bad_events"
    hint = "send the body as S3, SQS, SNS or EventBridge sends it"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the body is no notification of S3, SQS, SNS or EventBridge: {why}; nothing was looked at")


class TooManyEvents(BadEvents):
    """More events than one body may have."""

    code = "too_many_events"
    hint = "send fewer events in one body"


class ObjectKeyTooLong(BadEvents):
    """A key that no object of S3 has."""

    code = "object_key_too_long"
    hint = "correct the key of the event"

    def __init__(self, bucket: str, key: str) -> None:
        self.bucket = bucket
        self.bytes = len(key.encode(errors="surrogatepass"))
        super().__init__(
            f"the key {key[:_SHOWN]!r}… of bucket {bucket[:_SHOWN]!r} has {self.bytes} bytes, and keys of S3 have "
            f"{MOST_NAME_BYTES} at most"
        )


class NotConfirmed(UserError):
    """A topic of SNS that asks for the confirmation of a subscription."""

    code = "subscription_not_confirmed"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"topic {topic!r} of SNS asks to confirm its subscription, and Tidemill visits no address that a request "
            "names",
            "confirm it by `aws sns confirm-subscription --topic-arn TOPIC --token TOKEN`, with the token of this "
            "message",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """Event about the object `key` of a bucket: `created`, or something else."""

    bucket: str
    key: str
    created: bool


@dataclass(slots=True)
class Events:
    """Events of a body, in their order, and the reasons why parts of the body are none."""

    found: list[ObjectEvent] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def read_events(body: object) -> Events:
    """Read the events of a body, which is decoded JSON. An unreadable part of a list is noted, and stops no other part.

    `BadEvents` for a body that is unreadable as a whole, and for more than `MOST_EVENTS`; `ObjectKeyTooLong`,
    `NotConfirmed`.
    """
    events = Events()
    _read(body, events, _MOST_LEVELS)
    return events


def find_name(location: str, event: ObjectEvent) -> str | None:
    """Return the name of the object in an inbox at `location`, a folder; None for an object that is elsewhere.

    The folder mirrors a part of the bucket, so it ends as the prefix of the object does: `/mnt/landing/orders` has
    `landing/orders/a.csv` as `a.csv`, with or without a folder of the bucket's name above. A folder of the bucket's own
    name has all of its objects. The longest prefix counts.
    """
    parts = event.key.split("/")
    folder = PurePosixPath(unquote(urlsplit(location).path)).parts
    for length in range(min(len(parts) - 1, len(folder)), 0, -1):
        if folder[-length:] == tuple(parts[:length]):
            return "/".join(parts[length:])
    return event.key if folder[-1:] == (event.bucket,) else None


def _read(value: object, events: Events, levels: int) -> None:
    if not levels:
        raise BadEvents("its envelopes are nested too deep")
    if isinstance(value, str):
        value = _parse(value)
    if (event := _read_event(value)) is not None:
        _add(event, events)
        return
    match value:
        case list(entries) | {"Records": list(entries)} | {"Messages": list(entries)}:
            _read_all(entries, events, levels)
        case {"Type": "Notification", "Message": str(text)} | {"Sns": {"Message": str(text)}}:
            _read(text, events, levels - 1)
        case {"Body": str(text)} | {"body": str(text)}:
            _read(text, events, levels - 1)
        case {"Event": "s3:TestEvent"}:
            return  # S3 sends one when notifications are switched on
        case Mapping():
            if value.get("Type") in _CONFIRMATIONS:
                raise NotConfirmed(str(value.get("TopicArn")))
            raise BadEvents(f"it has the fields {', '.join(sorted(map(str, value))[:10]) or 'none'}")
        case _:
            raise BadEvents(f"{str(value)[:80]!r} is no JSON object")


def _add(event: ObjectEvent, events: Events) -> None:
    if is_too_long(event.key):
        raise ObjectKeyTooLong(event.bucket, event.key)
    events.found.append(event)
    _check_number(events)


def _read_event(value: object) -> ObjectEvent | None:
    match value:
        case {"detail-type": str(kind), "detail": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}}}:
            return ObjectEvent(bucket, key, kind == _CREATED)  # EventBridge does not encode keys
        case {"eventName": str(kind), "s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}}}:
            created = kind.removeprefix("s3:").startswith("ObjectCreated:")
            return ObjectEvent(bucket, unquote_plus(key), created)
        case _:
            return None


def _read_all(entries: Iterable[object], events: Events, levels: int) -> None:
    for entry in entries:
        try:
            _read(entry, events, levels - 1)
        except TooManyEvents:
            raise
        except UserError as error:
            events.unreadable.append(str(error))
            _check_number(events)


def _check_number(events: Events) -> None:
    if len(events.found) + len(events.unreadable) > MOST_EVENTS:
        raise TooManyEvents(f"it has more than {MOST_EVENTS} events; send them in several bodies")


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadEvents(f"{text[:80]!r} is no JSON") from None
