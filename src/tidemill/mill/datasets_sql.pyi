# Statements of datasets.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_current(
        self, *, after_key: Param, after_seq: Param, dataset_id: Param, limit: Param, upper: Param
    ) -> None: ...
    @statement
    def list_first_changes(self, *, dataset_id: Param, limit: Param, lower: Param, upper: Param) -> None: ...
    @statement
    def list_dropped(self, *, before_key: Param, before_seq: Param, dataset_id: Param, limit: Param) -> None: ...
    @statement
    def list_schemas(self, *, after: Param, dataset_id: Param, limit: Param) -> None: ...
    @statement
    def list_keys(self, *, dataset_id: Param, limit: Param, lower: Param, upper: Param) -> None: ...
