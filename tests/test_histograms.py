"""Durations counted by bounds."""

from __future__ import annotations

from tidemill.histograms import Histogram


def test_a_bound_is_part_of_its_bucket():
    """Prometheus counts what is less than a bound, or equal to it."""
    histogram = Histogram((1.0, 10.0))
    for seconds in (0.5, 1.0, 1.5, 11.0):
        histogram.note(seconds)

    assert (histogram.buckets(), histogram.sum) == ([("1.0", 2), ("10.0", 3), ("+Inf", 4)], 14.0)
