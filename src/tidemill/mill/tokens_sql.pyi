# Statements of tokens.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def insert_token(
        self,
        *,
        created_by: Param,
        digest: Param,
        expires_at: Param,
        kind: Param,
        name: Param,
        namespace: Param,
        opened_by: Param,
        prefix: Param,
        role: Param,
        token_id: Param,
    ) -> None: ...
    @statement
    def find_by_prefix(self, *, prefix: Param) -> None: ...
    @statement
    def list_live(self, *, runs: Param, token_ids: Param) -> None: ...
    @statement
    def find_by_name(self, *, name: Param) -> None: ...
    @statement
    def find_ended(self, *, name: Param) -> None: ...
    @statement
    def list_tokens(
        self, *, after_id: Param, after_name: Param, limit: Param, namespace: Param, role: Param
    ) -> None: ...
    @statement
    def end_token(self, *, token_id: Param) -> None: ...
    @statement
    def note_use(self, *, last_used_at: Param, token_id: Param) -> None: ...
    @statement
    def delete_expired(self) -> None: ...
