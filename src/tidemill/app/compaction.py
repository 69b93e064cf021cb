"""The ready program by which a file set that declares `compact_every` is compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.run.step.context import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Compaction:
    """The code of the program `name`, which compacts one file set in each run."""

    name: str
    dataset: str

    @property
    def __name__(self) -> str:
        """The program's, as of a function."""
        return self.name

    def __call__(self, run: Run, spark: SparkSession) -> None:
        """Compact each partition that has many small files."""
        del spark  # of the run as well
        run.compact(self.dataset)
