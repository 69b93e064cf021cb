# Statements of fires.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_timers(self, *, at: Param, limit: Param) -> None: ...
