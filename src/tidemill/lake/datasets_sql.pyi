# Statements of datasets.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def insert_dataset(
        self, *, app: Param, dataset_id: Param, kind: Param, location: Param, name: Param, namespace: Param, spec: Param
    ) -> None: ...
    @statement
    def update_dataset(self, *, app: Param, dataset_id: Param, location: Param, spec: Param) -> None: ...
    @statement
    def find_by_name(self, *, name: Param, namespace: Param) -> None: ...
    @statement
    def find_by_id(self, *, dataset_id: Param) -> None: ...
    @statement
    def list_all(self, *, after_name: Param, after_namespace: Param, limit: Param) -> None: ...
    @statement
    def find_some(self, *, dataset_ids: Param) -> None: ...
