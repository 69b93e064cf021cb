# Statements of transactions.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_runs(self, *, run_ids: Param) -> None: ...
    @statement
    def list_published(self, *, limit: Param, write_pointer: Param) -> None: ...
