# Statements of deploy.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def put_app(self, *, name: Param, namespace: Param, spec: Param) -> None: ...
    @statement
    def delete_app(self, *, name: Param, namespace: Param) -> None: ...
    @statement
    def list_apps(self) -> None: ...
    @statement
    def find_app(self, *, name: Param, namespace: Param) -> None: ...
