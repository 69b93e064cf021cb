# Statements of storage.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_bound(self, *, after: Param, dataset_id: Param, place: Param) -> None: ...
    @statement
    def read_locations(self, *, after: Param, bound: Param, dataset_id: Param) -> None: ...
    @statement
    def read_manifests(self, *, after: Param, bound: Param, dataset_id: Param) -> None: ...
    @statement
    def find_transactions(self, *, dataset_id: Param, incarnation: Param, pointers: Param) -> None: ...
