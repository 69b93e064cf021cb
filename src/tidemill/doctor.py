"""What a project runs with, and what would keep it from running: each finding with its cure."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemill.app.loading import load_declared
from tidemill.catalog.engine import open_catalog
from tidemill.config import Config, load_config
from tidemill.errors import TidemillError
from tidemill.run.java import find_java
from tidemill.sizes import format_bytes
from tidemill.storage.files import open_files
from tidemill.world import World

_LEAST_FREE_BYTES: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `cure` is the next step when it is not good."""

    subject: str
    good: bool
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The effective settings, where each came from, and all findings."""

    settings: Mapping[str, object]
    sources: Mapping[str, str]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything is good."""
        return all(finding.good for finding in self.findings)


def examine(folder: Path, *, options: Mapping[str, str] | None = None, world: World | None = None) -> Diagnosis:
    """Look at all that a run of the project needs. Raises `BadConfig`; changes nothing but missing folders."""
    world = world or World()
    config = load_config(world, folder, options)
    checks: Mapping[str, Callable[[World, Config], Finding]] = {
        "app": _app,
        "catalog": _catalog,
        "data": _data,
        "disk": _disk,
        "spark": _spark,
        "java": _java,
    }
    findings = []
    for subject, check in checks.items():
        try:
            findings.append(check(world, config))
        except TidemillError as error:
            findings.append(Finding(subject, good=False, found=str(error), cure="see the message"))
    return Diagnosis(config.shown(), config.sources, tuple(findings))


def _app(world: World, config: Config) -> Finding:
    if not world.disk.exists(config.app):
        return Finding("app", good=False, found=f"{config.app} does not exist", cure="write it, or set `app`")
    names = ", ".join(app.name for app in load_declared(config.app))
    return Finding("app", good=True, found=f"{config.app} declares {names}")


def _catalog(world: World, config: Config) -> Finding:
    catalog = open_catalog(config.catalog, world)
    try:
        drift = catalog.read(lambda db: db.now()) / 1000 - world.clock.now().timestamp()
    finally:
        catalog.close()
    good = abs(drift) < 60
    cure = "" if good else "set the clocks of both machines"
    return Finding("catalog", good, f"{config.shown()['catalog']} answers, its clock {drift:+.1f} s from ours", cure)


def _data(world: World, config: Config) -> Finding:
    open_files(config.data, world).prepare()
    return Finding("data", good=True, found=f"{config.data} can be written")


def _disk(world: World, config: Config) -> Finding:
    world.disk.make_folder(config.state)
    free = world.disk.free_bytes(config.state)
    cure = "" if free >= _LEAST_FREE_BYTES else f"free space: {format_bytes(_LEAST_FREE_BYTES)} is little for Spark"
    return Finding("disk", not cure, f"{format_bytes(free)} free at {config.state}", cure)


def _spark(world: World, config: Config) -> Finding:
    del world
    if importlib.util.find_spec("pyspark") is None:
        return Finding("spark", good=False, found="PySpark is missing", cure='pip install "tidemill[spark]"')
    version = importlib.metadata.version("pyspark")
    return Finding("spark", good=True, found=f"PySpark {version}, master {config.spark_master}")


def _java(world: World, config: Config) -> Finding:
    return Finding("java", good=True, found=find_java(world, config.cache, install=False).describe())
