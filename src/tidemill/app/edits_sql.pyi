# Statements of edits.sql, written by `make stubs`.

from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_specs(self) -> None: ...
