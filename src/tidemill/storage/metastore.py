"""Hive metastores: what they know of a table and of its partitions, asked over Thrift, without a JVM.

A metastore is the service that Hive, Spark and Flink ask for their tables (Apache Hive, `HiveMetaStore`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tidemill.errors import Unavailable
from tidemill.storage.hive_lines import HiveLines, why_not_json, why_not_lines

_ANSWER_WITHIN_MS: Final = 20_000
_USUAL_PORT: Final = 9083
_AT_ONCE: Final = 500
"""The partitions of one request."""
_SCHEMA: Final = "spark.sql.sources.schema"
_PROVIDER: Final = "spark.sql.sources.provider"
_NAMED: Final = ("parquet", "orc", "json")
"""Formats whose names are a part of the names of Hive's classes for them."""
HIVE_FORMATS: Final = (*_NAMED, "text")
"""The formats of tables that are read."""
_TEXT: Final = "org.apache.hadoop.hive.serde2.lazy.lazysimpleserde"
_OPEN_CSV: Final = "org.apache.hadoop.hive.serde2.opencsvserde"
_ONLY_TEXTS: Final = (
    "OpenCSVSerde gives only texts, and no times: make another table over the same directory, with ROW FORMAT "
    "DELIMITED FIELDS TERMINATED BY ',' if no value is in quotes, or have it written AS PARQUET"
)
_STATISTICS_STAY: Final = {"DO_NOT_UPDATE_STATS": "true"}


class MetastoreUnavailable(Unavailable):
    """The Hive metastore cannot be asked: it does not answer, or answers with an error (`answers`)."""

    code = "metastore_unavailable"
    hint = "bring the metastore back, or correct its address (`hive.metastore` in tidemill.toml)"

    def __init__(self, address: str, why: str, *, answers: bool = False) -> None:
        self.address = address
        self.why = why
        self.answers = answers
        super().__init__(f"the Hive metastore {address} fails: {why}")


class NoPymetastore(MetastoreUnavailable):
    """A Hive metastore is to be asked where the library for it is not installed."""

    code = "no_pymetastore"
    hint = '`pip install "tidemill[hive]"`'

    def __init__(self, address: str) -> None:
        super().__init__(address, "pymetastore, which asks it, is not installed")


@dataclass(frozen=True, slots=True)
class HiveTable:
    """A table as the metastore describes it.

    `keys` and `hive_columns` are Hive's types by name. `columns` are the fields of Spark's JSON for a struct, empty for
    a table that Spark has not made. `file_format` is empty for a format that Tidemill does not read. `lines` has the
    delimiters of a table in text. `why_not` says why the files alone are not the table; empty where they are.
    """

    location: str
    file_format: str
    keys: Mapping[str, str]
    columns: tuple[Mapping[str, Any], ...]
    hive_columns: Mapping[str, str]
    properties: Mapping[str, str]
    lines: HiveLines | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class HivePartition:
    """A partition as the metastore describes it, which may differ from its table.

    `file_format` is empty where Hive's classes name none, `lines` is None where they do not read lines of text.
    """

    location: str
    file_format: str
    lines: HiveLines | None


@contextmanager
def open_metastore(address: str) -> Iterator[Metastore]:
    """Connect to the metastore at `thrift://HOST:PORT`; of several addresses with commas, to the first that answers.

    Errors: `MetastoreUnavailable`, also for what fails inside the block, and `NoPymetastore`.
    """
    try:
        from pymetastore.hive_metastore import ThriftHiveMetastore  # type: ignore[import-untyped]
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
        from thrift.Thrift import TException  # type: ignore[import-untyped]
        from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]
        from thrift.transport.TTransport import (  # type: ignore[import-untyped]
            TBufferedTransport,
            TTransportException,
        )
    except ImportError:
        raise NoPymetastore(address) from None

    why = ""
    for one in address.split(","):
        parts = urlsplit(one.strip())
        socket = TSocket(parts.hostname, parts.port or _USUAL_PORT)
        socket.setTimeout(_ANSWER_WITHIN_MS)
        transport = TBufferedTransport(socket)
        try:
            transport.open()
        except TException as error:
            why = _one_line(error)
            continue
        try:
            yield Metastore(ThriftHiveMetastore.Client(TBinaryProtocol(transport)))
        except TException as error:
            answers = not isinstance(error, TTransportException)
            raise MetastoreUnavailable(address, _one_line(error), answers=answers) from error
        finally:
            transport.close()
        return
    raise MetastoreUnavailable(address, why)


class Metastore:
    """A connection to a metastore."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  # generated code has no types
        self._client = client

    def find_table(self, database: str, name: str) -> HiveTable | None:
        """Return what is known of a table; None if there is none of this name."""
        from pymetastore.hive_metastore.ttypes import NoSuchObjectException  # type: ignore[import-untyped]

        try:
            return describe(self._client.get_table(database, name))
        except NoSuchObjectException:
            return None

    def list_partitions(self, database: str, name: str) -> list[str]:
        """Return the names of all partitions of a table, such as `day=2026-01-01/hour=5`."""
        return list(self._client.get_partition_names(database, name, -1))

    def find_partitions(self, database: str, name: str, partitions: Iterable[str]) -> dict[str, HivePartition]:
        """Return what is known of partitions, by their names."""
        named = {tuple(unquote(part.partition("=")[2]) for part in one.split("/")): one for one in partitions}
        asked, found = list(named.values()), {}
        for start in range(0, len(asked), _AT_ONCE):
            for one in self._client.get_partitions_by_names(database, name, asked[start : start + _AT_ONCE]):
                found[named[tuple(one.values)]] = describe_partition(one)
        return found

    def change_properties(
        self, database: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Give a table the properties that `change` makes of its present ones; the rest of the table stays.

        Nothing is written if the table has these properties already, or if there is no such table.
        """
        from pymetastore.hive_metastore.ttypes import EnvironmentContext, NoSuchObjectException

        try:
            table = self._client.get_table(database, name)
        except NoSuchObjectException:
            return
        before = dict(table.parameters or {})
        after = dict(change(before))
        if after != before:
            table.parameters = after
            context = EnvironmentContext(_STATISTICS_STAY)
            self._client.alter_table_with_environment_context(database, name, table, context)


def describe(table: Any) -> HiveTable:  # noqa: ANN401  # generated code has no types
    """Return what Thrift's structure of a table says, without the parts that only Hive uses."""
    storage, properties = table.sd, dict(table.parameters or {})
    library, own = _serde_of(storage)
    provider = properties.get(_PROVIDER, "").lower()
    keys = {one.name: one.type for one in table.partitionKeys or ()}
    columns = {one.name: one.type for one in storage.cols or ()}
    file_format = next((one for one in _NAMED if one == provider), "") if provider else _format_of(storage)
    why_not = _why_not(table.tableType, properties)
    if file_format == "text":
        why_not = why_not or why_not_lines({**own, **properties}, columns)
    if file_format == "json":
        why_not = why_not or why_not_json(own)
    if library == _OPEN_CSV:
        why_not = why_not or _ONLY_TEXTS
    return HiveTable(
        location=as_url(storage.location or ""),
        file_format=file_format,
        keys=keys,
        columns=tuple(one for one in _spark_fields(properties) if one["name"] not in keys),
        hive_columns=columns,
        properties=properties,
        lines=HiveLines.of(own) if file_format == "text" else None,
        why_not=why_not,
    )


def describe_partition(partition: Any) -> HivePartition:  # noqa: ANN401  # generated code has no types
    """Return what Thrift's structure of a partition says of its files."""
    file_format = _format_of(partition.sd)
    lines = HiveLines.of(_serde_of(partition.sd)[1]) if file_format == "text" else None
    return HivePartition(as_url(partition.sd.location or ""), file_format, lines)


def _serde_of(storage: Any) -> tuple[str, dict[str, str]]:  # noqa: ANN401  # as above
    """Return the class that reads rows, in small letters, and its properties."""
    serde = storage.serdeInfo
    return ((serde.serializationLib or "").lower(), dict(serde.parameters or {})) if serde else ("", {})


def _format_of(storage: Any) -> str:  # noqa: ANN401  # as above
    """Return the format of files by Hive's classes for them; empty for another format."""
    library, _ = _serde_of(storage)
    classes = f"{storage.inputFormat} {library}".lower()
    return next((one for one in _NAMED if one in classes), "text" if library == _TEXT else "")


def as_url(location: str) -> str:
    """Return a location of Hadoop as Tidemill writes it: `file:///…` for `file:/…`, `s3://` for `s3a://`."""
    if location.startswith("file:/") and not location.startswith("file://"):
        return f"file://{location.removeprefix('file:')}"
    return f"s3://{location.partition('://')[2]}" if location.startswith(("s3a://", "s3n://")) else location


def _spark_fields(properties: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return the fields of the schema that Spark keeps in the properties, in parts where it is long."""
    parts = range(int(properties.get(f"{_SCHEMA}.numParts", "0")))
    text = properties.get(_SCHEMA) or "".join(properties[f"{_SCHEMA}.part.{number}"] for number in parts)
    fields: list[Mapping[str, Any]] = json.loads(text)["fields"] if text else []
    return fields


def _why_not(kind: str, properties: Mapping[str, str]) -> str:
    if kind == "VIRTUAL_VIEW":
        return "it is a view"
    if properties.get("transactional", "").lower() == "true":
        return "it is transactional: which of its files count, only Hive knows"
    return ""


def _one_line(error: Exception) -> str:
    return " ".join((getattr(error, "message", "") or str(error) or type(error).__name__).split())[:500]
