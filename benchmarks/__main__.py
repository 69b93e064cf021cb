"""Run benchmarks, all or those named: `python -m benchmarks B4 B10`, or `make bench ONLY="B4 B10"`.

Prints one table in Markdown, and writes it with all figures to `benchmarks/result.md` and `benchmarks/result.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, b16, b17
from benchmarks.machine import describe_machine, measure_yardsticks
from benchmarks.processes import ending_processes, exit_at_signals
from benchmarks.table import Figure, to_markdown
from tests.postgres_server import running_server

ALL: dict[str, Callable[[str], Iterator[Figure]]] = {
    "B1": b1.run,
    "B2": b2.run,
    "B3": b3.run,
    "B4": b4.run,
    "B5": b5.run,
    "B6": b6.run,
    "B7": b7.run,
    "B8": b8.run,
    "B9": b9.run,
    "B10": b10.run,
    "B11": b11.run,
    "B12": b12.run,
    "B13": b13.run,
    "B14": b14.run,
    "B15": b15.run,
    "B16": b16.run,
    "B17": b17.run,
}
REST = "what was not measured"


def main(wanted: list[str]) -> int:
    """The program; 1 if a benchmark failed, 2 for a benchmark that there is not."""
    if unknown := set(wanted) - ALL.keys():
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    exit_at_signals()
    figures: list[Figure] = []
    machine: dict[str, str] = {}
    yardsticks: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        for name in wanted or ALL:
            # A server for each, so that no benchmark counts the rows of another; on disk, since that is measured too.
            with ending_processes(), running_server(durable=True) as postgres:
                machine = machine or describe_machine(postgres, folder)
                yardsticks[name] = measure_yardsticks(folder)
                for database, url in (("SQLite", f"sqlite:///{folder}/{name}.db"), ("PostgreSQL", postgres)):
                    print(f"{name} on {database} …", file=sys.stderr, flush=True)
                    started = time.monotonic()
                    figures += measure(name, database, url, ALL[name])
                    print(f"{name} on {database} took {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
                    # After each, so that a signal loses no figure of those before it.
                    _write(machine, yardsticks, figures)
    print(to_markdown(machine, yardsticks, figures))
    return 1 if any(figure.what == REST for figure in figures) else 0


def measure(name: str, database: str, url: str, run: Callable[[str], Iterator[Figure]]) -> list[Figure]:
    """Return the figures of a benchmark on one database. If it fails, the last one is a gap with the reason."""
    figures: list[Figure] = []
    try:
        figures += run(url)
    except Exception as error:  # noqa: BLE001  # the next benchmarks are measured all the same
        traceback.print_exc()
        figures.append(Figure(name, REST, database, (), "", gap=f"failed: {error!r}"))
    return figures


def _write(machine: dict[str, str], yardsticks: dict[str, dict[str, float]], figures: list[Figure]) -> None:
    here = Path(__file__).parent
    (here / "result.md").write_text(to_markdown(machine, yardsticks, figures))
    result = {"machine": machine, "yardsticks": yardsticks, "figures": [figure.fields() for figure in figures]}
    (here / "result.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    sys.exit(main([name for argument in sys.argv[1:] for name in argument.split()]))
