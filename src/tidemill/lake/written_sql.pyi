# Statements of written.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def read_written(self, *, dataset_id: Param, write_pointer: Param) -> None: ...
    @statement
    def find_writers(self, *, dataset_id: Param, keys: Param) -> None: ...
