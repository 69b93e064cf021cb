# Statements of run_ends.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def lock_limits(self, *, runs: Param) -> None: ...
    @statement
    def wake_waiting_jobs(self, *, run_id: Param) -> None: ...
    @statement
    def free_slots(self, *, run_id: Param) -> None: ...
    @statement
    def announce_start(self, *, event_key: Param, payload: Param) -> None: ...
