# Statements of outside_writes.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_declared(self, *, write_pointer: Param) -> None: ...
    @statement
    def note_commit(self, *, epoch: Param, facts: Param, run_id: Param) -> None: ...
