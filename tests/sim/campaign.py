"""Many schedules: `python -m tests.sim --seeds 100000`; or one of them again: `--seed 17 --trace`.

Exit code 1 when a promise does not hold in some schedule. Its faults are then cut to the first steps without which all
would hold: the shortest failing prefix.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import apsw

from tests.sim.simulation import Outcome, prepared

_BATCH = 50
_KINDS = ("lost", "doubled", "dirty", "orphaned", "stuck", "died")


def play_batch(seeds: range) -> list[Outcome]:
    """Play some seeds in this process."""
    found = []
    with prepared() as play:
        for seed in seeds:
            found.append(play(seed))
            if found[-1].broken is not None:
                break  # what comes after it is found when it is mended
    return found


def shorten(play: Callable[..., Outcome], outcome: Outcome) -> tuple[int, Outcome]:
    """The smallest number of first steps with faults under which the schedule fails, and how it does.

    Faults are few, so each step at which one strikes is tried, from the first.
    """
    whole = play(outcome.seed, traced=True)
    struck = [int(line.partition(" ")[0]) for line in whole.trace if "  <- " in line]
    for last in [0, *struck]:
        shortened = play(outcome.seed, last_fault=last, traced=True)
        if shortened.broken is not None:
            return last, shortened
    return whole.steps, whole


def tell(outcome: Outcome) -> None:
    """Show a failing schedule, shortened, and how to see it again."""
    with prepared() as play:
        last, shortened = shorten(play, outcome)
    print(f"seed {outcome.seed} fails with faults in its first {last} steps alone: {shortened.broken}")
    for line in shortened.trace:
        print(f"  {line}")
    print(f"again: python -m tests.sim --seed {outcome.seed} --faults-until {last} --trace", flush=True)


def play_all(first: int, seeds: int, workers: int) -> Iterator[Outcome]:
    """All outcomes, as they come."""
    batches = (range(start, min(start + _BATCH, first + seeds)) for start in range(first, first + seeds, _BATCH))
    if workers == 1:
        with prepared() as play:
            for batch in batches:
                yield from (play(seed) for seed in batch)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for outcomes in pool.imap(play_batch, batches):
            yield from outcomes


def campaign(first: int, seeds: int, workers: int, minutes: float) -> int:
    """Play `seeds` seeds from `first` on, or as many as `minutes` allow; tell how it goes, and give the exit code."""
    began, told = time.monotonic(), time.monotonic()
    struck: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    failed: list[Outcome] = []
    for outcome in play_all(first, seeds, workers):
        struck += outcome.struck
        totals.update(schedules=1, steps=outcome.steps, runs=outcome.runs, transactions=outcome.transactions)
        if outcome.broken is not None:
            broken[outcome.kind] += 1
            print(f"BROKEN seed {outcome.seed}\n{outcome.broken}", flush=True)
            failed.append(outcome)
            if len(failed) == 1:
                tell(outcome)
        if time.monotonic() - told > 5:
            told = time.monotonic()
            print(f"{totals['schedules']} schedules, {struck.total()} faults, {len(failed)} failed", flush=True)
        if time.monotonic() - began > minutes * 60:
            break
    figures = {
        **{name: totals[name] for name in ("schedules", "steps", "runs", "transactions")},
        "faults": struck.total(),
        **{f"  {name}": number for name, number in struck.most_common()},
        **{kind: broken[kind] for kind in (*_KINDS, *sorted(broken.keys() - _KINDS))},
    }
    print(f"\nsimulation of seeds {first} to {first + seeds - 1}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    if totals["schedules"] < seeds:
        last = first + totals["schedules"] - 1
        print(
            f"STOPPED after {minutes:g} minutes at seed {last}: {seeds - totals['schedules']:,} seeds were not played"
        )
    print(f"Python {sys.version.split()[0]}, SQLite {apsw.sqlite_lib_version()}, {time.monotonic() - began:.0f} s")
    for name, number in figures.items():
        print(f"{name:<28}{number:>12,}")
    return 1 if failed else 0


def main() -> int:
    """Run the campaign from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long, and say at which seed")
    parser.add_argument("--workers", type=int, default=2, help="processes that play")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--faults-until", type=int, help="with --seed: no faults after so many steps")
    parser.add_argument("--trace", action="store_true", help="with --seed: show each step")
    asked = parser.parse_args()
    if asked.seed is None:
        return campaign(asked.first, asked.seeds, asked.workers, asked.minutes)
    with prepared() as play:
        outcome = play(asked.seed, last_fault=asked.faults_until, traced=asked.trace)
    print(*outcome.trace, sep="\n")
    if outcome.broken is not None:
        print(f"BROKEN seed {outcome.seed}\n{outcome.broken}")
        return 1
    print(f"all holds: {outcome.steps} steps, {outcome.transactions} transactions, faults {dict(outcome.struck)}")
    return 0
