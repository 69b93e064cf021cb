"""Errors as callers, scripts and REST know them: by their code, whichever class raises them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import tidemill as tm


@contextlib.contextmanager
def raises_code(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[tm.TidemillError]]:
    """Expect an error with this code, and a message in which the pattern `match` is found."""
    with pytest.raises(tm.TidemillError, match=match) as caught:
        yield caught
    assert caught.value.code == code, f"raised {caught.value!r}"
