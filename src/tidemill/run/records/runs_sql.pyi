# Statements of runs.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def insert_runs(self, *, runs: Param) -> None: ...
    @statement
    def insert_slots(self, *, slots: Param) -> None: ...
    @statement
    def insert_external(
        self, *, host: Param, lease: Param, owner: Param, pid: Param, run_id: Param, triggered_by: Param
    ) -> None: ...
    @statement
    def find_runs(self, *, runs: Param) -> None: ...
    @statement
    def find_with_program(self, *, run_id: Param) -> None: ...
    @statement
    def find_moved(self, *, held: Param) -> None: ...
    @statement
    def list_newest(self, *, before: Param, created_before: Param, most: Param, since: Param) -> None: ...
    @statement
    def list_of_namespace(
        self, *, before: Param, created_before: Param, most: Param, namespace: Param, since: Param
    ) -> None: ...
    @statement
    def list_ended_of_namespace(
        self, *, before: Param, created_before: Param, most: Param, namespace: Param, since: Param, state: Param
    ) -> None: ...
    @statement
    def list_of_program(
        self, *, before: Param, created_before: Param, most: Param, program_id: Param, since: Param
    ) -> None: ...
    @statement
    def list_of_schedule(
        self,
        *,
        before: Param,
        created_before: Param,
        most: Param,
        program_id: Param,
        schedule_id: Param,
        since: Param,
        state: Param,
    ) -> None: ...
    @statement
    def list_of_workflow(
        self,
        *,
        before: Param,
        created_before: Param,
        most: Param,
        namespace: Param,
        program_id: Param,
        since: Param,
        state: Param,
        workflow: Param,
    ) -> None: ...
    @statement
    def list_ended_in(
        self, *, before: Param, created_before: Param, most: Param, since: Param, state: Param
    ) -> None: ...
    @statement
    def list_ended_of_program(
        self, *, before: Param, created_before: Param, most: Param, program_id: Param, since: Param, state: Param
    ) -> None: ...
    @statement
    def list_pending(
        self, *, before: Param, created_before: Param, most: Param, namespace: Param, program_id: Param, since: Param
    ) -> None: ...
    @statement
    def list_under_way(
        self,
        *,
        before: Param,
        created_before: Param,
        most: Param,
        namespace: Param,
        program_id: Param,
        since: Param,
        state: Param,
    ) -> None: ...
    @statement
    def find_unfinished(self, *, avoided: Param) -> None: ...
    @statement
    def list_unloaded(self) -> None: ...
    @statement
    def list_lacking(self) -> None: ...
    @statement
    def list_live(self) -> None: ...
    @statement
    def ask_kill(self, *, run_id: Param, state: Param) -> None: ...
