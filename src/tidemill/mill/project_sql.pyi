# Statements of project.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def name_programs(self, *, ids: Param) -> None: ...
    @statement
    def name_schedules(self, *, ids: Param) -> None: ...
