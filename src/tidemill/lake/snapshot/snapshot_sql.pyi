# Statements of snapshot.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def pin_at_begin(self, *, dataset_id: Param, pin_id: Param, run_id: Param) -> None: ...
    @statement
    def record_read(self, *, read: Param, run_id: Param) -> None: ...
    @statement
    def find_visible(self, *, dataset_id: Param, write_pointer: Param) -> None: ...
    @statement
    def supersede_older(self, *, dataset_id: Param, order_time: Param, write_pointer: Param) -> None: ...
    @statement
    def insert_version(
        self,
        *,
        dataset_id: Param,
        location: Param,
        logical_time: Param,
        metadata: Param,
        order_time: Param,
        run_id: Param,
        schema_id: Param,
        version: Param,
        write_pointer: Param,
    ) -> None: ...
    @statement
    def publish_if_current(
        self, *, dataset_id: Param, event_key: Param, payload: Param, write_pointer: Param
    ) -> None: ...
