"""Writes the tables and plots of docs/benchmarks.md: `python -m benchmarks.page`, or `make bench-page`.

The figures of `benchmarks/result.json` replace those of the same benchmarks in `docs/benchmarks.json`. Then the page
and its plots are made from that file, so that no figure of the page is typed by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from benchmarks.plots import plot
from benchmarks.table import OURS, Figure, rows_of, rows_of_yardsticks

ROOT: Final = Path(__file__).resolve().parent.parent
RESULT: Final = ROOT / "benchmarks" / "result.json"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
KEPT: Final = ROOT / "docs" / "benchmarks.json"
IMAGES: Final = ROOT / "docs" / "images"
SHOWN: Final = ("B1", "B2", "B3", "B11", "B12")
"""Benchmarks with peers, and the one that follows from them."""
_PART: Final = re.compile(r"(<!-- figures of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def merge(kept: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return `kept` with the benchmarks of `result` in place of its own. Each benchmark keeps its machine."""
    merged = dict(kept)
    for name in SHOWN:
        if figures := [figure for figure in result["figures"] if figure["benchmark"] == name]:
            yardsticks = {**result["yardsticks"].get(name, {})}
            merged[name] = {"machine": result["machine"], "yardsticks": yardsticks, "figures": figures}
    return {name: merged[name] for name in SHOWN if name in merged}


def figures_of(kept: Mapping[str, Any], name: str) -> list[Figure]:
    """Return the figures of one benchmark."""
    known = [field.name for field in fields(Figure)]
    return [Figure(**{key: one[key] for key in known if key in one}) for one in kept[name]["figures"]]


def shown_in_plot(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures of things that a peer was measured for as well, or of which ours is a rate."""
    compared = {figure.what for figure in figures if figure.system != OURS}
    return [figure for figure in figures if figure.what in compared or figure.more_is_better]


def render(page: str, kept: Mapping[str, Any]) -> str:
    """Return the page with its tables."""
    return _PART.sub(lambda found: f"{found[1]}{_part(kept, found[2])}{found[3]}", page)


def _part(kept: Mapping[str, Any], name: str) -> str:
    if name not in kept:
        return "Not measured yet.\n"
    machine = (f"- {key}: {value}" for key, value in kept[name]["machine"].items())
    lines = [f"![Bars of the figures below](images/bench-{name.lower()}.svg)", ""]
    lines += [*rows_of(figures_of(kept, name)), "", *rows_of_yardsticks({name: kept[name]["yardsticks"]}), ""]
    return "\n".join([*lines, "Measured on:", "", *machine]) + "\n"


def plots_of(kept: Mapping[str, Any]) -> dict[str, str]:
    """Return the plots by the names of their files."""
    return {f"bench-{name.lower()}.svg": plot(shown_in_plot(figures_of(kept, name))) for name in kept}


def main() -> int:
    """The program."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    if RESULT.exists():
        kept = merge(kept, json.loads(RESULT.read_text(encoding="utf-8")))
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")
    for name, text in plots_of(kept).items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
