"""A Hive metastore in this process: Hive's own protocol over tables in memory, for tests without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from pymetastore.hive_metastore import ThriftHiveMetastore
from pymetastore.hive_metastore.ttypes import (
    FieldSchema,
    MetaException,
    NoSuchObjectException,
    Partition,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"


@dataclass
class TablesOfHive:
    """Handler of the calls. While the metastore is `away`, each call is refused; while `silent`, none is answered."""

    tables: dict[str, Table] = field(default_factory=dict)
    away: bool = False
    silent: bool = False
    unanswered: int = 0
    broken: set[str] = field(default_factory=set)
    """Tables about which each call is refused."""
    before_alter: list[Callable[[], object]] = field(default_factory=list)
    """Acts that happen once, each before an ALTER of a client takes effect."""
    alters: int = 0
    days: list[str] = field(default_factory=list)
    """The partitions of each table."""

    def create(self, name: str, location: str, reads: str = PARQUET, library: str = "", **properties: str) -> None:
        """Create a table with a day, in files that Hive's class `reads`, and whose rows are of `library`."""
        columns = [FieldSchema("x", "int"), FieldSchema("ts", "timestamp")]
        serde = SerDeInfo(serializationLib=library)
        storage = StorageDescriptor(cols=columns, location=location, inputFormat=reads, serdeInfo=serde)
        keys = [FieldSchema("day", "string")]
        self.tables[name] = Table(
            tableName=name,
            dbName="default",
            sd=storage,
            partitionKeys=keys,
            parameters=properties,
            tableType="EXTERNAL_TABLE",
        )

    def properties(self, name: str) -> dict[str, str]:
        """Return the properties of a table."""
        return dict(self.tables[name].parameters)

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        """Answer a client."""
        self._check(tbl_name)
        if tbl_name not in self.tables:
            raise NoSuchObjectException(f"{dbname}.{tbl_name}")
        return deepcopy(self.tables[tbl_name])

    def get_partition_names(self, db_name: str, tbl_name: str, max_parts: int) -> list[str]:
        """Answer a client."""
        del db_name, tbl_name, max_parts
        return [f"day={day}" for day in self.days]

    def get_partitions_by_names(self, db_name: str, tbl_name: str, names: list[str]) -> list[Partition]:
        """Answer a client."""
        del db_name
        storage = self.tables[tbl_name].sd
        found = [(name.removeprefix("day="), deepcopy(storage)) for name in names]
        for day, own in found:
            own.location = f"{storage.location}/day={day}"
        return [Partition(values=[day], sd=own) for day, own in found]

    def alter_table_with_environment_context(self, dbname: str, tbl_name: str, new_tbl: Table, context: Any) -> None:
        """Carry out an ALTER of a client."""
        del dbname, context
        self._check(tbl_name)
        if self.before_alter:
            self.before_alter.pop()()
        self.alters += 1
        self.tables[tbl_name] = new_tbl

    def _check(self, name: str) -> None:
        if self.silent:
            self.unanswered += 1
            raise TTransportException  # the connection ends
        if self.away or name in self.broken:
            raise MetaException("no answer today")


@contextmanager
def serving_metastore() -> Iterator[tuple[TablesOfHive, str]]:
    """Serve a metastore without tables, and yield it with its address."""
    tables = TablesOfHive()
    processor = ThriftHiveMetastore.Processor(tables)

    class Connection(BaseRequestHandler):
        def handle(self) -> None:
            transport = TSocket()
            transport.setHandle(self.request)
            protocol = TBinaryProtocol(TBufferedTransport(transport))
            with suppress(TTransportException):  # the client has gone
                while True:
                    processor.process(protocol, protocol)

    with ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield tables, f"thrift://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
