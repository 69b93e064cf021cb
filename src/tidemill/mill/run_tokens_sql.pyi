# Statements of run_tokens.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_attempt(self, *, run_id: Param) -> None: ...
