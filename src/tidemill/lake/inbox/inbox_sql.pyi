# Statements of inbox.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def insert_marker(
        self, *, afterwards: Param, archive: Param, attempts: Param, dataset_id: Param, retry_after: Param
    ) -> None: ...
    @statement
    def list_files(self, *, after: Param, dataset_id: Param, limit: Param, state: Param) -> None: ...
    @statement
    def list_versions(self, *, content_version: Param, dataset_id: Param, name: Param, state: Param) -> None: ...
    @statement
    def count_files(self, *, dataset_id: Param) -> None: ...
