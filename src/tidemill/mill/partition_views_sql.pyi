# Statements of partition_views.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def measure_days(self, *, dataset_id: Param, most: Param) -> None: ...
    @statement
    def list_history(self, *, dataset_id: Param, limit: Param, partition_key: Param) -> None: ...
    @statement
    def list_takers(self, *, dataset_id: Param, limit: Param, partition_key: Param) -> None: ...
