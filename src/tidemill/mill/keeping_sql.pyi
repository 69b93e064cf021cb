# Statements of keeping.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def keep_answer(self, *, answer: Param, attempt: Param, caller: Param, request_key: Param) -> None: ...
    @statement
    def keep_part(self, *, attempt: Param, caller: Param, part: Param, request_key: Param) -> None: ...
    @statement
    def refuse_if_taken_over(self, *, attempt: Param, caller: Param, request_key: Param) -> None: ...
