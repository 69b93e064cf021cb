# Statements of hive_notes.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_note(self, *, database: Param, metastore: Param, table: Param) -> None: ...
    @statement
    def list_noted(self) -> None: ...
    @statement
    def put_note(self, *, database: Param, earlier: Param, metastore: Param, own: Param, table: Param) -> None: ...
    @statement
    def delete_note(self, *, database: Param, metastore: Param, seq: Param, table: Param) -> None: ...
