# Statements of totals.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def subtract_replaced(self, *, dataset_id: Param, keys: Param) -> None: ...
    @statement
    def add_written(self, *, added: Param, dataset_id: Param) -> None: ...
    @statement
    def replace_compacted(
        self, *, bytes: Param, dataset_id: Param, files: Param, keys: Param, named: Param, row_count: Param
    ) -> None: ...
    @statement
    def find_totals(self, *, dataset_ids: Param) -> None: ...
    @statement
    def compare_totals(self, *, dataset_id: Param) -> None: ...
