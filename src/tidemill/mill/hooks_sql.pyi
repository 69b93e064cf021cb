# Statements of hooks.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_delivery(self, *, delivery: Param, hook: Param) -> None: ...
    @statement
    def insert_delivery(self, *, delivery: Param, hook: Param, n: Param, seq: Param) -> None: ...
    @statement
    def forget_deliveries(self, *, known: Param) -> None: ...
