# Statements of refresh_order.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def order_by_logical_time(self, *, logical_time: Param, run_began: Param, snapshots: Param) -> None: ...
    @statement
    def order_by_begin(self, *, snapshots: Param) -> None: ...
    @statement
    def find_order(self, *, dataset_id: Param, write_pointer: Param) -> None: ...
