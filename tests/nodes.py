"""Nodes on this machine: for the kernel each is a machine of its own, with another name and perhaps without a mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.command import TIDEMILL
from tests.yardstick import patience


@contextmanager
def node_up(
    folder: Path, node: str, log: Path, *, role: str = "", hidden: Path | None = None, modules: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tidemill up`, or one role, for a project on a node with a state folder of its own, for a block.

    The folder `hidden` is empty there. The node finds modules in the folder `modules`.
    """
    words = [role] if role else ["up", "--no-deploy", "--no-server"]
    command = [TIDEMILL, *words]
    environ = {**os.environ, "TIDEMILL_STATE": f".{node}", "PYTHONPATH": str(modules or "")}
    with log.open("a") as output:
        process = subprocess.Popen(
            _on_another_machine(command, hidden=hidden, name=node),
            cwd=folder,
            env=environ,
            stdout=output,
            stderr=output,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(patience(60))


def _on_another_machine(command: list[str], *, hidden: Path | None, name: str) -> list[str]:
    steps = [f"hostname {name}"]
    if hidden is not None:
        steps.append(f"mkdir -p {hidden.parent}/nothing && mount --bind {hidden.parent}/nothing {hidden}")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = " && ".join([*steps, 'exec "$@"'])
    return ["unshare", *user, "--mount", "--uts", "sh", "-c", script, "sh", *command]
