# Statements of advice.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_uneven(self, *, dataset_id: Param, length: Param) -> None: ...
    @statement
    def count_appended(self, *, dataset_id: Param, latest: Param) -> None: ...
