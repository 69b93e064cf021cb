# Statements of deployments.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def put_deployment(
        self,
        *,
        actor: Param,
        app: Param,
        bundle: Param,
        changes: Param,
        declaration: Param,
        file: Param,
        namespace: Param,
        rolled_back_to: Param,
        version: Param,
    ) -> None: ...
    @statement
    def forget_code(self, *, app: Param, namespace: Param, version: Param) -> None: ...
    @statement
    def find_deployment(self, *, app: Param, namespace: Param, version: Param) -> None: ...
    @statement
    def find_declaration(self, *, app: Param, namespace: Param, version: Param) -> None: ...
    @statement
    def find_previous(self, *, app: Param, bundle: Param, namespace: Param, version: Param) -> None: ...
    @statement
    def list_deployments(self, *, app: Param, before: Param, limit: Param, namespace: Param) -> None: ...
