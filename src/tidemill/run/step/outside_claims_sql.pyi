# Statements of outside_claims.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def complete_claim(self, *, epoch: Param, facts: Param, run_id: Param) -> None: ...
    @statement
    def find_closed(self, *, dataset_id: Param, names: Param, run_id: Param) -> None: ...
