# Statements of project.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def name_programs(self, *, ids: Param) -> None: ...
    @statement
    def name_schedules(self, *, ids: Param) -> None: ...
    @statement
    def find_namespace_of_run(self, *, run_id: Param) -> None: ...
    @statement
    def find_namespace_of_job(self, *, job_id: Param) -> None: ...
