# Statements of subscriber.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_unhandled(self, *, name: Param, topic: Param) -> None: ...
    @statement
    def find_listener(self, *, event_key: Param) -> None: ...
    @statement
    def forget_topic(self, *, name: Param, topic: Param) -> None: ...
    @statement
    def count_passed(self, *, passed: Param) -> None: ...
