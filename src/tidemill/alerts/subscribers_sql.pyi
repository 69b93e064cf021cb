# Statements of subscribers.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def insert_subscriber(
        self, *, event_type: Param, key_prefix: Param, n: Param, name: Param, seq: Param, target: Param, topic: Param
    ) -> None: ...
    @statement
    def delete_subscriber(self, *, name: Param) -> None: ...
    @statement
    def find_subscriber(self, *, name: Param) -> None: ...
    @statement
    def list_subscribers(self, *, after: Param, kind: Param, limit: Param, state: Param, topic: Param) -> None: ...
    @statement
    def list_nearest(self, *, limit: Param) -> None: ...
    @statement
    def move_by_hand(self, *, n: Param, name: Param, seq: Param) -> None: ...
    @statement
    def list_due(self, *, limit: Param) -> None: ...
    @statement
    def find_next_try(self) -> None: ...
    @statement
    def begin_push(self, *, name: Param, next_try_at: Param) -> None: ...
    @statement
    def record_push(self, *, attempt: Param, n: Param, name: Param, next_try_at: Param, seq: Param) -> None: ...
    @statement
    def record_failure(
        self, *, attempt: Param, error: Param, failures: Param, name: Param, next_try_at: Param, refused_since: Param
    ) -> None: ...
    @statement
    def bury(
        self,
        *,
        about: Param,
        body: Param,
        delivery_id: Param,
        error: Param,
        event: Param,
        failures: Param,
        target: Param,
    ) -> None: ...
    @statement
    def find_newest(self, *, topic: Param) -> None: ...
    @statement
    def count_behind(self, *, limit: Param, n: Param, seq: Param, topic: Param) -> None: ...
