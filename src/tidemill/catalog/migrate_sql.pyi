# Statements of migrate.sql, written by `make stubs`.

from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def read_version(self) -> None: ...
    @statement
    def read_incarnation(self) -> None: ...
