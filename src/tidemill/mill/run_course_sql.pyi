# Statements of run_course.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_attempts(self, *, limit: Param, run_id: Param) -> None: ...
    @statement
    def list_published(self, *, limit: Param, seq: Param) -> None: ...
