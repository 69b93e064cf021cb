"""Halving: how a claim, or a window, that fails whatever it is tried with comes to be tried alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

HALVE_AFTER: Final = 2
"""Failures of a suspect from which on a run keeps only half of what it holds."""


def halve(suspects: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return the first half, which is tried next, and the rest; the first half of one is that one."""
    half = max(1, len(suspects) // 2)
    return list(suspects[:half]), list(suspects[half:])
