# A stub `x_sql.pyi` declares each statement of `x.sql` as a decorated signature.

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from tidemill.catalog.named import Statement

_P = ParamSpec("_P")

def statement(signature: Callable[Concatenate[Any, _P], object]) -> Statement[_P]: ...
