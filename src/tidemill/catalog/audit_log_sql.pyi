# Statements of audit_log.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def add_entry(self, *, action: Param, actor: Param, audit_id: Param, detail: Param, subject: Param) -> None: ...
    @statement
    def list_entries(self, *, before: Param, limit: Param) -> None: ...
    @statement
    def list_entries_of(self, *, before: Param, limit: Param, subject: Param) -> None: ...
