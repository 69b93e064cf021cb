# Statements of completed.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_commits_of_runs(self, *, runs: Param) -> None: ...
