# Statements of backfill_plan.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_partitions(self, *, after: Param, dataset_id: Param, lower: Param, most: Param, upper: Param) -> None: ...
    @statement
    def list_named(self, *, dataset_id: Param, keys: Param) -> None: ...
    @statement
    def list_changed(self, *, dataset_id: Param, first: Param, last: Param, most: Param) -> None: ...
    @statement
    def list_open_times(self, *, schedule_id: Param, since: Param) -> None: ...
