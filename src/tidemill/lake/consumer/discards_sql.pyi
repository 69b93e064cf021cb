# Statements of discards.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_unreported(self, *, consumer_id: Param, most: Param) -> None: ...
    @statement
    def refuse_if_reported(self, *, consumer: Param, consumer_id: Param, discards: Param) -> None: ...
    @statement
    def report(self, *, consumer_id: Param, discards: Param, run_id: Param) -> None: ...
