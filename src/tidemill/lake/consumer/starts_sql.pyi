# Statements of starts.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_last_before(self, *, dataset_id: Param, moment: Param) -> None: ...
