"""Hunt mutants: `python -m tests.mutants [name …]` prints which tool finds each; exit code 1 when a mutant survives."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from datetime import UTC, datetime

import apsw

from tests.mutants.campaign import SEEDS, Fate, HuntFailed, Verdict, check_tools, hunt_all
from tests.mutants.every import MUTANTS
from tests.mutants.mutant import Killer, Room


def main() -> int:
    """Hunt the named mutants, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of mutants, or of rooms: {', '.join(Room)}; all when left out")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--only", type=Killer, choices=list(Killer), help="one of the tools")
    parser.add_argument("--unchecked", action="store_true", help="do not look at the unchanged product first")
    parser.add_argument("--list", action="store_true", help="list the mutants")
    given = parser.parse_args()
    known = {mutant.name for mutant in MUTANTS} | set(Room)
    if strangers := set(given.names) - known:
        parser.error(f"unknown: {', '.join(sorted(strangers))}")
    mutants = [m for m in MUTANTS if not given.names or {m.name, m.room} & set(given.names)]
    if given.list:
        for mutant in mutants:
            print(f"{mutant.room:14}{mutant.name:38}{mutant.forgets}")
        return 0
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {sys.version.split()[0]}, SQLite {apsw.sqlite_lib_version()}"
    )
    started = time.monotonic()
    try:
        if not given.unchecked:
            for killer, seconds in check_tools(given.only).items():
                print(f"the {killer} finds nothing in the product itself ({seconds:.0f} s)", flush=True)
        verdicts = hunt_all(mutants, jobs=given.jobs, only=given.only, tell=tell)
    except HuntFailed as error:
        print(error)
        return 2
    tell_figures(verdicts, time.monotonic() - started)
    return 1 if any(verdict.fate is Fate.SURVIVED for verdict in verdicts) else 0


def tell(verdict: Verdict) -> None:
    """Print a line about the fate of a mutant, and a line about the broken promise."""
    mutant = verdict.mutant
    print(f"{verdict.fate:9}{mutant.name:38}{verdict.by:28}{verdict.seconds:6.1f} s   {mutant.forgets}", flush=True)
    if verdict.seen:
        print(f"{'':9}{verdict.seen[:160]}", flush=True)


def tell_figures(verdicts: list[Verdict], seconds: float) -> None:
    """Print the table that docs/proof.md shows."""
    print(
        f"\n{'room':14}{'mutants':>8}{'explorer':>10}{'simulation':>12}{'joins':>7}{'chains':>8}{'policies':>10}"
        f"{'fail points':>13}{'hung':>6}{'survived':>10}"
    )
    for room in [*Room, None]:
        own = [verdict for verdict in verdicts if room in {None, verdict.mutant.room}]
        by = Counter(verdict.killer for verdict in own if verdict.fate is Fate.KILLED)
        fates = Counter(verdict.fate for verdict in own)
        print(
            f"{room or 'all':14}{len(own):8}{by[Killer.EXPLORER]:10}{by[Killer.SIMULATION]:12}"
            f"{by[Killer.JOINS]:7}{by[Killer.CHAINS]:8}{by[Killer.POLICIES]:10}{by[Killer.FAIL_POINTS]:13}"
            f"{fates[Fate.HUNG]:6}{fates[Fate.SURVIVED]:10}"
        )
    alive = ", ".join(verdict.mutant.name for verdict in verdicts if verdict.fate is Fate.SURVIVED)
    print(f"{seconds:.0f} s; {SEEDS} schedules a mutant at most; survived: {alive or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
