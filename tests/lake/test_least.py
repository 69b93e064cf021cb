"""The watermark of a query over several tables, of which some may be idle: worked out by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.lake.window.least import QueryInput, find_least, find_rise
from tidemill.shapes.partition_time import Instant
from tidemill.testing.clock import NOON


def to_input(value: int | None, minutes: int | None) -> QueryInput:
    """An input with its watermark, idle so many minutes after noon."""
    idle_at = None if minutes is None else NOON + timedelta(minutes=minutes)
    return QueryInput(None if value is None else Instant(value), idle_at)


@pytest.mark.parametrize(
    ("inputs", "least", "rises"),
    [
        ([(11, None), (10, None)], 10, None),
        ([(11, None), (None, None)], None, None),
        ([(11, None), (10, 0)], 11, None),  # idle at that moment
        ([(11, None), (10, 1)], 10, 1),
        ([(11, None), (None, 5)], None, 5),
        ([(11, None), (None, -5)], 11, None),  # never committed to
        ([(11, 5), (10, None)], 10, None),  # nothing is gained without the first
        ([(11, None), (10, 1), (10, 7)], 10, 7),  # both hold it
        ([(11, -1), (10, -2), (12, -3)], 11, None),  # all idle: as when the first became idle
        ([(10, -1), (11, -2)], 10, None),
        ([(None, -1), (11, -2)], None, None),
        ([(10, 1), (12, 2)], 10, 1),
        ([(10, 2), (12, 1)], 10, None),
    ],
)
def test_the_least_watermark_leaves_out_idle_inputs(inputs, least, rises):
    """At noon; and the minute at which it rises by itself."""
    given = [to_input(*one) for one in inputs]

    found = find_rise(given, NOON)

    assert find_least(given, NOON) == least
    assert found == (None if rises is None else NOON + timedelta(minutes=rises))
