"""`python -m tests.explore [scenario …]`: all orders of turns, a table of what was seen; exit code 1 if one fails."""

from __future__ import annotations

import argparse
import gc
import sys
from datetime import UTC, datetime

import apsw

from tests.explore.scenarios import LONG, QUICK, SCENARIOS
from tests.explore.search import Broken, Figures, Search


def main() -> int:
    """Search what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="the small ones, in half a minute")
    parser.add_argument(
        "--most-states", type=int, default=200_000, help="leave a scenario after so many states (200000)"
    )
    parser.add_argument(
        "--cut-every", type=int, default=1, help="cut the power in one of so many states, beside the first and last (1)"
    )
    given = parser.parse_args()
    names = given.scenarios or (QUICK if given.quick else LONG)
    failed = 0
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {sys.version.split()[0]}, SQLite {apsw.sqlite_lib_version()}"
    )
    print(
        f"{'scenario':16} {'states':>9} {'turns':>9} {'deepest':>7} {'ends':>7} {'power cuts':>10} {'CPU s':>7}",
        flush=True,
    )
    total = Figures()
    for name in names:
        search = Search(
            SCENARIOS[name](name),
            most_states=given.most_states,
            cut_every=8 if given.quick else given.cut_every,
            progress=lambda f, name=name: show(f"… {name}", f),
        )
        try:
            figures = search.run()
        except Broken as error:
            failed += 1
            show(f"BROKEN {name}", search.figures)
            print(f"{error}\nagain: python -m tests.explore {name}", flush=True)
            continue
        show(name, figures)
        for field in ("states", "turns", "ends", "recovered", "seconds"):
            setattr(total, field, getattr(total, field) + getattr(figures, field))
        total.deepest = max(total.deepest, figures.deepest)
        total.whole = total.whole and figures.whole
    show("all", total)
    print(f"{len(names)} scenarios, {failed} broken")
    return 1 if failed else 0


def show(name: str, figures: Figures) -> None:
    """Print a line."""
    bounded = "" if figures.whole else "  (bounded)"
    print(
        f"{name:16} {figures.states:9} {figures.turns:9} {figures.deepest:7} {figures.ends:7} {figures.recovered:10}"
        f" {figures.seconds:7.1f}{bounded}",
        flush=True,
    )


if __name__ == "__main__":
    gc.set_threshold(200_000)  # what lives, lives for the whole search
    sys.exit(main())
