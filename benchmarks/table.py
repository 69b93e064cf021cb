"""Figures, and how people read them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

OURS: Final = "Tidemill"


@dataclass(frozen=True, slots=True)
class Figure:
    """Row of the table. `values` are those of the repetitions.

    A figure of a peer has the peer's name as `system`, and the same `what`, `database` and `unit` as ours. If the peer
    could not be measured, `values` are empty, and `gap` is the reason.
    """

    benchmark: str
    what: str
    database: str
    values: Sequence[float]
    unit: str
    target: str = ""
    system: str = OURS
    gap: str = ""

    @property
    def median(self) -> float | None:
        """The middle of the repetitions; None for a gap."""
        return statistics.median(self.values) if self.values else None

    @property
    def more_is_better(self) -> bool:
        """True for rates; durations, sizes and shares are better if they are small."""
        return self.unit.endswith("/s")

    def fields(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {**asdict(self), "median": self.median}


def to_markdown(
    machine: Mapping[str, str], yardsticks: Mapping[str, Mapping[str, float]], figures: Sequence[Figure]
) -> str:
    """Return the table, below a description of the machine, and above the yardsticks of each benchmark."""
    lines = [*(f"- {name}: {value}" for name, value in machine.items()), "", *rows_of(figures), ""]
    lines += ["Ratio: how many times better the median of Tidemill is than the median of the peer in that row."]
    if yardsticks:
        lines += ["", *rows_of_yardsticks(yardsticks)]
    return "\n".join(lines) + "\n"


def rows_of(figures: Sequence[Figure]) -> list[str]:
    """Return the lines of the table."""
    lines = ["| # | What | System | Database | Median | Range | Unit | Target | Ratio |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for figure in figures:
        cells = [figure.benchmark, figure.what, figure.system, figure.database, *_measured(figure), figure.unit]
        ratio = ratio_of(figure, figures)
        cells += [figure.target, "" if ratio is None else short(ratio)]
        escaped = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| {' | '.join(escaped)} |")
    return lines


def rows_of_yardsticks(yardsticks: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the lines of a table: what the machine took for known work just before each benchmark."""
    names = list(dict.fromkeys(name for one in yardsticks.values() for name in one))
    lines = [f"| Yardsticks before | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for benchmark, measured in yardsticks.items():
        cells = [short(measured[name]) if name in measured else "" for name in names]
        lines.append(f"| {benchmark} | {' | '.join(cells)} |")
    return lines


def ratio_of(figure: Figure, figures: Sequence[Figure]) -> float | None:
    """Return how many times better ours is than `figure` of a peer; None if either was not measured."""
    for ours in figures:
        same = (ours.benchmark, ours.what, ours.database) == (figure.benchmark, figure.what, figure.database)
        if same and ours.system == OURS != figure.system and ours.median and figure.median:
            return ours.median / figure.median if figure.more_is_better else figure.median / ours.median
    return None


def short(value: float) -> str:
    """Return a number with three digits, or all digits of a larger whole part."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _measured(figure: Figure) -> tuple[str, str]:
    if figure.median is None:
        return "not measured", figure.gap
    low, high = min(figure.values), max(figure.values)
    return short(figure.median), f"{short(low)} – {short(high)} of {len(figure.values)}"
