"""`Watermark`: how an app says in Python what `CREATE TABLE … WITH (…)` says in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tidemill.durations import format_duration, parse_duration
from tidemill.errors import UserError
from tidemill.shapes import watermark_spec as options
from tidemill.shapes.custom_time import CustomTime, load, name_of
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.watermark_spec import WatermarkSpec

_NAMES: Final = {
    options.PATTERN: "pattern",
    options.FORMATTER: "formatter",
    options.CLASS: "extractor",
    options.INTERVAL: "interval",
    options.ZONE: "zone",
    options.ROW_LAG: "row_lag",
    options.LATE: "late",
    options.ALLOWED: "allowed_lateness",
    options.GAP: "gap",
    options.OUTSIDE: "outside",
    options.EXPECTED_COUNT: "expected_count",
    options.MAX_AHEAD: "max_ahead",
    options.IDLE: "idle_timeout",
    options.COMPLETENESS: "completeness",
    options.SUCCESS_FILE: "success_file",
    options.ORDER: "partition_order",
    options.START: "start",
    options.WINDOW_ZONE: "window_zone",
    options.PARTIAL_FIRST: "partial_first",
    options.SESSION_MAX: "session_max",
    options.EMIT_EMPTY: "emit_empty",
    options.MAX_WINDOWS: "max_windows",
    options.MAX_PARTITIONS: "max_partitions",
    options.MAX_BYTES: "max_bytes",
}


_OF_MONITORED: Final = (options.ORDER, options.START, options.SUCCESS_FILE)


class BadWatermark(UserError):
    """A watermark that its file set cannot have."""

    code = "bad_watermark"
    hint = "correct the watermark in the app file, and deploy again"

    def __init__(self, fileset: str, why: str) -> None:
        self.fileset = fileset
        self.why = why
        super().__init__(f"the watermark of file set {fileset} is refused: {why}")


@dataclass(frozen=True, slots=True)
class Watermark:
    """The time in column `column` of a file set, and how far it is complete: by the times of the partitions.

    `pattern` is filled with a partition's keys (`"$day $hour:00:00"`) and read by `formatter` (Java's letters; a date
    with or without a time when left out): the wall-clock time, in `zone`, at which the partition's `interval` begins.
    In the place of both, `extractor` is a function of the project that returns this time, as a datetime without a zone,
    from a mapping of the keys to their values (`extractor=read_time`, or its name: `"times:read_time"`). Rows may lie
    `row_lag` before it. `expected` names the partitions of one time that belong together (`{"region": ["eu", "us"]}`),
    or `expected_count` how many. A missing time is skipped, or waited for (`gap="wait"`), or waited for until two hours
    after a later one is complete (`gap="wait(2h)"`). Late partitions have their windows computed again
    (`late="recompute"`), until `allowed_lateness` after the end of a window. Or late partitions count in open windows
    only (`"drop"`, `"side"`), or the run fails (`"error"`). Rows outside their partition's time go to the side table
    (`outside="side"`), are an error (`"error"`), are left out (`"drop"`) or count in the windows of their own times
    (`"include"`). Partitions further ahead of the clock than `max_ahead` (one interval) do not count yet. A query over
    several file sets does not wait for one without a commit for `idle_timeout` (for ever). `completeness` joins
    conditions on which a partition is complete by `+`: `"commit"` and `"delay(10 min)"` (nothing in the partition has
    changed for so long). Monitored file sets alone have `"success-file"` (a file `success_file`, by default `_SUCCESS`,
    is in the directory that another program wrote), `partition_order` and `start`: the order in which partitions of
    one listing are published, and the first partition that counts. Windows are aligned in `window_zone` (`zone`). One
    run computes at most `max_windows` (1000), and its new windows read at most `max_partitions` (2000) and `max_bytes`
    (`"64 GiB"`) of the file set. A run computes at least one window. Windows that begin before the first time are
    computed from what is there (`partial_first="emit"`), or left out (`"skip"`). A session that goes on for
    `session_max` (24 hours) is closed by force. With `emit_empty=True` a window without rows gives out a row, if a
    query groups by columns of the window alone.
    """

    column: str
    interval: str
    pattern: str | None = None
    formatter: str | None = None
    extractor: str | CustomTime | None = None
    zone: str | None = None
    row_lag: str | timedelta | None = None
    late: str | None = None
    allowed_lateness: str | timedelta | None = None
    gap: str | None = None
    outside: str | None = None
    expected: Mapping[str, Sequence[object]] = field(default_factory=dict)
    expected_count: int | None = None
    max_ahead: str | timedelta | None = None
    idle_timeout: str | timedelta | None = None
    completeness: str | None = None
    success_file: str | None = None
    partition_order: str | None = None
    start: str | None = None
    window_zone: str | None = None
    partial_first: str | None = None
    emit_empty: bool | None = None
    max_windows: int | None = None
    max_partitions: int | None = None
    max_bytes: str | None = None
    session_max: str | timedelta | None = None

    def check(self, fileset: str, keys: KeySchema, *, monitored: bool) -> WatermarkSpec:
        """Check the declaration against the keys of the file set, and return it as the catalog keeps it.

        The directory of a `monitored` file set is listed. Some options are for such file sets alone.

        Errors: `BadWatermark`.
        """
        given = {name: getattr(self, attribute) for name, attribute in _NAMES.items()}
        texts = {name: _text(value) for name, value in given.items() if value is not None and value is not False}
        for key, values in self.expected.items():
            texts[f"{options.EXPECTED}{key}"] = ", ".join(map(str, values))
        try:
            if self.extractor is not None:
                named = self.extractor if isinstance(self.extractor, str) else name_of(self.extractor)
                texts |= {options.KIND: "custom", options.CLASS: named}
            spec = WatermarkSpec.of(self.column, {options.ENABLE: "true", **texts}, keys)
            if isinstance(self.extractor, str):
                load(self.extractor)  # so that the deployment packs its module
        except UserError as error:
            raise BadWatermark(fileset, str(error)) from None
        if spec.completeness.metastore:
            raise BadWatermark(fileset, options.NOT_OF_HIVE)
        if not monitored and spec.completeness.marker is not None:
            raise BadWatermark(fileset, options.NO_MARKERS)
        if not monitored and (useless := [_NAMES[name] for name in _OF_MONITORED if name in spec.options]):
            why = f"{useless[0]}= does nothing without monitor_every=: commits bring the partitions. Leave it out"
            raise BadWatermark(fileset, why)
        return spec


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{parse_duration(value) // timedelta(milliseconds=1)} ms" if value else format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
