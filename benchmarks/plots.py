"""Plots of figures: bars on one scale for each thing that is measured, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from benchmarks.table import OURS, Figure, short

_WIDTH: Final = 760
_LABELS: Final = 250
"""Width of the names on the left."""
_NUMBERS: Final = 110
"""Width that is left on the right for the number of the longest bar."""
_BAR: Final = 16
_LINE: Final = 26
_HEAD: Final = 34
_DECADES: Final = 1.5
"""Figures that differ by more powers of ten than this are drawn on a logarithmic scale."""
_COLORS: Final = {OURS: "#1f6f8b"}
_PEER: Final = "#b9b2a6"
_STYLE: Final = (
    "text{font:13px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#26323a}"
    ".title{font-weight:600}.note{fill:#6b747a;font-size:12px}"
)


def plot(figures: Sequence[Figure]) -> str:
    """Return an SVG with a panel for each `what` of `figures`, in their order."""
    panels = list(dict.fromkeys((figure.what, figure.unit) for figure in figures))
    parts: list[str] = []
    top = 8
    for what, unit in panels:
        rows = [figure for figure in figures if (figure.what, figure.unit) == (what, unit)]
        parts += _panel(what, unit, rows, top)
        top += _HEAD + _LINE * len(rows) + 12
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}"'
        f' role="img"><title>{escape(", ".join(what for what, _ in panels))}</title><style>{_STYLE}</style>'
        f'<rect width="{_WIDTH}" height="{top}" rx="6" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _panel(what: str, unit: str, rows: Sequence[Figure], top: int) -> Iterator[str]:
    better = "more is better" if rows[0].more_is_better else "less is better"
    scale = _Scale([row.median for row in rows if row.median])
    notes = [note for note in (unit, better, scale.note) if note]
    yield f'<text class="title" x="12" y="{top + 18}">{escape(what)}</text>'
    yield f'<text class="note" x="{_WIDTH - 12}" y="{top + 18}" text-anchor="end">{escape(", ".join(notes))}</text>'
    for number, row in enumerate(rows):
        yield from _bar(row, scale, top + _HEAD + _LINE * number)


def _bar(row: Figure, scale: _Scale, top: int) -> Iterator[str]:
    middle = top + _BAR - 3
    yield f'<text x="{_LABELS - 10}" y="{middle}" text-anchor="end">{escape(_label(row))}</text>'
    if row.median is None:
        yield f'<text class="note" x="{_LABELS}" y="{middle}">{escape(_cut(f"not measured: {row.gap}"))}</text>'
        return
    end = scale.place(row.median)
    color = _COLORS.get(row.system, _PEER)
    yield f'<rect x="{_LABELS}" y="{top}" width="{end - _LABELS:.1f}" height="{_BAR}" rx="2" fill="{color}"/>'
    low, high = (scale.place(value) for value in (min(row.values), max(row.values)))
    if high - low > 1:
        yield (
            f'<path d="M{low:.1f} {top + _BAR / 2} H{high:.1f}" stroke="#26323a" stroke-opacity="0.55" fill="none"/>'
        )
    yield f'<text x="{max(end, high) + 8:.1f}" y="{middle}">{short(row.median)}</text>'


class _Scale:
    """Places of numbers: from zero, or by powers of ten if the numbers differ much. Ranges end at the right edge."""

    def __init__(self, medians: Sequence[float]) -> None:
        low, high = (min(medians), max(medians)) if medians else (1.0, 1.0)
        self._logarithmic = low > 0 and math.log10(high / low) > _DECADES
        self._least = 10 ** math.floor(math.log10(low) - 0.3) if self._logarithmic else 0.0
        self._most = high

    @property
    def note(self) -> str:
        """The name of a scale that does not begin at zero."""
        return "logarithmic scale" if self._logarithmic else ""

    def place(self, value: float) -> float:
        """Return the x of a value."""
        if self._logarithmic:
            share = math.log(max(value, self._least) / self._least) / math.log(self._most / self._least)
        else:
            share = value / self._most if self._most else 0.0
        room = _WIDTH - _LABELS - _NUMBERS
        return _LABELS + min(max(share, 0.0) * room, room + _NUMBERS / 3)


def _label(row: Figure) -> str:
    return row.system if row.database == "-" else f"{row.system}, {row.database}"


def _cut(text: str) -> str:
    return text if len(text) <= 72 else f"{text[:71]}…"
