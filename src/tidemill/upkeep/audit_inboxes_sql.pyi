# Statements of audit_inboxes.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_last_file(self, *, dataset_id: Param) -> None: ...
    @statement
    def find_bound_of_files(self, *, after: Param, dataset_id: Param, last: Param, place: Param) -> None: ...
    @statement
    def read_files(self, *, after: Param, bound: Param, dataset_id: Param, horizon: Param) -> None: ...
