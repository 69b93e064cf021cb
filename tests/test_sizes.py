"""Sizes are text with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.sizes import BadSize, exact_bytes, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"), [("0 B", 0), ("14KB", 14_000), ("100 GB", 100_000_000_000), ("64 KiB", 65_536), ("1PB", 10**15)]
)
def test_a_size_is_its_number_in_its_unit(text, size):
    """KB and KiB differ by 2.4 %: a limit must mean what it says."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "100", "GB", "1.5 GB", "-1 GB", "1 gb", "1 XB", "1  GB", 5])
def test_what_is_no_size_is_refused(text):
    """A bare number does not say its unit."""
    with pytest.raises(BadSize, match="whole number with a unit"):
        parse_bytes(text)


@given(st.integers(0, 10**18))
def test_shown_sizes_are_short(size):
    """They stand in lines of a log."""
    assert len(format_bytes(size)) <= 10


@given(st.integers(0, 10**15 - 1), st.sampled_from(["B", "KB", "MiB", "GB", "PiB"]))
def test_an_exact_size_is_read_back(number, unit):
    """The stored limit must be the limit."""
    size = parse_bytes(f"{number} {unit}")

    assert parse_bytes(exact_bytes(size)) == size
