# Statements of audit_versions.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_bound_of_versions(self, *, after: Param, dataset_id: Param, place: Param, pointer: Param) -> None: ...
    @statement
    def read_versions(self, *, after: Param, bound: Param, dataset_id: Param) -> None: ...
