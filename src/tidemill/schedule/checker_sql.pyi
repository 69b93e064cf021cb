# Statements of checker.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def lock_limits(self, *, limit_keys: Param) -> None: ...
    @statement
    def count_slots(self, *, limit_keys: Param) -> None: ...
    @statement
    def find_next(self) -> None: ...
