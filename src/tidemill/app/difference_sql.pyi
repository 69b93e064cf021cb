# Statements of difference.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_datasets(self, *, app: Param, namespace: Param) -> None: ...
    @statement
    def list_programs(self, *, app: Param, namespace: Param) -> None: ...
    @statement
    def list_consumers(self, *, prefix: Param) -> None: ...
    @statement
    def list_schedules(self, *, app: Param, namespace: Param) -> None: ...
