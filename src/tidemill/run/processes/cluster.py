"""A cluster of Spark from the side of a driver on this machine: its settings, its secret, its modules, its end.

A driver with a remote master works as one with a local master. Only the executors are elsewhere: they reach the driver
by an address, know it by a secret, and get the modules of the app from it. Their end does not rest on the driver: each
executor that does not hear from its driver ends within half a minute, and a runner of any node ends the application.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from html import unescape
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import urlencode, urlsplit

from tidemill.config import SHARED, SparkProfile, is_standalone_master
from tidemill.durations import format_duration
from tidemill.errors import Unavailable, UserError
from tidemill.run.records.runs import RunRecord
from tidemill.secret_places import read_secret
from tidemill.world import Disk, World

_log = logging.getLogger(__name__)

DRIVER_HOST: Final = "spark.driver.host"
DRIVER_BIND: Final = "spark.driver.bindAddress"
_AUTHENTICATE: Final = "spark.authenticate"
_PAGE_PORT: Final = "spark.master.ui.port"
_TOKEN_FIELD: Final = "csrfToken"  # noqa: S105  # a name, no secret
SECRET: Final = "spark.authenticate.secret"  # noqa: S105  # a name, no secret
SECRET_VARIABLE: Final = "TIDEMILL_CLUSTER_SECRET"  # noqa: S105  # a name, no secret
"""The variable in which a driver gets the secret of its cluster."""
SPARK_SECRET_VARIABLE: Final = "_SPARK_AUTH_SECRET"  # noqa: S105  # a name, no secret
"""The variable in which Spark's own processes get it."""
SUBMITTED_VARIABLE: Final = "TIDEMILL_SPARK_DRIVER"
"""The variable in which a driver on a worker of the cluster gets its id there."""
SPARK_DRIVER: Final = "spark_driver"
"""The fact of an attempt that is the id of its driver on the cluster."""
_SUBMITTED: Final = "spark_driver"
"""The file in the folder of a driver with its id on the cluster."""
_HEARTBEATS: Final = {
    # Spark's own default is ten minutes, in which an executor without a driver would go on writing.
    "spark.executor.heartbeatInterval": "5s",
    "spark.executor.heartbeat.maxFailures": "6",
}
_PORT: Final = 7077
_ANSWER_WITHIN: Final = 5.0
"""Seconds."""
_END_WITHIN: Final = timedelta(seconds=5)
"""The end of a driver takes a second. A worker that is away does not end it."""
_LOOK_EVERY: Final = timedelta(milliseconds=200)
_ENDED: Final = frozenset({"FINISHED", "KILLED", "FAILED", "ERROR"})
"""The states of a driver on a cluster that has ended."""


class NoClusterSecret(UserError):
    """A profile with a remote master names no secret."""

    code = "no_cluster_secret"

    def __init__(self, master: str, profile: str) -> None:
        self.master = master
        self.profile = profile
        table = f"spark.profiles.{profile}" if profile else "spark"
        super().__init__(
            f"the settings [{table}] give no secret for the cluster {master}",
            'name its place, as secret = "env:NAME" or secret = "file:PATH"; for a cluster without a secret, set '
            f'"{_AUTHENTICATE}" = "false" in [{table}.conf]',
        )


class NoRoute(Unavailable):
    """This machine cannot reach the master of a cluster."""

    code = "no_route_to_cluster"

    def __init__(self, master: str, why: str) -> None:
        self.master = master
        self.why = why
        super().__init__(
            f"there is no way to the Spark master {master}: {why}",
            "check the name of the master and the network of this machine",
        )


def cluster_settings(profile: SparkProfile) -> dict[str, str]:
    """Return the settings of Spark that a remote master needs, without the secret; none for a local master."""
    if profile.is_local:
        return {}
    given = {DRIVER_HOST: profile.driver_host, DRIVER_BIND: profile.driver_bind}
    needed = {**_HEARTBEATS, SHARED: str(profile.shared).lower()}
    if profile.is_standalone:
        needed[_AUTHENTICATE] = "true"
    return {**needed, **{name: value for name, value in given.items() if value}}


def cluster_environ(world: World, profile: SparkProfile) -> dict[str, str]:
    """Return the variables of a driver that a remote master needs. `NoClusterSecret`, `NoSecret`."""
    if profile.is_local:
        return {}
    environ = {"PYSPARK_PYTHON": profile.python} if profile.python else {}
    if not profile.is_standalone or profile.conf.get(_AUTHENTICATE, "true") != "true":
        return environ
    if not profile.secret:
        raise NoClusterSecret(profile.master, profile.name)
    return {**environ, SECRET_VARIABLE: read_secret(world, "spark.secret", profile.secret)}


def find_route(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of a driver of a cluster: those given, or the one that routes to the master. `NoRoute`.

    For a cluster without a standalone master, Spark finds what is not given.
    """
    given = {name: settings[name] for name in (DRIVER_HOST, DRIVER_BIND) if settings.get(name)}
    if is_standalone_master(master):
        host = given.get(DRIVER_HOST) or _address_towards(master)
        return {DRIVER_HOST: host, DRIVER_BIND: host, **given}
    return given


def without_addresses(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without the addresses of this node, which are not those of a driver elsewhere."""
    return {name: value for name, value in settings.items() if name not in {DRIVER_HOST, DRIVER_BIND}}


def reach_master(master: str, settings: Mapping[str, str]) -> str:
    """Return the address at which a cluster reaches drivers of this node, if the master answers. `NoRoute`."""
    address = find_route(master, settings)[DRIVER_HOST]
    try:
        socket.create_connection(_first_of(master), timeout=_ANSWER_WITHIN).close()
    except OSError as error:
        raise NoRoute(master, str(error)) from None
    return address


def end_application_of(run: RunRecord) -> Thread | None:
    """Ask the standalone master of an attempt to end its application, and its executors with it; for any node.

    The driver is ended, too, if it works on the cluster. Return the thread that asks, since the master may be away, and
    no lease waits for it; None if there is nothing to ask. Nothing rests on it: an attempt that was fenced cannot
    commit, executors without a driver end by themselves, and so does a driver without its node.
    """
    settings = run.facts.get("spark_conf")
    if not isinstance(settings, Mapping) or not is_standalone_master(str(settings.get("spark.master", ""))):
        return None

    def ask() -> None:
        for kind, fact in (("app", "spark"), ("driver", SPARK_DRIVER)):
            if isinstance(named := run.facts.get(fact), str):
                try:
                    _end(settings, kind, named)
                except (NoRoute, OSError, ValueError) as error:
                    _log.warning("%s on %s is left to end by itself: %s", named, settings["spark.master"], error)

    return _begin(ask, f"end of {run.run_id}")


def note_submitted(disk: Disk, folder: Path, text: str) -> str:
    """Write down the id of a driver on the cluster that `text` names, in the driver's folder; return the id."""
    found = re.search(r"driver-\d{14}-\d+", text)
    submitted = found[0] if found else ""
    if found:
        disk.write_bytes(folder / _SUBMITTED, submitted.encode())
    return submitted


def find_ended(settings: Mapping[str, str], submitted: str) -> str:
    """Return the state of a driver on the cluster that has ended there; empty while it waits or works.

    Empty, too, if the master does not answer, or does not know the driver.
    """
    try:
        state = _find_state(settings, submitted)
    except (NoRoute, OSError, ValueError):
        return ""
    return state if state in _ENDED else ""


def end_submitted(world: World, folder: Path, settings: Mapping[str, str]) -> Thread | None:
    """End the driver on the cluster whose id is in `folder`; None without an id. Return the thread that awaits its end.

    The thread gives up after some seconds. A driver whose near end has ended ends by itself, once it has started.
    """
    path = folder / _SUBMITTED
    submitted = world.disk.read_bytes(path).decode() if world.disk.exists(path) else ""
    if not submitted:
        return None

    def end() -> None:
        give_up_at = world.clock.monotonic() + _END_WITHIN
        try:
            if _find_state(settings, submitted) not in _ENDED:
                _end(settings, "driver", submitted)
            while _find_state(settings, submitted) not in _ENDED:
                if world.clock.monotonic() > give_up_at:
                    raise TimeoutError(f"it has not ended within {format_duration(_END_WITHIN)}")
                world.clock.sleep(_LOOK_EVERY)
        except (NoRoute, OSError, ValueError) as error:
            _log.warning("%s on %s is left to end by itself: %s", submitted, settings["spark.master"], error)

    return _begin(end, f"end of {submitted}")


def _begin(work: Callable[[], None], name: str) -> Thread:
    """Do work in a thread, for which no process stays."""
    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _end(settings: Mapping[str, str], kind: str, named: str) -> None:
    """Have the master end an `app` or a `driver`, if its page has the form for that. `NoRoute`, `OSError`."""
    page = _ask(settings, "/")
    # There is no form for what has ended, and the page may then have no token: the answer was 403 (tried).
    if f'"{named}"' in page:
        _ask(settings, f"/{kind}/kill/", urlencode({"id": named, "terminate": "true", **_find_token(page)}).encode())


def _find_state(settings: Mapping[str, str], submitted: str) -> str:
    """Return the state of a driver, empty for one that the master does not know. `NoRoute`, `OSError`, `ValueError`."""
    known = json.loads(_ask(settings, "/json/"))
    states = {one["id"]: one["state"] for one in [*known["activedrivers"], *known["completeddrivers"]]}
    return str(states.get(submitted, ""))


def _ask(settings: Mapping[str, str], path: str, form: bytes | None = None) -> str:
    """Return the answer of the page of a standalone master. `NoRoute`, `OSError`."""
    # Only here, and the import takes 20 ms.
    from urllib.request import urlopen

    page = f"http://{_first_of(settings['spark.master'])[0]}:{page_port_of(settings)}"
    with urlopen(f"{page}{path}", data=form, timeout=_ANSWER_WITHIN) as shown:  # noqa: S310  # it begins with http
        return str(shown.read().decode(errors="replace"))


def page_port_of(settings: Mapping[str, str]) -> str:
    """Return the port of the page of a standalone master, by the settings of Spark."""
    return settings.get(_PAGE_PORT, "8080")


def _find_token(page: str) -> dict[str, str]:
    """Return the field of the forms of a master's page without which Spark 4.3 refuses them; none of earlier ones."""
    fields = re.findall(rf'<input[^>]*name="{_TOKEN_FIELD}"[^>]*>', page)
    found = re.search(r'value="([^"]*)"', fields[0]) if fields else None
    return {_TOKEN_FIELD: unescape(found[1])} if found else {}


def _first_of(master: str) -> tuple[str, int]:
    """Return host and port of a master, of the first of several in `spark://a:7077,b:7077`. `NoRoute`."""
    try:
        address = urlsplit(master.partition(",")[0])
        host, port = address.hostname, address.port or _PORT
    except ValueError as error:
        raise NoRoute(master, str(error)) from None
    if not host:
        raise NoRoute(master, "it names no host")
    return host, port


def _address_towards(master: str) -> str:
    """Return the address of this machine from which packets go to the master. No packet is sent."""
    try:
        kind, *_, target = socket.getaddrinfo(*_first_of(master), type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise NoRoute(master, str(error)) from None
