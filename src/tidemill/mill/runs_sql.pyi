# Statements of runs.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_inputs(self, *, limit: Param, run_id: Param) -> None: ...
    @statement
    def count_claims(self, *, run_id: Param) -> None: ...
