"""Checks of the settings and the machine of a project: each finding has its cure."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidemill.app.loading import load_declared
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.migrate import read_version
from tidemill.client.line import ask_version
from tidemill.config import ADDRESS_FILE, Config, load_config
from tidemill.durations import format_duration
from tidemill.epoch import show_time
from tidemill.errors import TidemillError
from tidemill.frames.jdbc import usual_drivers
from tidemill.lake.datasets import list_datasets
from tidemill.lake.places import prepare_locations
from tidemill.run.processes.class_data import find_archive
from tidemill.run.processes.cluster import cluster_environ, reach_master
from tidemill.run.processes.java import find_java
from tidemill.run.processes.session import settings_of
from tidemill.run.records.nodes import NodeRole, NodeState, list_nodes
from tidemill.run.records.programs import list_programs
from tidemill.run.records.runs import list_lacking, list_unloaded
from tidemill.sizes import format_bytes
from tidemill.storage.files import StorageUnavailable
from tidemill.storage.locations import open_files
from tidemill.upkeep.horizon import find_standstill
from tidemill.world import World

_LEAST_FREE_BYTES: Final = 1_000_000_000
_MOST_DRIFT_SECONDS: Final = 60
_SHORTEST_HISTORY: Final = timedelta(days=1)
"""A person looks for the causes of a failed night the next morning."""
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `cure` is the next step if the check fails."""

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
        """Return whether everything is good."""
        return all(finding.good for finding in self.findings)


def examine(folder: Path, *, options: Mapping[str, str] | None = None, world: World | None = None) -> Diagnosis:
    """Look at all that a run of the project needs. Raises `BadConfig`; changes nothing but missing folders."""
    world = world or World()
    config = load_config(world, folder, options)
    world = replace(world, stores=config.stores)
    checks: Mapping[str, Callable[[World, Config], Finding]] = {
        "versions": _versions,
        "app": _app,
        "catalog": _catalog,
        "code": _code,
        "nodes": _nodes,
        "retention": _retention,
        "clock": _clock,
        "postgres": _postgres,
        "data": _data,
        "locations": _locations,
        "disk": _disk,
        "ports": _ports,
        "server": _server,
        "spark": _spark,
        "profiles": _profiles,
        "cluster": _cluster,
        "java": _java,
        "class data": _class_data,
        "jdbc": _jdbc,
    }
    findings = []
    for subject, check in checks.items():
        try:
            findings.append(check(world, config))
        except TidemillError as error:
            findings.append(Finding(subject, good=False, found=str(error), cure="see the message"))
    return Diagnosis(config.shown(), config.sources, tuple(findings))


def _versions(world: World, config: Config) -> Finding:
    del world, config
    python = ".".join(map(str, sys.version_info[:3]))
    try:
        own = importlib.metadata.version("tidemill")
    except importlib.metadata.PackageNotFoundError:
        own = "of a source folder that is not installed"
    return Finding("versions", good=True, found=f"tidemill {own}, Python {python}")


def _app(world: World, config: Config) -> Finding:
    if not world.disk.exists(config.app):
        return Finding("app", good=False, found=f"{config.app} does not exist", cure="write it, or set `app`")
    names = ", ".join(app.name for app in load_declared(config.app))
    return Finding("app", good=True, found=f"{config.app} declares {names}")


def _catalog(world: World, config: Config) -> Finding:
    catalog = open_catalog(config.catalog, world)
    try:
        version = read_version(catalog)
    finally:
        catalog.close()
    return Finding("catalog", good=True, found=f"{config.shown()['catalog']} answers, schema version {version}")


def _code(world: World, config: Config) -> Finding:
    catalog = open_catalog(config.catalog, world)
    try:
        unloaded = catalog.read(list_unloaded)
    finally:
        catalog.close()
    if not unloaded:
        return Finding("code", good=True, found="no run waits for a node that can load its code")
    found = "; ".join(f"{one.runs} of bundle {one.bundle}: {one.reason}" for one in unloaded)
    cure = "install on a node what the code needs, or deploy code that loads"
    return Finding("code", good=False, found=f"runs wait for a node that can load their code: {found}", cure=cure)


def _nodes(world: World, config: Config) -> Finding:
    """Look for roles that no node has, although some node works. That none works at all is no failure."""
    catalog = open_catalog(config.catalog, world)
    try:
        found, now = catalog.read(lambda db: (list_nodes(db), db.now()))
    finally:
        catalog.close()
    here = [one for one in found if not world.spawner.has_ended(one.process)]
    working = [one for one in here if one.state(now) is not NodeState.LOST]
    if not working:
        return Finding("nodes", good=True, found="no node works now; `tidemill up` starts one")
    told = "; ".join(f"{one.node_id} on {one.host}: {', '.join(one.roles)}" for one in working)
    missing = [role for role in NodeRole if not any(role in one.roles for one in working)]
    if not missing:
        return Finding("nodes", good=True, found=told)
    cure = "start " + " and ".join(f"`tidemill {role}`" for role in missing)
    return Finding("nodes", good=False, found=f"no node is a {' or a '.join(missing)}; at work: {told}", cure=cure)


def _retention(world: World, config: Config) -> Finding:
    """Look for history that is too old, with no janitor that deletes it, and for history that is kept too short."""
    catalog = open_catalog(config.catalog, world)
    try:
        found = catalog.read(lambda db: find_standstill(db, config.keep_history))
    finally:
        catalog.close()
    kept = f"history is kept for {format_duration(config.keep_history)}"
    if config.keep_history < _SHORTEST_HISTORY:
        why = f"{kept}: older runs cannot be looked up, retried or replayed"
        return Finding("retention", good=False, found=why, cure='set [retention] history = "1d" or longer')
    if found is None:
        return Finding("retention", good=True, found=kept)
    last = "no janitor has worked yet"
    if found.moved_at is not None:
        last = f"no janitor has worked since {show_time(found.moved_at)}"
    why = f"{kept}, and the oldest run is of {show_time(found.oldest)}: {last}"
    cure = "keep `tidemill up` or `tidemill janitor` at work, and look at its log"
    return Finding("retention", good=False, found=why, cure=cure)


def _clock(world: World, config: Config) -> Finding:
    catalog = open_catalog(config.catalog, world)
    try:
        drift = (catalog.read(lambda db: db.now()) - world.clock.now()).total_seconds()
    finally:
        catalog.close()
    cure = (
        "" if abs(drift) < _MOST_DRIFT_SECONDS else "set the clocks of both machines (NTP): due times are the catalog's"
    )
    return Finding("clock", not cure, f"the clocks of catalog and machine differ by {abs(drift):.1f} s", cure)


def _postgres(world: World, config: Config) -> Finding:
    del world
    wanted = config.catalog.startswith("postgres")
    if importlib.util.find_spec("psycopg") is not None:
        return Finding("postgres", good=True, found=f"psycopg {importlib.metadata.version('psycopg')}")
    found = "psycopg is missing" + ("" if wanted else ", and not needed for a SQLite catalog")
    return Finding("postgres", not wanted, found, 'pip install "tidemill[postgres]"' if wanted else "")


def _ports(world: World, config: Config) -> Finding:
    del config
    why = world.spawner.listens_on(_LOOPBACK)
    if not why:
        return Finding("ports", good=True, found=f"{_LOOPBACK} can be listened on, as Spark does")
    cure = "allow this user to open ports of the loopback interface, which Spark needs"
    return Finding("ports", good=False, found=f"{_LOOPBACK}: {why}", cure=cure)


def _server(world: World, config: Config) -> Finding:
    """Try the port of the server. `up` takes another port if this one is taken, so a taken port is no failure."""
    host, port = config.server.host, config.server.port
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    why = world.spawner.listens_on(host, port)
    if not why:
        return Finding("server", good=True, found=f"{shown} is free" if port else f"any port of {host} is free")
    url = f"{'https' if config.server.tls_cert else 'http'}://{shown}"
    version = ask_version(url)
    address = config.state / ADDRESS_FILE
    last = world.disk.read_bytes(address).decode().strip() if world.disk.exists(address) else ""
    if version and last == url:
        return Finding("server", good=True, found=f"{url} is the server of this project, tidemill {version}")
    taken = f"taken by tidemill {version} of another project" if version else f"not free: {why}"
    cure = "set another `server.port`, or end what holds the port; `tidemill up` takes the next free port meanwhile"
    return Finding("server", good=True, found=f"{shown} is {taken}", cure=cure)


def _data(world: World, config: Config) -> Finding:
    places = [config.data, *filter(None, [config.logs])]
    catalog = open_catalog(config.catalog, world)
    try:
        prepare_locations(catalog, world, places)
    finally:
        catalog.close()
    return Finding("data", good=True, found=f"{' and '.join(places)} can be written")


def _locations(world: World, config: Config) -> Finding:
    """Look at the locations of all inboxes and data sets: a node may lack a mount that others have."""
    catalog = open_catalog(config.catalog, world)
    try:
        places = {one.location: one.root for one in catalog.read(list_datasets)}
    finally:
        catalog.close()
    away = []
    for location, known in places.items():
        try:
            open_files(location, world, known).check_location()
        except StorageUnavailable as error:
            away.append(str(error))
    if not away:
        return Finding("locations", good=True, found=f"all {len(places)} locations of data sets are reached")
    cure = "mount them on this node, or correct their store; until then other nodes do what needs them"
    return Finding("locations", good=False, found="; ".join(away), cure=cure)


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
    return Finding("spark", good=True, found=f"PySpark {version}, master {config.spark.master}")


def _profiles(world: World, config: Config) -> Finding:
    catalog = open_catalog(config.catalog, world)
    try:
        programs, waiting = catalog.read(lambda db: (list_programs(db), list_lacking(db)))
    finally:
        catalog.close()
    needed: dict[str, list[str]] = {}
    for program in programs:
        if program.spark_profile and not program.retired and program.spark_profile not in config.spark_profiles:
            needed.setdefault(program.spark_profile, []).append(program.qualified_name)
    runs = {one.profile: one for one in waiting}
    if not needed and not runs:
        names = ", ".join(sorted(config.spark_profiles)) or "none"
        return Finding("profiles", good=True, found=f"named Spark profiles: {names}; no run waits for another")
    lacking = [f"this node has no {name}, which {', '.join(used)} names" for name, used in needed.items()]
    lacking += [f"{one.runs} runs wait for a node with {one.profile or 'Spark'}: {one.reason}" for one in runs.values()]
    named = (f"[spark.profiles.{name}]" for name in sorted(needed.keys() | runs.keys()) if name)
    wanted = ", ".join(["PySpark", "Java", *named])
    cure = f"start `tidemill up` on a node with {wanted}"
    return Finding("profiles", good=False, found=f"Spark profiles: {'; '.join(lacking)}", cure=cure)


def _cluster(world: World, config: Config) -> Finding:
    found = []
    for profile in (config.spark, *config.spark_profiles.values()):
        if profile.is_standalone:
            cluster_environ(world, profile)
            host = reach_master(profile.master, settings_of(config, profile.name))
            shared = "" if profile.shared else "; only data in buckets"
            found.append(f"{profile.master} answers, and reaches this node at {host}{shared}")
    return Finding("cluster", good=True, found="; ".join(found) or "Spark works on this machine alone")


def _java(world: World, config: Config) -> Finding:
    return Finding("java", good=True, found=find_java(world, config.cache, install=False).describe())


def _class_data(world: World, config: Config) -> Finding:
    if not config.spark_class_data:
        return Finding("class data", good=True, found="off (spark.class_data): each start of Spark reads all classes")
    if importlib.util.find_spec("pyspark") is None:
        return Finding("class data", good=True, found="none without PySpark")
    archive = find_archive(config.cache, find_java(world, config.cache, install=False), config.spark.conf)
    if world.disk.exists(archive.path):
        return Finding("class data", good=True, found=f"{archive.path}, {format_bytes(world.disk.size(archive.path))}")
    if world.disk.exists(archive.failed):
        found = f"could not be made: {world.disk.read_bytes(archive.failed).decode().strip()}"
        return Finding("class data", good=True, found=found, cure=f"remove {archive.failed}, or nothing: only slower")
    return Finding("class data", good=True, found="not made yet: `tidemill up` makes it while Spark waits for work")


def _jdbc(world: World, config: Config) -> Finding:
    jars = [Path(jar) for jar in config.jdbc_drivers.split(",") if jar]
    if missing := [str(jar) for jar in jars if not world.disk.exists(jar)]:
        cure = "name jars that are there: [jdbc] drivers in tidemill.toml"
        return Finding("jdbc", good=False, found=f"there is no {', '.join(missing)}", cure=cure)
    found = [str(jar) for jar in jars]
    cures = []
    for driver, (jar, package) in usual_drivers().items():
        if world.disk.exists(jar):
            found.append(str(jar))
        else:
            cures.append(f"for {driver} install Debian's {package}")
    told = f"drivers at {', '.join(found)}" if found else "no drivers: only snapshots of databases need them"
    return Finding("jdbc", good=True, found=told, cure="" if jars else "; ".join(cures))
