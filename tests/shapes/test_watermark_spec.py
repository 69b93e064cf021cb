"""Options of a watermark: what is taken, and what is refused with the option, its value and the cure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.errors import UserError
from tidemill.json_specs import read_text, write_text
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.watermark_spec import (
    Completeness,
    GapPolicy,
    LatePolicy,
    OutsidePolicy,
    PartialFirst,
    PartitionOrder,
    StoredWatermark,
    WatermarkSpec,
    leave_out,
)

KEYS = KeySchema.of({"day": "date", "hour": "int", "region": "string"})
HOUR = 3_600_000_000


def spec(**options: str) -> WatermarkSpec:
    """A watermark with options, `__` for a dot and `_` for a dash."""
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return WatermarkSpec.of("ts", {"partition.time-interval": "1h"} | given, KEYS)


def test_only_the_interval_must_be_given():
    """Everything else is as the seed has it; the guard against a partition of 2099 is one interval."""
    found = spec()

    assert (found.late, found.gap, found.row_lag) == (LatePolicy.RECOMPUTE, GapPolicy.SKIP, 0)
    assert found.max_ahead == HOUR
    assert not found.enabled
    assert (found.max_windows, found.max_partitions, found.max_bytes) == (1000, 2000, 64 * 2**30)
    assert (found.monitor_every, found.session_max) == (timedelta(minutes=1), 24 * HOUR)
    assert (found.outside, found.partial_first) == (OutsidePolicy.SIDE, PartialFirst.EMIT)
    assert (found.completeness, found.order) == (Completeness(), PartitionOrder.PARTITION_TIME)
    assert (found.allowed_lateness, found.idle_timeout, found.emit_empty) == (None, None, False)
    assert found.window_zone.name == found.partition_time.zone.name == "UTC"


def test_what_is_given_is_kept():
    """By the names of the page, so that a table says the same in SQL and in Python."""
    found = spec(partition__row_lag="15 min", partition__time_zone="Europe/Berlin", streaming_source__enable="TRUE")

    again = WatermarkSpec.restore(read_text(StoredWatermark, write_text(found.stored)), KEYS)

    assert again == found
    assert (found.row_lag, found.window_zone.name, found.enabled) == (HOUR // 4, "Europe/Berlin", True)


@pytest.mark.parametrize("name", ["watermark", "scan__watermark", "table__exec__source"])
def test_the_idle_time_out_has_the_names_of_flink(name):
    """Statements for Flink run unchanged; zero is for ever, as there."""
    found, never = (spec(**{f"{name}__idle_timeout": value}) for value in ("5 min", "0 ms"))

    assert found.idle_timeout == timedelta(minutes=5)
    assert found.options["watermark.idle-timeout"] == "5 min"
    assert never.idle_timeout is None


def test_expected_partitions_are_all_combinations():
    """With two keys of two values each, four partitions belong to one time."""
    found = spec(partition__expected__region="eu, us", partition__expected__hour="01,2")

    assert found.expected_count == 4
    assert found.member(KEYS, KEYS.parse("day=2021-03-19 hour=1 region=eu")) == "1/eu"
    assert found.member(KEYS, KEYS.parse("day=2021-03-19 hour=3 region=eu")) is None


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("partition.time-intervall", "1h", "did you mean 'partition.time-interval'?"),
        ("streaming-source.enabled", "true", "did you mean 'streaming-source.enable'?"),
        ("window.size", "1h", "there is no such option"),
        ("partition.time-interval", "1", "use a number and a unit"),
        ("partition.time-zone", "Berlin", "there is no such zone"),
        ("partition.time-extractor.timestamp-pattern", "$dya", "did you mean $day?"),
        ("partition.time-extractor.timestamp-formatter", "hh", "12-hour clock"),
        ("partition.time-extractor.kind", "custom", "'partition.time-extractor.class' must name the function"),
        ("partition.time-extractor.kind", "costum", "did you mean 'custom'?"),
        ("partition.time-extractor.class", "a:b", "only 'partition.time-extractor.kind'='custom' has a class"),
        ("partition.late-policy", "recomputed", "did you mean 'recompute'?"),
        ("partition.gap-policy", "later", "use skip or wait or wait(<duration>)"),
        ("partition.gap-policy", "wait()", "use a number and a unit"),
        ("partition.gap-policy", "wait(1 month)", "months differ"),
        ("partition.allowed-lateness", "1 month", "months differ"),
        ("partition.outside-policy", "included", "did you mean 'include'?"),
        ("partition.allowed-lateness", "soon", "use a number and a unit"),
        ("partition.completeness", "succes-file", "did you mean 'success-file'?"),
        ("partition.completeness", "commit+commit", "each once, joined by +"),
        ("partition.completeness", "delay(1)", "use text with units"),
        ("partition.completeness", "meta-store", "use commit, success-file, metastore and delay"),
        ("sink.partition-commit.success-file.name", "done", "a name that begins with _ or ."),
        ("streaming-source.monitor-interval", "0s", "use a duration above 0"),
        ("streaming-source.consume-start-offset", "yesterday", "use a time without a zone"),
        ("partition.expected.regoin", "eu", "did you mean 'partition.expected.region'?"),
        ("partition.expected.region", "eu,eu", "give each value once"),
        ("partition.expected.region", "eu,,us", "no partition has such a key: it is empty"),
        ("partition.expected.hour", "1, 01", "give each value once"),
        ("partition.expected.hour", "1, x", "no partition has such a key: it wants an integer of 32 bits, not 'x'"),
        (
            "partition.expected.hour",
            "99999999999",
            "no partition has such a key: it is 99999999999, which does not fit",
        ),
        ("partition.expected.day", "2021-3-19", "no partition has such a key: it wants a date, not '2021-3-19'"),
        ("partition.time-interval", "3600000000 us", "A number has 9 digits at most"),
        ("partition.row-lag", "soon", "use a number and a unit, as '1h', '30 min', '1 day' or '1 week'"),
        ("partition.gap-policy", "wait(soon)", "use a number and a unit, as '1h', '30 min', '1 day' or '1 week'"),
        ("partition.expected-count", "0", "use a whole number"),
        ("partition.row-lag", "1 month", "months differ"),
        ("streaming-source.enable", "yes", "use 'true' or 'false'"),
        ("comment", "mine", "there is no such option"),
        ("formt", "csv", "did you mean 'format'?"),
        ("streaming-source.partition-order", "time", "use partition-time or partition-name or create-time"),
        ("streaming-source.partition.include", "latest", "only 'all' is known"),
        ("watermark.idle-timeout", "soon", "use a number and a unit"),
        ("window.batch.max-bytes", "many", "use a whole number with a unit"),
        ("window.partial-first", "drop", "use emit or skip"),
        ("window.session.max", "1s", "use a duration from 1 minute"),
        ("window.emit-empty", "yes", "use 'true' or 'false'"),
    ],
)
def test_a_wrong_option_is_refused_with_the_cure(option, value, told):
    """The line names the option, its value, and what is allowed."""
    with pytest.raises(UserError) as refused:
        WatermarkSpec.of("ts", {"partition.time-interval": "1h", option: value}, KEYS)

    assert told in str(refused.value)
    assert f"option '{option}'='{value}' is refused: " in str(refused.value)


def test_a_key_is_no_time_of_rows_and_two_rules_are_one_too_many():
    """A declaration that contradicts itself is refused at once."""
    with pytest.raises(UserError, match="key of the partitions"):
        WatermarkSpec.of("Day", {"partition.time-interval": "1h"}, KEYS)
    with pytest.raises(UserError, match="a watermark needs it"):
        WatermarkSpec.of("ts", {}, KEYS)
    with pytest.raises(UserError, match=r"by partition\.expected\.<key> or by a count"):
        spec(partition__expected__region="eu", partition__expected_count="2")


def test_options_of_flink_that_would_do_nothing_are_left_out_with_a_notice():
    """A statement written for Flink runs; its author reads what it does not do here."""
    given = {
        "scan.watermark.alignment.group": "a",
        "sink.partition-commit.success-file.name": "_DONE",
        "streaming-source.consume-order": "create-time",
        "streaming-source.monitor-interval": "1s",
        "streaming-source.partition.consume-start-offset": "2021-03-19 10:00:00",
    }

    kept, notices = leave_out({"partition.time-interval": "1h", **given}, monitored=False)
    of_monitored, (left_out,) = leave_out(given, monitored=True)

    assert kept == {"partition.time-interval": "1h"}
    assert sorted(line.split("'")[1] for line in notices) == sorted(given)
    assert left_out.split("'")[1] == "scan.watermark.alignment.group"
    assert of_monitored == {name: value for name, value in given.items() if name != "scan.watermark.alignment.group"}


def test_a_wall_clock_column_is_refused_in_the_zone_of_the_project():
    """Its first rows say so, where the columns were not known before."""
    spec = WatermarkSpec.of("ts", {"partition.time-interval": "1h"}, KEYS, "Europe/Berlin")

    assert spec.find_column_fault({"ts": "timestamp"}) is None
    assert "the project has Europe/Berlin: write 'partition.time-zone'='UTC'" in spec.find_column_fault(
        {"TS": "timestamp_ntz"}
    )
