# Statements of consumer.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def unread_changes(
        self, *, dataset_id: Param, start_version: Param, versions_to_check: Param, write_pointer: Param
    ) -> None: ...
    @statement
    def find_fates(self, *, dataset_id: Param, taken: Param, write_pointer: Param) -> None: ...
