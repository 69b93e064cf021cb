"""Configuration: `tidemill.toml` in the project's folder, overridden by `TIDEMILL_…` variables, then by options.

Every setting is declared once, in `_SETTINGS`: its name in the file (`runner.slots`), its variable
(`TIDEMILL_RUNNER_SLOTS`), its default. Unknown names are errors with the nearest known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from tidemill.durations import BadDuration, BadKeeping, BadLease, format_duration, parse_keeping, parse_lease
from tidemill.errors import UserError
from tidemill.names import BadName, advise, check_name
from tidemill.stores import StoreSettings, has_login
from tidemill.world import World
from tidemill.zones import BadZone, read_zone

_T = TypeVar("_T")
Network: TypeAlias = IPv4Network | IPv6Network

FILE_NAME: Final = "tidemill.toml"
SHARED: Final = "spark.tidemill.shared"
"""The setting of Spark that is true if all nodes of its cluster have the folders of data sets and inboxes."""
ADDRESS_FILE: Final = "server"
"""The file in the state folder with the address of the server that was started last on this machine."""


class BadConfig(UserError):
    """A setting that is unknown, of the wrong type, or out of bounds."""

    code = "bad_config"
    hint = "correct the setting in tidemill.toml, in its variable TIDEMILL_…, or in its option"

    def __init__(self, setting: str, source: str, why: str) -> None:
        self.setting = setting
        self.source = source
        self.why = why
        super().__init__(f"setting {setting!r} ({source}) is refused: {why}")


class DeployMode(StrEnum):
    """Places of the drivers of a cluster: the node of `tidemill up` (client), or a worker of the cluster."""

    CLIENT = "client"
    CLUSTER = "cluster"


class LogFormat(StrEnum):
    """Forms of the lines that `tidemill up` and `tidemill server` print."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of the server. Files are absolute paths, empty for none."""

    host: str = "127.0.0.1"
    port: int = 8300
    names: frozenset[str] = frozenset()
    """Names of hosts under which browsers and programs reach the server, beside those of this machine's loopback."""
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: bool = False
    proxies: frozenset[Network] = frozenset()
    """Addresses of proxies before the server, beside those of this machine's loopback."""
    trust_header: str = ""
    """The header in which a proxy names the user that it has signed in; empty for none."""
    users: Mapping[str, str] = field(default_factory=dict)
    """The role of each of these users: `ROLE`, or `ROLE in NAMESPACE`. `*` is any other user."""
    most_requests: int = 1000
    """The cap of each caller on the requests in a second; 0 means no cap."""
    most_streams: int = 100
    """The cap of each caller on open streams: live pages, and logs that are followed."""
    prefix: str = ""
    """The path below which a proxy offers the server, such as `/tidemill`. Empty: the server has a host of its own."""


def is_local_master(master: str) -> bool:
    """Return whether a Spark with this master works on this machine alone."""
    return master.startswith("local")


def is_standalone_master(master: str) -> bool:
    """Return whether a Spark with this master works on a cluster with a master of Spark's own kind."""
    return master.startswith("spark://")


@dataclass(frozen=True, slots=True)
class SparkProfile:
    """The settings of Spark for the programs that name the profile; the empty name stands for `[spark]`.

    What `[spark.profiles.NAME]` leaves out is of `[spark]`.
    """

    name: str = ""
    master: str = "local[*]"
    warm: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_host: str = ""
    """The name or address under which the cluster reaches drivers; empty for the address that routes to the master."""
    driver_bind: str = ""
    """The address on which drivers listen; empty for `driver_host`."""
    python: str = ""
    """The interpreter on the nodes of the cluster; empty for the path of this one."""
    secret: str = ""
    """The place of the secret by which drivers and the cluster know each other; empty for none."""
    shared: bool = False
    """True if all nodes of the cluster have the folders of data sets and inboxes under the same paths."""
    deploy_mode: DeployMode = DeployMode.CLIENT
    """The place of drivers."""

    @property
    def is_local(self) -> bool:
        """True if Spark works on this machine alone."""
        return is_local_master(self.conf.get(_MASTER, self.master))

    @property
    def on_cluster(self) -> bool:
        """True if drivers work on the cluster."""
        return self.deploy_mode is DeployMode.CLUSTER

    @property
    def is_standalone(self) -> bool:
        """True if Spark works on a cluster with a master of Spark's own kind."""
        return is_standalone_master(self.conf.get(_MASTER, self.master))


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one project. Paths are absolute; `sources` says where each setting came from."""

    folder: Path
    catalog: str
    namespace: str
    app: Path
    data: str
    logs: str
    """The location that all nodes reach, for logs of attempts that are over; empty for none."""
    state: Path
    cache: Path
    slots: int
    lease: timedelta
    keep_superseded: timedelta
    keep_audit: timedelta
    keep_history: timedelta
    keep_messages: timedelta
    spark: SparkProfile
    """The settings of `[spark]`."""
    spark_class_data: bool
    jdbc_drivers: str
    hive_metastore: str
    """The address of the Hive metastore, `thrift://HOST:PORT`; empty for none."""
    update_schedules: bool
    suspend_new: bool
    most_launches: int
    """The cap of each namespace on the launches in a second; 0 means no cap."""
    log_format: LogFormat = LogFormat.TEXT
    private_hosts: frozenset[str] = frozenset()
    """Hosts and networks with private addresses to which deliveries of alerts may go."""
    server: ServerSettings = ServerSettings()
    stores: tuple[StoreSettings, ...] = ()
    spark_profiles: Mapping[str, SparkProfile] = field(default_factory=dict)
    """The named profiles of Spark, by name."""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def time_zone(self) -> str:
        """The time zone of declarations that name none: of watermarks, and of the session of statements."""
        return self.spark.conf.get(_TIME_ZONE, "UTC")

    def spark_profile(self, name: str) -> SparkProfile | None:
        """Return the settings of Spark of a profile, or of `[spark]` for an empty name; None for an unknown one."""
        return self.spark_profiles.get(name) if name else self.spark

    def shown(self) -> dict[str, object]:
        """The effective settings for people and JSON, by their names in the file, secrets left out."""
        return {
            "catalog": without_password(self.catalog),
            "namespace": self.namespace,
            "app": str(self.app),
            "data": self.data,
            "logs": self.logs,
            "state": str(self.state),
            "cache": str(self.cache),
            "runner.slots": self.slots,
            "runner.lease": format_duration(self.lease),
            "retention.superseded": format_duration(self.keep_superseded),
            "retention.audit": format_duration(self.keep_audit),
            "retention.history": format_duration(self.keep_history),
            "retention.messages": format_duration(self.keep_messages),
            **_shown(self.spark),
            "spark.class_data": self.spark_class_data,
            "jdbc.drivers": self.jdbc_drivers,
            "hive.metastore": self.hive_metastore,
            "deploy.update_schedules": self.update_schedules,
            "schedules.suspended": self.suspend_new,
            "schedules.max_launches_per_second": self.most_launches,
            "alerts.private_hosts": ",".join(sorted(self.private_hosts)),
            "server.host": self.server.host,
            "server.port": self.server.port,
            "server.names": ",".join(sorted(self.server.names)),
            "server.tls_cert": self.server.tls_cert,
            "server.tls_key": self.server.tls_key,
            "server.behind_proxy": self.server.behind_proxy,
            "server.proxies": ",".join(sorted(map(str, self.server.proxies))),
            "server.trust_header": self.server.trust_header,
            "server.users": dict(self.server.users),
            "server.max_requests_per_second": self.server.most_requests,
            "server.max_streams": self.server.most_streams,
            "log_format": str(self.log_format),
            "server.prefix": self.server.prefix,
            **{f"stores.{one.name}.{what}": getattr(one, what) for one in self.stores for what in _STORE_FIELDS},
            **{name: value for one in self.spark_profiles.values() for name, value in _shown(one).items()},
        }


@dataclass(frozen=True, slots=True)
class _Setting:
    default: str
    parse: Callable[[str], object]


def _place(text: str) -> str:
    if has_login(text):
        raise ValueError("use a folder, or the URL of a bucket without a key; [stores.NAME] names the place of keys")
    return text


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"use a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return parse


def _yes_or_no(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"use true or false, not {text!r}")
    return text == "true"


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())


def _networks(text: str) -> frozenset[Network]:
    return frozenset(ip_network(one.strip()) for one in text.split(",") if one.strip())


def _header(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]*", text):
        raise ValueError(f"use the name of a header such as X-Forwarded-User, not {text!r}")
    return text


def _metastore(text: str) -> str:
    for one in filter(None, text.split(",")):
        if not re.fullmatch(r"thrift://[^/@]+", one.strip()):
            raise ValueError(f"use thrift://HOST:PORT, not {one.strip()!r}")
    return text


def _one_of(kinds: type[StrEnum], text: str) -> StrEnum:
    if text not in list(kinds):
        raise ValueError(f"use {' or '.join(kinds)}, not {text!r}")
    return kinds(text)


def _hosts(text: str) -> frozenset[str]:
    hosts = _names(text)
    for one in hosts:
        if "/" in one:
            ip_network(one, strict=False)
    return hosts


def _path_prefix(text: str) -> str:
    if text and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text):
        raise ValueError(f"use a path such as /tidemill, without a slash at its end, not {text!r}")
    return text


def _secret_place(text: str) -> str:
    if text and text.partition(":")[0] not in {"env", "file"}:
        raise ValueError("name the place of the secret, as env:NAME or file:PATH")  # it may be the secret itself
    return text


def _namespace(text: str) -> str:
    return check_name("namespace", text)


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "catalog": _Setting("", str),
    "namespace": _Setting("default", _namespace),
    "app": _Setting("app.py", str),
    "data": _Setting("", _place),
    "logs": _Setting("", _place),
    "state": _Setting(".tidemill", str),
    "cache": _Setting("", str),
    "runner.slots": _Setting("2", _whole(1, 1000)),
    "runner.lease": _Setting("60s", parse_lease),
    "retention.superseded": _Setting("7d", parse_keeping),
    "retention.audit": _Setting("400d", parse_keeping),
    "retention.history": _Setting("90d", parse_keeping),
    "retention.messages": _Setting("7d", parse_keeping),
    "spark.master": _Setting("local[*]", str),
    "spark.warm": _Setting("1", _whole(0, 16)),
    "spark.driver_host": _Setting("", str),
    "spark.driver_bind": _Setting("", str),
    "spark.python": _Setting("", str),
    "spark.secret": _Setting("", _secret_place),
    "spark.shared": _Setting("false", _yes_or_no),
    "spark.deploy_mode": _Setting("client", partial(_one_of, DeployMode)),
    "spark.class_data": _Setting("true", _yes_or_no),
    "jdbc.drivers": _Setting("", str),
    "hive.metastore": _Setting("", _metastore),
    "deploy.update_schedules": _Setting("true", _yes_or_no),
    "schedules.suspended": _Setting("false", _yes_or_no),
    "schedules.max_launches_per_second": _Setting("0", _whole(0, 1000)),
    "alerts.private_hosts": _Setting("", _hosts),
    "server.host": _Setting("127.0.0.1", str),
    "server.port": _Setting("8300", _whole(0, 65535)),
    "server.names": _Setting("", _names),
    "server.tls_cert": _Setting("", str),
    "server.tls_key": _Setting("", str),
    "server.behind_proxy": _Setting("false", _yes_or_no),
    "server.proxies": _Setting("", _networks),
    "server.trust_header": _Setting("", _header),
    "server.max_requests_per_second": _Setting("1000", _whole(0, 1_000_000)),
    "server.max_streams": _Setting("100", _whole(1, 1000)),
    "log_format": _Setting("text", partial(_one_of, LogFormat)),
    "server.prefix": _Setting("", _path_prefix),
}
_USERS: Final = "server.users"
_STORES: Final = "stores"
_ENDPOINT: Final = re.compile(r"https?://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^@\s]*)?")
_STORE_FIELDS: Final = tuple(one.name for one in fields(StoreSettings) if one.name != "name")
_PROFILES: Final = "spark.profiles"
_PROFILE_FIELDS: Final = tuple(one.name for one in fields(SparkProfile) if one.name not in {"name", "conf"})
_SPARK_CONF: Final = "spark.conf"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_TABLES: Final = (_SPARK_CONF, _USERS, _STORES, _PROFILES)
_MASTER: Final = "spark.master"
REDACTION: Final = "spark.redaction.regex"
SENSITIVE: Final = r"(?i:secret|password|passphrase|token|credential|access[._-]?key|://[^/@\s]+:[^/@\s]+@)"
"""A regular expression, in Python and in Java, for names and values of settings that are secret."""
_MASK: Final = "*****"


def load_config(world: World, folder: Path, options: Mapping[str, str] | None = None) -> Config:
    """Read the configuration of the project in `folder`; `options` are what the command line gave, by setting.

    Raises `BadConfig`. Without a file the defaults hold: a SQLite catalog and all state below `.tidemill/`.
    """
    folder = folder.absolute()
    given, tables = _from_file(world, folder / FILE_NAME)
    sources = dict.fromkeys(given, FILE_NAME)
    for name in _SETTINGS:
        variable = "TIDEMILL_" + name.upper().replace(".", "_")
        if variable in world.environ:
            given[name] = world.environ[variable]
            sources[name] = variable
    for name, value in (options or {}).items():
        given[name] = value
        sources[name] = "option"
    parsed = {name: _parse(name, setting, given, sources) for name, setting in _SETTINGS.items()}
    state = folder / str(parsed["state"])
    home = Path(world.environ.get("HOME", str(folder)))
    usual_cache = Path(world.environ.get("XDG_CACHE_HOME", str(home / ".cache"))) / "tidemill"
    spark = SparkProfile(conf=tables.spark_conf, **{one: parsed[f"spark.{one}"] for one in _PROFILE_FIELDS})  # type: ignore[arg-type]  # what each setting's own parser gave
    _check_deploy_mode(spark, sources.get("spark.deploy_mode", "default"))
    return Config(
        folder=folder,
        catalog=_catalog_url(folder, str(parsed["catalog"]) or f"sqlite:///{state / 'catalog.db'}"),
        namespace=str(parsed["namespace"]),
        app=folder / str(parsed["app"]),
        data=_location(folder, str(parsed["data"]) or str(state / "data")),
        logs=_location(folder, logs) if (logs := str(parsed["logs"])) else "",
        state=state,
        cache=folder / (str(parsed["cache"]) or usual_cache),
        slots=_typed(parsed["runner.slots"], int),
        lease=_typed(parsed["runner.lease"], timedelta),
        keep_superseded=_typed(parsed["retention.superseded"], timedelta),
        keep_audit=_typed(parsed["retention.audit"], timedelta),
        keep_history=_typed(parsed["retention.history"], timedelta),
        keep_messages=_typed(parsed["retention.messages"], timedelta),
        spark=spark,
        spark_class_data=_typed(parsed["spark.class_data"], bool),
        jdbc_drivers=str(parsed["jdbc.drivers"]),
        hive_metastore=str(parsed["hive.metastore"]),
        update_schedules=_typed(parsed["deploy.update_schedules"], bool),
        suspend_new=_typed(parsed["schedules.suspended"], bool),
        most_launches=_typed(parsed["schedules.max_launches_per_second"], int),
        private_hosts=_typed(parsed["alerts.private_hosts"], frozenset),
        server=ServerSettings(
            host=str(parsed["server.host"]),
            port=_typed(parsed["server.port"], int),
            names=_typed(parsed["server.names"], frozenset),
            tls_cert=_file(folder, str(parsed["server.tls_cert"])),
            tls_key=_file(folder, str(parsed["server.tls_key"])),
            behind_proxy=_typed(parsed["server.behind_proxy"], bool),
            proxies=_typed(parsed["server.proxies"], frozenset),
            trust_header=str(parsed["server.trust_header"]),
            users=tables.users,
            most_requests=_typed(parsed["server.max_requests_per_second"], int),
            most_streams=_typed(parsed["server.max_streams"], int),
            prefix=str(parsed["server.prefix"]),
        ),
        log_format=_typed(parsed["log_format"], LogFormat),
        stores=tuple(_store(name, given) for name, given in tables.stores.items()),
        spark_profiles={name: _profile(name, table, spark) for name, table in tables.profiles.items()},
        sources={name: sources.get(name, "default") for name in _SETTINGS}
        | dict.fromkeys(tables.list_names(), FILE_NAME),
    )


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    login = f"{parts.username}@" if parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return parts._replace(netloc=f"{login}{parts.hostname or ''}{port}").geturl()


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of Spark as they may be shown and recorded: a value that may be secret is masked.

    Secret is a setting with a word such as `password` in its name or value, and one that the setting
    `spark.redaction.regex` matches.
    """
    try:
        patterns = [re.compile(pattern) for pattern in (SENSITIVE, settings.get(REDACTION, SENSITIVE))]
    except re.error:
        patterns = [re.compile("")]  # a regular expression of Java that Python cannot read: all values are masked

    def is_secret(text: str) -> bool:
        return any(pattern.search(text) for pattern in patterns)

    return {
        name: value if name == REDACTION or not (is_secret(name) or is_secret(value)) else _MASK
        for name, value in settings.items()
    }


@dataclass(frozen=True, slots=True)
class _NamedTables:
    """The tables of a file whose names are the site's: settings of Spark, users, object stores, profiles of Spark."""

    spark_conf: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    stores: dict[str, dict[str, str]] = field(default_factory=dict)
    profiles: dict[str, dict[str, str]] = field(default_factory=dict)

    def list_names(self) -> list[str]:
        """Return the names by which these settings are shown."""
        of_stores = [f"{_STORES}.{name}.{what}" for name, store in self.stores.items() for what in store]
        of_profiles = [
            f"{_PROFILES}.{name}.{what.partition('.')[0]}"
            for name, profile in self.profiles.items()
            for what in profile
        ]
        whole = [name for name, table in ((_SPARK_CONF, self.spark_conf), (_USERS, self.users)) if table]
        return [*of_stores, *of_profiles, *whole]


def _from_file(world: World, path: Path) -> tuple[dict[str, str], _NamedTables]:
    """Return the settings of a file, and its tables."""
    given: dict[str, str] = {}
    tables = _NamedTables()
    if not world.disk.exists(path):
        return given, tables
    try:
        document = tomllib.loads(world.disk.read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(FILE_NAME, str(path), str(error)) from None
    for name, value in _flat(document, ""):
        if _into_table(tables, name, value):
            continue
        if name not in _SETTINGS:
            advice = advise(name, [*_SETTINGS, *_TABLES], f"known are {', '.join(_SETTINGS)}")
            raise BadConfig(name, FILE_NAME, f"there is no such setting; {advice}")
        if isinstance(value, dict | list):
            raise BadConfig(name, FILE_NAME, f"one value is wanted, not {value!r}")
        given[name] = _text(value)
    return given, tables


def _check_zone(name: str, value: str) -> None:
    try:
        read_zone(value)
    except BadZone as error:
        raise BadConfig(name, FILE_NAME, str(error)) from None


def _into_table(tables: _NamedTables, name: str, value: object) -> bool:
    """Put a value of a file into the table that it is of; False for a value of no table. `BadConfig`."""
    if name in _TABLES and value == {}:
        return True  # all lines of the table are comments
    if name.startswith(f"{_SPARK_CONF}."):
        setting = name.removeprefix(f"{_SPARK_CONF}.")
        if setting == _TIME_ZONE:
            _check_zone(name, _text(value))
        tables.spark_conf[setting] = _text(value)
    elif name.startswith(f"{_USERS}."):
        tables.users[name.removeprefix(f"{_USERS}.")] = _text(value)
    elif name.startswith(f"{_STORES}.") and name.count(".") == 2:  # stores.NAME.FIELD
        _, store, what = name.split(".")
        tables.stores.setdefault(store, {})[what] = _text(value)
    elif name.startswith(f"{_PROFILES}."):  # spark.profiles.NAME.FIELD
        profile, _, what = name.removeprefix(f"{_PROFILES}.").partition(".")
        table = tables.profiles.setdefault(profile, {})
        if value == {} and what in {"", "conf"}:
            return True
        if isinstance(value, dict | list):
            raise BadConfig(name, FILE_NAME, f"one value is wanted, not {value!r}")
        if not what:
            raise BadConfig(name, FILE_NAME, f"a table [{name}] is wanted, not {value!r}")
        table[what] = _text(value)
    else:
        return False
    return True


def _profile(name: str, given: Mapping[str, str], usual: SparkProfile) -> SparkProfile:
    """Return the settings `[spark.profiles.NAME]`, laid over the `usual` ones of `[spark]`; `BadConfig`."""
    table = f"{_PROFILES}.{name}"
    try:
        check_name("Spark profile", name)
    except BadName as error:
        raise BadConfig(table, FILE_NAME, str(error)) from None
    # A master of [spark.conf] must not win over that of the profile.
    conf = {key: value for key, value in usual.conf.items() if not ("master" in given and key == _MASTER)}
    own: dict[str, Any] = {}
    for what, value in given.items():
        if what.startswith("conf."):
            conf[what.removeprefix("conf.")] = value
        elif what in _PROFILE_FIELDS:
            setting = f"{table}.{what}"
            own[what] = _parse(setting, _SETTINGS[f"spark.{what}"], {setting: value}, {setting: FILE_NAME})
        else:
            known = [*_PROFILE_FIELDS, "conf"]
            advice = advise(what, known, f"known are {', '.join(known)}")
            raise BadConfig(f"{table}.{what}", FILE_NAME, f"there is no such setting; {advice}")
    profile = replace(usual, name=name, conf=conf, **own)
    _check_deploy_mode(profile, FILE_NAME)
    return profile


def _check_deploy_mode(profile: SparkProfile, source: str) -> None:
    """Refuse drivers on a cluster that has no standalone master; `BadConfig`."""
    if profile.on_cluster and not profile.is_standalone:
        table = f"{_PROFILES}.{profile.name}" if profile.name else "spark"
        master = profile.conf.get(_MASTER, profile.master)
        why = f"cluster needs a standalone master, as spark://HOST:7077; the master is {master!r}"
        raise BadConfig(f"{table}.deploy_mode", source, why)


def _shown(profile: SparkProfile) -> dict[str, object]:
    """Return the effective settings of a profile for people and JSON, secrets left out."""
    table = f"{_PROFILES}.{profile.name}" if profile.name else "spark"
    known = {f"{table}.{one}": getattr(profile, one) for one in _PROFILE_FIELDS}
    return {**known, f"{table}.conf": masked(profile.conf)}


def _store(name: str, given: Mapping[str, str]) -> StoreSettings:
    """Return the settings `[stores.NAME]`; `BadConfig`."""
    table = f"{_STORES}.{name}"
    for what in given:
        if what not in _STORE_FIELDS:
            known = f"known are {', '.join(_STORE_FIELDS)}"
            advice = advise(what, _STORE_FIELDS, known)
            raise BadConfig(f"{table}.{what}", FILE_NAME, f"there is no such setting; {advice}")
    url, endpoint = given.get("url", ""), given.get("endpoint", "")
    if not url.startswith("s3://") or has_login(url):
        raise BadConfig(f"{table}.url", FILE_NAME, "use the URL of a bucket or of a folder in it, as s3://landing")
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        why = "use the address of a store, as https://minio.example.org:9000, without user and password"
        raise BadConfig(f"{table}.endpoint", FILE_NAME, why)
    credentials = given.get("credentials", "env")
    if credentials not in {"env", "instance", "none"} and not credentials.startswith("file:"):
        raise BadConfig(
            f"{table}.credentials", FILE_NAME, "use env, file:PATH, instance or none, never a secret itself"
        )
    try:
        path_style = _yes_or_no(given.get("path_style", "false"))
    except ValueError as error:
        raise BadConfig(f"{table}.path_style", FILE_NAME, str(error)) from None
    return StoreSettings(
        name=name,
        url=url.rstrip("/"),
        endpoint=endpoint,
        region=given.get("region", ""),
        path_style=path_style,
        credentials=credentials,
    )


def _flat(table: Mapping[str, object], above: str) -> list[tuple[str, object]]:
    flat: list[tuple[str, object]] = []
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and value:
            flat += _flat(value, f"{name}.")
        else:
            flat.append((name, value))
    return flat


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(name: str, setting: _Setting, given: Mapping[str, str], sources: Mapping[str, str]) -> object:
    try:
        return setting.parse(given.get(name, setting.default))
    except (ValueError, BadDuration, BadKeeping, BadLease, BadName) as error:
        raise BadConfig(name, sources.get(name, "default"), str(error)) from None


def _catalog_url(folder: Path, url: str) -> str:
    """A relative SQLite path is meant from the project's folder."""
    head, separator, path = url.partition(":///")
    if head == "sqlite" and separator and not path.startswith("/"):
        return f"sqlite:///{folder / path}"
    return url


def _location(folder: Path, location: str) -> str:
    return location if "://" in location else str(folder / location)


def _file(folder: Path, path: str) -> str:
    return str(folder / path) if path else ""


def _typed(value: object, wanted: type[_T]) -> _T:
    assert isinstance(value, wanted)  # noqa: S101  # what the setting's own parser gave
    return value
