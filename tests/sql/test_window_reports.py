"""Reports about watermarks and windows: alerts about misdated partitions, and metrics."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime

import pytest

from tests.sql.hours import open_plain, write_app
from tidemill.alerts.conditions import Found, MachineState, check_names, look
from tidemill.alerts.rules import PartitionMisdated
from tidemill.errors import NotFound
from tidemill.mill.metrics import Metric, measure
from tidemill.names import Namespace


def look_at(plain) -> Found:
    """Return what a rule about the partitions of the clicks finds."""
    rule, machine = PartitionMisdated("clicks"), MachineState("here")
    return plain.mill.project.catalog.read(lambda db: look(rule, db, Namespace("default"), None, machine))


def read_metrics(plain) -> dict[tuple[str, ...], float]:
    """Return the samples of watermarks and windows, by the metric and the values of labels after the first."""
    found = [
        one for one in measure(plain.mill.project).samples if one.metric.startswith(("tidemill_wa", "tidemill_wi"))
    ]
    return {(one.metric, *[*one.labels.values()][1:]): one.value for one in found}


def test_an_alert_tells_of_partitions_without_a_time_and_of_those_too_far_ahead(catalog_url, tmp_path):
    """Nothing waits for them, so nothing else would tell. A drop, or a time that can be read, ends the alert."""
    plain = open_plain(tmp_path / "project", catalog_url)
    with contextlib.closing(plain.mill):
        plain.add("2021-03-19 10:00", 1)
        before = look_at(plain)
        with plain.transaction("clicks") as tx:
            for day, hour in ((date(2021, 3, 19), 25), (date(2021, 3, 19), 26), (date(2099, 1, 1), 1)):
                tx.fileset("default.clicks").create_empty({"day": day, "hour": hour})
        (found,), next_look_at = look_at(plain).violations, look_at(plain).next_look_at
        counted = read_metrics(plain)
        shown = tuple(one.partition for one in plain.mill.watermarks.show("clicks").parked)
        (need,) = plain.mill.overview().needs
        (again,) = look_at(plain).violations
        plain.mill.datasets.drop("clicks", {"hour": 26})
        plain.mill.datasets.drop("clicks", {"day": date(2099, 1, 1)})
        dropped, still = look_at(plain), plain.mill.overview().needs
        plain.deploy(write_app().replace('pattern="$day $hour:00:00"', 'pattern="$day"'))
        after, well = look_at(plain), plain.mill.overview().needs

    assert (before.violations, before.next_look_at) == ((), None)
    assert "no time can be read from day=2021-03-19 hour=25, day=2021-03-19 hour=26;" in found.why
    assert "partitions of 2099-01-01 01:00:00 are further ahead" in found.why
    assert (need.kind, need.thing, need.look) == ("misdated", "default.clicks", "watermark show default.clicks")
    assert need.evidence in found.why
    assert found.since == again.since == need.since, "the commit of the first of the partitions"
    assert ([one.kind for one in still], well) == (["misdated"], ())
    assert next_look_at is not None
    assert next_look_at.replace(microsecond=0) == datetime(2099, 1, 1, 1, tzinfo=UTC)
    assert shown == ("day=2021-03-19 hour=25", "day=2021-03-19 hour=26")
    assert (counted[Metric.WATERMARK_PARKED,], counted[Metric.WATERMARK_AHEAD,]) == (2, 1)
    assert ["hour=26" in one.why or "2099" in one.why for one in dropped.violations] == [False]
    assert after.violations == ()


def test_a_rule_about_an_inbox_is_refused_and_finds_nothing(catalog_url, tmp_path):
    """The data set of a name may have another kind later: no rule may stop the looks at the others."""
    plain = open_plain(tmp_path / "project", catalog_url)
    with contextlib.closing(plain.mill):
        plain.sql("UPDATE dataset SET kind = 'inbox' WHERE name = 'clicks' RETURNING 1")
        with pytest.raises(NotFound, match=r"no file set named 'default\.clicks'"):
            plain.mill.project.catalog.read(lambda db: check_names(db, PartitionMisdated("default.clicks")))
        found = look_at(plain)

    assert found == Found(())


def test_metrics_say_what_waits_for_a_window_program_and_what_its_last_run_did(catalog_url, tmp_path):
    """By look-ups: a scrape reads no history."""
    plain = open_plain(tmp_path / "project", catalog_url, more="late='drop', outside='drop', idle_timeout='1h'")
    with contextlib.closing(plain.mill):
        for hour in (8, 9):
            plain.add(f"2021-03-19 {hour:02}:00", 1, 2, 61)
        waiting = read_metrics(plain)
        plain.settle()
        plain.add("2021-03-19 08:00", 3)
        plain.add("2021-03-19 10:00", 3)
        plain.run()
        done = read_metrics(plain)
        plain.sql("UPDATE watermark SET committed_at = 0 RETURNING 1")
        idle = read_metrics(plain)
        plain.mill.watermarks.reset("shop.count_hours")
        after_reset = read_metrics(plain)

    assert waiting[Metric.WINDOW_PARTITIONS_WAITING,] == 2
    assert waiting[Metric.WINDOW_BYTES_WAITING,] > 0
    assert (Metric.WINDOW_SECONDS,) not in waiting
    assert (done[Metric.WINDOW_PARTITIONS_WAITING,], done[Metric.WINDOW_BYTES_WAITING,]) == (0, 0)
    assert (done[Metric.WINDOWS_OF_RUN, "closed"], done[Metric.WINDOWS_OF_RUN, "recomputed"]) == (1, 0)
    assert done[Metric.WINDOW_SECONDS,] >= 0
    assert after_reset[Metric.WINDOWS_OF_RUN, "closed"] == 1
    assert (done[Metric.WINDOW_ROWS_LEFT_OUT, "late"], done[Metric.WINDOW_ROWS_LEFT_OUT, "outside"]) == (1, 2)
    assert (done[Metric.WINDOW_IDLE_INPUTS,], idle[Metric.WINDOW_IDLE_INPUTS,]) == (0, 1)


def test_a_writer_that_appends_often_and_times_that_overlap_are_advised_about(catalog_url, tmp_path):
    """Each append computes a window again. An interval of two hours does not fit hourly partitions."""
    plain = open_plain(tmp_path / "project", catalog_url)
    with contextlib.closing(plain.mill):
        for hour in (8, 9, 10):
            plain.add(f"2021-03-19 {hour:02}:00", 1)
        before = plain.mill.watermarks.show("clicks").advice
        for _ in range(3):
            for hour in (8, 9, 10):
                plain.add(f"2021-03-19 {hour:02}:00", 1)
        (often,) = plain.mill.watermarks.show("clicks").advice
        plain.deploy(write_app(more='completeness="delay(10 min)"').replace('interval="1h"', 'interval="2h"'))
        (uneven,) = plain.mill.watermarks.show("clicks").advice

    assert before == ()
    assert "3 of the latest 24 times got rows by two commits or more after they were complete" in often
    assert often.endswith("set 'partition.completeness' to 'delay(10 min)'")
    assert "the partitions of 2021-03-19 09:00:00 and 2021-03-19 10:00:00 overlap" in uneven
