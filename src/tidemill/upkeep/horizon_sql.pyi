# Statements of horizon.sql, written by `make stubs`.

from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def read_horizon(self) -> None: ...
    @statement
    def find_oldest_run(self) -> None: ...
