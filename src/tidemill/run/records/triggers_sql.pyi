# Statements of triggers.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def read_fed(self, *, most: Param, positions: Param) -> None: ...
