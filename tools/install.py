"""Make .venv and bring it to the locked sets of packages named on the command line: `python tools/install.py test`.

Only the standard library of Python 3.11 is needed, and pip as `venv` brings it. A set is a file in requirements/; what
is there already, by the hash of its lock, is left alone, so that calling this before each `make` target costs nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
LOG = VENV / "install.log"
# The sets with Spark, and the oldest Java that runs it.
NEED_JAVA = {"demo", "test"}
OLDEST_JAVA = 17


def main(sets: list[str]) -> None:
    """Install `sets`, the project itself, and a Java runtime when there is none."""
    # Two makes at once in one clone must not fill one folder; the lock goes with the process.
    fcntl.flock(os.open(ROOT, os.O_RDONLY), fcntl.LOCK_EX)
    stamp = read_stamp()
    wanted = ["build", *sets, *(["java"] if NEED_JAVA & set(sets) and find_java() is None else [])]
    missing = [name for name in wanted if stamp.get(name) != fingerprint(lock_of(name))]
    project_changed = stamp.get("tidemill") != fingerprint(ROOT / "pyproject.toml")
    if not missing and not project_changed:
        return
    started = time.monotonic()
    if not stamp:
        if sys.version_info < (3, 11):  # noqa: UP036 (what make found may be older)
            sys.exit("Tidemill needs Python 3.11 or later: say which with `make PYTHON=/path/to/python3.11 …`")
        print(f"making {VENV}", flush=True)
        venv.create(VENV, clear=True, with_pip=True)
    for name in missing:
        duration = " (about a minute: Spark is 450 MB)" if name in NEED_JAVA else ""
        print(f"installing {lock_of(name).relative_to(ROOT)}{duration}", flush=True)
        install(name)
        stamp[name] = fingerprint(lock_of(name))
        write_stamp(stamp)
    if project_changed:
        pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        stamp["tidemill"] = fingerprint(ROOT / "pyproject.toml")
        write_stamp(stamp)
    # Spark's workers and drivers start by importing pandas and pyspark: 0.9 s instead of 2.2 s when compiled. pip would
    # compile on one core, and not at all if PYTHONDONTWRITEBYTECODE is set.
    run([str(PYTHON), "-m", "compileall", "-q", "-j", "0", str(next((VENV / "lib").glob("python3*/site-packages")))])
    print(f"installed in {time.monotonic() - started:.0f} s", flush=True)


def install(name: str) -> None:
    """Install one locked set; building what has no wheel (Spark) with the locked tools of the set `build`."""
    options = ["--require-hashes", "--no-deps", "--no-compile"]
    if name != "build":
        options += ["--no-build-isolation", "--use-pep517"]
    pip("install", *options, "--requirement", str(lock_of(name)))


def pip(*arguments: str) -> None:
    """Run the environment's own pip with `arguments`."""
    # Spark comes as a source archive: packing it into a wheel without compression saves 15 s of 33.
    settings = VENV / "wheels-uncompressed.cfg"
    settings.write_text("[bdist_wheel]\ncompression = stored\n")
    run(
        [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments],
        {**os.environ, "DIST_EXTRA_CONFIG": str(settings), "PIP_PROGRESS_BAR": "off"},
    )


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run `command` with its output in the log; show the log's end and leave when it fails."""
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        ended = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, check=False)
    if ended.returncode != 0:
        print("\n".join(LOG.read_text(encoding="utf-8").splitlines()[-30:]), file=sys.stderr)
        sys.exit(f"failed: {' '.join(command)}\nthe whole output is in {LOG}")


def find_java() -> str | None:
    """The Java that Spark will use, by JAVA_HOME or else PATH; None when it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        return None
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    return java if version and int(version[1]) >= OLDEST_JAVA else None


def lock_of(name: str) -> Path:
    """The file with the versions and hashes of the set `name`."""
    return ROOT / "requirements" / f"{name}.txt"


def fingerprint(file: Path) -> str:
    """Return a text that changes with the content of `file`."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read_stamp() -> dict[str, str]:
    """Return the installed sets. Empty if there is no environment, or one of another folder or Python."""
    if not STAMP.exists() or not PYTHON.exists():
        return {}
    stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
    return stamp if stamp.get("place") == str(VENV) else {}


def write_stamp(stamp: dict[str, str]) -> None:
    """Note what is installed, so that an interrupted call goes on where it stopped."""
    STAMP.write_text(json.dumps({**stamp, "place": str(VENV)}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
