"""Triggers of a run: the messages and times that fed each leaf of its schedule's trigger.

The run's record keeps the positions of the messages. Their payloads are read from the topic when a reader asks, so a
run that was fed by thousands of messages costs no more than one that was fed by a hundred.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Payload, read_payload
from tidemill.catalog.named import GREATEST, load_sql
from tidemill.json_specs import read_plain
from tidemill.names import EventKey

if TYPE_CHECKING:
    from tidemill.run.records.triggers_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_MESSAGES: Final = 100
"""The most messages that are read for one run, or one job. Its leaves share them evenly."""

MOST_PAYLOAD_CHARACTERS: Final = 256_000
"""The most characters of payloads that are read for one run, or one job."""

_TOO_LARGE: Final = (
    "the payload is left out, because the payloads are too large together; `tidemill topic read` shows it"
)


@dataclass(frozen=True, slots=True)
class TriggerMessage:
    """A message that fed a leaf, as it was published.

    `position` is the place in its topic, as `topic read` shows it. `flaw` says why there is no payload, else it is
    empty. `published_at` is None if the message is deleted.
    """

    topic: str
    position: str
    published_at: datetime | None
    event_type: str
    event_key: str
    payload: Payload
    flaw: str


@dataclass(frozen=True, slots=True)
class TriggerFeed:
    """Feed of one leaf of the trigger: its count, its logical times and its oldest messages.

    `more` is the number of later messages. `mill.topics.read` with the last position as `after` goes on behind them.
    """

    trigger: str
    why: str
    count: int
    backlog: bool
    """True if a message announced work that earlier runs of the program have left."""
    logical_times: tuple[datetime, ...]
    messages: tuple[TriggerMessage, ...]
    more: int


class Place(NamedTuple):
    """Place of a message: its topic, the commit that published the message, and its number in the commit."""

    topic: str
    seq: int
    n: int

    def __str__(self) -> str:
        return f"{self.seq}.{self.n}"


@dataclass(frozen=True, slots=True)
class LeafRecord:
    """Feed of a leaf as a record keeps it: with the places of all its messages, oldest first."""

    trigger: str
    why: str
    count: int
    backlog: bool
    logical_times: tuple[datetime, ...]
    places: Sequence[Place]


def read_triggers(db: Db, leaves: Sequence[LeafRecord]) -> tuple[TriggerFeed, ...]:
    """Return what each leaf was fed, in the order of `leaves`. Cost: a look-up for each message that is shown."""
    share = max(1, MOST_MESSAGES // max(1, len(leaves)))
    found = _read(db, {place for leaf in leaves for place in leaf.places[:share]})
    return tuple(
        TriggerFeed(
            leaf.trigger,
            leaf.why,
            leaf.count,
            leaf.backlog,
            leaf.logical_times,
            tuple(found.get(place) or _deleted(place) for place in leaf.places[:share]),
            max(0, len(leaf.places) - share),
        )
        for leaf in leaves
    )


def read_payloads(db: Db, places: Collection[Place]) -> dict[Place, Payload]:
    """Return the payloads of the messages at `places` that are there. Cost: a look-up for each."""
    if not places:
        return {}
    rows = db.records(SQL.read_fed, _FedRow, positions=_positions(places), most=GREATEST)
    return {Place(row.topic, row.seq, row.n): read_payload(row.payload or "{}")[0] for row in rows}


def leaves_of(triggered_by: Mapping[str, Any]) -> list[LeafRecord]:
    """Return the leaves in the cause of a run; none for a run that no schedule started."""
    return [
        LeafRecord(
            leaf["trigger"],
            leaf["why"],
            leaf["count"],
            leaf["backlog"],
            tuple(read_plain(datetime, at) for at in leaf["fires"]),
            [Place(*place) for place in leaf["messages"]],
        )
        for leaf in triggered_by.get("triggers", ())
    ]


class _FedRow(NamedTuple):
    """Row of a message; its payload is text that may be damaged, or None where the text is too large."""

    topic: str
    seq: int
    n: int
    at: datetime
    event_type: str
    event_key: EventKey
    payload: str | None


def _read(db: Db, wanted: set[Place]) -> dict[Place, TriggerMessage]:
    """Read the messages at the places `wanted` that are there. The payloads of the oldest come first."""
    if not wanted:
        return {}
    found: dict[Place, TriggerMessage] = {}
    room = MOST_PAYLOAD_CHARACTERS
    rows = db.records(SQL.read_fed, _FedRow, positions=_positions(wanted), most=room)
    for row in sorted(rows, key=lambda row: row[:3]):
        place = Place(row.topic, row.seq, row.n)
        payload, flaw = ({}, _TOO_LARGE) if row.payload is None else read_payload(row.payload)
        if row.payload is not None and len(row.payload) > room:
            payload, flaw = {}, _TOO_LARGE
        room -= len(row.payload or "")
        found[place] = TriggerMessage(row.topic, str(place), row.at, row.event_type, row.event_key, payload, flaw)
    return found


def _positions(places: Collection[Place]) -> str:
    return json.dumps([place._asdict() for place in places])


def _deleted(place: Place) -> TriggerMessage:
    return TriggerMessage(place.topic, str(place), None, "", "", {}, "the message is deleted")
