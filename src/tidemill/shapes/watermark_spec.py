"""Watermark declaration of a file set: its column, and options by the names that Flink gave them (seed 003).

Every option is a text, as in `CREATE TABLE … WITH ('partition.time-interval'='1h')`. The refusal of a wrong option
gives its name, its value and the allowed values. Statements written for Flink run unchanged. Options of Flink that
would do nothing here are left out, with a notice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import product
from typing import Final, TypeVar

from tidemill.durations import BadDuration, parse_duration, split_duration
from tidemill.errors import UserError
from tidemill.json_specs import sparse
from tidemill.names import advise
from tidemill.shapes.custom_time import check_name
from tidemill.shapes.keys import BadKey, Key, KeyField, KeySchema, KeyType
from tidemill.shapes.partition_time import Extractor, Interval, PartitionTime, Zone
from tidemill.shapes.time_formats import BadPartitionTime
from tidemill.sizes import BadSize, parse_bytes

_E = TypeVar("_E", bound=StrEnum)
_T = TypeVar("_T")

ENABLE: Final = "streaming-source.enable"
PATTERN: Final = "partition.time-extractor.timestamp-pattern"
FORMATTER: Final = "partition.time-extractor.timestamp-formatter"
KIND: Final = "partition.time-extractor.kind"
CLASS: Final = "partition.time-extractor.class"
INTERVAL: Final = "partition.time-interval"
ZONE: Final = "partition.time-zone"
UTC: Final = "UTC"
"""The time zone where nothing names one."""
ROW_LAG: Final = "partition.row-lag"
OUTSIDE: Final = "partition.outside-policy"
LATE: Final = "partition.late-policy"
ALLOWED: Final = "partition.allowed-lateness"
GAP: Final = "partition.gap-policy"
EXPECTED_COUNT: Final = "partition.expected-count"
MAX_AHEAD: Final = "watermark.max-ahead"
IDLE: Final = "watermark.idle-timeout"
WINDOW_ZONE: Final = "window.time-zone"
PARTIAL_FIRST: Final = "window.partial-first"
SESSION_MAX: Final = "window.session.max"
EMIT_EMPTY: Final = "window.emit-empty"
MAX_WINDOWS: Final = "window.batch.max-windows"
MAX_PARTITIONS: Final = "window.batch.max-partitions"
MAX_BYTES: Final = "window.batch.max-bytes"
MONITOR: Final = "streaming-source.monitor-interval"
ORDER: Final = "streaming-source.partition-order"
START: Final = "streaming-source.consume-start-offset"
COMPLETENESS: Final = "partition.completeness"
SUCCESS_FILE: Final = "sink.partition-commit.success-file.name"
EXPECTED: Final = "partition.expected."

NOT_OF_HIVE: Final = f"'{COMPLETENESS}' names the metastore, and the table is in none: leave it out"
NO_MARKERS: Final = (
    f"'{COMPLETENESS}' names success-file, and no listing looks for that file: commits bring the partitions. "
    f"Use commit or delay(D), or wait for several partitions by '{EXPECTED}<key>' or '{EXPECTED_COUNT}'"
)
_RULES: Final = ("commit", "success-file", "metastore")
_DELAY: Final = re.compile(r"delay\(([^()]*)\)")
WINDOW_TIME: Final = "window_time"
WINDOW_TIMES: Final = (WINDOW_TIME, "window_start")
"""The columns of windows whose watermark follows the window programs that write them."""
CONNECTION: Final = ("connector", "path", "format")
"""Options of CREATE TABLE alone, about the files of the table."""
_ONE_VALUE: Final[Mapping[str, tuple[str, str]]] = {
    "streaming-source.partition.include": ("all", "a table of which only the latest partition counts has no windows"),
}
"""Options of which one value is known so far, and why not another."""
_OPTIONS: Final = (
    ENABLE, KIND, CLASS, PATTERN, FORMATTER, INTERVAL, ZONE, ROW_LAG, OUTSIDE, LATE, ALLOWED, GAP, EXPECTED_COUNT,
    MAX_AHEAD, IDLE, WINDOW_ZONE, PARTIAL_FIRST, SESSION_MAX, EMIT_EMPTY, MAX_WINDOWS, MAX_PARTITIONS, MAX_BYTES,
    MONITOR, ORDER, START, COMPLETENESS, SUCCESS_FILE, *_ONE_VALUE,
)  # fmt: skip
_PREFIXES: Final = ("partition.", "streaming-source.", "watermark.", "window.")
_ALIASES: Final = {
    "streaming-source.consume-order": ORDER,
    "streaming-source.partition.consume-start-offset": START,
    "scan.watermark.idle-timeout": IDLE,
    "table.exec.source.idle-timeout": IDLE,
}
_MEANINGLESS: Final[Mapping[str, str]] = {
    "scan.watermark.alignment.": "there is nothing to align: windows are computed in batches",
    "scan.watermark.emit.": "a watermark moves with each commit",
    "scan.parallelism": "Spark decides it",
    "sink.parallelism": "Spark decides it",
    "sink.partition-commit.": "partitions are published by the commit of their transaction",
    "auto-compaction": "it has no meaning here",
    "compaction.file-size": "`compact` merges small files, and takes their size",
    "partition.default-name": "a partition has a value for each key, and no default",
    "sink.rolling-policy.": "a transaction writes the files of a partition, and `compact` merges small ones",
    "source.monitor-interval": "the option is 'streaming-source.monitor-interval'",
    "lookup.": "a run reads one version of a snapshot, and no cache is needed",
}
_WAITS: Final = re.compile(r"wait\((.*)\)")
_NOT_LISTED: Final = "a commit announces its partitions; only a table with a path of its own is listed"
_OF_MONITORED: Final[Mapping[str, str]] = dict.fromkeys((MONITOR, ORDER, START, SUCCESS_FILE), _NOT_LISTED)
_MOST_EXPECTED: Final = 10_000


class BadTableOption(UserError):
    """An option of a table that is not known, or has a value that it cannot have."""

    code = "bad_watermark_option"
    hint = "correct the option as the reason says"

    def __init__(self, option: str, value: str, why: str) -> None:
        self.option = option
        self.value = value
        self.why = why
        super().__init__(f"option '{option}'='{value}' is refused: {why}")


class BadTimeColumn(UserError):
    """A column that cannot be the time of rows."""

    code = "bad_time_column"
    hint = "name a column of the file set that holds a timestamp, and is no key"

    def __init__(self, dataset: str, column: str, why: str) -> None:
        self.dataset = dataset
        self.column = column
        super().__init__(f"column {column!r} of {dataset} cannot be the time of its rows: {why}")


class LatePolicy(StrEnum):
    """Rule for late partitions: new or changed partitions whose rows may be in computed windows."""

    RECOMPUTE = "recompute"
    DROP = "drop"
    SIDE = "side"
    ERROR = "error"


class GapPolicy(StrEnum):
    """Rule for a time slot without a partition: the watermark passes the slot or waits for it."""

    SKIP = "skip"
    WAIT = "wait"


class PartitionOrder(StrEnum):
    """Order in which the partitions of one listing are published, and the meaning of the start offset."""

    PARTITION_TIME = "partition-time"
    PARTITION_NAME = "partition-name"
    CREATE_TIME = "create-time"
    """The time of the oldest file of the partition."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """Conditions on which a partition is complete, beside the commit that adds it."""

    marker: str | None = None
    """The name of a file in the directory of the partition."""
    delay: timedelta = timedelta(0)
    """The time for which nothing in the partition has changed."""
    metastore: bool = False
    """True if a Hive metastore has to list the partition, as it does each partition of a table of Hive."""

    @classmethod
    def parse(cls, text: str, marker: str) -> Completeness:
        """Read rules that are joined by `+`; `BadPartitionTime` says what is wrong."""
        rules = [rule.strip() for rule in text.split("+")]
        delays = [match[1] for rule in rules if (match := _DELAY.fullmatch(rule))]
        unknown = [rule for rule in rules if rule not in _RULES and not _DELAY.fullmatch(rule)]
        if unknown or len(set(rules)) < len(rules) or len(delays) > 1:
            why = (
                "use commit, success-file, metastore and delay(D), each once, joined by +: 'success-file+delay(10 min)'"
            )
            raise BadPartitionTime("completeness", text, advise(unknown[0] if unknown else "", ["success-file"], why))
        try:
            delay = parse_duration(delays[0]) if delays else timedelta(0)
        except BadDuration as error:
            raise BadPartitionTime("completeness", text, str(error)) from None
        return cls(marker if "success-file" in rules else None, delay, "metastore" in rules)

    @property
    def waits(self) -> bool:
        """True if a partition may be there and not be complete."""
        return self.marker is not None or bool(self.delay)


class ExtractorKind(StrEnum):
    """Reading of the time in a partition's key: by a pattern, or by a function of the project."""

    DEFAULT = "default"
    CUSTOM = "custom"


class OutsidePolicy(StrEnum):
    """Rule for rows whose time is not in the span of their partition."""

    SIDE = "side"
    ERROR = "error"
    DROP = "drop"
    INCLUDE = "include"
    """Such rows count in the windows of their own times."""


class PartialFirst(StrEnum):
    """Rule for windows that begin before the first time slot: such a window lacks the rows of earlier times."""

    EMIT = "emit"
    SKIP = "skip"


@sparse
@dataclass(frozen=True, slots=True)
class StoredWatermark:
    """A declared watermark as the catalog keeps it: the options as the user gave them, and the declarer."""

    column: str
    options: Mapping[str, str]
    by: str | None = None
    """`statement` for a watermark that a statement has declared: a deployment leaves it."""
    default_zone: str = UTC
    """The time zone of the project when the watermark was declared, which counts where the options name none."""


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """A declared watermark, checked; `options` are those that were given. Durations are microseconds."""

    column: str
    options: Mapping[str, str]
    default_zone: str
    enabled: bool
    partition_time: PartitionTime
    row_lag: int
    late: LatePolicy
    allowed_lateness: int | None
    """For how long after its end a window is computed again; None for ever."""
    gap: GapPolicy
    gap_wait: int | None
    """For how long a missing slot is waited for, once a later slot is complete; None for ever."""
    outside: OutsidePolicy
    expected: frozenset[tuple[str, ...]]
    """Partitions for which a time slot waits, as values of `expected_keys`. If empty, any partition completes the slot.
    """
    expected_keys: tuple[str, ...]
    expected_count: int
    monitor_every: timedelta
    completeness: Completeness
    order: PartitionOrder
    start: str | None
    """Start offset: partitions before it do not belong to a monitored table. A time, or a name of a partition."""
    max_ahead: int
    idle_timeout: timedelta | None
    """The time without a commit after which queries over several tables no longer wait for this one; None for ever."""
    window_zone: Zone
    partial_first: PartialFirst
    session_max: int
    """The time after which a session is closed by force."""
    emit_empty: bool
    """Windows without rows give out a row, where a query groups by columns of the window alone."""
    max_windows: int
    max_partitions: int
    max_bytes: int

    @classmethod
    def of(cls, column: str, given: Mapping[str, str], keys: KeySchema, default_zone: str = UTC) -> WatermarkSpec:
        """Read the options of a table with these keys; `BadTableOption` or `BadPartitionTime` says what is wrong.

        `default_zone` counts where the options name no time zone.
        """
        options = _known(given, keys)
        read = _Reader(options)
        if column.lower() in {name.lower() for name in keys.names}:
            raise BadTableOption("watermark", column, "a key of the partitions cannot be the time of the rows")
        if INTERVAL not in options:
            raise BadTableOption(
                INTERVAL, "", "a watermark needs it: how long a partition's time is, as '1h' or '1 day'"
            )
        interval = read.made(INTERVAL, Interval.parse)
        zone = read.made(ZONE, Zone) if ZONE in options else Zone(default_zone)
        if PATTERN in options:
            read.made(PATTERN, lambda pattern: Extractor(keys, pattern))
        if FORMATTER in options:
            read.made(FORMATTER, lambda formatter: Extractor(keys, None, formatter))
        expected = {one.name: read.values(one) for one in keys.fields if EXPECTED + one.name in options}
        count = read.number(EXPECTED_COUNT, 1)
        if expected and EXPECTED_COUNT in options:
            raise BadTableOption(EXPECTED_COUNT, options[EXPECTED_COUNT], f"say it by {EXPECTED}<key> or by a count")
        order = read.one_of(ORDER, PartitionOrder)
        members = frozenset(product(*expected.values())) if expected else frozenset()
        if len(members) > _MOST_EXPECTED:
            raise BadTableOption(
                EXPECTED + next(iter(expected)), "…", f"one slot would wait for {len(members)} partitions"
            )
        late = read.one_of(LATE, LatePolicy)
        gap, gap_wait = read.gap()
        return cls(
            column=column,
            options=dict(sorted(options.items())),
            default_zone=default_zone,
            enabled=read.flag(ENABLE),
            partition_time=PartitionTime(
                Extractor(keys, options.get(PATTERN), options.get(FORMATTER), read.custom()), interval, zone
            ),
            row_lag=_micros(read.duration(ROW_LAG, timedelta(0))),
            late=late,
            allowed_lateness=read.allowed_lateness(late),
            gap=gap,
            gap_wait=gap_wait,
            outside=read.one_of(OUTSIDE, OutsidePolicy),
            expected=members,
            expected_keys=tuple(expected),
            expected_count=len(members) or count,
            monitor_every=read.monitor_every(),
            completeness=read.completeness(),
            order=order,
            start=read.start(order),
            max_ahead=_micros(read.duration(MAX_AHEAD, interval.longest)),
            idle_timeout=read.duration(IDLE, timedelta(0)) or None,
            window_zone=read.made(WINDOW_ZONE, Zone) if WINDOW_ZONE in options else zone,
            partial_first=read.one_of(PARTIAL_FIRST, PartialFirst),
            session_max=read.session_max(),
            emit_empty=read.flag(EMIT_EMPTY),
            max_windows=read.number(MAX_WINDOWS, 1000),
            max_partitions=read.number(MAX_PARTITIONS, 2000),
            max_bytes=read.made(MAX_BYTES, parse_bytes) if MAX_BYTES in options else parse_bytes("64 GiB"),
        )

    @classmethod
    def restore(cls, stored: StoredWatermark, keys: KeySchema) -> WatermarkSpec:
        """Make the spec that `stored` was made of."""
        return cls.of(stored.column, stored.options, keys, stored.default_zone)

    @property
    def stored(self) -> StoredWatermark:
        """Declaration as the catalog keeps it."""
        return StoredWatermark(self.column, self.options, default_zone=self.default_zone)

    @property
    def final_after(self) -> int | None:
        """For how long after its end late rows change a window; None for ever."""
        return self.allowed_lateness if self.late is LatePolicy.RECOMPUTE else 0

    @property
    def keeps_late(self) -> bool:
        """Return whether late rows that count in no window go to the side table."""
        return self.late is LatePolicy.SIDE or self.allowed_lateness is not None

    @property
    def reading(self) -> object:
        """Rule for reading times. If the rule changes, the watermark and all windows are computed from the start."""
        return self.partition_time, self.row_lag, self.window_zone

    @property
    def follows_windows(self) -> bool:
        """Return whether the watermark follows the window programs that write the file set, if there are some."""
        return self.column.lower() in WINDOW_TIMES

    @property
    def slots(self) -> object:
        """Rule for time slots: their position in time, and the conditions on which a slot is complete."""
        return (
            self.reading,
            self.gap,
            self.gap_wait,
            self.expected,
            self.expected_count,
            self.completeness,
            self.max_ahead,
            self.column.lower() if self.follows_windows else "",
        )

    def refuse_types(self, dataset: str, types: Mapping[str, str]) -> None:
        """Raise `BadTimeColumn` where a file set with these columns (Spark's types by name) has the time column.

        Rows that lack the column are taken: later ones may bring it.
        """
        known = {name.lower() for name in types}
        if self.column.lower() in known and (fault := self.find_column_fault(types)):
            raise BadTimeColumn(dataset, self.column, fault)

    def find_column_fault(self, types: Mapping[str, str]) -> str | None:
        """Return why the column cannot be the time of rows with these columns (Spark's types by name)."""
        return find_column_fault(self.column, self.options, types, self.default_zone)

    def member(self, keys: KeySchema, key: Key) -> str | None:
        """Return the member of the time slot that `key` is, as text. None if the slot does not wait for `key`."""
        if not self.expected:
            return keys.encode(key)
        values = {name: str(value) for name, value in zip(keys.names, key, strict=True)}
        member = tuple(values[name] for name in self.expected_keys)
        return "/".join(member) if member in self.expected else None

    def members_like(self, keys: KeySchema, key: Key) -> str:
        """Return the pattern (`KeySchema.make_pattern`) of the keys that are the same member as `key`."""
        return keys.make_pattern(key, self.expected_keys or keys.names)


def has_no_zone(column: str, types: Mapping[str, str]) -> bool:
    """Return whether `column` is among columns with these types, and its times have no time zone."""
    return {name.lower(): kind for name, kind in types.items()}.get(column.lower()) == "timestamp_ntz"


def find_column_fault(
    column: str, options: Mapping[str, str], types: Mapping[str, str], default_zone: str = UTC
) -> str | None:
    """Return why `column` cannot be the time of rows with these columns (Spark's types by name); None if it can."""
    kind = {name.lower(): kind for name, kind in types.items()}.get(column.lower())
    if kind is None:
        return f"there is no such column among {', '.join(types)}; TIMESTAMP or TIMESTAMP_NTZ is wanted"
    if kind not in {"timestamp", "timestamp_ntz"}:
        return f"it is of type {kind}; TIMESTAMP or TIMESTAMP_NTZ is wanted"
    zoned = next((name for name in (ZONE, WINDOW_ZONE) if options.get(name, UTC) != UTC), None)
    if kind == "timestamp_ntz" and zoned is None and options.get(ZONE, default_zone) != UTC:
        return (
            f"it is TIMESTAMP_NTZ, which has no time zone, and the project has {default_zone}: write '{ZONE}'='UTC' "
            "(in Python zone='UTC'), or make the column a TIMESTAMP"
        )
    if kind == "timestamp_ntz" and zoned is not None:
        return (
            f"it is TIMESTAMP_NTZ, which has no time zone: leave out '{zoned}'='{options[zoned]}' (in Python "
            f"{'zone' if zoned == ZONE else 'window_zone'}=), or make the column a TIMESTAMP"
        )
    return None


def read_start(text: str) -> datetime:
    """Read a start offset that is a time of a wall clock; `BadPartitionTime`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise BadPartitionTime("start offset", text, "use a time without a zone, as '2021-03-19 10:00:00'")
    return found


def is_option(name: str) -> bool:
    """Return whether a property of a table is one of the options here, or is meant to be one."""
    return name.startswith(_PREFIXES) or name in {SUCCESS_FILE, *_ALIASES}


def own_name(option: str) -> str:
    """Return the name of an option here, for a name of Flink or our own."""
    return _ALIASES.get(option, option)


def leave_out(given: Mapping[str, str], *, monitored: bool) -> tuple[dict[str, str], list[str]]:
    """Return the options that do something, and a notice for each option of Flink that is left out.

    Some options do something only for a `monitored` table, whose files other programs write.
    """
    useless = {} if monitored else _OF_MONITORED
    why = {name: useless[own_name(name)] for name in sorted(given) if own_name(name) in useless}
    names = given.keys() - {SUCCESS_FILE}
    why |= {name: why for name in sorted(names) for prefix, why in _MEANINGLESS.items() if name.startswith(prefix)}
    kept = {name: value for name, value in given.items() if name not in why}
    return kept, [f"option '{name}' is left out: {reason}" for name, reason in why.items()]


def _known(given: Mapping[str, str], keys: KeySchema) -> dict[str, str]:
    """Return the options by their own names; raise `BadTableOption` for an option that is not known."""
    known: dict[str, str] = {}
    for alias, value in given.items():
        name = own_name(alias)
        if name in _OPTIONS or (name.startswith(EXPECTED) and name.removeprefix(EXPECTED) in keys.names):
            known[name] = value
        else:
            all_known = [*CONNECTION, *_OPTIONS, *_ALIASES, *(EXPECTED + key for key in keys.names)]
            raise BadTableOption(alias, value, "there is no such option" + advise(name, all_known, before="; "))
    for alias, value in given.items():
        only, why = _ONE_VALUE.get(own_name(alias), (value, ""))
        if value != only:
            raise BadTableOption(alias, value, f"only '{only}' is known: {why}")
    return known


@dataclass(frozen=True, slots=True)
class _Reader:
    options: Mapping[str, str]

    def made(self, name: str, make: Callable[[str], _T]) -> _T:
        """Return `make` of an option's text. A refusal names the option."""
        value = self.options[name]
        try:
            return make(value)
        except (BadPartitionTime, BadSize) as error:
            raise BadTableOption(name, value, error.why) from None

    def flag(self, name: str) -> bool:
        value = self.options.get(name, "false")
        if value.lower() not in {"true", "false"}:
            raise BadTableOption(name, value, "use 'true' or 'false'")
        return value.lower() == "true"

    def number(self, name: str, default: int) -> int:
        value = self.options.get(name, str(default))
        if not value.isascii() or not value.isdigit() or not 0 < int(value) <= 1_000_000:
            raise BadTableOption(name, value, "use a whole number from 1 to 1000000")
        return int(value)

    def duration(self, name: str, default: timedelta) -> timedelta:
        value = self.options.get(name)
        if value is None:
            return default
        if value.strip() == "0" or not any(number for number, _ in split_duration(value) or [(1, "")]):
            return timedelta(0)
        return self._span(name, value)

    def _span(self, name: str, text: str) -> timedelta:
        if split_duration(text) is None:
            why = "use a number and a unit, as '1h', '30 min', '1 day' or '1 week'"
            raise BadTableOption(name, self.options[name], why)
        interval = self.made(name, lambda _: Interval.parse(text))
        if interval.months:
            raise BadTableOption(name, self.options[name], "use weeks, days, hours, minutes or seconds: months differ")
        return interval.longest

    def custom(self) -> str | None:
        """Read the name of a custom extractor, which is there with the kind `custom` alone."""
        if self.one_of(KIND, ExtractorKind) is ExtractorKind.DEFAULT:
            if CLASS in self.options:
                raise BadTableOption(CLASS, self.options[CLASS], f"only '{KIND}'='custom' has a class: set it too")
            return None
        if CLASS not in self.options:
            raise BadTableOption(KIND, "custom", f"'{CLASS}' must name the function, as 'times:read_time'")
        for name in (PATTERN, FORMATTER):
            if name in self.options:
                raise BadTableOption(name, self.options[name], f"'{KIND}'='custom' reads the keys: leave it out")
        return self.made(CLASS, check_name)

    def gap(self) -> tuple[GapPolicy, int | None]:
        """Read `skip`, `wait`, or `wait(1h)`: the rule, and for how long it waits."""
        found = _WAITS.fullmatch(self.options.get(GAP, ""))
        if found is None:
            return self.one_of(GAP, GapPolicy, also=("wait(<duration>)",)), None
        return GapPolicy.WAIT, _micros(self._span(GAP, found[1]))

    def allowed_lateness(self, late: LatePolicy) -> int | None:
        if ALLOWED not in self.options:
            return None
        allowed = self.duration(ALLOWED, timedelta(0))
        if late is not LatePolicy.RECOMPUTE:
            why = f"only '{LATE}'='recompute' has windows that are computed again: leave one of the two options out"
            raise BadTableOption(ALLOWED, self.options[ALLOWED], why)
        return _micros(allowed)

    def monitor_every(self) -> timedelta:
        every = self.duration(MONITOR, timedelta(minutes=1))
        if every < timedelta(milliseconds=1):
            raise BadTableOption(MONITOR, self.options[MONITOR], "use a duration above 0, as '1 min'")
        return every

    def session_max(self) -> int:
        longest = self.duration(SESSION_MAX, timedelta(hours=24))
        if not timedelta(minutes=1) <= longest <= timedelta(days=366):
            raise BadTableOption(SESSION_MAX, self.options[SESSION_MAX], "use a duration from 1 minute to 366 days")
        return _micros(longest)

    def completeness(self) -> Completeness:
        marker = self.options.get(SUCCESS_FILE, "_SUCCESS")
        if not marker.startswith(("_", ".")) or "/" in marker:
            raise BadTableOption(SUCCESS_FILE, marker, "use a name that begins with _ or ., so that no reader reads it")
        if COMPLETENESS not in self.options:
            return Completeness()
        return self.made(COMPLETENESS, lambda rules: Completeness.parse(rules, marker))

    def start(self, order: PartitionOrder) -> str | None:
        if START in self.options and order is not PartitionOrder.PARTITION_NAME:
            self.made(START, read_start)
        return self.options.get(START)

    def one_of(self, name: str, kind: type[_E], also: Sequence[str] = ()) -> _E:
        known = [one.value for one in kind]
        value = self.options.get(name, known[0])
        if value in known:
            return kind(value)
        raise BadTableOption(name, value, advise(value, known, f"use {' or '.join([*known, *also])}"))

    def values(self, field: KeyField) -> tuple[str, ...]:
        """Read the values that a key is expected to have, as the keys of partitions have them: 1 for 01."""
        name = EXPECTED + field.name
        texts = [value.strip() for value in self.options[name].split(",")]
        if field.type in {KeyType.INT, KeyType.LONG}:
            texts = [re.sub(r"(?<!\d)0+(?=\d)", "", text) for text in texts]
        try:
            found = tuple(str(field.parse(text)) for text in texts)
        except BadKey as error:
            raise BadTableOption(name, self.options[name], f"no partition has such a key: it {error.why}") from None
        if len(set(found)) < len(found):
            raise BadTableOption(name, self.options[name], "give each value once, with commas between: 'eu, us'")
        return found


def _micros(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
