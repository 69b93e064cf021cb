# Statements of checker.sql, written by `make stubs`.

from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_next(self) -> None: ...
