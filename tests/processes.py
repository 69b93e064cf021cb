"""Processes of this machine, found by what their environment says."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path


def find_processes(pattern: str) -> list[int]:
    """Return the living processes whose variables, each with a NUL at both ends, have the pattern; in order of id."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if re.search(pattern.encode(), b"\0" + path.read_bytes()):
                found.append(int(path.parent.name))
    return sorted(found)


def is_living(pid: int) -> bool:
    """Return whether a process has not ended. A zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def command_of(pid: int) -> str:
    """Return the command line of a process; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
