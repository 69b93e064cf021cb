# Statements of attempts.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def take_late(
        self,
        *,
        avoided: Param,
        host: Param,
        lease: Param,
        most: Param,
        owner: Param,
        owner_process: Param,
        with_spark: Param,
    ) -> None: ...
    @statement
    def take_runs(
        self, *, avoided: Param, host: Param, lease: Param, most: Param, owner: Param, owner_process: Param
    ) -> None: ...
    @statement
    def take_plain_runs(
        self, *, avoided: Param, host: Param, lease: Param, most: Param, owner: Param, owner_process: Param
    ) -> None: ...
    @statement
    def read_taken(self, *, runs: Param) -> None: ...
    @statement
    def take_workers(
        self, *, avoided: Param, host: Param, lease: Param, owner: Param, owner_process: Param
    ) -> None: ...
    @statement
    def find_due_workers(self, *, avoided: Param) -> None: ...
    @statement
    def find_late(self, *, avoided: Param, with_spark: Param) -> None: ...
    @statement
    def find_due(self, *, avoided: Param) -> None: ...
    @statement
    def find_plain_due(self, *, avoided: Param) -> None: ...
    @statement
    def find_next_due(self, *, since: Param) -> None: ...
    @statement
    def register(
        self, *, epoch: Param, facts: Param, log_location: Param, pid: Param, run_id: Param, token_digest: Param
    ) -> None: ...
    @statement
    def note_stages(self, *, epoch: Param, run_id: Param, stages: Param) -> None: ...
    @statement
    def renew_leases(self, *, held: Param, lease: Param) -> None: ...
    @statement
    def refuse_unless_running(self, *, epoch: Param, run_id: Param) -> None: ...
    @statement
    def refuse_unless_starting(self, *, epoch: Param, run_id: Param) -> None: ...
    @statement
    def register_and_attach(
        self, *, epoch: Param, facts: Param, log_location: Param, pid: Param, run_id: Param, token_digest: Param
    ) -> None: ...
    @statement
    def attach_transaction(self, *, epoch: Param, run_id: Param) -> None: ...
    @statement
    def refuse_if_moved(
        self, *, epoch: Param, kill_asked: Param, lease_until: Param, run_id: Param, state: Param, write_pointer: Param
    ) -> None: ...
    @statement
    def complete_run(
        self, *, core_time: Param, epoch: Param, facts: Param, open_for: Param, reason: Param, run_id: Param
    ) -> None: ...
    @statement
    def repeat_run(
        self,
        *,
        cause: Param,
        core_time: Param,
        delay: Param,
        epoch: Param,
        failures: Param,
        losses: Param,
        reason: Param,
        run_id: Param,
    ) -> None: ...
    @statement
    def end_run(
        self,
        *,
        cause: Param,
        core_time: Param,
        epoch: Param,
        failures: Param,
        losses: Param,
        reason: Param,
        run_id: Param,
        state: Param,
    ) -> None: ...
