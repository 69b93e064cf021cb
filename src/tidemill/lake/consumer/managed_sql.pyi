# Statements of managed.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def put_consumer(
        self,
        *,
        attempts: Param,
        consumer_id: Param,
        dataset_id: Param,
        name: Param,
        since_seq: Param,
        spec: Param,
        start_version: Param,
        versions_to_check: Param,
    ) -> None: ...
    @statement
    def find_consumer(self, *, dataset_id: Param, name: Param) -> None: ...
    @statement
    def find_readers(self, *, wanted: Param) -> None: ...
    @statement
    def find_holding(self, *, run_id: Param) -> None: ...
    @statement
    def list_consumers(
        self, *, after_dataset: Param, after_name: Param, dataset_id: Param, limit: Param, name: Param
    ) -> None: ...
    @statement
    def measure_lag(
        self, *, consumer_id: Param, dataset_id: Param, start_version: Param, versions_to_check: Param
    ) -> None: ...
    @statement
    def list_work(self, *, consumer_id: Param, limit: Param, state: Param) -> None: ...
    @statement
    def count_lives(self, *, dataset_id: Param, name: Param) -> None: ...
    @statement
    def count_work(self, *, consumer_id: Param) -> None: ...
