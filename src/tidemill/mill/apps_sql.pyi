# Statements of apps.sql, written by `make stubs`.

from tidemill.catalog.named import Param
from tidemill.catalog.stubs import statement

class Sql:
    @statement
    def list_apps(self, *, after_name: Param, after_namespace: Param, limit: Param, until: Param) -> None: ...
    @statement
    def find_app(self, *, name: Param, namespace: Param) -> None: ...
    @statement
    def list_names(self) -> None: ...
    @statement
    def list_owned(self, *, app: Param, namespace: Param) -> None: ...
