"""Figures, and how people read them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """Row of the table. `values` are those of the repetitions."""

    benchmark: str
    what: str
    database: str
    values: Sequence[float]
    unit: str
    target: str = ""

    @property
    def median(self) -> float:
        """The middle of the repetitions."""
        return statistics.median(self.values)

    def fields(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {**asdict(self), "median": self.median}


def to_markdown(machine: dict[str, str], figures: Sequence[Figure]) -> str:
    """The table, below what it was measured on."""
    lines = [*(f"- {name}: {value}" for name, value in machine.items()), ""]
    lines += ["| # | What | Database | Median | Range | Unit | Target |", "|---|---|---|---|---|---|---|"]
    for figure in figures:
        low, high = min(figure.values), max(figure.values)
        cells = [figure.benchmark, figure.what, figure.database, _short(figure.median)]
        cells += [f"{_short(low)} – {_short(high)} of {len(figure.values)}", figure.unit, figure.target]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
