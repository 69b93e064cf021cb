# Statements of subscriber.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_unhandled(self, *, name: Param, topic: Param) -> None: ...
