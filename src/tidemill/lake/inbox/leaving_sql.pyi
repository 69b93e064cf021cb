# Statements of leaving.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_leaving(self, *, most: Param) -> None: ...
    @statement
    def note_left(self, *, files: Param) -> None: ...
