# Statements of topics.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_newest(
        self, *, after: Param, built_in: Param, kind: Param, limit: Param, text: Param, upto: Param
    ) -> None: ...
    @statement
    def find_newest(self, *, topic: Param) -> None: ...
    @statement
    def list_positions(self, *, topics: Param) -> None: ...
    @statement
    def list_outside(self, *, limit: Param, topic: Param) -> None: ...
    @statement
    def read_newest(self, *, limit: Param, topic: Param) -> None: ...
    @statement
    def count_quarantined(self, *, topics: Param) -> None: ...
    @statement
    def list_quarantined(
        self, *, before_n: Param, before_name: Param, before_seq: Param, limit: Param, topic: Param
    ) -> None: ...
