# Statements of time_travel.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def read_horizon(self, *, dataset_id: Param) -> None: ...
    @statement
    def find_commit_at(self, *, at: Param) -> None: ...
    @statement
    def read_clock(self) -> None: ...
