"""Triggers that messages about data feed: new files, partitions, bytes and rows, refreshes, and work that is left."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, Protocol

from tidemill.catalog.messages import Message, Topic
from tidemill.durations import format_duration
from tidemill.errors import UserError
from tidemill.names import (
    EventKey,
    Namespace,
    backlog_event,
    file_event,
    one_of,
    partition_event,
    qualified,
    snapshot_event,
    split_qualified,
    watermark_event,
)
from tidemill.run.records.written_filters import WrittenWhere, write_kinds, write_where
from tidemill.run.step.periods import Periods, UnknownZone
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.triggers import MOST_TIMES, BadTrigger, Fed, Leaf, read_wait
from tidemill.sizes import exact_bytes, format_bytes, parse_bytes

MOST_ENDS: Final = 10_000
"""Limit of the period ends for which one watermark move starts runs: the latest ones."""
_LARGEST: Final = 1 << 62
_MOMENTS: Final = range(-60_000_000_000_000_000, 250_000_000_000_000_000)
"""Microseconds since 1970 that have a date, with a millennium to spare."""


class Named(Protocol):
    """Declared data set, as a trigger sees it: its name with the namespace."""

    @property
    def qualified_name(self) -> str:
        """`default.clicks`."""


class UnreadableMessage(UserError):
    """A message whose payload does not say what a trigger counts: damaged, or published by a newer Tidemill."""

    code = "unreadable_message"

    def __init__(self, trigger: str, why: str) -> None:
        self.trigger = trigger
        self.why = why
        super().__init__(f"{trigger} cannot read it: {why}", "if a newer Tidemill published it, upgrade this one")


class MessageTrigger(Leaf):
    """A leaf that messages of a topic feed."""

    __slots__ = ()

    @property
    def heard_topic(self) -> str:
        """The topic of these messages."""
        return Topic.DATA

    def wants(self, message: Message) -> bool:  # most leaves want all
        """Return whether `message` feeds the leaf. Its key is one of the leaf's `event_keys`."""
        return True

    @abstractmethod
    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with `message` added. The key of `message` is one of the leaf's `event_keys`.

        Errors: `UnreadableMessage`.
        """


def dataset_name(trigger: str, dataset: object) -> str:
    """Return the qualified name of a data set, of which a trigger has the name or the declaration; `BadTrigger`."""
    name = dataset if isinstance(dataset, str) else getattr(dataset, "qualified_name", None)
    if not isinstance(name, str):
        raise BadTrigger(trigger, f"a data set or its name is wanted, not {dataset!r}")
    namespace, (local,) = split_qualified("data set", name, 1)
    return qualified(namespace, local)


def count_of(trigger: str, n: object) -> int:
    """Return `n`, the number of things that a trigger waits for; `BadTrigger` for what is no such number."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise BadTrigger(trigger, f"n must be a whole number of at least 1, not {n!r}")
    return n


def read_number(leaf: Leaf, said: object, name: str) -> int:
    """Return the number of that name in a part of a payload. Errors: `UnreadableMessage`."""
    number = said.get(name) if isinstance(said, Mapping) else None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _LARGEST:
        raise UnreadableMessage(str(leaf), f"{name!r} is {number!r}, where a whole number is wanted")
    return number


def _last_partition(message: Message) -> str:
    """Return the key of the last partition that `message` announces; empty for a message about other things."""
    match message.payload.get("partitions"):
        case [*_, {"key": str(key)}]:
            return key
        case _:
            return ""


@dataclass(frozen=True, slots=True, init=False)
class DatasetTrigger(MessageTrigger):
    """Something about one data set, of the kind `of_kind`: deployment refuses another."""

    of_kind: ClassVar[str]
    dataset: str

    def __init__(self, dataset: str | Named) -> None:
        # A frozen class sets its fields this way: the arguments are wider than what is kept.
        object.__setattr__(self, "dataset", dataset_name(type(self).__name__, dataset))

    def _event_key(self, of: Callable[[Namespace, str], EventKey]) -> EventKey:
        namespace, (name,) = split_qualified("data set", self.dataset, 1)
        return of(namespace, name)


@dataclass(frozen=True, slots=True, init=False)
class DataTrigger(DatasetTrigger):
    """`n` new things in one data set; or a message that the program has work left there."""

    n: int = 1

    def __init__(self, dataset: str | Named, n: int = 1) -> None:
        DatasetTrigger.__init__(self, dataset)
        object.__setattr__(self, "n", count_of(type(self).__name__, n))

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.dataset}{f', {self.n}' if self.n > 1 else ''})"

    @property
    def backlog_key(self) -> EventKey:
        """The key of messages about work left in the data set, for whichever consumer they name."""
        return self._event_key(backlog_event)

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with the `count` in the payload of `message` added."""
        if message.event_key == self.backlog_key:
            return replace(fed, backlog=True)
        return replace(
            fed,
            count=fed.count + read_number(self, message.payload, "count"),
            partition=_last_partition(message) or fed.partition,
        )

    def _amount(self, number: int) -> str:
        return str(number)

    def _answer(self, fed: Fed, things: str) -> Answer:
        counted = f"{self._amount(fed.count)}/{self._amount(self.n)} new {things} of {self.dataset}"
        if fed.count >= self.n:
            return Satisfied(counted)
        return Satisfied(f"{counted}, and work left of earlier runs") if fed.backlog else Waiting(counted)


class Unit(StrEnum):
    """Unit in which new data is measured."""

    BYTES = "bytes"
    ROWS = "rows"
    FILES = "files"


@dataclass(frozen=True, slots=True, init=False)
class NewFiles(DataTrigger):
    """At least `n` new files in an inbox, or new files of so many bytes together."""

    of_kind = "inbox"
    unit: Unit = Unit.FILES

    def __init__(self, dataset: str | Named, n: int | None = None, *, bytes: str | None = None) -> None:  # noqa: A002
        if n is not None and bytes is not None:
            raise BadTrigger("NewFiles", "say either the number of files, or bytes, as '10 GB'")
        wanted = 1 if n is None else n
        if bytes is not None and not (wanted := parse_bytes(bytes)):
            raise BadTrigger("NewFiles", f"bytes must be at least 1, not {bytes!r}")
        DataTrigger.__init__(self, dataset, wanted)
        object.__setattr__(self, "unit", Unit.FILES if bytes is None else Unit.BYTES)

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """New files, and work left."""
        return (self._event_key(file_event), self.backlog_key)

    def __str__(self) -> str:
        if self.unit is Unit.FILES:
            return DataTrigger.__str__(self)
        return f"NewFiles({self.dataset}, bytes='{exact_bytes(self.n)}')"

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with the number or the bytes of the files in `message` added."""
        if self.unit is Unit.FILES or message.event_key == self.backlog_key:
            return DataTrigger.feed(self, fed, message)
        return replace(fed, count=fed.count + read_number(self, message.payload, "bytes"))

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by enough files, or at once by work left."""
        return self._answer(fed[0], "files" if self.unit is Unit.FILES else "bytes of files")

    def _amount(self, number: int) -> str:
        return format_bytes(number) if self.unit is Unit.BYTES else str(number)


@dataclass(frozen=True, slots=True, init=False)
class NewPartitions(DataTrigger):
    """At least `n` new, appended or overwritten partitions in a file set, of those that the program would be given.

    With `where`, only partitions count whose keys meet the conditions, as in a read: `where={"country": "de"}`. With
    `kinds`, only changes of these kinds count: `kinds=["new"]`. Neither limits what the run is given.
    """

    of_kind = "fileset"
    where: WrittenWhere | None = field(default=None, hash=False)  # a mapping has no hash
    kinds: tuple[str, ...] = ()

    def __init__(
        self,
        dataset: str | Named,
        n: int = 1,
        *,
        where: WrittenWhere | None = None,
        kinds: Iterable[str] | None = None,
    ) -> None:
        DataTrigger.__init__(self, dataset, n)

        def refuse(why: str) -> BadTrigger:
            return BadTrigger("NewPartitions", why)

        object.__setattr__(self, "where", write_where(where, refuse) or None if where is not None else None)
        object.__setattr__(self, "kinds", () if kinds is None else write_kinds(kinds, refuse))

    def __str__(self) -> str:
        number = [str(self.n)] if self.n > 1 else []
        where = [f"where={self.where}"] if self.where else []
        kinds = [f"kinds={list(self.kinds)}"] if self.kinds else []
        return f"NewPartitions({', '.join([self.dataset, *number, *where, *kinds])})"

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """New partitions, and work left."""
        return (self._event_key(partition_event), self.backlog_key)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by `n` partitions, or at once by work left."""
        return self._answer(fed[0], "partitions")


@dataclass(frozen=True, slots=True, init=False)
class NewData(DataTrigger):
    """At least so many bytes, or rows, of partitions that the program would be given (seed 001, stories 10 and 11)."""

    of_kind = "fileset"
    unit: Unit = Unit.ROWS

    def __init__(self, dataset: str | Named, *, bytes: str | None = None, rows: int | None = None) -> None:  # noqa: A002
        if (bytes is None) == (rows is None):
            raise BadTrigger("NewData", "say either bytes, as '10 GB', or rows")
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise BadTrigger("NewData", f"rows must be a whole number of at least 1, not {rows!r}")
        wanted = rows if bytes is None else parse_bytes(bytes)
        if not wanted:
            raise BadTrigger("NewData", f"bytes must be at least 1, not {bytes!r}")
        DataTrigger.__init__(self, dataset, wanted)
        object.__setattr__(self, "unit", Unit.ROWS if bytes is None else Unit.BYTES)

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """New partitions, and work left."""
        return (self._event_key(partition_event), self.backlog_key)

    def __str__(self) -> str:
        wanted = f"bytes='{exact_bytes(self.n)}'" if self.unit is Unit.BYTES else f"rows={self.n}"
        return f"NewData({self.dataset}, {wanted})"

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with the bytes or rows of each partition in `message` added."""
        if message.event_key == self.backlog_key:
            return DataTrigger.feed(self, fed, message)
        partitions = message.payload.get("partitions")
        if not isinstance(partitions, list):
            raise UnreadableMessage(str(self), "it names no partitions")
        return replace(
            fed,
            count=fed.count + sum(read_number(self, partition, self.unit) for partition in partitions),
            partition=_last_partition(message) or fed.partition,
        )

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by the amount, or at once by work left."""
        return self._answer(fed[0], self.unit)

    def _amount(self, number: int) -> str:
        return format_bytes(number) if self.unit is Unit.BYTES else str(number)


class Refreshed(DataTrigger):
    """A snapshot data set was refreshed: a newer version became current. Also when its program has changes left."""

    __slots__ = ()
    of_kind = "snapshot"

    def __init__(self, dataset: str | Named) -> None:
        DataTrigger.__init__(self, dataset)

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """Event keys of the snapshot: its refreshes, and changes that a run has left."""
        return (self._event_key(snapshot_event), self.backlog_key)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by one refresh, or by work left."""
        counted = f"{fed[0].count}/1 refreshes of {self.dataset}"
        if fed[0].count:
            return Satisfied(counted)
        return Satisfied(f"{counted}, and work left of earlier runs") if fed[0].backlog else Waiting(counted)


class Passed(NamedTuple):
    """The first and the last of the ends of periods that a move starts runs for."""

    first: datetime
    last: datetime
    zone: str
    """The time zone on whose wall clock the periods are counted."""
    left_out: int
    """The number of earlier periods, which start no runs."""


class PassedMode(StrEnum):
    """Rule for a watermark that passes several period ends in one move: the number of runs that are started."""

    COALESCE = "coalesce"
    EACH = "each"


@dataclass(frozen=True, slots=True, init=False)
class WatermarkPassed(DataTrigger):
    """The watermark of a file set passed the end of a period: so many full hours or days.

    Periods are counted from 1970 on the wall clock of the windows of the file set: with windows in Europe/Berlin, a
    period of a day ends at midnight in Berlin.

    One run is started for all the periods that the watermark has passed (`mode="coalesce"`): their ends are the run's
    logical times. Or each period has a run of its own, in order, with its end as logical time (`mode="each"`). A run
    also starts when its program has windows left, or late ones.
    """

    of_kind = "fileset"
    every: timedelta = timedelta(hours=1)
    mode: PassedMode = PassedMode.COALESCE

    def __init__(self, dataset: str | Named, every: str | timedelta = "1h", mode: str = PassedMode.COALESCE) -> None:
        period = read_wait("WatermarkPassed", "every", every)
        DataTrigger.__init__(self, dataset)
        object.__setattr__(self, "every", period)
        known = one_of(PassedMode, mode, lambda why: BadTrigger("WatermarkPassed", f"mode {why}"))
        object.__setattr__(self, "mode", known)

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """Moves of the watermark, and work left."""
        return (self._event_key(watermark_event), self.backlog_key)

    def __str__(self) -> str:
        each = ", mode='each'" if self.mode is PassedMode.EACH else ""
        return f"WatermarkPassed({self.dataset}, every='{format_duration(self.every)}'{each})"

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with the move in `message` added: its start and end, in microseconds."""
        if message.event_key == self.backlog_key:
            return DataTrigger.feed(self, fed, message)
        if self.goes_back(message):
            last = self.last_passed(message)
            kept = tuple(end for end in fed.fires if last is not None and end <= last)
            return replace(fed, count=max(0, fed.count - len(fed.fires) + len(kept)), fires=kept)
        periods = self._periods(message)
        first, last_number = self._find_passed(periods, message)
        counted_from = max(first, last_number + 1 - MOST_TIMES)
        ends = tuple(periods.ends(counted_from, last_number))
        count = fed.count + counted_from - first + len(ends)
        return replace(fed, count=count, fires=(*fed.fires, *ends)[-MOST_TIMES:])

    def boundaries(self, message: Message) -> Passed | None:
        """Return the ends of periods that the watermark passed by the move in `message`; None: it passed none."""
        periods = self._periods(message)
        first, last = self._find_passed(periods, message)
        left_out = max(0, last + 1 - first - MOST_ENDS)
        first += left_out
        return Passed(periods.end(first), periods.end(last), periods.zone.name, left_out) if first <= last else None

    def goes_back(self, message: Message) -> bool:
        """Return whether `message` reports a move back: a rewind, or times that are read in another way.

        Errors: `UnreadableMessage` if `message` has no times.
        """
        before, after = message.payload.get("from"), message.payload.get("to")
        moments = [moment for moment in (before, after, message.payload.get("since")) if moment is not None]
        if not moments or any(not isinstance(moment, int) or moment not in _MOMENTS for moment in moments):
            raise UnreadableMessage(str(self), f"the watermark moved from {before!r} to {after!r}")
        return isinstance(before, int) and (not isinstance(after, int) or after < before)

    def last_passed(self, message: Message) -> datetime | None:
        """The last end of a period that lies behind the watermark after the move in `message`; None: there is none."""
        after, periods = message.payload.get("to"), self._periods(message)
        return periods.end(periods.last(after)) if isinstance(after, int) else None

    def _periods(self, message: Message) -> Periods:
        """The periods in the zone that `message` names. A message of an earlier Tidemill names none: UTC."""
        try:
            return Periods.of(self.every, message.payload.get("zone", "UTC"))
        except UnknownZone as error:
            raise UnreadableMessage(str(self), str(error)) from None

    def _find_passed(self, periods: Periods, message: Message) -> tuple[int, int]:
        """The numbers of the first and the last period that ended with a move forward; else the first is the greater.

        A first move passes all periods since the first rows may begin, where the message says that.
        """
        before, after = message.payload.get("from"), message.payload.get("to")
        if not isinstance(after, int):
            return 1, 0
        last = periods.last(after)
        since = message.payload.get("since") if before is None else before
        return (periods.last(since) + 1 if isinstance(since, int) else last, last)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by one period, or at once by work left."""
        return self._answer(fed[0], f"periods of {format_duration(self.every)}")
