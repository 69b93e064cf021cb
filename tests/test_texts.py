"""Texts from outside."""

from __future__ import annotations

import pytest

from tidemill.texts import printable


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain, né, 🌊\n\t", "plain, né, 🌊\n\t"),
        ("i\0d\0", "i\N{REPLACEMENT CHARACTER}d\N{REPLACEMENT CHARACTER}"),
        ("half \ud83c, \udce9", "half \N{REPLACEMENT CHARACTER}, \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_what_no_catalog_stores_is_replaced(text, kept):
    """A single such character in an error would refuse the whole commit that records it."""
    assert printable(text) == kept
