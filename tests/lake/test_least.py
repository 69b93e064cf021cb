"""The watermark of a query over several tables, of which some may be idle: worked out by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.lake.window.least import QueryInput, find_least
from tidemill.shapes.partition_time import Instant
from tidemill.testing.clock import NOON


def to_input(value: int | None, minutes: int | None) -> QueryInput:
    """An input with its watermark, idle so many minutes after noon."""
    idle_at = None if minutes is None else NOON + timedelta(minutes=minutes)
    return QueryInput(None if value is None else Instant(value), idle_at)


@pytest.mark.parametrize(
    ("inputs", "least"),
    [
        ([(11, None), (10, None)], 10),
        ([(11, None), (None, None)], None),
        ([(11, None), (10, 0)], 11),  # idle at that moment
        ([(11, None), (10, 1)], 10),
        ([(11, None), (None, 5)], None),
        ([(11, None), (None, -5)], 11),  # never committed to
        ([(11, 5), (10, None)], 10),  # nothing is gained without the first
        ([(11, None), (10, 1), (10, 7)], 10),  # both hold it
        ([(11, -1), (10, -2), (12, -3)], 11),  # all idle: as when the first became idle
        ([(10, -1), (11, -2)], 10),
        ([(None, -1), (11, -2)], None),
        ([(10, 1), (12, 2)], 10),
        ([(10, 2), (12, 1)], 10),
    ],
)
def test_the_least_watermark_leaves_out_idle_inputs(inputs, least):
    """At noon."""
    assert find_least([to_input(*one) for one in inputs], NOON) == least
