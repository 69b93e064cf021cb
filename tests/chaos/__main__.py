"""Kill and stop real processes, and PostgreSQL: `python -m tests.chaos --seconds 600 [--seed N] [--database sqlite]`.

The time is shared out: storms on SQLite and on PostgreSQL, then one on PostgreSQL whose server is crashed again and
again. After each all work must come to its end, and then there is a verdict. Prints a table; ends with 1, and keeps the
folder with catalog, data and findings, when anything was found.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version

import apsw

from tests.chaos.campaign import Outcome, run_campaign
from tests.chaos.minutes import WINDOWS
from tests.chaos.site import STARTS, WAITS

CRASHES = 10
_REST = 25
"""Seconds that a storm takes beside its raging: start, rest, verdict."""
_RESUMED_WITHIN = 10.0
KILLS, STOPS = 1000, 150
"""Promises of a long storm, on each database."""
_LONG = 600


def main(arguments: list[str]) -> int:
    """The program; 1 when a promise did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for all storms together")
    parser.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    parser.add_argument("--database", choices=["sqlite", "postgres", "crash", "both"], default="both")
    parser.add_argument("--crashes", type=int, default=CRASHES, help="of PostgreSQL's server")
    options = parser.parse_args(arguments)
    shares = {"sqlite": 0.4, "postgres": 0.4, "crash": 0.2}
    wanted = list(shares) if options.database == "both" else [options.database]
    began = time.monotonic()
    outcomes = []
    for name in wanted:
        seconds = max(5.0, options.seconds * shares[name] / sum(shares[one] for one in wanted) - _REST)
        crashes = options.crashes if name == "crash" else 0
        database = "sqlite" if name == "sqlite" else "postgres"
        print(f"{name}: a storm of {seconds:.0f} s", flush=True)
        outcome = run_campaign(
            database,
            seconds=seconds,
            seeds=[options.seed],
            crashes=crashes,
            report=lambda line: print(line, flush=True),
        )
        print(f"{name}: at rest after {outcome.settled_after:.1f} s; {_found(outcome)}", flush=True)
        print(f"{name}: windows: {_of_windows(outcome)} kills of their drivers", flush=True)
        outcomes.append((name, outcome))
    print(_table(outcomes, options.seed, time.monotonic() - began))
    complaints = list(_complaints(outcomes, long=options.seconds >= _LONG))
    print("\n".join(complaints))
    return 1 if complaints else 0


def _complaints(outcomes: list[tuple[str, Outcome]], *, long: bool):
    for name, outcome in outcomes:
        if not outcome.verdict.holds:
            yield f"{name}: {_found(outcome)}; look at {outcome.folder}"
        # The time until the next completed run is reported too. But most attempts are killed, so that time says little
        # about the crash.
        slow = [one for one in outcome.crashes if not _resumed(one.transaction)]
        if slow:
            yield f"{name}: work did not go on within {_RESUMED_WITHIN:.0f} s: {slow}"
        kills, stops = outcome.figures.kills.total(), outcome.figures.stops.total()
        if long and name != "crash" and (kills < KILLS or stops < STOPS):
            yield f"{name}: {kills} kills and {stops} stops are less than the {KILLS} and {STOPS} that are promised"


def _resumed(seconds: float | None) -> bool:
    return seconds is not None and seconds <= _RESUMED_WITHIN


def _found(outcome: Outcome) -> str:
    found = {kind: len(found) for kind, found in outcome.verdict.findings.items() if found}
    return f"found {found}" if found else "nothing found"


def _table(outcomes: list[tuple[str, Outcome]], seed: int, seconds: float) -> str:
    names = [name for name, _ in outcomes]
    rows: dict[str, list[object]] = {}

    def row(what: str, value) -> None:
        rows[what] = [value(outcome) for _, outcome in outcomes]

    row("seconds of storm", lambda o: f"{o.figures.seconds:.0f}")
    row("kills (-9)", lambda o: o.figures.kills.total())
    row("stops", lambda o: o.figures.stops.total())
    row("of these longer than the lease", lambda o: o.figures.long_stops)
    row("faults a second", lambda o: f"{(o.figures.kills.total() + o.figures.stops.total()) / o.figures.seconds:.1f}")
    row("faults that found nobody", lambda o: o.figures.missed)
    row("stops given up (held SQLite's lock)", lambda o: o.figures.let_go)
    for victim in sorted({str(victim) for _, o in outcomes for victim in o.figures.kills | o.figures.stops}):
        row(f"{victim}: kills / stops", lambda o, v=victim: f"{o.figures.kills[v]} / {o.figures.stops[v]}")
    row("killed at a mark of the product", lambda o: sum(_at_marks(o).values()))
    row("different marks at which", lambda o: len(_at_marks(o)))
    row("windows: kills of their drivers", _of_windows)
    row("server crashes", lambda o: len(o.crashes))
    for what in outcomes[0][1].verdict.counts:
        row(what, lambda o, w=what: o.verdict.counts.get(w, "-"))
    row("seconds until all work was done", lambda o: f"{o.settled_after:.1f}")
    for kind in outcomes[0][1].verdict.findings:
        row(kind, lambda o, k=kind: len(o.verdict.findings[k]))
    row("slowest next commit after a crash, s", lambda o: _slowest([one.transaction for one in o.crashes]))
    row("slowest next completed run after a crash, s", lambda o: _slowest([one.run for one in o.crashes]))
    head = [
        (
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, seed {seed}, {seconds:.0f} s, {os.cpu_count()} cores, load "
            f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()} (apsw "
            f"{version('apsw')}), psycopg {version('psycopg')}, {platform.system()} {platform.release()}"
        ),
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    return "\n".join([*head, *(f"| {what} | {' | '.join(map(str, values))} |" for what, values in rows.items())])


def _at_marks(outcome: Outcome) -> Counter[str]:
    found: Counter[str] = Counter()
    for stood, n in outcome.figures.stood.items():
        if stood not in {STARTS, WAITS}:
            found[stood.partition(" ")[0]] += n
    return found


def _of_windows(outcome: Outcome) -> int:
    """Kills of drivers of window programs, while they were at it."""
    return sum(n for stood, n in outcome.figures.stood.items() if stood.partition(" ")[2] in WINDOWS)


def _slowest(seconds: list[float | None]) -> str:
    if not seconds:
        return "-"
    return "never" if None in seconds else f"{max(one for one in seconds if one is not None):.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
