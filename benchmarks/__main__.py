"""Run benchmarks, all or those named: `python -m benchmarks B4 B10`, or `make bench ONLY="B4 B10"`.

Prints one table in Markdown, and writes it with all figures to `benchmarks/result.md` and `benchmarks/result.json`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import apsw
import psycopg

from benchmarks import b1, b2, b4, b5, b6, b7, b8, b9, b10, b13, b15
from benchmarks.table import Figure, to_markdown
from tests.postgres_server import running_server

ALL: dict[str, Callable[[str], Iterator[Figure]]] = {
    "B1": b1.run,
    "B2": b2.run,
    "B4": b4.run,
    "B5": b5.run,
    "B6": b6.run,
    "B7": b7.run,
    "B8": b8.run,
    "B9": b9.run,
    "B10": b10.run,
    "B13": b13.run,
    "B15": b15.run,
}


def main(wanted: list[str]) -> int:
    """The program; 2 for a benchmark that there is not."""
    if unknown := set(wanted) - ALL.keys():
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    machine: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        for name in wanted or ALL:
            # A server for each, so that no benchmark counts the rows of another; on disk, since that is measured too.
            with running_server(durable=True) as postgres:
                machine = machine or _describe_machine(postgres, folder)
                for database, url in (("SQLite", f"sqlite:///{folder}/{name}.db"), ("PostgreSQL", postgres)):
                    print(f"{name} on {database} …", file=sys.stderr, flush=True)
                    figures += ALL[name](url)
            # After each, so that one that fails loses no figure of those before it.
            _write(machine, figures)
    print(to_markdown(machine, figures))
    return 0


def _write(machine: dict[str, str], figures: list[Figure]) -> None:
    here = Path(__file__).parent
    (here / "result.md").write_text(to_markdown(machine, figures))
    (here / "result.json").write_text(
        json.dumps({"machine": machine, "figures": [f.fields() for f in figures]}, indent=1)
    )


def _describe_machine(postgres: str, folder: str) -> dict[str, str]:
    with psycopg.connect(postgres) as connection:
        server = connection.info.parameter_status("server_version")
        fsync = connection.execute("SHOW fsync").fetchone()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "SQLite": f"{apsw.sqlite_lib_version()} (apsw {version('apsw')}), synchronous FULL",
        "PostgreSQL": f"{server} (psycopg {version('psycopg')}), fsync {fsync[0] if fsync else '?'}",
        "disk": folder.rpartition("/")[0],
    }


if __name__ == "__main__":
    sys.exit(main([name for argument in sys.argv[1:] for name in argument.split()]))
