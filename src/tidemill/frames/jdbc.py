"""A database as a source: one table or query, read by Spark over JDBC, so that all of it is one state of the database.

Spark's parallel readers are connections of their own, and each would see another state (tried: four readers of a table
that is updated as a whole gave rows of two updates). On PostgreSQL one more connection exports its snapshot and holds
it open, and the readers take it over before they read. They do so only with a fetch size: without one the driver
commits after each statement, the import of the snapshot ends with its statement, and the readers see later states
(tried: three updates). MariaDB and MySQL cannot share a snapshot: one connection reads the source by one statement.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tidemill.errors import Unavailable, UserError
from tidemill.frames.jvm import gateway_of, jvm_of
from tidemill.names import advise
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

DRIVERS_SETTING: Final = "spark.tidemill.jdbc.drivers"
"""The jars of JDBC drivers, with commas between: how a site's configuration comes to where Spark is."""
_FETCH_ROWS: Final = "10000"
_REPEATABLE_READ: Final = 4
"""java.sql.Connection.TRANSACTION_REPEATABLE_READ"""
_NUMBERS: Final = frozenset({-6, 5, 4, -5, 2, 3})
"""java.sql.Types: TINYINT, SMALLINT, INTEGER, BIGINT, NUMERIC, DECIMAL."""
_TIMES: Final = frozenset({91, 93, 2014})
"""java.sql.Types: DATE, TIMESTAMP, TIMESTAMP_WITH_TIMEZONE."""


class Database(StrEnum):
    """The kind of a database, by the scheme of its URLs."""

    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    MYSQL = "mysql"


@dataclass(frozen=True, slots=True)
class _Driver:
    class_name: str
    scheme: str
    jar: str
    package: str


_MARIADB: Final = _Driver(
    "org.mariadb.jdbc.Driver", "mysql", "/usr/share/java/mariadb-java-client.jar", "libmariadb-java"
)
# MariaDB by MySQL's scheme: for its own Spark quotes names with `"`, and each row reads as the names of its columns
# (tried, 4.3).
_DRIVERS: Final[Mapping[Database, _Driver]] = {
    Database.POSTGRESQL: _Driver(
        "org.postgresql.Driver", "postgresql", "/usr/share/java/postgresql.jar", "libpostgresql-jdbc-java"
    ),
    Database.MARIADB: _MARIADB,
    Database.MYSQL: _MARIADB,
}


def usual_drivers() -> dict[str, tuple[Path, str]]:
    """The path of the driver of each database, and the Debian package that installs it."""
    return {driver.class_name: (Path(driver.jar), driver.package) for driver in _DRIVERS.values()}


class BadSource(UserError):
    """A source that cannot be, or that its database does not have so."""

    code = "bad_source"
    hint = "correct the source as the reason says"

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        self.why = why
        super().__init__(f"source {source} is refused: {why}")


class MissingDriver(UserError):
    """There is no JDBC driver for a source."""

    code = "missing_driver"

    def __init__(self, class_name: str, jar: str, package: str) -> None:
        self.class_name = class_name
        self.jar = jar
        super().__init__(
            f"there is no JDBC driver {class_name}: not at {jar}, and not in the jars of the configuration",
            f"Install Debian's package {package}, or name its jar in tidemill.toml: [jdbc] drivers = "
            '"/path/to/driver.jar"',
            before=". ",
        )


class MissingSecret(UserError):
    """A reference to a secret that leads nowhere."""

    code = "missing_secret"

    def __init__(self, reference: str) -> None:
        self.reference = reference
        super().__init__(
            f"there is no secret {reference}",
            f"set the environment variable {reference.removeprefix('env:')} where the runner is started",
            before=": ",
        )


class SourceUnavailable(Unavailable):
    """The database of a source cannot be reached, or refuses."""

    code = "source_unavailable"
    hint = "start the database of the source, or correct its address and password, and run again"

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        self.why = why
        super().__init__(f"source {source} cannot be read: {why}")


@dataclass(frozen=True, slots=True)
class Jdbc:
    """A `table` or `query` of the database at `url` (`postgresql://host/db`, `mariadb://host/db`).

    `password` is a reference (`env:NAME`), looked up where the program runs, and never stored or shown. PostgreSQL is
    read by as many connections as Spark has cores when a `partition_column` of numbers, dates or instants is named,
    whose bounds are found; else by one.
    """

    url: str
    table: str | None = field(default=None, kw_only=True)
    query: str | None = field(default=None, kw_only=True)
    user: str | None = field(default=None, kw_only=True)
    password: str | None = field(default=None, kw_only=True)
    partition_column: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what cannot be read, and secrets that are written out."""
        parts = self._parts
        if parts.password is not None or any(name.lower() == "password" for name, _ in parse_qsl(parts.query)):
            raise BadSource(self.shown, 'its URL holds a password, which would be stored; say password="env:NAME"')
        if parts.scheme not in set(Database):
            hint = advise(parts.scheme, Database, f"there are {', '.join(Database)}")
            raise BadSource(self.shown, f"there is no database {parts.scheme!r}; {hint} (postgresql://host/database)")
        if not parts.hostname or not parts.path.strip("/"):
            raise BadSource(self.shown, "its URL names no host or no database: write postgresql://host/database")
        if (self.table is None) == (self.query is None):
            raise BadSource(self.shown, "give either table= or query=")
        prefix, _, name = (self.password or "env:x").partition(":")
        if prefix != "env" or not name.isidentifier():
            raise BadSource(self.shown, 'its password must be a reference to a variable: password="env:NAME"')
        if self.partition_column is not None and self.database is not Database.POSTGRESQL:
            raise BadSource(
                self.shown,
                f"{parts.scheme} gives one state to one connection only: leave partition_column out, it is read by one",
            )

    @property
    def database(self) -> Database:
        """Return the kind of the database."""
        return Database(self._parts.scheme)

    @property
    def shown(self) -> str:
        """Text of the source for people: without user and password."""
        parts = self._parts
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path} {self.table or '(query)'}"

    @contextmanager
    def open(self, world: World, spark: SparkSession) -> Iterator[DataFrame]:
        """Yield the rows of the source, as one state, for the length of the block.

        They can be read again within the block.

        Raises `MissingDriver`, `MissingSecret`, `BadSource`, `SourceUnavailable`. Cost: a connection, one look for the
        bounds of the partition column, then Spark's own.
        """
        driver = _DRIVERS[self.database]
        login = self._login(world)
        java_driver = _load_driver(world, spark, driver)
        options = {
            "url": self._address,
            "driver": driver.class_name,
            "dbtable": self.table or f"({self.query}) AS source",
            "fetchsize": _FETCH_ROWS,
            **login,
        }
        if self.database is not Database.POSTGRESQL:
            _log.info("%s is read over one connection, by one statement: that is one state of it", self.shown)
            yield self._read(spark, options)
            return
        with _held(self, spark, java_driver, self._address, login) as connection:
            ((_, snapshot),) = _ask(self, connection, "SELECT pg_export_snapshot()")
            options["sessionInitStatement"] = (
                f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET TRANSACTION SNAPSHOT '{snapshot}'"
            )
            yield self._read(spark, options | self._find_bounds(spark, connection, options["dbtable"]))

    def _read(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            return spark.read.format("jdbc").options(**options).load()
        except Py4JJavaError as error:
            raise SourceUnavailable(self.shown, _reason(error)) from None

    def _find_bounds(self, spark: SparkSession, connection: Any, source: str) -> dict[str, str]:  # noqa: ANN401  # of the JVM
        """Return the options that divide the rows; empty if there is nothing to divide."""
        column = self.partition_column
        if column is None:
            return {}
        quoted = '"' + column.replace('"', '""') + '"'
        bounds = _ask(self, connection, f"SELECT min({quoted}), max({quoted}) FROM {source}")  # noqa: S608  # the app's
        (kind, low), (_, high) = bounds
        if kind in _NUMBERS:
            low, high = _whole(low), _whole(high)
        elif kind not in _TIMES:
            why = "has no order of numbers, dates or instants by which it could be read in parallel"
            raise BadSource(self.shown, f"its partition column {column} {why}")
        if low is None or high is None or low == high:
            return {}
        return {
            "partitionColumn": column,
            "lowerBound": low,
            "upperBound": high,
            "numPartitions": str(spark.sparkContext.defaultParallelism),
        }

    def _login(self, world: World) -> dict[str, str]:
        login = {}
        if self.user or self._parts.username:
            login["user"] = self.user or unquote(self._parts.username or "")
        if self.password is not None:
            name = self.password.removeprefix("env:")
            if name not in world.environ:
                raise MissingSecret(self.password)
            login["password"] = world.environ[name]
        return login

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url.removeprefix("jdbc:"))

    @property
    def _address(self) -> str:
        parts = self._parts
        scheme, query = _DRIVERS[self.database].scheme, parts.query
        if scheme == "mysql":  # MariaDB's driver takes MySQL's scheme since 3.0 only when asked to
            query = f"{query}&permitMysqlScheme" if query else "permitMysqlScheme"
        return f"jdbc:{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{'?' if query else ''}{query}"


def _load_driver(world: World, spark: SparkSession, driver: _Driver) -> Any:  # noqa: ANN401  # a class of the JVM
    """The driver's class, loaded from where Spark has it, the jars of the configuration, or Debian's place."""
    from py4j.protocol import Py4JJavaError

    def load() -> Any:  # noqa: ANN401  # as above
        try:
            return jvm.Thread.currentThread().getContextClassLoader().loadClass(driver.class_name)
        except Py4JJavaError:
            return None

    jvm = jvm_of(spark)
    if (found := load()) is not None:
        return found
    configured = [jar.strip() for jar in (spark.conf.get(DRIVERS_SETTING, "") or "").split(",") if jar.strip()]
    for jar in (*configured, driver.jar):
        if world.disk.exists(Path(jar)):
            spark.sql(f"ADD JAR '{jar}'")
            if (found := load()) is not None:
                return found
    raise MissingDriver(driver.class_name, driver.jar, driver.package)


@contextmanager
def _held(
    source: Jdbc,
    spark: SparkSession,
    java_driver: Any,  # noqa: ANN401  # of the JVM
    address: str,
    login: Mapping[str, str],
) -> Iterator[Any]:
    """A connection in a transaction that stays open for the block, also if idle ones are ended."""
    from py4j.protocol import Py4JJavaError

    jvm = jvm_of(spark)
    gateway = gateway_of(spark)
    properties = jvm.java.util.Properties()
    for name, value in login.items():
        properties.setProperty(name, value)
    try:
        made = java_driver.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
        # Not by DriverManager: it knows only drivers of its caller's class loader.
        arguments = gateway.new_array(jvm.java.lang.Object, 0)
        connection = made.newInstance(arguments).connect(address, properties)
        connection.setTransactionIsolation(_REPEATABLE_READ)
        connection.setReadOnly(True)
        connection.setAutoCommit(False)
        connection.createStatement().execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    except Py4JJavaError as error:
        raise SourceUnavailable(source.shown, _reason(error)) from None
    try:
        yield connection
    finally:
        connection.close()


def _ask(source: Jdbc, connection: Any, statement: str) -> list[tuple[int, str | None]]:  # noqa: ANN401  # of the JVM
    """The only row of `statement`: the type (java.sql.Types) and text of each of its columns."""
    from py4j.protocol import Py4JJavaError

    try:
        rows = connection.createStatement().executeQuery(statement)
        rows.next()
        columns = rows.getMetaData()
        places = range(1, columns.getColumnCount() + 1)
        return [(columns.getColumnType(place), rows.getString(place)) for place in places]
    except Py4JJavaError as error:
        raise SourceUnavailable(source.shown, _reason(error)) from None


def _whole(number: str | None) -> str | None:
    """A bound as Spark takes it; None for what is none (NaN), or beyond 64 bits."""
    if number is None or not (decimal := Decimal(number)).is_finite() or abs(decimal) >= 1 << 63:
        return None
    return str(int(decimal))


def _reason(error: Exception) -> str:
    """Return the message of the database: the first line of its exception."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.getMessage()) if cause is not None else str(error)
    return text.strip().partition("\n")[0] or type(error).__name__
