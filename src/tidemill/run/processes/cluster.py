"""A cluster of Spark from the side of a driver on this machine: its settings, its secret, its modules, its end.

A driver with a remote master works as one with a local master. Only the executors are elsewhere: they reach the driver
by an address, know it by a secret, and get the modules of the app from it. Their end does not rest on the driver: each
executor that does not hear from its driver ends within half a minute, and a runner of any node ends the application.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from html import unescape
from typing import Final
from urllib.parse import urlencode, urlsplit

from tidemill.config import SHARED, SparkProfile, is_standalone_master
from tidemill.errors import Unavailable, UserError
from tidemill.run.records.runs import RunRecord
from tidemill.secret_places import read_secret
from tidemill.world import World

_log = logging.getLogger(__name__)

DRIVER_HOST: Final = "spark.driver.host"
DRIVER_BIND: Final = "spark.driver.bindAddress"
_AUTHENTICATE: Final = "spark.authenticate"
_PAGE_PORT: Final = "spark.master.ui.port"
_TOKEN_FIELD: Final = "csrfToken"  # noqa: S105  # a name, no secret
SECRET: Final = "spark.authenticate.secret"  # noqa: S105  # a name, no secret
SECRET_VARIABLE: Final = "TIDEMILL_CLUSTER_SECRET"  # noqa: S105  # a name, no secret
"""The variable in which a driver gets the secret of its cluster."""
_HEARTBEATS: Final = {
    # Spark's own default is ten minutes, in which an executor without a driver would go on writing.
    "spark.executor.heartbeatInterval": "5s",
    "spark.executor.heartbeat.maxFailures": "6",
}
_PORT: Final = 7077
_ANSWER_WITHIN: Final = 5.0
"""Seconds."""


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


def reach_master(master: str, settings: Mapping[str, str]) -> str:
    """Return the address at which a cluster reaches drivers of this node, if the master answers. `NoRoute`."""
    address = find_route(master, settings)[DRIVER_HOST]
    try:
        socket.create_connection(_first_of(master), timeout=_ANSWER_WITHIN).close()
    except OSError as error:
        raise NoRoute(master, str(error)) from None
    return address


def end_application_of(run: RunRecord) -> None:
    """Ask the standalone master of an attempt to end its application, and its executors with it; for any node.

    Nothing rests on it: an attempt that was fenced cannot commit, and executors without a driver end by themselves.
    """
    application, settings = run.facts.get("spark"), run.facts.get("spark_conf")
    if not isinstance(application, str) or not isinstance(settings, Mapping):
        return
    master = str(settings.get("spark.master", ""))
    if not is_standalone_master(master):
        return
    # Only here, and the import takes 20 ms.
    from urllib.request import urlopen

    page = ""
    try:
        page = f"http://{_first_of(master)[0]}:{page_port_of(settings)}"
        with urlopen(f"{page}/", timeout=_ANSWER_WITHIN) as shown:  # noqa: S310  # it begins with http
            token = _find_token(shown.read().decode(errors="replace"))
        form = {"id": application, "terminate": "true", **token}
        with urlopen(f"{page}/app/kill/", data=urlencode(form).encode(), timeout=_ANSWER_WITHIN):  # noqa: S310  # as above
            pass
    except (NoRoute, OSError, ValueError) as error:
        _log.warning("the application %s on %s is left to end by itself: %s", application, page or master, error)


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
