# Statements of outside_times.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_unread(self, *, dataset_id: Param, program_id: Param, seen: Param, write_pointer: Param) -> None: ...
    @statement
    def list_times(self, *, dataset_id: Param, program_id: Param) -> None: ...
    @statement
    def put_times(self, *, program_id: Param, times: Param) -> None: ...
    @statement
    def forget_times(self, *, program_id: Param) -> None: ...
