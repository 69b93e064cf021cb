# Statements of usual.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_run_spans(self, *, limit: Param, program_id: Param) -> None: ...
    @statement
    def list_longest_waits(self, *, limit: Param, schedules: Param) -> None: ...
    @statement
    def list_ends(self, *, limit: Param, program_id: Param) -> None: ...
