# Statements of holding.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_incomplete(
        self, *, dataset_id: Param, ends: Param, limit: Param, low: Param, max_ahead: Param
    ) -> None: ...
    @statement
    def list_missing(self, *, dataset_id: Param, limit: Param, low: Param, max_ahead: Param) -> None: ...
    @statement
    def list_waits(self, *, dataset_id: Param, ends: Param, limit: Param, low: Param) -> None: ...
    @statement
    def list_ahead(self, *, dataset_id: Param, limit: Param) -> None: ...
    @statement
    def find_first_parked(self, *, dataset_id: Param) -> None: ...
