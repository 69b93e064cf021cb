# Statements of schedules.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def lock_schedules(self, *, schedule_ids: Param) -> None: ...
    @statement
    def share_listening(self, *, schedule_ids: Param) -> None: ...
    @statement
    def read_schedules(self, *, schedule_ids: Param) -> None: ...
    @statement
    def find_schedule(self, *, app: Param, name: Param, namespace: Param) -> None: ...
    @statement
    def list_by_name(self, *, name: Param) -> None: ...
    @statement
    def list_schedules(
        self,
        *,
        after_app: Param,
        after_name: Param,
        after_namespace: Param,
        limit: Param,
        until_app: Param,
        until_name: Param,
        until_namespace: Param,
    ) -> None: ...
    @statement
    def list_by_status(
        self,
        *,
        after_app: Param,
        after_name: Param,
        after_namespace: Param,
        limit: Param,
        status: Param,
        until_app: Param,
        until_name: Param,
        until_namespace: Param,
    ) -> None: ...
    @statement
    def list_by_program(
        self,
        *,
        after_app: Param,
        after_name: Param,
        after_namespace: Param,
        limit: Param,
        program_id: Param,
        status: Param,
        trigger_type: Param,
        until_app: Param,
        until_name: Param,
        until_namespace: Param,
    ) -> None: ...
    @statement
    def list_by_trigger_type(
        self,
        *,
        after_app: Param,
        after_name: Param,
        after_namespace: Param,
        limit: Param,
        status: Param,
        trigger_type: Param,
        until_app: Param,
        until_name: Param,
        until_namespace: Param,
    ) -> None: ...
    @statement
    def list_by_event_key(self, *, event_key: Param) -> None: ...
    @statement
    def read_trigger_keys(self, *, event_keys: Param) -> None: ...
    @statement
    def read_timers(self, *, schedule_id: Param) -> None: ...
    @statement
    def read_boundaries(self, *, schedule_id: Param) -> None: ...
    @statement
    def list_suspended(self, *, since: Param, until: Param) -> None: ...
    @statement
    def list_passed(self, *, schedule_id: Param) -> None: ...
