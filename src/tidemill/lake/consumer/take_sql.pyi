# Statements of take.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def find_unread(
        self,
        *,
        dataset_id: Param,
        most: Param,
        place: Param,
        start_version: Param,
        versions_to_check: Param,
        write_pointer: Param,
    ) -> None: ...
    @statement
    def find_any(
        self, *, consumer_id: Param, dataset_id: Param, start_version: Param, versions_to_check: Param
    ) -> None: ...
    @statement
    def fill(
        self,
        *,
        bound: Param,
        consumer_id: Param,
        dataset_id: Param,
        start_version: Param,
        versions_to_check: Param,
        write_pointer: Param,
    ) -> None: ...
    @statement
    def lock_consumer(self, *, consumer_id: Param) -> None: ...
    @statement
    def move_state(self, *, consumer_id: Param, start_version: Param, versions_to_check: Param) -> None: ...
    @statement
    def count_dropped(self, *, consumer_id: Param, dropped: Param) -> None: ...
    @statement
    def find_claimable(
        self,
        *,
        consumer_id: Param,
        dataset_id: Param,
        from_failures: Param,
        most: Param,
        newest: Param,
        to_failures: Param,
        write_pointer: Param,
    ) -> None: ...
    @statement
    def find_repeated(self, *, consumer_id: Param, dataset_id: Param, offered: Param) -> None: ...
    @statement
    def find_offered(self, *, consumer_id: Param, dataset_id: Param, repeats: Param, write_pointer: Param) -> None: ...
    @statement
    def claim(self, *, claims: Param, consumer_id: Param, epoch: Param, run_id: Param) -> None: ...
    @statement
    def close(
        self, *, closed: Param, consumer_id: Param, epoch: Param, error: Param, run_id: Param, state: Param
    ) -> None: ...
    @statement
    def find_claims(self, *, run_id: Param) -> None: ...
