"""Data sets as programs name them: as the app declared them, or by name."""

from __future__ import annotations

from typing import Protocol

from tidemill.names import qualified, split_qualified


class Declared(Protocol):
    """A data set as an app declares it."""

    @property
    def qualified_name(self) -> str:
        """`<namespace>.<name>`."""


def qualified_name(dataset: Declared | str) -> str:
    """The qualified name of a data set that is given by itself or by name."""
    if not isinstance(dataset, str):
        return dataset.qualified_name
    namespace, names = split_qualified("data set", dataset, 1)
    return qualified(namespace, *names)
