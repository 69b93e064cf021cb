# Statements of programs.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def put_program(
        self,
        *,
        app: Param,
        bundle: Param,
        kind: Param,
        name: Param,
        namespace: Param,
        program_id: Param,
        spark_profile: Param,
        spec: Param,
    ) -> None: ...
    @statement
    def find_program(self, *, app: Param, name: Param, namespace: Param) -> None: ...
    @statement
    def find_by_id(self, *, program_id: Param) -> None: ...
    @statement
    def find_by_ids(self, *, program_ids: Param) -> None: ...
    @statement
    def list_programs(self) -> None: ...
    @statement
    def list_declared(self) -> None: ...
    @statement
    def retire_others(self, *, app: Param, namespace: Param, program_ids: Param) -> None: ...
