# Statements of facts.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def lock_limits(self, *, limit_keys: Param) -> None: ...
    @statement
    def count_slots(self, *, limit_keys: Param) -> None: ...
    @statement
    def list_last_successes(self, *, programs: Param) -> None: ...
    @statement
    def list_starts(self, *, windows: Param) -> None: ...
