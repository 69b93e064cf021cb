# Statements of compaction.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def refuse_replaced(self, *, dataset: Param, dataset_id: Param, named: Param) -> None: ...
    @statement
    def refuse_compacted(self, *, dataset: Param, dataset_id: Param, wanted: Param) -> None: ...
    @statement
    def mark_compacted(self, *, dataset_id: Param, named: Param) -> None: ...
    @statement
    def supersede_compactions(self, *, dataset_id: Param, keys: Param) -> None: ...
    @statement
    def insert_compactions(
        self, *, dataset_id: Param, location: Param, made: Param, run_id: Param, write_pointer: Param
    ) -> None: ...
