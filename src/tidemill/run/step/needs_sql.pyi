# Statements of needs.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_course(self, *, consumer_id: Param, dataset_id: Param, keys: Param, program_id: Param) -> None: ...
