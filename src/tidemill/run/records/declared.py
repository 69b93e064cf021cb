"""Data sets as programs name them: as the app declared them, or by name."""

from __future__ import annotations

from typing import Protocol

from tidemill.catalog.db import Db
from tidemill.lake.datasets import Dataset, find
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


def find_dataset(db: Db, name: str) -> Dataset:
    """The data set of that (qualified) name; `NotFound` with the nearest."""
    namespace, (short,) = split_qualified("data set", name, 1)
    return find(db, namespace, short)
