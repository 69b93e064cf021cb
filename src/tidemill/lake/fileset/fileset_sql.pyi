# Statements of fileset.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_schema(self, *, dataset_id: Param) -> None: ...
    @statement
    def read_visible(
        self, *, compacted: Param, dataset_id: Param, lower: Param, no_files: Param, upper: Param, write_pointer: Param
    ) -> None: ...
    @statement
    def lock_dataset(self, *, dataset_id: Param) -> None: ...
    @statement
    def insert_pin(
        self, *, commit_seq: Param, dataset_id: Param, pin_id: Param, run_id: Param, until: Param
    ) -> None: ...
    @statement
    def delete_pins(self, *, run_id: Param) -> None: ...
