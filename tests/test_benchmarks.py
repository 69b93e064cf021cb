"""Benchmarks are run by hand and seldom: here they are only looked at."""

from __future__ import annotations

from pathlib import Path


def test_every_benchmark_can_be_loaded_and_is_in_the_table():
    """One that imports what has moved would be found on the day when its figure is wanted."""
    from benchmarks.__main__ import ALL

    readme = (Path(__file__).resolve().parent.parent / "benchmarks" / "README.md").read_text(encoding="utf-8")

    assert [name for name in ALL if f"| {name} |" not in readme] == []
