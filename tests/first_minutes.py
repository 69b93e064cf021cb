"""The README's first five minutes as a new user has them: from the built wheel, in a fresh virtual environment.

`python -m tests.first_minutes` builds the wheel, and types every console block of the README into one shell. Packages
come from the index that pip is configured for, in the versions of requirements/test.txt.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.yardstick import patience

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PUBLISHED: Final = [("day=2026-01-01", 1)]
"""Each partition of the README's report, and its rows."""
FILES: Final = {"1.csv": "SUCCESS", "2.csv": "ERROR"}
"""Each file that the README lands, and its state at the end."""


def blocks(language: str) -> list[str]:
    """Return the contents of the README's fenced blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def install_commands() -> list[str]:
    """Return the commands of the README's first console block, which install Tidemill."""
    return _commands(blocks("console")[0])


def first_commands() -> list[str]:
    """Return the commands of the README's other console blocks, in order."""
    return [command for block in blocks("console")[1:] for command in _commands(block)]


def type_in(commands: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """Run `commands` in one shell, as they are typed, and return what they print; fail at the first that fails."""
    done = subprocess.run(
        ["bash", "-e"],
        input="\n".join(f"echo {_quoted(command)} >&2\n{command}" for command in commands),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(600),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def check(printed: str, folder: Path, env: Mapping[str, str]) -> None:
    """Check what the first five minutes left in `folder`: the app, its report, its files, `read.py`."""
    assert PUBLISHED[0][0] in printed, printed
    assert (folder / "shop" / "app.py").read_text(encoding="utf-8") == blocks("python")[0]
    published = json.loads(type_in(["cd shop", "tidemill dataset partitions revenue --json"], folder, env))
    files = json.loads(type_in(["cd shop", "tidemill inbox files orders --json"], folder, env))
    assert [(partition["partition"], partition["rows"]) for partition in published] == PUBLISHED
    assert {file["name"]: file["status"] for file in files} == FILES
    (folder / "shop" / "read.py").write_text(blocks("python")[1], encoding="utf-8")
    read = type_in(["cd shop", "python read.py"], folder, env)
    assert [line for line in read.splitlines() if line] == blocks("text")[1].splitlines()


def _commands(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.strip().splitlines()]


def _quoted(command: str) -> str:
    return "'" + f"$ {command}".replace("'", "'\\''") + "'"


def _build_wheel(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("tidemill-*.whl")
    return wheel


def _constraints() -> str:
    """Return the locked versions as constraints."""
    locked = (ROOT / "requirements" / "test.txt").read_text(encoding="utf-8").splitlines()
    versions = [line.rstrip(" \\") for line in locked if re.match(r"[a-z0-9]", line)]
    return "\n".join([*versions, ""])


def main() -> None:
    """Install and go through the README's console blocks; say how long that took."""
    with tempfile.TemporaryDirectory(prefix="tidemill-first-minutes-") as name:
        folder = Path(name)
        wheel = _build_wheel(folder / "dist")
        (folder / "constraints.txt").write_text(_constraints(), encoding="utf-8")
        inherited = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        outside = [part for part in os.environ["PATH"].split(":") if Path(part) != Path(sys.executable).parent]
        env = {
            **inherited,
            "PATH": ":".join(outside),
            "PIP_CONSTRAINT": str(folder / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TIDEMILL_CACHE": str(folder / "cache"),
        }
        started = time.monotonic()
        # As the README says for a clone: a path for the name.
        type_in([command.replace('"tidemill[', f'"{wheel}[') for command in install_commands()], folder, env)
        installed = time.monotonic()
        in_venv = {**env, "PATH": f"{folder / '.venv' / 'bin'}:{env['PATH']}"}
        check(type_in(first_commands(), folder, in_venv), folder, in_venv)
        print(
            f"first minutes: {wheel.name} was installed in {installed - started:.0f} s, "
            f"and the README's commands took {time.monotonic() - installed:.0f} s"
        )


if __name__ == "__main__":
    main()
