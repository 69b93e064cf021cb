# Statements of backfill_records.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def insert_backfill(
        self,
        *,
        actor: Param,
        arguments: Param,
        backfill_id: Param,
        choice: Param,
        concurrency: Param,
        dataset_id: Param,
        item_kind: Param,
        namespace: Param,
        priority: Param,
        program_id: Param,
        quiet: Param,
        takes_all: Param,
        waiting: Param,
    ) -> None: ...
    @statement
    def insert_items(self, *, backfill_id: Param, items: Param) -> None: ...
    @statement
    def find_due(self) -> None: ...
    @statement
    def list_due(self) -> None: ...
    @statement
    def lock_backfill(self, *, backfill_id: Param) -> None: ...
    @statement
    def list_ended(self, *, backfill_id: Param) -> None: ...
    @statement
    def list_next(self, *, after: Param, backfill_id: Param, most: Param) -> None: ...
    @statement
    def list_running(self, *, backfill_id: Param) -> None: ...
    @statement
    def list_open_items(self, *, dataset_id: Param, program_id: Param) -> None: ...
    @statement
    def store_items(self, *, items: Param) -> None: ...
    @statement
    def move_items(self, *, after: Param, backfill_id: Param, before: Param, but: Param) -> None: ...
    @statement
    def store_backfill(
        self,
        *,
        backfill_id: Param,
        done: Param,
        dropped: Param,
        failed: Param,
        over: Param,
        reason: Param,
        running: Param,
        state: Param,
        waiting: Param,
    ) -> None: ...
    @statement
    def find_backfill(self, *, backfill_id: Param) -> None: ...
    @statement
    def list_newest(self, *, before: Param, created_before: Param, most: Param) -> None: ...
    @statement
    def list_of_program(
        self, *, before: Param, created_before: Param, most: Param, program_id: Param, state: Param
    ) -> None: ...
    @statement
    def list_of_namespace(
        self, *, before: Param, created_before: Param, most: Param, namespace: Param, state: Param
    ) -> None: ...
    @statement
    def list_in_state(self, *, before: Param, created_before: Param, most: Param, state: Param) -> None: ...
    @statement
    def list_items(self, *, after: Param, backfill_id: Param, most: Param) -> None: ...
    @statement
    def list_items_in_state(self, *, after: Param, backfill_id: Param, most: Param, state: Param) -> None: ...
