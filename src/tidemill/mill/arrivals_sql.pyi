# Statements of arrivals.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def count_arrivals(self, *, dataset_id: Param, most: Param, since: Param, step: Param) -> None: ...
    @statement
    def list_completed(self, *, most: Param, program_id: Param, since: Param) -> None: ...
